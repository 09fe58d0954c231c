"""Time of context parallelism: keys and values that travel, or heads that are dealt out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chipshift.estimate.columns import Columns
from chipshift.estimate.setting import Setting
from chipshift.fabric import Links, collective_time
from chipshift.models.model import Attention, Layer
from chipshift.parallel import traffic
from chipshift.worked import formula, plain, rename

Number = Any


@dataclass(frozen=True)
class Context:
    """A layer's context parallelism, seconds.

    Attributes:
        forward, backward: exchanges of keys and values.
        heads_in, heads_out: all-to-alls of heads, one way: of queries, keys and values before
            attention, and of its output; the plain 0.0 where heads stay.
    """

    forward: Number = 0.0
    backward: Number = 0.0
    heads_in: Number = 0.0
    heads_out: Number = 0.0


@formula(
    unit="s", source="ring attention: keys and values pass cp − 1 neighbours, backward with grads"
)
def ring_time(cp: Number, step_s: Number, tensors: Number) -> Number:
    """Seconds to pass blocks round a context-parallel ring: 1 block forward, 2 backward."""
    return (cp - 1) * step_s * tensors


def context_of(s: Setting, layer: Layer, tokens: Number, c: Columns, cp_kind: str) -> Context:
    """A layer's context parallelism by a plan's columns, which may deal heads over a part of cp."""
    around = c.links.get("around")
    if layer.attention is None or around is None or plain(around.size) == 1:
        return context_s(s, layer, tokens, c.tp, c.cp, c.links["cp"], cp_kind)
    heads_in, heads_out = dealt_heads_s(
        s, layer.attention, tokens, c.tp, c.ulysses, c.links["heads"]
    )
    kept = np.maximum(_kv_heads(layer.attention, c.tp) / c.ulysses, 1.0)
    rows, ring = rename(tokens * c.ulysses, "rows_after_dealing"), c.cp / c.ulysses
    forward, backward = ring_s(s, layer.attention, rows, kept, rename(ring, "ring"), around)
    return Context(forward, backward, heads_in, heads_out)


def context_s(s: Setting, layer: Layer, tokens: Number, tp: Number, cp: Number, links: Links,
              cp_kind: str) -> Context:  # fmt: skip
    """A layer's context parallelism of one kind over all of cp."""
    attention = layer.attention
    if attention is None:
        return Context()
    if cp_kind == "all_to_all":
        heads_in, heads_out = dealt_heads_s(s, attention, tokens, tp, cp, links)
        return Context(heads_in=heads_in, heads_out=heads_out)
    heads = _kv_heads(attention, tp)
    if cp_kind == "ring":
        return Context(*ring_s(s, attention, tokens, heads, cp, links))
    v_cp = traffic.context_bytes(tokens, heads, _dims(attention), s.bytes.activations, cp)
    forward = rename(collective_time("all_gather", v_cp, links), "cp_gather_s")
    scattered = collective_time("reduce_scatter", v_cp, links)
    return Context(forward, forward + rename(scattered, "cp_reduce_scatter_s"))


def ring_s(s: Setting, attention: Attention, tokens: Number, heads: Number, ranks: Number,
           links: Links) -> tuple[Number, Number]:  # fmt: skip
    """Seconds to pass so many heads' keys and values round a ring, forward and backward."""
    v_cp = traffic.context_bytes(tokens, heads, _dims(attention), s.bytes.activations, ranks)
    step = collective_time("permute", v_cp / ranks, links)
    return ring_time(ranks, step, 1.0), ring_time(ranks, step, 2.0)


def dealt_heads_s(s: Setting, attention: Attention, tokens: Number, tp: Number, ranks: Number,
                  links: Links) -> tuple[Number, Number]:  # fmt: skip
    """Seconds to deal heads over ``ranks`` devices: into attention, and of its output back.

    Queries, keys, values and the output are an all-to-all each; gradients take the same ways.
    """
    own = traffic.dealt_kv_heads(_kv_heads(attention, tp), ranks)
    if float(plain(s.stack.deals_repeated_heads)):
        own = attention.heads / tp
    parts = {
        "queries": (attention.heads / tp, attention.head_dim),
        "keys": (own, attention.head_dim),
        "values": (own, attention.v_head_dim),
        "output": (attention.heads / tp, attention.v_head_dim),
    }
    sent: dict[str, Number] = {}
    for name, (heads, width) in parts.items():
        v = traffic.dealt_heads_bytes(tokens, heads, width, s.bytes.activations, ranks)
        time = collective_time("all_to_all", rename(v, f"{name}_dealt_bytes"), links)
        sent[name] = rename(time, f"{name}_all_to_all_s")
    return sent["queries"] + sent["keys"] + sent["values"], sent["output"]


def _kv_heads(attention: Attention, tp: Number) -> Number:
    """Key/value heads of a device of tp: fewer heads than devices are copied.

    Latents are one head, whole on each (Megatron-LM, experimental_attention_variant/dsa.py: keys
    that are gathered over cp are the latents and their rotary part, values none).
    """
    if attention.latent_keys:
        return 1.0
    return np.maximum(attention.kv_heads / tp, 1.0)


def _dims(attention: Attention) -> Number:
    """Elements of a key and its value; of a latent and its rotary part where they are one."""
    if attention.latent_keys and attention.kv_lora_rank and attention.qk_rope_head_dim:
        return attention.kv_lora_rank + attention.qk_rope_head_dim
    return attention.head_dim + attention.v_head_dim
