"""Convolutional networks: ResNet and ConvNeXt.

Shapes and defaults as transformers 5.24 builds them. A convolution's norm is counted with it, as
the two parameters a channel of ``bias_params``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from chipshift.models.families.blocks import built_as, labels, linear
from chipshift.models.fields import Fields
from chipshift.models.model import Conv, Model


def _normed(name: str, inputs: int, outputs: int, kernel: int, positions: int) -> Conv:
    """A convolution without a bias and the batch norm after it."""
    return Conv(name, inputs, outputs, kernel, positions, bias_params=2 * outputs)


def _model(c: Fields, kind: str, convs: Sequence[Conv], width: int, other: int) -> Model:
    """Convolutions, counted together where equal, and the classes on top."""
    counts: dict[Conv, int] = {}
    for conv in convs:
        counts[conv] = counts.get(conv, 0) + 1
    head = (linear("classifier", width, labels(c), once=True),)
    return Model(
        name="",
        architecture=kind,
        d_model=width,
        vocab=0,
        layers=(),
        layer_order=(),
        tied=True,
        has_head=False,
        projections=() if built_as(c) == "Model" else head,
        convs=tuple(replace(conv, count=n) for conv, n in counts.items()),
        other_params=other,
    )


def _stages(c: Fields, widths: Sequence[int], depths: Sequence[int]) -> tuple[list[int], list[int]]:
    """(widths, depths) of the stages, from the config or as usual.

    Raises:
        InputError: they are not as many, or are none, or add up to more than 10,000 blocks.
    """
    wide = c.counts("hidden_sizes", least=1) or list(widths)
    deep = c.counts("depths", least=1) or list(depths)
    if len(wide) != len(deep) or sum(deep) > 10_000:
        raise c.conflict(
            f"hidden_sizes has {len(wide)} and depths {len(deep)} stages; expected as many"
        )
    return wide, deep


def resnet(c: Fields) -> Model:
    """ResNet: basic or bottleneck blocks, at the image size that it is usually trained with."""
    widths, depths = _stages(c, (256, 512, 1024, 2048), (3, 4, 6, 3))
    basic = c.text("layer_type", default="bottleneck", choices=("basic", "bottleneck")) == "basic"
    early = c.flag("downsample_in_bottleneck", default=False)
    image = c.count("image_size", default=224)
    inputs = c.count("embedding_size", default=64)
    convs = [_normed("stem", c.count("num_channels", default=3), inputs, 49, (image // 2) ** 2)]
    side = image // 4
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        halves = stage > 0 or c.flag("downsample_in_first_stage", default=False)
        for block in range(depth):
            stride = 2 if halves and block == 0 else 1
            before, side = side, side // stride
            if stride > 1 or inputs != width:
                convs.append(_normed("shortcut", inputs, width, 1, side * side))
            if basic:
                convs += [
                    _normed("conv3x3", inputs, width, 9, side * side),
                    _normed("conv3x3", width, width, 9, side * side),
                ]
            else:
                first = side if early else before
                convs += [
                    _normed("conv1x1", inputs, width // 4, 1, first * first),
                    _normed("conv3x3", width // 4, width // 4, 9, side * side),
                    _normed("conv1x1", width // 4, width, 1, side * side),
                ]
            inputs = width
    return _model(c, "resnet", convs, widths[-1], 0)


def convnext(c: Fields) -> Model:
    """ConvNeXt: depthwise 7×7, a norm, two pointwise maps and a scale a channel."""
    scale = c.number("layer_scale_init_value", default=1e-6) > 0
    return _convnext(c, "convnext", scale=scale, responds=False)


def convnextv2(c: Fields) -> Model:
    """ConvNeXt V2: global response normalisation in place of the scale."""
    return _convnext(c, "convnextv2", scale=False, responds=True)


def _convnext(c: Fields, kind: str, *, scale: bool, responds: bool) -> Model:
    widths, depths = _stages(c, (96, 192, 384, 768), (3, 3, 9, 3))
    patch = c.count("patch_size", default=4, most=10_000)
    side = c.count("image_size", default=224) // patch
    inputs, convs, loose = c.count("num_channels", default=3), [], 0
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        if stage:
            side //= 2
            loose += 2 * inputs  # the norm before halving
        kernel = patch * patch if stage == 0 else 4
        name = "downsample" if stage else "stem"
        convs.append(Conv(name, inputs, width, kernel, side**2, bias_params=width))
        loose += 2 * width * (stage == 0)
        for _ in range(depth):
            convs += [
                Conv("depthwise", width, width, 49, side**2, groups=width, bias_params=width),
                Conv("pointwise_up", width, 4 * width, 1, side**2, bias_params=4 * width),
                Conv("pointwise_down", 4 * width, width, 1, side**2, bias_params=width),
            ]
            loose += 2 * width + scale * width + responds * 8 * width
        inputs = width
    return _model(c, kind, convs, widths[-1], loose + 2 * widths[-1])
