"""What a compiler that places every buffer before the run (XLA) holds at the moments of a step.

Read off the buffers alive at the peak of compiled programs: docs/compile.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chipshift.estimate.columns import Columns
from chipshift.estimate.cuts import Params, state
from chipshift.estimate.head import WIDE, crosses_slices
from chipshift.estimate.setting import Setting
from chipshift.estimate.stage import device_params, heaviest_kind
from chipshift.parallel import memory
from chipshift.roofline.time import padded
from chipshift.worked import formula, plain, rename

Number = Any

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


def layers_gathered(s: Setting, c: Columns, wd: Number, we: Number) -> Number:
    """Whole layers of the heaviest kind that FSDP has gathered."""
    dense, experts = device_params(s, c, heaviest_kind(s))
    b = s.bytes
    held, reduced = s.stack.gathered_layers, b.reduce * s.stack.whole_gradient_layers
    layers = memory.gathered_bytes(dense, wd, held, b.gathered, reduced)
    own = memory.gathered_bytes(experts, we, held, b.gathered, reduced)
    return rename(layers, "layers_gathered_bytes") + rename(own, "experts_gathered_bytes")


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
