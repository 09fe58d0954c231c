"""UNets without a text (DDPM's and its kin) and ControlNets, by their diffusers configs.

Shapes and defaults as diffusers 0.42 builds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from chipshift.models.families.blocks import attention
from chipshift.models.families.diffusion import embedder
from chipshift.models.families.unet import (
    DOWN,
    VARIANTS,
    Parts,
    assembled,
    conditions,
    conv,
    downwards,
    each,
    inputs_of_the_way_up,
    middle,
    names,
    only_default,
    residual,
    stages_of,
    words,
)
from chipshift.models.fields import Fields
from chipshift.models.model import Conv, Layer, Model, Tower

PLAIN_DOWN = ("DownBlock2D", "AttnDownBlock2D")
PLAIN_UP = ("UpBlock2D", "AttnUpBlock2D")
RESIZED = ("conv", "resnet")


@dataclass(frozen=True)
class Plain:
    """A stage without a text: ``head_dim`` is the width of a head, None for one of all channels."""

    width: int
    blocks: int
    head_dim: int | None
    time: int
    shifts: bool

    def residual(self, inputs: int, side: int) -> Parts:
        return residual(inputs, self.width, self.time, side, self.shifts)

    def attentions(self, times: int, side: int, normed: bool = True) -> Parts:
        """Attention among an image's points, under a norm of its own."""
        width, head_dim = self.width, self.head_dim or self.width
        own = attention(width, max(width // head_dim, 1), head_dim=head_dim)
        layer = Layer(own, None, 2 * width * normed)
        tower = Tower(
            "attention", width, ((layer, times),), (0,) * times, tokens=side * side or None
        )
        return Parts(towers=(tower,))

    def resized(self, how: str, name: str, side: int) -> Parts:
        """Half or twice the size, by a convolution or by a residual block."""
        if how == "resnet":
            return self.residual(self.width, side)
        return Parts((conv(name, self.width, self.width, 3, side),))


def unet_2d(c: Fields) -> Model:
    """DDPM's UNet: residual blocks and attention among points, down, middle and up."""
    down = names(c, "down_block_types", (PLAIN_DOWN[0], *[PLAIN_DOWN[1]] * 3), PLAIN_DOWN)
    up = names(c, "up_block_types", (*[PLAIN_UP[1]] * 3, PLAIN_UP[0]), PLAIN_UP)
    if len(up) != len(down):
        raise c.wrong("up_block_types", f"as many blocks as down_block_types has, {len(down)}")
    only_default(c, time_embedding_type="positional")
    stages = _plain_stages(c, len(down))
    first, low = stages[0], stages[-1]
    side = c.count("sample_size") if c.has("sample_size") else 0
    sides = [side >> i for i in range(len(stages))]
    colours = (c.count("in_channels", default=3), c.count("out_channels", default=3))
    maps = embedder("time_embedding", first.width, first.time)
    if c.has("class_embed_type"):
        kind = c.text("class_embed_type", choices=("timestep", "identity"))
        maps += embedder("class_embedding", first.width, first.time) if kind == "timestep" else ()
    whole = Parts((conv("conv_in", colours[0], first.width, 3, side),), maps)
    whole += _down(c, stages, down, sides)
    if "mid_block_type" not in c.values or c.values["mid_block_type"] is not None:
        c.text("mid_block_type", default="UNetMidBlock2D", choices=("UNetMidBlock2D",))
        one = low.residual(low.width, sides[-1])
        whole += one
        if c.flag("add_attention", default=True):
            normed = c.has("attn_norm_num_groups") or not low.shifts
            whole += low.attentions(1, sides[-1], normed)
        whole += one
    whole += _up(c, stages, up, sides)
    whole += Parts((conv("conv_out", first.width, colours[1], 3, side),), (), 2 * first.width)
    classes = 0 if c.has("class_embed_type") else c.count("num_class_embeds", default=0, least=0)
    return Model(
        name="",
        architecture="unet_2d",
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


def _plain_stages(c: Fields, count: int) -> list[Plain]:
    widths = c.counts("block_out_channels", least=1, length=count) or [224, 448, 672, 896]
    if len(widths) != count:
        raise c.wrong("block_out_channels", f"a list of {count} whole numbers")
    blocks = each(c, "layers_per_block", 2, count)
    null = "attention_head_dim" in c.values and c.values["attention_head_dim"] is None
    head_dim = None if null else c.count("attention_head_dim", default=8, most=1_000_000)
    time = c.count("time_embedding_dim", default=4 * widths[0])
    shift = c.text("resnet_time_scale_shift", default="default", choices=("default", "scale_shift"))
    return [
        Plain(width, n, head_dim, time, shift == "scale_shift")
        for width, n in zip(widths, blocks, strict=True)
    ]


def _down(c: Fields, stages: list[Plain], kinds: list[str], sides: list[int]) -> Parts:
    how = c.text("downsample_type", default="conv", choices=RESIZED)
    whole, inputs = Parts(), stages[0].width
    for i, (stage, kind) in enumerate(zip(stages, kinds, strict=True)):
        for _ in range(stage.blocks):
            whole += stage.residual(inputs, sides[i])
            inputs = stage.width
        attends = kind == PLAIN_DOWN[1]
        if attends:
            whole += stage.attentions(stage.blocks, sides[i])
        if i + 1 < len(stages):
            # a stage that does not attend is resized by a convolution whatever is asked
            whole += stage.resized(how if attends else "conv", "downsample", sides[i + 1])
    return whole


def _up(c: Fields, stages: list[Plain], kinds: list[str], sides: list[int]) -> Parts:
    how = c.text("upsample_type", default="conv", choices=RESIZED)
    whole, inputs = Parts(), stages[-1].width
    for i, kind in enumerate(kinds):
        at = len(stages) - 1 - i
        stage = stages[at]
        for read in inputs_of_the_way_up(stages, at, inputs):
            whole += stage.residual(read, sides[at])
        inputs = stage.width
        attends = kind == PLAIN_UP[1]
        if attends:
            whole += stage.attentions(stage.blocks + 1, sides[at])
        if at:
            whole += stage.resized(how if attends else "conv", "upsample", sides[at - 1])
    return whole


def controlnet(c: Fields) -> Model:
    """A ControlNet: a UNet's way down and middle, an image's way in, a map for each way across."""
    only_default(c, **VARIANTS)
    down = names(c, "down_block_types", (*[DOWN[0]] * 3, DOWN[1]), DOWN)
    stages = stages_of(c, len(down))
    first, low = stages[0], stages[-1]
    side = c.count("sample_size") if c.has("sample_size") else 0
    sides = [side >> i for i in range(len(stages))]
    stem = conv("conv_in", c.count("in_channels", default=4), first.width, 3, side)
    whole = Parts((stem,), conditions(c, first)) + _image(c, first.width, side)
    whole += words(c, first) + downwards(stages, down, sides) + middle(c, low, sides[-1])
    across = [(first.width, side)]
    for i, stage in enumerate(stages):
        across += [(stage.width, sides[i])] * stage.blocks
        across += [(stage.width, sides[i + 1])] if i + 1 < len(stages) else []
    across.append((low.width, sides[-1]))
    whole += Parts(tuple(conv("across", width, width, 1, at) for width, at in across))
    return assembled(c, "controlnet", first, whole, side)


def _image(c: Fields, width: int, side: int) -> Parts:
    """An image of conditions on its way to the latents' size, halved at each width."""
    widths = c.counts("conditioning_embedding_out_channels", least=1) or [16, 32, 96, 256]
    at = side << (len(widths) - 1)
    colours = c.count("conditioning_channels", default=3)
    convs: list[Conv] = [conv("stem", colours, widths[0], 3, at)]
    for inputs, outputs in pairwise(widths):
        convs.append(conv("conv", inputs, inputs, 3, at))
        at //= 2
        convs.append(conv("conv", inputs, outputs, 3, at))
    convs.append(conv("conv", widths[-1], width, 3, at))
    return Parts(tuple(convs))
