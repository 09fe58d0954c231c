"""Llama 3.2 Vision: text that attends to an image's tiles in some of its layers.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.blocks import attention, feed_forward, heads_of, linear
from chipshift.models.families.decoder import (
    MOST_LAYERS,
    assemble,
    d_model,
    gqa,
    mlp,
    n_layers,
    runs,
)
from chipshift.models.families.vision import patches, stem
from chipshift.models.fields import Fields
from chipshift.models.model import Layer, Model, Tower

CROSSES = [3, 8, 13, 18, 23, 28, 33, 38]
RATIOS = 8
"""Shapes that four tiles can take: 1 to 4 in a row, 2 rows of 1 or 2, 3 rows, 4 rows."""
SPECIAL_ROWS = 8
"""Rows of the embedding beyond the vocabulary, the image's token among them."""


def mllama(c: Fields) -> Model:
    """Text, tiles and one map between them.

    How many images a text has its config cannot say: an estimate times the layers that attend to
    them as if they had as many positions as the text.
    """
    text, v = mllama_text(c.part("text_config")), c.part("vision_config")
    joint = linear("projector", v.count("vision_output_dim", default=7680), text.d_model)
    tower = replace(_tiles(v), projections=(joint,))
    return replace(text, architecture="mllama", towers=(tower,))


def mllama_text(c: Fields) -> Model:
    """Llama 3's blocks, some of which attend to the image in place of the text, behind gates."""
    c = c.having(
        vocab_size=128_256,
        hidden_size=4096,
        intermediate_size=14_336,
        num_hidden_layers=40,
        num_attention_heads=32,
        num_key_value_heads=8,
    )
    width, own = d_model(c), gqa(c)
    seen = replace(own, causal=False, kv_from="vision", norm_params=2 * own.head_dim)
    block = Layer(own, mlp(c), 2 * width)
    look = Layer(None, mlp(c), 2 * width, cross=seen, other_params=2)
    crosses = set(c.counts("cross_attention_layers") or CROSSES)
    return assemble(
        c,
        [look if i in crosses else block for i in range(n_layers(c))],
        tied=c.flag("tie_word_embeddings", default=False),
        final_norm_params=width,
        embedding_extra_params=SPECIAL_ROWS * width,
    )


def _tiles(v: Fields) -> Tower:
    """A tower over all tiles of an image at once, and a second, gated one on top of it."""
    width = v.count("hidden_size", default=1280)
    v = v.having(num_hidden_layers=32, num_attention_heads=16, intermediate_size=5120)
    heads = heads_of(v, width, "attention_heads", "num_attention_heads")
    count, pixels = patches(v, 448, 14)
    tiles = v.count("max_num_tiles", default=4, most=1000)
    listed = v.values.get("supported_aspect_ratios")
    ratios = 1 + (len(listed) if isinstance(listed, (list, tuple)) else RATIOS)
    half = Layer(
        attention(width, heads, bias=""),
        feed_forward(width, v.count("intermediate_size")),
        4 * width,
    )
    gated = replace(half, other_params=2)
    deep = v.count("num_global_layers", default=8, least=0, most=MOST_LAYERS)
    kinds, order = runs([half] * n_layers(v) + [gated] * deep)
    positions = count + 1
    tables = ratios * tiles * width * (positions + 2)  # by tile, and before and after the tower
    return Tower(
        "vision",
        width,
        kinds,
        order,
        tokens=tiles * (-(-positions // 8) * 8),  # each tile filled up to a multiple of 8
        convs=(stem(v, width, tiles * count, pixels, bias=False),),
        embedding_params=tables,
        # the class token and positions; gates of the three tables; norms before and after
        other_params=width + positions * width + 3 + 4 * width,
    )
