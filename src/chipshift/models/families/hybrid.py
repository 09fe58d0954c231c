"""Decoders with recurrent layers, alone or among layers of attention.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from chipshift.models.families import mixers
from chipshift.models.families.decoder import (
    MOST_LAYERS,
    assemble,
    d_model,
    gqa,
    mlp,
    n_layers,
)
from chipshift.models.families.llama import attention_bias
from chipshift.models.families.moe import local_experts, routed, sparse_layers
from chipshift.models.fields import Fields
from chipshift.models.model import Attention, DenseMlp, Layer, Model, MoeMlp, Projection, Recurrent

LINEAR = {"linear_attention": "linear", "mamba": "linear", "conv": "linear", "recurrent": "linear"}
FULL = {"full_attention": "full", "attention": "full"}


def kinds_of(c: Fields, key: str, default: Sequence[str]) -> list[str]:
    """``linear`` or ``full`` a layer, from ``layer_types`` or the like, else the default."""
    known = {**LINEAR, **FULL}
    listed = c.names(key, tuple(known), n_layers(c))
    return [known[one] for one in listed] or list(default)


def _only(c: Fields, mixer: Recurrent, tied: bool) -> Model:
    """A decoder of nothing but recurrent blocks under one norm each."""
    block = Layer(None, None, d_model(c), mixer)
    return assemble(
        c,
        [block] * n_layers(c),
        tied=c.flag("tie_word_embeddings", default=tied),
        final_norm_params=d_model(c),
    )


def mamba(c: Fields) -> Model:
    """Mamba and Falcon-Mamba."""
    width = d_model(c)
    rank = math.ceil(width / 16)
    if c.values.get("time_step_rank") != "auto":
        rank = c.count("time_step_rank", default=rank)
    mixer = mixers.mamba(
        width,
        c.count("intermediate_size", "d_inner", default=width * c.count("expand", default=2)),
        c.count("state_size", default=16),
        c.count("conv_kernel", default=4),
        rank,
        bias=c.flag("use_bias", default=False),
        conv_bias=c.flag("use_conv_bias", default=True),
    )
    return _only(c, mixer, tied=True)


def mamba2(c: Fields) -> Model:
    """Mamba-2."""
    c = c.having(num_heads=128, head_dim=64)
    mixer = mixers.mamba2(
        d_model(c),
        c.count("num_heads"),
        c.count("head_dim"),
        c.count("state_size", default=128),
        c.count("n_groups", default=8),
        c.count("conv_kernel", default=4),
        bias=c.flag("use_bias", default=False),
        conv_bias=c.flag("use_conv_bias", default=True),
    )
    return _only(c, mixer, tied=False)


def _mamba2_block(c: Fields, prefix: str = "mamba_", norm: bool = True) -> Recurrent:
    """Mamba-2 by the keys that Bamba, Granite 4 and Falcon-H1 share."""
    heads = c.count(f"{prefix}n_heads", default=128)
    inner = c.maybe(f"{prefix}d_ssm") or d_model(c) * c.count(f"{prefix}expand", default=2)
    head_dim = inner // heads
    if c.values.get(f"{prefix}d_head") != "auto":
        head_dim = c.count(f"{prefix}d_head", default=max(head_dim, 1))
    return mixers.mamba2(
        d_model(c),
        heads,
        head_dim,
        c.count(f"{prefix}d_state", default=256),
        c.count(f"{prefix}n_groups", default=1),
        c.count(f"{prefix}d_conv", default=4),
        bias=c.flag(f"{prefix}proj_bias", default=False),
        conv_bias=c.flag(f"{prefix}conv_bias", default=True),
        norm=norm,
    )


def bamba(c: Fields) -> Model:
    """Bamba: Mamba-2 blocks, attention at ``attn_layer_indices``, a feed-forward in each."""
    full = set(c.counts("attn_layer_indices"))
    attention, mixer = gqa(c, bias=attention_bias(c), kv_default=8), _mamba2_block(c)
    feed_forward = mlp(c, bias=c.flag("mlp_bias", default=False))
    default = ["full" if i in full else "linear" for i in range(n_layers(c))]
    kinds = kinds_of(c, "layer_types", default)
    layers = [_block(c, kind, attention, mixer, feed_forward) for kind in kinds]
    return _ends(c, layers)


def _block(
    c: Fields,
    kind: str,
    attention: Attention,
    mixer: Recurrent,
    feed_forward: DenseMlp | MoeMlp,
) -> Layer:
    """A block of either kind under two norms."""
    if kind == "full":
        return Layer(attention, feed_forward, 2 * d_model(c))
    return Layer(None, feed_forward, 2 * d_model(c), mixer)


def _ends(c: Fields, layers: Sequence[Layer], tied: bool = False, final: int = 1) -> Model:
    """Embedding, blocks, last norm and head."""
    return assemble(
        c,
        layers,
        tied=c.flag("tie_word_embeddings", default=tied),
        final_norm_params=final * d_model(c),
    )


def jamba(c: Fields) -> Model:
    """Jamba: Mamba with inner norms, attention and experts each at a period and an offset."""
    width, count = d_model(c), n_layers(c)
    rank = math.ceil(width / 16)
    if c.values.get("mamba_dt_rank") != "auto":
        rank = c.count("mamba_dt_rank", default=rank)
    mixer = mixers.mamba(
        width,
        width * c.count("mamba_expand", default=2),
        c.count("mamba_d_state", default=16),
        c.count("mamba_d_conv", default=4),
        rank,
        bias=c.flag("mamba_proj_bias", default=False),
        conv_bias=c.flag("mamba_conv_bias", default=True),
        inner_norms=True,
    )
    attention, dense = gqa(c, kv_default=8), mlp(c)
    period = c.count("attn_layer_period", default=8)
    offset = c.count("attn_layer_offset", default=4, least=0)
    experts, top_k, expert_width = local_experts(c, 16, 2)
    moe = routed(c, experts, top_k, expert_width) if experts > 1 else dense
    moe_period = c.count("expert_layer_period", default=2)
    moe_offset = c.count("expert_layer_offset", default=1, least=0)
    default = ["full" if i % period == offset else "linear" for i in range(count)]
    kinds = kinds_of(c, "layers_block_type", default)
    return _ends(
        c,
        [
            _block(c, kind, attention, mixer, moe if i % moe_period == moe_offset else dense)
            for i, kind in enumerate(kinds)
        ],
    )


def granitemoehybrid(c: Fields) -> Model:
    """Granite 4: Mamba-2 or attention, a shared feed-forward in each block, experts if any."""
    attention, mixer = gqa(c, bias=attention_bias(c)), _mamba2_block(c)
    shared = c.count("shared_intermediate_size", default=1024)
    experts = c.count("num_local_experts", default=8, least=0, most=100_000)
    feed_forward: DenseMlp | MoeMlp = DenseMlp(shared)
    if experts:
        feed_forward = routed(c, *local_experts(c, 8, 2), shared_width=shared)
    kinds = kinds_of(c, "layer_types", ["linear"] * n_layers(c))
    return _ends(c, [_block(c, kind, attention, mixer, feed_forward) for kind in kinds])


def falcon_h1(c: Fields) -> Model:
    """Falcon-H1: attention and Mamba-2 side by side in each block."""
    normed = c.flag("mamba_rms_norm", default=False)
    mixer = _mamba2_block(c.having(mamba_d_ssm=1024), norm=normed)
    # the way out has a key of its own
    out = c.flag("projectors_bias", default=False) - c.flag("mamba_proj_bias", default=False)
    mixer = replace(mixer, bias_params=mixer.bias_params + out * d_model(c))
    block = Layer(
        gqa(c, bias=attention_bias(c), kv_default=8),
        mlp(c, bias=c.flag("mlp_bias", default=False)),
        2 * d_model(c),
        mixer,
    )
    return _ends(c, [block] * n_layers(c))


PATTERN = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
TYPES = {"linear_attention": "mamba", "full_attention": "attention"}


def nemotron_h(c: Fields) -> Model:
    """Nemotron-H and Nemotron 3: each block is one of Mamba-2, attention, feed-forward, experts."""
    kinds = _nemotron_kinds(c)
    c = c.having(head_dim=128, num_attention_heads=32, intermediate_size=21_504)
    c = c.replaced(num_hidden_layers=len(kinds))
    width, bias = d_model(c), c.flag("mlp_bias", default=False)
    mixer = mixers.mamba2(
        width,
        c.count("mamba_num_heads", default=128),
        c.count("mamba_head_dim", default=64),
        c.count("ssm_state_size", default=128),
        c.count("n_groups", "mamba_n_groups", default=8),
        c.count("conv_kernel", "mamba_d_conv", default=4),
        bias=c.flag("use_bias", default=False),
        conv_bias=c.flag("use_conv_bias", "mamba_conv_bias", default=True),
    )
    blocks = {
        "mamba": Layer(None, None, width, mixer),
        # the reference gives these no bias whatever ``attention_bias`` says
        "attention": Layer(gqa(c, kv_default=8, window=c.maybe("sliding_window")), None, width),
        "mlp": Layer(None, mlp(c, matrices=2, bias=bias), width),
    }
    if "moe" in kinds:
        blocks["moe"] = _nemotron_moe(c, bias)
    return _ends(c, [blocks[kind] for kind in kinds])


def _nemotron_kinds(c: Fields) -> list[str]:
    """The kind of each block, from a pattern such as ``M-M*-`` or from a list."""
    if c.has("hybrid_override_pattern"):
        pattern = c.text("hybrid_override_pattern")
        if not pattern or not set(pattern) <= set(PATTERN) or len(pattern) > MOST_LAYERS:
            raise c.wrong("hybrid_override_pattern", f"a word of the letters {' '.join(PATTERN)}")
        return [PATTERN[letter] for letter in pattern]
    for key in ("layers_block_type", "layer_types"):
        listed = c.values.get(key)
        if isinstance(listed, (list, tuple)) and 0 < len(listed) <= MOST_LAYERS:
            names = c.names(key, (*TYPES, *PATTERN.values()), len(listed))
            return [TYPES.get(name, name) for name in names]
    raise c.conflict(
        "neither hybrid_override_pattern nor layers_block_type is given;"
        " expected the kind of each layer"
    )


def _nemotron_moe(c: Fields, bias: bool) -> Layer:
    """Squared-ReLU experts, which may work in a latent narrower than the model."""
    width = d_model(c)
    # how many experts share it is not asked: the width is of all of them
    shared = c.count("moe_shared_expert_intermediate_size", default=7688)
    moe = routed(
        c,
        c.count("n_routed_experts", default=8, most=100_000),
        c.count("num_experts_per_tok", default=2),
        c.count("moe_intermediate_size", default=7688),
        matrices=2,
        shared_width=shared,
    )
    moe = replace(moe, shared_bias_params=bias * (shared + width) * (shared > 0))
    latent = c.maybe("moe_latent_size")
    if latent is None:
        return Layer(None, moe, width)
    maps = (
        Projection("fc1_latent_proj", width, latent, bias * latent),
        Projection("fc2_latent_proj", latent, width, bias * width),
    )
    return Layer(None, replace(moe, latent_width=latent), width, projections=maps)


def qwen3_next(c: Fields) -> Model:
    """Qwen3-Next: three layers of gated delta rule, one of gated attention; experts in each."""
    moe = routed(
        c,
        c.count("num_experts", default=512, most=100_000),
        c.count("num_experts_per_tok", default=10),
        c.count("moe_intermediate_size", default=512),
        shared_width=c.count("shared_expert_intermediate_size", default=512),
        shared_gate=True,
    )
    sparse = sparse_layers(c)
    dense = moe if all(sparse) else mlp(c)
    return _gated(c, [moe if one else dense for one in sparse])


def qwen3_5_moe(c: Fields) -> Model:
    """Qwen3.5's mixtures: Qwen3-Next's layers, experts in each."""
    return qwen3_next(c.having(num_experts=256, num_experts_per_tok=8))


def qwen3_5(c: Fields) -> Model:
    """Qwen3.5's dense models."""
    c = c.having(num_key_value_heads=4)
    return _gated(c, [mlp(c)] * n_layers(c))


def _gated(c: Fields, feed_forward: Sequence[DenseMlp | MoeMlp]) -> Model:
    """Gated delta rule and, at an interval, attention whose output is gated."""
    c = c.having(head_dim=256)
    width = d_model(c)
    attention = gqa(c, bias=attention_bias(c), norm="head", kv_default=2)
    gate = attention.heads * attention.head_dim
    bias = gate if attention.bias_params else 0
    attention = replace(
        attention, gate_params=width * gate, bias_params=attention.bias_params + bias
    )
    mixer = mixers.gated_delta(
        width,
        c.count("linear_num_key_heads", default=16),
        c.count("linear_num_value_heads", default=32),
        c.count("linear_key_head_dim", default=128),
        c.count("linear_value_head_dim", default=128),
        c.count("linear_conv_kernel_dim", default=4),
    )
    every = c.count("full_attention_interval", default=4)
    default = ["linear" if (i + 1) % every else "full" for i in range(n_layers(c))]
    kinds = kinds_of(c, "layer_types", default)
    layers = [
        _block(c, kind, attention, mixer, one)
        for kind, one in zip(kinds, feed_forward, strict=True)
    ]
    further = c.count("mtp_num_hidden_layers", default=0, least=0, most=100)
    return replace(_ends(c, layers), mtp_layers=further)


def minimax(c: Fields) -> Model:
    """MiniMax-01: lightning attention and, every so often, softmax attention; experts in each."""
    attention = gqa(c, kv_default=8)
    mixer = mixers.lightning(d_model(c), attention.heads, attention.head_dim)
    moe = routed(c, *local_experts(c, 8, 2))
    default = ["full" if (i + 1) % 2 else "linear" for i in range(n_layers(c))]
    listed = c.counts("attn_type_list", length=n_layers(c))  # MiniMax's own: 1 is softmax
    default = ["full" if one else "linear" for one in listed] or default
    kinds = kinds_of(c, "layer_types", default)
    return _ends(c, [_block(c, kind, attention, mixer, moe) for kind in kinds])


def lfm2(c: Fields) -> Model:
    """LFM2: gated short convolutions among layers of attention with normed heads."""
    width = c.count("block_ff_dim", "intermediate_size", default=12_288)
    if c.flag("block_auto_adjust_ff_dim", default=True):
        multiple = c.count("block_multiple_of", default=256)
        width = int(c.number("block_ffn_dim_multiplier", default=1.0) * int(2 * width / 3))
        width = -(-width // multiple) * multiple
    full = c.values.get("full_attn_idxs")
    listed = set(range(n_layers(c)) if full is None else c.counts("full_attn_idxs"))
    attention = gqa(c, norm="head", kv_default=8)
    conv = c.count("conv_L_cache", default=3)
    mixer = mixers.short_conv(d_model(c), conv, c.flag("conv_bias", default=False))
    default = ["full" if i in listed else "linear" for i in range(n_layers(c))]
    kinds = kinds_of(c, "layer_types", default)
    layers = [_block(c, kind, attention, mixer, DenseMlp(width)) for kind in kinds]
    return assemble(
        c,
        layers,
        tied=c.flag("tie_embedding", "tie_word_embeddings", default=True),
        final_norm_params=d_model(c),
    )


def recurrent_gemma(c: Fields) -> Model:
    """RecurrentGemma (Griffin): two recurrent blocks, then one of local attention."""
    heads = c.count("num_attention_heads", default=10, most=100_000)
    lru = c.count("lru_width", default=d_model(c))
    mixer = mixers.rg_lru(d_model(c), lru, heads, c.count("conv1d_width", default=4))
    window = c.count("attention_window_size", default=2048)
    letters = "qkvo" if c.flag("attention_bias", default=False) else "o"
    attention = gqa(c, bias=letters, window=window)
    width = c.count("intermediate_size") // 2
    feed_forward = DenseMlp(width, 3, 2 * width + d_model(c))
    pattern = c.values.get("block_types") or c.values.get("_block_types")
    if not isinstance(pattern, (list, tuple)) or not pattern:
        pattern = ["recurrent", "recurrent", "attention"]
    kinds = [FULL.get(str(pattern[i % len(pattern)]), "linear") for i in range(n_layers(c))]
    layers = [_block(c, kind, attention, mixer, feed_forward) for kind in kinds]
    return _ends(c, layers, tied=True)
