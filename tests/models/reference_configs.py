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

MAMBA2: dict[str, Any] = {
    "mamba_n_heads": 12,
    "mamba_d_head": 16,
    "mamba_n_groups": 2,
    "mamba_d_state": 8,
}
DELTA: dict[str, Any] = {
    "head_dim": 24,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 12,
    "linear_value_head_dim": 20,
}
EXPERTS: dict[str, Any] = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 40,
    "shared_expert_intermediate_size": 56,
}
MIXED = ["linear_attention", "full_attention", "linear_attention"]

HYBRIDS: list[tuple[str, dict[str, Any]]] = [
    ("mamba", small("mamba", state_size=8, intermediate_size=None)),
    ("mamba, biased", small("mamba", use_bias=True, use_conv_bias=False, intermediate_size=None)),
    ("falcon_mamba", small("falcon_mamba", time_step_rank=5, intermediate_size=None)),
    (
        "mamba2",
        small("mamba2", num_heads=12, head_dim=16, n_groups=2, state_size=8, expand=2),
    ),
    (
        "mamba2, biased and tied",
        small(
            "mamba2",
            num_heads=12,
            head_dim=16,
            n_groups=1,
            use_bias=True,
            tie_word_embeddings=True,
        ),
    ),
    ("jamba", small("jamba", num_experts=4, num_hidden_layers=8, mamba_d_state=8)),
    ("jamba, dense", small("jamba", num_experts=1, attn_layer_period=2, attn_layer_offset=1)),
    ("bamba", small("bamba", attn_layer_indices=[2], **MAMBA2)),
    (
        "granitemoehybrid",
        small(
            "granitemoehybrid",
            num_hidden_layers=3,
            layer_types=["mamba", "attention", "mamba"],
            shared_intermediate_size=72,
            **MAMBA2,
            **MOE,
        ),
    ),
    (
        "granitemoehybrid, dense",
        small(
            "granitemoehybrid",
            num_hidden_layers=3,
            layer_types=MIXED,
            num_local_experts=0,
            shared_intermediate_size=72,
            **MAMBA2,
        ),
    ),
    ("falcon_h1", small("falcon_h1", mamba_d_ssm=192, **MAMBA2)),
    (
        "falcon_h1, normed and biased",
        small(
            "falcon_h1",
            mamba_d_ssm=192,
            mamba_rms_norm=True,
            mamba_proj_bias=True,
            mlp_bias=True,
            attention_bias=True,
            **MAMBA2,
        ),
    ),
    (
        "nemotron_h",
        small(
            "nemotron_h",
            hybrid_override_pattern="M-M*-ME",
            num_hidden_layers=7,
            head_dim=16,
            mamba_num_heads=12,
            mamba_head_dim=16,
            n_groups=2,
            ssm_state_size=8,
            n_routed_experts=6,
            moe_intermediate_size=40,
            moe_shared_expert_intermediate_size=56,
        ),
    ),
    (
        "nemotron_h, latent experts, biases",
        small(
            "nemotron_h",
            layers_block_type=["linear_attention", "moe", "full_attention", "mlp"],
            num_hidden_layers=4,
            mamba_num_heads=12,
            mamba_head_dim=16,
            n_groups=2,
            mlp_bias=True,
            use_bias=True,
            attention_bias=True,
            moe_latent_size=32,
            moe_intermediate_size=40,
            moe_shared_expert_intermediate_size=56,
        ),
    ),
    ("qwen3_next", small("qwen3_next", **DELTA, **EXPERTS)),
    ("qwen3_next, a dense layer", small("qwen3_next", mlp_only_layers=[1], **DELTA, **EXPERTS)),
    ("qwen3_5_text", small("qwen3_5_text", tie_word_embeddings=True, **DELTA)),
    (
        "qwen3_5_moe_text",
        small("qwen3_5_moe_text", num_hidden_layers=3, layer_types=MIXED, **DELTA, **EXPERTS),
    ),
    ("minimax", small("minimax", head_dim=24, **MOE)),
    (
        "lfm2",
        small("lfm2", full_attn_idxs=[1, 3], conv_bias=True, intermediate_size=400),
    ),
    ("lfm2, width as given", small("lfm2", block_auto_adjust_ff_dim=False, full_attn_idxs=[2])),
    (
        "recurrent_gemma",
        small("recurrent_gemma", lru_width=120, num_attention_heads=6, head_dim=16, conv1d_width=3),
    ),
    (
        "gemma3n_text",
        small(
            "gemma3n_text",
            num_hidden_layers=10,
            num_kv_shared_layers=5,
            head_dim=24,
            hidden_size_per_layer_input=12,
            laurel_rank=5,
            vocab_size_per_layer_input=900,
        ),
    ),
]

SEQ2SEQ = "AutoModelForSeq2SeqLM"
IMAGE = "AutoModelForImageClassification"
MLM = "AutoModelForMaskedLM"
SIDES: dict[str, Any] = {
    "vocab_size": 1003,
    "d_model": 96,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 6,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 160,
    "decoder_ffn_dim": 200,
    "pad_token_id": 0,
}
T5: dict[str, Any] = {
    "vocab_size": 1003,
    "d_model": 96,
    "d_kv": 20,
    "d_ff": 160,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 6,
}
TEXT: dict[str, Any] = {
    "vocab_size": 1003,
    "hidden_size": 64,
    "intermediate_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 40,
}
VISION: dict[str, Any] = {
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "image_size": 56,
    "patch_size": 14,
}

OTHERS: list[tuple[str, dict[str, Any], str]] = [
    ("bert", small("bert", **MULTI), MLM),
    ("bert, bare", small("bert", architectures=["BertModel"], **MULTI), "AutoModel"),
    (
        "bert, pretraining",
        small("bert", architectures=["BertForPreTraining"], **MULTI),
        "AutoModelForPreTraining",
    ),
    (
        "bert, classes",
        small("bert", architectures=["BertForSequenceClassification"], num_labels=5, **MULTI),
        "AutoModelForSequenceClassification",
    ),
    ("roberta", small("roberta", type_vocab_size=1, **MULTI), MLM),
    ("roberta, bare", small("roberta", architectures=["RobertaModel"], **MULTI), "AutoModel"),
    (
        "roberta, classes",
        small("roberta", architectures=["RobertaForSequenceClassification"], **MULTI),
        "AutoModelForSequenceClassification",
    ),
    ("xlm-roberta", small("xlm-roberta", **MULTI), MLM),
    (
        "distilbert",
        {
            "model_type": "distilbert",
            "vocab_size": 1003,
            "dim": 96,
            "hidden_dim": 160,
            "n_layers": 3,
            "n_heads": 6,
        },
        MLM,
    ),
    ("modernbert", small("modernbert", **MULTI), MLM),
    (
        "modernbert, biases",
        small(
            "modernbert",
            norm_bias=True,
            attention_bias=True,
            decoder_bias=False,
            classifier_bias=True,
            global_attn_every_n_layers=2,
            **MULTI,
        ),
        MLM,
    ),
    ("t5", {"model_type": "t5", **T5}, SEQ2SEQ),
    (
        "t5, gated, its head tied all the same",
        {
            "model_type": "t5",
            **T5,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
        },
        SEQ2SEQ,
    ),
    ("mt5", {"model_type": "mt5", **T5}, SEQ2SEQ),
    ("umt5", {"model_type": "umt5", **T5, "tie_word_embeddings": False}, SEQ2SEQ),
    ("bart", {"model_type": "bart", **SIDES, "max_position_embeddings": 64}, SEQ2SEQ),
    (
        "whisper",
        {"model_type": "whisper", **SIDES, "max_source_positions": 50, "num_mel_bins": 20},
        "AutoModelForSpeechSeq2Seq",
    ),
    ("vit", {"model_type": "vit", **VISION, "num_labels": 7}, IMAGE),
    (
        "vit, bare, no bias on q, k, v",
        {"model_type": "vit", **VISION, "qkv_bias": False, "architectures": ["ViTModel"]},
        "AutoModel",
    ),
    ("dinov2", {"model_type": "dinov2", **VISION}, "AutoModel"),
    (
        "dinov2, gated, classes",
        {
            "model_type": "dinov2",
            **VISION,
            "use_swiglu_ffn": True,
            "architectures": ["Dinov2ForImageClassification"],
        },
        IMAGE,
    ),
    (
        "dinov2, registers",
        {"model_type": "dinov2_with_registers", **VISION, "num_register_tokens": 3},
        "AutoModel",
    ),
    (
        "clip",
        {
            "model_type": "clip",
            "text_config": TEXT,
            "vision_config": VISION,
            "projection_dim": 48,
        },
        "AutoModel",
    ),
    ("clip, as it comes", {"model_type": "clip"}, "AutoModel"),
    (
        "siglip",
        {"model_type": "siglip", "text_config": TEXT, "vision_config": VISION},
        "AutoModel",
    ),
    ("clip_vision_model", {"model_type": "clip_vision_model", **VISION}, "AutoModel"),
    ("siglip_vision_model", {"model_type": "siglip_vision_model", **VISION}, "AutoModel"),
    (
        "siglip_vision_model, no head",
        {"model_type": "siglip_vision_model", **VISION, "vision_use_head": False},
        "AutoModel",
    ),
    ("resnet-50", {"model_type": "resnet", "num_labels": 1000}, IMAGE),
    (
        "resnet-18",
        {
            "model_type": "resnet",
            "layer_type": "basic",
            "depths": [2, 2, 2, 2],
            "hidden_sizes": [64, 128, 256, 512],
        },
        IMAGE,
    ),
    ("resnet, bare", {"model_type": "resnet", "architectures": ["ResNetModel"]}, "AutoModel"),
    ("convnext", {"model_type": "convnext", "num_labels": 1000}, IMAGE),
    (
        "convnextv2",
        {"model_type": "convnextv2", "depths": [1, 2, 2, 1], "hidden_sizes": [16, 24, 40, 80]},
        IMAGE,
    ),
]

VLM = "AutoModelForImageTextToText"
QWEN_TEXT: dict[str, Any] = {key: SMALL[key] for key in SMALL if key != "pad_token_id"}
QWEN_EYE: dict[str, Any] = {
    "depth": 3,
    "num_heads": 4,
    "hidden_size": 64,
    "intermediate_size": 100,
    "out_hidden_size": 96,
}
LLAMA_TEXT: dict[str, Any] = {**QWEN_TEXT, "model_type": "llama"}
CLIP_EYE: dict[str, Any] = {**VISION, "model_type": "clip_vision_model"}
SIGLIP_EYE: dict[str, Any] = {**VISION, "model_type": "siglip_vision_model"}

PHI4_EAR: dict[str, Any] = {
    "hidden_size": 48, "intermediate_size": 70, "num_blocks": 2, "num_attention_heads": 4,
    "ext_pw_out_channel": 48, "depthwise_separable_out_channel": 48, "input_size": 50,
    "nemo_conv_channels": 20, "bias_max_distance": 30, "downsample_rate": 2,
}  # fmt: skip
PHI4: dict[str, Any] = {
    **SMALL, "model_type": "phi4_multimodal", "audio_config": PHI4_EAR, "vision_config": VISION,
}  # fmt: skip
HEARING: list[tuple[str, dict[str, Any], str]] = [
    ("phi4_multimodal", PHI4, "AutoModelForCausalLM"),
    ("phi4_multimodal, as it comes", {"model_type": "phi4_multimodal"}, "AutoModelForCausalLM"),
    (
        "phi4_multimodal, symmetric, tied",
        {**PHI4, "tie_word_embeddings": True,
         "audio_config": {**PHI4_EAR, "bias_symmetric": True, "time_reduction": 4}},
        "AutoModelForCausalLM",
    ),
]  # fmt: skip
GEMMA_EAR: dict[str, Any] = {
    "hidden_size": 48, "conf_num_attention_heads": 4, "conf_num_hidden_layers": 2,
    "conf_conv_kernel_size": 3, "sscp_conv_channel_size": [12, 8], "input_feat_size": 50,
    "sscp_conv_kernel_size": [[3, 3], [3, 5]],
}  # fmt: skip
KIMI_EYE: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 2, "pos_emb_height": 9,
    "num_attention_heads": 4, "pos_emb_width": 7, "merge_kernel_size": [2, 2],
}  # fmt: skip
LATENT_TEXT: dict[str, Any] = {
    **QWEN_TEXT, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16, "v_head_dim": 20, "n_routed_experts": 8, "moe_intermediate_size": 48,
    "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
    "model_type": "deepseek_v3", "num_key_value_heads": 6,
}  # fmt: skip

KIMI: dict[str, Any] = {
    "model_type": "kimi_k25", "text_config": LATENT_TEXT, "vision_config": KIMI_EYE,
    "projection_hidden_size": 64,
}  # fmt: skip
GEMMA_3N_TEXT: dict[str, Any] = {
    **QWEN_TEXT, "head_dim": 24, "num_kv_shared_layers": 4, "num_hidden_layers": 10,
    "vocab_size_per_layer_input": 90,
}  # fmt: skip
GEMMA_3N: dict[str, Any] = {
    "model_type": "gemma3n", "text_config": GEMMA_3N_TEXT, "vision_config": {},
    "audio_config": GEMMA_EAR,
}  # fmt: skip
HEARING += [
    ("kimi_k25", KIMI, VLM),
    ("kimi_k25, a head of its own", {**KIMI, "tie_word_embeddings": False}, VLM),
]

MULTIMODAL: list[tuple[str, dict[str, Any], str]] = [
    (name, {"model_type": kind, "text_config": text, "vision_config": eye, **keys}, VLM)
    for name, kind, text, eye, keys in [
        ("llava", "llava", LLAMA_TEXT, CLIP_EYE, {}),
        (
            "llava, two feature layers, tied",
            "llava",
            LLAMA_TEXT,
            CLIP_EYE,
            {"vision_feature_layer": [-2, -1], "tie_word_embeddings": True},
        ),
        ("llava, Llama 2's numbers", "llava", {"model_type": "llama"}, CLIP_EYE, {}),
        ("llava over Mistral", "llava", {"model_type": "mistral"}, SIGLIP_EYE, {}),
        (
            "llava_next",
            "llava_next",
            LLAMA_TEXT,
            CLIP_EYE,
            {"multimodal_projector_bias": False},
        ),
        (
            "paligemma",
            "paligemma",
            {**QWEN_TEXT, "model_type": "gemma", "head_dim": 24},
            {**SIGLIP_EYE, "projection_dim": 96},
            {"projection_dim": 96},
        ),
        (
            "gemma3",
            "gemma3",
            {**QWEN_TEXT, "head_dim": 24, "sliding_window": 32},
            {**SIGLIP_EYE, "vision_use_head": False},
            {},
        ),
        (
            "mistral3",
            "mistral3",
            {**QWEN_TEXT, "model_type": "mistral", "head_dim": 16},
            {**VISION, "model_type": "pixtral"},
            {},
        ),
        ("smolvlm", "smolvlm", LLAMA_TEXT, VISION, {"scale_factor": 3}),
        ("idefics3", "idefics3", LLAMA_TEXT, VISION, {}),
        (
            "llama4",
            "llama4",
            {**QWEN_TEXT, "intermediate_size_mlp": 200, "head_dim": 16, **MOE},
            {**VISION, "projector_input_dim": 50, "projector_output_dim": 60},
            {},
        ),
        (
            "qwen2_vl",
            "qwen2_vl",
            QWEN_TEXT,
            {"depth": 3, "num_heads": 4, "embed_dim": 64, "hidden_size": 96},
            {"tie_word_embeddings": True},
        ),
        ("qwen2_5_vl", "qwen2_5_vl", QWEN_TEXT, QWEN_EYE, {}),
        (
            "qwen3_vl",
            "qwen3_vl",
            {**QWEN_TEXT, "head_dim": 24},
            {**QWEN_EYE, "deepstack_visual_indexes": [0, 2]},
            {},
        ),
        ("qwen3_vl_moe", "qwen3_vl_moe", {**QWEN_TEXT, **EXPERTS}, QWEN_EYE, {}),
        ("qwen3_5", "qwen3_5", {**QWEN_TEXT, **DELTA}, QWEN_EYE, {}),
        ("qwen3_5_moe", "qwen3_5_moe", {**QWEN_TEXT, **DELTA, **EXPERTS}, QWEN_EYE, {}),
    ]
]

HEADS: dict[str, Any] = {"num_attention_heads": 4, "attention_head_dim": 12, "num_layers": 3}
UNET: dict[str, Any] = {"block_out_channels": [32, 64, 64], "norm_num_groups": 8}
XL: dict[str, Any] = {
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
}

DIFFUSION: list[tuple[str, dict[str, Any]]] = [
    (name, {"_class_name": kind, **keys})
    for name, kind, keys in [
        ("DiT-XL/2", "DiTTransformer2DModel", {"out_channels": 8, "sample_size": 32}),
        (
            "DiT, no bias on q, k, v",
            "DiTTransformer2DModel",
            {**HEADS, "attention_bias": False, "num_embeds_ada_norm": 10},
        ),
        ("PixArt-alpha", "PixArtTransformer2DModel", {"caption_channels": 4096}),
        (
            "PixArt, small",
            "PixArtTransformer2DModel",
            {**HEADS, "sample_size": 64, "cross_attention_dim": 48},
        ),
        (
            "SD3-medium",
            "SD3Transformer2DModel",
            {
                "num_layers": 24,
                "num_attention_heads": 24,
                "caption_projection_dim": 1536,
                "pos_embed_max_size": 192,
            },
        ),
        (
            "SD3.5, small, normed, twice attending",
            "SD3Transformer2DModel",
            {
                **HEADS,
                "caption_projection_dim": 48,
                "qk_norm": "rms_norm",
                "dual_attention_layers": [0, 1],
            },
        ),
        ("Flux-dev", "FluxTransformer2DModel", {"guidance_embeds": True}),
        (
            "Flux, small",
            "FluxTransformer2DModel",
            {**HEADS, "num_single_layers": 2, "axes_dims_rope": [4, 4, 4]},
        ),
        ("SD 1.5", "UNet2DConditionModel", {"cross_attention_dim": 768, "sample_size": 64}),
        (
            "SD 2.1",
            "UNet2DConditionModel",
            {
                "cross_attention_dim": 1024,
                "attention_head_dim": [5, 10, 20, 20],
                "use_linear_projection": True,
            },
        ),
        (
            "SDXL",
            "UNet2DConditionModel",
            {
                **XL,
                "block_out_channels": [320, 640, 1280],
                "attention_head_dim": [5, 10, 20],
                "transformer_layers_per_block": [1, 2, 10],
                "cross_attention_dim": 2048,
                "addition_embed_type": "text_time",
                "addition_time_embed_dim": 256,
                "projection_class_embeddings_input_dim": 2816,
                "use_linear_projection": True,
                "sample_size": 128,
            },
        ),
        (
            "UNet, small, three colours",
            "UNet2DConditionModel",
            {**UNET, **XL, "layers_per_block": [1, 2, 3], "in_channels": 3, "out_channels": 6},
        ),
    ]
]
