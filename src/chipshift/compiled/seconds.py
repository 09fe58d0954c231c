"""A step's time by the compiler: its cycles, roofline times of kernels without an estimate, and
the collectives that nothing hides, at the fabric's rates."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator
from importlib import resources
from typing import Any

from chipshift.compiled.step.config import Config
from chipshift.compiled.step.remat_names import choice
from chipshift.estimate.stack import stack
from chipshift.fabric import Placement, assign, collective_time, group, links
from chipshift.machines.machine import Machine
from chipshift.models.ops import attention_flops, mean_keys
from chipshift.roofline import time as roof
from chipshift.roofline.kernels import AttentionKernel, attention_kernel, attention_shares
from chipshift.worked import plain

STACK = "jax"
"""The stack of the compiled step."""

AXES = ("dp", "fsdp", "ep", "cp", "tp")


@functools.cache
def _clocks() -> dict[str, dict[str, Any]]:
    file = resources.files("chipshift.compiled") / "data" / "cycles.toml"
    return tomllib.loads(file.read_text("utf8"))


def estimated_time(
    outcome: dict[str, Any], cfg: Config | None, machine: Machine
) -> dict[str, Any] | None:
    """Seconds of compute and of exposed collectives; None where the chip's cycles have no known
    length, or kernels without an estimate stand in a program whose shapes are not known."""
    clock = _clocks().get(machine.chip.key)
    cycles = outcome.get("cycles")
    if clock is None or not cycles or not cycles["compute"]:
        return None
    kernels = cycles["without"]
    if kernels and cfg is None:
        return None
    compute = cycles["compute"] / clock["clock_hz"]
    attention = attention_seconds(cfg, machine) if kernels and cfg is not None else 0.0
    exposed = exposed_seconds(outcome["places"], cfg, machine) if cfg is not None else 0.0
    return {
        "compute": compute + attention,
        "collectives": exposed,
        "total": compute + attention + exposed,
        "kernels_by_roofline": attention,
        "clock_source": clock["source"],
    }


def attention_seconds(cfg: Config, machine: Machine) -> float:
    """Time of a step's attention kernels on one device at the share of the peak that the chip's
    kernel reaches by itself, times its speed inside a step (stack ``jax``): causal scores and
    values, forward, again where recomputed, and backward."""
    total = 0.0
    for kernel, (share, back), flop in _attention(cfg, machine):
        peak = kernel.peak_flop_per_s
        forward = roof.attention_compute_time(flop, peak, share)
        backward = roof.attention_compute_time(flop * kernel.backward_flops, peak, back)
        total += float(forward * _forwards(cfg) + backward)
    return total / float(stack(STACK, machine.chip.key).attention_scale)


def attention_kernel_flops(cfg: Config, machine: Machine) -> float:
    """FLOP of the same kernels, which the compiled program does not show."""
    total = 0.0
    for kernel, _, flop in _attention(cfg, machine):
        total += flop * (_forwards(cfg) + float(kernel.backward_flops))
    return total


def _forwards(cfg: Config) -> int:
    kept, moved = choice(cfg.remat)
    return 1 if "attention" in {*kept, *moved} else 2


def _attention(cfg: Config, machine: Machine
               ) -> Iterator[tuple[AttentionKernel, tuple[Any, Any], float]]:  # fmt: skip
    """Kernel, its shares of the peak forward and backward, and forward FLOP a step on one device,
    of each kind of layer."""
    dp, fsdp, ep, cp, tp = cfg.mesh
    tokens = cfg.batch * cfg.seq_len / (dp * fsdp * ep * cp)
    for unit, repeats in cfg.segments:
        for block in unit:
            kernel = attention_kernel(machine.chip, float(block.head_dim))
            reach = min(block.window or cfg.seq_len, cfg.seq_len)
            keys = mean_keys(cfg.seq_len, reach, 1.0)
            shares = attention_shares(
                kernel, keys, reach, cfg.seq_len, block.head_dim, block.head_dim
            )
            flop = attention_flops(tokens, keys, block.heads / tp, block.head_dim, block.v_head_dim)
            yield kernel, shares, float(plain(flop)) * repeats * cfg.accumulation


def exposed_seconds(places: list[dict[str, Any]], cfg: Config, machine: Machine) -> float:
    """Time of the collectives that the schedule does not overlap."""
    placed = assign(machine, dict(zip(AXES, cfg.mesh, strict=True)))
    total = 0.0
    for one in places:
        n, times = one["group_size"], one["count_per_step"]
        axes = tuple(axis for axis in one["mesh_axis"].split("+") if axis in placed)
        if one["overlapped"] or not axes or n < 2 or not times:
            continue
        where: Placement = group(placed, axes)
        size = whole_bytes(one["kind"], one["bytes_per_device_per_step"] / times, n)
        total += times * float(plain(collective_time(one["kind"], size, links(machine, where))))
    return total


def whole_bytes(kind: str, sent: float, n: int) -> float:
    """V, the whole array of one group, from the bytes that one of its n devices sends."""
    if kind == "all_reduce":
        return sent * n / (2 * (n - 1))
    if kind == "all_to_all":
        return sent * n * n / (n - 1)
    return sent if kind == "permute" else sent * n / (n - 1)
