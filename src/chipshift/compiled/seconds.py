"""A step's time by the compiler: its cycles, roofline times of kernels without an estimate, and
the collectives that nothing hides, at the fabric's rates."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator
from importlib import resources
from math import prod
from typing import Any

from chipshift.compiled.hlo.flops import SOFTMAX
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

MOST = 0.9
"""Share of the exposed bytes whose time must be known for a user's program to have one."""

Row = dict[str, Any]


@functools.cache
def _clocks() -> dict[str, dict[str, Any]]:
    file = resources.files("chipshift.compiled") / "data" / "cycles.toml"
    return tomllib.loads(file.read_text("utf8"))


def estimated_time(
    outcome: dict[str, Any], cfg: Config | None, machine: Machine
) -> dict[str, Any] | None:
    """Seconds of compute and of exposed collectives, kernels without an estimate listed; None where
    the chip's cycles have no known length. Collectives and the total are null where the fabric's
    rates are not known for what the program sends."""
    clock = _clocks().get(machine.chip.key)
    cycles = outcome.get("cycles")
    if clock is None or not cycles or not cycles["compute"]:
        return None
    kernels = (attention_rows if cfg is not None else kernel_rows)(cycles["without"], cfg, machine)
    by_roofline = sum(float(row["seconds"]) for row in kernels)
    compute = cycles["compute"] / clock["clock_hz"] + by_roofline
    exposed: float | None
    exposed, share = exposed_seconds(outcome["places"], dict(outcome["mesh"]), machine)
    if cfg is None and share < MOST:
        exposed = None
    return {
        "compute": compute,
        "collectives": exposed,
        "total": None if exposed is None else compute + exposed,
        "kernels_by_roofline": by_roofline,
        "kernels": kernels,
        "clock_source": clock["source"],
    }


def attention_rows(kernels: list[Row], cfg: Config | None, machine: Machine) -> list[Row]:
    """The built-in step's attention kernels, forward and backward, with the seconds of each part
    in a step. None without such kernels: attention in plain JAX has its cycles, the softmax that
    libtpu makes a kernel of among them."""
    assert cfg is not None
    rows = []
    for back, seconds in zip((False, True), attention_parts(cfg, machine), strict=True):
        these = [k for k in kernels if k["name"] != SOFTMAX and _is_backward(k["name"]) == back]
        if these:
            names = " + ".join(dict.fromkeys(k["name"] for k in these))
            times = sum(k["times"] for k in these if k["name"] == these[0]["name"])
            rows.append(_row(names, times, seconds, these[0]["source"], "attention"))
    return rows


def _is_backward(name: str) -> bool:
    return "_dkv" in name or "_dq" in name


def kernel_rows(kernels: list[Row], cfg: Config | None, machine: Machine) -> list[Row]:
    """Kernels of a user's own program at the chip's roofline: the longer of what their work takes
    at the peak of bf16 and their bytes at the memory's bandwidth; the bytes alone, a lower bound,
    where their work is not stated."""
    peak = machine.chip.peak_flop_per_s("bf16")
    rate = machine.chip.value("hbm_bandwidth_bytes_per_s") / machine.chip.devices_per_chip
    rows: dict[tuple[Any, ...], Row] = {}
    for k in kernels:
        seconds = k["times"] * max((k["flops"] or 0.0) / peak, k["bytes"] / rate)
        by = "bytes" if k["flops"] is None else "roofline"
        key = (k["name"], *(k["source"] or ()), by)
        row = rows.setdefault(key, _row(k["name"], 0, 0.0, k["source"], by))
        row["count_per_step"] += k["times"]
        row["seconds"] += seconds
    return sorted(rows.values(), key=lambda row: -row["seconds"])


def _row(name: str, times: int, seconds: float, source: Any, by: str) -> Row:
    """``by``: attention (its kernels' measured shares of the peak), roofline, or bytes alone."""
    return {
        "name": name, "count_per_step": times, "seconds": seconds,
        "source": list(source) if source else None, "by": by,
    }  # fmt: skip


def attention_seconds(cfg: Config, machine: Machine) -> float:
    """Time of a step's attention kernels on one device, forward and backward."""
    return sum(attention_parts(cfg, machine))


def attention_parts(cfg: Config, machine: Machine) -> tuple[float, float]:
    """Time of a step's attention kernels on one device at the share of the peak that the chip's
    kernel reaches by itself, times its speed inside a step (stack ``jax``): causal scores and
    values, forward and again where recomputed, and backward."""
    ahead = back = 0.0
    for kernel, (share, back_share), flop in _attention(cfg, machine):
        peak = kernel.peak_flop_per_s
        ahead += float(roof.attention_compute_time(flop, peak, share)) * _forwards(cfg)
        back += float(roof.attention_compute_time(flop * kernel.backward_flops, peak, back_share))
    inside = float(stack(STACK, machine.chip.key).attention_scale)
    return ahead / inside, back / inside


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


def exposed_seconds(
    places: list[Row], mesh: dict[str, int], machine: Machine
) -> tuple[float, float]:
    """Time of the collectives that the schedule does not overlap, and the share of their bytes that
    it is of: those over whole axes of a mesh of the machine's devices.

    Args:
        mesh: sizes of the mesh's axes, in its order, laid out as ``jax.make_mesh`` does it.
    """
    shown = [one for one in places if not one["overlapped"] and one["count_per_step"]]
    placed = assign(machine, mesh) if prod(mesh.values()) == machine.devices else {}
    total = known = 0.0
    for one in shown:
        n, times, sent = one["group_size"], one["count_per_step"], one["bytes_per_device_per_step"]
        axes = tuple(axis for axis in one["mesh_axis"].split("+") if axis in placed)
        if not axes or n < 2:
            continue
        known += sent
        where: Placement = group(placed, axes)
        size = whole_bytes(one["kind"], sent / times, n)
        total += times * float(plain(collective_time(one["kind"], size, links(machine, where))))
    whole = sum(float(one["bytes_per_device_per_step"]) for one in shown)
    return total, known / whole if whole else 1.0


def whole_bytes(kind: str, sent: float, n: int) -> float:
    """V, the whole array of one group, from the bytes that one of its n devices sends."""
    if kind == "all_reduce":
        return sent * n / (2 * (n - 1))
    if kind == "all_to_all":
        return sent * n * n / (n - 1)
    return sent if kind == "permute" else sent * n / (n - 1)
