"""A stack's constants as one job has them: its precision and its flags, taken at their word.

Flags come from a job's file or, for NVIDIA's own tables of runs, from the recipes those runs were
(validate/recipes.py). A flag that is absent changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.estimate.stack import Stack
from chipshift.jobs.job import TrainJob

FOUR_BITS = ("nvfp4", "fp4")
WIDE = ("bf16", "fp16", "fp32", "tf32")


def switched(constants: Stack, job: TrainJob) -> Stack:
    """Megatron's constants with what a job switches on.

    - ``expert_kernels`` ``alltoall`` sends a token to each of its experts, not once to a place; in
      8 bits its rows take time of their own beside their bytes.
    - ``fused_experts``: one kernel makes both matmuls of the experts, their activation, its 8-bit
      copy and the biases.
    - ``fp8_recipe`` of current scaling (``tensorwise``): an operand is read once more for its
      largest value before it is cast; so it is in NVFP4, whose blocks share a scale of the tensor.
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
    compute = job.precision.value.compute
    if compute in FOUR_BITS or (compute == "fp8" and _scaled_as_they_are(job)):
        given["range_passes"] = FOUND_RANGE_PASSES
    if ("fp8_head", "True") in on:
        given["narrow_head"] = 1.0
    if ("cuda_graph", "full_iteration") in on:
        given["host_s_per_op"] = 0.0
    faster = constants.fp8_attention_scale if ("fp8_attention", "True") in on else 1.0
    scale = constants.attention_scale * faster
    return replace(constants, **given, attention_scale=scale)  # type: ignore[arg-type]


def _scaled_as_they_are(job: TrainJob) -> bool:
    """Whether 8-bit operands are scaled by their own largest value, not by that of steps before.

    Transformer Engine's Float8CurrentScaling, ``--fp8-recipe tensorwise`` in Megatron-LM.
    """
    said = [flag.value.lower() for flag in job.flags if flag.kind == "fp8_recipe"]
    return any(word in value for value in said for word in ("tensorwise", "current"))


SEPARATE_BACKWARD = 7.0
"""Matmuls of a backward pass whose kernels for the queries' and for the keys' gradients each make
the scores and their gradient anew: JAX's flash kernel, which PyTorch/XLA and, until 2024-02-08,
MaxText called (layers/attentions.py). Splash attention can have one kernel for all (torch_xla
experimental/splash_attention.py, sa_use_fused_bwd_kernel)."""

SEPARATE = frozenset({("torch_xla", "flash"), ("maxtext", "pallas_flash")})
"""Stacks, and what a job's flags call that kernel there. MaxText's ``flash`` is splash today: one
kernel for all under ``sa_use_fused_bwd_kernel``, false by default (configs/base.yml), and always
under ``use_tokamax_splash`` (layers/attention_op.py); the flag ``separate_backward`` says that a
job has two."""


FOUND_RANGE_PASSES, CASTS_WEIGHTS = 1.0, 1.0
"""MaxText's 8-bit matmuls on TPUs where nothing fixes the range, its default (configs/base.yml:
calibration ``absmax``; AQT for int8, layers/quantizations.py): each operand is read once more for
its largest value, and weights are cast where they are used; with a fixed range they are cast before
they are gathered (layers/moe.py)."""


def for_job(constants: Stack, job: TrainJob, family: str) -> Stack:
    """The stack's constants with what the job's flags and precision say of its kernels."""
    if job.precision.value.compute == "mxfp8":
        constants = replace(
            constants,
            narrow_matmul_scale=constants.narrow_matmul_scale * constants.mxfp8_scale,
            grouped_scale=constants.grouped_scale / constants.mxfp8_scale,
        )
    if any(f.kind == "balanced_experts" for f in job.flags):
        constants = replace(constants, moe_imbalance=1.0)
    if any(f.kind == "eager_modules" for f in job.flags):
        constants = eager(constants)
    if constants.base == "megatron":
        constants = switched(_megatron(constants, {f.kind for f in job.flags}), job)
    if family != "tpu":
        return constants
    named = {f.value for f in job.flags if f.kind == "attention_kernel"}
    kinds = {f.kind for f in job.flags}
    apart = "separate_backward" in kinds and constants.base == "maxtext"
    if apart or any((constants.base, kernel) in SEPARATE for kernel in named):
        constants = replace(constants, attention_backward_matmuls=SEPARATE_BACKWARD)
    if constants.base == "maxtext" and "fixed_ranges" not in kinds:
        constants = replace(constants, range_passes=FOUND_RANGE_PASSES, casts_weights=CASTS_WEIGHTS)
    return constants


def _megatron(constants: Stack, flags: set[str]) -> Stack:
    """The stack with PyTorch's FSDP2 in place of its own buffers, or with DeepSpeed's fork of it.

    The fork repeats keys and values before it deals them out (DeepSpeed, Megatron-DeepSpeed,
    megatron/model/transformer.py, 2025).
    """
    if "torch_fsdp2" in flags:
        constants = replace(constants, gradients_at_peak=0.0)
    return replace(constants, deals_repeated_heads=1.0) if "deepspeed" in flags else constants


def eager(constants: Stack) -> Stack:
    """The stack with a layer's modules run op by op in place of its fused kernels.

    Passes of bf16, counted in Hugging Face transformers 4.57, modeling_llama.py: an RMSNorm that
    casts, squares, averages, scales and casts back is 18, the residual's sum 3; a rotary embedding
    multiplies twice, turns a half and adds; SiLU and the product are 5 where one kernel takes 3.
    """
    return replace(constants, norm_passes=21.0, rope_passes=10.0, activation_scale=5 / 3)
