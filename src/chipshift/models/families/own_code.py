"""Decoders whose code comes with their checkpoints and not with transformers: the first ChatGLM,
Baichuan, Qwen and InternLM, DeepSeek's first mixture, and networks found by search (DeciLM,
Nemotron-NAS).

Shapes as the ``modeling_*.py`` beside each checkpoint builds them (hub pages of their publishers,
2023 to 2025); the published sizes are tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from chipshift.models.families.decoder import (
    MOST_LAYERS,
    assemble,
    d_model,
    gqa,
    mlp,
    n_layers,
    stack,
)
from chipshift.models.families.llama import attention_bias
from chipshift.models.families.moe import mixed, routed
from chipshift.models.fields import Default, Fields
from chipshift.models.model import DenseMlp, Layer, Model, Projection


def qwen(c: Fields) -> Model:
    """Qwen, the first: biases on q, k and v; each of the two maps in has half the stated width."""
    width = c.count("intermediate_size")
    if width % 2:
        raise c.wrong("intermediate_size", "an even number, which two maps share")
    bias = not c.flag("no_bias", default=True)
    c = c.having(kv_channels=128)
    c = c.replaced(head_dim=c.count("kv_channels"), num_key_value_heads=None)
    feed_forward = DenseMlp(width // 2, 3, bias * (width + d_model(c)))
    return stack(c, gqa(c, bias="qkv" + "o" * bias), feed_forward)


def baichuan(c: Fields) -> Model:
    """Baichuan 1 and 2: Llama's block with as many keys as queries, fused into one map."""
    return stack(c, gqa(c.replaced(num_key_value_heads=None)), mlp(c))


def internlm(c: Fields) -> Model:
    """InternLM, the first: Llama's block, by default with biases on q, k, v and o."""
    bias = "qkvo" * c.flag("bias", default=True)
    return stack(c, gqa(c.replaced(num_key_value_heads=None), bias=bias), mlp(c))


def internlm2(c: Fields) -> Model:
    """InternLM 2 and 2.5: q, k and v fused, biases on attention by ``bias``."""
    return stack(c, gqa(c, bias="qkvo" * c.flag("bias", default=True)), mlp(c))


def chatglm(c: Fields) -> Model:
    """ChatGLM 2 and 3 and GLM-4-9B by their own code; the first ChatGLM, whose block is another."""
    if c.has("inner_hidden_size", "position_encoding_2d"):
        return _chatglm_first(c)
    few = c.flag("multi_query_attention", default=False)
    groups = c.count("multi_query_group_num", default=1, most=100_000) if few else None
    c = c.replaced(
        num_key_value_heads=groups,
        head_dim=c.count("kv_channels", default=128),
        vocab_size=c.count("padded_vocab_size", "vocab_size"),
        max_position_embeddings=c.maybe("seq_length"),
    )
    bias = c.flag("add_bias_linear", default=False)
    letters = "qkvo" if bias else "qkv" * c.flag("add_qkv_bias", default=False)
    each = 1 if c.flag("rmsnorm", default=True) else 2
    last = each * c.flag("post_layer_norm", default=True)
    attention, feed_forward = gqa(c, bias=letters), mlp(c, "ffn_hidden_size", bias=bias)
    return stack(c, attention, feed_forward, norms=2 * each, final=last)


def _chatglm_first(c: Fields) -> Model:
    """ChatGLM-6B: norms and maps with biases, a plain feed-forward, the head tied."""
    c = c.replaced(num_key_value_heads=None, max_position_embeddings=c.maybe("max_sequence_length"))
    feed_forward = mlp(c, "inner_hidden_size", "intermediate_size", matrices=2, bias=True)
    return stack(c, gqa(c, bias="qkvo"), feed_forward, norms=4, final=2, tied=True)


def phi3small(c: Fields) -> Model:
    """Phi-3-small: biases everywhere, a gated feed-forward in one map, the head tied.

    Every other layer's attention is sparse by blocks in its kernel; it is counted whole, and said.
    """
    c = c.having(num_key_value_heads=8)
    if c.has("dense_attention_every_n_layers"):
        c.defaults.append(Default("blocksparse attention", "counted whole"))
    feed_forward = mlp(c, "ff_intermediate_size", "intermediate_size", bias=True)
    return stack(c, gqa(c, bias="qkvo"), feed_forward, norms=4, final=2, tied=True)


def deepseek(c: Fields) -> Model:
    """DeepSeekMoE, the first: plain attention, one dense layer, then routed and shared experts."""
    width = c.count("moe_intermediate_size", default=1407)
    if not c.has("n_routed_experts"):
        return stack(c, gqa(c, bias=attention_bias(c)), mlp(c))
    shared = c.count("n_shared_experts", default=0, least=0, most=100_000)
    experts = routed(
        c,
        c.count("n_routed_experts", most=100_000),
        c.count("num_experts_per_tok"),
        width,
        shared_width=shared * width,
    )
    first = c.count("first_k_dense_replace", default=0, least=0)
    every = c.count("moe_layer_freq", default=1, most=MOST_LAYERS)
    sparse = [i >= first and i % every == 0 for i in range(n_layers(c))]
    return stack(c, gqa(c, bias=attention_bias(c)), mixed(c, sparse, experts))


def decilm(c: Fields) -> Model:
    """DeciLM and Nemotron-NAS: each layer is Llama's block with its own numbers, or parts of it."""
    count = n_layers(c)
    if c.has("num_key_value_heads_per_layer"):
        each = c.counts("num_key_value_heads_per_layer", least=1, length=count)
        bias = attention_bias(c)
        attention = [gqa(c.replaced(num_key_value_heads=heads), bias=bias) for heads in each]
        return stack(c, attention, mlp(c, bias=c.flag("mlp_bias", default=False)))
    layers = [_searched(c, block) for block in _blocks(c, count)]
    return assemble(
        c,
        layers,
        tied=c.flag("tie_word_embeddings", default=False),
        final_norm_params=d_model(c),
    )


def _blocks(c: Fields, count: int) -> Iterator[Fields]:
    """``block_configs``, one section a layer.

    Raises:
        InputError: it is no list of as many objects as there are layers.
    """
    expected = f"a list of {count} objects with attention and ffn, one a layer"
    listed = c.values.get("block_configs")
    if not isinstance(listed, (list, tuple)) or len(listed) != count:
        raise c.wrong("block_configs", expected)
    for i, one in enumerate(listed):
        if not isinstance(one, dict):
            raise c.wrong("block_configs", expected)
        yield replace(c, values=one, section=f"block_configs.{i}")


def _searched(c: Fields, block: Fields) -> Layer:
    """One block: attention and feed-forward whole, narrower, a single map, or left out."""
    width = d_model(c)
    attention, feed_forward = block.part("attention"), block.part("ffn")
    maps: list[Projection] = []
    halves = 2
    mixer = dense = None
    if attention.flag("no_op", default=False):
        halves -= 1
    elif attention.flag("replace_with_linear", default=False):
        maps.append(Projection("self_attn.linear_attn", width, width))
    else:
        heads = c.count("num_attention_heads", most=100_000)
        kv_heads = attention.maybe("num_key_value_heads", most=100_000)
        kv_heads = kv_heads or heads // attention.count("n_heads_in_group", most=heads)
        own = c.replaced(num_key_value_heads=kv_heads)
        window = attention.maybe("window_length")
        mixer = gqa(own, bias=attention_bias(c), window=window)
    if feed_forward.flag("no_op", default=False):
        halves -= 1
    elif feed_forward.flag("replace_with_linear", default=False):
        maps.append(Projection("mlp.linear_mlp", width, width))
    else:
        inner = feed_forward.maybe("intermediate_size")
        if inner is None:
            inner = int(2 * feed_forward.number("ffn_mult") * width / 3)
            inner = -(-inner // 256) * 256
        bias = c.flag("mlp_bias", default=False)
        dense = DenseMlp(inner, 3, bias * (2 * inner + width))
    return Layer(mixer, dense, halves * width, projections=tuple(maps))
