"""What a layer's backward pass holds beside the stored activations, moment by moment.

For stacks whose compiler places every buffer (``layer_moments``): the tensors that the compiled
step (compiled/step) has alive at once, read off the buffers of compiled programs
(docs/compile.md). All sizes are of one layer, one microbatch, one device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chipshift.estimate.columns import Columns
from chipshift.estimate.cuts import weight_cuts
from chipshift.estimate.parts import absent
from chipshift.estimate.setting import Setting
from chipshift.estimate.stage import device_params, heaviest_kind
from chipshift.models.model import MoeMlp
from chipshift.models.ops import Cut, Op, layer_ops
from chipshift.parallel.remat import Policy
from chipshift.worked import formula, rename

Number = Any

LANES = 128.0
"""Lanes that a row of fp32 sums is spread over by the attention kernel that makes it."""


@dataclass(frozen=True)
class Sizes:
    """Elements of bf16 of the tensors that a layer's backward pass has alive.

    Attributes:
        attention: queries, keys, values, attention's output and its row sums, as far as they are
            recomputed, and the keys and values gathered over cp, which never are kept.
        streams: inputs, outputs and gradients of the width of the model.
        whole: those of them that are gathered over tp.
        hidden: recomputed results of the dense (or shared) feed-forward's first matmuls, and two
            tensors of its width more: the activation and its gradient.
        rows: of one copy of all rows sent to experts.
        spare_rows: copies of them more for tiles that are not full, fewer where they are kept.
        up, activated: of the experts' first matmuls' results as far as they are recomputed, and of
            what their last one reads.
    """

    attention: Number
    streams: Number
    whole: Number
    hidden: Number
    rows: Number
    spare_rows: Number
    up: Number
    activated: Number


@formula(unit="elements", source="fp32 sums, spread over the lanes of a tile, a query and head")
def row_sum_elements(q_tokens: Number, heads: Number, lanes: Number) -> Number:
    """Row sums of the attention kernel as it leaves them, counted in bf16."""
    return 2 * q_tokens * heads * lanes


@formula(unit="elements", source="each device has the keys and values of whole sequences")
def gathered_keys_elements(tokens: Number, kv_heads: Number, widths: Number, cp: Number) -> Number:
    """Keys and values gathered over cp; 0 where a device has whole sequences of its own."""
    return np.where(cp > 1, tokens * cp * kv_heads * widths, 0.0)


@formula(
    unit="elements",
    source="rows as they are sent and as they come back, once more each side of an exchange, with "
    "the first matmuls' results; rows and their gradient, and the experts' hidden tensors; or the "
    "rows' gradient in two sums, when the last weights are done with",
)
def experts_elements(rows: Number, copies: Number, up: Number, activated: Number,
                     matrix: Number) -> Number:  # fmt: skip
    """Most that routed experts' backward pass holds beside their weights, gathered ones that are
    done with (``matrix`` elements: the last one's) set against it."""
    first = np.maximum(copies * rows, 2 * rows + activated)
    return up + np.maximum(first, 4 * rows + activated - matrix)


@formula(unit="rows", source="a token's rows fill whole tiles: 1, 2, 4 or a multiple of 8")
def rows_in_tiles(top_k: Number) -> Number:
    """Rows of a token that one copy has room for."""
    return np.where(top_k > 4, np.ceil(top_k / 8) * 8, top_k)


@formula(unit="B", source="bf16 tensors of a layer's backward pass that are alive at once")
def alive_bytes(first: Number, second: Number) -> Number:
    """Bytes of two groups of tensors."""
    return 2 * (first + second)


MOST_IN_A_UNIT = 8
"""Layers of the longest pattern that is looked for."""


def unit_layers(order: tuple[int, ...]) -> int:
    """Layers of a repeating pattern of three or more, which are one body of the loop over layers:
    XLA recomputes all of them before the first one's backward pass. 1 for shorter patterns, of
    which it has one layer at a time."""
    for size in range(1, min(MOST_IN_A_UNIT, len(order) // 2) + 1):
        if all(kind == order[i % size] for i, kind in enumerate(order)):
            return size if size > 2 else 1
    return 1


@dataclass(frozen=True)
class Working:
    """Bytes beside stored activations and gathered weights: of the feed-forward, and around it."""

    around: Number
    feed_forward: Number


def backward(s: Setting, c: Columns, policy: Policy, w: Any) -> Working:
    """What the backward pass of the heaviest kind of layer holds."""
    found = sizes(s, c, policy, w, heaviest_kind(s))
    experts: Number = 0.0
    if not absent(found.rows):
        # sent, received and come back; on both sides of an exchange where there is one
        copies = np.where(c.ep > 1, 4.0, 3.0) + found.spare_rows
        part = device_params(s, c, heaviest_kind(s))[1]
        matrix = np.where(weight_cuts(c)[1] > 1, part / 3, 0.0)
        experts = experts_elements(found.rows, copies, found.up, found.activated, matrix)
    unit = 1 if s.heavy_first else unit_layers(s.model.layer_order)
    around = alive_bytes(found.attention, found.streams + (unit - 1) * found.whole)
    hidden = rename(alive_bytes(unit * found.hidden, experts), "feed_forward_backward_bytes")
    return Working(rename(around, "around_feed_forward_bytes"), hidden)


@formula(
    unit="B",
    source="the last hidden state gathered for the head's matmul; over four devices and more a "
    "windowed einsum in two directions passes parts of its gradient on",
)
def gathered_at_loss(tokens: Number, width: Number, sp: Number) -> Number:
    """Bytes of whole activations beside the logits where the sequence is cut over tp."""
    return 2 * tokens * width * (np.where(sp > 1, 1.0, 0.0) + np.where(sp > 2, 1.5, 0.0))


def sizes(s: Setting, c: Columns, policy: Policy, w: Any, kind: int) -> Sizes:
    """The tensors of one kind of layer."""
    layer, _ = s.model.layers[kind]
    cut = Cut(w.tokens, s.document_len, c.tp, c.ep, w.sp, 1.0, c.etp, c.ulysses)
    ops = {op.name: op for op in layer_ops(layer, s.model.d_model, cut)}
    stored = w.layers[kind].stored_elements
    keeps = {name: name in policy.saved for name in stored}
    stream = stored["block_input"]
    count = 4.0 - sum(keeps.get(name, False) for name in ("attention_norm", "out_proj", "mlp_norm"))
    whole = np.where(w.sp > 1, 2 * w.tokens * s.model.d_model, 0.0)
    whole = rename(whole, "gathered_over_tp_elements")
    streams = count * stream + whole
    up: Number = 0.0
    hidden: Number = 0.0
    for name in ("mlp", "shared"):
        if f"{name}_up" in ops:
            hidden = hidden + _hidden(ops, name, keeps)
    rows: Number = 0.0
    activated: Number = 0.0
    spare: Number = 0.0
    if "experts_up" in ops and isinstance(layer.mlp, MoeMlp):
        first, last = ops["experts_up"], ops["experts_down"]
        rows = first.m * first.groups * first.k
        up = 0.0 if keeps["up"] else first.m * first.n * first.groups
        activated = last.m * last.k * last.groups
        spare = rows_in_tiles(layer.mlp.top_k) / layer.mlp.top_k - 1 - float(keeps["mlp_norm"])
    held = _attention(_cut_sequences(c, cut), ops, stored, keeps)
    return Sizes(held, streams, whole, hidden, rows, spare, up, activated)


def _hidden(ops: dict[str, Op], name: str, keeps: dict[str, bool]) -> Number:
    first, last = ops[f"{name}_up"], ops[f"{name}_down"]
    again = 0.0 if keeps["up"] else first.m * first.n
    return again + 2 * last.m * last.k


def _cut_sequences(c: Columns, cut: Cut) -> Number:
    """Devices that the sequence of attention's queries is cut over: not where heads are dealt."""
    return c.cp / c.ulysses if cut.deals_heads else c.cp


def _attention(cp: Number, ops: dict[str, Op], stored: dict[str, Number], keeps: dict[str, bool]
               ) -> Number:  # fmt: skip
    """Elements of attention's tensors, sequences being cut over cp devices."""
    held: Number = 0.0
    for name in ("qkv", "attention"):
        if name in stored and not keeps[name]:
            held = held + stored[name]
    op = ops.get("attention")
    if op is None or op.kind != "attention":
        return held
    if not keeps["attention"]:
        held = held + row_sum_elements(op.q_tokens, op.heads, LANES)
    widths = op.head_dim + op.v_head_dim
    return held + gathered_keys_elements(op.q_tokens, op.kv_heads, widths, cp)
