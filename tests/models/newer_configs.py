"""Configs of the newer and rarer decoders, small and odd on purpose, for the reference's tests."""

from typing import Any

from .reference_configs import DEEPSEEK, VLM, small

FULL, SLIDING = "full_attention", "sliding_attention"
GEMMA_4: dict[str, Any] = {
    "head_dim": 16, "global_head_dim": 24, "hidden_size_per_layer_input": 8, "num_hidden_layers": 6,
    "vocab_size_per_layer_input": 1003, "sliding_window": 16,
}  # fmt: skip
GEMMA_4_MOE: dict[str, Any] = {
    "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 40,
    "hidden_size_per_layer_input": 0,
}  # fmt: skip
LATENT = {key: n for key, n in DEEPSEEK.items() if key not in ("n_group", "topk_group")}
KIMI_LINEAR: dict[str, Any] = {
    **LATENT, "linear_num_heads": 3, "linear_head_dim": 16, "n_routed_experts": None,
    "num_local_experts": 8, "first_k_dense_replace": 1, "q_lora_rank": None, "n_shared_experts": 1,
}  # fmt: skip
MIMO: dict[str, Any] = {
    "head_dim": 24, "v_head_dim": 16, "num_key_value_heads": 1, "n_routed_experts": 6,
    "num_experts_per_tok": 2, "moe_intermediate_size": 40, "sliding_window": 9,
}  # fmt: skip
STEP: dict[str, Any] = {
    "head_dim": 16, "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
    "share_expert_dim": 56, "sliding_window": 8, "num_hidden_layers": 5,
}  # fmt: skip
DEEPSEEK_4: dict[str, Any] = {
    "num_key_value_heads": 1, "head_dim": 32, "q_lora_rank": 40, "o_lora_rank": 24, "o_groups": 3,
    "index_n_heads": 4, "index_head_dim": 16, "index_topk": 8, "n_routed_experts": 6, "hc_mult": 3,
    "moe_intermediate_size": 40, "num_experts_per_tok": 2, "sliding_window": 8,
    "intermediate_size": None,
}  # fmt: skip
MINIMAX_3: dict[str, Any] = {
    "head_dim": 16, "num_local_experts": 6, "num_experts_per_tok": 2,
    "shared_intermediate_size": 56, "dense_intermediate_size": 200,
    "index_head_dim": 24, "index_block_size": 4, "index_topk_blocks": 2, "index_n_heads": 2,
    "rotary_dim": 8,
}  # fmt: skip
SPARSE = "minimax_m3_sparse"
EXPERTS = {"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40}

TEXTS: list[tuple[str, dict[str, Any]]] = [
    ("gemma4_text", small("gemma4_text", **GEMMA_4)),
    ("gemma4_text, keys shared", small("gemma4_text", **GEMMA_4, num_kv_shared_layers=2,
                                       layer_types=[SLIDING, FULL] * 3, use_double_wide_mlp=True)),
    ("gemma4_text, values are keys", small("gemma4_text", **GEMMA_4, attention_k_eq_v=True,
                                           num_global_key_value_heads=1, attention_bias=True)),
    ("gemma4_text, experts", small("gemma4_text", **{**GEMMA_4, **GEMMA_4_MOE},
                                   tie_word_embeddings=False)),
    ("kimi_linear", small("kimi_linear", **KIMI_LINEAR)),
    ("kimi_linear, by numbers", small(
        "kimi_linear", **KIMI_LINEAR, attention_bias=True, tie_word_embeddings=True,
        linear_attn_config={"full_attn_layers": [1, 4], "kda_layers": [2, 3, 5], "head_dim": 8,
                            "num_heads": 5, "short_conv_kernel_size": 3})),
    ("kimi_linear, a latent of queries", small(
        "kimi_linear", **{**KIMI_LINEAR, "q_lora_rank": 20},
        layer_types=[FULL] * 2 + ["linear_attention"] * 3,
        mlp_layer_types=["sparse"] * 4 + ["dense"])),
    ("mimo_v2_flash", small("mimo_v2_flash", **MIMO)),
    ("mimo_v2_flash, biased", small("mimo_v2_flash", **MIMO, attention_bias=True,
                                    layer_types=[SLIDING] * 4 + [FULL], tie_word_embeddings=True)),
    ("mimo_v2_flash, no dense layer", small("mimo_v2_flash", **MIMO,
                                            mlp_layer_types=["sparse"] * 5)),
    ("deepseek_v4", small("deepseek_v4", **DEEPSEEK_4)),
    ("deepseek_v4, a window alone", small(
        "deepseek_v4", **DEEPSEEK_4, compress_ratios=[0, 128, 4, 0, 4], tie_word_embeddings=True)),
    ("deepseek_v4, other rates", small(
        "deepseek_v4", **DEEPSEEK_4,
        compress_rates={"compressed_sparse_attention": 2, "heavily_compressed_attention": 16})),
    ("ernie4_5", small("ernie4_5")),
    ("ernie4_5, biased", small("ernie4_5", use_bias=True, head_dim=24, tie_word_embeddings=False)),
    ("dots1", small("dots1", **EXPERTS, first_k_dense_replace=1, n_shared_experts=2)),
    ("dots1, sliding above", small("dots1", **EXPERTS, sliding_window=8, max_window_layers=3,
                                   n_shared_experts=1)),
    ("hunyuan_v1_dense", small("hunyuan_v1_dense", attention_bias=True, head_dim=24)),
    ("hunyuan_v1_moe", small("hunyuan_v1_moe", num_experts=6, moe_topk=2, head_dim=16)),
    ("apertus", small("apertus", attention_bias=True)),
    ("apertus, another activation", small("apertus", hidden_act="gelu")),
    ("internlm3", small("internlm3", head_dim=16)),
    ("internlm3, biased", small("internlm3", qkv_bias=True, bias=True, num_key_value_heads=None)),
    ("exaone", small("exaone")),
    ("minimax_m3_vl_text", small("minimax_m3_vl_text", **MINIMAX_3)),
    ("minimax_m3_vl_text, picked blocks", small(
        "minimax_m3_vl_text", **MINIMAX_3, layer_types=[FULL] + [SPARSE] * 4,
        mlp_layer_types=["dense"] * 2 + ["sparse"] * 3)),
    ("minimax_m3_vl_text, its own spelling", small(
        "minimax_m3_vl_text", **MINIMAX_3, moe_layer_freq=[0, 1, 1, 1, 1],
        sparse_attention_config={"sparse_num_index_heads": 2, "sparse_index_dim": 12,
                                 "sparse_attention_freq": [0, 0, 1, 1, 1]})),
]  # fmt: skip

TEXT: dict[str, Any] = {key: n for key, n in small("x").items() if key != "model_type"}
EYE_4 = {"hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 2, "head_dim": 12,
         "num_attention_heads": 4, "num_key_value_heads": 2, "patch_size": 4,
         "position_embedding_size": 50}  # fmt: skip
EAR_4 = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "subsampling_conv_channels": [12, 8], "output_proj_dims": 40}  # fmt: skip
TILES: dict[str, Any] = {
    "hidden_size": 48, "intermediate_size": 100, "num_hidden_layers": 3, "num_global_layers": 2,
    "attention_heads": 4, "image_size": 28, "patch_size": 7, "vision_output_dim": 96,
    "intermediate_layers_indices": [1],
}  # fmt: skip
CROSSED = {**TEXT, "cross_attention_layers": [1, 3]}
STEP_EYE: dict[str, Any] = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
                            "image_size": 32, "patch_size": 4, "mlp_ratio": 1.7}  # fmt: skip
STEP_TEXT = {**TEXT, **STEP}
EXAONE_EYE = {"depth": 3, "hidden_size": 64, "num_heads": 8, "num_key_value_heads": 2,
              "intermediate_size": 100, "out_hidden_size": 96}  # fmt: skip
M3_EYE = {"hidden_size": 48, "intermediate_size": 100, "num_hidden_layers": 2, "patch_size": 4,
          "num_attention_heads": 4}  # fmt: skip

SEEING: list[tuple[str, dict[str, Any], str]] = [
    (name, {"model_type": kind, "text_config": text, "vision_config": eye, **keys}, VLM)
    for name, kind, text, eye, keys in [
        ("mllama", "mllama", CROSSED, TILES, {}),
        ("mllama, six tiles", "mllama", CROSSED,
         {**TILES, "max_num_tiles": 6, "supported_aspect_ratios": [[1, 1], [2, 3], [6, 1]]}, {}),
        ("gemma4", "gemma4", {**TEXT, **GEMMA_4}, EYE_4, {}),
        ("gemma4 that hears", "gemma4", {**TEXT, **GEMMA_4}, EYE_4, {"audio_config": EAR_4}),
        ("gemma4, experts", "gemma4", {**TEXT, **GEMMA_4, **GEMMA_4_MOE},
         {**EYE_4, "attention_bias": False}, {}),
        ("step3p7", "step3p7", STEP_TEXT, STEP_EYE, {}),
        ("step3p7, more heads in a window", "step3p7",
         {**STEP_TEXT, "layer_types": [FULL, SLIDING, SLIDING, FULL, SLIDING],
          "num_sliding_attention_heads": 8, "moe_layers_enum": "2,4"}, STEP_EYE,
         {"projector_bias": True}),
        ("exaone4_5", "exaone4_5",
         {**TEXT, "model_type": "exaone4", "sliding_window": 8}, EXAONE_EYE, {}),
        ("minimax_m3_vl", "minimax_m3_vl", {**TEXT, **MINIMAX_3}, M3_EYE,
         {"projector_hidden_size": 70}),
    ]
]  # fmt: skip
