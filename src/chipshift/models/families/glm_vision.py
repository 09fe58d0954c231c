"""GLM's vision tower before its language model.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

from chipshift.models.families.blocks import attention, feed_forward, heads_of, linear
from chipshift.models.families.decoder import MOST_LAYERS, runs
from chipshift.models.families.joining import joined, text_of
from chipshift.models.families.multimodal import qwen_stem
from chipshift.models.fields import Fields
from chipshift.models.model import Layer, Model, Tower


def glm4v_moe(c: Fields) -> Model:
    """GLM-4.5V: the tower before GLM-4.5."""
    return _glm(c, "glm4v_moe_text")


def glm4v(c: Fields) -> Model:
    """GLM-4.1V and GLM-4.6V-Flash: the tower before GLM-4."""
    return _glm(c, "glm4v_text")


def _glm(c: Fields, kind: str) -> Model:
    """A tower of gated feed-forwards as wide as the language model, squares of patches
    convolved into one, and a gated feed-forward between."""
    text, v = text_of(c, kind), c.part("vision_config")
    width, out = v.count("hidden_size", default=1536), v.count("out_hidden_size", default=4096)
    bias = "qkv" if v.flag("attention_bias", default=False) else ""
    own = attention(width, heads_of(v.having(num_heads=12), width, "num_heads"), bias=bias)
    block = Layer(own, feed_forward(width, out, 3, bias=False), 2 * width)
    kinds, order = runs([block] * v.count("depth", default=24, most=MOST_LAYERS))
    square = v.count("spatial_merge_size", default=2, most=100) ** 2
    inner, side = v.count("intermediate_size", default=13_696), v.count("image_size", default=336)
    maps = (
        linear("downsample", width * square, out, every=square),
        linear("merger.proj", out, out, False, every=square),
        linear("merger.gate_proj", out, inner, False, every=square),
        linear("merger.up_proj", out, inner, False, every=square),
        linear("merger.down_proj", inner, out, False, every=square),
    )
    tower = Tower(
        "vision",
        width,
        kinds,
        order,
        convs=(qwen_stem(v, width, 14, bias=True),),
        embedding_params=(side // v.count("patch_size", default=14, most=10_000)) ** 2 * width,
        other_params=2 * width + 2 * out,
    )
    return joined(c, text, tower, maps, tied=False)
