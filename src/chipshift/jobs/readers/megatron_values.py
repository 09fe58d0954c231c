"""What Megatron-LM arguments say of a model's values: no shape and no cost, only the compiled step.

Arguments and defaults: NVIDIA, Megatron-LM, megatron/training/arguments.py, 2026-08.
"""

from __future__ import annotations

from chipshift.jobs.settings import Sheet, as_boolean, as_number
from chipshift.models.numerics import Numerics
from chipshift.models.rope import Rope

LLAMA_3 = (1.0, 4.0, 8192)
"""--use-rope-scaling: turns up to which a pair is slowed down, from which it is not, positions."""


def values(sheet: Sheet, latent: bool) -> Numerics:
    """Of a model whose attention is ``latent`` or not. Megatron's own scaling of latent attention
    (YaRN, whether or not it is asked for) is named and not worked out."""
    theta = _number(sheet, "rotary-base", 10000.0)
    rope = Rope(theta)
    if latent:
        rope = Rope(theta, "YaRN, as Megatron has it")
    elif _on(sheet, "use-rope-scaling"):
        rope = Rope(theta, "llama3", _number(sheet, "rope-scaling-factor", 8.0), *LLAMA_3)
    scale = _number(sheet, "moe-router-topk-scaling-factor", 0.0)
    groups, top = (_number(sheet, f"moe-router-{key}", 0.0) for key in ("num-groups", "group-topk"))
    score = sheet.settings.get("moe-router-score-function")
    return Numerics(
        norm_eps=_number(sheet, "norm-epsilon", 1e-5),
        rope=rope,
        local_rope=rope,
        activation=_activation(sheet),
        router=str(score.value) if score else None,
        renormalise=not _on(sheet, "moe-router-pre-softmax"),
        router_scale=scale or None,
        expert_groups=int(groups) or None,
        top_groups=int(top) or None,
    )


def _activation(sheet: Sheet) -> str:
    for key, kind in (("swiglu", "silu"), ("quick-geglu", "quick gelu"), ("squared-relu", "relu²")):
        if _on(sheet, key):
            return kind
    return "gelu"


def _number(sheet: Sheet, key: str, otherwise: float) -> float:
    """A positive number, or what stands where there is none that can be used."""
    setting = sheet.settings.get(key)
    found = as_number(setting.value) if setting else None
    return found if found is not None and 0 < found < 1e12 else otherwise


def _on(sheet: Sheet, key: str) -> bool:
    setting = sheet.settings.get(key)
    return setting is not None and bool(as_boolean(setting.value))
