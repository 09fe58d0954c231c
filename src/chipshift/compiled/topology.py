"""Machines by the compilers' own names: a TPU slice for libtpu, a described GPU for XLA."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from chipshift.errors import InputError
from chipshift.machines.machine import Machine

TPU_NAMES = {"v4": "v4", "v5e": "v5e", "v5p": "v5p", "v6e": "v6e", "v7x": "tpu7x"}
"""By chip key: the name libtpu knows. Newer chips are refused by libtpu 0.0.42."""


@dataclass(frozen=True)
class Target:
    """What a program is compiled for.

    Attributes:
        platform: ``tpu`` or ``cuda``.
        topology: ``v6e:4x4`` for libtpu; ``1x2x8`` (partitions, hosts, GPUs a host) for XLA:GPU.
        slices: TPU slices joined by the data-center network.
        config: text proto describing the GPU, "" for a TPU.
    """

    machine: str
    chip: str
    platform: str
    topology: str
    slices: int
    devices: int
    config: str = ""


def target(machine: Machine) -> Target:
    """The compiler's name for a machine.

    Raises:
        InputError: no compiler without the chip is known for it.
    """
    key = machine.chip.key
    if key in TPU_NAMES:
        dims = machine.topology.partition("*")[0]
        topology = f"{TPU_NAMES[key]}:{dims}"
        return Target(machine.name, key, "tpu", topology, machine.slices, machine.devices)
    gpus = _gpus()
    if key in gpus:
        inside, _, hosts = machine.topology.partition("x")
        topology = f"1x{hosts or 1}x{inside}"
        return Target(machine.name, key, "cuda", topology, 1, machine.devices, _proto(gpus[key]))
    raise InputError(
        f"machine '{machine.name}': no compiler that works without the chip is known for {key} "
        f"(expected one of {', '.join([*TPU_NAMES, *gpus])})"
    )


@functools.cache
def _gpus() -> dict[str, dict[str, Any]]:
    file = resources.files("chipshift.compiled") / "data" / "gpus.toml"
    return tomllib.loads(file.read_text("utf8"))


def _proto(gpu: dict[str, Any]) -> str:
    """The text proto ``stream_executor.GpuTargetConfigProto`` of a GPU of data/gpus.toml."""
    major, minor = gpu["capability"]
    dnn = gpu["dnn_version"]
    figures = "\n".join(
        f"  {name}: {gpu[name]}"
        for name in (
            "core_count",
            "fpus_per_core",
            "memory_bandwidth",
            "l2_cache_size",
            "clock_rate_ghz",
            "device_memory_size",
            "shared_memory_per_core",
            "shared_memory_per_block_optin",
        )
    )
    feature = "ACCELERATED_FEATURES" if major >= 9 else "NONE"
    return f"""gpu_device_info {{
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  shared_memory_per_block: 49152
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
{figures}
  cuda_compute_capability {{ major: {major} minor: {minor} feature_extension: {feature} }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: {dnn[0]} minor: {dnn[1]} patch: {dnn[2]} }}
device_description_str: "{gpu["name"]}"
"""


def gpu_memory_bytes(chip_key: str) -> int | None:
    """Device memory the GPU compiler was told of; None for a chip it does not know."""
    gpu = _gpus().get(chip_key)
    return None if gpu is None else int(gpu["device_memory_size"])
