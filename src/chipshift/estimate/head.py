"""The head in a planned step (XLA): logits at the loss, and what they leave to the layers' pass.

Whether the head's gradient is made at the loss or after the layers' backward pass, and whether the
loss's own value still reads the fp32 logits then, is the compiler's schedule. The cases below are
read off the buffers alive at the peak of compiled programs: docs/compile.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chipshift.estimate.columns import Columns
from chipshift.estimate.parts import absent
from chipshift.estimate.setting import Setting
from chipshift.models.count import params_embedding
from chipshift.parallel import memory
from chipshift.worked import formula, plain, rename

Number = Any

WIDE = 64
"""Devices that share a weight from which libtpu moves it by all-reduces (docs/compile.md)."""

LONG_TOKENS = 4096
"""Tokens of one sequence up to which its first layer is recomputed beside the loss."""

LARGE_LOGITS = 1 / 3
"""Share of the memory from which on fp32 logits have the head gathered once more beside them."""

NEARLY_FULL = 0.945
"""Share of the memory from which on libtpu works the logits out again, replicas given and several
sequences or a sharded optimizer: at 0.944 of it, counted as here, it does not, at 0.948 it does."""


def hybrid(c: Columns) -> Number:
    """Whether weights are sharded over fsdp and replicated over dp."""
    return (c.dp > 1) & (c.fsdp > 1)


def _replicated(s: Setting, c: Columns, alone: bool) -> Number:
    """Whether the head's gradient is summed over replicas by itself: under hybrid sharding, unless
    it is scattered over dp and fsdp at once, windowed (a sharded optimizer's on v7x, tp up to 2).
    """
    at_once = alone and float(plain(s.stack.scattered_at_once)) and not crosses_slices(s)
    return hybrid(c) & (c.tp > 2) if at_once else hybrid(c)


def crosses_slices(s: Setting) -> bool:
    """Whether dp runs over the network between slices."""
    return any(level.kind == "dcn" for level in s.machine.fabric)


def _unwindowed(s: Setting, c: Columns, shards: Number, alone: bool) -> Number:
    """Where the head's matmul is no windowed einsum: under hybrid sharding, over few devices, over
    many."""
    few = (shards > 1) & (shards <= s.stack.unwindowed_shards)
    wanted = _replicated(s, c, alone) | few | (shards >= WIDE)
    # over tp of four and more its input is passed round in both directions: windowed again
    return wanted & (c.tp <= 2)


def logit_bytes(s: Setting, c: Columns, shards: Number, alone: bool) -> Number:
    """Bytes kept for a logit: fewer where the head's matmul is not windowed, so that XLA makes the
    logits' gradient inside it."""
    kept, whole = s.stack.logit_memory_bytes, s.stack.unwindowed_logit_bytes
    if float(plain(whole)) == 0:
        return kept
    single = np.where(_replicated(s, c, alone), s.stack.hybrid_logit_bytes_of_one, kept)
    if float(plain(s.stack.wide_logit_bytes_of_one)):
        many = (shards >= WIDE) & (c.tp == 1)
        single = np.where(many, s.stack.wide_logit_bytes_of_one, single)
    several = np.where(_unwindowed(s, c, shards, alone), whole, kept)
    return np.where(c.microbatch > 1, several, single)


def head_held(s: Setting, c: Columns, shards: Number, tokens: Number, alone: bool) -> Number:
    """What the loss leaves to the layers' backward pass: the logits' gradient, from which the
    head's is made at the end, or the logits themselves, or the head's gradient; of a loss in pieces
    the gathered head and its gradient. ``alone``: a sharded optimizer's is the only wide copy of
    the weights."""
    st = s.stack
    table = rename(memory.cut_params(params_embedding(s.model), c.tp, 1.0), "embedding_params")
    if float(plain(s.loss_chunks)) > 1:
        whole = memory.gathered_bytes(table, shards, 1.0, s.bytes.gathered, 0.0)
        return rename(2 * whole, "head_and_gradient_bytes")
    if not float(plain(st.layer_moments)):
        each: Number = s.bytes.gathered
        if float(plain(st.hybrid_logit_bytes_held)):
            each = np.where(hybrid(c), st.hybrid_logit_bytes_held, each)
        return rename(np.where(shards > 1, _logits(s, c, tokens, each), 0.0), "logits_held_bytes")
    head = table * s.bytes.gathered
    both = _replicated(s, c, alone)
    held = _gradient_held(s, c, shards, both, head, _logits(s, c, tokens, s.bytes.gathered))
    late, apart = _read_late(s, c, shards, both, alone)
    many = shards >= WIDE
    for where, size, share in (
        (late, st.hybrid_logit_bytes_held, 1.0),
        (apart, st.apart_logit_bytes_held, 1.0),
        (many & (c.tp > 1) & (c.accumulation > 1), st.wide_tp_logit_bytes_of_sums, 1.0),
        (many & (c.tp > 1), st.wide_tp_logit_bytes_held, st.wide_logits_share),
        (many, st.wide_logit_bytes_held, st.wide_logits_share),
    ):
        if not float(plain(size)):
            continue
        wide = _logits(s, c, tokens, size)
        small = wide <= share * s.usable_bytes
        held = np.where(where & (c.microbatch > 1) & small, wide, held)
    return rename(np.where(shards > 1, held, head), "logits_held_bytes")


def _logits(s: Setting, c: Columns, tokens: Number, each: Number) -> Number:
    return memory.logits_bytes(tokens, s.model.logits, c.tp, each, s.loss_chunks)


def _gradient_held(s: Setting, c: Columns, shards: Number, both: Number, head: Number,
                   logits: Number) -> Number:  # fmt: skip
    """Bytes of the head's gradient (``head``: whole) or of the logits' (``logits``), where the fp32
    logits themselves are done with; ``both``: summed over replicas by itself."""
    many = shards >= WIDE
    part = head / shards
    windowed = np.where(_early_head(s, c, shards), np.minimum(logits, part), logits)
    # over replicas it is summed and cut before the layers' pass, over many devices it stays whole
    cut = np.where(both & ~many, part, head) if not crosses_slices(s) else head
    held = np.where(both | many, np.minimum(logits, cut), windowed)
    if crosses_slices(s):
        held = np.where(both & _whole_slice(s, c, shards), head, held)
    return held


def _whole_slice(s: Setting, c: Columns, shards: Number) -> Number:
    """Whether the head's gradient is summed over a whole slice of 64 devices and more, by cp or tp
    too: it is made at the loss, whole."""
    return (shards * c.tp >= WIDE) & ((c.cp > 1) | (c.tp > 1)) & (c.dp <= s.machine.slices)


def _read_late(s: Setting, c: Columns, shards: Number, both: Number, alone: bool
               ) -> tuple[Number, Number]:  # fmt: skip
    """Where dp and fsdp leave the fp32 logits to be read after the layers' pass, by the head's
    gradient or the loss's own value: on a chip that has this in one slice, and on all.

    In one slice a sharded optimizer has the gradient scattered over dp and cp as it is made; over
    several, replicas inside a slice have it summed there at once.
    """
    if not crosses_slices(s):
        return both, both & (c.cp > 1) & (not alone)
    late = both & ((c.dp <= s.machine.slices) | (c.cp > 1) | (c.tp > 2))
    return late, late & ~_whole_slice(s, c, shards) & ~((c.tp > 1) & alone)


@formula(unit="entries", source="what is left of the vocabulary where each device takes as much")
def entries_over(vocab: Number, shards: Number) -> Number:
    """Entries of the vocabulary beyond equal parts."""
    return vocab % shards


def _early_head(s: Setting, c: Columns, shards: Number) -> Number:
    """Whether a windowed head's gradient is made before the layers' pass, so that the logits' is
    not held through it: with several sequences, over fsdp alone or, on v5p, cp and tp=2 too."""
    wide = float(plain(s.stack.early_head))
    alone = (c.cp == 1) & (c.tp == 1)
    where = alone if wide < 2 else (c.tp <= 2)
    even = entries_over(s.model.logits, shards) == 0
    return where & even & (c.microbatch > 1) if wide else c.microbatch < 0


def first_layer_out(s: Setting, c: Columns, tokens: Number) -> Number:
    """1 where the first layer's weights are gathered and its attention recomputed beside the loss:
    dp over slices takes its backward pass out of the loop."""
    if not (float(plain(s.stack.first_layer_at_loss)) and crosses_slices(s)):
        return 0.0
    long = (c.microbatch <= 1) & (tokens > LONG_TOKENS)
    return rename(np.where((c.dp > 1) & ~long, 1.0, 0.0), "first_layer_at_loss")


def heads_at_loss(s: Setting, c: Columns, shards: Number, tokens: Number, alone: bool) -> Number:
    """Whole heads more at the loss: the head's gradient, where all-reduces sum it or its matmul is
    not windowed."""
    st = s.stack
    copies: Number = 0.0
    if float(plain(st.hybrid_heads)):
        # over slices and cp the gathered head is done with when its gradient is made
        beside = hybrid(c) & (c.cp == 1) if crosses_slices(s) else hybrid(c)
        copies = np.where(beside, st.hybrid_heads, 0.0)
    if float(plain(st.wide_heads)):
        few = (shards > 2) & (shards < WIDE) & _unwindowed(s, c, shards, alone) & ~hybrid(c)
        large = _logits(s, c, tokens, 4.0) > LARGE_LOGITS * s.usable_bytes
        wide = 0.0 if crosses_slices(s) else np.where(large, st.wide_heads, 1.0)
        more = np.where(shards >= WIDE, wide, np.where(few, 1.0, 0.0))
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


def head_again(s: Setting, c: Columns, shards: Number, alone: bool, held: Number) -> Number:
    """The head gathered once more at the loss. Where what stands then (``held``) nearly fills the
    memory, libtpu works the logits out a second time for their gradient, and gathers the head for
    that while the first stands: it holds more than it would without."""
    if not float(plain(s.stack.unwindowed_logit_bytes)):
        return 0.0
    apart = hybrid(c) & _unwindowed(s, c, shards, alone) & ((c.microbatch > 1) | alone)
    table = rename(memory.cut_params(params_embedding(s.model), c.tp, 1.0), "embedding_params")
    whole = memory.gathered_bytes(table, shards, 1.0, s.bytes.gathered, 0.0)
    full = held > NEARLY_FULL * s.usable_bytes
    return rename(np.where(apart & full, whole, 0.0), "head_again_bytes")
