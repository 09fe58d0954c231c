"""A user's own JAX step: what ``make_step(mesh)`` gave, checked and lowered for that mesh."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from chipshift.compiled.request import Request
from chipshift.compiled.users import place_of, said
from chipshift.errors import InputError, nearest

_NO_AXIS = re.compile(r"Resource axis: (\S+) of .* is not found in mesh")

_OTHER_MESH = ("Received incompatible devices", "Mesh for all inputs should be equal")
"""Of jax's refusals of arguments on different devices."""

_NO_DEVICES = ("non-empty mesh in context", "context mesh cannot be empty")
"""Of jax's refusals of a ``PartitionSpec`` where the mesh in the context must have devices."""

_ANOTHER = ("should match the aval mesh", "cannot change the size of the mesh")
"""Of jax's refusals of a mesh that the step makes itself beside the one in the context."""


@dataclass(frozen=True)
class Step:
    """A function and its abstract arguments, with the shardings that were given for them."""

    function: Any
    arguments: tuple[Any, ...]


def lowered_on(
    request: Request, make_step: Callable[[Any], Any], mesh: Any
) -> tuple[Step, Any, tuple[str, ...]]:
    """A user's step, the same lowered for the mesh, and notes; in the context of that mesh, as
    users enter it with ``jax.set_mesh``, so that a ``PartitionSpec`` names axes of it.

    The mesh in the context has no devices at first: an array that the user's code makes itself is
    then held here, not by a device of the target. What jax refuses so is tried with the devices,
    and a step that makes a mesh of its own without one in the context.

    Raises:
        InputError: ``make_step`` takes or gives something else, or shards over other devices.
        Exception: whatever the user's code raises.
    """
    import jax

    def within(context: Any) -> tuple[Step, Any, tuple[str, ...]]:
        with context:
            step = step_of(request, make_step, mesh)
            return (step, *lowered(request, step, mesh))

    try:
        return within(jax.sharding.use_abstract_mesh(mesh.abstract_mesh))
    except (TypeError, RuntimeError, ValueError) as error:
        if any(words in str(error) for words in _ANOTHER):
            other: Any = nullcontext()
        elif any(words in str(error) for words in _NO_DEVICES):
            other = jax.set_mesh(mesh)
        else:
            raise
    return within(other)


def step_of(request: Request, make_step: Callable[[Any], Any], mesh: Any) -> Step:
    """What ``make_step(mesh)`` gives: a function and its abstract arguments; shardings on them, as
    a third value, or in the function already jitted.

    Raises:
        InputError: it takes or gives something else.
        Exception: whatever the user's code raises.
    """
    entry = request.entry
    refused = _refused(make_step, (mesh,))
    if refused:
        raise InputError(f"'{entry}': {refused}; expected a function of one argument, the mesh")
    made = make_step(mesh)
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise InputError(
            f"'{entry}' must return (function, abstract arguments[, shardings]), found "
            f"{_kind(made)}"
        )
    function, arguments = made[0], made[1]
    if not callable(function):
        raise InputError(f"'{entry}': the first it returns is {_kind(function)}, not a function")
    if not isinstance(arguments, tuple | list):
        raise InputError(
            f"'{entry}': the abstract arguments are {_kind(arguments)}; expected a tuple of them, "
            "one for each argument of the function"
        )
    refused = _refused(function, tuple(arguments))
    if refused:
        raise InputError(
            f"'{entry}': the function that it returns cannot be called with the abstract arguments "
            f"beside it ({len(arguments)}): {refused}"
        )
    abstract = _abstract(entry, tuple(arguments), made[2] if len(made) == 3 else None, mesh)
    return Step(function, abstract)


def lowered(request: Request, step: Step, mesh: Any) -> tuple[Any, tuple[str, ...]]:
    """The step lowered for every device of the mesh, and notes.

    Raises:
        InputError: its shardings are of other devices, or name an axis that the mesh has not.
        Exception: whatever the user's code raises while it is traced.
    """
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    function = step.function if hasattr(step.function, "lower") else jax.jit(step.function)
    try:
        found = function.lower(*step.arguments)
        if _devices(found) == set(mesh.devices.flat):
            return found, ()
        if not _sharded(step.arguments):
            whole = NamedSharding(mesh, PartitionSpec())
            found = function.lower(*jax.tree.map(lambda x: _placed(x, whole), step.arguments))
            if _devices(found) == set(mesh.devices.flat):
                return found, ("arguments without a sharding are whole on every device",)
    except ValueError as error:
        if not any(words in str(error) for words in _OTHER_MESH):
            raise
        raise _other_devices(request, mesh) from None
    raise _other_devices(request, mesh)


def refuse_unknown_axis(error: Exception, request: Request, mesh: Any) -> None:
    """Say which axis the mesh has not, where that is what the user's code stumbled over.

    Raises:
        InputError: it is.
    """
    unknown = _NO_AXIS.search(str(error))
    if not unknown:
        return
    axis, names = unknown.group(1).strip("'\""), [str(name) for name in mesh.axis_names]
    axes = ",".join(f"{name}={size}" for name, size in mesh.shape.items())
    expected = nearest(axis, names) or (
        f"; expected --mesh with the axes that it shards over, such as --mesh {axis}={mesh.size}"
    )
    raise InputError(
        f"'{request.entry}' shards over '{axis}'{place_of(error, request)}, which is no axis of "
        f"the mesh {axes}{expected}"
    )


def _refused(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """Why a function cannot be called with these arguments; "" where it can or nobody knows."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        name = getattr(function, "__name__", "it")
        return f"{name}{inspect.signature(function)}: {error}"
    except ValueError:  # a function without a signature
        return ""
    return ""


def _abstract(entry: str, arguments: tuple[Any, ...], shardings: Any, mesh: Any) -> tuple[Any, ...]:
    """The arguments without values, those of a machine at hand without their place; with the
    shardings of the third value, which may be a prefix of their tree."""
    import jax

    def bare(leaf: Any) -> Any:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            return leaf
        own = leaf.sharding if isinstance(leaf, jax.ShapeDtypeStruct) else None
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=_on(mesh, own))

    abstract = jax.tree.map(bare, arguments)
    if shardings is None:
        return tuple(abstract)
    try:
        full = jax.tree.broadcast(shardings, abstract, is_leaf=lambda leaf: leaf is None)
    except ValueError as error:
        raise InputError(
            f"'{entry}': its shardings do not match its abstract arguments ({said(error)}); "
            "expected one sharding for all, or a tuple of one for each argument"
        ) from None
    leaves, tree = jax.tree.flatten(abstract)
    given = jax.tree.leaves(full, is_leaf=lambda leaf: leaf is None)
    placed = [_placed(leaf, _on(mesh, one)) for leaf, one in zip(leaves, given, strict=True)]
    return tuple(tree.unflatten(placed))


def _on(mesh: Any, sharding: Any) -> Any:
    """A sharding that names axes alone (a ``PartitionSpec``, or one of the mesh in the context,
    which has no devices) on the mesh; any other as it is."""
    from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

    if isinstance(sharding, PartitionSpec):
        return NamedSharding(mesh, sharding)
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh):
        return NamedSharding(mesh, sharding.spec)
    return sharding


def _placed(leaf: Any, sharding: Any) -> Any:
    """An abstract array with a sharding; anything else as it is."""
    import jax

    if sharding is None or not isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _sharded(arguments: tuple[Any, ...]) -> bool:
    import jax

    return any(getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(arguments))


def _devices(found: Any) -> set[Any]:
    """Devices that a lowered program is for."""
    return set(found._lowering._device_list or ())


def _other_devices(request: Request, mesh: Any) -> InputError:
    axes = ",".join(f"{name}={size}" for name, size in mesh.shape.items())
    return InputError(
        f"'{request.entry}' shards over other devices than the {mesh.size} of {axes}, the mesh "
        "that it was given; expected every sharding to be made with that mesh"
    )


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return "None" if value is None else f"a {type(value).__name__}"
