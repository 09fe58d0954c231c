"""What a setting of a GPU job becomes on a TPU: a row for each kind of flag that readers report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FlagRule:
    """The rule that a flag falls under, how bad that is, and what takes its place."""

    topic: str
    rule: str
    severity: str
    instead: str


_XLA = "plain ops: XLA fuses them"
_OVERLAP = "XLA overlaps collectives itself (collective matmul, asynchronous all-gather)"

FLAG_RULES: dict[str, FlagRule] = {
    "attention_kernel": FlagRule(
        "kernels", "flash-attn-kernel", "high",
        "splash attention (jax.experimental.pallas.ops.tpu.splash_attention); its query block must "
        "divide the sequence",
    ),
    "sparse_attention": FlagRule(
        "kernels", "third-party-gpu-kernel", "high",
        "a mask object of splash attention, which skips the blocks it leaves empty",
    ),
    "transformer_engine": FlagRule(
        "kernels", "transformer-engine", "blocker",
        "plain layers: XLA fuses norm, bias and activation; 8-bit matmuls by qwix",
    ),
    "apex": FlagRule("kernels", "apex-fused", "blocker", "plain layers and optax: XLA fuses them"),
    "fused_ops": FlagRule("kernels", "third-party-gpu-kernel", "medium", _XLA),
    "fused_optimizer": FlagRule(
        "kernels", "fused-optimizer", "low", "optax.adamw: XLA fuses the update"
    ),
    "deepspeed": FlagRule(
        "kernels", "deepspeed-runtime", "blocker",
        "shardings over a jax mesh: ZeRO is a PartitionSpec on the fsdp axis",
    ),
    "quantised_weights": FlagRule(
        "kernels", "bitsandbytes", "blocker",
        "bf16 base weights, or int8 ones by qwix; adapters stay as they are",
    ),
    "quantised_optimizer": FlagRule(
        "kernels", "bitsandbytes", "blocker", "optax.adamw with sharded fp32 or bf16 moments"
    ),
    "compile": FlagRule(
        "kernels", "torch-compile-inductor", "low", "jax.jit compiles the whole step"
    ),
    "cuda_graph": FlagRule(
        "kernels", "cuda-graph", "low", "drop it: a compiled step is one program already"
    ),
    "custom_code": FlagRule(
        "kernels", "third-party-gpu-kernel", "medium",
        "read it with chipshift audit, which names what does not run",
    ),
    "dropless_moe": FlagRule(
        "shapes", "moe-dropless", "medium",
        "jax.lax.ragged_dot or a grouped Pallas matmul: group sizes vary, shapes do not",
    ),
    "variable_length": FlagRule(
        "shapes", "variable-length-input", "high",
        "pack to one length, or a few buckets: each distinct shape is compiled anew",
    ),
    "packed_documents": FlagRule(
        "shapes", "varlen-packing", "medium",
        "keep the packing; segment ids in splash attention take the place of cu_seqlens",
    ),
    "nccl": FlagRule(
        "topology", "nccl-backend", "low",
        "drop it: XLA schedules collectives over ICI; its flags go in LIBTPU_INIT_ARGS",
    ),
    "cuda_environment": FlagRule(
        "topology", "cuda-env", "low", "drop it: nothing there reads CUDA's environment"
    ),
    "tp_overlap": FlagRule("topology", "eager-collective", "low", _OVERLAP),
    "dp_overlap": FlagRule("topology", "ddp-wrapper", "low", _OVERLAP),
    "ep_overlap": FlagRule("topology", "eager-collective", "medium", _OVERLAP),
    "expert_kernels": FlagRule(
        "topology", "eager-collective", "high",
        "jax.lax.ragged_all_to_all over the expert axis in place of the GPU dispatch library",
    ),
    "quantised_collectives": FlagRule(
        "topology", "eager-collective", "low", "collectives in bf16: the compiler chooses them"
    ),
    "activation_partitioning": FlagRule(
        "topology", "deepspeed-runtime", "low",
        "a sharding constraint on the activations over the tensor axis",
    ),
    "cpu_offload": FlagRule(
        "other", "cuda-memory-api", "medium",
        "MaxText's optimizer_memory_host_offload, or shardings with a host memory kind",
    ),
    "activation_offload": FlagRule(
        "other", "activation-checkpoint", "low", "MaxText's offloading remat policies"
    ),
    "fault_tolerance": FlagRule(
        "other", "checkpoint-device-tensors", "low",
        "orbax checkpoints and a restarted slice: a slice lives or dies as one",
    ),
    "loss_scaler": FlagRule(
        "other", "fp16-gradscaler", "medium", "bf16 without a scaler: the exponent range of fp32"
    ),
    "tf32": FlagRule("other", "tf32-flag", "low", "jax.default_matmul_precision"),
}  # fmt: skip
"""By ``Flag.kind`` (jobs/job.py). ``node_of_8`` and ``fp8_recipe`` are judged from the plan and
the precision; ``xla_flags`` and ``tpu`` need nothing."""
