"""Which constants of a stack are fitted on measured runs, over what they are shared, and what holds
them where the runs say little."""

from __future__ import annotations

from dataclasses import dataclass, field

from chipshift.validate.case import Case

ERAS: dict[str, tuple[str, ...]] = {
    "megatron": ("00", "24.04", "25.04", "25.09", "26.02", "26.06"),
    "nanotron": ("0", "1"),
}
"""Releases of a stack from which its constants may differ. Megatron's are NeMo containers (the
runs name them); nanotron's 1 is its repaired pipeline engine (the sweep's ``after_pp_fix``)."""


@dataclass(frozen=True)
class Free:
    """A fitted constant.

    Attributes:
        name: field of ``Stack``.
        scope: ``stack``, ``chip``, ``era`` or ``chip_era``: what one value is shared over.
        prior: where it is held; ``sd`` how firmly, in its log (share: in its log-odds).
        share: it lies between 0 and 1.
        times: it multiplies the value of a wider scope instead of standing for itself.
        priors: by the value of the scope, where one prior does not serve.
    """

    name: str
    scope: str
    prior: float
    sd: float
    share: bool = False
    times: bool = False
    priors: dict[str, float] = field(default_factory=dict)


def era(case: Case) -> str:
    """The last of its stack's eras that the run's release reaches; '' where there are none."""
    eras = ERAS.get(case.stack)
    if not eras:
        return ""
    return max(e for e in eras if e <= (case.release or eras[-1]))


def scope_of(case: Case, scope: str) -> str:
    """What a run shares a constant of this scope with."""
    return {
        "stack": "",
        "chip": case.chip,
        "era": era(case),
        "chip_era": f"{case.chip}@{era(case)}",
    }[scope]


_COMMON = (
    Free("matmul_scale", "chip", 0.88, 0.12),
    Free("attention_scale", "chip", 0.8, 0.35),
    Free("memory_scale", "stack", 0.8, 0.3),
    Free("memory_scale", "chip", 1.0, 0.2, times=True),
    Free("narrow_matmul_scale", "chip", 1.0, 0.12),
    Free("grouped_scale", "chip", 0.9, 0.3),
    Free("comm_tax", "stack", 0.15, 0.5),
    Free("collective_scale", "chip", 0.75, 0.3),
    Free("fsdp_overlap", "stack", 0.8, 0.7, share=True),
    Free("tp_overlap", "stack", 0.4, 0.8, share=True),
    Free("ep_overlap", "stack", 0.15, 0.6, share=True),
    Free("cp_overlap", "stack", 0.6, 0.5, share=True),
    Free("jitter_per_doubling", "stack", 0.005, 0.5),
    Free("step_overhead_s", "stack", 0.01, 0.8),
    Free("cast_passes", "stack", 1.5, 0.4),
)

# PyTorch's own attention on Hopper is FlashAttention-2, 0.56 of what the best kernel reaches there
# (arXiv 2407.08608), and H100 runs bf16 matmuls at 0.73 of peak under sustained load where a kernel
# alone reaches 0.82 (power).
_FA2 = {"h100": 0.4, "h200": 0.45}
_FA2_STACK = (
    Free("matmul_scale", "chip", 0.88, 0.1, priors={"h100": 0.78}),
    Free("attention_scale", "chip", 0.7, 0.3, priors=_FA2),
    Free("memory_scale", "stack", 0.65, 0.2),
    Free("memory_scale", "chip", 1.0, 0.1, times=True),
    Free("narrow_matmul_scale", "chip", 1.05, 0.1),
    Free("grouped_scale", "chip", 0.85, 0.25),
    Free("comm_tax", "stack", 0.35, 0.4),
    Free("collective_scale", "chip", 0.65, 0.25),
    Free("jitter_per_doubling", "stack", 0.006, 0.4),
    *(f for f in _COMMON if f.name.endswith("_overlap")),
    Free("step_overhead_s", "stack", 0.01, 0.8),
    Free("cast_passes", "stack", 1.5, 0.4),
)

_MEGATRON = (
    Free("matmul_scale", "chip", 0.88, 0.1),
    Free("matmul_scale", "era", 1.0, 0.04, times=True),
    Free("matmul_scale", "chip_era", 1.0, 0.05, times=True),
    Free("attention_scale", "chip", 0.85, 0.2),
    Free("memory_scale", "stack", 0.6, 0.3),
    Free("memory_scale", "era", 1.0, 0.25, times=True),
    Free("memory_scale", "chip", 1.0, 0.15, times=True),
    Free("narrow_matmul_scale", "stack", 1.0, 0.1),
    Free("narrow_matmul_scale", "chip", 1.0, 0.07, times=True),
    Free("narrow_matmul_scale", "era", 1.0, 0.06, times=True),
    Free("grouped_scale", "stack", 0.9, 0.2),
    Free("grouped_scale", "chip", 1.0, 0.1, times=True),
    Free("grouped_scale", "era", 1.0, 0.12, times=True),
    Free("tp_overlap", "stack", 0.4, 0.8, share=True),
    Free("ep_overlap", "era", 0.15, 0.5, share=True),
    Free("ep_overlap_interleaved", "era", 0.4, 1.0, share=True),
    Free("cp_overlap", "stack", 0.6, 0.5, share=True),
    Free("pp_overlap", "stack", 0.5, 0.5, share=True),
    Free("jitter_per_doubling", "stack", 0.004, 0.4),
    Free("step_overhead_s", "stack", 0.01, 0.8),
    Free("cast_passes", "stack", 1.5, 0.4),
    Free("host_s_per_op", "era", 8e-6, 0.5, priors={"26.06": 3e-6}),
    Free("ops_of_routing", "stack", 40.0, 0.4),
    Free("ops_per_expert", "stack", 4.0, 0.4),
)

_NANOTRON = (
    Free("matmul_scale", "stack", 0.78, 0.03),
    Free("attention_scale", "stack", 0.4, 0.15),
    Free("memory_scale", "stack", 0.8, 0.1),
    Free("host_s_per_op", "stack", 1.9e-5, 0.2),
    Free("host_drag", "stack", 1.2, 0.4),
    Free("pp_stall_s", "era", 1.4, 0.2, priors={"1": 0.01}),
    Free("tp_across_scale", "stack", 0.5, 0.4),
    Free("tp_across_latency_s", "stack", 8e-4, 0.3),
    Free("collective_scale", "stack", 0.6, 0.4),
    Free("comm_tax", "stack", 0.2, 0.3),
    Free("tp_overlap", "stack", 0.1, 0.5, share=True),
    Free("pp_overlap", "stack", 0.2, 0.5, share=True),
    Free("dp_overlap", "stack", 0.5, 0.7, share=True),
    Free("jitter_per_doubling", "stack", 0.02, 0.2),
    Free("step_overhead_s", "stack", 0.05, 0.4),
    Free("optimizer_passes", "stack", 1.5, 0.3),
)

# PyTorch/XLA schedules its weight gathers less well than MaxText: wider room for what it exposes.
_TORCH_XLA = (
    *(f for f in _COMMON if f.name not in ("comm_tax", "collective_scale", "fsdp_overlap")),
    Free("comm_tax", "stack", 0.4, 0.5),
    Free("collective_scale", "chip", 0.5, 0.4),
    Free("fsdp_overlap", "stack", 0.5, 0.8, share=True),
    Free("plain_flash_scale", "stack", 0.75, 0.25),
)

FREE: dict[str, tuple[Free, ...]] = {
    "megatron": _MEGATRON,
    "nanotron": _NANOTRON,
    "torch_xla": _TORCH_XLA,
    "llm-foundry": _FA2_STACK,
    "torchtitan": _FA2_STACK,
    "fms-fsdp": _FA2_STACK,
}
"""Fitted constants of each stack; the others share one list."""

FIXED: dict[str, dict[str, float]] = {
    "megatron": {"ep_once_per_node": 1.0},
    "nanotron": {"ops_per_layer": 80.0},
}
"""Set by hand, with their evidence in the stack's file, and held during a fit."""


def free_of(stack: str) -> tuple[Free, ...]:
    """The fitted constants of a stack."""
    return FREE.get(stack, _COMMON)
