"""Towers that hear, in parts that families share: Whisper's encoder, Gemma's conformer block,
convolutions that thin out mel frames by steps of two.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

from chipshift.models.families.blocks import attention, classic, feed_forward, heads_of, linear
from chipshift.models.families.decoder import MOST_LAYERS, runs
from chipshift.models.fields import Fields
from chipshift.models.model import Conv, Layer, Projection, Tower


def conformer_block(width: int, heads: int, reach: int, taps: int) -> Layer:
    """Gemma's: two halves of a feed-forward around attention by distance and a convolution.

    Args:
        reach: frames that a frame attends to; taps: of the convolution along time.
    """
    return Layer(
        attention(width, heads, bias="", causal=True, window=reach),
        feed_forward(width, 4 * width, bias=False),
        9 * width,
        projections=(
            linear("second.1", width, 4 * width, bias=False),
            linear("second.2", 4 * width, width, bias=False),
            linear("conv.start", width, 2 * width, bias=False),
            linear("conv.end", width, width, bias=False),
            linear("relative_position", width, width, bias=False, once=True),
        ),
        other_params=width // heads,
        convs=(Conv("conv.depthwise", width, width, taps, groups=width),),
    )


def thinned(channels: int, frequencies: int, steps: int) -> tuple[tuple[Conv, ...], int]:
    """(3 × 3 convolutions by steps of two over mel frames, frequencies that are left)."""
    convs, inputs = [], 1
    for step in range(steps):
        frequencies = (frequencies + 1) // 2
        rows = frequencies << (steps - 1 - step)
        name = "subsampling" if step else "stem"
        convs.append(Conv(name, inputs, channels, 9, bias_params=channels, per_token=rows))
        inputs = channels
    return tuple(convs), frequencies


def whisper_ear(a: Fields, name: str, table: bool = True) -> Tower:
    """Whisper's encoder: two convolutions over mel frames, the second of stride 2; no bias on keys.

    Args:
        table: its positions are parameters.
    """
    width = a.count("d_model", "hidden_size", default=1280)
    frames = a.count("max_source_positions", default=1500)
    mels = a.count("num_mel_bins", default=80)
    a = a.having(encoder_attention_heads=20, encoder_ffn_dim=5120, encoder_layers=32)
    own = attention(width, heads_of(a, width, "encoder_attention_heads"), bias="qvo")
    block = Layer(own, feed_forward(width, a.count("encoder_ffn_dim")), 4 * width)
    kinds, order = runs([block] * a.count("encoder_layers", most=MOST_LAYERS))
    return Tower(
        name,
        width,
        kinds,
        order,
        tokens=frames,
        convs=(
            Conv("conv1", mels, width, 3, 2 * frames, bias_params=width),
            Conv("conv2", width, width, 3, frames, bias_params=width),
        ),
        embedding_params=frames * width * table,
        other_params=2 * width,
    )


def qwen3_ear(a: Fields, projected: bool = True) -> Tower:
    """Qwen3-Omni's and Qwen3-ASR's: Whisper's blocks behind three convolutions by steps of two.

    Args:
        projected: the two maps to the language model are the tower's own.
    """
    width = a.count("d_model", default=1280)
    heads = heads_of(a.having(encoder_attention_heads=20), width, "encoder_attention_heads")
    block = classic(width, heads, a.count("encoder_ffn_dim", default=5120))
    kinds, order = runs([block] * a.count("encoder_layers", default=32, most=MOST_LAYERS))
    channels = a.count("downsample_hidden_size", default=480)
    convs, frequencies = thinned(channels, a.count("num_mel_bins", default=128), 3)
    maps: tuple[Projection, ...] = (linear("conv_out", channels * frequencies, width, bias=False),)
    if projected:
        outputs = a.count("output_dim", default=3584)
        maps += (linear("proj1", width, width), linear("proj2", width, outputs))
    # the norm stands behind the blocks
    return Tower("audio", width, kinds, order, None, convs, maps, 0, 2 * width)
