"""What one item (an image, a clip, a text with its images) costs: every stack, every convolution.

A language model is counted by the token (``ops.forward_flops_per_token``). Towers, convolutions and
maps that run once an item are not a token's; here they are counted, with as many positions in each
stack as the config fixes or the caller says. Attention of stacks that are not causal is over all
pairs; where two streams attend together (Stable Diffusion 3, Flux) over both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from chipshift.errors import InputError
from chipshift.models.model import Attention, Conv, Layer, Model, Projection, Tower
from chipshift.models.ops import Cut, attention_flops, layer_ops, matmul_flops, mean_keys
from chipshift.worked import plain

Number = Any
MAIN = "tokens"
"""What ``lengths`` calls the positions of the main stack; towers go by their own names."""


@dataclass(frozen=True)
class Work:
    """One kind of op of an item's forward pass.

    Attributes:
        part: the stack it belongs to.
        name: ``convolution``, ``attention``, or a matmul's.
        m, n, k, groups: rows, outputs and reduction of a matmul (of one group); 0 for attention.
        flops: of all ``count`` of them.
        reads_data: it reads the item itself, so that no gradient of its input is wanted.
    """

    part: str
    name: str
    flops: float
    m: float = 0.0
    n: float = 0.0
    k: float = 0.0
    groups: float = 1.0
    count: int = 1
    reads_data: bool = False


def item_work(model: Model, lengths: Mapping[str, int] | None = None) -> list[Work]:
    """Every op of one item's forward pass.

    Args:
        lengths: positions of each stack that its config does not fix, by the tower's name, and
            the main stack's as ``MAIN``.

    Raises:
        InputError: a stack's positions are neither fixed nor given, or its ops are not known.
    """
    given = dict(lengths or {})
    own = [_positions(model, tower.name, tower, given) for tower in model.towers]
    count = {tower.name: n for tower, n in zip(model.towers, own, strict=True)}
    count[MAIN] = _positions(model, MAIN, model, given)
    memory = given.get("text", count.get("encoder", count.get("text", 0)))
    found: list[Work] = []
    for tower, tokens in zip(model.towers, own, strict=True):
        found += _stack(tower.name, tower, tokens, memory or count[MAIN], count)
    found += _stack(MAIN, model, count[MAIN], memory, count)
    if model.has_head:
        width = model.d_model if model.embedding_width is None else model.embedding_width
        found.append(_matmul(MAIN, "lm_head", count[MAIN], model.logits, width))
    return found


def item_flops(model: Model, lengths: Mapping[str, int] | None = None) -> float:
    """Forward FLOPs of one item, a multiply-add being 2."""
    return sum(work.flops for work in item_work(model, lengths))


def backward_flops(model: Model, lengths: Mapping[str, int] | None = None) -> float:
    """FLOPs of one item's backward pass: twice the forward's, less gradients of the data itself."""
    return sum(work.flops * (1 if work.reads_data else 2) for work in item_work(model, lengths))


def _positions(model: Model, name: str, stack: Model | Tower, given: Mapping[str, int]) -> int:
    fixed = given.get(name) or stack.tokens
    if fixed is None and not stack.layers and not stack.projections:
        return 0
    if fixed is None and not stack.layers:
        return 1
    if fixed is None:
        raise InputError(
            f"{model.name}: how many positions its {name} has for an item is not in its config; "
            f"expected it, such as {name}=256"
        )
    return fixed


def _stack(
    part: str, stack: Model | Tower, tokens: int, memory: int, count: Mapping[str, int]
) -> Iterator[Work]:
    """Layers, convolutions and maps of one stack."""
    for conv in stack.convs:
        yield from _convolution(part, conv, tokens)
    for layer, times in stack.layers:
        rows = _rows(layer, tokens, count)
        for work in _layer(part, layer, stack.d_model, rows, memory, count):
            yield replace(work, flops=work.flops * times, count=work.count * times)
    for projection in stack.projections:
        yield _projection(part, projection, tokens)


def _rows(layer: Layer, tokens: int, count: Mapping[str, int]) -> int:
    """A layer over two streams side by side has the positions of both."""
    both = layer.attention is not None and layer.attention.kv_from == "both"
    return tokens + count.get("text", 0) if both else tokens


def _layer(
    part: str, layer: Layer, d_model: int, tokens: int, memory: int, count: Mapping[str, int]
) -> Iterator[Work]:
    for conv in layer.convs:
        yield from _convolution(part, conv, tokens)
    if layer.mixing_flops:
        yield Work(part, "attention", float(layer.mixing_flops))
    for projection in layer.projections:
        yield _projection(part, projection, tokens)
    if layer.cross is not None:
        reads = tokens if layer.cross.kv_from == "self" else count.get(layer.cross.kv_from, memory)
        yield from _cross(part, layer.cross, d_model, tokens, reads)
    bare = replace(layer, cross=None, projections=(), convs=())
    for op in layer_ops(bare, d_model, Cut(float(tokens), float(tokens))):
        flops = float(plain(op.flops))
        if op.kind == "attention":
            assert layer.attention is not None
            yield Work(part, "attention", _attended(layer.attention, tokens, flops, count))
        elif flops:
            m, n, k, groups = (float(plain(x)) for x in (op.m, op.n, op.k, op.groups))
            yield Work(part, op.name, flops, m, n, k, groups)


def _attended(a: Attention, tokens: int, own: float, count: Mapping[str, int]) -> float:
    """FLOPs of attention: over both streams where they attend together."""
    if a.kv_from != "joint":
        return own
    keys = count.get("text", 0) + count[MAIN]
    return float(plain(attention_flops(tokens, keys, a.heads, a.head_dim, a.v_head_dim)))


def _cross(part: str, a: Attention, d_model: int, tokens: int, reads: int) -> Iterator[Work]:
    """Attention to ``reads`` positions of another stack (its own, where it attends twice)."""
    width = d_model if a.kv_input is None else a.kv_input
    yield _matmul(part, "q_proj", tokens, a.heads * a.head_dim, d_model)
    keyed = _matmul(part, "kv_proj", reads, a.kv_heads * (a.head_dim + a.v_head_dim), width)
    yield replace(keyed, reads_data=a.kv_input is not None)
    keys = mean_keys(float(reads), float(reads), 0.0)
    flops = attention_flops(tokens, keys, a.heads, a.head_dim, a.v_head_dim)
    yield Work(part, "attention", float(plain(flops)))
    yield _matmul(part, "out_proj", tokens, d_model, a.heads * a.v_head_dim)


def _matmul(part: str, name: str, m: float, n: float, k: float) -> Work:
    return Work(part, name, float(plain(matmul_flops(m, n, k))), float(m), float(n), float(k))


def _projection(part: str, p: Projection, tokens: int) -> Work:
    made = _matmul(part, "map", 1 if p.once else tokens / p.every, p.outputs, p.inputs)
    return replace(made, reads_data=p.name in READ_DATA)


def _convolution(part: str, conv: Conv, tokens: int) -> Iterator[Work]:
    """A convolution as the matmul of its taps: positions × outputs × (inputs · taps), by group."""
    rows = float(conv.positions or tokens * conv.per_token)
    n, k = conv.outputs / conv.groups, conv.inputs / conv.groups * conv.kernel
    flops = float(plain(matmul_flops(rows, n, k, conv.groups))) * conv.count
    name = "map" if conv.name == "matmul" else "convolution"
    yield Work(part, name, flops, rows, n, k, conv.groups, conv.count, conv.name in STEMS)


STEMS = ("stem", "patch_embed", "patch_embedding", "conv1", "conv_in")
"""Convolutions over the data itself."""
READ_DATA = ("x_embedder", "context_embedder", "caption.linear_1")
"""Maps of an image's latents, or of a text that another, frozen model has encoded."""
