"""Configs that are counted here and by the reference implementation, small and odd on purpose.

Each entry is (name, keys); ``base`` fills in what a family needs to be small.
"""

from __future__ import annotations

from typing import Any

SMALL: dict[str, Any] = {
    "vocab_size": 1003,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 5,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}


def small(model_type: str, **keys: Any) -> dict[str, Any]:
    """``SMALL`` of that type with these keys; a key of None is taken out."""
    merged = {**SMALL, "model_type": model_type, **keys}
    return {key: value for key, value in merged.items() if value is not None or key in NULLS}


NULLS = {"q_lora_rank", "sliding_window"}
"""Keys whose null means something."""

MOE: dict[str, Any] = {"num_local_experts": 6, "num_experts_per_tok": 2}
DEEPSEEK: dict[str, Any] = {
    "num_key_value_heads": 6,
    "moe_intermediate_size": 48,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "n_shared_experts": 2,
    "first_k_dense_replace": 2,
    "kv_lora_rank": 24,
    "q_lora_rank": 40,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 20,
    "n_group": 4,
    "topk_group": 2,
}
GPT: dict[str, Any] = {
    "vocab_size": 1003,
    "n_embd": 96,
    "n_layer": 3,
    "n_head": 6,
    "n_positions": 77,
}
MULTI: dict[str, Any] = {"num_key_value_heads": None}

DECODERS: list[tuple[str, dict[str, Any]]] = [
    ("llama", small("llama")),
    ("llama, tied", small("llama", tie_word_embeddings=True)),
    ("llama, biases", small("llama", attention_bias=True, mlp_bias=True)),
    ("llama, head width of its own", small("llama", head_dim=40)),
    ("llama, one key head", small("llama", num_key_value_heads=1)),
    ("llama, all defaults of kv", small("llama", num_key_value_heads=None)),
    ("mistral", small("mistral", sliding_window=64)),
    ("mistral, no window", small("mistral", sliding_window=None, head_dim=48)),
    ("ministral", small("ministral", head_dim=16, sliding_window=64)),
    (
        "ministral, alternating",
        small(
            "ministral",
            head_dim=16,
            sliding_window=64,
            layer_types=["sliding_attention", "full_attention"] * 2 + ["full_attention"],
        ),
    ),
    ("ministral3", small("ministral3", head_dim=24)),
    ("smollm3", small("smollm3", tie_word_embeddings=False)),
    ("smollm3, sliding", small("smollm3", use_sliding_window=True, sliding_window=32)),
    ("phi3", small("phi3", sliding_window=100)),
    ("phi", small("phi", **MULTI)),
    ("phi, grouped and normed", small("phi", qk_layernorm=True)),
    ("granite", small("granite", attention_bias=True, tie_word_embeddings=True)),
    ("seed_oss", small("seed_oss", head_dim=32)),
    ("seed_oss, bias on o only", small("seed_oss", attention_bias=False, attention_out_bias=True)),
    ("qwen2", small("qwen2")),
    (
        "qwen2, sliding above",
        small("qwen2", use_sliding_window=True, sliding_window=64, max_window_layers=3),
    ),
    ("qwen3", small("qwen3")),
    ("qwen3, biased and tied", small("qwen3", attention_bias=True, tie_word_embeddings=True)),
    ("gemma", small("gemma", head_dim=32)),
    ("gemma2", small("gemma2", head_dim=32, attention_bias=True)),
    ("gemma3_text", small("gemma3_text", head_dim=32, num_hidden_layers=8, sliding_window=16)),
    ("gemma3_text, untied", small("gemma3_text", tie_word_embeddings=False)),
    ("cohere", small("cohere")),
    ("cohere, normed heads", small("cohere", use_qk_norm=True, attention_bias=True)),
    ("cohere2", small("cohere2")),
    ("olmo", small("olmo")),
    ("olmo2", small("olmo2", attention_bias=True)),
    ("olmo3", small("olmo3")),
    ("exaone4", small("exaone4", sliding_window=32, sliding_window_pattern=4)),
    ("glm", small("glm", head_dim=16)),
    ("glm4", small("glm4", head_dim=16, attention_bias=False)),
    ("starcoder2", small("starcoder2")),
    ("starcoder2, no biases", small("starcoder2", use_bias=False, tie_word_embeddings=False)),
    ("stablelm", small("stablelm")),
    ("stablelm, parallel", small("stablelm", use_parallel_residual=True, use_qkv_bias=True)),
    ("stablelm, normed heads", small("stablelm", qk_layernorm=True)),
    ("nemotron", small("nemotron", mlp_bias=True, head_dim=24)),
    ("arcee", small("arcee")),
    ("mixtral", small("mixtral", **MOE)),
    ("qwen2_moe", small("qwen2_moe", num_experts=6, moe_intermediate_size=40)),
    (
        "qwen2_moe, every other layer",
        small("qwen2_moe", num_experts=6, decoder_sparse_step=2, mlp_only_layers=[3]),
    ),
    ("qwen3_moe", small("qwen3_moe", num_experts=10, moe_intermediate_size=40, head_dim=16)),
    ("qwen3_moe, a dense layer", small("qwen3_moe", num_experts=10, mlp_only_layers=[0, 4])),
    ("olmoe", small("olmoe", num_experts=12)),
    ("granitemoe", small("granitemoe", **MOE)),
    ("granitemoeshared", small("granitemoeshared", shared_intermediate_size=72, **MOE)),
    ("phimoe", small("phimoe", lm_head_bias=True, attention_bias=True, **MOE)),
    ("minimax_m2", small("minimax_m2", head_dim=32, **MOE)),
    ("gpt_oss", small("gpt_oss", head_dim=32, **MOE)),
    ("gpt_oss, no attention bias", small("gpt_oss", attention_bias=False, **MOE)),
    (
        "glm4_moe",
        small(
            "glm4_moe",
            n_routed_experts=12,
            moe_intermediate_size=40,
            num_experts_per_tok=2,
            first_k_dense_replace=2,
            use_qk_norm=True,
            attention_bias=True,
            head_dim=24,
        ),
    ),
    (
        "ernie4_5_moe",
        small("ernie4_5_moe", moe_num_experts=8, moe_k=2, moe_intermediate_size=40, use_bias=True),
    ),
    ("llama4_text", small("llama4_text", intermediate_size_mlp=200, **MOE)),
    (
        "llama4_text, interleaved",
        small("llama4_text", intermediate_size_mlp=200, interleave_moe_layer_step=2, **MOE),
    ),
    ("deepseek_v2", small("deepseek_v2", **DEEPSEEK)),
    ("deepseek_v2, no query latent", small("deepseek_v2", **{**DEEPSEEK, "q_lora_rank": None})),
    ("deepseek_v3", small("deepseek_v3", **DEEPSEEK)),
    ("deepseek_v3, biased", small("deepseek_v3", attention_bias=True, **DEEPSEEK)),
    ("deepseek_v3, no query latent", small("deepseek_v3", **{**DEEPSEEK, "q_lora_rank": None})),
    (
        "deepseek_v3, all routed",
        small("deepseek_v3", tie_word_embeddings=True, **{**DEEPSEEK, "first_k_dense_replace": 0}),
    ),
    ("deepseek_v3, dense", small("deepseek_v3", **{**DEEPSEEK, "first_k_dense_replace": 9})),
    ("glm4_moe_lite", small("glm4_moe_lite", **DEEPSEEK)),
    ("gpt2", {"model_type": "gpt2", **GPT}),
    (
        "gpt2, untied",
        {"model_type": "gpt2", **GPT, "n_inner": 100, "tie_word_embeddings": False},
    ),
    ("gpt_bigcode", {"model_type": "gpt_bigcode", **GPT}),
    ("gpt_bigcode, many heads", {"model_type": "gpt_bigcode", **GPT, "multi_query": False}),
    ("gptj", {"model_type": "gptj", **GPT, "rotary_dim": 8}),
    ("codegen", {"model_type": "codegen", **GPT, "n_head": 8, "rotary_dim": 8}),
    (
        "gpt_neo",
        small(
            "gpt_neo",
            num_layers=4,
            num_heads=6,
            attention_types=[[["global", "local"], 2]],
            num_hidden_layers=None,
            num_attention_heads=None,
            **MULTI,
        ),
    ),
    ("gpt_neox", small("gpt_neox", **MULTI)),
    ("gpt_neox, no bias", small("gpt_neox", attention_bias=False, **MULTI)),
    ("opt", small("opt", ffn_dim=160, **MULTI)),
    (
        "opt, narrow embedding",
        small("opt", ffn_dim=160, word_embed_proj_dim=40, do_layer_norm_before=False, **MULTI),
    ),
    ("opt, no biases", small("opt", ffn_dim=160, enable_bias=False, **MULTI)),
    (
        "bloom",
        {"model_type": "bloom", "vocab_size": 1003, "n_embed": 96, "n_layer": 3, "n_head": 6},
    ),
    ("falcon, one key head", small("falcon", **MULTI)),
    ("falcon, grouped", small("falcon", new_decoder_architecture=True, num_kv_heads=2, **MULTI)),
    (
        "falcon, grouped under one norm",
        small(
            "falcon",
            new_decoder_architecture=True,
            num_kv_heads=2,
            num_ln_in_parallel_attn=1,
            ffn_hidden_size=200,
            **MULTI,
        ),
    ),
    (
        "falcon, plain",
        small("falcon", multi_query=False, parallel_attn=False, bias=True, alibi=True, **MULTI),
    ),
    (
        "mpt",
        {"model_type": "mpt", "vocab_size": 1003, "d_model": 96, "n_heads": 6, "n_layers": 3},
    ),
]
