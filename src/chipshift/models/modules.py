"""The linear maps of a model under the names that its family's modules have.

Names as transformers 5.24 gives them; they are what an adapter's ``target_modules`` selects from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chipshift.errors import InputError, nearest
from chipshift.models.model import Attention, DenseMlp, Layer, Model, MoeMlp, Projection
from chipshift.models.module_names import NAMINGS, Naming


@dataclass(frozen=True)
class LinearModule:
    """One linear map: its path, its layer (-1 outside the layers), its widths.

    Attributes:
        copies: equal maps stacked in one parameter (experts).
        stacked: it is a parameter and no module (experts, a router), which only
            ``target_parameters`` selects.
        bias: parameters of a bias of its own; 0 of a stacked one, whose is another parameter.
    """

    name: str
    layer: int
    inputs: int
    outputs: int
    copies: int = 1
    stacked: bool = False
    bias: int = 0


def naming(model: Model) -> Naming:
    """How the model's family names its modules.

    Raises:
        InputError: it is not known here.
    """
    if model.architecture not in NAMINGS:
        choices = list(NAMINGS)
        raise InputError(
            f"the module names of {model.architecture or model.name!r} are not known"
            f"{nearest(model.architecture, choices)}; those of {len(choices)} families are"
        )
    return NAMINGS[model.architecture]


def linear_modules(model: Model) -> list[LinearModule]:
    """Every linear map of the model but its head: those beside the layers, then bottom to top."""
    names = naming(model)
    beside = names.layers.rsplit(".", 1)[0]
    found = [
        LinearModule(f"{beside}.{name}", -1, p.inputs, outputs, bias=p.bias_params)
        for p in model.projections
        for name, outputs in _renamed(names, p)
    ]
    for number, kind in enumerate(model.layer_order):
        path = f"{names.layers}.{number}"
        layer = model.layers[kind][0]
        biased = _biased(names, layer, model.d_model)
        for name, inputs, outputs, copies in _block(names, layer, model.d_model):
            stacked = f".{names.experts}." in f".{name}" or name.endswith(".weight")
            bias = outputs if name in biased else 0
            found.append(
                LinearModule(f"{path}.{name}", number, inputs, outputs, copies, stacked, bias)
            )
    return found


def _biased(n: Naming, layer: Layer, d_model: int) -> set[str]:
    """Paths of a block's maps that have a bias, which the counts of a mixer's parameters tell.

    Attention has biases on all of its maps, on all but the one that leads back, or on that alone
    (of MLA on those into a latent and back); a feed-forward on all of its maps or on none.
    """
    found: set[str] = set()
    a = layer.attention
    if a is not None and a.bias_params:
        each = {name: outputs for name, _, outputs in _attention(n, a, d_model)}
        into = set(each) - {n.o}
        latent = {"q_a_proj", "kv_a_proj_with_mqa", n.o} & set(each)
        sets = [latent] if a.kv_lora_rank is not None else [set(each), into, {n.o}]
        fitting = [s for s in sets if sum(each[name] for name in s) == a.bias_params]
        found |= {f"{n.attention}.{name}" for name in (fitting[0] if fitting else ())}
    if isinstance(layer.mlp, DenseMlp) and layer.mlp.bias_params:
        found |= {name for name, *_ in _feed_forward(n, 1, layer.mlp.matrices, d_model)}
    if isinstance(layer.mlp, MoeMlp) and layer.mlp.shared_bias_params:
        maps = _feed_forward(n, 1, layer.mlp.matrices, d_model)
        found |= {_of_shared(n, name) for name, *_ in maps}
    return found


def _block(n: Naming, layer: Layer, d_model: int) -> Iterator[tuple[str, int, int, int]]:
    """(path within the block, inputs, outputs, copies) of each map."""
    if layer.attention is not None:
        for name, inputs, outputs in _attention(n, layer.attention, d_model):
            yield f"{n.attention}.{name}", inputs, outputs, 1
    if isinstance(layer.mlp, DenseMlp):
        yield from _feed_forward(n, layer.mlp.width, layer.mlp.matrices, d_model)
    if isinstance(layer.mlp, MoeMlp):
        yield from _experts(n, layer.mlp, d_model)
    for p in layer.projections:
        yield from ((name, p.inputs, outputs, 1) for name, outputs in _renamed(n, p))
    if layer.mixer is not None:
        values = layer.mixer.heads * layer.mixer.value_dim
        for p in layer.mixer.projections:
            for name, outputs in _renamed(n, p, values):
                yield f"{n.mixer}.{name}", p.inputs, outputs, 1


def _renamed(n: Naming, p: Projection, values: int = 0) -> list[tuple[str, int]]:
    """(name, outputs) of the maps that a projection is; equal ones, but for ``in_proj_z``, which
    is as wide as the mixer's values."""
    names = dict(n.renamed).get(p.name, (p.name,))
    if "in_proj_z" in names:
        return list(zip(names, (p.outputs - values, values), strict=True))
    return [(name, p.outputs // len(names)) for name in names]


def _of_shared(n: Naming, name: str) -> str:
    """The path of a feed-forward's map in the experts that every token visits."""
    last = name.rsplit(".", 1)[-1]
    if n.shared_gate_up and name == n.gate_up:
        last = n.shared_gate_up
    if n.shared_down and name == n.mlp[-1]:
        last = n.shared_down
    return f"{n.shared}.{last}"


def _experts(n: Naming, moe: MoeMlp, d_model: int) -> Iterator[tuple[str, int, int, int]]:
    """Maps of a routed feed-forward: those of every token, the router, the stacked experts."""
    if moe.shared_width:
        for name, *numbers in _feed_forward(n, moe.shared_width, moe.matrices, d_model):
            yield (_of_shared(n, name), *numbers)  # type: ignore[misc]
    if moe.shared_gate_params:
        yield "mlp.shared_expert_gate", d_model, 1, 1
    yield n.router, d_model, moe.experts, 1
    d_expert = moe.latent_width or d_model
    up = "gate_up_proj" if moe.matrices == 3 else "up_proj"
    yield f"{n.experts}.{up}", d_expert, moe.width * (moe.matrices - 1), moe.experts
    yield f"{n.experts}.down_proj", moe.width, d_expert, moe.experts


def _feed_forward(
    n: Naming, width: int, matrices: int, d_model: int
) -> Iterator[tuple[str, int, int, int]]:
    *up, down = n.mlp
    if n.gate_up:
        yield n.gate_up, d_model, (matrices - 1) * width, 1
    else:
        for name in up[-(matrices - 1) :]:
            yield name, d_model, width, 1
    yield down, width, d_model, 1


def _attention(n: Naming, a: Attention, d_model: int) -> Iterator[tuple[str, int, int]]:
    if a.o_rank is not None:
        yield from _grouped_back(n, a, d_model)
        return
    back = (n.o, a.heads * a.v_head_dim, d_model)
    if a.kv_lora_rank is not None and a.qk_rope_head_dim is not None:
        yield from _queries(n, a, d_model)
        yield "kv_a_proj_with_mqa", d_model, a.kv_lora_rank + a.qk_rope_head_dim
        wide = a.head_dim - a.qk_rope_head_dim + a.v_head_dim
        yield "kv_b_proj", a.kv_lora_rank, a.heads * wide
        yield back
        return
    q, k, v = a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.v_head_dim
    if n.qkv:
        yield n.qkv, d_model, q + k + v
        yield back
        return
    yield n.q, d_model, q + a.gate_params // d_model  # Qwen3-Next's gate is made with its queries
    if not a.kv_shared:
        yield n.k, d_model, k
        if not a.values_are_keys:
            yield n.v, d_model, v
    yield back


def _queries(n: Naming, a: Attention, d_model: int) -> Iterator[tuple[str, int, int]]:
    """Queries of latent attention, through a latent of their own or not."""
    queries = a.heads * a.head_dim
    if a.q_lora_rank is None:
        yield n.q, d_model, queries
    else:
        yield "q_a_proj", d_model, a.q_lora_rank
        yield "q_b_proj", a.q_lora_rank, queries


def _grouped_back(n: Naming, a: Attention, d_model: int) -> Iterator[tuple[str, int, int]]:
    """DeepSeek-V4: one map makes keys and values, the way back goes through grouped latents."""
    yield from _queries(n, a, d_model)
    yield "kv_proj", d_model, a.kv_heads * a.head_dim
    latents = (a.o_rank or 0) * a.o_groups
    yield "o_a_proj", a.heads * a.v_head_dim // a.o_groups, latents
    yield "o_b_proj", latents, d_model
