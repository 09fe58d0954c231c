"""Diffusion networks beyond DiT, PixArt, SD 3, Flux: configs, and what they are run on.

A case is its name, config, inputs for one item and the positions that the config leaves open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TEXT = 32
TWO = {"num_layers": 2, "num_attention_heads": 4, "attention_head_dim": 16}


def _of(kind: str, keys: dict[str, Any]) -> dict[str, Any]:
    return {"_class_name": kind, **keys}


WAN = _of("WanTransformer3DModel", {**TWO, "ffn_dim": 96, "text_dim": 40})
LTX = _of("LTXVideoTransformer3DModel", {
    **TWO, "cross_attention_dim": 64, "caption_channels": 40, "in_channels": 24,
    "out_channels": 24})  # fmt: skip
SANA = _of("SanaTransformer2DModel", {
    **TWO, "num_cross_attention_heads": 2, "cross_attention_head_dim": 32,
    "cross_attention_dim": 64, "caption_channels": 40, "sample_size": 12})  # fmt: skip
HUNYUAN_DIT = _of("HunyuanDiT2DModel", {
    **TWO, "num_layers": 6, "in_channels": 4, "patch_size": 2, "hidden_size": 64, "mlp_ratio": 4.3,
    "cross_attention_dim": 40, "cross_attention_dim_t5": 48, "pooled_projection_dim": 24,
    "sample_size": 24, "text_len": 8, "text_len_t5": 12})  # fmt: skip
CHROMA = _of("ChromaTransformer2DModel", {
    **TWO, "num_single_layers": 3, "joint_attention_dim": 40, "axes_dims_rope": [4, 4, 8],
    "approximator_num_channels": 16, "approximator_hidden_dim": 48,
    "approximator_layers": 2})  # fmt: skip
QWEN = _of("QwenImageTransformer2DModel", {
    **TWO, "joint_attention_dim": 40, "axes_dims_rope": [4, 4, 8]})  # fmt: skip
HUNYUAN_VIDEO = _of("HunyuanVideoTransformer3DModel", {
    **TWO, "num_single_layers": 3, "text_embed_dim": 40, "pooled_projection_dim": 24,
    "rope_axes_dim": [4, 4, 8]})  # fmt: skip
FLUX_2 = _of("Flux2Transformer2DModel", {
    **TWO, "num_single_layers": 3, "joint_attention_dim": 40, "in_channels": 24,
    "axes_dims_rope": [4, 4, 4, 4]})  # fmt: skip
AURA = _of("AuraFlowTransformer2DModel", {
    "num_mmdit_layers": 2, "num_single_dit_layers": 3, "num_attention_heads": 4,
    "attention_head_dim": 16, "joint_attention_dim": 40, "caption_projection_dim": 64,
    "sample_size": 64})  # fmt: skip
COGVIDEOX = _of("CogVideoXTransformer3DModel", {
    **TWO, "time_embed_dim": 24, "text_embed_dim": 40, "max_text_seq_length": TEXT,
    "sample_width": 12, "sample_height": 8, "sample_frames": 9})  # fmt: skip
COGVIDEOX_15 = {
    **COGVIDEOX, "patch_size_t": 2, "ofs_embed_dim": 24, "patch_bias": False, "sample_frames": 13,
    "use_rotary_positional_embeddings": True, "attention_bias": False}  # fmt: skip
COGVIEW_4 = _of("CogView4Transformer2DModel", {
    **TWO, "text_embed_dim": 40, "time_embed_dim": 24, "condition_dim": 16, "sample_size": 24,
    "rope_axes_dim": [8, 8]})  # fmt: skip
LUMINA = _of("Lumina2Transformer2DModel", {
    "hidden_size": 96, "num_layers": 2, "num_refiner_layers": 1, "num_attention_heads": 8,
    "num_kv_heads": 2, "multiple_of": 40, "axes_dim_rope": [4, 4, 4], "axes_lens": [64, 64, 64],
    "cap_feat_dim": 40, "sample_size": 24})  # fmt: skip
Z_IMAGE = _of("ZImageTransformer2DModel", {
    "dim": 96, "n_layers": 2, "n_refiner_layers": 1, "n_heads": 4, "n_kv_heads": 4,
    "cap_feat_dim": 40, "axes_dims": [8, 8, 8], "axes_lens": [128, 64, 64]})  # fmt: skip

COUNTED: list[tuple[str, dict[str, Any]]] = [
    ("Wan", WAN),
    ("Wan, an image to begin with", {**WAN, "image_dim": 48, "added_kv_proj_dim": 64}),
    ("Wan, no norm before the text", {**WAN, "cross_attn_norm": False, "in_channels": 36}),
    ("Wan 2.1's 14 billion, as it comes", {"_class_name": "WanTransformer3DModel"}),
    ("LTX", LTX),
    ("LTX, without biases", {**LTX, "attention_bias": False, "attention_out_bias": False}),
    ("Sana", SANA),
    ("Sana, guided, in patches", {**SANA, "guidance_embeds": True, "patch_size": 2,
                                  "attention_bias": True}),
    ("Sana Sprint", {**SANA, "guidance_embeds": True, "qk_norm": "rms_norm_across_heads"}),
    ("PixArt under its first name", {
        "_class_name": "Transformer2DModel", "norm_type": "ada_norm_single", "in_channels": 4,
        "patch_size": 2, "sample_size": 64, "out_channels": 8, "caption_channels": 40,
        "cross_attention_dim": 64, "attention_bias": True, **TWO,
        "norm_elementwise_affine": False, "activation_fn": "gelu-approximate"}),
    ("HunyuanDiT", HUNYUAN_DIT),
    ("HunyuanDiT 1.2", {**HUNYUAN_DIT, "use_style_cond_and_image_meta_size": False,
                        "learn_sigma": False, "num_layers": 5}),
    ("Chroma", CHROMA),
    ("Qwen-Image's 20 billion, as it comes", {"_class_name": "QwenImageTransformer2DModel"}),
    ("Qwen-Image", QWEN),
    ("Qwen-Image, a time of its own", {**QWEN, "use_additional_t_cond": True}),
    ("HunyuanVideo", HUNYUAN_VIDEO),
    ("HunyuanVideo, an image to begin with", {
        **HUNYUAN_VIDEO, "image_condition_type": "token_replace", "guidance_embeds": False}),
    ("Flux 2's 32 billion, as it comes", {"_class_name": "Flux2Transformer2DModel"}),
    ("Flux 2", FLUX_2),
    ("Flux 2, not guided", {**FLUX_2, "guidance_embeds": False, "patch_size": 2}),
    ("AuraFlow", AURA),
    ("CogVideoX", COGVIDEOX),
    ("CogVideoX 1.5", COGVIDEOX_15),
    ("CogView 4", COGVIEW_4),
    ("Lumina 2", LUMINA),
    ("Lumina 2, a wider feed-forward", {**LUMINA, "ffn_dim_multiplier": 1.3}),
    ("Z-Image", Z_IMAGE),
    ("Z-Image, two sizes of patch", {
        **Z_IMAGE, "all_patch_size": [2, 4], "all_f_patch_size": [1, 1], "qk_norm": False}),
]  # fmt: skip

POINTS = {"block_out_channels": [32, 64], "sample_size": 16, "attention_head_dim": 16}
DDPM = _of("UNet2DModel", {
    **POINTS, "down_block_types": ["DownBlock2D", "AttnDownBlock2D"],
    "up_block_types": ["AttnUpBlock2D", "UpBlock2D"]})  # fmt: skip
THREE = {
    "block_out_channels": [32, 64, 96], "sample_size": 16, "cross_attention_dim": 40,
    "attention_head_dim": 4, "down_block_types": ["DownBlock2D", *["CrossAttnDownBlock2D"] * 2],
}  # fmt: skip
BACK = {"up_block_types": [*["CrossAttnUpBlock2D"] * 2, "UpBlock2D"]}
# Stable Diffusion's x4 upscaler: low stages attend to the text twice, classes of noise
UPSCALER = _of("UNet2DConditionModel", {
    **THREE, **BACK, "in_channels": 7, "num_class_embeds": 10,
    "only_cross_attention": [True, True, False]})  # fmt: skip
# SSD-1B: an SDXL of which blocks were left out, more on the way up than down
DISTILLED = _of("UNet2DConditionModel", {
    **THREE, **BACK, "transformer_layers_per_block": [1, [2, 2], [3, 3]],
    "reverse_transformer_layers_per_block": [[3, 3, 5], [2, 1, 1], 1],
    "addition_embed_type": "text_time", "addition_time_embed_dim": 8,
    "projection_class_embeddings_input_dim": 72})  # fmt: skip
CONTROL = _of("ControlNetModel", {
    **THREE, "conditioning_embedding_out_channels": [8, 16, 24]})  # fmt: skip
VAE = _of("AutoencoderKL", {
    "down_block_types": ["DownEncoderBlock2D"] * 3, "up_block_types": ["UpDecoderBlock2D"] * 3,
    "block_out_channels": [32, 64, 96], "layers_per_block": 2, "sample_size": 32})  # fmt: skip
COUNTED += [
    ("autoencoder", VAE),
    ("autoencoder as it comes", {"_class_name": "AutoencoderKL"}),
    ("autoencoder of Flux", {
        **VAE, "latent_channels": 16, "use_quant_conv": False, "use_post_quant_conv": False}),
    ("autoencoder, no attention", {**VAE, "mid_block_add_attention": False}),
    ("DDPM", DDPM),
    ("DDPM as it comes", {"_class_name": "UNet2DModel"}),
    ("DDPM, one head, classes", {**DDPM, "attention_head_dim": None, "num_class_embeds": 10}),
    ("DDPM, resized by residual blocks", {
        **DDPM, "downsample_type": "resnet", "upsample_type": "resnet",
        "down_block_types": ["AttnDownBlock2D"] * 2, "up_block_types": ["AttnUpBlock2D"] * 2,
        "resnet_time_scale_shift": "scale_shift", "class_embed_type": "timestep"}),
    ("DDPM, no attention in the middle", {**DDPM, "add_attention": False}),
    ("upscaler", UPSCALER),
    ("distilled", DISTILLED),
    ("consistency: guided, without a middle", {
        **UPSCALER, "time_cond_proj_dim": 24, "mid_block_type": None, "conv_in_kernel": 1}),
    ("a class by a map, a text by a map", {
        **UPSCALER, "class_embed_type": "projection", "only_cross_attention": False,
        "projection_class_embeddings_input_dim": 12, "encoder_hid_dim": 24,
        "mid_block_type": "UNetMidBlock2D", "time_embedding_dim": 80}),
    ("ControlNet", CONTROL),
    ("ControlNet as it comes", {"_class_name": "ControlNetModel"}),
]  # fmt: skip

Inputs = Callable[[], dict[str, Any]]


def cases() -> list[tuple[str, dict[str, Any], Inputs, dict[str, int]]]:
    """Those that are run: inputs are made where they are asked for, on the device of the test."""
    import torch

    def text(**more: Any) -> dict[str, Any]:
        return {"encoder_hidden_states": torch.randn(1, TEXT, 40),
                "timestep": torch.zeros(1, dtype=torch.long), **more}  # fmt: skip

    mask = {"encoder_attention_mask": torch.ones(1, TEXT)}
    ids = {"img_ids": torch.zeros(64, 3), "txt_ids": torch.zeros(TEXT, 3)}
    sizes = {key: torch.zeros(1, 2) for key in ("original_size", "target_size", "crop_coords")}
    known = {"text": TEXT}
    clip = {**known, "tokens": 2 * 4 * 6}
    film = torch.randn(1, 16, 2, 8, 12)
    hunyuan = {
        "hidden_states": torch.randn(1, 4, 24, 24), "timestep": torch.zeros(1),
        "encoder_hidden_states": torch.randn(1, 8, 40), "text_embedding_mask": torch.ones(1, 8),
        "encoder_hidden_states_t5": torch.randn(1, 12, 48),
        "text_embedding_mask_t5": torch.ones(1, 12), "image_meta_size": torch.zeros(1, 6),
        "style": torch.zeros(1, dtype=torch.long)}  # fmt: skip
    four = {"img_ids": torch.zeros(64, 4), "txt_ids": torch.zeros(TEXT, 4)}
    pooled = {"pooled_projections": torch.randn(1, 24), "guidance": torch.zeros(1)}
    turned = {"image_rotary_emb": (torch.zeros(2 * 4 * 6, 16), torch.zeros(2 * 4 * 6, 16))}
    return [
        ("Wan", WAN, lambda: text(hidden_states=film), clip),
        ("LTX", LTX, lambda: text(
            hidden_states=torch.randn(1, 48, 24), num_frames=2, height=4, width=6,
            rope_interpolation_scale=(1, 1, 1), **mask), clip),
        ("Sana", SANA, lambda: text(hidden_states=torch.randn(1, 32, 12, 12)), known),
        ("HunyuanDiT", HUNYUAN_DIT, lambda: hunyuan, {}),
        ("Chroma", CHROMA, lambda: text(
            hidden_states=torch.randn(1, 64, 64), **ids), {**known, "tokens": 64}),
        ("Qwen-Image", QWEN, lambda: text(
            hidden_states=torch.randn(1, 64, 64), img_shapes=[[(1, 8, 8)]],
            encoder_hidden_states_mask=torch.ones(1, TEXT)), {**known, "tokens": 64}),
        ("HunyuanVideo", HUNYUAN_VIDEO, lambda: text(
            hidden_states=film, **mask, **pooled), clip),
        ("Flux 2", FLUX_2, lambda: text(
            hidden_states=torch.randn(1, 64, 24), guidance=torch.zeros(1), **four),
            {**known, "tokens": 64}),
        ("AuraFlow", AURA, lambda: text(hidden_states=torch.randn(1, 4, 64, 64)),
         {"text": TEXT + 8}),  # its own 8 tokens join the text's
        ("CogVideoX", COGVIDEOX, lambda: text(
            hidden_states=torch.randn(1, 3, 16, 8, 12)), known),
        ("CogVideoX 1.5", COGVIDEOX_15, lambda: text(
            hidden_states=torch.randn(1, 4, 16, 8, 12), ofs=torch.zeros(1), **turned), known),
        ("CogView 4", COGVIEW_4, lambda: text(
            hidden_states=torch.randn(1, 16, 24, 24), **sizes), known),
        ("Lumina 2", LUMINA, lambda: text(
            hidden_states=torch.randn(1, 16, 24, 24),
            encoder_attention_mask=torch.ones(1, TEXT, dtype=torch.bool)), known),
        # 64 patches and a text of 32, both multiples of the 32 that they are padded to
        ("Z-Image", Z_IMAGE, lambda: {
            "x": [torch.randn(16, 1, 16, 16)], "t": torch.zeros(1),
            "cap_feats": [torch.randn(TEXT, 40)]},
         {**known, "tokens": 64, "noise_refiner": 64}),
        ("autoencoder", VAE, lambda: {"sample": torch.randn(1, 3, 32, 32)}, {}),
        ("DDPM", DDPM, lambda: {"sample": torch.randn(1, 3, 16, 16), "timestep": 1}, {}),
        ("upscaler", UPSCALER, lambda: text(
            sample=torch.randn(1, 7, 16, 16), class_labels=torch.zeros(1, dtype=torch.long)),
         known),
        ("distilled", DISTILLED, lambda: text(
            sample=torch.randn(1, 4, 16, 16), added_cond_kwargs={
                "text_embeds": torch.randn(1, 24), "time_ids": torch.zeros(1, 6)}), known),
        ("ControlNet", CONTROL, lambda: text(
            sample=torch.randn(1, 4, 16, 16), controlnet_cond=torch.randn(1, 3, 64, 64)), known),
    ]  # fmt: skip
