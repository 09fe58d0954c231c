"""Configs of families beyond ``reference_configs``: (name, keys, the reference's class)."""

from __future__ import annotations

from typing import Any

from .reference_configs import (
    GPT,
    IMAGE,
    LLAMA_TEXT,
    MLM,
    MOE,
    MULTI,
    QWEN_TEXT,
    SEQ2SEQ,
    SIDES,
    SIGLIP_EYE,
    T5,
    TEXT,
    VISION,
    VLM,
    small,
)

CAUSAL = "AutoModelForCausalLM"
CLASSES = "AutoModelForSequenceClassification"
BARE = "AutoModel"
FINE: dict[str, Any] = {"moe_intermediate_size": 48, "num_experts": 6, "num_experts_per_tok": 2}
DEBERTA: dict[str, Any] = {
    **MULTI, "relative_attention": True, "position_buckets": 16, "norm_rel_ebd": "layer_norm",
    "share_att_key": True, "pos_att_type": "p2c|c2p", "position_biased_input": False,
    "type_vocab_size": 0,
}  # fmt: skip
MLA: dict[str, Any] = {
    "q_lora_rank": 40, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 20, "num_key_value_heads": 6, "head_dim": 8,
}  # fmt: skip
SOUND: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 6, "conv_dim": [20, 24, 28], "conv_kernel": [10, 3, 2],
    "conv_stride": [5, 2, 2], "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
    "num_feat_extract_layers": 3,
}  # fmt: skip

DENSE = [
    ("bitnet", small("bitnet"), CAUSAL),
    ("cwm", small("cwm", head_dim=24), CAUSAL),
    ("helium, biases", small("helium", head_dim=16, attention_bias=True, mlp_bias=True), CAUSAL),
    ("jais2", small("jais2"), CAUSAL),
    ("minicpm3", small("minicpm3", **MLA), CAUSAL),
    ("nanochat", small("nanochat"), CAUSAL),
    ("persimmon", small("persimmon", num_key_value_heads=None), CAUSAL),
    ("vaultgemma", small("vaultgemma", head_dim=24), CAUSAL),
    (
        "xglm",
        {"model_type": "xglm", "vocab_size": 1003, "d_model": 96, "ffn_dim": 160,
         "num_layers": 3, "attention_heads": 6},
        CAUSAL,
    ),
    ("openai-gpt", {"model_type": "openai-gpt", "n_embd": 96, "n_head": 6, "n_layer": 3}, CAUSAL),
    ("gpt-sw3", {"model_type": "gpt-sw3", **GPT}, CAUSAL),
    ("afmoe", small("afmoe", head_dim=24, num_dense_layers=2, **FINE), CAUSAL),
    ("flex_olmo", small("flex_olmo", num_experts=6, num_experts_per_tok=2), CAUSAL),
    ("hy_v3", small("hy_v3", head_dim=24, **FINE), CAUSAL),
    (
        "solar_open",
        small("solar_open", head_dim=24, n_routed_experts=6, num_experts_per_tok=2,
              moe_intermediate_size=48, intermediate_size=None),
        CAUSAL,
    ),
]  # fmt: skip

BRIEF: dict[str, dict[str, Any]] = {
    "distilbert": {"dim": 96, "hidden_dim": 160, "n_layers": 5, "n_heads": 6}
}
ENCODERS = [
    (
        f"{kind}, {what}",
        small(kind, architectures=[f"{name}{what}"], **MULTI, **keys, **BRIEF.get(kind, {})),
        auto,
    )
    for kind, name in [("bert", "Bert"), ("roberta", "Roberta"), ("camembert", "Camembert"),
                       ("mpnet", "MPNet"), ("electra", "Electra"), ("nomic_bert", "NomicBert"),
                       ("distilbert", "DistilBert"), ("modernbert", "ModernBert")]

    for what, auto, keys in [
        ("ForMaskedLM", MLM, {}),
        ("Model", BARE, {}),
        ("ForSequenceClassification", CLASSES, {"num_labels": 5}),
        ("ForTokenClassification", "AutoModelForTokenClassification", {"num_labels": 5}),
        ("ForQuestionAnswering", "AutoModelForQuestionAnswering", {}),
        ("ForMultipleChoice", "AutoModelForMultipleChoice", {}),
    ]
    if kind != "nomic_bert" or what not in ("ForQuestionAnswering", "ForMultipleChoice")
    if (kind, what) != ("modernbert", "ForMultipleChoice")
]  # fmt: skip
ENCODERS += [
    (
        "bert, a decoder with cross-attention",
        small("bert", architectures=["BertLMHeadModel"], is_decoder=True,
              add_cross_attention=True, **MULTI),
        CAUSAL,
    ),
    (
        "electra, pretraining, narrow",
        small("electra", architectures=["ElectraForPreTraining"], embedding_size=40, **MULTI),
        "AutoModelForPreTraining",
    ),
    ("electra, narrow", small("electra", embedding_size=40, **MULTI), MLM),
    ("deberta-v2", small("deberta-v2", **DEBERTA), MLM),
    ("deberta-v2, as it comes", small("deberta-v2", **MULTI), MLM),
    (
        "deberta-v2, keys of its own, narrow, a convolution, classes",
        small("deberta-v2", **{**DEBERTA, "share_att_key": False, "position_buckets": -1},
              embedding_size=40, conv_kernel_size=3, num_labels=3,
              architectures=["DebertaV2ForSequenceClassification"]),
        CLASSES,
    ),
    (
        "deberta-v2, tokens",
        small("deberta-v2", **DEBERTA, architectures=["DebertaV2ForTokenClassification"]),
        "AutoModelForTokenClassification",
    ),
]  # fmt: skip

HEADS = [
    (f"{kind}, {what}", {**keys, "architectures": [f"X{what}"], "num_labels": 5}, auto)
    for kind, keys in [("llama", small("llama")), ("gpt2", {"model_type": "gpt2", **GPT}),
                       ("phi", small("phi")), ("mixtral", small("mixtral", **MOE))]
    for what, auto in [("ForSequenceClassification", CLASSES),
                       ("ForTokenClassification", "AutoModelForTokenClassification")]
]  # fmt: skip
HEADS.append(
    (
        "qwen3, ForQuestionAnswering",
        small("qwen3", architectures=["Qwen3ForQuestionAnswering"]),
        "AutoModelForQuestionAnswering",
    )
)

PAIRS = [
    (kind, {"model_type": kind, **SIDES, "max_position_embeddings": 64}, SEQ2SEQ)
    for kind in ("marian", "mbart", "pegasus", "m2m_100", "blenderbot")
]

SOUNDS = [
    (f"{kind}, {what}", {"model_type": kind, **SOUND, **keys, "architectures": [f"X{what}"]}, auto)
    for kind in ("wav2vec2", "hubert", "wavlm")
    for what, auto, keys in [
        ("ForCTC", "AutoModelForCTC", {}),
        ("Model", BARE, {"feat_extract_norm": "layer", "conv_bias": True,
                         "do_stable_layer_norm": True, "mask_time_prob": 0.0}),
        ("ForSequenceClassification", "AutoModelForAudioClassification",
         {"num_labels": 5, "use_weighted_layer_sum": True, "classifier_proj_size": 20}),
    ]
]  # fmt: skip
SOUNDS.append(
    (
        "wav2vec2, pretraining",
        {"model_type": "wav2vec2", **SOUND, "architectures": ["Wav2Vec2ForPreTraining"]},
        "AutoModelForPreTraining",
    )
)

SIGHT = [
    (
        "deit",
        {"model_type": "deit", **VISION, "num_labels": 7,
         "architectures": ["DeiTForImageClassification"]},
        IMAGE,
    ),
    ("deit, bare", {"model_type": "deit", **VISION, "architectures": ["DeiTModel"]}, BARE),
    ("beit", {"model_type": "beit", **VISION, "num_labels": 7}, IMAGE),
    (
        "beit, biases by distance, bare",
        {"model_type": "beit", **VISION, "use_relative_position_bias": True,
         "use_mask_token": True, "use_absolute_position_embeddings": True,
         "architectures": ["BeitModel"]},
        BARE,
    ),
    (
        "beit, one table for all",
        {"model_type": "beit", **VISION, "use_shared_relative_position_bias": True,
         "layer_scale_init_value": 0.0},
        IMAGE,
    ),
    ("dinov3_vit", {"model_type": "dinov3_vit", **VISION, "num_register_tokens": 4}, BARE),
    (
        "dinov3_vit, gated",
        {"model_type": "dinov3_vit", **VISION, "use_gated_mlp": True, "key_bias": True},
        BARE,
    ),
    ("swin", {"model_type": "swin", "num_labels": 7}, IMAGE),
    (
        "swin, two stages, bare",
        {"model_type": "swin", "depths": [1, 2], "num_heads": [2, 4], "embed_dim": 24,
         "image_size": 64, "window_size": 4, "qkv_bias": False, "use_absolute_embeddings": True,
         "architectures": ["SwinModel"]},
        BARE,
    ),
    (
        "clip, classes",
        {"model_type": "clip", "text_config": TEXT, "vision_config": VISION, "num_labels": 5,
         "architectures": ["CLIPForImageClassification"]},
        IMAGE,
    ),
    (
        "siglip, classes",
        {"model_type": "siglip", "text_config": TEXT, "vision_config": VISION, "num_labels": 5,
         "architectures": ["SiglipForImageClassification"]},
        IMAGE,
    ),
    (
        "vit, masked images",
        {"model_type": "vit", **VISION, "architectures": ["ViTForMaskedImageModeling"],
         "encoder_stride": 14},
        "AutoModelForMaskedImageModeling",
    ),
    ("t5, its encoder", {"model_type": "t5", **T5, "architectures": ["T5EncoderModel"]},
     "AutoModelForTextEncoding"),
    ("clip_text_model", {"model_type": "clip_text_model", **TEXT}, BARE),
]  # fmt: skip

SWIN: dict[str, Any] = {
    "depths": [1, 2], "num_heads": [2, 4], "embed_dim": 24, "image_size": 64, "window_size": 4,
}  # fmt: skip
GPT_2: dict[str, Any] = {
    "model_type": "gpt2", "n_embd": 96, "n_head": 6, "n_layer": 2, "vocab_size": 1003,
    "is_decoder": True, "add_cross_attention": True,
}  # fmt: skip
CAPTIONS = [
    (
        name,
        {"model_type": "vision-encoder-decoder", "encoder": eye, "decoder": text},
        "AutoModelForImageTextToText",
    )
    for name, eye, text in [
        ("ViT and GPT-2", {"model_type": "vit", **VISION}, GPT_2),
        (
            "BEiT and TrOCR",
            {"model_type": "beit", **VISION},
            {"model_type": "trocr", "d_model": 48, "decoder_layers": 2, "vocab_size": 1003,
             "decoder_attention_heads": 4, "decoder_ffn_dim": 70, "is_decoder": True,
             "add_cross_attention": True, "cross_attention_hidden_size": 96},
        ),
        (
            "Donut",
            {"model_type": "donut-swin", **SWIN},
            {"model_type": "mbart", "d_model": 48, "decoder_layers": 2, "vocab_size": 1003,
             "decoder_attention_heads": 4, "decoder_ffn_dim": 70, "is_decoder": True,
             "add_cross_attention": True},
        ),
        (
            "DeiT and RoBERTa, of two widths",
            {"model_type": "deit", **VISION},
            small("roberta", hidden_size=60, is_decoder=True, add_cross_attention=True, **MULTI),
        ),
    ]
]  # fmt: skip
EAR: dict[str, Any] = {
    "d_model": 60, "encoder_layers": 3, "encoder_attention_heads": 5, "encoder_ffn_dim": 88,
    "num_mel_bins": 50, "max_source_positions": 40,
}  # fmt: skip
GLM_EYE: dict[str, Any] = {
    "depth": 2, "hidden_size": 48, "out_hidden_size": 96, "num_heads": 4,
    "intermediate_size": 120, "image_size": 56,
}  # fmt: skip
GLM_TEXT: dict[str, Any] = {**QWEN_TEXT, "model_type": "glm4v_text", "pad_token_id": 0}
QWEN: dict[str, Any] = {**QWEN_TEXT, "model_type": "qwen2"}
COHERE: dict[str, Any] = {**QWEN_TEXT, "model_type": "cohere2", "sliding_window": 64}
SIGLIP_2: dict[str, Any] = {**VISION, "model_type": "siglip2_vision_model", "num_patches": 49}
JOINED = [
    (name, {"model_type": kind, "text_config": text, "vision_config": eye, **keys}, VLM)
    for name, kind, text, eye, keys in [
        ("internvl", "internvl", QWEN, {**VISION, "attention_bias": True}, {}),
        (
            "internvl, normed, untied",
            "internvl",
            LLAMA_TEXT,
            {**VISION, "use_qk_norm": True, "norm_type": "rms_norm", "use_mask_token": True},
            {"tie_word_embeddings": False, "downsample_ratio": 0.25},
        ),
        ("llava_onevision", "llava_onevision", QWEN, {**SIGLIP_EYE, "vision_use_head": False}, {}),
        ("aya_vision", "aya_vision", COHERE, SIGLIP_EYE, {"downsample_factor": 2}),
        (
            "cohere2_vision",
            "cohere2_vision",
            COHERE,
            SIGLIP_EYE,
            {"alignment_intermediate_size": 120},
        ),
        (
            "lfm2_vl",
            "lfm2_vl",
            {**QWEN_TEXT, "model_type": "lfm2", "full_attn_idxs": [1]},
            SIGLIP_2,
            {"projector_hidden_size": 70},
        ),
        (
            "lfm2_vl, no norm, no biases",
            "lfm2_vl",
            {**QWEN_TEXT, "model_type": "lfm2", "full_attn_idxs": [1]},
            SIGLIP_2,
            {"projector_use_layernorm": False, "projector_bias": False},
        ),
        ("glm4v", "glm4v", GLM_TEXT, GLM_EYE, {}),
        ("glm46v", "glm46v", GLM_TEXT, {**GLM_EYE, "model_type": "glm4v_vision"}, {}),
    ]
]  # fmt: skip
HEARERS = [
    (
        "qwen2_audio",
        {"model_type": "qwen2_audio", "text_config": QWEN, "audio_config": EAR},
        SEQ2SEQ,
    ),
    (
        "voxtral",
        {"model_type": "voxtral", "text_config": {**LLAMA_TEXT, "head_dim": 24},
         "audio_config": {"hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 5,
                          "intermediate_size": 240, "num_mel_bins": 50}},
        SEQ2SEQ,
    ),
    (
        "qwen3_asr",
        {"model_type": "qwen3_asr", "text_config": {**QWEN_TEXT, "model_type": "qwen3"},
         "audio_config": {**EAR, "downsample_hidden_size": 12, "output_dim": 96}},
        SEQ2SEQ,
    ),
]  # fmt: skip

WIDER: list[tuple[str, dict[str, Any], str]] = [
    *DENSE,
    *ENCODERS,
    *HEADS,
    *PAIRS,
    *SOUNDS,
    *SIGHT,
    *JOINED,
    *HEARERS,
    *CAPTIONS,
]
