"""Encoders of text: BERT, RoBERTa, DistilBERT, ELECTRA, MPNet, ModernBERT.

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
    return bert_like(c, types=c.count("type_vocab_size", default=2), pooled=BERT_POOLED)


def roberta(c: Fields) -> Model:
    """RoBERTa, CamemBERT and XLM-R: BERT with a head of its own for classes, no pooler before."""
    types = c.count("type_vocab_size", default=2)
    return bert_like(c, types=types, pooled=ROBERTA_POOLED, before_classes="classifier.dense")


def distilbert(c: Fields) -> Model:
    """DistilBERT: BERT without token types or pooler."""
    c = c.replaced(
        hidden_size=c.count("dim", "hidden_size", default=768),
        intermediate_size=c.count("hidden_dim", "intermediate_size", default=3072),
    )
    return bert_like(
        c,
        types=0,
        pooled=(),
        before_classes="pre_classifier",
        choices_alike=True,
        second_bias=False,
    )


def electra(c: Fields) -> Model:
    """ELECTRA: BERT behind a narrower embedding; without a class named, the generator's head."""
    return bert_like(
        c,
        types=c.count("type_vocab_size", default=2),
        pooled=(),
        before_classes="classifier.dense",
        width=c.count("embedding_size", default=128),
        choices_alike=True,
        second_bias=False,
    )


def mpnet(c: Fields) -> Model:
    """MPNet: RoBERTa without token types, a bias by distance that all layers share."""
    model = bert_like(c, types=0, pooled=ROBERTA_POOLED, before_classes="classifier.dense")
    buckets = c.count("relative_attention_num_buckets", default=32)
    table = buckets * heads_of(c, d_model(c))
    return replace(model, embedding_extra_params=model.embedding_extra_params + table)


BERT_POOLED = (
    "Model",
    "ForPreTraining",
    "ForSequenceClassification",
    "ForMultipleChoice",
    "ForNextSentencePrediction",
)
ROBERTA_POOLED = ("Model", "ForMultipleChoice")
"""What follows the family's name in the classes that have a pooler."""
WORDS = ("", "ForMaskedLM", "ForPreTraining", "ForCausalLM", "LMHeadModel")
"""Classes whose head is over the vocabulary; none named is taken for a masked language model."""


def task_heads(
    c: Fields, kind: str, width: int, before_classes: str, choices_alike: bool
) -> list[Projection]:
    """What a task puts on top of an encoder.

    Args:
        before_classes: a map before the classes of a whole text; "" where there is none.
        choices_alike: it stands before a choice's score too.
    """
    maps: list[Projection] = []
    alike = choices_alike and kind == "ForMultipleChoice"
    if before_classes and (kind == "ForSequenceClassification" or alike):
        maps.append(linear(before_classes, width, width, once=True))
    if kind in ("ForSequenceClassification", "ForTokenClassification"):
        once = kind == "ForSequenceClassification"
        maps.append(linear("classifier", width, labels(c), once=once))
    if kind == "ForQuestionAnswering":
        maps.append(linear("qa_outputs", width, labels(c)))
    if kind == "ForMultipleChoice":
        maps.append(linear("classifier", width, 1, once=True))
    if kind == "ForNextSentencePrediction":
        maps.append(linear("seq_relationship", width, 2, once=True))
    return maps


def crossed(c: Fields, block: Layer, width: int) -> Layer:
    """The block as a decoder's, that attends to an encoder's output where the config adds it.

    Raises:
        InputError: it adds cross-attention to an encoder.
    """
    crosses = c.flag("add_cross_attention", default=False)
    if not c.flag("is_decoder", default=False):
        if crosses:
            raise c.wrong("add_cross_attention", "false where is_decoder is not true")
        return block
    own = block.attention
    assert own is not None
    block = replace(block, attention=replace(own, causal=True))
    if not crosses:
        return block
    norms = block.norm_params + 2 * width
    return replace(block, cross=replace(own, kv_from="encoder"), norm_params=norms)


def bert_like(
    c: Fields,
    types: int,
    pooled: tuple[str, ...],
    before_classes: str = "",
    width: int | None = None,
    choices_alike: bool = False,
    second_bias: bool = True,
) -> Model:
    """Embedding tables and their norm, blocks, and the head that the class names.

    Args:
        types: rows of the token-type table.
        pooled: classes (what follows the family's name) that have a pooler.
        before_classes: a map before the classes of a whole text.
        width: of the embedding, where it is not the model's.
        second_bias: a head that is not tied has a bias beside the one that it has either way.
    """
    kind, inner = built_as(c), d_model(c)
    width = inner if width is None else width
    positions = c.count("max_position_embeddings", default=512)
    block = classic(
        inner,
        heads_of(c, inner, "num_attention_heads", "n_heads"),
        c.count("intermediate_size"),
    )
    # ELECTRA's discriminator tells replaced words, and has no head over the vocabulary
    discerns = choices_alike and kind == "ForPreTraining"
    masked = kind in WORDS and not discerns
    maps = [linear("embeddings_project", width, inner)] if width != inner else []
    if kind in pooled:
        maps.append(linear("pooler", inner, inner, once=True))
    if masked:
        maps.append(linear("transform", inner, width))
    if kind == "ForPreTraining" and not discerns:
        maps.append(linear("seq_relationship", inner, 2, once=True))
    if discerns:
        maps += [linear("discriminator.dense", inner, inner), linear("discriminator", inner, 1)]
    maps += task_heads(c, kind, inner, before_classes, choices_alike)
    tied = c.flag("tie_word_embeddings", default=True)
    model = assemble(
        c,
        [crossed(c, block, inner)] * n_layers(c),
        tied=tied or not masked,
        final_norm_params=2 * width * masked,
        head_bias_params=c.count("vocab_size") * masked * (2 if second_bias and not tied else 1),
        embedding_extra_params=(positions + types) * width,
        embedding_width=None if width == inner else width,
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
    bare = kind == "Model"
    once, heads_bias = kind == "ForSequenceClassification", c.flag("classifier_bias", default=False)
    maps = [] if bare else [linear("head", width, width, heads_bias, once)]
    maps += task_heads(c, kind, width, "", False)
    model = assemble(
        c,
        layers,
        tied=c.flag("tie_word_embeddings", default=True) or not masked,
        final_norm_params=norm * (1 if bare else 2),
        head_bias_params=c.count("vocab_size") * c.flag("decoder_bias", default=True) * masked,
        projections=tuple(maps),
        other_params=norm,
    )
    return replace(model, has_head=masked)
