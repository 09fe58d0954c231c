"""An item's FLOPs, forward and backward, equal what PyTorch's counter counts on the reference.

Encoders, encoder-decoders, vision towers, diffusion networks and convolutions. The counter sees
attention over all pairs of positions, so causality and windows are taken off before the comparison.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from chipshift.errors import InputError
from chipshift.models.hf import read_config
from chipshift.models.items import backward_flops, item_flops, item_work
from chipshift.models.model import Attention, Model, Tower

from .reference import built_config
from .reference_configs import (
    CLIP_EYE,
    DIFFUSION,
    KIMI,
    KIMI_EYE,
    LLAMA_TEXT,
    MULTIMODAL,
    OTHERS,
    PHI4,
    PHI4_EAR,
    TEXT,
    VISION,
    VLM,
)

reference = [
    pytest.mark.reference,
    # raised by the reference's own imports and builders, not by anything here
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
TOKENS = 32
WITHIN = 5e-3


def seeing_all(model: Model) -> Model:
    """Attention over all pairs of positions, as the reference computes it."""

    def whole(a: Attention | None) -> Attention | None:
        return None if a is None else replace(a, causal=False, window=None)

    def opened(stack: Any) -> Any:
        layers = tuple((replace(ly, attention=whole(ly.attention)), n) for ly, n in stack.layers)
        return replace(stack, layers=layers)

    towers: tuple[Tower, ...] = tuple(opened(tower) for tower in model.towers)
    made: Model = replace(opened(model), towers=towers)
    return made


def counted(module: Any, inputs: Mapping[str, Any]) -> tuple[int, int]:
    """(forward, backward) FLOPs; every parameter wants a gradient, the inputs none."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    module.eval()
    with FlopCounterMode(display=False) as forward:
        made = module(**inputs)
    outputs = list(made.values()) if hasattr(made, "values") else [made]
    outputs += [one for listed in outputs if isinstance(listed, list) for one in listed]
    wanted = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    with FlopCounterMode(display=False) as backward:
        sum(o.float().sum() for o in wanted).backward()  # type: ignore[union-attr]
    return forward.get_total_flops(), backward.get_total_flops()


def depthwise_as_dense(model: Model, lengths: Mapping[str, int]) -> float:
    """What the counter adds to a backward pass: it takes the gradient of the weights of a
    convolution in g groups for that of a dense one, g times as many FLOPs.
    """
    return sum(w.flops * (w.groups - 1) for w in item_work(model, lengths) if w.groups > 1)


def inputs_of(config: dict[str, Any], built: Any) -> tuple[dict[str, Any], dict[str, int]]:
    """Inputs of one item, and the positions that its config does not fix."""
    import torch

    kind = config["model_type"]
    ids = torch.randint(5, 90, (1, TOKENS))
    pictured = built.vision_config if kind in ("clip", "siglip") else built
    side = getattr(pictured, "image_size", 224)
    high, wide = side if isinstance(side, (list, tuple)) else (side, side)
    image = torch.randn(1, 3, high, wide)
    if kind in ("clip", "siglip"):
        length = min(TOKENS, built.text_config.max_position_embeddings)
        return {"input_ids": ids[:, :length], "pixel_values": image}, {"tokens": length}
    if kind in ("t5", "mt5", "umt5", "bart"):
        both = {"input_ids": ids, "decoder_input_ids": ids, "use_cache": False}
        return both, {"tokens": TOKENS, "encoder": TOKENS}
    if kind == "whisper":
        mel = torch.randn(1, built.num_mel_bins, 2 * built.max_source_positions)
        heard = {"input_features": mel, "decoder_input_ids": ids, "use_cache": False}
        return heard, {"tokens": TOKENS}
    if "num_channels" in built.to_dict():
        return {"pixel_values": image}, {}
    return {"input_ids": ids}, {"tokens": TOKENS}


# The test's SigLIP pair has towers of different widths, which the reference builds and cannot run.
RUN = [(name, c, auto) for name, c, auto in OTHERS if name not in ("siglip", "clip, as it comes")]
EQUAL = {"model_type": "siglip", "vision_config": VISION,
         "text_config": {**TEXT, "hidden_size": VISION["hidden_size"]}}  # fmt: skip
RUN.append(("siglip, towers of one width", EQUAL, "AutoModel"))


class TestAgainstTheCounter:
    pytestmark = reference

    @pytest.mark.parametrize(
        ("config", "auto"), [(c, auto) for _, c, auto in RUN], ids=[name for name, _, _ in RUN]
    )
    def test_encoders_pairs_vision_and_convolutions(
        self, config: dict[str, Any], auto: str
    ) -> None:
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        torch.manual_seed(0)
        built = built_config(config)
        built._attn_implementation = "eager"  # so that attention is matmuls, and counted as such
        inputs, lengths = inputs_of(config, built)
        module = getattr(transformers, auto).from_config(built)
        forward, backward = counted(module, inputs)
        model = seeing_all(read_config(config))
        assert item_flops(model, lengths) == pytest.approx(forward, rel=WITHIN)
        ours = backward_flops(model, lengths) + depthwise_as_dense(model, lengths)
        assert ours == pytest.approx(backward, rel=WITHIN)

    @pytest.mark.parametrize("config", [c for _, c in DIFFUSION], ids=[n for n, _ in DIFFUSION])
    def test_diffusion_transformers_and_unets(self, config: dict[str, Any]) -> None:
        import diffusers
        import torch

        kind = config["_class_name"]
        config = {"sample_size": 64, **config} if "UNet" in kind else config
        with torch.device("meta"):
            module = getattr(diffusers, kind).from_config(config)
            inputs, lengths = _diffused(kind, module.config, config)
            forward, backward = counted(module, inputs)
        model = read_config(config)
        assert item_flops(model, lengths) == pytest.approx(forward, rel=WITHIN)
        assert backward_flops(model, lengths) == pytest.approx(backward, rel=WITHIN)

    @pytest.mark.parametrize("name", ["paligemma", "mistral3", "idefics3", "qwen2_vl",
                                      "qwen2_5_vl", "qwen3_vl", "qwen3_5"])  # fmt: skip
    def test_vision_towers_with_their_projectors(self, name: str) -> None:
        config = next(c for case, c, _ in MULTIMODAL if case == name)
        _tower(config, VLM)

    def test_llava_over_clips_large_tower(self) -> None:
        # LLaVA 1.5's: 576 patches and a class token, which the projector does not see
        large = {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
                 "num_hidden_layers": 2, "image_size": 336, "patch_size": 14}  # fmt: skip
        eye = {**CLIP_EYE, **large}
        _tower({"model_type": "llava", "text_config": LLAMA_TEXT, "vision_config": eye}, VLM)

    def test_kimis_tower_and_projector(self) -> None:
        import torch
        import transformers
        from torch.utils.flop_counter import FlopCounterMode

        config = {**KIMI, "vision_config": {**KIMI_EYE, "pos_emb_width": 9}}
        built = built_config(config)
        built.vision_config._attn_implementation = "eager"
        module = transformers.AutoModelForImageTextToText.from_config(built).model.eval()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            module.get_image_features(torch.randn(64, 3, 14, 14), torch.tensor([[1, 8, 8]]))
        work = item_work(read_config(config), {"tokens": 1, "vision": 64})
        assert sum(w.flops for w in work if w.part == "vision") == counter.get_total_flops()

    def test_phi_4s_conformer_but_for_what_its_convolution_pads(self) -> None:
        import torch
        from torch.utils.flop_counter import FlopCounterMode
        from transformers.models.phi4_multimodal import modeling_phi4_multimodal as phi4

        config = {**PHI4, "audio_config": {**PHI4_EAR, "chunk_size": 4}}
        built = built_config(config).audio_config
        built._attn_implementation = "eager"
        module = phi4.Phi4MultimodalAudioModel(built).eval()
        heard = torch.randn(1, 64, PHI4_EAR["input_size"])  # 64 frames: 8 tokens after 3 halvings
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            module(heard, torch.ones(1, 64, dtype=torch.bool))
        work = item_work(read_config(config), {"tokens": 1, "audio": 8})
        ours = sum(w.flops for w in work if w.part == "audio")
        # the four maps to the language model are outside: 96 (2 × 48) and 96 wide, 8 rows each
        ours -= 4 * 2 * 8 * 96 * 96
        # 2 positions are padded and cut off again, in 2 blocks: 3 taps of 48, and 48 × 48
        padded = 2 * 2 * 2 * (3 * 48 + 48 * 48)
        assert ours + padded == counter.get_total_flops()


def _tower(config: dict[str, Any], auto: str) -> None:
    """One image through the tower and the projector alone."""
    import torch
    import transformers
    from torch.utils.flop_counter import FlopCounterMode

    built = built_config(config)
    built._attn_implementation = "eager"
    eye, kind = built.vision_config, config["model_type"]
    eye._attn_implementation = "eager"
    module = getattr(transformers, auto).from_config(built).model
    lengths = {"tokens": 1}
    if kind.startswith("qwen"):  # 8 × 8 patches, each with its frames and colours
        pixels = 3 * eye.temporal_patch_size * eye.patch_size**2
        given: tuple[Any, ...] = (torch.randn(64, pixels), torch.tensor([[1, 8, 8]]))
        lengths["vision"] = 64
    else:
        given = (torch.randn(1, 3, eye.image_size, eye.image_size),)
        if kind == "idefics3":
            given = (given[0][None],)
        if kind == "mistral3":
            given += (None, torch.tensor([[eye.image_size, eye.image_size]]))
            lengths["vision"] = (eye.image_size // eye.patch_size) ** 2
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        if kind == "mistral3":
            module.get_image_features(given[0], image_sizes=given[2])
        else:
            module.get_image_features(*given)
    work = item_work(seeing_all(read_config(config)), lengths)
    ours = sum(one.flops for one in work if one.part == "vision")
    assert ours == pytest.approx(counter.get_total_flops(), rel=WITHIN)


def _diffused(
    kind: str, built: Any, config: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, int]]:
    import torch

    text = {"text": TOKENS}
    if kind.startswith("Flux"):
        inputs = {
            "hidden_states": torch.randn(1, 64, built.in_channels),
            "encoder_hidden_states": torch.randn(1, TOKENS, built.joint_attention_dim),
            "pooled_projections": torch.randn(1, built.pooled_projection_dim),
            "timestep": torch.zeros(1),
            "img_ids": torch.zeros(64, 3),
            "txt_ids": torch.zeros(TOKENS, 3),
        }
        guided = {"guidance": torch.zeros(1)} if built.guidance_embeds else {}
        return inputs | guided, {**text, "tokens": 64}
    side = config.get("sample_size", getattr(built, "sample_size", None))
    latents = torch.randn(1, built.in_channels, side, side)
    if kind.startswith("DiT"):
        one = torch.zeros(1, dtype=torch.long)
        return {"hidden_states": latents, "timestep": one, "class_labels": one}, {}
    if kind.startswith("PixArt"):
        width = built.caption_channels or built.cross_attention_dim
        sizes = {"resolution": torch.zeros(1, 2), "aspect_ratio": torch.zeros(1, 1)}
        return {
            "hidden_states": latents,
            "encoder_hidden_states": torch.randn(1, TOKENS, width),
            "timestep": torch.zeros(1, dtype=torch.long),
            "added_cond_kwargs": sizes,
        }, text
    if kind.startswith("SD3"):
        return {
            "hidden_states": latents,
            "encoder_hidden_states": torch.randn(1, TOKENS, built.joint_attention_dim),
            "pooled_projections": torch.randn(1, built.pooled_projection_dim),
            "timestep": torch.zeros(1),
        }, text
    width = built.cross_attention_dim
    width = width[0] if isinstance(width, (list, tuple)) else width
    inputs = {
        "sample": latents,
        "timestep": torch.zeros(1),
        "encoder_hidden_states": torch.randn(1, TOKENS, width),
    }
    if built.addition_embed_type:
        added = {"text_embeds": torch.randn(1, 1280), "time_ids": torch.zeros(1, 6)}
        inputs["added_cond_kwargs"] = added
    return inputs, text


def test_resnet_50_is_its_published_4_gigaflops() -> None:
    # He et al. 2015, table 1: 3.8e9 multiply-adds for 50 layers; with the stride in the 3 × 3
    # convolution, as here, 4.09e9 (torchvision's page on ResNet-50)
    model = read_config({"model_type": "resnet", "num_labels": 1000})
    assert item_flops(model) / 2 == pytest.approx(4.09e9, rel=2e-3)


def test_a_layer_of_vit_by_hand() -> None:
    # 4 patches of 8 × 8 and a class token, width 16, 2 heads, inner width 32, one layer, 3 classes
    config = {"model_type": "vit", "hidden_size": 16, "num_hidden_layers": 1, "image_size": 16,
              "num_attention_heads": 2, "intermediate_size": 32, "patch_size": 8,
              "num_labels": 3}  # fmt: skip
    stem = 2 * 4 * (3 * 64) * 16
    layer = 2 * 5 * (4 * 16 * 16 + 2 * 16 * 32) + 2 * 5 * 5 * 2 * 16
    head = 2 * 16 * 3
    assert item_flops(read_config(config)) == stem + layer + head
    # no gradient of the pixels is wanted
    assert backward_flops(read_config(config)) == stem + 2 * (layer + head)


def test_positions_that_nothing_fixes_are_asked_for() -> None:
    model = read_config({"model_type": "t5", "vocab_size": 100})
    with pytest.raises(InputError, match=r"how many positions its encoder has .* encoder=256"):
        item_flops(model, {"tokens": 8})
