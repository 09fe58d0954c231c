"""MobileNet V5, the eye of Gemma 3n: convolutions with multi-query attention between them.

Block table: timm 1.0.20, models/mobilenetv5.py (``mobilenetv5_300m_enc``), layouts of the blocks:
models/_efficientnet_blocks.py and layers/attention2d.py, 2025. Every convolution is followed by a
norm with a scale a channel; paddings are such that a stride of s leaves ⌈n/s⌉ of n positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chipshift.models.model import Conv, Layer, Tower

SIDE = 768
"""Pixels that Gemma 3n's processor makes each side of an image (preprocessor_config.json, 2025)."""
TOKENS = 256
"""Positions that the fusion of the last two stages pools to, 16 × 16."""
OUTPUTS = 2048


@dataclass(frozen=True)
class Fused:
    """A k × k convolution that widens, then one by one back."""

    outputs: int
    expansion: int
    stride: int = 1
    kernel: int = 3


@dataclass(frozen=True)
class Inverted:
    """A universal inverted bottleneck: depthwise, one by one up, depthwise, one by one down.

    Attributes:
        before, middle: taps along a side of its depthwise convolutions, 0 = none; the stride is
            the middle one's.
    """

    outputs: int
    expansion: int
    before: int = 0
    middle: int = 0
    stride: int = 1
    scaled: bool = True


@dataclass(frozen=True)
class Attending:
    """Multi-query attention over an image's positions.

    Attributes:
        thinned: stride of the 3 × 3 depthwise convolutions before keys and values.
    """

    outputs: int
    heads: int
    head_dim: int
    thinned: int = 1


Block = Fused | Inverted | Attending

BLOCKS: tuple[tuple[Block, ...], ...] = (
    (Fused(128, 4, 2), Fused(128, 4), Fused(128, 4)),
    (Inverted(256, 6, 3, 5, 2), *(Inverted(256, 4, before) for before in (5, 3, 5, 3))),
    (
        *(Inverted(640, 6, 5, 5, 2), *(Inverted(640, 4, 5),) * 7, Inverted(640, 1)),
        *(Attending(640, 12, 64, 2), Inverted(640, 2)) * 14,
    ),
    (Inverted(1280, 6, 5, 5, 2), *(Attending(1280, 16, 96), Inverted(1280, 2)) * 19),
)
"""The four stages of the 300M encoder."""
STEM = 64


def mobilenet_v5(side: int = SIDE) -> Tower:
    """The encoder on images of ``side`` × ``side`` pixels."""
    at = _thinned(side, 2)
    stem = Conv("stem", 3, STEM, 9, at * at, bias_params=STEM)
    layers = [Layer(None, None, STEM, convs=(stem,))]
    width, fused, fused_at = STEM, 0, 0
    for number, stage in enumerate(BLOCKS):
        for block in stage:
            layers.append(_layer(block, width, at))
            at = _thinned(at, getattr(block, "stride", 1))
            width = block.outputs
        if number == len(BLOCKS) - 2:
            fused_at = at
        if number >= len(BLOCKS) - 2:
            fused += width
    # the last stage is spread to the positions of the one before, both fused, normed and pooled
    fusion = _layer(Inverted(OUTPUTS, 2, scaled=False), fused, fused_at)
    layers.append(fusion)
    kinds = list(dict.fromkeys(layers))
    runs = tuple((kind, layers.count(kind)) for kind in kinds)
    order = tuple(kinds.index(layer) for layer in layers)
    return Tower("vision", OUTPUTS, runs, order, tokens=TOKENS, other_params=OUTPUTS)


def _thinned(positions: int, stride: int) -> int:
    return -(-positions // stride)


def _layer(block: Block, width: int, at: int) -> Layer:
    """A block that reads ``width`` channels at ``at`` × ``at`` positions."""
    if isinstance(block, Attending):
        return _attending(block, width, at)
    convs = tuple(_fused(block, width, at) if isinstance(block, Fused) else
                  _inverted(block, width, at))  # fmt: skip
    norms = sum(conv.outputs for conv in convs)
    scale = block.outputs if isinstance(block, Inverted) and block.scaled else 0
    return Layer(None, None, norms, other_params=scale, convs=convs)


def _fused(b: Fused, width: int, at: int) -> Iterator[Conv]:
    wide, left = width * b.expansion, _thinned(at, b.stride) ** 2
    yield Conv("expand", width, wide, b.kernel**2, left)
    yield Conv("project", wide, b.outputs, 1, left)


def _inverted(b: Inverted, width: int, at: int) -> Iterator[Conv]:
    wide, left = width * b.expansion, _thinned(at, b.stride) ** 2
    if b.before:
        yield Conv("depthwise", width, width, b.before**2, at * at, groups=width)
    yield Conv("expand", width, wide, 1, at * at)
    if b.middle:
        yield Conv("depthwise", wide, wide, b.middle**2, left, groups=wide)
    yield Conv("project", wide, b.outputs, 1, left)


def _attending(b: Attending, width: int, at: int) -> Layer:
    """Norm, queries of every head, one key and one value of all, and the way back."""
    positions, keys = at * at, _thinned(at, b.thinned) ** 2
    wide = b.heads * b.head_dim
    convs = [Conv("query", width, wide, 1, positions)]
    norms = width
    for name in ("key", "value"):
        if b.thinned > 1:
            convs.append(Conv("depthwise", width, width, 9, keys, groups=width))
            norms += width
        convs.append(Conv(name, width, b.head_dim, 1, keys))
    convs.append(Conv("output", wide, b.outputs, 1, positions))
    # scores and the weighted sum of values: a multiply-add is 2 FLOP
    mixing = 2 * 2 * positions * keys * wide
    return Layer(None, None, norms, other_params=b.outputs, convs=tuple(convs),
                 mixing_flops=mixing)  # fmt: skip
