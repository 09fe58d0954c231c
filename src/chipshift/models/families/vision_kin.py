"""Further vision transformers: DeiT, BEiT, DINOv3, Swin.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.blocks import (
    attention,
    built_as,
    feed_forward,
    heads_of,
    labels,
    linear,
)
from chipshift.models.families.decoder import MOST_LAYERS, n_layers, runs
from chipshift.models.families.vision import as_model, patches, stem
from chipshift.models.fields import Fields
from chipshift.models.model import Layer, Model, Projection, Tower

USUAL = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}


def deit(c: Fields) -> Model:
    """DeiT: ViT with a second token that a teacher's label is read from."""
    c = c.having(**USUAL, intermediate_size=3072)
    width, kind = c.count("hidden_size"), built_as(c)
    count, pixels = patches(c, 224, 16)
    letters = "qkvo" if c.flag("qkv_bias", default=True) else "o"
    mixer = attention(width, heads_of(c, width), bias=letters)
    block = Layer(mixer, feed_forward(width, c.count("intermediate_size")), 4 * width)
    kinds, order = runs([block] * n_layers(c))
    tower = Tower(
        "vision",
        width,
        kinds,
        order,
        tokens=count + 2,
        convs=(stem(c, width, count, pixels),),
        other_params=(2 + count + 2) * width + 2 * width,
    )
    if kind == "Model":
        return as_model(tower, "deit", (linear("pooler", width, width, once=True),))
    heads = 2 if kind == "ForImageClassificationWithTeacher" else 1
    return as_model(tower, "deit", (linear("classifier", width, labels(c), once=True),) * heads)


def beit(c: Fields) -> Model:
    """BEiT: scaled residuals, biases by distance a layer or one for all, no bias on keys.

    Raises:
        InputError: a class of it for segmentation or masked images.
    """
    c = c.having(**USUAL, intermediate_size=3072)
    width, kind = c.count("hidden_size"), built_as(c)
    count, pixels = patches(c, 224, 16)
    heads, side = heads_of(c, width), int(count**0.5)
    table = ((2 * side - 1) ** 2 + 3) * heads
    own = table * c.flag("use_relative_position_bias", default=False)
    shared = table * c.flag("use_shared_relative_position_bias", default=False)
    scale = c.values.get("layer_scale_init_value", 0.1)
    scaled = 2 * width * bool(isinstance(scale, (int, float)) and scale > 0)
    mixer = attention(width, heads, bias="qvo")
    mlp = feed_forward(width, c.count("intermediate_size"))
    kinds, order = runs([Layer(mixer, mlp, 4 * width, other_params=scaled + own)] * n_layers(c))
    positions = (count + 1) * width * c.flag("use_absolute_position_embeddings", default=False)
    mask = width * c.flag("use_mask_token", default=False)
    maps: tuple[Projection, ...] = ()
    if kind in ("", "ForImageClassification"):
        maps = (linear("classifier", width, labels(c), once=True),)
    elif kind != "Model":
        raise c.wrong("architectures", "BeitForImageClassification or BeitModel")
    tower = Tower(
        "vision",
        width,
        kinds,
        order,
        tokens=count + 1,
        convs=(stem(c, width, count, pixels),),
        # the last norm stands behind the mean over patches, or behind the blocks
        other_params=width + positions + mask + shared + 2 * width,
    )
    return as_model(tower, "beit", maps)


def dinov3(c: Fields) -> Model:
    """DINOv3: rotary positions, scaled residuals, registers, no bias on keys unless it says so."""
    c = c.having(hidden_size=384, num_hidden_layers=12, num_attention_heads=6)
    width = c.count("hidden_size")
    count, pixels = patches(c, 224, 16)
    keys = (("query_bias", True), ("key_bias", False), ("value_bias", True), ("proj_bias", True))
    letters = "".join(
        letter
        for letter, (key, usual) in zip("qkvo", keys, strict=True)
        if c.flag(key, default=usual)
    )
    mixer = attention(width, heads_of(c, width), bias=letters)
    matrices = 3 if c.flag("use_gated_mlp", default=False) else 2
    inner = c.count("intermediate_size", default=1536)
    mlp = feed_forward(width, inner, matrices, c.flag("mlp_bias", default=True))
    kinds, order = runs([Layer(mixer, mlp, 4 * width, other_params=2 * width)] * n_layers(c))
    registers = c.count("num_register_tokens", default=0, least=0)
    tower = Tower(
        "vision",
        width,
        kinds,
        order,
        tokens=count + 1 + registers,
        convs=(stem(c, width, count, pixels),),
        other_params=(1 + 1 + registers) * width + 2 * width,
    )
    return as_model(tower, "dinov3_vit", ())


def swin(c: Fields) -> Model:
    """Swin: a norm behind its stages."""
    return _swin(c, final=True)


def donut_swin(c: Fields) -> Model:
    """Donut's Swin, without that norm."""
    return _swin(c, final=False)


def _swin(c: Fields, final: bool) -> Model:
    """Stages of twice the width and half the side, each attending within windows.

    The last stage is the model, those before it are towers.

    Raises:
        InputError: depths and heads are not as many; a class that is not read here.
    """
    width, side = c.count("embed_dim", default=96), c.count("image_size", default=224)
    depths = c.counts("depths", least=1) or [2, 2, 6, 2]
    counts = c.counts("num_heads", least=1) or [3, 6, 12, 24]
    if len(depths) != len(counts) or sum(depths) > MOST_LAYERS:
        raise c.conflict(
            f"depths has {len(depths)} and num_heads {len(counts)} stages; expected as many"
        )
    kind = built_as(c)
    if kind not in ("", "Model", "ForImageClassification", "ForMaskedImageModeling"):
        raise c.wrong("architectures", "SwinForImageClassification or SwinModel")
    patch = c.count("patch_size", default=4, most=10_000)
    window, ratio = c.count("window_size", default=7, most=10_000), c.number("mlp_ratio", default=4)
    letters = "qkvo" if c.flag("qkv_bias", default=True) else "o"
    colours_stem = stem(c, width, (side // patch) ** 2, patch**2)
    first = 2 * width
    if c.flag("use_absolute_embeddings", default=False):
        first += (side // patch) ** 2 * width
    first += width * (kind == "ForMaskedImageModeling")
    stages: list[Tower] = []
    for i, (depth, heads) in enumerate(zip(depths, counts, strict=True)):
        wide, grid = width << i, max(side // patch >> i, 1)
        reach = min(window, grid)
        mixer = attention(wide, heads, bias=letters, window=reach**2)
        table = (2 * window - 1) ** 2 * heads
        mlp = feed_forward(wide, int(ratio * wide))
        block = Layer(replace(mixer, chunked=True), mlp, 4 * wide, other_params=table)
        kinds, order = runs([block] * depth)
        last = i == len(depths) - 1
        maps = () if last else (linear("downsample", 4 * wide, 2 * wide, False, every=4),)
        loose = (first if i == 0 else 0) + (2 * wide * final if last else 2 * 4 * wide)
        convs = (colours_stem,) if i == 0 else ()
        stages.append(Tower(f"stage{i + 1}", wide, kinds, order, grid**2, convs, maps, 0, loose))
    top = stages[-1]
    maps = (linear("classifier", top.d_model, labels(c), once=True),)
    if kind == "Model":
        maps = ()
    if kind == "ForMaskedImageModeling":
        stride = c.count("encoder_stride", default=32, most=10_000)
        maps = (linear("decoder", top.d_model, stride**2 * c.count("num_channels", default=3)),)
    return replace(as_model(top, "swin", maps), towers=tuple(stages[:-1]))
