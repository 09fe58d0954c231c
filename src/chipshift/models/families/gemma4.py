"""Gemma 4: wider heads where a layer sees everything, experts beside a feed-forward, inputs of
their own for each layer, and towers that see and hear.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.blocks import linear
from chipshift.models.families.decoder import (
    MOST_LAYERS,
    assemble,
    d_model,
    gqa,
    n_layers,
    runs,
    windows,
)
from chipshift.models.families.ears import conformer_block
from chipshift.models.families.llama import attention_bias
from chipshift.models.families.moe import routed
from chipshift.models.fields import Default, Fields
from chipshift.models.model import (
    Attention,
    Conv,
    DenseMlp,
    Layer,
    Model,
    MoeMlp,
    Projection,
    Tower,
)


def gemma4(c: Fields) -> Model:
    """The language model under ``text_config`` and the towers that the config has."""
    text = gemma4_text(c.part("text_config"))
    towers: list[Tower] = []
    if c.has("vision_config"):
        towers.append(_eye(c.part("vision_config"), text.d_model))
    else:
        c.defaults.append(Default("vision_config", "none"))
    if c.has("audio_config"):
        towers.append(_ear(c.part("audio_config"), text.d_model))
    tied = c.flag("tie_word_embeddings", default=True)
    return replace(text, architecture="gemma4", tied=tied, towers=tuple(towers))


def gemma4_text(c: Fields) -> Model:
    """Five sliding layers, then one that sees all with heads of ``global_head_dim``."""
    c = c.having(
        vocab_size=262_144,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=30,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        sliding_window=512,
    )
    count, width = n_layers(c), d_model(c)
    slides = [one is not None for one in windows(c, [(i + 1) % 6 != 0 for i in range(count)])]
    slides[-1] = False  # whatever the list says
    borrowed = count - c.count("num_kv_shared_layers", default=0, least=0)
    local, wide = _local(c), _wide(c)
    double = 2 if c.flag("use_double_wide_mlp", default=False) else 1
    own = c.count("hidden_size_per_layer_input", default=256, least=0)
    maps = (
        Projection("per_layer_input_gate", width, own),
        Projection("per_layer_projection", own, width),
    )
    layers = []
    for i, sliding in enumerate(slides):
        shared = i >= borrowed
        mlp = _feed_forward(c, double if shared else 1)
        norms = 4 + (own > 0) + 3 * isinstance(mlp, MoeMlp)
        mixer = _borrowing(local if sliding else wide, shared)
        layers.append(Layer(mixer, mlp, norms * width, projections=maps if own else ()))
    table = c.count("vocab_size_per_layer_input", default=262_144) * count * own if own else 0
    model = assemble(
        c,
        layers,
        tied=c.flag("tie_word_embeddings", default=True),
        final_norm_params=width + own,
        embedding_extra_params=table,
    )
    into = (Projection("per_layer_model_projection", width, count * own),) if own else ()
    return replace(model, projections=into)


def _local(c: Fields) -> Attention:
    return gqa(c, bias=attention_bias(c), norm="head", window=c.count("sliding_window"))


def _wide(c: Fields) -> Attention:
    """A layer that sees all: by ``attention_k_eq_v`` its values are its keys."""
    same = c.flag("attention_k_eq_v", default=False)
    few = c.maybe("num_global_key_value_heads", most=100_000) if same else None
    kv_heads = few or c.count("num_key_value_heads", most=100_000)
    head_dim = c.count("global_head_dim", default=512)
    own = c.replaced(head_dim=head_dim, num_key_value_heads=kv_heads)
    bias = attention_bias(c)
    made = gqa(own, bias=bias.replace("v", "") if same else bias, norm="head")
    return replace(made, values_are_keys=same)


def _borrowing(attention: Attention, borrows: bool) -> Attention:
    """Attention that reads an earlier layer's keys: no k and v, no norm over keys, no bias."""
    if not borrows:
        return attention
    bias = attention.heads * attention.head_dim if attention.bias_params else 0
    made = attention.kv_heads * (2 - attention.values_are_keys) * attention.head_dim
    return replace(
        attention,
        kv_shared=True,
        norm_params=attention.head_dim,
        bias_params=attention.bias_params - made if bias else 0,
    )


def _feed_forward(c: Fields, times: int) -> DenseMlp | MoeMlp:
    """A feed-forward; with experts it runs beside them at every token, behind scales learned a
    channel and an expert."""
    inner = times * c.count("intermediate_size")
    if not c.flag("enable_moe_block", default=False):
        return DenseMlp(inner)
    experts = routed(
        c,
        c.count("num_experts", most=100_000),
        c.count("top_k_experts", "num_experts_per_tok"),
        c.count("moe_intermediate_size"),
        shared_width=inner,
    )
    return replace(experts, router_params=experts.router_params + d_model(c) + experts.experts)


def _eye(v: Fields, outputs: int) -> Tower:
    """A tower of Gemma's own blocks without biases, its patches by one map; pooled, then mapped."""
    v = v.having(
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=16,
        num_attention_heads=12,
        num_key_value_heads=12,
        head_dim=64,
    )
    width, patch = d_model(v), v.count("patch_size", default=16, most=10_000)
    mixer = replace(gqa(v, bias=attention_bias(v), norm="head"), causal=False)
    block = Layer(mixer, DenseMlp(v.count("intermediate_size")), 4 * width)
    kinds, order = runs([block] * n_layers(v))
    pooled = v.count("pooling_kernel_size", default=3, most=1000) ** 2
    return Tower(
        "vision",
        width,
        kinds,
        order,
        projections=(
            linear("x_embedder", 3 * patch**2, width, bias=False),
            linear("embedding_projection", width, outputs, bias=False, every=pooled),
        ),
        other_params=2 * v.count("position_embedding_size", default=10_240) * width,
    )


def _ear(a: Fields, outputs: int) -> Tower:
    """A conformer: two halves of a feed-forward around attention by distance and a convolution."""
    a = a.having(hidden_size=1024, num_attention_heads=8, num_hidden_layers=12)
    width, heads = d_model(a), a.count("num_attention_heads", most=100_000)
    if width % heads:
        raise a.conflict(f"{heads} attention heads do not divide the width {width}")
    reach = a.count("attention_context_left", default=13)
    reach += a.count("attention_context_right", default=0, least=0)
    taps = a.count("conv_kernel_size", default=5, most=10_000)
    block = conformer_block(width, heads, reach, taps)
    kinds, order = runs([block] * a.count("num_hidden_layers", most=MOST_LAYERS))
    first, second = a.counts("subsampling_conv_channels", least=1, length=2) or [128, 32]
    frequencies = first // 4  # as the reference has it, of 128 frequencies by two strides of two
    final = a.count("output_proj_dims", default=1536)
    return Tower(
        "audio",
        width,
        kinds,
        order,
        convs=(
            Conv("stem", 1, first, 9, per_token=4 * frequencies),
            Conv("subsampling", first, second, 9, per_token=frequencies),
        ),
        projections=(
            linear("input_proj", frequencies * second, width, bias=False),
            linear("output_proj", width, final),
            linear("embedding_projection", final, outputs, bias=False),
        ),
        other_params=first + second,
    )
