"""Models beyond decoders against the parameter counts that their publishers print in full."""

from typing import Any

import pytest

from chipshift.models.count import params
from chipshift.models.hf import read_config

SIGLIP_SO400M = {
    "model_type": "siglip_vision_model",
    "hidden_size": 1152,
    "image_size": 896,
    "intermediate_size": 4304,
    "num_attention_heads": 16,
    "num_hidden_layers": 27,
    "patch_size": 14,
    "vision_use_head": False,
}
QWEN_7B = {
    "hidden_size": 3584,
    "intermediate_size": 18_944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152_064,
    "tie_word_embeddings": False,
}
VIT_B = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "num_labels": 1000,
}
WHISPER = {
    "vocab_size": 51_866,
    "num_mel_bins": 128,
    "d_model": 1280,
    **{f"{side}_layers": 32 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 20 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 5120 for side in ("encoder", "decoder")},
}
T5_LARGE = {
    "vocab_size": 32_128,
    "d_model": 1024,
    "d_kv": 64,
    "d_ff": 4096,
    "num_layers": 24,
    "num_heads": 16,
}

# Hugging Face model pages (tensor totals of the checkpoints) and torchvision's table of weights,
# both 2026. The configs are as published: keys that they leave out are left out here too.
PUBLISHED: list[tuple[str, dict[str, Any], int]] = [
    (
        "google/gemma-3-4b-pt",
        {
            "model_type": "gemma3",
            "text_config": {
                "hidden_size": 2560,
                "intermediate_size": 10_240,
                "model_type": "gemma3_text",
                "num_hidden_layers": 34,
                "sliding_window": 1024,
            },
            "vision_config": SIGLIP_SO400M,
        },
        4_300_079_472,
    ),
    (
        "Qwen/Qwen2-VL-7B",
        {
            "model_type": "qwen2_vl",
            **QWEN_7B,  # at the top, as it was first published
            "vision_config": {
                "depth": 32,
                "embed_dim": 1280,
                "mlp_ratio": 4,
                "num_heads": 16,
                "in_chans": 3,
                "hidden_size": 3584,
                "patch_size": 14,
            },
        },
        8_291_375_616,
    ),
    (
        "Qwen/Qwen2.5-VL-7B-Instruct",
        {
            "model_type": "qwen2_5_vl",
            **QWEN_7B,
            "vision_config": {
                "depth": 32,
                "hidden_size": 1280,
                "intermediate_size": 3420,
                "num_heads": 16,
                "out_hidden_size": 3584,
                "patch_size": 14,
            },
        },
        8_292_166_656,
    ),
    ("openai/whisper-large-v3", {"model_type": "whisper", **WHISPER}, 1_543_490_560),
    ("openai/clip-vit-base-patch32", {"model_type": "clip"}, 151_277_313),
    ("google-t5/t5-large", {"model_type": "t5", **T5_LARGE}, 737_668_096),
    ("torchvision vit_b_16", {"model_type": "vit", **VIT_B}, 86_567_656),
    ("torchvision resnet50", {"model_type": "resnet", "num_labels": 1000}, 25_557_032),
    ("torchvision convnext_tiny", {"model_type": "convnext", "num_labels": 1000}, 28_589_128),
    (
        "Stable Diffusion 1.5's UNet",
        {"_class_name": "UNet2DConditionModel", "cross_attention_dim": 768},
        859_520_964,
    ),
    (
        "black-forest-labs/FLUX.1-dev",
        {"_class_name": "FluxTransformer2DModel", "guidance_embeds": True},
        11_901_408_320,
    ),
]


@pytest.mark.parametrize(
    ("config", "total"), [(c, n) for _, c, n in PUBLISHED], ids=[name for name, _, _ in PUBLISHED]
)
def test_the_published_count(config: dict[str, Any], total: int) -> None:
    assert params(read_config(config)) == total
