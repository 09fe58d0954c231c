"""What switches of Megatron's recipes do to its constants: a job's flags, taken at their word.

Flags come from a job's file or, for NVIDIA's own tables of runs, from the recipes those runs were
(validate/recipes.py). A flag that is absent changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.estimate.stack import Stack
from chipshift.jobs.job import TrainJob

WIDE = ("bf16", "fp16", "fp32", "tf32")


def switched(constants: Stack, job: TrainJob) -> Stack:
    """Megatron's constants with what a job switches on.

    - ``expert_kernels`` ``alltoall`` sends a token to each of its experts, not once to a place; in
      8 bits its rows take time of their own beside their bytes.
    - ``fused_experts``: one kernel makes both matmuls of the experts, their activation, its 8-bit
      copy and the biases.
    - ``fp8_attention``, ``fp8_head``: attention, and the LM head, in 8 bits.
    - ``cuda_graph`` ``full_iteration``: the host launches one graph a step.
    """
    on = {(flag.kind, flag.value) for flag in job.flags}
    given: dict[str, float] = {}
    if ("expert_kernels", "alltoall") in on:
        given["ep_once_per_place"] = 0.0
        if job.precision.value.compute not in WIDE:
            given["permute_row_s"] = constants.alltoall_row_s
    if ("fused_experts", "True") in on:
        given |= {"fused_experts": 1.0, "expert_bias_passes": 0.0}
    if ("fp8_head", "True") in on:
        given["narrow_head"] = 1.0
    if ("cuda_graph", "full_iteration") in on:
        given["host_s_per_op"] = 0.0
    faster = constants.fp8_attention_scale if ("fp8_attention", "True") in on else 1.0
    scale = constants.attention_scale * faster
    return replace(constants, **given, attention_scale=scale)  # type: ignore[arg-type]
