"""The keys that tell one format of YAML or JSON from another."""

from __future__ import annotations

YAML_FORMATS: tuple[tuple[str, tuple[frozenset[str], ...]], ...] = (
    ("accelerate", (frozenset({"distributed_type"}),)),
    ("torchtune", (frozenset({"_component_"}),)),
    (
        "maxtext",
        (
            frozenset({"per_device_batch_size"}),
            frozenset({"ici_fsdp_parallelism"}),
            frozenset({"max_target_length"}),
            frozenset({"base_emb_dim"}),
        ),
    ),
    (
        "nanotron",
        (frozenset({"parallelism", "tokens"}), frozenset({"batch_accumulation_per_replica"})),
    ),
    (
        "foundry",
        (frozenset({"global_train_batch_size"}), frozenset({"device_train_microbatch_size"})),
    ),
    (
        "megatron_yaml",
        (
            frozenset({"ARGS", "num_layers", "hidden_size"}),
            frozenset({"system", "model", "data", "num_layers", "micro_batch_size"}),  # FlagScale
            frozenset({"experiment", "runner", "nproc_per_node", "entrypoint"}),  # its experiment
            frozenset({"language_model", "model_parallel"}),
        ),
    ),
    (
        "nemo",
        (
            frozenset({"trainer", "tensor_model_parallel_size"}),
            frozenset({"micro_batch_size", "tensor_model_parallel_size"}),
            frozenset({"trainer", "pretrained_checkpoint"}),
        ),
    ),
    (
        "swift",
        (
            frozenset({"tuner_type", "model", "torch_dtype"}),
            frozenset({"tuner_type", "model", "per_device_train_batch_size"}),
            frozenset({"train_type", "model", "per_device_train_batch_size"}),
        ),
    ),
    ("levanter", (frozenset({"trainer", "train_batch_size"}), frozenset({"trainer", "mp"}))),
    (
        "litgpt",
        (
            frozenset({"checkpoint_dir", "train", "micro_batch_size"}),
            frozenset({"model_name", "train", "micro_batch_size", "tokenizer_dir"}),
            frozenset({"lora_query"}),
        ),
    ),
    (
        "lightning",
        (
            frozenset({"trainer", "accumulate_grad_batches"}),
            frozenset({"trainer", "devices"}),
            frozenset({"trainer", "accelerator"}),
            frozenset({"fabric", "devices"}),
        ),
    ),
    (
        "llamafactory",
        (
            frozenset({"finetuning_type", "stage"}),
            frozenset({"cutoff_len"}),
            frozenset({"finetuning_type", "model_name_or_path"}),
        ),
    ),
    ("axolotl", (frozenset({"base_model"}),)),
    (
        "transformers",
        (
            frozenset({"per_device_train_batch_size"}),
            frozenset({"model_name_or_path"}),
            frozenset({"gradient_accumulation_steps", "learning_rate"}),
        ),
    ),
)
"""YAML formats and the sets of keys, any of which tells one; the first that fits is taken."""

FOREIGN: tuple[tuple[str, tuple[frozenset[str], ...]], ...] = (
    (
        "verl",
        (
            frozenset({"actor_rollout_ref"}),
            frozenset({"partial_pretrain"}),
            frozenset({"trainer", "data", "n_gpus_per_node"}),
        ),
    ),
    ("StripedHyena (Evo 2)", (frozenset({"hyena_filter_groups"}), frozenset({"hcl_layer_idxs"}))),
    ("NxD Training (AWS Neuron)", (frozenset({"trainer", "distributed_strategy"}),)),
    ("MindSpeed-LLM's FSDP2 trainer", (frozenset({"fsdp_modules", "parallel"}),)),
    ("mergekit", (frozenset({"merge_method"}),)),
    (
        "Fast-LLM",
        (
            frozenset({"base_model", "multi_stage"}),
            frozenset({"base_model", "decoder", "num_blocks"}),
        ),
    ),
)
"""YAML of other frameworks that share words with those above, and the keys that tell them."""

JSON_FORMATS: tuple[tuple[str, tuple[frozenset[str], ...]], ...] = (
    ("peft", (frozenset({"peft_type"}),)),
    ("transformers", (frozenset({"per_device_train_batch_size"}),)),
    (
        "hf_config",
        (
            frozenset({"model_type"}),
            frozenset({"architectures"}),
            frozenset({"_class_name", "_diffusers_version"}),
        ),
    ),
    (
        "deepspeed",
        (
            frozenset({"zero_optimization"}),
            frozenset({"train_micro_batch_size_per_gpu"}),
            frozenset({"train_batch_size"}),
        ),
    ),
    ("transformers", YAML_FORMATS[-1][1]),
)

KNOWN = (
    "a chipshift or torchtitan TOML; a Megatron-LM, Trainer or MaxText launch script; a DeepSpeed, "
    "TrainingArguments or config JSON; an Accelerate, axolotl, LLaMA-Factory, TRL, torchtune, "
    "MaxText, nanotron, llm-foundry, NeMo, Levanter, LitGPT or Lightning YAML; a Python script "
    "that calls TrainingArguments, Trainer or Fabric, a nanoGPT config or a Bridge recipe; "
    "a Slurm script or Kubernetes manifest around one"
)
