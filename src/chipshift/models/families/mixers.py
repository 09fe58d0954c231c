"""Recurrent token mixers: Mamba, Mamba-2, the gated delta rule, linear attention, RG-LRU.

Shapes as transformers 5.24 builds them.
"""

from __future__ import annotations

from chipshift.models.model import Projection, Recurrent


def mamba(
    d_model: int,
    inner: int,
    state: int,
    conv: int,
    rank: int,
    *,
    bias: bool = False,
    conv_bias: bool = True,
    inner_norms: bool = False,
) -> Recurrent:
    """Mamba: a state of ``inner`` channels × ``state``, steps from a map of rank ``rank``.

    Args:
        inner_norms: norms over the step, B and C (Jamba).
    """
    return Recurrent(
        kind="mamba",
        heads=inner,
        key_dim=state,
        value_dim=1,
        projections=(
            Projection("in_proj", d_model, 2 * inner),
            Projection("x_proj", inner, rank + 2 * state),
            Projection("dt_proj", rank, inner),
            Projection("out_proj", inner, d_model),
        ),
        conv_channels=inner,
        conv_width=conv,
        # the step's own bias is always there
        bias_params=inner + bias * (2 * inner + d_model) + conv_bias * inner,
        norm_params=inner_norms * (rank + 2 * state),
        other_params=inner * state + inner,
    )


def mamba2(
    d_model: int,
    heads: int,
    head_dim: int,
    state: int,
    groups: int,
    conv: int,
    *,
    bias: bool = False,
    conv_bias: bool = True,
    norm: bool = True,
) -> Recurrent:
    """Mamba-2: heads of ``head_dim`` × ``state``, B and C shared by the heads of a group."""
    inner = heads * head_dim
    channels = inner + 2 * groups * state
    return Recurrent(
        kind="mamba2",
        heads=heads,
        key_dim=state,
        value_dim=head_dim,
        projections=(
            Projection("in_proj", d_model, inner + channels + heads),
            Projection("out_proj", inner, d_model),
        ),
        conv_channels=channels,
        conv_width=conv,
        bias_params=bias * (inner + channels + heads + d_model) + conv_bias * channels,
        norm_params=norm * inner,
        other_params=3 * heads,
    )


def gated_delta(
    d_model: int, key_heads: int, value_heads: int, key_dim: int, value_dim: int, conv: int
) -> Recurrent:
    """Gated DeltaNet (Qwen3-Next): q, k of the key heads; v, z, β and decay of the value heads."""
    keys, values = key_heads * key_dim, value_heads * value_dim
    return Recurrent(
        kind="gated_delta",
        heads=value_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        projections=(
            Projection("in_proj_qkvz", d_model, 2 * keys + 2 * values),
            Projection("in_proj_ba", d_model, 2 * value_heads),
            Projection("out_proj", values, d_model),
        ),
        conv_channels=2 * keys + values,
        conv_width=conv,
        norm_params=value_dim,
        other_params=2 * value_heads,
    )


def lightning(d_model: int, heads: int, head_dim: int) -> Recurrent:
    """MiniMax-01's lightning attention: linear attention with a decay a head and an output gate."""
    width = heads * head_dim
    return Recurrent(
        kind="lightning",
        heads=heads,
        key_dim=head_dim,
        value_dim=head_dim,
        projections=(
            Projection("qkv_proj", d_model, 3 * width),
            Projection("output_gate", d_model, width),
            Projection("out_proj", width, d_model),
        ),
        norm_params=width,
    )


def short_conv(d_model: int, conv: int, bias: bool) -> Recurrent:
    """LFM2's gated short convolution: two gates and the convolved channels in, one out."""
    return Recurrent(
        kind="short_conv",
        heads=d_model,
        key_dim=conv,
        value_dim=1,
        projections=(
            Projection("in_proj", d_model, 3 * d_model),
            Projection("out_proj", d_model, d_model),
        ),
        conv_channels=d_model,
        conv_width=conv,
        bias_params=bias * 5 * d_model,
    )


def rg_lru(d_model: int, width: int, heads: int, conv: int) -> Recurrent:
    """RecurrentGemma's block: two branches, one convolved and passed through a gated recurrence."""
    block = width // heads
    return Recurrent(
        kind="rg_lru",
        heads=width,
        key_dim=1,
        value_dim=1,
        projections=(
            Projection("linear_x", d_model, width),
            Projection("linear_y", d_model, width),
            Projection("linear_out", width, d_model),
            # block-diagonal: each channel meets the channels of its own head
            Projection("input_gate", width, block),
            Projection("recurrent_gate", width, block),
        ),
        conv_channels=width,
        conv_width=conv,
        bias_params=2 * width + d_model + width + 2 * width,
        other_params=width,
    )


def kimi_delta(d_model: int, heads: int, head_dim: int, conv: int) -> Recurrent:
    """Kimi Delta Attention: the delta rule with a decay a channel; decay and output gate by maps
    of rank ``head_dim``."""
    width = heads * head_dim
    return Recurrent(
        kind="gated_delta",
        heads=heads,
        key_dim=head_dim,
        value_dim=head_dim,
        projections=(
            Projection("qkv_proj", d_model, 3 * width),
            Projection("b_proj", d_model, heads),
            Projection("f_a_proj", d_model, head_dim),
            Projection("f_b_proj", head_dim, width),
            Projection("g_a_proj", d_model, head_dim),
            Projection("g_b_proj", head_dim, width),
            Projection("o_proj", width, d_model),
        ),
        conv_channels=3 * width,
        conv_width=conv,
        norm_params=head_dim,
        other_params=width + heads,
    )
