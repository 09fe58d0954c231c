"""Which dimensions of a traced module's parameters tp can cut, by what the module does with them.

Every dimension of a parameter gets a label, and labels that meet in one dimension of an activation
are one *group*: the outputs of gate and up with the inputs of down, say, or queries, keys, values
and the inputs of what follows attention. A group that projections make and another takes back in is
cut as Megatron does: columns of the first, rows of the second, one sum over tp for the two (Shoeybi
et al., "Megatron-LM", 2019, section 3). So is a vocabulary: rows of a table that the inputs look up
and the head's outputs. What anything else is done to over its whole width (a norm, a slice) is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chipshift.compiled.traced.dimensions import Event, Label, Labels, follow, inner

BATCH = "batch"
"""Label of the dimension that the inputs' sequences lie along."""

Line = Callable[[Any], str]
"""The user's file and line of an operation, "" where none is known."""


@dataclass
class Group:
    """Dimensions that are one.

    Attributes:
        members: (parameter, dimension).
        made, taken: parameters whose matmuls have it as output, and sum over it.
        tables: parameters whose rows along it are looked up by the inputs.
        whole: why it cannot be cut, "" = it can; normed: something else sums over it, and where.
    """

    size: int
    members: list[tuple[str, int]]
    made: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    whole: str = ""
    normed: str = ""
    batch: bool = False


@dataclass(frozen=True)
class Roles:
    """What tp cuts.

    Attributes:
        dims: parameter -> its dimension that is cut.
        roles: parameter -> ``columns``, ``rows`` or ``vocabulary``; what is cut along with them (a
            bias) is ``with them``.
        why: parameter of two dimensions or more -> why it is whole.
    """

    dims: Mapping[str, int]
    roles: Mapping[str, str]
    why: Mapping[str, str]


class Groups:
    """Labels joined into groups while a program is followed."""

    def __init__(self, parameters: Mapping[str, tuple[int, ...]], tp: int) -> None:
        self.tp = tp
        self.of: dict[Label, Label] = {BATCH: BATCH}
        self.groups: dict[Label, Group] = {BATCH: Group(0, [], batch=True)}
        for name, shape in parameters.items():
            for dim, size in enumerate(shape):
                self.of[name, dim] = (name, dim)
                self.groups[name, dim] = Group(size, [(name, dim)])

    def root(self, label: Label) -> Label:
        while self.of[label] != label:
            label = self.of[label]
        return label

    def get(self, label: Label) -> Group:
        return self.groups[self.root(label)]

    def merge(self, one: Label, other: Label) -> Label:
        a, b = self.root(one), self.root(other)
        if a == b:
            return a
        if b == BATCH:
            a, b = b, a
        into, gone = self.groups[a], self.groups.pop(b)
        self.of[b] = a
        into.members += gone.members
        into.made += gone.made
        into.taken += gone.taken
        into.tables += gone.tables
        into.whole = into.whole or gone.whole
        into.normed = into.normed or gone.normed
        return a

    def parts(self, label: Label) -> int:
        return 1 if self.root(label) == BATCH else self.tp


def roles(
    closed: Any,
    names: Sequence[str | None],
    labels: Sequence[Labels],
    tp: int,
    line: Line,
) -> Roles:
    """What tp cuts of the parameters of a program.

    Args:
        closed: its ``ClosedJaxpr``.
        names: of each argument, None where it is no parameter.
        labels: of each argument that is none (``BATCH`` where it is cut); of parameters ignored.
    """
    shapes = {
        name: tuple(v.aval.shape)
        for name, v in zip(names, closed.jaxpr.invars, strict=True)
        if name is not None
    }
    groups = Groups(shapes, tp)
    start = [
        tuple((name, dim) for dim in range(len(shapes[name]))) if name is not None else given
        for name, given in zip(names, labels, strict=True)
    ]
    _walk(closed.jaxpr, start, list(names), groups, line, None)
    return _chosen(shapes, groups)


def _walk(
    jaxpr: Any,
    labels: Sequence[Labels],
    origin: Sequence[str | None],
    groups: Groups,
    line: Line,
    outer: Any,
) -> list[Labels]:
    """Labels of a program's results; groups are filled on the way."""
    held: dict[Any, Labels] = dict(zip(jaxpr.invars, labels, strict=True))
    of: dict[Any, str] = {
        v: name for v, name in zip(jaxpr.invars, origin, strict=True) if name is not None
    }

    def read(v: Any) -> Labels:
        return held.get(v, (None,) * len(v.aval.shape)) if _is_var(v) else ()

    for eqn in jaxpr.eqns:
        ins = [read(v) for v in eqn.invars]
        from_ = [of.get(v) if _is_var(v) else None for v in eqn.invars]
        within = inner(eqn)
        if within is not None:
            outs = _walk(within[0], ins, from_, groups, line, outer or eqn)
        else:
            ins = [_padded(one, v) for one, v in zip(ins, eqn.invars, strict=True)]
            outs, events = follow(eqn, ins, groups.parts, groups.merge)
            _note(eqn, ins, from_, outs, events, groups, line, outer or eqn)
            if eqn.primitive.name in ("transpose", "convert_element_type", "copy") and from_[0]:
                of[eqn.outvars[0]] = from_[0]
        held.update(zip(eqn.outvars, outs, strict=True))
    return [_padded(read(v), v) for v in jaxpr.outvars]


def _is_var(v: Any) -> bool:
    return not hasattr(v, "val")


def _padded(labels: Labels, v: Any) -> Labels:
    return labels or (None,) * len(v.aval.shape)


def _note(
    eqn: Any,
    ins: Sequence[Labels],
    origin: Sequence[str | None],
    outs: Sequence[Labels],
    events: Sequence[Event],
    groups: Groups,
    line: Line,
    at: Any,
) -> None:
    """What an operation does to groups."""
    batch = any(label is not None and groups.root(label) == BATCH for one in ins for label in one)
    weights = [name for name in origin if name is not None]
    matmul = eqn.primitive.name == "dot_general" and len(weights) == 1
    for event in events:
        group = groups.get(event.label)
        if event.what == "contracted" and matmul:
            group.taken.append(weights[0])
        elif event.what == "looked_up" and weights and batch:
            group.tables.append(weights[0])
        elif event.what == "looked_up" and weights:
            group.whole = group.whole or f"its rows are looked up by no input{_at(line(at))}"
        elif event.what == "reduced":
            group.normed = group.normed or line(at) or "somewhere"
        elif event.what == "lost":
            group.whole = group.whole or f"{event.why}{_at(line(at))}"
    if matmul:
        for label in outs[0]:
            if label is not None and (weights[0] in _names(groups.get(label))):
                groups.get(label).made.append(weights[0])


def _names(group: Group) -> set[str]:
    return {name for name, _ in group.members}


def _at(line: str) -> str:
    return f" ({line})" if line else ""


def _chosen(shapes: Mapping[str, tuple[int, ...]], groups: Groups) -> Roles:
    """Groups to cut, those of fewest parameters first, so that what joins layers (the hidden state)
    is left whole; no parameter twice."""
    vocabularies = {g.size for g in groups.groups.values() if g.tables}
    cut: list[Group] = []
    taken: set[str] = set()
    why: dict[int, str] = {}
    for group in sorted(groups.groups.values(), key=lambda g: len(_matrices(g, shapes))):
        reason = _refused(group, groups.tp, vocabularies)
        if not reason and _names(group) & taken:
            reason = "its other dimension is cut"
        if reason:
            why[id(group)] = reason
            continue
        cut.append(group)
        taken |= _names(group)
    dims = {name: dim for group in cut for name, dim in group.members}
    found = {name: _role(name, group, shapes) for group in cut for name, _ in group.members}
    whole = {
        name: _why(name, len(shape), groups, why)
        for name, shape in shapes.items()
        if len(shape) > 1 and name not in dims
    }
    return Roles(dims, found, whole)


def _matrices(group: Group, shapes: Mapping[str, tuple[int, ...]]) -> set[str]:
    return {name for name, _ in group.members if len(shapes[name]) > 1}


def _refused(group: Group, tp: int, vocabularies: set[int]) -> str:
    """Why a group is not cut; "" where it is."""
    if group.batch:
        return "it is joined with the batch"
    head = bool(group.made) and not group.taken and group.size in vocabularies
    if group.whole and (group.made or group.tables):
        return group.whole
    if not (group.tables or head or (group.made and group.taken)):
        return "no pair of projections, out to a width and back, was recognised around it"
    if group.normed and not (group.tables or head):
        return f"its whole width is summed over ({group.normed})"
    if group.size % tp:
        return f"{group.size:,} do not divide over tp={tp}"
    return ""


def _role(name: str, group: Group, shapes: Mapping[str, tuple[int, ...]]) -> str:
    if name in group.tables or (group.tables and not group.taken) or not group.taken:
        return "vocabulary" if len(shapes[name]) > 1 else "with them"
    if name in group.taken:
        return "rows"
    return "columns" if name in group.made else "with them"


def _why(name: str, rank: int, groups: Groups, why: Mapping[int, str]) -> str:
    """The reason that says most: of what it makes that cannot be cut, else of the dimension between
    two projections or of a table's rows, else of that joined with fewest parameters'."""

    def likely(group: Group) -> tuple[bool, bool, bool, int]:
        broken = bool(group.whole) and name in group.made
        paired = bool(group.made and group.taken) or bool(group.tables)
        return not broken, not paired, not group.made, len(group.members)

    return why.get(id(min((groups.get((name, dim)) for dim in range(rank)), key=likely)), "")
