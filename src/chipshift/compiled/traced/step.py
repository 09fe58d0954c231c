"""A traced module's training step on a mesh: loss and gradients, cut and held to its cut.

The inputs are cut over dp and fsdp by their first dimension; each parameter over tp by what the
module does with it (tensor_parallel.py), and over fsdp by the largest other dimension that divides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chipshift.compiled.expected_module import Cut
from chipshift.compiled.traced.dimensions import Labels
from chipshift.compiled.traced.sharded import FSDP, TP, Cutting, evaluate
from chipshift.compiled.traced.sums_over_tp import summed_over_tp
from chipshift.compiled.traced.tensor_parallel import BATCH, Line, Roles, roles


@dataclass(frozen=True)
class WholeProgram:
    """A module's loss as a ``ClosedJaxpr`` that knows no mesh; its arguments are the parameters,
    the buffers and the inputs, each abstract (shape and dtype)."""

    closed: Any
    parameters: Mapping[str, Any]
    buffers: Mapping[str, Any]
    inputs: tuple[Any, ...]

    @property
    def names(self) -> list[str | None]:
        """Of each argument the parameter's, None where it is none."""
        return [*self.parameters, *[None] * (len(self.buffers) + len(self.inputs))]


@dataclass(frozen=True)
class CutStep:
    """A step, its abstract arguments (parameters, buffers, each input), and what its cut asks for.

    Attributes:
        step: jitted; gives the loss and the gradients by name, cut as the parameters are.
        roles: what tp cuts. over_tp: bytes a device sends in sums over tp.
        notes: what of the inputs is whole on every device.
    """

    step: Any
    arguments: tuple[Any, ...]
    roles: Roles
    cuts: tuple[Cut, ...]
    over_tp: float
    notes: tuple[str, ...]


def batch_axes(mesh: Any) -> tuple[str, ...]:
    """Mesh axes over which inputs are cut: dp and fsdp, on a mesh of other names the first."""
    return tuple(a for a in ("dp", "fsdp") if a in mesh.shape) or (mesh.axis_names[0],)


def weight_axis(mesh: Any) -> str | None:
    """The mesh axis that cuts parameters: fsdp, on a mesh of other names the first."""
    return "fsdp" if "fsdp" in mesh.shape else None if "dp" in mesh.shape else mesh.axis_names[0]


def parameter_labels(shape: tuple[int, ...], by_tp: int | None, fsdp: int | None) -> Labels:
    """What cuts each dimension of a parameter: tp the one it is given, fsdp the largest other that
    divides by ``fsdp`` devices, None = there is no such axis."""
    labels: list[Any] = [None] * len(shape)
    if by_tp is not None:
        labels[by_tp] = TP
    for dim in sorted(range(len(shape)), key=lambda d: -shape[d]):
        if fsdp is not None and labels[dim] is None and shape[dim] % fsdp == 0:
            labels[dim] = FSDP
            break
    return tuple(labels)


def input_labels(shape: tuple[int, ...], replicas: int) -> Labels:
    """The first dimension is the batch, where it divides."""
    cut = bool(shape) and shape[0] % replicas == 0
    return (BATCH if cut else None, *(None,) * (len(shape) - 1)) if shape else ()


def cut_step(program: WholeProgram, mesh: Any, line: Line) -> CutStep:
    """A module's step on a mesh. ``line``: the user's file and line of a traced operation."""
    cutting = Cutting(mesh, batch_axes(mesh), weight_axis(mesh))
    replicas = cutting.parts(BATCH)
    rest = [(None,) * x.ndim for x in program.buffers.values()]
    given = [input_labels(x.shape, replicas) for x in program.inputs]
    rest += given
    found = _tp_roles(program, rest, mesh, line)
    fsdp = mesh.shape[cutting.over] if cutting.over else None
    labels = {
        name: parameter_labels(tuple(x.shape), found.dims.get(name), fsdp)
        for name, x in program.parameters.items()
    }
    order = [*labels.values(), *rest]
    step, arguments = _jitted(program, labels, order, cutting)
    traced = step.trace(*arguments)
    flat = [labels[name] for name in sorted(labels)]  # as jax flattens what is held by name
    flat += [(None,) * program.buffers[name].ndim for name in sorted(program.buffers)]
    flat += given
    over_tp = summed_over_tp(traced.jaxpr, flat, cutting) if mesh.shape.get(TP, 1) > 1 else 0.0
    notes = tuple(_whole_inputs(program.inputs, given, replicas))
    return CutStep(step, arguments, found, _cuts(program, labels, cutting), over_tp, notes)


def _tp_roles(program: WholeProgram, rest: list[Labels], mesh: Any, line: Line) -> Roles:
    """What tp cuts; nothing where the mesh has none."""
    tp = mesh.shape.get(TP, 1)
    if tp == 1:
        return Roles({}, {}, {})
    unnamed: list[Labels] = [() for _ in program.parameters]
    return roles(program.closed, program.names, unnamed + rest, tp, line)


def _jitted(
    program: WholeProgram, labels: Mapping[str, Labels], order: list[Labels], cutting: Cutting
) -> tuple[Any, tuple[Any, ...]]:
    """Loss and gradients as one jitted function, and its abstract arguments."""
    import jax

    def value(params: Any, buffers: Any, *inputs: Any) -> Any:
        flat = [*(params[n] for n in labels), *(buffers[n] for n in program.buffers), *inputs]
        return evaluate(program.closed, flat, order, program.names, cutting)[0]

    every = [*program.parameters.values(), *program.buffers.values(), *program.inputs]
    placed = [
        jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=cutting.sharding(one))
        for x, one in zip(every, order, strict=True)
    ]
    first = len(program.parameters)
    last = first + len(program.buffers)
    arguments = (
        dict(zip(program.parameters, placed[:first], strict=True)),
        dict(zip(program.buffers, placed[first:last], strict=True)),
        *placed[last:],
    )
    gradients = {name: cutting.sharding(one) for name, one in labels.items()}
    step = jax.jit(jax.value_and_grad(value), out_shardings=(cutting.sharding(()), gradients))
    return step, arguments


def _whole_inputs(inputs: tuple[Any, ...], labels: list[Labels], replicas: int) -> list[str]:
    return [
        f"input {number} is whole on every device: {x.shape[0] if x.ndim else 'a number'} rows do "
        f"not divide over {replicas} replicas"
        for number, (x, one) in enumerate(zip(inputs, labels, strict=True))
        if BATCH not in one
    ]


def _cuts(program: WholeProgram, labels: Mapping[str, Labels], cutting: Cutting) -> tuple[Cut, ...]:
    """Every parameter, how it is cut and how often it is gathered."""
    return tuple(
        Cut(
            name,
            tuple(x.shape),
            x.dtype.itemsize,
            tuple(None if one is None else cutting.axes(one)[0] for one in labels[name]),
            cutting.uses[name, "forward"],
            cutting.uses[name, "backward"],
            cutting.rows[name],
        )
        for name, x in program.parameters.items()
    )
