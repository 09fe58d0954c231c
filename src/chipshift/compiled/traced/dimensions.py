"""Labels of dimensions followed through a traced program, operation by operation.

A label stands on a dimension of an array: which one it is (a parameter's, the batch) or what cuts
it. ``follow`` says which labels the results of an operation have, what happens to those that end
there, and which have to be the same. It runs nothing and knows no mesh.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

Label = Hashable
Labels = tuple[Label | None, ...]
"""One an array's dimension; None where nothing is followed."""

Parts = Callable[[Label], int]
"""Devices that a dimension of that label is cut over."""

Merge = Callable[[Label, Label], Label]
"""Two labels that meet in one dimension, as one."""


@dataclass(frozen=True)
class Event:
    """What ends a label.

    Attributes:
        what: ``contracted`` (a matmul sums over it), ``reduced`` (another sum or maximum does),
            ``looked_up`` (rows are taken by index) or ``lost`` (it cannot be kept; why says so).
    """

    what: str
    label: Label
    why: str = ""


Followed = tuple[list[Labels], list[Event]]

INNER = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}
"""Operations that hold a program of their own, with the same arguments, by its parameter's name."""

_REDUCTIONS = ("reduce_", "argmax", "argmin")
_ALONG = {"cumsum": "axis", "cumprod": "axis", "cummax": "axis", "cumlogsumexp": "axis",
          "sort": "dimension"}  # fmt: skip


def inner(eqn: Any) -> tuple[Any, Sequence[Any]] | None:
    """The program that an operation holds, with its constants; None where it holds none."""
    key = INNER.get(eqn.primitive.name)
    held = eqn.params.get(key) if key else None
    if held is None:
        return None
    open_, consts = getattr(held, "jaxpr", held), getattr(held, "consts", ())
    return (open_, consts) if len(open_.invars) == len(eqn.invars) else None


def follow(eqn: Any, ins: Sequence[Labels], parts: Parts, merge: Merge) -> Followed:
    """Labels of an operation's results, and what ended."""
    name = eqn.primitive.name
    shapes = [v.aval.shape for v in eqn.invars]
    outs = [v.aval.shape for v in eqn.outvars]
    rule = _RULES.get(name)
    if rule is not None:
        return rule(eqn, ins, shapes, outs, parts, merge)
    if name.startswith(_REDUCTIONS) and "axes" in eqn.params:
        return _reduced(eqn, ins)
    if name in _ALONG:
        axis = eqn.params[_ALONG[name]]
        kept = [_without(one, {axis}) for one in ins]
        return kept[: len(outs)], _lost(ins[0], {axis}, f"{name} goes along it")
    if outs and set(outs) == {outs[0]} and all(_spreads(shape, outs[0]) for shape in shapes):
        arrays = [
            tuple(x if n == m else None for x, n, m in zip(one, shape, outs[0], strict=True))
            for one, shape in zip(ins, shapes, strict=True)
            if shape
        ]
        return [_merged(arrays, len(outs[0]), merge)] * len(outs), []
    every = [label for one in ins for label in one if label is not None]
    return [(None,) * len(o) for o in outs], [Event("lost", x, f"{name} mixes it") for x in every]


def _spreads(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Whether an operation element by element takes an array of ``shape`` as one of ``to``."""
    same = len(shape) == len(to) and all(n in (1, m) for n, m in zip(shape, to, strict=True))
    return same or not shape


def _merged(arrays: Sequence[Labels], rank: int, merge: Merge) -> Labels:
    out: list[Label | None] = [None] * rank
    for one in arrays:
        for dim, label in enumerate(one):
            held = out[dim]
            out[dim] = label if held is None else held if label is None else merge(held, label)
    return tuple(out)


def _without(labels: Labels, dims: set[int]) -> Labels:
    return tuple(None if dim in dims else label for dim, label in enumerate(labels))


def _lost(labels: Labels, dims: set[int], why: str) -> list[Event]:
    found = (labels[dim] for dim in sorted(dims))
    return [Event("lost", label, why) for label in found if label is not None]


def _reduced(eqn: Any, ins: Sequence[Labels]) -> Followed:
    axes = set(eqn.params["axes"])
    left = tuple(label for dim, label in enumerate(ins[0]) if dim not in axes)
    ended = [ins[0][dim] for dim in sorted(axes)]
    return [left] * len(eqn.outvars), [Event("reduced", x) for x in ended if x is not None]


def _broadcast(
    eqn: Any, ins: Sequence[Labels], shapes: Any, outs: Any, parts: Parts, merge: Merge
) -> Followed:
    out: list[Label | None] = [None] * len(outs[0])
    for dim, to in enumerate(eqn.params["broadcast_dimensions"]):
        if shapes[0][dim] == outs[0][to]:
            out[to] = ins[0][dim]
    return [tuple(out)], []


def _transposed(
    eqn: Any, ins: Sequence[Labels], shapes: Any, outs: Any, parts: Parts, merge: Merge
) -> Followed:
    return [tuple(ins[0][dim] for dim in eqn.params["permutation"])], []


def _squeezed(
    eqn: Any, ins: Sequence[Labels], shapes: Any, outs: Any, parts: Parts, merge: Merge
) -> Followed:
    gone = {dim % len(shapes[0]) for dim in eqn.params["dimensions"]}
    return [tuple(label for dim, label in enumerate(ins[0]) if dim not in gone)], []


def _reshaped(
    eqn: Any, ins: Sequence[Labels], shapes: Any, outs: Any, parts: Parts, merge: Merge
) -> Followed:
    """A label goes to the outermost of the dimensions that its own is split into, where that
    divides over what cuts it, and stays where its own is the outermost of those that are merged."""
    out: list[Label | None] = [None] * len(outs[0])
    events = []
    for before, after in _groups(shapes[0], outs[0]):
        split = [dim for dim in after if outs[0][dim] != 1]
        whole = [dim for dim in before if shapes[0][dim] != 1]
        alone = next(
            (ins[0][d] for d in before if shapes[0][d] == 1 and ins[0][d] is not None), None
        )
        if alone is not None and after and all(ins[0][d] is None for d in whole):
            out[(split or after)[0]] = alone  # a batch of one sequence
        for dim in whole:
            label = ins[0][dim]
            if label is None:
                continue
            size = outs[0][split[0]] if split else 1
            if dim == whole[0] and size % parts(label) == 0:
                out[split[0]] = label
            elif dim == whole[0]:
                why = f"{size} of it do not divide over {parts(label)} devices"
                events.append(Event("lost", label, why))
            else:
                events.append(Event("lost", label, "it is laid out inside another dimension"))
    return [tuple(out)], events


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Dimensions of two shapes of one array that hold the same elements, fewest together."""
    groups = []
    i = j = 0
    while i < len(before) or j < len(after):
        left, right = [], []
        a = b = 1
        if i < len(before):
            left, a, i = [i], before[i], i + 1
        if j < len(after):
            right, b, j = [j], after[j], j + 1
        while a != b:
            if a < b:
                left, a, i = [*left, i], a * before[i], i + 1
            else:
                right, b, j = [*right, j], b * after[j], j + 1
        groups.append((left, right))
    return groups


def _dot(
    eqn: Any, ins: Sequence[Labels], shapes: Any, outs: Any, parts: Parts, merge: Merge
) -> Followed:
    (over_l, over_r), (batch_l, batch_r) = eqn.params["dimension_numbers"]
    left, right = ins
    events, out = [], []
    for pair in zip(over_l, over_r, strict=True):
        label = _merged([(left[pair[0]],), (right[pair[1]],)], 1, merge)[0]
        events += [Event("contracted", label)] if label is not None else []
    for pair in zip(batch_l, batch_r, strict=True):
        out.append(_merged([(left[pair[0]],), (right[pair[1]],)], 1, merge)[0])
    for labels, over, batch in ((left, over_l, batch_l), (right, over_r, batch_r)):
        out += [x for dim, x in enumerate(labels) if dim not in over and dim not in batch]
    return [tuple(out)], events


def _cut_out(
    eqn: Any, ins: Sequence[Labels], shapes: Any, outs: Any, parts: Parts, merge: Merge
) -> Followed:
    """Slices and pads: a dimension of which all is kept keeps its label."""
    changed = {dim for dim, n in enumerate(shapes[0]) if n != outs[0][dim]}
    return [_without(ins[0], changed)] * len(outs), _lost(
        ins[0], changed, "a part of it is cut out"
    )


def _joined(
    eqn: Any, ins: Sequence[Labels], shapes: Any, outs: Any, parts: Parts, merge: Merge
) -> Followed:
    along = {eqn.params["dimension"]}
    events = [e for one in ins for e in _lost(one, along, "arrays are joined along it")]
    return [_merged([_without(one, along) for one in ins], len(outs[0]), merge)], events


def _written(
    eqn: Any, ins: Sequence[Labels], shapes: Any, outs: Any, parts: Parts, merge: Merge
) -> Followed:
    """dynamic_update_slice: of an array whose dimension is written whole."""
    changed = {dim for dim, n in enumerate(shapes[0]) if n != shapes[1][dim]}
    kept = [_without(one, changed) for one in ins[:2]]
    return [_merged(kept, len(outs[0]), merge)], _lost(ins[0], changed, "a part of it is written")


def _looked_up(
    eqn: Any, ins: Sequence[Labels], shapes: Any, outs: Any, parts: Parts, merge: Merge
) -> Followed:
    """Rows taken by index: those dimensions that are taken whole keep their labels, and the indices
    theirs."""
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    table, indices = ins[0], ins[1]
    out: list[Label | None] = [None] * len(outs[0])
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    taken = [dim for dim in range(len(table)) if dim not in dropped]
    for dim, to in zip(taken, numbers.offset_dims, strict=True):
        out[to] = table[dim] if sizes[dim] == shapes[0][dim] else None
    places = [to for to in range(len(out)) if to not in numbers.offset_dims]
    for dim, to in enumerate(places):
        out[to] = indices[dim]
    for dim, at in zip(
        numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True
    ):
        here, label = places[at], table[dim]
        out[here] = _merged([(out[here],), (label,)], 1, merge)[0]
    return [tuple(out)], [
        Event("looked_up", x)
        for dim in numbers.start_index_map
        if (x := table[dim]) is not None and sizes[dim] != shapes[0][dim]
    ]


def _added_at(
    eqn: Any, ins: Sequence[Labels], shapes: Any, outs: Any, parts: Parts, merge: Merge
) -> Followed:
    """Rows added or written by index: the array's own labels, and the rows' where they are whole;
    what the indices' dimensions cut is summed."""
    numbers = eqn.params["dimension_numbers"]
    table, rows = list(ins[0]), ins[2]
    dropped = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    kept = [dim for dim in range(len(table)) if dim not in dropped]
    for dim, of in zip(kept, numbers.update_window_dims, strict=True):
        if shapes[0][dim] == shapes[2][of]:
            table[dim] = _merged([(table[dim],), (rows[of],)], 1, merge)[0]
    ended = [x for at, x in enumerate(rows) if at not in numbers.update_window_dims]
    return [tuple(table)], [Event("reduced", x) for x in ended if x is not None]


def _convolved(
    eqn: Any, ins: Sequence[Labels], shapes: Any, outs: Any, parts: Parts, merge: Merge
) -> Followed:
    numbers = eqn.params["dimension_numbers"]
    (batch, *rest), to = numbers.lhs_spec, numbers.out_spec[0]
    out: list[Label | None] = [None] * len(outs[0])
    out[to] = ins[0][batch]
    every = [ins[0][dim] for dim in rest] + list(ins[1])
    return [tuple(out)], [Event("lost", x, "a convolution") for x in every if x is not None]


_RULES: dict[str, Callable[..., Followed]] = {
    "broadcast_in_dim": _broadcast,
    "transpose": _transposed,
    "squeeze": _squeezed,
    "reshape": _reshaped,
    "dot_general": _dot,
    "slice": _cut_out,
    "dynamic_slice": _cut_out,
    "pad": _cut_out,
    "split": _cut_out,
    "concatenate": _joined,
    "dynamic_update_slice": _written,
    "gather": _looked_up,
    "scatter": _added_at,
    "scatter-add": _added_at,
    "scatter_add": _added_at,
    "conv_general_dilated": _convolved,
}
