"""Which constants of a stack are fitted on measured runs, over what they are shared, and what holds
them where the runs say little.

Every constant has one value that all runs of the stack share, held at a prior, and factors for
what a run shares with others: its family of chips, its chip, its release. Each factor is held at 1,
and exists only where at least ``MIN_RUNS`` runs of ``MIN_MODELS`` models speak for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from chipshift.validate.case import Case

MIN_RUNS, MIN_MODELS = 3, 2
"""Runs and different models that a constant of a stack, chip, family or release needs."""

ERAS: dict[str, tuple[str, ...]] = {
    "megatron": ("00", "25.04", "25.09", "25.11", "26.02", "26.02.01", "26.06"),
    "nanotron": ("0", "1", "2"),
}
"""Releases of a stack from which its constants may differ. Megatron's are NeMo containers (the
runs name them); nanotron's are the sweep's three series of runs (validate/sweep.py)."""

FAMILIES: dict[str, tuple[str, ...]] = {
    "hopper": ("h100", "h200"),
    "blackwell": ("b200", "b300", "gb200", "gb300"),
}
"""Chips of one architecture, whose kernels are the same programs."""

KINDS: dict[str, tuple[str, ...]] = {
    "gpu": ("a100", "h100", "h200", "b200", "b300", "gb200", "gb300",
            "mi300x", "mi325x", "mi350x", "mi355x"),
    "tpu": ("v4", "v5e", "v5p", "v6e", "v7x"),
}  # fmt: skip
"""Chips that one compiler's back end makes programs for, where a stack runs on both."""


@dataclass(frozen=True)
class Free:
    """A fitted constant.

    Attributes:
        name: field of ``Stack``.
        prior: where the stack's value is held, ``sd`` how firmly, in its log (share: log-odds).
        share: it lies between 0 and 1.
        spread: by scope (``kind``, ``family``, ``chip``, ``release``, ``family_release``),
            how firmly the factors are held at 1, in the same logs. A release's factor is over the
            release before it.
        eras: releases (``26.06``), or those of one family (``blackwell@25.11``), at which it may
            move; () = at each of its stack's ``ERAS``.
        priors: steps from ``prior`` that are known beforehand, by chip or release, with what says
            so.
    """

    name: str
    prior: float
    sd: float
    share: bool = False
    spread: Mapping[str, float] = field(default_factory=dict)
    eras: tuple[str, ...] = ()
    priors: Mapping[str, tuple[float, str]] = field(default_factory=dict)


def era(case: Case) -> str:
    """The last of its stack's eras that the run's release reaches; '' where there are none."""
    eras = ERAS.get(case.stack)
    if not eras:
        return ""
    return max(e for e in eras if e <= (case.release or eras[-1]))


def group_of(chip: str, groups: Mapping[str, tuple[str, ...]]) -> str:
    """The family or kind of a chip; '' where it stands alone."""
    return next((name for name, chips in groups.items() if chip in chips), "")


ROUTED = ("grouped_scale", "permute_passes")
"""Constants of layers with routed experts."""


def said(case: Case) -> set[tuple[str, str]]:
    """Kinds and values of a run's flags."""
    return {(flag.kind, flag.value) for flag in case.job.flags}


def touches(name: str, case: Case) -> bool:
    """Whether a constant says anything of a run: who has no experts says nothing of theirs."""
    plan, compute = case.plan, case.job.precision.value.compute
    narrow = compute not in ("bf16", "fp16", "fp32", "tf32")
    return {
        "narrow_matmul_scale": narrow,
        "cast_passes": narrow,
        "alltoall_row_s": narrow and ("expert_kernels", "alltoall") in said(case),
        "collective_scale": plan.dp * plan.fsdp > 1,
        "comm_tax": plan.dp * plan.fsdp > 1,
        "dcn_scale": case.machine.count("*") > 0 and ":" in case.machine,
        "dp_overlap": plan.dp > 1,
        "fsdp_overlap": plan.fsdp > 1,
        "tp_overlap": plan.tp > 1,
        "cp_overlap": plan.cp > 1,
        "pp_overlap": plan.pp > 1,
        "ep_overlap": plan.ep > 1,
        "ep_overlap_interleaved": plan.ep > 1 and plan.vpp > 1,
    }.get(name, name not in ROUTED or "moe" in case.groups)


def scopes_of(case: Case) -> dict[str, tuple[str, ...]]:
    """What a run shares factors with: by scope the values that hold for it.

    A release takes the factors of every release up to it, so that each stands on the one before.
    """
    own, kind = group_of(case.chip, FAMILIES), group_of(case.chip, KINDS)
    mine = era(case)
    reached = tuple(e for e in ERAS.get(case.stack, ())[1:] if e <= mine)
    return {
        "kind": (kind,) if kind else (),
        "family": (own,) if own else (),
        "chip": (case.chip,),
        "release": reached,
        "family_release": tuple(f"{own}@{e}" for e in reached) if own else (),
    }


def own_scopes(case: Case, free: Free) -> list[tuple[str, str]]:
    """The factors of a constant that a run speaks for: of the releases that it stands on and at
    which the constant may move, its own alone."""
    out = []
    for scope, values in scopes_of(case).items():
        if scope.endswith("release") and free.eras:
            values = tuple(v for v in values if {v, v.rpartition("@")[2]} & set(free.eras))
        out += [(scope, values[-1])] if values else []
    return out


_COMMON = (
    Free("matmul_scale", 0.88, 0.12),
    Free("attention_scale", 0.8, 0.3),
    Free("memory_scale", 0.8, 0.3),
    Free("narrow_matmul_scale", 1.0, 0.1),
    Free("grouped_scale", 0.9, 0.3),
    Free("permute_passes", 3.0, 0.5),
    Free("comm_tax", 0.15, 0.5),
    Free("collective_scale", 0.75, 0.3),
    Free("fsdp_overlap", 0.8, 0.7, share=True),
    Free("tp_overlap", 0.4, 0.8, share=True),
    Free("ep_overlap", 0.15, 0.6, share=True),
    Free("cp_overlap", 0.6, 0.5, share=True),
    Free("jitter_per_doubling", 0.005, 0.5),
    Free("step_overhead_s", 0.01, 0.8),
    Free("cast_passes", 1.5, 0.4),
)


def _held(free: tuple[Free, ...], **sd: float) -> tuple[Free, ...]:
    """The same constants, some of them held otherwise."""
    return tuple(replace(one, sd=sd.get(one.name, one.sd)) for one in free)


_POWER = "H100 runs bf16 matmuls at 0.73 of peak under sustained load, a kernel alone at 0.82"
_FA2_WHY = (
    "PyTorch's own attention on Hopper is FlashAttention-2, 0.56 of the best (arXiv 2407.08608)"
)
_FA2 = {"h100": (-0.56, _FA2_WHY), "h200": (-0.44, _FA2_WHY)}
_PIPELINE = "the repaired pipeline engine does not stall"
_NETWORK = (
    "the sweep's own bandwidths, 1 GiB gathered over n ranks: 0.04 ms for each rank beside the "
    "transfer in the first series, 0.27 ms in the others"
)
_NO_PACE = "the sweep's own bandwidths: an all-reduce of the first series waits for no rank"
_FA2_STACK = (
    Free("matmul_scale", 0.88, 0.1, spread={"chip": 0.05}, priors={"h100": (-0.12, _POWER)}),
    Free("attention_scale", 0.7, 0.3, spread={"chip": 0.15}, priors=_FA2),
    Free("memory_scale", 0.65, 0.2, spread={"chip": 0.1}),
    Free("narrow_matmul_scale", 1.05, 0.1),
    Free("grouped_scale", 0.85, 0.25),
    Free("comm_tax", 0.35, 0.4),
    Free("collective_scale", 0.65, 0.25),
    Free("jitter_per_doubling", 0.006, 0.4),
    *(f for f in _COMMON if f.name.endswith("_overlap")),
    Free("step_overhead_s", 0.01, 0.8),
    Free("cast_passes", 1.5, 0.4),
)

_MEGATRON = (
    Free("matmul_scale", 0.88, 0.25, spread={"family": 0.05, "family_release": 0.3},
         eras=("blackwell@25.04", "blackwell@25.11")),
    Free("attention_scale", 0.85, 0.05, spread={"chip": 0.1}),
    Free("memory_scale", 0.6, 0.15, spread={"release": 0.12}),
    Free("narrow_matmul_scale", 1.0, 0.25),
    Free("grouped_scale", 0.9, 0.15, spread={"chip": 0.1, "family_release": 0.5},
         eras=("blackwell@25.09",)),
    Free("permute_passes", 3.0, 1.25, spread={"family_release": 0.75}),
    # one access to memory for each row, 1 µs, as many at once as an H100 has processors: 8 ns; wide
    Free("alltoall_row_s", 8e-9, 1.5),
    Free("ep_overlap_interleaved", 0.6, 0.5, share=True, spread={"release": 0.6}),
)  # fmt: skip

_NANOTRON = (
    Free("matmul_scale", 0.78, 0.05),
    Free("attention_scale", 0.4, 0.15),
    Free("memory_scale", 0.8, 0.1),
    Free("host_s_per_op", 1.8e-5, 0.2),
    Free("pp_stall_s", 1.1, 0.2, spread={"release": 0.4}, priors={"1": (-6.3, _PIPELINE)}),
    Free("rank_latency_s", 1.2e-4, 0.3, spread={"release": 0.3}, priors={"2": (-1.1, _NETWORK)}),
    Free("rank_pace_s", 2.7e-4, 0.2, spread={"release": 0.2}, priors={"2": (-5.6, _NO_PACE)}),
    Free("tp_across_scale", 0.7, 0.3),
    Free("collective_scale", 0.7, 0.3),
    Free("comm_tax", 0.2, 0.3),
    Free("tp_overlap", 0.35, 0.5, share=True),
    Free("pp_overlap", 0.3, 0.5, share=True),
    Free("dp_overlap", 0.5, 0.5, share=True),
    Free("jitter_per_doubling", 0.008, 0.3),
    Free("step_overhead_s", 0.03, 0.3),
    Free("optimizer_passes", 1.5, 0.3),
)

_CASTS = (
    "GPUs' kernel tables of 8-bit layers count their casts as well: Megatron's H100 runs show 1.3"
)
_MAXTEXT = (
    Free("matmul_scale", 0.88, 0.05, spread={"chip": 0.05}),
    Free("narrow_matmul_scale", 1.0, 0.02, priors={"gpu": (0.26, _CASTS)}),
    Free("grouped_scale", 0.9, 0.1),
    Free("comm_tax", 0.4, 0.3),
    Free("collective_scale", 0.75, 0.15, spread={"chip": 0.2}),
    Free("dcn_scale", 0.35, 0.2),
    Free("tp_overlap", 0.4, 0.8, share=True),
    Free("stall_per_host", 2e-5, 0.5),
)

# Two models: either alone supports no constant, so that its time rests on the priors. These are
# what MaxText's runs on H100 show, the same compiler.
_PAXML = (
    Free("matmul_scale", 0.916, 0.3),
    Free("attention_scale", 0.88, 1.0),
    Free("memory_scale", 0.79, 0.7),
    Free("narrow_matmul_scale", 1.28, 0.05),
    Free("grouped_scale", 0.98, 0.3),
    Free("permute_passes", 2.9, 0.5),
    Free("comm_tax", 0.515, 0.2),
    Free("collective_scale", 0.627, 0.1),
    Free("fsdp_overlap", 0.9, 0.7, share=True),
    Free("tp_overlap", 0.48, 0.8, share=True),
    Free("ep_overlap", 0.15, 0.6, share=True),
    Free("cp_overlap", 0.6, 0.5, share=True),
    Free("jitter_per_doubling", 0.005, 0.5),
    Free("step_overhead_s", 0.01, 1.5),
    Free("cast_passes", 1.51, 0.4),
)

# DeepEP hides much of the expert exchange where recipes have no virtual stages to do so.
_AUTOMODEL = _held(
    _COMMON,
    matmul_scale=0.3,
    collective_scale=0.05,
    comm_tax=0.02,
    fsdp_overlap=0.3,
    ep_overlap=3.0,
    permute_passes=2.0,
)

# PyTorch/XLA is the same compiler on few runs: it is held at MaxText's constants on v6e, except for
# matmuls and weight gathers, which it schedules less well.
_TORCH_XLA = (
    Free("matmul_scale", 0.84, 0.03),
    Free("attention_scale", 0.9, 0.1),
    Free("memory_scale", 0.8, 0.1),
    Free("comm_tax", 0.45, 0.1),
    Free("collective_scale", 0.35, 0.15),
    Free("dcn_scale", 0.35, 0.1),
    Free("fsdp_overlap", 0.7, 0.3, share=True),
    Free("tp_overlap", 0.05, 0.5, share=True),
    Free("jitter_per_doubling", 0.005, 0.1),
    Free("step_overhead_s", 0.01, 0.1),
)

FREE: dict[str, tuple[Free, ...]] = {
    "megatron": _MEGATRON,
    "maxtext": _MAXTEXT,
    "paxml": _PAXML,
    "automodel": _AUTOMODEL,
    "nanotron": _NANOTRON,
    "torch_xla": _TORCH_XLA,
    "llm-foundry": _FA2_STACK,
    "torchtitan": _FA2_STACK,
    "fms-fsdp": _FA2_STACK,
}
"""Fitted constants of each stack; the others share one list."""

FIXED: dict[str, dict[str, float]] = {
    "maxtext": {
        "reruns_experts": 1.0, "permute_row_elements": 4096.0, "attention_scale": 0.9,
        "memory_scale": 0.8, "cast_passes": 1.5, "permute_passes": 3.0, "fsdp_overlap": 0.9,
        "cp_overlap": 0.6, "ep_overlap": 0.15, "jitter_per_doubling": 0.005,
        "step_overhead_s": 0.01, "tp_behind_gradients": 1.0,
    },
    "torch_xla": {"reruns_experts": 1.0, "permute_row_elements": 4096.0},
    "megatron": {
        "ep_once_per_place": 1.0, "expert_bias_passes": 14.0, "mxfp8_scale": 0.95,
        "fp8_attention_scale": 1.3, "ep_overlap": 0.15, "tp_overlap": 0.4, "cp_overlap": 0.6,
        "pp_overlap": 0.5, "step_overhead_s": 0.01, "cast_passes": 1.5,
        "jitter_per_doubling": 0.009, "weight_sum_bytes": 4.0, "gathers_expert_rows": 1.0,
    },
    "automodel": {"ep_once_per_place": 1.0},
    "nanotron": {
        "ops_per_layer": 80.0, "tp_regathers": 2.0, "bucket_bytes": 5.24288e7,
        "whole_reduction": 1.0, "accumulate_bytes": 10.0, "head_in_stages": 1.0,
    },
}  # fmt: skip
"""Set by hand, with their evidence in the stack's file, and held during a fit."""


def free_of(stack: str) -> tuple[Free, ...]:
    """The fitted constants of a stack."""
    return FREE.get(stack, _COMMON)
