"""What a compiler that places every buffer before the run (XLA) holds at the moments of a step.

Read off the buffers alive at the peak of compiled programs: docs/compile.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chipshift.estimate.columns import Columns
from chipshift.estimate.cuts import Params, state
from chipshift.estimate.parts import absent
from chipshift.estimate.setting import Setting
from chipshift.estimate.stage import device_params, heaviest_kind
from chipshift.models.count import params_embedding
from chipshift.parallel import memory
from chipshift.roofline.time import padded
from chipshift.worked import formula, plain, rename

Number = Any

WIDE = 64
"""Devices that share a weight from which libtpu moves it by all-reduces (docs/compile.md)."""

TURNED_SEQUENCES = 2
"""Sequences of a device up to which layers' inputs are turned (``turned_inputs``)."""


@dataclass(frozen=True)
class Moment:
    """What is held at one moment of a step: 1 = the loss's, or the layers' backward pass's."""

    name: str
    loss: float
    backward: float


TOGETHER = (Moment("", 1.0, 1.0),)
"""An allocator that keeps what it once took: as if all were held at once."""

PLANNED = (Moment("loss_", 1.0, 0.0), Moment("backward_", 0.0, 1.0))
"""XLA places every buffer before the run: the logits' room is the backward pass's afterwards."""


def _hybrid(c: Columns) -> Number:
    """Whether weights are sharded over fsdp and replicated over dp."""
    return (c.dp > 1) & (c.fsdp > 1)


def _unwindowed(s: Setting, c: Columns, shards: Number) -> Number:
    """Where the head's matmul is no windowed einsum: under hybrid sharding, over few devices, over
    many."""
    few = (shards > 1) & (shards <= s.stack.unwindowed_shards)
    wanted = _hybrid(c) | few | (shards >= WIDE)
    # over tp of four and more its input is passed round in both directions: windowed again
    return wanted & (c.tp <= 2)


def logit_bytes(s: Setting, c: Columns, shards: Number) -> Number:
    """Bytes kept for a logit: fewer where the head's matmul is not windowed, so that XLA makes the
    logits' gradient inside it."""
    kept, whole = s.stack.logit_memory_bytes, s.stack.unwindowed_logit_bytes
    if float(plain(whole)) == 0:
        return kept
    single = np.where(_hybrid(c), s.stack.hybrid_logit_bytes_of_one, kept)
    if float(plain(s.stack.wide_logit_bytes_of_one)):
        many = (shards >= WIDE) & (c.tp == 1)
        single = np.where(many, s.stack.wide_logit_bytes_of_one, single)
    return np.where(c.microbatch > 1, np.where(_unwindowed(s, c, shards), whole, kept), single)


def head_held(s: Setting, c: Columns, shards: Number, tokens: Number, alone: bool) -> Number:
    """What the loss leaves to the layers' backward pass: the logits' gradient, from which the
    head's is made at the end, or the logits themselves where that gradient is made inside a matmul;
    of a loss in pieces the gathered head and its gradient. ``alone``: a sharded optimizer's is the
    only wide copy of the weights."""
    st = s.stack
    table = rename(memory.cut_params(params_embedding(s.model), c.tp, 1.0), "embedding_params")
    if float(plain(s.loss_chunks)) > 1:
        whole = memory.gathered_bytes(table, shards, 1.0, s.bytes.gathered, 0.0)
        return rename(2 * whole, "head_and_gradient_bytes")
    if not float(plain(st.layer_moments)):
        each: Number = s.bytes.gathered
        if float(plain(st.hybrid_logit_bytes_held)):
            each = np.where(_hybrid(c), st.hybrid_logit_bytes_held, each)
        logits = memory.logits_bytes(tokens, s.model.logits, c.tp, each, s.loss_chunks)
        return rename(np.where(shards > 1, logits, 0.0), "logits_held_bytes")
    logits = memory.logits_bytes(tokens, s.model.logits, c.tp, s.bytes.gathered, s.loss_chunks)
    # the head's gradient by itself: summed over replicas, or over many devices, it is made whole
    head = table * s.bytes.gathered
    at_once = (shards >= WIDE) | _hybrid(c)
    held = np.where(at_once, np.minimum(logits, head), logits)
    both, many = _hybrid(c), shards >= WIDE
    # inside one slice a sharded optimizer has the gradient scattered over dp and cp as it is made
    apart = both if crosses_slices(s) else both & (c.cp > 1) & (not alone)
    for where, size, share in (
        (both, st.hybrid_logit_bytes_held, 1.0),
        (apart, st.apart_logit_bytes_held, 1.0),
        (many & (c.tp > 1), st.unwindowed_logit_bytes, st.wide_logits_share),
        (many, st.wide_logit_bytes_held, st.wide_logits_share),
    ):
        if not float(plain(size)):
            continue
        wide = memory.logits_bytes(tokens, s.model.logits, c.tp, size, s.loss_chunks)
        small = wide <= share * s.usable_bytes
        held = np.where(where & (c.microbatch > 1) & small, wide, held)
    return rename(np.where(shards > 1, held, head), "logits_held_bytes")


def crosses_slices(s: Setting) -> bool:
    """Whether dp runs over the network between slices."""
    return any(level.kind == "dcn" for level in s.machine.fabric)


def inputs_turned(s: Setting, c: Columns, stream: Number, layers: list[Number]) -> Number:
    """Bytes of the layers' inputs once more in the backward pass, turned to another layout;
    ``stream``: elements of one. 0.0 where nothing turns them."""
    copies = s.stack.turned_inputs
    alike = len(s.model.layers) == 1
    if not (float(plain(copies)) and crosses_slices(s) and alike):
        return 0.0
    each = memory.stored_activation_bytes(stream * copies, sum(layers), 1.0, 1.0)
    few = (c.microbatch <= TURNED_SEQUENCES) & (c.tp == 1)
    return rename(np.where(few, each, 0.0), "turned_bytes")


def heads_at_loss(s: Setting, c: Columns, shards: Number) -> Number:
    """Whole heads more at the loss: the head's gradient, where all-reduces sum it or its matmul is
    not windowed."""
    st = s.stack
    copies: Number = 0.0
    if float(plain(st.hybrid_heads)):
        copies = np.where(_hybrid(c), st.hybrid_heads, 0.0)
    if float(plain(st.wide_heads)):
        few = (shards > 2) & (shards < WIDE) & _unwindowed(s, c, shards) & ~_hybrid(c)
        more = np.where(shards >= WIDE, st.wide_heads, np.where(few, 1.0, 0.0))
        # of both, the gradient is the same one
        of_one: Number = 0.0
        if float(plain(st.wide_logit_bytes_of_one)):  # made from the logits while they stand
            of_one = np.where((shards >= WIDE) & (c.tp == 1), 1.0, 0.0)
        copies = np.maximum(copies, np.where(c.microbatch > 1, more, of_one))
    if absent(copies):
        return 0.0
    table = rename(memory.cut_params(params_embedding(s.model), c.tp, 1.0), "embedding_params")
    whole = memory.gathered_bytes(table, shards, 1.0, s.bytes.gathered, 0.0)
    return rename(whole * copies, "heads_at_loss_bytes")


def reduced_whole(s: Setting, c: Columns, shards: Number) -> Number:
    """Bytes of a layer's weights once more where libtpu gathers them by all-reduces, over every
    device of a slice of 64 or more: the zero-padded operands."""
    copies = s.stack.wide_layers
    if not float(plain(copies)):
        return 0.0
    dense, experts = device_params(s, c, heaviest_kind(s))
    part = dense + np.where(c.ep > 1, 0.0, experts)
    whole = memory.gathered_bytes(part, shards, copies, s.bytes.gathered, 0.0)
    return rename(np.where((shards >= WIDE) & (c.tp == 1), whole, 0.0), "reduced_whole_bytes")


@formula(unit="1", source="tiles of 8 rows; below 8 the compiler turns another dimension to them")
def tile_padding(width: Number, shards: Number) -> Number:
    """Room that a device's part of a weight's rows takes over the part itself."""
    part = width / shards
    return np.where(part >= 8, padded(part, 8.0) / part, 1.0)


def in_tiles(s: Setting, params: Params, cuts: tuple[Number, Number]) -> Params:
    """Parameters with the room that their tiles take."""
    if not float(plain(s.stack.layer_moments)):
        return params
    dense, experts = (tile_padding(s.model.d_model, cut) for cut in cuts)
    return Params(params.dense * dense, params.experts * experts, params.whole)


def cast(s: Setting, c: Columns, params: Params, cuts: tuple[Number, Number]) -> Number:
    """Bytes of the layers' weights in compute dtype: each device casts its part of all of them
    once, before the loop over layers, where the weights themselves are wider."""
    if float(plain(s.stack.cast_copies)) == 0 or float(s.bytes.weights) <= float(s.bytes.gathered):
        return 0.0
    each = s.stack.cast_copies * s.bytes.gathered
    held = state("cast", in_tiles(s, params, cuts), each, cuts)
    if not float(plain(s.stack.wide_layers)) or not s.model.routed:
        return held
    lanes = lane_padding(params.experts, s.model.d_model, cuts[1], each)
    reduced = (cuts[0] >= WIDE) & (c.tp == 1) & (c.ep == 1)
    return held + rename(np.where(reduced, lanes, 0.0), "lane_padding_bytes")


@formula(unit="B", source="a third of the experts' weights has the cut dimension in 128 lanes")
def lane_padding(experts: Number, width: Number, shards: Number, each: Number) -> Number:
    """Bytes that down projections take over their size where they are gathered by all-reduces."""
    part = width / shards
    return experts / shards * each / 3 * (np.maximum(part, 128) / part - 1)
