"""What the YAML of NeMo 1's and NeMo-Aligner's own programs set, where a command names no other.

A program of theirs loads the YAML that it is decorated with unless ``--config-name`` or
``--config-path`` says otherwise. Values: NVIDIA, NeMo, examples/nlp/language_modeling/conf/
megatron_gpt_config.yaml and tuning/conf/megatron_gpt_finetuning_config.yaml, 2023 to 2024;
NeMo-Aligner, examples/nlp/gpt/conf, 2024-10.
"""

from __future__ import annotations

from collections.abc import Iterable

PRETRAINING = {
    "model.encoder_seq_length": "512",
    "model.num_layers": "12",
    "model.hidden_size": "768",
    "model.ffn_hidden_size": "3072",
    "model.num_attention_heads": "12",
    "model.max_position_embeddings": "512",
    "model.tokenizer.type": "GPT2BPETokenizer",
    "model.micro_batch_size": "4",
    "model.global_batch_size": "8",
    "model.optim.name": "fused_adam",
    "trainer.devices": "1",
    "trainer.num_nodes": "1",
}
FINETUNING = {
    "model.micro_batch_size": "4",
    "model.global_batch_size": "128",
    "model.data.train_ds.max_seq_length": "2048",
    "model.optim.name": "fused_adam",
    "trainer.devices": "1",
    "trainer.num_nodes": "1",
}
ALIGNER = {"model.optim.name": "distributed_fused_adam"}
SFT = {
    "model.data.train_ds.micro_batch_size": "1",
    "model.data.train_ds.global_batch_size": "128",
    "model.data.train_ds.max_seq_length": "2048",
    "trainer.precision": "bf16",
    "trainer.devices": "1",
    "trainer.num_nodes": "1",
}

PROGRAMS = {
    "megatron_gpt_pretraining.py": ("megatron_gpt_config.yaml", PRETRAINING),
    "megatron_gpt_finetuning.py": ("megatron_gpt_finetuning_config.yaml", FINETUNING),
    "train_gpt_sft.py": ("gpt_sft.yaml", ALIGNER | SFT),
    "train_gpt_dpo.py": ("gpt_dpo.yaml", ALIGNER),
    "train_reward_model.py": ("training_rm.yaml", ALIGNER),
}


def nemo_defaults(words: Iterable[str]) -> tuple[str, dict[str, str]]:
    """The YAML of a command's program and the keys that bear on a step; ("", {}) where not known.

    Args:
        words: the command's own.
    """
    listed = [*words]
    if any(word.startswith(("--config-name", "--config-path", "-cn", "-cp")) for word in listed):
        return "", {}
    for word in listed:
        found = PROGRAMS.get(word.rsplit("/", 1)[-1])
        if found is not None:
            return found
    return "", {}
