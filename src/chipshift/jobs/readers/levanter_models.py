"""Levanter's models: what each kind is where its configuration leaves something out.

Keys and defaults: Stanford CRFM, Levanter, src/levanter/models/{gpt2,llama,mistral,mixtral,gemma,
olmo,qwen}.py, 2025-11.
"""

from __future__ import annotations

from typing import Any

from chipshift.jobs.settings import Sheet

KEYS = {
    "model.hidden_dim": "hidden_size",
    "model.num_heads": "num_attention_heads",
    "model.num_kv_heads": "num_key_value_heads",
    "model.head_dim": "head_dim",
    "model.num_layers": "num_hidden_layers",
    "model.intermediate_dim": "intermediate_size",
    "model.tie_word_embeddings": "tie_word_embeddings",
    "model.attention_bias": "attention_bias",
    "model.n_routed_experts": "num_local_experts",
    "model.num_experts_per_tok": "num_experts_per_tok",
}
"""Levanter's keys by those of Hugging Face's configurations."""

GPT2_KEYS = {
    "model.hidden_dim": "n_embd",
    "model.num_heads": "n_head",
    "model.num_layers": "n_layer",
    "model.seq_len": "n_positions",
}

_LLAMA = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
}
_MISTRAL = {**_LLAMA, "intermediate_size": 14336, "num_key_value_heads": 8}
_GEMMA = {
    "hidden_size": 2048,
    "num_attention_heads": 8,
    "num_hidden_layers": 18,
    "head_dim": 256,
    "intermediate_size": 16384,
    "num_key_value_heads": 1,
    "vocab_size": 256_000,
}
_FAMILIES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "llama": ("llama", 2048, _LLAMA),
    "mistral": ("mistral", 8192, _MISTRAL),
    "mixtral": ("mixtral", 8192, {**_MISTRAL, "num_local_experts": 8, "num_experts_per_tok": 2}),
    "qwen": ("qwen2", 2048, _LLAMA),
    "qwen2": ("qwen2", 2048, _LLAMA),
    "qwen3": ("qwen3", 2048, _LLAMA),
    "gemma": ("gemma", 8192, _GEMMA),
    "gemma2": ("gemma2", 8192, _GEMMA),
    "gemma3": ("gemma3", 8192, _GEMMA),
    "olmo2": ("olmo2", 4096, _LLAMA),
}
"""A kind's type elsewhere, its length, and its shape."""


CHECKPOINTS = {
    "gpt2": "gpt2",
    "llama": "NousResearch/Llama-2-7b-hf",
    "mixtral": "mistralai/Mixtral-8x7B-v0.1",
    "mpt": "mosaicml/mpt-7b",
    "olmo2": "allenai/OLMo-2-1124-7B",
}
"""What ``initialize_from_hf: true`` starts from: each kind's ``reference_checkpoint``."""


def default_length(family: str) -> int:
    """``seq_len`` of a kind of model."""
    return 1024 if family.startswith("gpt2") else _FAMILIES.get(family, ("", 2048, {}))[1]


def defaults_of(family: str, rows: int | None) -> dict[str, Any] | None:
    """The configuration of a kind of model before any key; None for one that is not known.

    Args:
        rows: of the vocabulary, which the tokenizer tells; None where it is not known.
    """
    if family == "gpt2":
        shape = {"n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024}
        return {"model_type": "gpt2", "vocab_size": rows or 50257, **shape}
    if family not in _FAMILIES:
        return None
    kind, _, shape = _FAMILIES[family]
    return {**shape, "model_type": kind, "vocab_size": rows or shape["vocab_size"]}


def put_own_keys(sheet: Sheet, base: dict[str, Any]) -> None:
    """Keys that Hugging Face's configurations have otherwise: biases of all maps, GPT-2's width."""
    bias = sheet.boolean("model.use_bias", into="biases")
    if bias is not None and bias.value and base["model_type"] in ("llama", "qwen3", "olmo2"):
        base["attention_bias"] = base["mlp_bias"] = True
    scale = sheet.integer("model.mlp_scale", into="width of the feed-forward")
    width = sheet.settings.get("model.hidden_dim")
    if scale is not None and base["model_type"] == "gpt2":
        base["n_inner"] = scale.value * int(width.value if width is not None else base["n_embd"])
