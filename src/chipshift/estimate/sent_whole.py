"""Scatters that libtpu sends as all-reduces of the whole array, by the rules of its slices."""

from __future__ import annotations

from typing import Any

import numpy as np

from chipshift.estimate.columns import Columns
from chipshift.estimate.setting import Setting
from chipshift.fabric.lowering import Slice, rules, slice_of
from chipshift.worked import formula

Number = Any


def slice_of_setting(s: Setting) -> Slice | None:
    """The slice that a plan runs on; None where no rule is known."""
    m = s.machine
    if m.chip.family != "tpu":
        return None
    return slice_of(m.chip.key, f":{m.topology.partition('*')[0]}", m.devices, m.slices)


def scatters_one_sequence_whole(s: Setting) -> bool:
    """Whether activations of one sequence a device are scattered over tp by an all-reduce."""
    return s.machine.chip.key in rules()["scatter_behind_one"]["sequence"]


@formula(
    unit="s", source="libtpu 0.0.42: a scatter along a dimension that only one of size one precedes"
)
def scattered_along_sequence(scatter_s: Number, all_reduce_s: Number, sequences: Number) -> Number:
    """Seconds to scatter activations of so many sequences a device along the sequence."""
    return np.where(sequences <= 1, all_reduce_s, scatter_s)


def optimizer_scatters_whole(s: Setting, c: Columns) -> Number:
    """1 where gradients of weights that no fsdp cuts are scattered to the optimizer's parts by an
    all-reduce: over dp and cp or ep at once, since the parts lie in another order than the mesh's
    devices, or over every device of the slice; else 0."""
    on = slice_of_setting(s)
    if on is None or s.machine.slices > 1:
        return 0.0
    whole: Number = 0.0
    if on.scatters_in_mesh_order(looked_up=False):
        several = (c.cp > 1) | (c.ep > 1)
        whole = np.where(several & (c.fsdp == 1), 1.0, 0.0)
    if on.scatters_by_sum(on.devices, in_matmul=False):
        whole = np.maximum(whole, np.where(c.fsdp * c.tp * c.pp == 1, 1.0, 0.0))
    return whole
