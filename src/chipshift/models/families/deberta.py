"""Encoders of text of later years: DeBERTa, Nomic.

Shapes and defaults as transformers 5.24 builds them. Each of DeBERTa's layers maps its table of
distances anew, once an item: ``models.items`` has that, an estimate's time has not.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.blocks import (
    attention,
    built_as,
    classic,
    feed_forward,
    heads_of,
    linear,
)
from chipshift.models.families.decoder import assemble, d_model, n_layers
from chipshift.models.families.encoder import WORDS, task_heads
from chipshift.models.fields import Fields
from chipshift.models.model import Conv, Layer, Model, Projection


def deberta_v2(c: Fields) -> Model:
    """DeBERTa v2 and v3: content and position meet in three ways, a table of distances."""
    width, kind = d_model(c), built_as(c)
    narrow = c.count("embedding_size", default=width)
    block = classic(width, heads_of(c, width), c.count("intermediate_size"))
    ways = c.values.get("pos_att_type") or []
    if isinstance(ways, str):
        ways = ways.lower().split("|")
    distances, loose = 0, 0
    maps = [linear("embed_proj", narrow, width, False)] if narrow != width else []
    if c.flag("relative_attention", default=False):
        reach = c.maybe("max_relative_positions", least=-1) or -1
        reach = c.count("max_position_embeddings", default=512) if reach < 1 else reach
        buckets = c.maybe("position_buckets", least=-1) or -1
        distances = 2 * (buckets if buckets > 0 else reach)
        met = len({"c2p", "p2c"} & set(ways))
        if not c.flag("share_att_key", default=False):
            own = tuple(linear(f"position.{i}", width, width, once=True) for i in range(met))
            block = replace(block, projections=own)
        # each way the table is mapped, and met by queries (or by keys) as half of attention's work
        assert block.attention is not None
        meeting = replace(block.attention, table_keys=met * distances // 2)
        block = replace(block, attention=meeting, mixing_flops=met * 2 * distances * width**2)
    if "layer_norm" in c.text("norm_rel_ebd", default="none"):
        loose = 2 * width  # of the table of distances, and built without it too
    positions = 0
    if c.flag("position_biased_input", default=True):
        positions = c.count("max_position_embeddings", default=512)
    taps = c.count("conv_kernel_size", default=0, least=0)
    convs: tuple[Conv, ...] = ()
    if taps:
        groups = c.count("conv_groups", default=1)
        convs = (Conv("conv", width, width, taps, groups=groups, bias_params=width),)
        loose += 2 * width
    masked = kind in WORDS
    if masked:
        maps.append(linear("transform", width, narrow))
    if kind in ("ForSequenceClassification", "ForMultipleChoice"):
        maps.append(linear("pooler", width, width, once=True))
    maps += task_heads(c, kind, width, "", False)
    # a head of its own has a bias beside the one that it is given either way
    tied = c.flag("tie_word_embeddings", default=True)
    model = assemble(
        c,
        [block] * n_layers(c),
        tied=tied or not masked,
        final_norm_params=2 * narrow * masked,
        head_bias_params=c.count("vocab_size") * masked * (1 if tied else 2),
        embedding_extra_params=(positions + c.count("type_vocab_size", default=0, least=0)) * narrow
        + distances * width,
        embedding_width=None if narrow == width else narrow,
        projections=tuple(maps),
        other_params=2 * width + loose,
    )
    return replace(model, has_head=masked, convs=convs)


def nomic_bert(c: Fields) -> Model:
    """Nomic's BERT: rotary positions, gated feed-forwards, no biases in its blocks."""
    width, kind = d_model(c), built_as(c)
    heads = heads_of(c, width, "num_attention_heads", "n_head")
    layer = Layer(
        attention(width, heads, bias="", head_dim=c.maybe("head_dim")),
        feed_forward(width, c.count("intermediate_size", "n_inner"), 3, bias=False),
        4 * width,
    )
    masked = kind in WORDS
    maps: list[Projection] = []
    if kind == "ForSequenceClassification":
        maps.append(linear("pooler", width, width, once=True))
    if masked:
        maps.append(linear("transform", width, width))
    maps += task_heads(c, kind, width, "", False)
    model = assemble(
        c,
        [layer] * n_layers(c),
        tied=c.flag("tie_word_embeddings", default=True) or not masked,
        final_norm_params=2 * width * masked,
        head_bias_params=c.count("vocab_size") * masked,
        embedding_extra_params=c.count("type_vocab_size", default=2, least=0) * width,
        projections=tuple(maps),
        other_params=2 * width,
    )
    return replace(model, has_head=masked)
