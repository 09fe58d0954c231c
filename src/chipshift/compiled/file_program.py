"""A StableHLO or HLO file as a program to compile."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from chipshift.errors import InputError

Axes = tuple[tuple[str, int], ...]

_COUNT = re.compile(r"(?:mhlo\.)?(num_partitions|num_replicas)\s*=\s*(\d+)")
_MESH = re.compile(r"sdy\.mesh[^<\n]*<\[([^\]]*)\]")
_AXIS = re.compile(r'\\?"([\w.\-]+)\\?"=(\d+)')
_BYTECODE = b"ML\xefR"
"""How MLIR bytecode begins."""

_HEAD = 4000
"""Characters at the start of a file in which its module's attributes are looked for."""


@dataclass(frozen=True)
class FileProgram:
    """StableHLO (text or bytecode) with the devices it is for; compiles like a lowered jax
    function.

    Attributes:
        axes: (name, size) of the mesh that its device numbers count.
        shardy: its shardings are written in the ``sdy`` dialect, not as ``mhlo.sharding``.
    """

    module: str | bytes
    devices: tuple[Any, ...]
    axes: Axes
    shardy: bool

    def compile(self, compiler_options: dict[str, Any]) -> CompiledFile:
        """The program through the compiler of the devices' platform."""
        from jax._src import compiler
        from jax._src.interpreters import mlir
        from jax._src.lib import xla_client
        from jax._src.lib.mlir import ir

        client = self.devices[0].client
        assignment = np.array(self.devices, dtype=object).reshape(1, -1)
        options = compiler.get_compile_options(
            num_replicas=1,
            num_partitions=len(self.devices),
            device_assignment=assignment,
            env_options_overrides=compiler_options,
            backend=client,
        )
        options.executable_build_options.use_shardy_partitioner = self.shardy
        with mlir.make_ir_context():
            module = ir.Module.parse(self.module)
            executable = compiler.backend_compile_and_load(
                client, module, xla_client.DeviceList(self.devices), options, []
            )
        return CompiledFile(executable)


@dataclass(frozen=True)
class CompiledFile:
    executable: Any

    def as_text(self) -> str:
        return str(self.executable.hlo_modules()[0].to_string())

    def memory_analysis(self) -> Any:
        return self.executable.get_compiled_memory_stats()


def read(path: str, devices: list[Any], mesh: Axes = ()) -> FileProgram:
    """The program in a file, for as many of the devices as it is partitioned over.

    Args:
        mesh: names and sizes of its axes; () = those that the file names, else one axis.

    Raises:
        InputError: no such file, neither kind of text, or more partitions than devices.
    """
    text = _text(path)
    is_hlo = text.startswith("HloModule")
    if not is_hlo and "module" not in text[:2000]:
        raise InputError(f"{path}: is neither StableHLO (module @...) nor HLO text (HloModule ...)")
    counts = {name: int(number) for name, number in _COUNT.findall(text[:_HEAD])}
    if counts.get("num_replicas", 1) != 1:
        raise InputError(
            f"{path}: num_replicas is {counts['num_replicas']}; expected a program partitioned by "
            "num_partitions, as jax and torch_xla with SPMD write it"
        )
    axes = _axes(path, text, mesh, counts.get("num_partitions"))
    partitions = prod(size for _, size in axes)
    if partitions > len(devices):
        raise InputError(
            f"{path}: is partitioned over {partitions} devices, the machine has {len(devices)}"
        )
    module = _stablehlo(path, text) if is_hlo else text
    _check_module(path, module)
    return FileProgram(module, tuple(devices[:partitions]), axes, "sdy.sharding" in text)


def _axes(path: str, text: str, mesh: Axes, partitions: int | None) -> Axes:
    """The mesh asked for, else the one that the file names, else one axis over its partitions.

    Raises:
        InputError: the mesh asked for has another number of devices than the file's partitions.
    """
    named = _MESH.search(text[:_HEAD])
    own = tuple((name, int(size)) for name, size in _AXIS.findall(named.group(1) if named else ""))
    total = partitions or prod(size for _, size in own)
    if mesh:
        asked = prod(size for _, size in mesh)
        if asked != total and (partitions or own):
            given = ",".join(f"{name}={size}" for name, size in mesh)
            raise InputError(
                f"--mesh {given}: is over {asked} devices, but {path} is partitioned over {total}; "
                f"expected sizes that multiply to {total}"
            )
        return mesh
    return own if own and prod(size for _, size in own) == total else (("devices", total),)


def _stablehlo(path: str, text: str) -> bytes:
    """HLO text as StableHLO bytecode.

    Raises:
        InputError: the text cannot be parsed, or is the output of a compiler.
    """
    from jax._src.lib import _jax
    from jaxlib import _hlo

    if "is_scheduled=true" in text.partition("\n")[0]:
        raise InputError(
            f"{path}: is the output of a compiler (is_scheduled=true), made for its chip; expected "
            "the program before it, such as XLA's dump named before_optimizations"
        )
    try:
        module = _hlo.hlo_module_from_text(text)
        return bytes(_jax.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto()))
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"{path}: is not HLO text that this XLA reads ({_first_lines(error)})"
        ) from None


def _text(path: str) -> str:
    """The program as text, of text or of MLIR bytecode.

    Raises:
        InputError: the file cannot be read, or is neither.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if data.startswith(_BYTECODE):
        return _of_bytecode(path, data)
    try:
        return data.decode("utf8").lstrip()
    except UnicodeDecodeError:
        raise InputError(
            f"{path}: is neither text nor MLIR bytecode; expected StableHLO or HLO"
        ) from None


def _of_bytecode(path: str, data: bytes) -> str:
    """StableHLO that was saved as bytecode, a portable artifact (``jax.export``) among it.

    Raises:
        InputError: it is cut off, or of a version that this XLA does not read.
    """
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir
    from jax._src.lib.mlir.dialects import hlo

    try:
        with mlir.make_ir_context() as context:
            try:
                module = hlo.deserialize_portable_artifact(context, data)
            except Exception:  # of no portable version: bytecode as it stood in the compiler
                module = ir.Module.parse(data)
            return str(module).lstrip()
    except Exception as error:
        raise InputError(
            f"{path}: is not bytecode that this XLA reads ({_first_lines(error)})"
        ) from None


def _check_module(path: str, module: str | bytes) -> None:
    """
    Raises:
        InputError: it cannot be parsed, or has no function to start from.
    """
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir

    try:
        with mlir.make_ir_context():
            operations = ir.Module.parse(module).body.operations
            names = [
                ir.StringAttr(one.attributes["sym_name"]).value
                for one in operations
                if one.operation.name == "func.func"
            ]
    except Exception as error:  # MLIR's own type
        raise InputError(
            f"{path}: is not StableHLO that this XLA reads ({_first_lines(error)})"
        ) from None
    if "main" not in names:
        raise InputError(
            f"{path}: has no function main, which the program starts from; found "
            f"{', '.join(names) or 'no function'}"
        )


def _first_lines(error: Exception) -> str:
    """What a parser says: its heading and the first place that it names."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return " ".join(lines[:2])[:300]
