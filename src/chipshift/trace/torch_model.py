"""A model from the user's own ``nn.Module``, by running it once on tensors that hold nothing.

The function is called and the module run under PyTorch's ``FakeTensorMode``: shapes go through, no
memory is taken and nothing is computed. Every matmul with a parameter, every attention and the
tables are seen; the largest list of blocks becomes the layers.
"""

from __future__ import annotations

import importlib.util
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from chipshift.errors import InputError
from chipshift.models.count import layer_params, params
from chipshift.models.model import Attention, DenseMlp, Layer, Model, Projection
from chipshift.trace.load import load_function, told

TOKENS = 64
"""Length of the one sequence that is run where the function gives no inputs."""
OUTSIDE = -1


@dataclass(frozen=True)
class Map:
    """A matmul of ``rows`` rows with a parameter; ``weight`` tells parameters apart."""

    rows: int
    inputs: int
    outputs: int
    weight: int


@dataclass(frozen=True)
class Attended:
    """One attention: query heads, key/value heads and widths as they were seen."""

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    causal: bool


@dataclass
class Seen:
    """What one run met, by block (``OUTSIDE`` for none), in order."""

    events: dict[int, list[Map | Attended]] = field(default_factory=dict)
    width: int = 0
    block: int = OUTSIDE

    def add(self, event: Map | Attended) -> None:
        self.events.setdefault(self.block, []).append(event)


def read_torch_model(text: str) -> Model:
    """The model that ``MODULE:FUNCTION`` builds; this imports and runs the user's code.

    The function takes nothing and returns the module, or (module, inputs, ...) with a tuple or
    dict of example inputs; without them one sequence of ``TOKENS`` token ids is run.

    Raises:
        InputError: PyTorch is absent, the function or the module fails (with file and line), or
            the module is of a shape that is not read.
    """
    if importlib.util.find_spec("torch") is None:
        raise InputError("--torch needs PyTorch: install it with pip install 'chipshift[torch]'")
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    function, _ = load_function("--torch", text)
    with _quiet(), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        made = _called(text, function)
        module, *rest = made if isinstance(made, (tuple, list)) and made else (made,)
        if not isinstance(module, torch.nn.Module):
            raise InputError(
                f"--torch {text}: returned {type(module).__name__}, expected an nn.Module"
            )
        inputs = rest[0] if rest else torch.zeros((1, TOKENS), dtype=torch.long)
        blocks = _blocks(module)
        seen = _run(text, module, blocks, inputs)
        return _model(text, module, blocks, seen)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what PyTorch logs of an operation that fails: the sentence says it."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _called(text: str, call: Callable[[], Any]) -> Any:
    """What the user's code returns, its failure as one sentence with their file and line."""
    try:
        return call()
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"--torch {text}: {' '.join(told(error).split())[:500]}") from None


def _blocks(module: Any) -> list[Any]:
    """The children of the list of blocks that holds most parameters."""
    import torch

    lists = [
        list(m.children())
        for m in module.modules()
        if isinstance(m, (torch.nn.ModuleList, torch.nn.Sequential)) and len(m) > 0
    ]
    lists += [
        list(m.values())
        for m in module.modules()
        if isinstance(m, torch.nn.ModuleDict) and len({type(v) for v in m.values()}) == 1
    ]
    return max(lists, key=lambda made: sum(map(_size, made)), default=[])


def _size(module: Any) -> int:
    return sum(p.numel() for p in module.parameters())


def _run(text: str, module: Any, blocks: list[Any], inputs: Any) -> Seen:
    """One forward pass, watched."""
    seen = Seen()
    hooks = []

    def entered(number: int) -> Callable[..., None]:
        def note(_: Any, args: Any, kwargs: Any) -> None:
            seen.block = number
            first = next((a for a in [*args, *kwargs.values()] if hasattr(a, "shape")), None)
            if first is not None and not seen.width:
                seen.width = int(first.shape[-1])

        return note

    def left(*_: Any) -> None:
        seen.block = OUTSIDE

    for number, block in enumerate(blocks):
        hooks.append(block.register_forward_pre_hook(entered(number), with_kwargs=True))
        hooks.append(block.register_forward_hook(left))
    module.eval()
    try:
        with _watched(module, seen):
            if isinstance(inputs, dict):
                _called(text, lambda: module(**inputs))
            elif isinstance(inputs, (tuple, list)):
                _called(text, lambda: module(*inputs))
            else:
                _called(text, lambda: module(inputs))
    finally:
        for hook in hooks:
            hook.remove()
    return seen


@contextmanager
def _watched(module: Any, seen: Seen) -> Iterator[None]:
    """Matmuls with parameters and attentions go into ``seen``."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten
    # reached from inside torch's own layers, where the function's name is not seen
    fused = (
        aten._scaled_dot_product_flash_attention_for_cpu,
        aten._scaled_dot_product_flash_attention,
    )
    stored = {p.untyped_storage()._cdata: n for n, p in enumerate(module.parameters())}
    sdpa = torch.nn.functional.scaled_dot_product_attention
    inside = [False]
    scores: list[Any] = []

    def weight_of(tensor: Any) -> int | None:
        return stored.get(tensor.untyped_storage()._cdata)

    class Maps(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None
                               ) -> Any:  # fmt: skip
            out = func(*args, **(kwargs or {}))
            packet = func._overloadpacket
            if not inside[0] and packet in fused:
                seen.add(_attended(args, bool(args[4]) if len(args) > 4 else False, kwargs or {}))
                return out
            if inside[0] or packet not in (aten.mm, aten.addmm, aten.bmm, aten.baddbmm):
                return out
            a, b = args[-2:] if packet in (aten.mm, aten.bmm) else args[1:3]
            weight = weight_of(b)
            if weight is None and weight_of(a) is not None:
                weight, a, b = weight_of(a), b.mT, a.mT
            if weight is not None:
                for _ in range(int(b.shape[0]) if b.dim() == 3 else 1):
                    seen.add(Map(int(a.shape[-2]), int(b.shape[-2]), int(b.shape[-1]), weight))
            elif packet in (aten.bmm, aten.baddbmm):
                _pair(a, b, seen, scores)
            return out

    class Attentions(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None
                               ) -> Any:  # fmt: skip
            given = kwargs or {}
            if func is not sdpa:
                return func(*args, **given)
            causal = bool(given.get("is_causal", args[5] if len(args) > 5 else False))
            tensors = args + tuple(given[n] for n in ("query", "key", "value") if n in given)
            masked = {"attn_mask": args[3] if len(args) > 3 else given.get("attn_mask")}
            seen.add(_attended(tensors, causal, masked))
            inside[0] = True
            try:
                return func(*args, **given)
            finally:
                inside[0] = False

    with Maps(), Attentions():
        yield


def _attended(tensors: Any, causal: bool, given: dict[str, Any]) -> Attended:
    """An attention by its queries, keys and values; what has a mask is taken for causal."""
    q, k, v = tensors[:3]
    masked = given.get("attn_mask") is not None
    return Attended(
        int(q.shape[-3]), int(k.shape[-3]), int(q.shape[-1]), int(v.shape[-1]), causal or masked
    )


def _pair(a: Any, b: Any, seen: Seen, scores: list[Any]) -> None:
    """Two matmuls of activations in a row, scores and then their sum of values, are attention."""
    if scores and scores[0].shape[0] == a.shape[0] and scores[1] == a.shape[-1]:
        keyed, _ = scores
        scores.clear()
        heads, dim = int(keyed.shape[0]), int(keyed.shape[-1])
        seen.add(Attended(heads, heads, dim, int(b.shape[-1]), True))
    else:
        scores[:] = [a, b.shape[-1]]


def _model(text: str, module: Any, blocks: list[Any], seen: Seen) -> Model:
    """The model of what was seen, which adds up to the module's parameters or is refused."""
    import torch

    if not seen.width or not any(n in seen.events for n in range(len(blocks))):
        raise InputError(
            f"--torch {text}: no list of blocks (nn.ModuleList or nn.Sequential) with matmuls was "
            "run; expected a transformer built of such blocks"
        )
    tables = [m for m in module.modules() if isinstance(m, torch.nn.Embedding)]
    outside = [e for e in seen.events.get(OUTSIDE, []) if isinstance(e, Map)]
    table = _token_table(tables, outside)
    head = outside[-1] if outside and table is not None else None
    if head is not None and table is not None and head.outputs < table.num_embeddings:
        head = None
    layers: Counter[Layer] = Counter()
    order: list[Layer] = []
    for number, block in enumerate(blocks):
        if number in seen.events:
            order.append(_layer(f"--torch {text}: block {number}", block, seen, number))
            layers[order[-1]] += 1
    kinds = list(layers)
    weights = list(module.parameters())
    tied = (
        head is not None
        and table is not None
        and weights[head.weight].untyped_storage()._cdata == table.weight.untyped_storage()._cdata
    )
    rows, width = (table.num_embeddings, table.embedding_dim) if table is not None else (1, 0)
    norms = _norm_params(module) - sum(_norm_params(b) for b in blocks)
    model = Model(
        name=type(module).__name__,
        architecture="torch",
        d_model=seen.width,
        vocab=head.outputs if head is not None else rows,
        layers=tuple((kind, layers[kind]) for kind in kinds),
        layer_order=tuple(kinds.index(one) for one in order),
        tied=tied or head is None,
        final_norm_params=norms,
        has_head=head is not None,
        embedding_width=None if width in (0, seen.width) else width,
        projections=tuple(
            Projection(f"map {n}", e.inputs, e.outputs, once=e.rows == 1)
            for n, e in enumerate(outside)
            if e is not head
        ),
    )
    rest = _size(module) - params(model)
    extra = sum(_size(t) for t in tables if t is not table)
    extra += (rows - model.vocab) * width if table is not None else -model.vocab * seen.width
    if rest < extra:
        raise InputError(
            f"--torch {text}: its maps add up to more than its {_size(module):,} parameters, so "
            "that weights are shared between blocks, which is not read"
        )
    return replace(model, embedding_extra_params=extra, other_params=rest - extra)


def _token_table(tables: list[Any], outside: list[Map]) -> Any:
    """The table of tokens: as many rows as the head has outputs, else the first; or None."""
    wide = outside[-1].outputs if outside else 0
    as_wide = [table for table in tables if table.num_embeddings == wide]
    return next(iter(as_wide + tables), None)


def _norm_params(module: Any) -> int:
    return sum(
        p.numel()
        for m in module.modules()
        if "norm" in type(m).__name__.lower()
        for p in m.parameters(recurse=False)
    )


def _layer(where: str, block: Any, seen: Seen, number: int) -> Layer:
    """A block's maps as attention, feed-forward and others, and the parameters they leave."""
    events, width = seen.events[number], seen.width
    maps = [e for e in events if isinstance(e, Map)]
    attended = [e for e in events if isinstance(e, Attended)]
    if len(attended) > 1:
        raise InputError(f"{where} attends {len(attended)} times; expected one attention a block")
    attention = None
    if attended:
        at = events.index(attended[0])
        before = [e for e in events[:at] if isinstance(e, Map)]
        after = [e for e in events[at:] if isinstance(e, Map)]
        attention, used = _attention(where, attended[0], before, after, width)
        maps = [e for e in maps if not any(e is one for one in used)]
    mlp, maps = _feed_forward(maps, width)
    norms = _norm_params(block)
    projections = tuple(
        Projection(f"map {n}", e.inputs, e.outputs, once=e.rows == 1) for n, e in enumerate(maps)
    )
    bare = Layer(attention, mlp, norms, projections=projections)
    rest = _size(block) - layer_params(bare, width).total
    if rest < 0:
        raise InputError(
            f"{where}: its matmuls use {-rest:,} parameters more than it has, so that a map runs "
            "more than once, which is not read"
        )
    return replace(bare, other_params=rest)


def _attention(
    where: str, seen: Attended, before: list[Map], after: list[Map], width: int
) -> tuple[Attention, list[Map]]:
    """Attention with its maps: those before that make queries, keys and values, the one after."""
    h, v, heads = seen.head_dim, seen.v_head_dim, seen.heads
    back = [e for e in after if (e.inputs, e.outputs) == (heads * v, width)][:1]
    spans = [before[i:j] for i in range(len(before)) for j in range(i + 1, len(before) + 1)]
    spans = [s for s in spans if all(e.inputs == width for e in s)]
    for kv_heads in (k for k in range(seen.kv_heads, 0, -1) if heads % k == 0):
        wanted = heads * h + kv_heads * (h + v)
        span = next((s for s in spans if sum(e.outputs for e in s) == wanted), None)
        if span is not None and back:
            return Attention(heads, kv_heads, h, v, causal=seen.causal), span + back
    raise InputError(
        f"{where}: the maps around its attention of {heads} heads of {h} are no plain query, key, "
        "value and output projections; expected those"
    )


def _feed_forward(maps: list[Map], width: int) -> tuple[DenseMlp | None, list[Map]]:
    """The feed-forward among a block's maps, and the maps that remain."""
    down = next((e for e in reversed(maps) if e.outputs == width), None)
    if down is None:
        return None, maps
    f = down.inputs
    up = [e for e in maps if e.inputs == width and e.outputs == f and e is not down]
    fused = [e for e in maps if e.inputs == width and e.outputs == 2 * f]
    chosen = fused[:1] if fused else up[:2]
    if not chosen:
        return None, maps
    used = [*chosen, down]
    matrices = 3 if fused or len(up) >= 2 else 2
    return DenseMlp(f, matrices), [e for e in maps if not any(e is one for one in used)]
