"""EXAONE 4.5: Qwen2.5-VL's tower with fewer key heads before EXAONE 4.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.decoder import runs
from chipshift.models.families.kin import exaone4
from chipshift.models.families.multimodal import qwen2_5_tower
from chipshift.models.fields import Fields
from chipshift.models.model import Attention, Model


def exaone4_5(c: Fields) -> Model:
    """The language model under ``text_config`` and the tower."""
    text, v = exaone4(c.part("text_config")), c.part("vision_config")
    tower = qwen2_5_tower(v)
    kv_heads = v.count("num_key_value_heads", default=8, most=100_000)
    layers = [
        replace(layer, attention=_grouped(v, layer.attention, kv_heads))
        for layer in (tower.layers[kind][0] for kind in tower.layer_order)
    ]
    kinds, order = runs(layers)
    tower = replace(tower, layers=kinds, layer_order=order)
    tied = c.flag("tie_word_embeddings", default=False)
    return replace(text, architecture="exaone4_5", towers=(tower,), tied=tied)


def _grouped(v: Fields, a: Attention | None, kv_heads: int) -> Attention:
    """The same with ``kv_heads`` of keys and of values."""
    if a is None or a.heads % kv_heads:
        raise v.wrong("num_key_value_heads", "a divisor of num_heads")
    fewer = 2 * (a.heads - kv_heads) * a.head_dim
    return replace(a, kv_heads=kv_heads, bias_params=a.bias_params - fewer)
