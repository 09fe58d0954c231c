"""What a setting of a GPU job becomes on a TPU: a row for each kind of flag that readers report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chipshift.flows import collective_costs, kernel_costs, shape_costs, state_costs
from chipshift.flows.port import Cost, Port
from chipshift.jobs.job import Flag


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
the precision; ``xla_flags``, ``fp8_params`` and ``tpu`` need nothing."""

COSTS: dict[str, Callable[[Port, Flag], Cost]] = {
    "attention_kernel": kernel_costs.attention_kernel,
    "sparse_attention": shape_costs.sparse_attention,
    "transformer_engine": kernel_costs.transformer_engine,
    "apex": state_costs.apex,
    "fused_ops": kernel_costs.fused_ops,
    "fused_optimizer": kernel_costs.fused_optimizer,
    "deepspeed": state_costs.deepspeed,
    "quantised_weights": state_costs.quantised_weights,
    "quantised_optimizer": state_costs.quantised_optimizer,
    "compile": kernel_costs.compiler,
    "cuda_graph": state_costs.cuda_graph,
    "custom_code": kernel_costs.unknown_code,
    "dropless_moe": shape_costs.dropless_moe,
    "variable_length": shape_costs.variable_length,
    "packed_documents": shape_costs.packed_documents,
    "nccl": collective_costs.nccl,
    "cuda_environment": collective_costs.cuda_environment,
    "tp_overlap": collective_costs.tp_overlap,
    "dp_overlap": collective_costs.dp_overlap,
    "ep_overlap": collective_costs.ep_overlap,
    "expert_kernels": collective_costs.expert_kernels,
    "quantised_collectives": collective_costs.quantised_collectives,
    "activation_partitioning": collective_costs.activation_partitioning,
    "cpu_offload": state_costs.cpu_offload,
    "activation_offload": state_costs.activation_offload,
    "fault_tolerance": state_costs.fault_tolerance,
    "loss_scaler": state_costs.loss_scaler,
    "tf32": kernel_costs.tf32,
}
"""What each kind of flag costs on the target, worked from its estimate."""
