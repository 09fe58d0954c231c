"""A traced module run with its sharding written in: weights gathered over fsdp where they are used,
activations held to their cut over the batch and over tp.

Left to the partitioner, a program whose parameters alone are cut over two axes is cut by whatever
moves least in one matmul, and sums activations over fsdp.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from chipshift.compiled.traced.dimensions import Label, Labels, follow, inner
from chipshift.compiled.traced.tensor_parallel import BATCH

TP = "tp"
FSDP = "fsdp"
"""Labels of dimensions that tp cuts, and of a parameter's dimension that fsdp does."""

_STILL_HELD = ("transpose", "convert_element_type", "copy")
"""Operations on a parameter's own part that leave it where it is."""


@dataclass(frozen=True)
class Cutting:
    """Mesh axes behind the labels.

    Attributes:
        batch: axes that cut the inputs. over: the axis that cuts parameters, None = none.
        uses: (parameter, forward or backward) -> how often it is gathered, filled on the way.
        rows: parameter -> bytes of its rows that a device looks up and sends gradients of.
        kept: what several matmuls take, held to its cut once, so that its gradients are added
            before they are summed: by the value's identity.
    """

    mesh: Any
    batch: tuple[str, ...]
    over: str | None
    uses: Counter[tuple[str, str]] = field(default_factory=Counter)
    rows: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    kept: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def parts(self, label: Label) -> int:
        return prod(self.mesh.shape[axis] for axis in self.axes(label))

    def axes(self, label: Label) -> tuple[str, ...]:
        if label == BATCH:
            return self.batch
        if label == FSDP:
            return (self.over,) if self.over else ()
        return (TP,)

    def sharding(self, labels: Labels) -> Any:
        """Where an array of these labels lies; of two dimensions with one label (scores of a batch
        against itself) the first is cut."""
        from jax.sharding import NamedSharding
        from jax.sharding import PartitionSpec as P

        spec = [
            None if label is None or label in labels[:place] else self.axes(label)
            for place, label in enumerate(labels)
        ]
        return NamedSharding(self.mesh, P(*spec))


def same(one: Label, other: Label) -> Label:
    """Two labels that meet: the batch where they differ, as it is never given up."""
    return one if one in (other, BATCH) else other


def evaluate(
    closed: Any, values: Sequence[Any], labels: Sequence[Labels], origin: Sequence[str | None],
    cutting: Cutting,
) -> list[Any]:  # fmt: skip
    """Results of a program on these values.

    Args:
        labels: of each argument; FSDP on a parameter's dimension that fsdp cuts.
        origin: of each argument the parameter's name, None where it is none.
    """
    held = [Held(name) if name is not None else None for name in origin]
    run = _run(closed.jaxpr, closed.consts, values, labels, held, cutting, None)
    return [value for value, _, _ in run]


@dataclass(frozen=True)
class Held:
    """A parameter's own part, not yet gathered."""

    name: str


Value = tuple[Any, Labels, Held | None]


def _run(
    jaxpr: Any, consts: Sequence[Any], values: Sequence[Any], labels: Sequence[Labels],
    held: Sequence[Held | None], cutting: Cutting, outer: Any,
) -> list[Value]:  # fmt: skip
    from jax._src import source_info_util

    env: dict[Any, Value] = {
        v: (value, (None,) * v.aval.ndim, None)
        for v, value in zip(jaxpr.constvars, consts, strict=True)
    }
    env |= dict(zip(jaxpr.invars, zip(values, labels, held, strict=True), strict=True))

    def read(v: Any) -> Value:
        return (v.val, (None,) * v.aval.ndim, None) if hasattr(v, "val") else env[v]

    for eqn in jaxpr.eqns:
        at = outer or eqn  # a program within is traced once, and has its first caller's lines
        stack = source_info_util.current_name_stack() + eqn.source_info.name_stack
        with source_info_util.user_context(at.source_info.traceback, name_stack=stack):
            outs = _bind(eqn, [read(v) for v in eqn.invars], cutting, at)
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _bind(eqn: Any, ins: list[Value], cutting: Cutting, at: Any) -> list[Value]:
    """One operation, with what has to be gathered gathered and what it makes held to its cut."""
    within = inner(eqn)
    if within is not None and eqn.primitive.name in ("jit", "pjit", "closed_call"):
        values, labels = [value for value, _, _ in ins], [one for _, one, _ in ins]
        return _run(*within, values, labels, [held for _, _, held in ins], cutting, at)
    name = eqn.primitive.name
    weights = [held for _, _, held in ins if held is not None]
    if name in _STILL_HELD and weights:
        made, _ = follow(eqn, [labels for _, labels, _ in ins], cutting.parts, same)
        return [(_primitive(eqn, [ins[0][0]])[0], made[0], ins[0][2])]
    if name == "dot_general" and len(weights) == 1:
        return [_multiplied(eqn, ins, cutting)]
    if name == "gather" and ins[0][2] is not None:
        _looked_up(eqn, ins, cutting)
    ins = [_resolved(one, cutting) for one in ins]
    values, labels = [value for value, _, _ in ins], [labels for _, labels, _ in ins]
    made = _labels(eqn, labels, cutting)
    results = _primitive(eqn, values)
    if within is not None or name in ("dot_general", "gather"):
        results = [_kept(r, one, cutting) for r, one in zip(results, made, strict=True)]
    return [(r, one, None) for r, one in zip(results, made, strict=True)]


def _primitive(eqn: Any, values: Sequence[Any]) -> list[Any]:
    params = eqn.primitive.get_bind_params(eqn.params)
    found = eqn.primitive.bind(*values, **params)
    return list(found) if eqn.primitive.multiple_results else [found]


def _labels(eqn: Any, labels: Sequence[Labels], cutting: Cutting) -> list[Labels]:
    """Labels of the results, of an operation that holds a program by walking through that."""
    within = inner(eqn)
    if within is None:
        return follow(eqn, labels, cutting.parts, same)[0]
    env: dict[Any, Labels] = dict(zip(within[0].invars, labels, strict=True))
    for one in within[0].eqns:
        ins = [_of(env, v) for v in one.invars]
        env.update(zip(one.outvars, _labels(one, ins, cutting), strict=True))
    return [_of(env, v) for v in within[0].outvars]


def _of(env: Mapping[Any, Labels], v: Any) -> Labels:
    nothing: Labels = (None,) * v.aval.ndim
    return nothing if hasattr(v, "val") else env.get(v, nothing)


def _kept(x: Any, labels: Labels, cutting: Cutting) -> Any:
    """``x`` held to its cut, and its gradient with it; as it is where no batch is known in it."""
    import jax

    if BATCH not in labels:
        return x
    return jax.lax.with_sharding_constraint(x, cutting.sharding(labels))


def _multiplied(eqn: Any, ins: list[Value], cutting: Cutting) -> Value:
    """A matmul by a weight, which is gathered for it and, in the backward pass, once more."""
    import jax

    weight = next(index for index, one in enumerate(ins) if one[2] is not None)
    value, labels, held = ins[weight]
    x, x_labels, _ = ins[1 - weight]
    assert held is not None
    whole = _whole(labels)
    made = follow(eqn, _at(weight, whole, x_labels), cutting.parts, same)[0][0]
    x = cutting.kept.setdefault(id(x), (x, _kept(x, x_labels, cutting)))[1]

    def multiply(w: Any, x: Any) -> Any:
        return _primitive(eqn, _at(weight, gathered(w, labels, cutting), x))[0]

    if FSDP in labels:
        multiply = jax.checkpoint(multiply)
        cutting.uses[held.name, "backward"] += 1
    cutting.uses[held.name, "forward"] += 1
    return _kept(multiply(value, x), made, cutting), made, None


def _at(weight: int, w: Any, x: Any) -> list[Any]:
    """A matmul's two operands, the weight where it stands."""
    return [w, x] if weight == 0 else [x, w]


def _whole(labels: Labels) -> Labels:
    return tuple(None if label == FSDP else label for label in labels)


def _looked_up(eqn: Any, ins: list[Value], cutting: Cutting) -> None:
    """Bytes of the rows that a device takes from a table which fsdp cuts along the rows' width:
    their gradients are exchanged for parts of all rows', where a whole table's would be summed."""
    _, labels, held = ins[0]
    numbers = eqn.params["dimension_numbers"]
    if held is None or FSDP not in labels or labels.index(FSDP) in numbers.start_index_map:
        return
    made = follow(eqn, [_whole(labels), *(one[1] for one in ins[1:])], cutting.parts, same)[0][0]
    taken = eqn.outvars[0].aval
    parts = prod(cutting.parts(label) for label in made if label is not None)
    cutting.rows[held.name] += prod(taken.shape) * taken.dtype.itemsize / parts


def _resolved(one: Value, cutting: Cutting) -> Value:
    """A parameter gathered for any other use than a matmul."""
    value, labels, held = one
    if held is None:
        return one
    cutting.uses[held.name, "forward"] += 1
    return gathered(value, labels, cutting), _whole(labels), None


def gathered(w: Any, labels: Labels, cutting: Cutting) -> Any:
    """A weight gathered over fsdp; its gradient is reduced and scattered to where it lies."""
    import jax

    if FSDP not in labels:
        return w
    cut, whole = cutting.sharding(labels), cutting.sharding(_whole(labels))
    constrain = jax.lax.with_sharding_constraint

    def forward(w: Any) -> Any:
        return constrain(constrain(w, cut), whole)

    moved = jax.custom_vjp(forward)
    moved.defvjp(lambda w: (forward(w), None), lambda _, grad: (constrain(grad, cut),))
    return moved(w)
