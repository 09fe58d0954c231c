"""Encoders of text: BERT, RoBERTa, DistilBERT, ModernBERT.

Shapes and defaults as transformers 5.24 builds them. Which head there is follows from the class
under ``architectures``; without one it is the masked language model that pretraining trains.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.blocks import (
    attention,
    built_as,
    classic,
    feed_forward,
    heads_of,
    labels,
    linear,
)
from chipshift.models.families.decoder import FULL, SLIDING, assemble, d_model, n_layers
from chipshift.models.fields import Fields
from chipshift.models.model import Layer, Model, Projection


def bert(c: Fields) -> Model:
    """BERT: post-norm blocks, learned positions, two token types."""
    return _bert(c, types=c.count("type_vocab_size", default=2), pooler="ForMaskedLM")


def roberta(c: Fields) -> Model:
    """RoBERTa and XLM-R: BERT with a head of its own for classes and no pooler before it."""
    return _bert(c, types=c.count("type_vocab_size", default=2), pooler="For")


def distilbert(c: Fields) -> Model:
    """DistilBERT: BERT without token types or pooler."""
    c = c.replaced(
        hidden_size=c.count("dim", "hidden_size", default=768),
        intermediate_size=c.count("hidden_dim", "intermediate_size", default=3072),
    )
    return _bert(c, types=0, pooler="")


def _bert(c: Fields, types: int, pooler: str) -> Model:
    """Embedding tables and their norm, blocks, and the head that the class names.

    Args:
        types: rows of the token-type table.
        pooler: classes whose name starts with this have no pooler; "" where none has.
    """
    width, kind = d_model(c), built_as(c)
    positions = c.count("max_position_embeddings", default=512)
    block = classic(
        width,
        heads_of(c, width, "num_attention_heads", "n_heads"),
        c.count("intermediate_size"),
    )
    masked = kind in ("", "ForMaskedLM", "ForPreTraining")
    maps: list[Projection] = []
    if pooler and (kind == "Model" or (kind and not kind.startswith(pooler))):
        maps.append(linear("pooler", width, width, once=True))
    if masked:
        maps.append(linear("transform", width, width))
    if kind == "ForPreTraining":
        maps.append(linear("seq_relationship", width, 2, once=True))
    if kind == "ForSequenceClassification":
        if pooler != "ForMaskedLM":
            maps.append(linear("classifier.dense", width, width, once=True))
        maps.append(linear("classifier", width, labels(c), once=True))
    model = assemble(
        c,
        [block] * n_layers(c),
        tied=c.flag("tie_word_embeddings", default=True) or not masked,
        final_norm_params=2 * width * masked,
        head_bias_params=c.count("vocab_size") * masked,
        embedding_extra_params=(positions + types) * width,
        projections=tuple(maps),
        other_params=2 * width,
    )
    return replace(model, has_head=masked)


def modernbert(c: Fields) -> Model:
    """ModernBERT: gated feed-forwards, every third layer sees all, the first has one norm less."""
    width, kind = d_model(c), built_as(c)
    heads = heads_of(c, width)
    biased = c.flag("attention_bias", default=False)
    norm = width * (1 + c.flag("norm_bias", default=False))
    mlp = feed_forward(width, c.count("intermediate_size"), 3, c.flag("mlp_bias", default=False))
    every = c.count("global_attn_every_n_layers", default=3)
    kinds = c.names("layer_types", (FULL, SLIDING), n_layers(c))
    kinds = kinds or [SLIDING if i % every else FULL for i in range(n_layers(c))]
    local = c.count("local_attention", default=128)
    layers = []
    for i, one in enumerate(kinds):
        window = local if one == SLIDING else None
        mixer = attention(width, heads, bias="qkvo" * biased, window=window)
        # gate and up are one matrix, with one bias between them
        layers.append(Layer(mixer, mlp, norm * (2 if i else 1)))
    masked = kind in ("", "ForMaskedLM")
    maps = [linear("head", width, width, c.flag("classifier_bias", default=False))] * masked
    model = assemble(
        c,
        layers,
        tied=c.flag("tie_word_embeddings", default=True) or not masked,
        final_norm_params=norm * (2 if masked else 1),
        head_bias_params=c.count("vocab_size") * c.flag("decoder_bias", default=True) * masked,
        projections=tuple(maps),
        other_params=norm,
    )
    return replace(model, has_head=masked)
