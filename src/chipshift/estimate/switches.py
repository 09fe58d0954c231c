"""What switches of Megatron's recipes do to its constants: a job's flags, taken at their word.

Flags come from a job's file or, for NVIDIA's own tables of runs, from the recipes those runs were
(validate/recipes.py). A flag that is absent changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.estimate.stack import Stack
from chipshift.jobs.job import TrainJob

WIDE = ("bf16", "fp16", "fp32", "tf32")
FUSED_SORT = "hybridep"
"""The dispatcher whose kernels sort tokens on the way (DeepEP's hybrid branch, README)."""


def switched(constants: Stack, job: TrainJob) -> Stack:
    """Megatron's constants with what a job switches on.

    - ``expert_kernels`` ``hybridep``: the sort is part of the dispatch, so that rows take no time
      of their own; nor do they in bf16, whose rows are not padded to blocks for 8-bit matmuls.
      ``alltoall`` sends a token to each of its experts, not once to a place.
    - ``fused_experts``: one kernel makes both matmuls of the experts, their activation, its 8-bit
      copy and the biases.
    - ``fp8_attention``, ``fp8_head``: attention, and the LM head, in 8 bits.
    - ``cuda_graph`` ``full_iteration``: the host launches one graph a step.
    """
    on = {(flag.kind, flag.value) for flag in job.flags}
    given: dict[str, float] = {}
    dispatched = {value for kind, value in on if kind == "expert_kernels"}
    if FUSED_SORT in dispatched or (dispatched and job.precision.value.compute in WIDE):
        given["permute_row_s"] = 0.0
    if "alltoall" in dispatched:
        given["ep_once_per_place"] = 0.0
    if ("fused_experts", "True") in on:
        given |= {"fused_experts": 1.0, "expert_bias_passes": 0.0}
    if ("fp8_head", "True") in on:
        given["narrow_head"] = 1.0
    if ("cuda_graph", "full_iteration") in on:
        given["host_s_per_op"] = 0.0
    faster = constants.fp8_attention_scale if ("fp8_attention", "True") in on else 1.0
    scale = constants.attention_scale * faster
    return replace(constants, **given, attention_scale=scale)  # type: ignore[arg-type]
