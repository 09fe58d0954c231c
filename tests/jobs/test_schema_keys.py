"""Every key of a framework's schema that changes a step is read, or said to be left out.

The keys are those of the schemas in 2026 (torchtune and llm-foundry 2025) that bear on memory,
FLOPs, batch, degrees, precision or optimizer; those that start a run, log or save are not listed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chipshift.jobs.read import read_job

AXOLOTL = {
    "base_model": "meta-llama/Llama-3.1-8B",
    "sequence_len": 2048,
    "micro_batch_size": 1,
    "datasets": "[]",
}
FACTORY = {
    "model_name_or_path": "meta-llama/Llama-3.1-8B",
    "stage": "sft",
    "finetuning_type": "full",
    "cutoff_len": 2048,
    "per_device_train_batch_size": 1,
}
TUNE = {
    "model": "{_component_: torchtune.models.llama3_1.llama3_1_8b}",
    "tokenizer": "{max_seq_len: 2048}",
    "batch_size": 1,
    "dtype": "bf16",
}
LIT = {"model_name": "Llama-3.1-8B", "train": "{micro_batch_size: 1}", "tokenizer_dir": "x"}
FOUNDRY = {
    "model": "{name: mpt_causal_lm}",
    "max_seq_len": 2048,
    "global_train_batch_size": 8,
    "device_train_microbatch_size": 1,
}
LIGHTNING = {
    "trainer": "{accelerator: gpu, devices: 2}",
    "model_name_or_path": "meta-llama/Llama-3.1-8B",
    "batch_size": 1,
    "max_length": 2048,
}
CASES = [
    (AXOLOTL, "dp_shard_size: 2"),
    (AXOLOTL, "dp_replicate_size: 2"),
    (AXOLOTL, "tensor_parallel_size: 2"),
    (AXOLOTL, "context_parallel_size: 2"),
    (AXOLOTL, "sequence_parallel_degree: 2"),
    (AXOLOTL, "batch_size: 8"),
    (AXOLOTL, "auto_find_batch_size: true"),
    (AXOLOTL, "gradient_checkpointing: true"),
    (AXOLOTL, "layer_offloading: true"),
    (AXOLOTL, "tiled_mlp: true"),
    (AXOLOTL, "chunked_cross_entropy: true"),
    (AXOLOTL, "cut_cross_entropy: true"),
    (AXOLOTL, "liger_fused_linear_cross_entropy: true"),
    (AXOLOTL, "unfrozen_parameters: ['model.layers.3[01]']"),
    (AXOLOTL, "lisa_n_layers: 4"),
    (AXOLOTL, "relora: true"),
    (AXOLOTL, "peft_layer_replication: [[0, 4], [2, 8]]"),
    (AXOLOTL, "overrides_of_model_config: {num_hidden_layers: 8}"),
    (AXOLOTL, "qat: {activation_dtype: int8}"),
    (AXOLOTL, "fp8: true"),
    (AXOLOTL, "bfloat16: true"),
    (AXOLOTL, "load_in_8bit: true"),
    (AXOLOTL, "optimizer: dion"),
    (AXOLOTL, "deepspeed_config: {zero_stage: 2}"),
    (AXOLOTL, "fsdp_config: {offload_params: true}"),
    (AXOLOTL, "freeze_mm_modules: true"),
    (AXOLOTL, "quantize_moe_experts: true"),
    (FACTORY, "freeze_vision_tower: false"),
    (FACTORY, "pure_bf16: true"),
    (FACTORY, "fp8: true"),
    (FACTORY, "use_galore: true"),
    (FACTORY, "use_badam: true"),
    (FACTORY, "use_apollo: true"),
    (FACTORY, "use_adam_mini: true"),
    (FACTORY, "use_muon: true"),
    (FACTORY, "use_llama_pro: true"),
    (FACTORY, "mixture_of_depths: convert"),
    (FACTORY, "shift_attn: true"),
    (FACTORY, "use_unsloth_gc: true"),
    (FACTORY, "disable_gradient_checkpointing: true"),
    (FACTORY, "enable_liger_kernel: true"),
    (FACTORY, "quantization_bit: 4"),
    (FACTORY, "ray_num_workers: 4"),
    (FACTORY, "use_hyper_parallel: true"),
    (FACTORY, "use_megatron_bridge: true"),
    (FACTORY, "use_kt: true"),
    (TUNE, "gradient_accumulation_steps: 4"),
    (TUNE, "enable_activation_checkpointing: true"),
    (TUNE, "ac_mode: selective\nac_option: 2"),
    (TUNE, "tensor_parallel_dim: 2"),
    (TUNE, "context_parallel_dim: 2"),
    (TUNE, "data_parallel_replicate_dim: 2"),
    (TUNE, "fsdp_reshard_after_forward: false"),
    (TUNE, "fsdp_cpu_offload: true"),
    (TUNE, "optimizer_in_bwd: true"),
    (TUNE, "enable_fp8_training: true"),
    (TUNE, "quantizer: {_component_: torchtune.training.quantization.Int4WeightOnlyQATQuantizer}"),
    (TUNE, "loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}"),
    (TUNE, "layer_dropout: {prob: 0.2}"),
    (TUNE, "early_exit_loss: {scale: 1.0}"),
    (TUNE, "grpo_samples: 4"),
    (TUNE, "resize_token_embeddings: true"),
    (LIT, "precision: bf16-true"),
    (LIT, "devices: 4"),
    (LIT, "num_nodes: 2"),
    (LIT, "optimizer: SGD"),
    (FOUNDRY, "fsdp_config: {sharding_strategy: SHARD_GRAD_OP}"),
    (FOUNDRY, "fsdp_config: {data_parallel_shard_degree: 4}"),
    (FOUNDRY, "fsdp_config: {data_parallel_replicate_degree: 2}"),
    (FOUNDRY, "fsdp_config: {keep_low_precision_grads: true}"),
    (FOUNDRY, "fsdp_config: {activation_checkpointing: true}"),
    (FOUNDRY, "fsdp_config: {activation_cpu_offload: true}"),
    (FOUNDRY, "fsdp_config: {mixed_precision: FULL}"),
    (FOUNDRY, "tp_config: {tensor_parallel_degree: 2}"),
    (FOUNDRY, "precision: amp_fp8"),
    (FOUNDRY, "algorithms: {low_precision_layernorm: {}}"),
    (FOUNDRY, "algorithms: {seq_length_warmup: {duration: 0.3}}"),
    (LIGHTNING, "accumulate_grad_batches: 4"),
    (LIGHTNING, "num_nodes: 2"),
    (LIGHTNING, "precision: bf16-true"),
    (LIGHTNING, "strategy: deepspeed_stage_3_offload"),
    (LIGHTNING, "strategy: {class_path: FSDPStrategy, init_args: {cpu_offload: true}}"),
    (LIGHTNING, "plugins: [x]"),
]
"""A file of each framework, and a line of its schema beside it."""


@pytest.mark.parametrize(("base", "line"), CASES)
def test_a_key_that_changes_a_step_is_read_or_said(
    base: dict[str, object], line: str, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    own = {one.partition(":")[0] for one in line.split("\n")}
    path.write_text("".join(f"{k}: {v}\n" for k, v in base.items() if k not in own) + line + "\n")
    job = read_job([str(path)])
    key = line.partition(":")[0]
    read = {one.key for one in job.understood} | {f.key for f in job.flags}
    said = {one.key for one in job.ignored if one.matters}
    assert any(name == key or name.startswith(f"{key}.") for name in read | said)


@pytest.mark.parametrize(
    ("base", "line"),
    [
        (AXOLOTL, "lr_scheduler: cosine"),
        (AXOLOTL, "dataset_processes: 8"),
        (TUNE, "custom_sharded_layers: [tok_embeddings, output]"),
        (TUNE, "max_steps_per_epoch: 20"),
        (FOUNDRY, "algorithms: {gradient_clipping: {clipping_type: norm}}"),
        (FOUNDRY, "fsdp_config: {limit_all_gathers: true}"),
        (LIGHTNING, "gradient_clip_val: 1.0"),
    ],
)
def test_a_key_that_changes_nothing_is_quiet(
    base: dict[str, object], line: str, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("".join(f"{k}: {v}\n" for k, v in base.items()) + line + "\n")
    assert not [one.key for one in read_job([str(path)]).ignored if one.matters]
