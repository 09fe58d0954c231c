"""A vision tower before a language model: LLaVA, PaliGemma, Gemma 3, Llama 4, Mistral 3, SmolVLM,
Qwen-VL, Kimi. The language model is the model; the tower carries the projector.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod

from chipshift.errors import nearest
from chipshift.models.families import gemma, moe, vision
from chipshift.models.families.blocks import attention, classic, feed_forward, heads_of, linear
from chipshift.models.families.decoder import MOST_LAYERS, n_layers, runs
from chipshift.models.families.joining import TEXTS, alone, joined, text_of, tower_of
from chipshift.models.fields import Fields
from chipshift.models.model import Conv, Layer, Model, Projection, Tower

CLIP_LARGE = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "patch_size": 14,
    "num_channels": 3,
}
NAMED_TOWERS: dict[str, dict[str, int]] = {
    "clip-vit-large-patch14": {**CLIP_LARGE, "image_size": 224},
    "clip-vit-large-patch14-336": {**CLIP_LARGE, "image_size": 336},
}
"""Vision towers that LLaVA's own configs name: their shapes by OpenAI's configs."""


def llava(c: Fields) -> Model:
    """LLaVA 1.5: two linear maps between tower and language model; LLaVA's own configs too."""
    return _llava_own(c) if c.has("mm_vision_tower") else _llava(c, loose=False)


def _llava_own(c: Fields) -> Model:
    """LLaVA's own config: a language model's keys at the top, the tower by its name.

    Raises:
        InputError: a tower or a projector that is not known here.
    """
    named = c.text("mm_vision_tower")
    tower_name = named.rsplit("/", 1)[-1].lower()
    if tower_name not in NAMED_TOWERS:
        known = tuple(NAMED_TOWERS)
        expected = f"one of {', '.join(known)}{nearest(tower_name, known)}, or --model"
        raise c.wrong("mm_vision_tower", f"{expected} with the language model alone")
    tower = vision.clip_tower(
        replace(c, values=NAMED_TOWERS[tower_name], section="mm_vision_tower")
    )
    kind = c.text("mm_projector_type", default="linear")
    deep = re.fullmatch(r"mlp(\d)x_gelu", kind)
    if kind != "linear" and deep is None:
        raise c.wrong("mm_projector_type", "linear or mlp2x_gelu")
    spelt = f"{c.values.get('model_type')} {c.values.get('architectures')}".lower()
    base = next((one for one in ("mistral", "qwen2", "qwen") if one in spelt), "llama")
    text = TEXTS["qwen2" if base == "qwen" else base](c)
    inputs = [tower.d_model, *[text.d_model] * (int(deep.group(1)) - 1 if deep else 0)]
    maps = tuple(linear(f"projector.{i}", width, text.d_model) for i, width in enumerate(inputs))
    loose = text.d_model * ("unpad" in c.text("mm_patch_merge_type", default="flat"))
    return joined(c, text, tower, maps, tied=False, loose=loose)


def llava_next(c: Fields) -> Model:
    """LLaVA-NeXT: LLaVA and a learned embedding for the end of a row of patches."""
    return _llava(c, loose=True)


def _llava(c: Fields, loose: bool) -> Model:
    text, tower = text_of(c, "llama"), tower_of(c, "clip_vision_model")
    bias = c.flag("multimodal_projector_bias", default=True)
    layers = c.values.get("vision_feature_layer")
    inputs = tower.d_model * (len(layers) if isinstance(layers, (list, tuple)) else 1)
    maps = (
        linear("projector.linear_1", inputs, text.d_model, bias),
        linear("projector.linear_2", text.d_model, text.d_model, bias),
    )
    return joined(c, text, tower, maps, tied=False, loose=loose * text.d_model)


def paligemma(c: Fields) -> Model:
    """PaliGemma: one linear map."""
    text, tower = text_of(c, "gemma"), tower_of(c, "siglip_vision_model")
    # what the tower's own section says of it is not read
    outputs = c.count("projection_dim", default=2048)
    return joined(c, text, tower, (linear("projector", tower.d_model, outputs),), tied=True)


def gemma3(c: Fields) -> Model:
    """Gemma 3: pooled patches, a norm and one map; without a tower, the language model alone."""
    text = gemma.gemma3_text(c.part("text_config"))
    if not c.has("vision_config"):
        return alone(c, text)
    tower = vision.siglip_tower(c.part("vision_config"))
    pooled = max((tower.tokens or 1) // c.count("mm_tokens_per_image", default=256), 1)
    maps = (linear("projector", tower.d_model, text.d_model, bias=False, every=pooled),)
    return joined(c, text, tower, maps, tied=True, loose=tower.d_model)


def mistral3(c: Fields) -> Model:
    """Mistral Small 3.1: a norm, patches merged by squares, two maps."""
    text, tower = text_of(c, "mistral"), tower_of(c, "pixtral")
    merge = c.count("spatial_merge_size", default=2, most=100)
    bias = c.flag("multimodal_projector_bias", default=False)
    maps = (
        linear("projector.merger", tower.d_model * merge**2, tower.d_model, False, every=merge**2),
        linear("projector.linear_1", tower.d_model, text.d_model, bias, every=merge**2),
        linear("projector.linear_2", text.d_model, text.d_model, bias, every=merge**2),
    )
    return joined(c, text, tower, maps, tied=True, loose=tower.d_model)


def smolvlm(c: Fields) -> Model:
    """SmolVLM and Idefics 3: SigLIP without its head, patches shuffled into channels, one map."""
    text = text_of(c, "llama")
    part = c.part("vision_config").having(
        hidden_size=1152, num_attention_heads=16, patch_size=32, vision_use_head=False
    )
    tower = vision.siglip_tower(part)
    factor = c.count("scale_factor", default=2, most=100)
    maps = (linear("connector", tower.d_model * factor**2, text.d_model, False, every=factor**2),)
    return joined(c, text, tower, maps, tied=False)


def llama4(c: Fields) -> Model:
    """Llama 4: rotary tower, pixel shuffle and two maps, one map into the language model."""
    text = moe.llama4_text(c.part("text_config"))
    if not c.has("vision_config"):
        return alone(c, text)
    v = c.part("vision_config").having(
        hidden_size=768, num_hidden_layers=34, num_attention_heads=16, intermediate_size=5632
    )
    width, inner = v.count("hidden_size"), v.count("intermediate_size")
    count, pixels = vision.patches(v, 448, 14)
    kinds, order = runs([classic(width, heads_of(v, width), inner)] * n_layers(v))
    middle = v.count("projector_input_dim", default=4096)
    outputs = v.count("projector_output_dim", default=4096)
    tower = Tower(
        "vision",
        width,
        kinds,
        order,
        tokens=count + 1,
        convs=(vision.stem(v, width, count, pixels, bias=False),),
        other_params=(1 + count + 1) * width + 4 * width,
    )
    maps = (
        linear("adapter.fc1", inner, middle, False, every=4),
        linear("adapter.fc2", outputs, outputs, False, every=4),
        linear(
            "projector", v.count("vision_output_dim", default=7680), text.d_model, False, every=4
        ),
    )
    return joined(c, text, tower, maps, tied=False)


def _merger(name: str, width: int, merge: int, outputs: int) -> tuple[Projection, ...]:
    """Qwen's merger of a square of patches: a map within, and one to the language model."""
    wide = width * merge**2
    return (
        linear(f"{name}.fc1", wide, wide, every=merge**2),
        linear(f"{name}.fc2", wide, outputs, every=merge**2),
    )


def qwen_stem(v: Fields, width: int, patch: int, bias: bool) -> Conv:
    """Patches over two frames, for images of any size."""
    frames = v.count("temporal_patch_size", default=2, most=100)
    colours = v.count("in_channels", "in_chans", "num_channels", default=3)
    pixels = frames * v.count("patch_size", default=patch, most=10_000) ** 2
    return Conv("patch_embed", colours, width, pixels, bias_params=bias * width)


def qwen2_vl(c: Fields) -> Model:
    """Qwen2-VL: a classic tower without positions of its own, no bias on the patches."""
    text, v = text_of(c, "qwen2_vl_text"), c.part("vision_config")
    width = v.count("embed_dim", default=1280)
    inner = int(width * v.number("mlp_ratio", default=4.0))
    block = classic(width, heads_of(v.having(num_heads=16), width, "num_heads"), inner)
    kinds, order = runs([block] * v.count("depth", default=32, most=MOST_LAYERS))
    merge = v.count("spatial_merge_size", default=2, most=100)
    maps = _merger("merger", width, merge, v.count("hidden_size", default=3584))
    convs = (qwen_stem(v, width, 14, bias=False),)
    tower = Tower("vision", width, kinds, order, convs=convs, other_params=2 * width)
    return joined(c, text, tower, maps, tied=False)


def qwen2_5_vl(c: Fields) -> Model:
    """Qwen2.5-VL: gated feed-forwards, windows in all layers but a few."""
    text, tower = text_of(c, "qwen2_5_vl_text"), qwen2_5_tower(c.part("vision_config"))
    return joined(c, text, tower, (), tied=False)


def qwen2_5_tower(v: Fields) -> Tower:
    """Qwen2.5-VL's tower with its merger."""
    width = v.count("hidden_size", default=3584)
    mlp = feed_forward(width, v.count("intermediate_size", default=3420), 3)
    base = attention(width, heads_of(v.having(num_heads=16), width, "num_heads"))
    patch = v.count("patch_size", default=14, most=10_000)
    reach = max((v.count("window_size", default=112) // patch) ** 2, 1)
    local = replace(base, window=reach, chunked=True)
    full = set(v.counts("fullatt_block_indexes") or [7, 15, 23, 31])
    layers = [
        Layer(base if i in full else local, mlp, 2 * width)
        for i in range(v.count("depth", default=32, most=MOST_LAYERS))
    ]
    kinds, order = runs(layers)
    merge = v.count("spatial_merge_size", default=2, most=100)
    maps = _merger("merger", width, merge, v.count("out_hidden_size", default=3584))
    convs = (qwen_stem(v, width, 14, bias=False),)
    return Tower("vision", width, kinds, order, convs=convs, projections=maps, other_params=width)


def qwen3_vl(c: Fields) -> Model:
    """Qwen3-VL, dense: mergers at three depths of the tower besides the last."""
    return _qwen3_vl(c, "qwen3_vl_text", deep=True)


def qwen3_vl_moe(c: Fields) -> Model:
    """Qwen3-VL's mixtures."""
    return _qwen3_vl(c, "qwen3_vl_moe_text", deep=True)


def qwen3_5(c: Fields) -> Model:
    """Qwen3.5: Qwen3-VL's tower with the last merger alone."""
    return _qwen3_vl(c, "qwen3_5_text", deep=False)


def qwen3_5_moe(c: Fields) -> Model:
    """Qwen3.5's mixtures."""
    return _qwen3_vl(c, "qwen3_5_moe_text", deep=False)


def _qwen3_vl(c: Fields, kind: str, deep: bool) -> Model:
    tower = qwen3_vl_tower(c.part("vision_config"), deep)
    return joined(c, text_of(c, kind), tower, (), tied=False)


def qwen3_vl_tower(v: Fields, deep: bool) -> Tower:
    """Qwen3-VL's tower with its mergers, at three depths besides the last where it is ``deep``."""
    width = v.count("hidden_size", default=1152)
    inner = v.count("intermediate_size", default=4304)
    block = classic(width, heads_of(v.having(num_heads=16), width, "num_heads"), inner)
    kinds, order = runs([block] * v.count("depth", default=27, most=MOST_LAYERS))
    merge = v.count("spatial_merge_size", default=2, most=100)
    outputs = v.count("out_hidden_size", default=3584)
    depths = (v.counts("deepstack_visual_indexes") or [8, 16, 24]) if deep else []
    maps = _merger("merger", width, merge, outputs)
    for i in range(len(depths)):
        maps += _merger(f"deepstack_merger.{i}", width, merge, outputs)
    return Tower(
        "vision",
        width,
        kinds,
        order,
        convs=(qwen_stem(v, width, 16, bias=True),),
        projections=maps,
        embedding_params=v.count("num_position_embeddings", default=2304) * width,
        other_params=2 * width + len(depths) * 2 * width * merge**2,
    )


def kimi_k25(c: Fields) -> Model:
    """Kimi K2.5: MoonViT before DeepSeek-V3's blocks, its head tied unless it says otherwise."""
    return _kimi(c, tied=True)


def kimi_vl(c: Fields) -> Model:
    """Kimi-VL: the same of Moonlight's size; its language model says whether its head is tied."""
    return _kimi(c, tied=False)


def _kimi(c: Fields, tied: bool) -> Model:
    """Keys as transformers has them, or as Moonshot's own files do (``vt_``, ``init_``)."""
    text, v = text_of(c, "deepseek_v3"), c.part("vision_config")
    width = v.count("hidden_size", "vt_hidden_size", default=1152)
    head_keys = ("num_attention_heads", "vt_num_attention_heads")
    heads = v.count(*head_keys, default=16, most=100_000)
    inner = v.count("intermediate_size", "vt_intermediate_size", default=4304)
    depth = v.count("num_hidden_layers", "vt_num_hidden_layers", default=27, most=MOST_LAYERS)
    kinds, order = runs([classic(width, heads, inner)] * depth)
    merge = prod(v.counts("merge_kernel_size", least=1, length=2) or [2, 2])
    table = v.count("pos_emb_height", "init_pos_emb_height", default=64)
    table *= v.count("pos_emb_width", "init_pos_emb_width", default=64)
    wide = width * merge
    pixels = v.count("patch_size", default=14, most=10_000) ** 2
    tower = Tower(
        "vision",
        width,
        kinds,
        order,
        convs=(Conv("patch_embed", 3, width, pixels, bias_params=width),),
        other_params=(table + 2) * width,
    )
    maps = (
        linear("projector.in_proj", wide, wide, every=merge),
        linear("projector.out_proj", wide, text.d_model, every=merge),
    )
    inputs = c.count("projection_hidden_size", default=1152 if tied else width)
    part = c.part("text_config") if c.has("text_config") else c
    if not tied:
        tied = part.flag("tie_word_embeddings", default=False)
    return joined(c, text, tower, maps, tied=tied, loose=2 * inputs)
