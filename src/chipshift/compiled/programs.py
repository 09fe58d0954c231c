"""Programs to compile, traced and lowered: the built-in step, a user's step, module or file."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from chipshift.compiled.findings import finding
from chipshift.compiled.request import Request
from chipshift.compiled.users import imported, place_of, said
from chipshift.errors import InputError


@dataclass(frozen=True)
class Program:
    """A lowered program, or the reason there is none.

    Attributes:
        axes, sizes: of the mesh that device numbers of the program count.
        arguments: names of the flattened arguments, where known.
        asked: (kind, axis, bytes) of the collectives that a module's cut asks for; None where
            nothing is worked out. sent: the same as its compiler is known to send it, where it is.
        sharding: how its parameters are cut. notes: what else to know.
    """

    lowered: Any
    axes: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    arguments: tuple[str, ...] = ()
    asked: tuple[tuple[str, str, float], ...] | None = None
    sent: tuple[tuple[str, str, float], ...] | None = None
    failure: str | None = None
    findings: tuple[dict[str, Any], ...] = field(default=())
    sharding: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()


def build(request: Request, devices: list[Any]) -> Program:
    """Trace and lower what the request names.

    Raises:
        InputError: it cannot be imported, ends the process, or does not give what its kind must
            give.
    """
    try:
        return _of_kind(request, devices)
    except SystemExit as error:
        raise InputError(
            f"'{request.entry}' leaves{place_of(error, request)}: {said(error)}"
        ) from None


def _of_kind(request: Request, devices: list[Any]) -> Program:
    if request.kind == "job":
        return _job(request, devices)
    if request.kind == "entry":
        return _entry(request, devices)
    if request.kind == "torch":
        return _torch(request, devices)
    if request.kind == "hlo":
        return _file(request, devices)
    raise InputError(f"unknown kind of program '{request.kind}'")


def _job(request: Request, devices: list[Any]) -> Program:
    from chipshift.compiled.step.axes import MESH_AXES
    from chipshift.compiled.step.sharding import make_mesh
    from chipshift.compiled.step.train_step import make_step

    cfg = request.config
    assert cfg is not None
    try:
        mesh = make_mesh(cfg, devices)
        step, arguments = make_step(mesh, cfg)
        lowered = step.lower(*arguments)
    except (ValueError, NotImplementedError) as error:
        return Program(None, failure=_first_line(error))
    return Program(lowered, MESH_AXES, cfg.mesh, _names(arguments))


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]


def _names(arguments: Any) -> tuple[str, ...]:
    import jax

    leaves, _ = jax.tree_util.tree_flatten_with_path(arguments)
    return tuple(jax.tree_util.keystr(path) for path, _ in leaves)


def _mesh(request: Request, devices: list[Any], default: str) -> Any:
    """The mesh that ``--mesh`` describes, else one axis over every device.

    Raises:
        InputError: its sizes do not multiply to the machine's devices.
    """
    import jax
    from jax.sharding import AxisType

    axes = request.mesh or ((default, len(devices)),)
    names, sizes = tuple(name for name, _ in axes), tuple(size for _, size in axes)
    if prod(sizes) != len(devices):
        text = ",".join(f"{name}={size}" for name, size in axes)
        raise InputError(
            f"--mesh {text}: is over {prod(sizes)} devices, but the machine has {len(devices)} "
            f"devices; expected sizes that multiply to {len(devices)}"
        )
    return jax.make_mesh(sizes, names, axis_types=(AxisType.Auto,) * len(names), devices=devices)


def _entry(request: Request, devices: list[Any]) -> Program:
    """A user's JAX step."""
    from chipshift.compiled.entry_program import lowered_on, refuse_unknown_axis

    make_step = imported(request)
    mesh = _mesh(request, devices, "devices")
    try:
        step, found, notes = lowered_on(request, make_step, mesh)
    except InputError:
        raise
    except Exception as error:  # the user's code, whatever it raises
        refuse_unknown_axis(error, request, mesh)
        return _stopped(error, request)
    sizes = tuple(mesh.shape[name] for name in mesh.axis_names)
    return Program(found, mesh.axis_names, sizes, _names(step.arguments), notes=notes)


def _torch(request: Request, devices: list[Any]) -> Program:
    """A PyTorch module through torchax."""
    from chipshift.compiled.expected_module import MATMUL_WIDTH, asked_for, sharding
    from chipshift.compiled.findings import place_of
    from chipshift.compiled.misfits import Misfit, check_calls
    from chipshift.compiled.silent import silent
    from chipshift.compiled.torch_program import checked, frozen, make_model, whole_program
    from chipshift.compiled.traced.step import batch_axes, cut_step
    from chipshift.fabric.lowering import slice_of

    mesh = _mesh(request, devices, "fsdp")
    sizes = tuple(mesh.shape[name] for name in mesh.axis_names)
    replicas = prod(mesh.shape[axis] for axis in batch_axes(mesh))
    wrong: tuple[dict[str, Any], ...] = ()
    try:
        made = checked(request, make_model(request, replicas))
        check_calls(made, request.path)
        wrong = silent(made.module, made.inputs, made.loss, request.path)
        program = whole_program(made, request.path)
        found = cut_step(program, mesh, lambda eqn: place_of(eqn, request.path))
        lowered = found.step.lower(*found.arguments)
    except InputError:
        raise
    except Misfit as misfit:
        return _without(misfit.finding, wrong)
    except Exception as error:  # the user's code, whatever it raises
        return _stopped(error, request, wrong)
    aim, shape = request.target, dict(mesh.shape)
    width = MATMUL_WIDTH if aim.platform == "tpu" else 8
    of = (shape, batch_axes(mesh), found.cuts, found.over_tp, width)
    on = slice_of(aim.chip, aim.topology, aim.devices, aim.slices) if aim.slices == 1 else None
    return Program(
        lowered,
        mesh.axis_names,
        sizes,
        _names(found.arguments),
        asked_for(*of),
        asked_for(*of, on) if on else None,
        findings=wrong,
        sharding=tuple(sharding(found.cuts, found.roles.roles, found.roles.why)),
        notes=(*found.notes, *frozen(made.module)),
    )


def _stopped(
    error: Exception, request: Request, before: tuple[dict[str, Any], ...] = ()
) -> Program:
    """No program: what stopped the trace of the user's code, and what was found before."""
    return _without(finding(error, request.path, in_jax=request.kind == "entry"), before)


def _without(found: dict[str, Any], before: tuple[dict[str, Any], ...]) -> Program:
    return Program(
        None, failure=f"the trace stopped: {found['message']}", findings=(found, *before)
    )


def _file(request: Request, devices: list[Any]) -> Program:
    """A file of StableHLO or HLO."""
    from chipshift.compiled.file_program import read

    program = read(request.file, devices, request.mesh)
    used = len(program.devices)
    notes = (f"partitioned over {used} of the machine's {len(devices)} devices",)
    return Program(
        program,
        tuple(name for name, _ in program.axes),
        tuple(size for _, size in program.axes),
        notes=notes if used < len(devices) else (),
    )
