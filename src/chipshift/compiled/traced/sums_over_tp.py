"""What a cut over tp makes a traced step send: an array whose parts tp devices hold is summed.

The step, forward and backward, is followed with the cut of its arguments and of the constraints in
it. A matmul over a dimension that tp cuts leaves a part of its result on each device; parts are
added and moved as they are, and summed once, where anything else is done with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from chipshift.compiled.hlo.purpose import sent_bytes
from chipshift.compiled.traced.dimensions import Labels, follow, inner
from chipshift.compiled.traced.sharded import TP, Cutting, same
from chipshift.compiled.traced.tensor_parallel import BATCH

_MOVED = ("neg", "convert_element_type", "transpose", "reshape", "squeeze", "broadcast_in_dim",
          "slice", "pad", "copy", "reduce_sum", "name")  # fmt: skip
_ADDED = ("add", "add_any", "sub")
_SCALED = ("mul", "div")


@dataclass(frozen=True)
class Part:
    """An array in the step: its labels, and whether each tp device has a part of its sum."""

    labels: Labels
    partial: bool = False


class Sums:
    """Bytes summed over tp, found while a step is followed."""

    def __init__(self, cutting: Cutting) -> None:
        self.cutting = cutting
        self.bytes = 0.0

    def followed(self, jaxpr: Any, ins: Sequence[Part], *, last: bool = False) -> list[Part]:
        """What a program's results are; ``last``: they leave the step."""
        held: dict[Any, Part] = dict(zip(jaxpr.invars, ins, strict=True))

        def read(v: Any) -> Part:
            nothing = Part((None,) * v.aval.ndim)
            return nothing if hasattr(v, "val") else held.get(v, nothing)

        def whole(v: Any) -> None:
            part = read(v)
            if part.partial:
                self.bytes += self._sent(v, part.labels)
                held[v] = Part(part.labels)

        for eqn in jaxpr.eqns:
            within = inner(eqn)
            if within is not None:
                outs = self.followed(within[0], [read(v) for v in eqn.invars])
            else:
                partial = self._stays_partial(eqn, [read(v).partial for v in eqn.invars])
                if not partial:
                    for v in eqn.invars:
                        whole(v)
                outs = self._made(eqn, [read(v).labels for v in eqn.invars], partial)
            held.update(zip(eqn.outvars, outs, strict=True))
        if last:
            for v in jaxpr.outvars:
                whole(v)
        return [read(v) for v in jaxpr.outvars]

    def _stays_partial(self, eqn: Any, partial: Sequence[bool]) -> bool:
        """Whether an operation on parts gives the parts of its result on the sum."""
        name = eqn.primitive.name
        if not any(partial):
            return False
        if name in _ADDED:
            return all(partial)
        scalar = [not v.aval.shape for v in eqn.invars]
        if name == "mul" and scalar[0]:
            return partial[1] and not partial[0]
        if name in _SCALED:
            return partial[0] and scalar[1] and not partial[1]
        return name in _MOVED and partial[0]

    def _made(self, eqn: Any, labels: Sequence[Labels], partial: bool) -> list[Part]:
        if eqn.primitive.name == "sharding_constraint":
            return [Part(self._of(eqn.params["sharding"], eqn.outvars[0].aval.ndim))]
        outs, events = follow(eqn, labels, self.cutting.parts, same)
        summed = any(e.label == TP and e.what in ("contracted", "reduced", "looked_up")
                     for e in events)  # fmt: skip
        return [Part(one, partial or summed) for one in outs]

    def _of(self, sharding: Any, rank: int) -> Labels:
        axes = [(x,) if isinstance(x, str) else tuple(x or ()) for x in sharding.spec]
        axes += [()] * (rank - len(axes))
        return tuple(
            TP if one == (TP,) else BATCH if one == self.cutting.batch else None for one in axes
        )

    def _sent(self, v: Any, labels: Labels) -> float:
        parts = prod(self.cutting.parts(label) for label in labels if label is not None)
        held = prod(v.aval.shape) * v.aval.dtype.itemsize / parts
        return sent_bytes("all_reduce", held, self.cutting.mesh.shape[TP])


def summed_over_tp(closed: Any, labels: Sequence[Labels], cutting: Cutting) -> float:
    """Bytes that a device sends a step in sums over tp.

    Args:
        closed: the step with its gradients. labels: of each argument.
    """
    sums = Sums(cutting)
    sums.followed(closed.jaxpr, [Part(one) for one in labels], last=True)
    return sums.bytes
