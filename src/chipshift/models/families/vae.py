"""The autoencoder before Stable Diffusion and its kin (AutoencoderKL), by its diffusers config.

Shapes and defaults as diffusers 0.42 builds it: an image's way to latents and back.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.blocks import attention
from chipshift.models.families.unet import Parts, conv, names, residual
from chipshift.models.fields import Fields
from chipshift.models.model import Layer, Model, Tower

DOWN = ("DownEncoderBlock2D",)
UP = ("UpDecoderBlock2D",)


def autoencoder(c: Fields) -> Model:
    """Both ways: residual blocks that no time shifts, attention in the middle of each."""
    down, up = names(c, "down_block_types", DOWN, DOWN), names(c, "up_block_types", UP, UP)
    widths = c.counts("block_out_channels", least=1, length=len(down)) or [64]
    if len(up) != len(down) or len(widths) != len(down):
        raise c.wrong("up_block_types", f"as many as down_block_types has, {len(down)}")
    blocks, latent = c.count("layers_per_block", default=1), c.count("latent_channels", default=4)
    side = c.count("sample_size", default=32)
    sides = [side >> i for i in range(len(widths))]
    attends = c.flag("mid_block_add_attention", default=True)
    low, at = widths[-1], sides[-1]
    whole = Parts((conv("conv_in", c.count("in_channels", default=3), widths[0], 3, side),))
    inputs = widths[0]
    for i, width in enumerate(widths):
        whole += _blocks(inputs, width, blocks, sides[i])
        inputs = width
        if i + 1 < len(widths):
            whole += Parts((conv("downsample", width, width, 3, sides[i + 1]),))
    whole += _middle(low, at, attends) + Parts((conv("conv_out", low, 2 * latent, 3, at),))
    if c.flag("use_quant_conv", default=True):
        whole += Parts((conv("quant", 2 * latent, 2 * latent, 1, at),))
    if c.flag("use_post_quant_conv", default=True):
        whole += Parts((conv("post_quant", latent, latent, 1, at),))
    whole += Parts((conv("into_decoder", latent, low, 3, at),)) + _middle(low, at, attends)
    inputs = low
    for i in reversed(range(len(widths))):
        whole += _blocks(inputs, widths[i], blocks + 1, sides[i])
        inputs = widths[i]
        if i:
            whole += Parts((conv("upsample", inputs, inputs, 3, sides[i - 1]),))
    colours = c.count("out_channels", default=3)
    whole += Parts((conv("decoder_out", widths[0], colours, 3, side),))
    return Model(
        name="",
        architecture="autoencoder",
        d_model=widths[0],
        vocab=0,
        layers=(),
        layer_order=(),
        tied=True,
        has_head=False,
        tokens=side * side,
        towers=whole.towers,
        convs=whole.convs,
        other_params=whole.norm_params + 2 * (widths[0] + low),  # the last norm of each way
    )


def _blocks(inputs: int, width: int, count: int, side: int) -> Parts:
    whole = Parts()
    for _ in range(count):
        whole += replace(residual(inputs, width, 0, side), maps=())
        inputs = width
    return whole


def _middle(width: int, side: int, attends: bool) -> Parts:
    """Two residual blocks, attention of one head over all points between."""
    whole = _blocks(width, width, 2, side)
    if not attends:
        return whole
    layer = Layer(attention(width, 1), None, 2 * width)
    return whole + Parts(towers=(Tower("attention", width, ((layer, 1),), (0,), tokens=side**2),))
