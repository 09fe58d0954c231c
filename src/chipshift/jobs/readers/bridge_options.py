"""Short options of Megatron-Bridge's two programs, and the options that they stand for.

Both call most of them alike; the experts' tensor parallelism is ``-et`` to the launcher of
benchmarks and ``-etp`` to the runner of recipes. Source: NVIDIA, Megatron-Bridge,
scripts/performance/argument_parser.py and scripts/training/run_recipe.py, 2026-08-22.
"""

from __future__ import annotations

SHARED = {
    "gb": "global_batch_size",
    "mb": "micro_batch_size",
    "sl": "seq_length",
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "vp": "virtual_pipeline_model_parallel_size",
    "ep": "expert_model_parallel_size",
}
RUNNER = SHARED | {"etp": "expert_tensor_parallel_size"}
LAUNCHER = SHARED | {
    "m": "model_family_name",
    "mr": "model_recipe_name",
    "ng": "num_gpus",
    "g": "gpu",
    "c": "compute_dtype",
    "cv": "config_variant",
    "gn": "gpus_per_node",
    "rl": "recompute_num_layers",
    "ol": "activation_offload_layers",
    "et": "expert_tensor_parallel_size",
}
