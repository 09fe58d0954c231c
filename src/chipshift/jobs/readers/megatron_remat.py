"""Megatron-LM's rematerialisation: ``--recompute-granularity``, its method and its modules.

Arguments and defaults: as in megatron.py.
"""

from __future__ import annotations

from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.plan import of_some
from chipshift.jobs.settings import Sheet

MODULES = {
    "core_attn": {"attention"},
    "layernorm": {"attention_norm", "mlp_norm"},
    "moe_act": {"activation"},
    "mlp": {"up", "activation"},
    "moe": {"up", "activation"},
    "shared_experts": {"activation"},
    "mla_up_proj": {"qkv"},
}
"""What each of --recompute-modules runs again, in the words of parallel/remat.py."""

KEPT = ("attention_norm", "qkv", "attention", "out_proj", "mlp_norm", "up", "activation")
"""All of a layer's tensors that are kept without recomputation."""


def put_remat(sheet: Sheet) -> None:
    """What is recomputed, of which layers; nothing unless the script says so."""
    draft = sheet.draft
    granularity = sheet.text(
        "recompute-granularity", into="rematerialisation", choices=("full", "selective")
    )
    short = sheet.boolean("recompute-activations", into="selective")
    old = sheet.boolean("checkpoint-activations", into="full")  # before selective there was this
    methods = ("recompute-method", "activations-checkpoint-method")
    method = sheet.text(*methods, into="which layers", choices=("uniform", "block"))
    if granularity is None and ((old and old.value) or methods[1] in sheet.settings):
        given = old or method
        granularity = Given("full", given.file, given.line) if given else None
    count = sheet.integer("recompute-num-layers", into="layers", low=0, high=10**6)
    modules = sheet.strings("recompute-modules", into="what is recomputed")
    layer = sheet.boolean("moe-layer-recompute", into="experts recomputed")
    stated = granularity or short
    if layer is not None and layer.value and (granularity is None or granularity.value != "full"):
        # the older spelling of --recompute-modules moe, beside core_attn or alone
        named = modules.value if modules is not None and modules.value else ["core_attn"]
        modules = Given([*(named if stated is not None else ()), "moe"], layer.file, layer.line)
        stated = stated or layer
    if stated is None:
        draft.assume("remat", "none", "no --recompute-granularity is given")
        return
    if granularity is not None and granularity.value == "full":
        _full(draft, granularity, method.value if method else "uniform", count)
        return
    remat = "selective"
    if modules is not None and modules.value and modules.value != ["core_attn"]:
        again = set().union(*(MODULES.get(name, set()) for name in modules.value))
        remat = "custom:saved=" + "+".join(name for name in KEPT if name not in again)
    draft.put("remat", Given(remat, stated.file, stated.line))


def _full(draft: Draft, stated: Given[str], method: str, count: Given[int] | None) -> None:
    """``block`` recomputes that many layers of each (virtual) stage, ``uniform`` all of them."""
    remat = "full"
    model = draft.get("model")
    if method == "block" and count is not None and model is not None:
        chunks = (draft.get("pp") or 1) * (draft.get("vpp") or 1)
        remat = of_some("full", count.value, max(model.n_layers // chunks, 1))
    draft.put("remat", Given(remat, stated.file, stated.line))
