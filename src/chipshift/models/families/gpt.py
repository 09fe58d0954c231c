"""GPT-2 and the decoders of its time: norms with biases, plain feed-forwards, learned positions.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.decoder import assemble, d_model, gqa, n_layers, stack
from chipshift.models.fields import Fields
from chipshift.models.model import DenseMlp, Layer, Model, Projection


def plain(c: Fields, width: int, bias: bool = True) -> DenseMlp:
    """An ungated feed-forward."""
    return DenseMlp(width, 2, bias * (width + d_model(c)))


def inner(c: Fields, *keys: str) -> int:
    """Feed-forward width under any of ``keys``, four times the model's where there is none."""
    return c.maybe(*keys) or 4 * d_model(c)


def gpt2(c: Fields) -> Model:
    """GPT-2: biases everywhere."""
    return _learned(c, kv=None)


def openai_gpt(c: Fields) -> Model:
    """GPT-1: GPT-2's block with its norms behind the halves, and none at the end."""
    positions = c.count("n_positions", default=512)
    return stack(
        c.having(n_embd=768, n_layer=12, n_head=12, vocab_size=40_478),
        gqa(c, bias="qkvo"),
        plain(c, inner(c, "n_inner")),
        norms=4,
        final=0,
        tied=True,
        embedding_extra_params=positions * d_model(c),
    )


def gpt_bigcode(c: Fields) -> Model:
    """StarCoder 1 and SantaCoder: GPT-2 with one key/value head unless told otherwise."""
    return _learned(c, kv=1 if c.flag("multi_query", default=True) else None)


def _learned(c: Fields, kv: int | None) -> Model:
    """Blocks of GPT-2 under a table of learned positions."""
    positions = c.count("n_positions", "max_position_embeddings", default=1024)
    own, width = gqa(c, bias="qkvo", kv_default=kv), d_model(c)
    layer = Layer(own, plain(c, inner(c, "n_inner")), 4 * width)
    if c.flag("add_cross_attention", default=False):
        if kv is not None:
            raise c.wrong("add_cross_attention", "false: StarCoder's is not counted here")
        other = replace(own, causal=False, kv_from="encoder")
        layer = replace(layer, cross=other, norm_params=6 * width)
    return assemble(
        c,
        [layer] * n_layers(c),
        tied=c.flag("tie_word_embeddings", default=True),
        final_norm_params=2 * width,
        embedding_extra_params=positions * width,
    )


def gptj(c: Fields) -> Model:
    """GPT-J and CodeGen: one norm for both halves, no bias on attention, one on the LM head."""
    return stack(
        c,
        gqa(c),
        plain(c, inner(c, "n_inner")),
        norms=2,
        final=2,
        head_bias_params=c.count("vocab_size"),
    )


def gpt_neo(c: Fields) -> Model:
    """GPT-Neo: a bias on o only; layers alternate as ``attention_types`` says."""
    local = c.count("window_size", default=256)
    kinds = _attention_types(c, n_layers(c))
    base = gqa(c, bias="o")
    positions = c.count("max_position_embeddings", default=2048)
    return stack(
        c,
        [replace(base, window=local if kind == "local" else None) for kind in kinds],
        plain(c, inner(c, "intermediate_size")),
        norms=4,
        final=2,
        tied=True,
        embedding_extra_params=positions * d_model(c),
    )


def _attention_types(c: Fields, count: int) -> list[str]:
    """``[[["global", "local"], 12]]`` written out.

    Raises:
        InputError: it is of another form or does not add up to the layers.
    """
    expected = f'pairs such as [[["global", "local"], {count // 2}]] that add up to {count}'
    pairs = c.values.get("attention_types") or [[["global", "local"], count // 2]]
    kinds: list[str] = []
    for pair in pairs if isinstance(pairs, (list, tuple)) else [None]:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or len(kinds) > count:
            raise c.wrong("attention_types", expected)
        names, times = pair
        if not isinstance(names, (list, tuple)) or not isinstance(times, int) or times > count:
            raise c.wrong("attention_types", expected)
        kinds += [str(name) for name in names[:count]] * times
    if len(kinds) != count or not set(kinds) <= {"global", "local"}:
        raise c.wrong("attention_types", expected)
    return kinds


def gpt_neox(c: Fields) -> Model:
    """GPT-NeoX and Pythia."""
    bias = "qkvo" if c.flag("attention_bias", default=True) else ""
    feed_forward = plain(c, c.count("intermediate_size"))
    return stack(c, gqa(c, bias=bias), feed_forward, norms=4, final=2)


def opt(c: Fields) -> Model:
    """OPT: two positions more than it says, an embedding narrower than the model in one size."""
    width = d_model(c)
    bias = c.flag("enable_bias", default=True)
    affine = 2 if c.flag("layer_norm_elementwise_affine", default=True) else 0
    embedding = c.count("word_embed_proj_dim", default=width)
    last = c.flag("do_layer_norm_before", default=True)
    last = last and not c.flag("_remove_final_layer_norm", default=False)
    maps = (Projection("project_in", embedding, width), Projection("project_out", width, embedding))
    block = Layer(
        gqa(c, bias="qkvo" * bias),
        plain(c, c.count("ffn_dim"), bias),
        2 * affine * width,
    )
    return assemble(
        c,
        [block] * n_layers(c),
        tied=c.flag("tie_word_embeddings", default=True),
        final_norm_params=affine * width * last,
        embedding_extra_params=(c.count("max_position_embeddings", default=2048) + 2) * width,
        embedding_width=None if embedding == width else embedding,
        projections=() if embedding == width else maps,
    )


def bloom(c: Fields) -> Model:
    """BLOOM: a norm over the embedding too."""
    block = Layer(gqa(c, bias="qkvo"), plain(c, 4 * d_model(c)), 4 * d_model(c))
    return assemble(
        c,
        [block] * n_layers(c),
        tied=c.flag("tie_word_embeddings", default=True),
        final_norm_params=4 * d_model(c),
    )


def falcon(c: Fields) -> Model:
    """Falcon in its three forms: many queries to one key, grouped, and the 1B's plain block."""
    heads = c.count("num_attention_heads", "n_head", most=100_000)
    grouped = c.flag("new_decoder_architecture", default=False)
    if grouped:
        kv_heads = c.count("num_kv_heads", "n_head_kv", default=heads, most=100_000)
    else:
        kv_heads = 1 if c.flag("multi_query", default=True) else heads
    # norms: two side by side when grouped, one when parallel, two in a row when not
    side_by_side = c.count("num_ln_in_parallel_attn", default=2) if grouped else 1
    norms = 2 if grouped and side_by_side == 2 else 1
    if not c.flag("parallel_attn", default=True):
        norms += 1
    bias = c.flag("bias", default=False)
    fields = c.replaced(num_key_value_heads=kv_heads, num_attention_heads=heads)
    return stack(
        fields,
        gqa(fields, bias="qkvo" * bias),
        plain(c, inner(c, "ffn_hidden_size"), bias),
        norms=2 * norms,
        final=2,
        tied=True,
    )


def refined_web(c: Fields) -> Model:
    """Falcon under its first name: the 40B and its kin say how many keys their heads share."""
    return falcon(c.having(new_decoder_architecture=c.has("n_head_kv")))


def mpt(c: Fields) -> Model:
    """MPT as transformers builds it: norms without biases, no biases at all."""
    width = d_model(c) * c.count("expansion_ratio", default=4, most=1000)
    return stack(c, gqa(c), plain(c, width, bias=False), tied=True)
