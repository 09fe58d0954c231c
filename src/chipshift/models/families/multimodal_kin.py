"""Further language models with a tower: InternVL, LLaVA-OneVision, NVILA, GLM-4V, Aya and Command-A
Vision, LFM2-VL; those that hear: Qwen2-Audio, Voxtral, Qwen3-ASR, Qwen2.5-Omni.

Shapes and defaults as transformers 5.24 builds them; InternVL's and NVILA's own files as the
``modeling_*.py`` beside their checkpoints does (2024), whose published sizes are tests.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.blocks import attention, feed_forward, heads_of, linear
from chipshift.models.families.decoder import n_layers, runs
from chipshift.models.families.ears import qwen3_ear, whisper_ear
from chipshift.models.families.joining import TEXTS, joined, text_of, tower_of
from chipshift.models.families.multimodal import llava, qwen2_5_tower
from chipshift.models.families.omni import TALKS
from chipshift.models.families.vision import patches, siglip_tower, stem
from chipshift.models.fields import Default, Fields
from chipshift.models.model import Layer, Model, Projection, Tower


def _shuffled(
    name: str, width: int, inner: int, outputs: int, every: int
) -> tuple[Projection, ...]:
    """Two maps over squares of patches laid side by side."""
    return (
        linear(f"{name}.linear_1", width * every, inner, every=every),
        linear(f"{name}.linear_2", inner, outputs, every=every),
    )


def internvl(c: Fields) -> Model:
    """InternVL 2 to 3.5 as transformers has them: InternViT, squares of patches, two maps."""
    text, tower = text_of(c, "qwen2"), _intern_vit(c.part("vision_config"), own=False)
    every = round(1 / c.number("downsample_ratio", default=0.5)) ** 2
    maps = _shuffled("projector", tower.d_model, text.d_model, text.d_model, every)
    return joined(c, text, tower, maps, tied=True, loose=2 * tower.d_model * every)


def internvl_chat(c: Fields) -> Model:
    """InternVL as its own files have it: the language model under ``llm_config``."""
    part = c.part("llm_config")
    kinds = {"InternLM2ForCausalLM": "internlm2", "LlamaForCausalLM": "llama"}
    classes = part.values.get("architectures")
    named = kinds.get(str(classes[0])) if isinstance(classes, list) and classes else None
    kind = part.text("model_type", default=named or "internlm2", choices=tuple(TEXTS))
    text = TEXTS[kind](part)
    tower = _intern_vit(c.part("vision_config"), own=True)
    every = round(1 / c.number("downsample_ratio", default=0.5)) ** 2
    maps = _shuffled("mlp1", tower.d_model, text.d_model, text.d_model, every)
    loose = 2 * tower.d_model * every
    return joined(c, text, tower, maps, tied=text.tied, loose=loose)


def _intern_vit(v: Fields, own: bool) -> Tower:
    """InternViT: scaled residuals, a class token, learned positions.

    Args:
        own: by its own file, whose defaults are the 6B tower's.
    """
    usual = (3200, 12_800, 48, 25) if own else (1024, 4096, 24, 16)
    v = v.having(
        hidden_size=usual[0],
        intermediate_size=usual[1],
        num_hidden_layers=usual[2],
        num_attention_heads=usual[3],
    )
    width, rms = v.count("hidden_size"), v.text("norm_type", default="layer_norm") == "rms_norm"
    bias = v.flag("qkv_bias" if own else "attention_bias", default=False)
    mixer = attention(width, heads_of(v, width), bias="qkvo" if bias else "o")
    flat = "qk_normalization" if own else "use_qk_norm"
    normed = v.flag(flat, default=own)
    mixer = replace(mixer, norm_params=2 * width * normed)
    norms = (1 if rms else 2) * 2 * width
    block = Layer(mixer, feed_forward(width, v.count("intermediate_size")), norms)
    kinds, order = runs([replace(block, other_params=2 * width)] * n_layers(v))
    count, pixels = patches(v, 448 if not own else 224, 14)
    final = 0 if own or v.flag("use_mean_pooling", default=True) else norms // 2
    mask = width * v.flag("use_mask_token", default=False) * (not own)
    placed = own or v.flag("use_absolute_position_embeddings", default=True)
    return Tower(
        "vision",
        width,
        kinds,
        order,
        tokens=count + 1,
        convs=(stem(v, width, count, pixels),),
        other_params=width + (count + 1) * width * placed + final + mask,
    )


def llava_onevision(c: Fields) -> Model:
    """LLaVA-OneVision: SigLIP, two maps, a learned end of a row of patches."""
    text, tower = text_of(c, "qwen2"), tower_of(c, "siglip_vision_model")
    bias = c.flag("multimodal_projector_bias", default=True)
    maps = (
        linear("projector.linear_1", tower.d_model, text.d_model, bias),
        linear("projector.linear_2", text.d_model, text.d_model, bias),
    )
    return joined(c, text, tower, maps, tied=False, loose=text.d_model)


def llava_or_vila(c: Fields) -> Model:
    """Configs of the classes that LLaVA's and VILA's own code share the names of."""
    return vila(c) if c.has("llm_cfg") else llava(c)


def vila(c: Fields) -> Model:
    """VILA 1.5: a section for each part, squares of patches through a norm and two maps.

    Raises:
        InputError: a projector that is not read here.
    """
    part, eye = c.part("llm_cfg"), c.part("vision_tower_cfg")
    kind = part.text("model_type", default="llama", choices=tuple(TEXTS))
    text = TEXTS[kind](part)
    # the checkpoint keeps SigLIP's pooling head, which nothing reads
    tower = siglip_tower(eye)
    known = ("mlp_downsample", "mlp2x_gelu", "linear")
    projector = c.part("mm_projector_cfg").text("mm_projector_type", choices=known)
    if projector == "mlp_downsample":
        maps = _shuffled("projector", tower.d_model, text.d_model, text.d_model, 4)
        return joined(c, text, tower, maps, tied=text.tied, loose=2 * tower.d_model * 4)
    maps = (linear("projector.linear_1", tower.d_model, text.d_model),)
    if projector == "mlp2x_gelu":
        maps += (linear("projector.linear_2", text.d_model, text.d_model),)
    return joined(c, text, tower, maps, tied=text.tied)


def aya_vision(c: Fields) -> Model:
    """Aya Vision: SigLIP, squares of patches through a norm and a gate between two maps."""
    text, tower = text_of(c, "cohere2"), tower_of(c, "siglip_vision_model")
    square = c.count("downsample_factor", default=2, most=100) ** 2
    wide = tower.d_model * square
    inner = c.count("alignment_intermediate_size", default=text.d_model)
    maps = (
        linear("projector.linear_1", wide, inner, every=square),
        linear("projector.linear_2", inner // 2, text.d_model, every=square),
    )
    return joined(c, text, tower, maps, tied=True, loose=2 * wide)


def cohere2_vision(c: Fields) -> Model:
    """Command-A Vision: the same without the norm."""
    text, tower = text_of(c, "cohere2"), tower_of(c, "siglip_vision_model")
    square = c.count("downsample_factor", default=2, most=100) ** 2
    inner = c.count("alignment_intermediate_size", default=36_864)
    maps = (
        linear("projector.linear_1", tower.d_model * square, inner, every=square),
        linear("projector.linear_2", inner // 2, text.d_model, every=square),
    )
    return joined(c, text, tower, maps, tied=True)


def siglip2_tower(v: Fields) -> Tower:
    """SigLIP 2's tower for images of any size: patches come flat, positions are stretched."""
    rows = v.count("num_patches", default=256)
    tower = siglip_tower(v.replaced(image_size=v.count("patch_size", default=16, most=10_000)))
    width = tower.d_model
    return replace(tower, tokens=None, embedding_params=rows * width)


def lfm2_vl(c: Fields) -> Model:
    """LFM2-VL: SigLIP 2, squares of patches through a norm and two maps."""
    text, tower = text_of(c, "lfm2"), siglip2_tower(c.part("vision_config"))
    square = c.count("downsample_factor", default=2, most=100) ** 2
    inner, bias = c.count("projector_hidden_size", default=2560), True
    bias = c.flag("projector_bias", default=bias)
    maps = (
        linear("projector.linear_1", tower.d_model * square, inner, bias, every=square),
        linear("projector.linear_2", inner, text.d_model, bias, every=square),
    )
    normed = c.flag("projector_use_layernorm", default=True)
    return joined(c, text, tower, maps, tied=True, loose=2 * tower.d_model * square * normed)


def qwen2_audio(c: Fields) -> Model:
    """Qwen2-Audio: Whisper's encoder, every two frames pooled, one map."""
    text = text_of(c, "qwen2")
    ear = whisper_ear(c.part("audio_config").having(num_mel_bins=128), "audio")
    maps = (linear("projector", ear.d_model, text.d_model, every=2),)
    return joined(c, text, ear, maps, tied=False)


VOXTRAL_TEXT = {
    "vocab_size": 131_072,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 30,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
"""What a Voxtral config leaves to the class of its language model, where that is a Llama."""


def voxtral(c: Fields) -> Model:
    """Voxtral: Whisper's encoder, every four frames laid side by side, two maps without biases."""
    part = c.part("text_config")
    usual = VOXTRAL_TEXT if part.text("model_type", default="llama") == "llama" else {}
    text = text_of(c.replaced(text_config=part.having(**usual).values), "llama")
    a = c.part("audio_config")
    ear = whisper_ear(_by_usual_names(a.having(num_mel_bins=128)), "audio")
    inputs = a.count("intermediate_size", default=5120)
    maps = (
        linear("projector.linear_1", inputs, text.d_model, False, every=4),
        linear("projector.linear_2", text.d_model, text.d_model, False, every=4),
    )
    return joined(c, text, ear, maps, tied=False)


def _by_usual_names(a: Fields) -> Fields:
    """The keys of Whisper's encoder out of those that other towers have."""
    names = {
        "d_model": "hidden_size",
        "encoder_layers": "num_hidden_layers",
        "encoder_attention_heads": "num_attention_heads",
        "encoder_ffn_dim": "intermediate_size",
    }
    told = {own: a.values[usual] for own, usual in names.items() if a.has(usual)}
    return a.replaced(**{own: value for own, value in told.items() if not a.has(own)})


def qwen3_asr(c: Fields) -> Model:
    """Qwen3-ASR: Qwen3-Omni's ear, two maps, Qwen3; its own files put all under a thinker."""
    c = c.part("thinker_config") if c.has("thinker_config") else c
    text, a = text_of(c, "qwen3"), c.part("audio_config")
    a = _by_usual_names(a).having(d_model=1024, encoder_attention_heads=16)
    a = a.having(encoder_ffn_dim=4096, encoder_layers=24)
    ear = qwen3_ear(a, projected=True)
    return joined(c, text, ear, (), tied=True)


def qwen2_5_omni(c: Fields) -> Model:
    """The thinker under ``thinker_config``, or a thinker's own config, without the talker."""
    thinker = c.part("thinker_config") if c.has("thinker_config") else c
    text = text_of(thinker, "qwen2_5_omni_text")
    eye = qwen2_5_tower(thinker.part("vision_config"))
    a = thinker.part("audio_config")
    ear = whisper_ear(a, "audio", table=False)
    outputs = a.count("output_dim", default=3584)
    ear = replace(
        ear,
        projections=(linear("proj", ear.d_model, outputs, every=2),),
        embedding_params=2 * outputs,  # a clip's beginning and its end
    )
    for part in ("talker_config", "token2wav_config"):
        if c.has(part):
            c.defaults.append(Default(part, TALKS))
    return replace(
        text,
        architecture=c.text("model_type", default="qwen2_5_omni"),
        tied=thinker.flag("tie_word_embeddings", default=False),
        towers=(eye, ear),
    )
