"""Vision transformers and pairs of towers: ViT, DINOv2, CLIP, SigLIP, and the towers of others.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from chipshift.models.families.blocks import (
    attention,
    built_as,
    classic,
    feed_forward,
    heads_of,
    labels,
    linear,
)
from chipshift.models.families.decoder import n_layers, runs
from chipshift.models.fields import Fields
from chipshift.models.model import Conv, DenseMlp, Layer, Model, Projection, Tower


def side(c: Fields, key: str, default: int) -> tuple[int, int]:
    """(height, width) from one number or from a list of two."""
    value = c.values.get(key)
    if isinstance(value, (list, tuple)):
        listed = c.counts(key, least=1, length=2)
        return listed[0], listed[1]
    one = c.count(key, default=default)
    return one, one


def patches(c: Fields, image: int, patch: int) -> tuple[int, int]:
    """(patches of an image, pixels of a patch).

    Raises:
        InputError: a patch is larger than the image.
    """
    sizes, cut = side(c, "image_size", image), side(c, "patch_size", patch)
    count = prod(size // step for size, step in zip(sizes, cut, strict=True))
    if not count:
        raise c.conflict(f"patch_size {cut} is larger than image_size {sizes}")
    return count, prod(cut)


def stem(c: Fields, width: int, count: int, pixels: int, bias: bool = True) -> Conv:
    """The convolution that turns patches into tokens."""
    colours = c.count("num_channels", "in_channels", default=3)
    return Conv("patch_embedding", colours, width, pixels, count, bias_params=bias * width)


def as_model(tower: Tower, architecture: str, maps: tuple[Projection, ...]) -> Model:
    """A tower on its own, with what is put on top of it."""
    return Model(
        name="",
        architecture=architecture,
        d_model=tower.d_model,
        vocab=0,
        layers=tower.layers,
        layer_order=tower.layer_order,
        tied=True,
        embedding_extra_params=tower.embedding_params,
        has_head=False,
        tokens=tower.tokens,
        projections=(*tower.projections, *maps),
        convs=tower.convs,
        other_params=tower.other_params,
    )


def vit(c: Fields) -> Model:
    """ViT: a class token, learned positions, a norm at the end; a pooler in the bare model."""
    width = c.count("hidden_size")
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
        tokens=count + 1,
        convs=(stem(c, width, count, pixels),),
        other_params=(1 + count + 1) * width + 2 * width,
    )
    if built_as(c) == "Model":
        return as_model(tower, "vit", (linear("pooler", width, width, once=True),))
    if built_as(c) == "ForMaskedImageModeling":
        stride = c.count("encoder_stride", default=16, most=10_000)
        pixels = stride**2 * c.count("num_channels", default=3)
        tower = replace(tower, other_params=tower.other_params + width)  # the mask's token
        return as_model(tower, "vit", (linear("decoder", width, pixels),))
    return as_model(tower, "vit", (linear("classifier", width, labels(c), once=True),))


def dinov2(c: Fields) -> Model:
    """DINOv2: scaled residuals, a mask token, registers if any, classes from two tokens."""
    width = c.count("hidden_size")
    count, pixels = patches(c, 224, 14)
    inner = int(width * c.number("mlp_ratio", default=4.0))
    matrices = 2
    if c.flag("use_swiglu_ffn", default=False):
        inner, matrices = (int(inner * 2 / 3) + 7) // 8 * 8, 3
    letters = "qkvo" if c.flag("qkv_bias", default=True) else "o"
    mixer = attention(width, heads_of(c, width), bias=letters)
    mlp = feed_forward(width, inner, matrices)
    kinds, order = runs([Layer(mixer, mlp, 4 * width, other_params=2 * width)] * n_layers(c))
    registers = c.count("num_register_tokens", default=0, least=0)
    mask = c.flag("use_mask_token", default=True)
    tower = Tower(
        "vision",
        width,
        kinds,
        order,
        tokens=count + 1 + registers,
        convs=(stem(c, width, count, pixels),),
        other_params=(1 + mask + registers + count + 1) * width + 2 * width,
    )
    head = (linear("classifier", 2 * width, labels(c), once=True),)
    classes = built_as(c) == "ForImageClassification"
    return as_model(tower, "dinov2", head if classes else ())


def dinov2_with_registers(c: Fields) -> Model:
    """DINOv2 with registers: four of them, and other patches, unless told otherwise."""
    registers = {} if "num_register_tokens" in c.values else {"num_register_tokens": 4}
    return dinov2(c.having(patch_size=16, **registers))


def clip_tower(c: Fields) -> Tower:
    """CLIP's vision tower: a class token, no bias on the patches, norms before and after."""
    width = c.count("hidden_size", default=768)
    c = c.having(intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12)
    count, pixels = patches(c, 224, 32)
    block = classic(width, heads_of(c, width), c.count("intermediate_size"))
    kinds, order = runs([block] * n_layers(c))
    return Tower(
        "vision",
        width,
        kinds,
        order,
        tokens=count + 1,
        convs=(stem(c, width, count, pixels, bias=False),),
        embedding_params=(count + 1) * width,
        other_params=width + 4 * width,
    )


def siglip_tower(c: Fields) -> Tower:
    """SigLIP's vision tower; its attention-pooling head unless ``vision_use_head`` is false."""
    width = c.count("hidden_size", default=768)
    c = c.having(intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12)
    count, pixels = patches(c, 224, 16)
    heads, inner = heads_of(c, width), c.count("intermediate_size")
    kinds, order = runs([classic(width, heads, inner)] * n_layers(c))
    maps: tuple[Projection, ...] = ()
    loose = 2 * width
    if c.flag("vision_use_head", default=True):
        loose += width + 2 * width  # the probe and a norm
        maps = (
            linear("head.kv", width, 2 * width),
            linear("head.q", width, width, once=True),
            linear("head.out", width, width, once=True),
            linear("head.fc1", width, inner, once=True),
            linear("head.fc2", inner, width, once=True),
        )
    return Tower(
        "vision",
        width,
        kinds,
        order,
        tokens=count,
        convs=(stem(c, width, count, pixels),),
        projections=maps,
        embedding_params=count * width,
        other_params=loose,
    )


def pixtral_tower(c: Fields) -> Tower:
    """Pixtral's tower: rotary positions, gated feed-forwards, no biases, images of any size."""
    width = c.count("hidden_size", default=1024)
    c = c.having(intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16)
    _, pixels = patches(c, 1024, 16)
    mixer = attention(width, heads_of(c, width), bias="")
    kinds, order = runs(
        [Layer(mixer, DenseMlp(c.count("intermediate_size")), 2 * width)] * n_layers(c)
    )
    return Tower(
        "vision",
        width,
        kinds,
        order,
        convs=(stem(c, width, 0, pixels, bias=False),),
        other_params=width,
    )


def clip_vision(c: Fields) -> Model:
    """CLIP's vision tower by itself, with its projection where the class says so."""
    tower = clip_tower(c)
    maps: tuple[Projection, ...] = ()
    if projected(c):
        outputs = c.count("projection_dim", default=512)
        maps = (linear("visual_projection", tower.d_model, outputs, False, once=True),)
    return as_model(tower, "clip_vision_model", maps)


def projected(c: Fields) -> bool:
    """Whether the class is one of CLIP's with its projection."""
    classes = c.values.get("architectures")
    return isinstance(classes, list) and str(classes[:1]).find("WithProjection") >= 0


def clip_text(c: Fields) -> Model:
    """CLIP's text side by itself, as diffusion pipelines use it."""
    c = c.having(
        vocab_size=49_408,
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=8,
    )
    maps: tuple[Projection, ...] = ()
    if projected(c):
        outputs = c.count("projection_dim", default=512)
        maps = (linear("text_projection", c.count("hidden_size"), outputs, False, once=True),)
    positions = c.count("max_position_embeddings", default=77)
    return replace(_text(c, positions, True, maps), architecture="clip_text_model")


def siglip_vision(c: Fields) -> Model:
    """SigLIP's vision tower by itself."""
    return as_model(siglip_tower(c), "siglip_vision_model", ())


def _text(c: Fields, positions: int, causal: bool, maps: tuple[Projection, ...]) -> Model:
    """The text side of a pair: learned positions and a norm at the end, no head over words."""
    width = c.count("hidden_size")
    block = classic(width, heads_of(c, width), c.count("intermediate_size"), causal=causal)
    kinds, order = runs([block] * n_layers(c))
    return Model(
        name="",
        architecture="",
        d_model=width,
        vocab=c.count("vocab_size"),
        layers=kinds,
        layer_order=order,
        tied=True,
        final_norm_params=2 * width,
        embedding_extra_params=positions * width,
        max_positions=positions,
        has_head=False,
        projections=maps,
    )


def _classifies(c: Fields, kind: str, tower: Callable[[Fields], Tower]) -> Model:
    """A pair's vision tower under classes of images."""
    eye = tower(c.part("vision_config") if c.has("vision_config") else replace(c, values={}))
    return as_model(eye, kind, (linear("classifier", eye.d_model, labels(c), once=True),))


def clip(c: Fields) -> Model:
    """CLIP: both towers projected into one space, and a learned temperature."""
    if built_as(c) == "ForImageClassification":
        return _classifies(c, "clip", clip_tower)
    shared = c.count("projection_dim", default=512)
    text = c.part("text_config") if c.has("text_config") else replace(c, values={})
    text = text.having(
        vocab_size=49_408,
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=8,
    )
    image = c.part("vision_config") if c.has("vision_config") else replace(c, values={})
    tower = clip_tower(image)
    tower = replace(
        tower, projections=(linear("visual_projection", tower.d_model, shared, False, once=True),)
    )
    to_shared = linear("text_projection", text.count("hidden_size"), shared, False, once=True)
    positions = text.count("max_position_embeddings", default=77)
    model = _text(text, positions, True, (to_shared,))
    return replace(model, architecture="clip", towers=(tower,), other_params=1)


def siglip_text(c: Fields) -> Model:
    """SigLIP's text side by itself: text that sees both ways, and a head."""
    c = c.having(
        vocab_size=32_000,
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
    )
    width = c.count("hidden_size")
    head = linear("head", width, c.count("projection_size", default=width), once=True)
    positions = c.count("max_position_embeddings", default=64)
    return replace(_text(c, positions, False, (head,)), architecture="siglip_text_model")


def siglip(c: Fields) -> Model:
    """SigLIP: a head on each tower, temperature and bias."""
    if built_as(c) == "ForImageClassification":
        return _classifies(c, "siglip", siglip_tower)
    text = c.part("text_config") if c.has("text_config") else replace(c, values={})
    image = c.part("vision_config") if c.has("vision_config") else replace(c, values={})
    model = siglip_text(text)
    return replace(model, architecture="siglip", towers=(siglip_tower(image),), other_params=2)
