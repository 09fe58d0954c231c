"""Stable Diffusion's UNet (1.x, 2.x, XL, what was distilled of them) by its diffusers config.

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
MIDDLE = ("UNetMidBlock2DCrossAttn", "UNetMidBlock2D")


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
    """Numbers of one resolution: channels, residual blocks, width of a text.

    Attributes:
        down, up: transformer blocks after each residual block of the way down, and of the way up.
        crossed: its transformers attend to the text twice, and never to the image.
        time: width of the time embedding; shifts: it scales residual blocks as it shifts them.
    """

    width: int
    blocks: int
    down: tuple[int, ...]
    up: tuple[int, ...]
    heads: int
    reads: int
    crossed: bool
    time: int
    shifts: bool

    def residual(self, inputs: int, side: int) -> Parts:
        return residual(inputs, self.width, self.time, side, self.shifts)


def conv(name: str, inputs: int, outputs: int, kernel: int, side: int) -> Conv:
    """A convolution over a square of outputs."""
    return Conv(name, inputs, outputs, kernel * kernel, side * side, bias_params=outputs)


def residual(inputs: int, outputs: int, time: int, side: int, shifts: bool = False) -> Parts:
    """Two convolutions with the time embedding between, a map around if widths differ."""
    convs = [conv("conv", inputs, outputs, 3, side), conv("conv", outputs, outputs, 3, side)]
    if inputs != outputs:
        convs.append(conv("shortcut", inputs, outputs, 1, side))
    maps = (linear("time_emb_proj", time, outputs * (2 if shifts else 1), once=True),)
    return Parts(tuple(convs), maps, 2 * inputs + 2 * outputs)


def _transformers(stage: Stage, depths: Sequence[int], side: int) -> Parts:
    """A stage's transformers: self-attention, attention to the text, gated GELU."""
    width, times = stage.width, len(depths)
    own = attention(width, stage.heads, bias="o")
    text = replace(own, kv_from="encoder", kv_input=stage.reads)
    mlp = DenseMlp(4 * width, 3, 9 * width)
    block = [Layer(own, mlp, 6 * width, cross=text)]
    if stage.crossed:  # two halves, for a layer attends to the text once
        block = [Layer(None, None, 2 * width, cross=text), Layer(None, mlp, 4 * width, cross=text)]
    kinds, order = runs(block * sum(depths))
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


def each(c: Fields, key: str, default: int, count: int, least: int = 1) -> list[int]:
    """A number a stage, from one number or from a list."""
    if isinstance(c.values.get(key), (list, tuple)):
        return c.counts(key, least=least, length=count)
    return [c.count(key, default=default, least=least)] * count


def names(c: Fields, key: str, default: Sequence[str], choices: tuple[str, ...]) -> list[str]:
    """The kinds of a side's stages."""
    listed: Any = c.values.get(key)
    if listed is None:
        return list(default)
    if not isinstance(listed, (list, tuple)) or not 0 < len(listed) <= 100:
        raise c.wrong(key, f"a list of {' or '.join(choices)}")
    return c.names(key, choices, len(listed))


def only_default(c: Fields, **usual: Any) -> None:
    """Refuse a variant that is not counted here.

    Raises:
        InputError: one of the keys is neither null nor what it usually is.
    """
    for key, value in usual.items():
        c.asked.add(key)
        if c.values.get(key) not in (None, False, value):
            raise c.wrong(key, f"{value or 'null'}: UNets with it are not counted here")


def _depths(c: Fields, key: str, count: int, blocks: list[int]) -> list[tuple[int, ...]]:
    """Transformer blocks after each residual block of each stage: one number, or lists in lists."""
    listed: Any = c.values.get(key)
    c.asked.add(key)
    if not isinstance(listed, (list, tuple)):
        number = c.count(key, default=1)
        return [(number,) * n for n in blocks]
    expected = f"a list of {count} whole numbers, or of lists of them"
    if len(listed) != count:
        raise c.wrong(key, expected)
    found = []
    for one, n in zip(listed, blocks, strict=True):
        inner = list(one) if isinstance(one, (list, tuple)) else [one] * n
        if len(inner) < n or any(type(d) is not int or not 0 < d <= 1000 for d in inner):
            raise c.wrong(key, expected)
        found.append(tuple(inner[:n]))
    return found


def _crossed(c: Fields, count: int) -> list[bool]:
    """Whether each stage's transformers attend to the text alone."""
    given: Any = c.values.get("only_cross_attention")
    c.asked.add("only_cross_attention")
    if not isinstance(given, (list, tuple)):
        return [c.flag("only_cross_attention", default=False)] * count
    if len(given) != count or any(not isinstance(one, bool) for one in given):
        raise c.wrong("only_cross_attention", f"true, false or a list of {count} of them")
    return list(given)


def stages_of(c: Fields, count: int) -> list[Stage]:
    """The numbers of each resolution, widest image first."""
    widths = c.counts("block_out_channels", least=1, length=count) or [320, 640, 1280, 1280]
    if len(widths) != count:
        raise c.wrong("block_out_channels", f"a list of {count} whole numbers")
    blocks = each(c, "layers_per_block", 2, count)
    more = [n + 1 for n in blocks]
    down = _depths(c, "transformer_layers_per_block", count, blocks)
    reverse = "reverse_transformer_layers_per_block"
    if c.has(reverse):
        up = _depths(c, reverse, count, more[::-1])[::-1]
    else:
        # what a list in a list says of the way down does not tell the way up
        nested = [d for d in down if len(set(d)) > 1]
        if nested:
            raise c.wrong(reverse, "a list a stage, as transformer_layers_per_block has lists")
        up = [(d[0],) * n for d, n in zip(down, more, strict=True)]
    # what diffusers calls the width of a head is the number of heads unless that is given too
    key = "num_attention_heads" if c.has("num_attention_heads") else "attention_head_dim"
    heads = each(c, key, 8, count)
    reads = each(c, "cross_attention_dim", 1280, count)
    for width, head in zip(widths, heads, strict=True):
        heads_of(c.replaced(**{key: head}), width, key)
    time = c.count("time_embedding_dim", default=4 * widths[0])
    shifts = c.text(
        "resnet_time_scale_shift", default="default", choices=("default", "scale_shift")
    )
    crossed = _crossed(c, count)
    return [
        Stage(widths[i], blocks[i], down[i], up[i], heads[i], reads[i], crossed[i], time,
              shifts == "scale_shift")
        for i in range(count)
    ]  # fmt: skip


VARIANTS = {
    "dual_cross_attention": False,
    "time_embedding_type": "positional",
    "class_embeddings_concat": False,
    "attention_type": "default",
    "cross_attention_norm": None,
}


def unet(c: Fields) -> Model:
    """Stable Diffusion's UNet: down, middle, up, each up block reading what the way down left."""
    only_default(c, **VARIANTS)
    down = names(c, "down_block_types", (*[DOWN[0]] * 3, DOWN[1]), DOWN)
    up = names(c, "up_block_types", (UP[1], *[UP[0]] * 3), UP)
    if len(up) != len(down):
        raise c.wrong("up_block_types", f"as many blocks as down_block_types has, {len(down)}")
    stages = stages_of(c, len(down))
    first = stages[0].width
    side = c.count("sample_size") if c.has("sample_size") else 0
    sides = [side >> i for i in range(len(stages))]
    colours = (c.count("in_channels", default=4), c.count("out_channels", default=4))
    taps = (c.count("conv_in_kernel", default=3), c.count("conv_out_kernel", default=3))
    whole = Parts((conv("conv_in", colours[0], first, taps[0], side),), conditions(c, stages[0]))
    whole += words(c, stages[0]) + downwards(stages, down, sides)
    whole += middle(c, stages[-1], sides[-1])
    whole += _upwards(stages, up, sides)
    whole += Parts((conv("conv_out", first, colours[1], taps[1], side),), (), 2 * first)
    return assembled(c, "unet", stages[0], whole, side)


def assembled(c: Fields, name: str, first: Stage, whole: Parts, side: int) -> Model:
    """The model of all its parts, with a table of classes where there is one."""
    classes = 0 if c.has("class_embed_type") else c.count("num_class_embeds", default=0, least=0)
    return Model(
        name="",
        architecture=name,
        d_model=first.width,
        vocab=0,
        layers=(),
        layer_order=(),
        tied=True,
        embedding_extra_params=classes * first.time,
        has_head=False,
        tokens=side * side or None,
        projections=whole.maps,
        towers=whole.towers,
        convs=whole.convs,
        other_params=whole.norm_params,
    )


def conditions(c: Fields, first: Stage) -> tuple[Projection, ...]:
    """Maps of the time, a class, a guidance, an image's size and crop."""
    width, time = first.width, first.time
    maps = embedder("time_embedding", width, time)
    guided = c.maybe("time_cond_proj_dim")
    if guided is not None:
        maps += (linear("cond_proj", guided, width, bias=False, once=True),)
    kinds = ("timestep", "identity", "projection", "simple_projection")
    kind = c.text("class_embed_type", choices=kinds) if c.has("class_embed_type") else ""
    into = "projection_class_embeddings_input_dim"
    if kind == "simple_projection":
        maps += (linear("class_embedding", c.count(into), time, once=True),)
    elif kind in ("timestep", "projection"):
        maps += embedder("class_embedding", width if kind == "timestep" else c.count(into), time)
    if c.has("addition_embed_type"):
        c.text("addition_embed_type", choices=("text_time",))
        maps += embedder("add_embedding", c.count(into), time)
    return maps


def words(c: Fields, first: Stage) -> Parts:
    """A map of the text where its encoder has another width."""
    width = c.maybe("encoder_hid_dim")
    if c.has("encoder_hid_dim_type"):
        c.text("encoder_hid_dim_type", choices=("text_proj",))
    if width is None:
        return Parts()
    maps = (linear("context_embedder", width, first.reads),)
    return Parts(towers=(Tower("text", first.reads, (), (), projections=maps),))


def middle(c: Fields, low: Stage, side: int) -> Parts:
    """Two residual blocks with a transformer between, one without, or nothing (a null)."""
    if "mid_block_type" in c.values and c.values["mid_block_type"] is None:
        return Parts()
    kind = c.text("mid_block_type", default=MIDDLE[0], choices=MIDDLE)
    one = low.residual(low.width, side)
    if kind == MIDDLE[1]:
        return one
    # the middle's attention is to image and text whatever the stages' are
    return one + _transformers(replace(low, crossed=False), low.down[:1], side) + one


def downwards(stages: list[Stage], kinds: list[str], sides: list[int]) -> Parts:
    """The way down: residual blocks, a transformer after each, then half the size."""
    whole, inputs = Parts(), stages[0].width
    for i, (stage, kind) in enumerate(zip(stages, kinds, strict=True)):
        for _ in range(stage.blocks):
            whole += stage.residual(inputs, sides[i])
            inputs = stage.width
        if kind == DOWN[0]:
            whole += _transformers(stage, stage.down, sides[i])
        if i + 1 < len(stages):
            whole += Parts((conv("downsample", inputs, inputs, 3, sides[i + 1]),))
    return whole


def inputs_of_the_way_up(stages: Sequence[Any], at: int, inputs: int) -> list[int]:
    """Channels that each residual block of a stage reads: what came up, and what was left."""
    stage, last = stages[at], stages[max(at - 1, 0)].width
    left = [stage.width] * stage.blocks + [last]
    return [n + (inputs if i == 0 else stage.width) for i, n in enumerate(left)]


def _upwards(stages: list[Stage], kinds: list[str], sides: list[int]) -> Parts:
    """The way up: one residual block more than down, each with the channels left on the way."""
    whole, inputs = Parts(), stages[-1].width
    for i, kind in enumerate(kinds):
        at = len(stages) - 1 - i
        stage = stages[at]
        for read in inputs_of_the_way_up(stages, at, inputs):
            whole += stage.residual(read, sides[at])
        inputs = stage.width
        if kind == UP[0]:
            whole += _transformers(stage, stage.up, sides[at])
        if at:
            whole += Parts((conv("upsample", inputs, inputs, 3, sides[at - 1]),))
    return whole
