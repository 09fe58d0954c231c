"""Everything about an estimate that is not the plan: job, machine and stack as numbers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from chipshift.estimate.narrow_weights import narrow_weights
from chipshift.estimate.stack import Stack, stack
from chipshift.estimate.switches import for_job
from chipshift.jobs.job import TrainJob
from chipshift.jobs.loss import LM, NO_REFERENCE, loss, reference_forwards
from chipshift.jobs.optimizers import OPTIMIZERS
from chipshift.machines.machine import Machine
from chipshift.models.adapters import Adapters
from chipshift.models.model import Model
from chipshift.models.scope import refuse_untimed
from chipshift.roofline.kernels import (
    Kernels,
    kernels,
)
from chipshift.units import DTYPE_BYTES

Number = Any


@dataclass(frozen=True)
class Bytes:
    """Bytes of one element or parameter, by role.

    ``tables``: a weight of embedding and head where the others are kept in 8 bits; else 0.0.
    """

    compute: Number
    weights: Number
    gathered: Number
    gradients: Number
    reduce: Number
    master: Number
    moments: Number
    moments_per_param: Number
    activations: Number = 2.0
    reference: Number = 0.0
    tables: Number = 0.0


@dataclass(frozen=True)
class Setting:
    """A job on a machine under a stack, as numbers (floats, or sourced leaves for explaining).

    Attributes:
        heavy_first: layer kinds stand in contiguous runs, so that a stage may hold only the
            heaviest kind; False where kinds alternate and every stage has the mean mix.
        document_len: tokens that attention reaches over: a sequence, or a document packed into one.
        adapters: low-rank ones beside frozen weights, None where every weight is trained.
        policy_forwards, reference_forwards: passes without gradient, for each sequence trained on;
            0.0 where the loss has none.
        teacher: the same of a distillation's frozen teacher, of which a step takes the forward
            pass; None where there is none.
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
    document_len: Number
    adapters: Adapters | None
    trainable: Number
    loss_chunks: Number
    policy_forwards: Number
    reference_forwards: Number
    devices: Number
    devices_per_host: Number
    devices_per_chip: Number
    usable_bytes: Number
    host_link_bytes_per_s: Number
    peak_dtype: str
    peak_flop_per_s: Number
    heavy_first: bool
    teacher: Setting | None = None


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
    head_dim = max(
        (ly.attention.head_dim for ly, _ in job.model.layers if ly.attention), default=128
    )
    hosts = chip.value("chips_per_host") if chip.has("chips_per_host") else 8.0
    return Setting(
        job=job,
        machine=machine,
        model=job.model,
        stack=for_job(stack(stack_name, chip.key), job, chip.family),
        kernels=kernels(chip, dtype, DTYPE_BYTES[dtype], float(head_dim)),
        bytes=_sizes(job, chip.key, stack_name, DTYPE_BYTES[dtype]),
        sequences=float(job.sequences_per_step.value),
        seq_len=float(job.seq_len.value),
        document_len=float(job.document_len or job.seq_len.value),
        adapters=job.adapters,
        trainable=float(job.trainable_fraction),
        loss_chunks=float(job.loss_chunks),
        policy_forwards=float(loss(job.loss).scored),
        reference_forwards=float(reference_forwards(job.loss, job.reference)),
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
        teacher=None if job.teacher is None else setting(_taught(job), machine, stack_name),
    )


def _sizes(job: TrainJob, chip: str, stack_name: str, compute: float) -> Bytes:
    """Bytes of a value by what it is, with the job's precision as this stack keeps it."""
    p = job.precision.value
    weights = DTYPE_BYTES[p.weights]
    sizes = Bytes(
        compute=compute,
        weights=weights,
        gathered=DTYPE_BYTES[p.gather] if p.gather else weights,
        gradients=DTYPE_BYTES[p.gradients],
        reduce=DTYPE_BYTES[p.reduce],
        master=0.0 if p.master == "none" else DTYPE_BYTES[p.master],
        moments=DTYPE_BYTES[p.moments],
        moments_per_param=OPTIMIZERS.get(job.optimizer.value, 2.0),
        reference=DTYPE_BYTES.get(job.reference, 0.0),
    )
    narrow = narrow_weights(job, chip, stack_name)
    if narrow is None:
        return sizes
    return replace(sizes, weights=narrow.held, gathered=narrow.gathered, tables=2.0)


def _taught(job: TrainJob) -> TrainJob:
    """The teacher's forward pass as a job: no adapters and no passes besides."""
    assert job.teacher is not None
    alone = replace(job, model=job.teacher, teacher=None, adapters=None)
    return replace(alone, trainable_fraction=1.0, loss=LM, reference=NO_REFERENCE)


def _contiguous(order: tuple[int, ...]) -> bool:
    """Whether each kind of layer stands in one run."""
    changes = sum(a != b for a, b in itertools.pairwise(order))
    return changes <= len(set(order)) - 1
