"""Stable Diffusion's UNet (1.x, 2.x, XL) by its diffusers config.

Shapes and defaults as diffusers 0.42 builds them. Convolutions are the model's; the transformers
of each stage are a tower of that stage's width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from chipshift.models.families.blocks import attention, heads_of, linear
from chipshift.models.families.decoder import runs
from chipshift.models.families.diffusion import embedder
from chipshift.models.fields import Fields
from chipshift.models.model import Conv, DenseMlp, Layer, Model, Projection, Tower

DOWN = ("CrossAttnDownBlock2D", "DownBlock2D")
UP = ("CrossAttnUpBlock2D", "UpBlock2D")


@dataclass(frozen=True)
class Parts:
    """What a stage adds: convolutions, maps of the time embedding, norms, transformers."""

    convs: tuple[Conv, ...] = ()
    maps: tuple[Projection, ...] = ()
    norm_params: int = 0
    towers: tuple[Tower, ...] = ()

    def __add__(self, other: Parts) -> Parts:
        return Parts(
            self.convs + other.convs,
            self.maps + other.maps,
            self.norm_params + other.norm_params,
            self.towers + other.towers,
        )


@dataclass(frozen=True)
class Stage:
    """Numbers of one resolution: channels, residual blocks, transformer blocks in each, text."""

    width: int
    blocks: int
    depth: int
    heads: int
    reads: int


def _conv(name: str, inputs: int, outputs: int, kernel: int, side: int) -> Conv:
    return Conv(name, inputs, outputs, kernel * kernel, side * side, bias_params=outputs)


def _residual(inputs: int, outputs: int, time: int, side: int) -> Parts:
    """Two convolutions with the time embedding between, a map around if widths differ."""
    convs = [_conv("conv", inputs, outputs, 3, side), _conv("conv", outputs, outputs, 3, side)]
    if inputs != outputs:
        convs.append(_conv("shortcut", inputs, outputs, 1, side))
    maps = (linear("time_emb_proj", time, outputs, once=True),)
    return Parts(tuple(convs), maps, 2 * inputs + 2 * outputs)


def _transformer(stage: Stage, times: int, side: int) -> Parts:
    """``times`` transformers of a stage: self-attention, attention to the text, gated GELU."""
    width = stage.width
    own = attention(width, stage.heads, bias="o")
    block = Layer(
        own,
        DenseMlp(4 * width, 3, 9 * width),
        6 * width,
        cross=replace(own, kv_from="encoder", kv_input=stage.reads),
    )
    kinds, order = runs([block] * (stage.depth * times))
    maps = (linear("proj_in", width, width), linear("proj_out", width, width)) * times
    tower = Tower(
        "transformer",
        width,
        kinds,
        order,
        tokens=side * side or None,
        projections=maps,
        other_params=2 * width * times,
    )
    return Parts(towers=(tower,))


def _each(c: Fields, key: str, default: int, count: int, least: int = 1) -> list[int]:
    """A number a stage, from one number or from a list."""
    if isinstance(c.values.get(key), (list, tuple)):
        return c.counts(key, least=least, length=count)
    return [c.count(key, default=default, least=least)] * count


def _names(c: Fields, key: str, default: Sequence[str], choices: tuple[str, ...]) -> list[str]:
    """The kinds of a side's stages."""
    listed: Any = c.values.get(key)
    if listed is None:
        return list(default)
    if not isinstance(listed, (list, tuple)) or not 0 < len(listed) <= 100:
        raise c.wrong(key, f"a list of {' or '.join(choices)}")
    return c.names(key, choices, len(listed))


def _only_null(c: Fields, *keys: str) -> None:
    """Refuse a variant that is not counted here.

    Raises:
        InputError: one of the keys is set.
    """
    for key in keys:
        if c.values.get(key) not in (None, False):
            raise c.wrong(key, "null: UNets with it are not counted here")


def _stages(c: Fields, count: int) -> list[Stage]:
    """The numbers of each resolution, widest image first."""
    widths = c.counts("block_out_channels", least=1, length=count) or [320, 640, 1280, 1280]
    if len(widths) != count:
        raise c.wrong("block_out_channels", f"a list of {count} whole numbers")
    blocks = _each(c, "layers_per_block", 2, count)
    depths = _each(c, "transformer_layers_per_block", 1, count)
    # what diffusers calls the width of a head is the number of heads unless that is given too
    key = "num_attention_heads" if c.has("num_attention_heads") else "attention_head_dim"
    heads = _each(c, key, 8, count)
    reads = _each(c, "cross_attention_dim", 1280, count)
    for width, head in zip(widths, heads, strict=True):
        heads_of(c.replaced(**{key: head}), width, key)
    return [Stage(*numbers) for numbers in zip(widths, blocks, depths, heads, reads, strict=True)]


def unet(c: Fields) -> Model:
    """Stable Diffusion's UNet: down, middle, up, each up block reading what the way down left."""
    _only_null(
        c,
        "class_embed_type",
        "encoder_hid_dim_type",
        "encoder_hid_dim",
        "dual_cross_attention",
        "only_cross_attention",
        "time_cond_proj_dim",
        "reverse_transformer_layers_per_block",
    )
    down = _names(c, "down_block_types", (*[DOWN[0]] * 3, DOWN[1]), DOWN)
    up = _names(c, "up_block_types", (UP[1], *[UP[0]] * 3), UP)
    if len(up) != len(down):
        raise c.wrong("up_block_types", f"as many blocks as down_block_types has, {len(down)}")
    stages = _stages(c, len(down))
    c.text(
        "mid_block_type", default="UNetMidBlock2DCrossAttn", choices=("UNetMidBlock2DCrossAttn",)
    )
    first, time = stages[0].width, 4 * stages[0].width
    side = c.count("sample_size") if c.has("sample_size") else 0
    sides = [side >> i for i in range(len(stages))]
    colours = (c.count("in_channels", default=4), c.count("out_channels", default=4))
    whole = Parts(
        (_conv("conv_in", colours[0], first, 3, side),),
        embedder("time_embedding", first, time) + _added(c, time),
        2 * first,
    )
    whole += _downwards(stages, down, time, sides)
    middle, low = stages[-1].width, sides[-1]
    whole += _residual(middle, middle, time, low) + _transformer(stages[-1], 1, low)
    whole += _residual(middle, middle, time, low) + _upwards(stages, up, time, sides)
    whole += Parts((_conv("conv_out", first, colours[1], 3, side),))
    return Model(
        name="",
        architecture="unet",
        d_model=first,
        vocab=0,
        layers=(),
        layer_order=(),
        tied=True,
        embedding_extra_params=c.count("num_class_embeds", default=0, least=0) * time,
        has_head=False,
        tokens=side * side or None,
        projections=whole.maps,
        towers=whole.towers,
        convs=whole.convs,
        other_params=whole.norm_params,
    )


def _added(c: Fields, time: int) -> tuple[Projection, ...]:
    """SDXL's embedding of the pooled text and the image's size and crop."""
    if not c.has("addition_embed_type"):
        return ()
    c.text("addition_embed_type", choices=("text_time",))
    return embedder("add_embedding", c.count("projection_class_embeddings_input_dim"), time)


def _downwards(stages: list[Stage], kinds: list[str], time: int, sides: list[int]) -> Parts:
    """The way down: residual blocks, a transformer after each, then half the size."""
    whole, inputs = Parts(), stages[0].width
    for i, (stage, kind) in enumerate(zip(stages, kinds, strict=True)):
        for _ in range(stage.blocks):
            whole += _residual(inputs, stage.width, time, sides[i])
            inputs = stage.width
        if kind == DOWN[0]:
            whole += _transformer(stage, stage.blocks, sides[i])
        if i + 1 < len(stages):
            whole += Parts((_conv("downsample", inputs, inputs, 3, sides[i + 1]),))
    return whole


def _upwards(stages: list[Stage], kinds: list[str], time: int, sides: list[int]) -> Parts:
    """The way up: one residual block more than down, each with the channels left on the way."""
    whole, inputs = Parts(), stages[-1].width
    for i, kind in enumerate(kinds):
        at = len(stages) - 1 - i
        stage = stages[at]
        last = stages[max(at - 1, 0)].width
        for block in range(stage.blocks + 1):
            left = last if block == stage.blocks else stage.width
            whole += _residual(inputs + left, stage.width, time, sides[at])
            inputs = stage.width
        if kind == UP[0]:
            whole += _transformer(stage, stage.blocks + 1, sides[at])
        if at:
            whole += Parts((_conv("upsample", inputs, inputs, 3, sides[at - 1]),))
    return whole
