"""A StableHLO or HLO file as a program to compile."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chipshift.errors import InputError

_COUNT = re.compile(r"(?:mhlo\.)?(num_partitions|num_replicas)\s*=\s*(\d+)")


@dataclass(frozen=True)
class FileProgram:
    """StableHLO text with the devices it is for; compiles like a lowered jax function."""

    text: str
    devices: tuple[Any, ...]
    partitions: int

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
            num_partitions=self.partitions,
            device_assignment=assignment,
            env_options_overrides=compiler_options,
            backend=client,
        )
        with mlir.make_ir_context():
            module = ir.Module.parse(self.text)
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


def read(path: str, devices: list[Any]) -> FileProgram:
    """The program in a file, for as many of the devices as it is partitioned over.

    Raises:
        InputError: no such file, neither kind of text, or more partitions than devices.
    """
    try:
        text = Path(path).read_text("utf8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text ({error})") from None
    if text.lstrip().startswith("HloModule"):
        text = _stablehlo(path, text)
    elif "module" not in text[:2000]:
        raise InputError(f"{path}: is neither StableHLO (module @...) nor HLO text (HloModule ...)")
    counts = {name: int(number) for name, number in _COUNT.findall(text[:4000])}
    partitions = counts.get("num_partitions", 1)
    if partitions > len(devices):
        raise InputError(
            f"{path}: is partitioned over {partitions} devices, the machine has {len(devices)}"
        )
    if counts.get("num_replicas", 1) != 1:
        raise InputError(
            f"{path}: num_replicas is {counts['num_replicas']}; expected a program partitioned by "
            "num_partitions, as jax and torch_xla with SPMD write it"
        )
    return FileProgram(text, tuple(devices[:partitions]), partitions)


def _stablehlo(path: str, text: str) -> str:
    from jax._src.lib import _jax, xla_client

    try:
        module = _jax.hlo_module_from_text(text)
        return str(_jax.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto()))
    except (xla_client.XlaRuntimeError, AttributeError) as error:
        first = str(error).split("\n", 1)[0]
        raise InputError(f"{path}: is not HLO text that this XLA reads ({first})") from None
