"""nanotron's own layers: experts and windows of its Qwen 2.

Source: Hugging Face, nanotron, src/nanotron/config/models_config.py (``MoEConfig``),
models/qwen.py and nn/moe.py, 2025.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.errors import InputError
from chipshift.jobs.settings import Sheet, as_integer, wrong
from chipshift.models.model import Layer, Model, MoeMlp

EXPERT_WIDTH, SHARED_WIDTH = 1408, 5632


def windowed(model: Model, window: int | None, every: int | None) -> Model:
    """Every layer within the window, but for each ``no_rope_layer``-th, which sees everything."""
    if window is None:
        return model
    layer = model.layers[0][0]
    assert layer.attention is not None
    near = replace(layer, attention=replace(layer.attention, window=window))
    far = model.n_layers // every if every else 0
    if not far:
        return replace(model, layers=((near, model.n_layers),))
    order = tuple(int((at + 1) % (every or 1) == 0) for at in range(model.n_layers))
    made = ((near, order.count(0)), (layer, order.count(1)))
    return replace(model, layers=made, layer_order=order)


def with_experts(sheet: Sheet, model: Model, base: str) -> Model:
    """Experts in place of feed-forwards: in all layers (-1), or in those that are listed.

    Raises:
        InputError: more experts a token than there are, or layers that the model has not.
    """
    draft = sheet.draft

    def number(key: str, into: str, default: int, high: int = 10**6) -> int:
        found = sheet.integer(base + key, into=into, high=high)
        if found is None:
            draft.note(into, default, f"nanotron's default moe_config.{key}")
        return default if found is None else found.value

    experts = number("num_experts", "experts", 8)
    top_k = number("top_k", "experts a token", 2, high=experts)
    if top_k > experts:
        raise InputError(
            f"{draft.file} gives no {base}top_k, and nanotron's default is {top_k} of {experts} "
            f"experts; expected a whole number from 1 to {experts}"
        )
    width = number("moe_intermediate_size", "width of an expert", EXPERT_WIDTH)
    beside = sheet.boolean(base + "enable_shared_expert", into="a shared expert")
    shared = 0
    if beside is not None and beside.value:
        shared = number(
            "shared_expert_intermediate_size", "width of the shared expert", SHARED_WIDTH
        )
    mlp = MoeMlp(
        experts=experts,
        top_k=top_k,
        width=width,
        shared_width=shared,
        router_params=experts * model.d_model,
        shared_gate_params=model.d_model if shared else 0,
    )
    return _where(model, mlp, _listed(sheet, base + "layers", model.n_layers))


def _listed(sheet: Sheet, key: str, n_layers: int) -> list[int]:
    """The layers that have experts, from 0; -1 alone stands for all."""
    found = sheet.raw(key)
    if found is None or found[1].value is None:
        return [-1]
    _, setting = found
    stated: list[object] = setting.value if isinstance(setting.value, list) else [None]
    if isinstance(setting.value, str) and setting.value.strip().startswith("["):  # of --set
        stated = [one for one in setting.value.strip(" []").split(",") if one]
    listed = [as_integer(one) for one in stated]
    layers = [one for one in listed if one is not None and 0 <= one < n_layers]
    if listed != [-1] and layers != listed:
        raise wrong(key, setting, f"[-1] or a list of layers from 0 to {n_layers - 1}")
    sheet.record(key, setting, "layers with experts")
    return layers if layers == listed else [-1]


def _where(model: Model, mlp: MoeMlp, listed: list[int]) -> Model:
    """The model with these experts in the listed layers."""
    order = model.layer_order or tuple(
        kind for kind, (_, count) in enumerate(model.layers) for _ in range(count)
    )
    kinds: list[tuple[int, bool]] = [
        (kind, listed == [-1] or at in listed) for at, kind in enumerate(order)
    ]
    seen = list(dict.fromkeys(kinds))

    def made(kind: int, sparse: bool) -> Layer:
        layer = model.layers[kind][0]
        return replace(layer, mlp=mlp) if sparse else layer

    layers = tuple((made(*one), kinds.count(one)) for one in seen)
    return replace(model, layers=layers, layer_order=tuple(seen.index(one) for one in kinds))
