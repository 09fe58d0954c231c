"""Everything about an estimate that is not the plan: job, machine and stack as numbers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from chipshift.estimate.stack import Stack, sources, stack
from chipshift.jobs.job import Assumed, Given, TrainJob
from chipshift.machines.machine import Machine
from chipshift.models.model import Layer, Model
from chipshift.models.scope import refuse_untimed
from chipshift.roofline.kernels import Kernels, kernels
from chipshift.units import DTYPE_BYTES
from chipshift.worked import leaf, with_sources

Number = Any

MOMENTS = {"adamw": 2.0, "adam": 2.0, "lion": 1.0, "muon": 1.0, "sgd": 0.0, "sgdm": 1.0,
           "adafactor": 0.0, "adamw8bit": 2.0, "distributed_shampoo": 3.0}  # fmt: skip
"""Moments the size of the parameters that each optimizer keeps (Adafactor's factors are small)."""


@dataclass(frozen=True)
class Bytes:
    """Bytes of one element or parameter, by role."""

    compute: Number
    weights: Number
    gathered: Number
    gradients: Number
    reduce: Number
    master: Number
    moments: Number
    moments_per_param: Number
    activations: Number = 2.0


@dataclass(frozen=True)
class Setting:
    """A job on a machine under a stack, as numbers (floats, or sourced leaves for explaining).

    Attributes:
        heavy_first: layer kinds stand in contiguous runs, so that a stage may hold only the
            heaviest kind; False where kinds alternate and every stage has the mean mix.
        usable_bytes: memory that a program can allocate on a device.
    """

    job: TrainJob
    machine: Machine
    model: Model
    stack: Stack
    kernels: Kernels
    bytes: Bytes
    sequences: Number
    seq_len: Number
    trainable: Number
    loss_chunks: Number
    devices: Number
    devices_per_host: Number
    devices_per_chip: Number
    usable_bytes: Number
    host_link_bytes_per_s: Number
    peak_dtype: str
    peak_flop_per_s: Number
    heavy_first: bool


def peak_dtype(machine: Machine, dtype: str) -> str:
    """The dtype whose peak the main matmuls run at: the job's, or bf16 where the chip lacks it."""
    for name in (dtype, {"nvfp4": "fp4", "mxfp8": "fp8"}.get(dtype, dtype)):
        if machine.chip.has(f"peak_{name}_flop_per_s"):
            return name
    return "bf16"


def setting(job: TrainJob, machine: Machine, stack_name: str) -> Setting:
    """The numbers of an estimate, as floats.

    Raises:
        InputError: the model has no layers or no LM head that could be timed.
    """
    refuse_untimed(job.model)
    chip = machine.chip
    dtype = peak_dtype(machine, job.precision.value.compute)
    p = job.precision.value
    compute = DTYPE_BYTES[dtype]
    master = 0.0 if p.master == "none" else DTYPE_BYTES[p.master]
    weights = DTYPE_BYTES[p.weights]
    sizes = Bytes(
        compute=compute,
        weights=weights,
        gathered=DTYPE_BYTES[p.gather] if p.gather else weights,
        gradients=DTYPE_BYTES[p.gradients],
        reduce=DTYPE_BYTES[p.reduce],
        master=master,
        moments=DTYPE_BYTES[p.moments],
        moments_per_param=MOMENTS.get(job.optimizer.value, 2.0),
    )
    head_dim = max(
        (ly.attention.head_dim for ly, _ in job.model.layers if ly.attention), default=128
    )
    chosen = kernels(chip, dtype, compute, float(head_dim))
    hosts = chip.value("chips_per_host") if chip.has("chips_per_host") else 8.0
    return Setting(
        job=job,
        machine=machine,
        model=job.model,
        stack=for_job(stack(stack_name, chip.key), job, chip.family),
        kernels=chosen,
        bytes=sizes,
        sequences=float(job.sequences_per_step.value),
        seq_len=float(job.seq_len.value),
        trainable=float(job.trainable_fraction),
        loss_chunks=float(job.loss_chunks),
        devices=float(machine.devices),
        devices_per_host=hosts * chip.devices_per_chip,
        devices_per_chip=float(chip.devices_per_chip),
        usable_bytes=chip.value("usable_hbm_bytes_per_device"),
        host_link_bytes_per_s=(
            chip.value("host_link_bytes_per_s") if chip.has("host_link_bytes_per_s") else 3e10
        )
        / chip.devices_per_chip,
        peak_dtype=dtype,
        peak_flop_per_s=chip.peak_flop_per_s(dtype),
        heavy_first=_contiguous(job.model.layer_order),
    )


def for_job(constants: Stack, job: TrainJob, family: str) -> Stack:
    """The stack's constants with what the job's flags say of its kernels."""
    older = any(f.kind == "attention_kernel" and f.value == "flash" for f in job.flags)
    if family != "tpu" or not older:
        return constants
    return replace(
        constants, attention_scale=constants.attention_scale * constants.plain_flash_scale
    )


def _contiguous(order: tuple[int, ...]) -> bool:
    """Whether each kind of layer stands in one run."""
    changes = sum(a != b for a, b in itertools.pairwise(order))
    return changes <= len(set(order)) - 1


def explained(s: Setting) -> Setting:
    """The same setting with every number a leaf that names its source."""
    job, chip = s.job, s.machine.chip
    figure = chip.figures
    per_device = (
        f", over {chip.devices_per_chip} devices a chip" if chip.devices_per_chip > 1 else ""
    )

    def of_chip(name: str) -> str:
        found = figure.get(name)
        return f"{found.source}, {found.date}{per_device}" if found else "assumed: 30 GB/s"

    hbm = of_chip("hbm_bandwidth_bytes_per_s")
    peak = of_chip(f"peak_{s.peak_dtype}_flop_per_s")
    tables = {"": s.kernels.evidence, "peak_flop_per_s": peak, "hbm_bytes_per_s": hbm,
              "units": of_chip("sm_count")}  # fmt: skip
    config = f"{job.model.name}: its config.json"
    return replace(
        s,
        model=_model_leaves(job.model, config),
        stack=with_sources(s.stack, sources(s.stack.name, chip.key)),
        kernels=with_sources(s.kernels, tables),
        bytes=with_sources(s.bytes, stated(job.precision), "B"),
        sequences=leaf(s.sequences, "sequences", "global_batch", stated(job.sequences_per_step)),
        seq_len=leaf(s.seq_len, "tokens", "seq_len", stated(job.seq_len)),
        trainable=leaf(s.trainable, "1", "trainable_fraction", f"task {job.task}"),
        loss_chunks=leaf(s.loss_chunks, "1", "loss_chunks", "job"),
        devices=leaf(s.devices, "devices", "devices", s.machine.name),
        devices_per_host=leaf(s.devices_per_host, "devices", "devices_per_host",
                              of_chip("chips_per_host")),
        usable_bytes=leaf(s.usable_bytes, "B", "usable_hbm_bytes",
                          of_chip("usable_hbm_bytes_per_device")),
        host_link_bytes_per_s=leaf(s.host_link_bytes_per_s, "B/s", "host_link_bytes_per_s",
                                   of_chip("host_link_bytes_per_s")),
        peak_flop_per_s=leaf(s.peak_flop_per_s, "FLOP/s", "peak_flop_per_s", peak),
    )  # fmt: skip


def stated(field: Given[Any] | Assumed[Any]) -> str:
    """Where a field of the job comes from, in words."""
    if isinstance(field, Given):
        return f"{field.file}:{field.line}" if field.line else field.file
    return f"assumed: {field.why}"


def _model_leaves(model: Model, source: str) -> Model:
    def one(layer: Layer) -> Layer:
        return with_sources(layer, source)

    runs: Any = tuple((one(ly), leaf(n, "layers", "layers", source)) for ly, n in model.layers)
    return replace(with_sources(model, source), layers=runs)
