"""Everything about an estimate that is not the plan: job, machine and stack as numbers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from chipshift.estimate.narrow_weights import narrow_weights
from chipshift.estimate.stack import Stack, sources, stack
from chipshift.estimate.switches import switched
from chipshift.jobs.draft import FIELDS
from chipshift.jobs.job import Assumed, Given, TrainJob
from chipshift.jobs.loss import LM, NO_REFERENCE, loss, reference_forwards
from chipshift.jobs.optimizers import OPTIMIZERS
from chipshift.jobs.plan import Plan
from chipshift.machines.machine import Machine
from chipshift.models.adapters import Adapters
from chipshift.models.model import Model
from chipshift.models.scope import refuse_untimed
from chipshift.roofline.kernels import (
    Kernels,
    attention_sources,
    figure_source,
    grouped_sources,
    kernels,
    matmul_sources,
    stream_source,
)
from chipshift.units import DTYPE_BYTES
from chipshift.worked import leaf, with_sources

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
        moments_per_param=OPTIMIZERS.get(job.optimizer.value, 2.0),
        reference=DTYPE_BYTES.get(job.reference, 0.0),
    )
    narrow = narrow_weights(job, chip.key, stack_name)
    if narrow is not None:
        sizes = replace(sizes, weights=narrow.held, gathered=narrow.gathered, tables=2.0)
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


def _taught(job: TrainJob) -> TrainJob:
    """The teacher's forward pass as a job: no adapters and no passes besides."""
    assert job.teacher is not None
    alone = replace(job, model=job.teacher, teacher=None, adapters=None)
    return replace(alone, trainable_fraction=1.0, loss=LM, reference=NO_REFERENCE)


SEPARATE_BACKWARD = 7.0
"""Matmuls of a backward pass whose kernels for the queries' and for the keys' gradients each make
the scores and their gradient anew: JAX's flash kernel, which PyTorch/XLA and, until 2024-02-08,
MaxText called (layers/attentions.py). Splash attention can have one kernel for all (torch_xla
experimental/splash_attention.py, sa_use_fused_bwd_kernel)."""
SEPARATE = frozenset({("torch_xla", "flash"), ("maxtext", "pallas_flash")})
"""Stacks, and what a job's flags call that kernel there. MaxText's ``flash`` is splash today: one
kernel for all under ``sa_use_fused_bwd_kernel``, false by default (configs/base.yml), and always
under ``use_tokamax_splash`` (layers/attention_op.py); the flag ``separate_backward`` says that a
job has two."""
FOUND_RANGE_PASSES, CASTS_WEIGHTS = 1.0, 1.0
"""MaxText's 8-bit matmuls on TPUs where nothing fixes the range, its default (configs/base.yml:
calibration ``absmax``; AQT for int8, layers/quantizations.py): each operand is read once more for
its largest value, and weights are cast where they are used; with a fixed range they are cast before
they are gathered (layers/moe.py)."""


def for_job(constants: Stack, job: TrainJob, family: str) -> Stack:
    """The stack's constants with what the job's flags and precision say of its kernels."""
    if job.precision.value.compute == "mxfp8":
        constants = replace(
            constants,
            narrow_matmul_scale=constants.narrow_matmul_scale * constants.mxfp8_scale,
            grouped_scale=constants.grouped_scale / constants.mxfp8_scale,
        )
    if any(f.kind == "eager_modules" for f in job.flags):
        constants = eager(constants)
    if constants.base == "megatron":
        constants = switched(_megatron(constants, {f.kind for f in job.flags}), job)
    if family != "tpu":
        return constants
    named = {f.value for f in job.flags if f.kind == "attention_kernel"}
    kinds = {f.kind for f in job.flags}
    apart = "separate_backward" in kinds and constants.base == "maxtext"
    if apart or any((constants.base, kernel) in SEPARATE for kernel in named):
        constants = replace(constants, attention_backward_matmuls=SEPARATE_BACKWARD)
    if constants.base == "maxtext" and "fixed_ranges" not in kinds:
        constants = replace(constants, range_passes=FOUND_RANGE_PASSES, casts_weights=CASTS_WEIGHTS)
    return constants


def _megatron(constants: Stack, flags: set[str]) -> Stack:
    """The stack with PyTorch's FSDP2 in place of its own buffers, or with DeepSpeed's fork of it.

    The fork repeats keys and values before it deals them out (DeepSpeed, Megatron-DeepSpeed,
    megatron/model/transformer.py, 2025).
    """
    if "torch_fsdp2" in flags:
        constants = replace(constants, gradients_at_peak=0.0)
    return replace(constants, deals_repeated_heads=1.0) if "deepspeed" in flags else constants


def eager(constants: Stack) -> Stack:
    """The stack with a layer's modules run op by op in place of its fused kernels.

    Passes of bf16, counted in Hugging Face transformers 4.57, modeling_llama.py: an RMSNorm that
    casts, squares, averages, scales and casts back is 18, the residual's sum 3; a rotary embedding
    multiplies twice, turns a half and adds; SiLU and the product are 5 where one kernel takes 3.
    """
    return replace(constants, norm_passes=21.0, rope_passes=10.0, activation_scale=5 / 3)


def _contiguous(order: tuple[int, ...]) -> bool:
    """Whether each kind of layer stands in one run."""
    changes = sum(a != b for a, b in itertools.pairwise(order))
    return changes <= len(set(order)) - 1


def explained(s: Setting) -> Setting:
    """The same setting with every number a leaf that names its source."""
    job, machine = s.job, s.machine
    chip, devices_per_chip = machine.chip, machine.chip.devices_per_chip
    per_device = f", over {devices_per_chip} devices a chip" if devices_per_chip > 1 else ""

    def of_chip(name: str, absent: str) -> str:
        return figure_source(chip, name, absent) + per_device

    hbm = of_chip("hbm_bandwidth_bytes_per_s", "")
    peak = of_chip(f"peak_{s.peak_dtype}_flop_per_s", "")
    return replace(
        s,
        model=_model_leaves(job),
        stack=with_sources(s.stack, sources(s.stack.name, chip.key)),
        kernels=_kernel_leaves(s, hbm),
        bytes=_byte_leaves(s),
        sequences=leaf(s.sequences, "sequences", "global_batch", stated(job.sequences_per_step)),
        seq_len=leaf(s.seq_len, "tokens", "seq_len", stated(job.seq_len)),
        document_len=leaf(s.document_len, "tokens", "document_len", _said_of(job, "document_len"))
        if job.document_len else leaf(s.seq_len, "tokens", "seq_len", stated(job.seq_len)),
        trainable=leaf(s.trainable, "1", "trainable_fraction", f"task {job.task}: {_trained(job)}"),
        loss_chunks=leaf(s.loss_chunks, "1", "loss_chunks", _said_of(job, "loss_chunks")),
        policy_forwards=_passes_leaf(s, "policy_forwards"),
        reference_forwards=_passes_leaf(s, "reference_forwards"),
        devices=leaf(s.devices, "devices", "devices", devices_source(machine)),
        devices_per_host=leaf(
            s.devices_per_host, "devices", "devices_per_host",
            of_chip("chips_per_host", f"assumed: 8 chips a host, none is sourced of {chip.key}"),
        ),
        devices_per_chip=leaf(
            s.devices_per_chip, "devices", "devices_per_chip",
            f"the {chip.name}'s description: what a framework counts as devices",
        ) if devices_per_chip > 1 else s.devices_per_chip,
        usable_bytes=leaf(s.usable_bytes, "B", "usable_hbm_bytes",
                          figure_source(chip, "usable_hbm_bytes_per_device", "")),
        host_link_bytes_per_s=leaf(
            s.host_link_bytes_per_s, "B/s", "host_link_bytes_per_s",
            of_chip("host_link_bytes_per_s", f"assumed: 30 GB/s, none is sourced of {chip.key}"),
        ),
        peak_flop_per_s=leaf(s.peak_flop_per_s, "FLOP/s", "peak_flop_per_s", peak),
        teacher=None if s.teacher is None else explained(s.teacher),
    )  # fmt: skip


def _kernel_leaves(s: Setting, hbm: str) -> Kernels:
    """Every figure of the kernels with the source of its own table."""
    chip, k = s.machine.chip, s.kernels
    widths = [ly.attention.head_dim for ly, _ in s.job.model.layers if ly.attention]
    own = stated(s.job.precision)
    main = matmul_sources(chip, s.peak_dtype, f"{s.peak_dtype} matmuls: {own}")
    plain_bf16 = matmul_sources(chip, "bf16", "head and router run in bf16")
    units = {"": "1", "peak_flop_per_s": "FLOP/s", "hbm_bytes_per_s": "B/s", "launch_s": "s",
             "in_bytes": "B", "out_bytes": "B", "k_half": "elements", "tile_m": "elements",
             "tile_n": "elements", "tile_k": "elements", "units": "processors",
             "s_half_forward": "keys", "s_half_backward": "keys"}  # fmt: skip
    attention = attention_sources(chip, float(max(widths, default=128)))
    grouped = grouped_sources(chip, s.peak_dtype, main)
    return replace(
        k,
        matmul=with_sources(k.matmul, main, units),
        plain=with_sources(k.plain, plain_bf16, units),
        grouped=with_sources(k.grouped, grouped, {**units, "k_half": "rows"}),
        attention=with_sources(k.attention, attention, units),
        hbm_bytes_per_s=leaf(k.hbm_bytes_per_s, "B/s", "hbm_bytes_per_s", hbm),
        stream_e_hbm=leaf(k.stream_e_hbm, "1", "stream_e_hbm", stream_source(chip)),
    )


def _byte_leaves(s: Setting) -> Bytes:
    """Bytes of an element by role; their names in a derivation say which."""
    own, rows = stated(s.job.precision), {}
    names = ("compute", "weights", "gathered", "gradients", "reduce", "master", "moments", "tables")
    for name in names:
        value = getattr(s.bytes, name)
        if value:  # a zero says that the part is absent
            rows[name] = leaf(value, "B", f"{name}_bytes_each", own)
    kept = f"{s.job.optimizer.value} keeps so many ({stated(s.job.optimizer)})"
    if s.bytes.moments_per_param:
        rows["moments_per_param"] = leaf(s.bytes.moments_per_param, "1", "moments_per_param", kept)
    if s.bytes.reference:
        rows["reference"] = leaf(
            s.bytes.reference,
            "B",
            "reference_bytes_each",
            f"weights of the reference: {_said_of(s.job, 'reference')}",
        )
    rows["activations"] = leaf(s.bytes.activations, "B", "activation_bytes_each",
                               "activations are kept and moved in bf16")  # fmt: skip
    return replace(s.bytes, **rows)


def _passes_leaf(s: Setting, name: str) -> Number:
    """Passes without gradient: a leaf that says which loss asks for them, or the bare zero."""
    passes = getattr(s, name)
    if not passes:
        return passes
    said = _said_of(s.job, "loss")
    return leaf(passes, "1", name, f"loss {s.job.loss}, reference {s.job.reference}: {said}")


def _trained(job: TrainJob) -> str:
    if job.trainable_fraction == 1:
        return "every weight gets a gradient"
    return "the share of the matmul weights that get a gradient"


def _said_of(job: TrainJob, key: str) -> str:
    """Where the file says something that the job keeps as a bare number."""
    words = FIELDS.get(key, key)
    for row in job.understood:
        if words in row.understood_as or key in row.key:
            return f"{row.file}:{row.line}" if row.line else row.file
    noted = next((why for what, _, why in job.assumed if what == key), "")
    return f"assumed: {noted or 'nothing in the file says otherwise'}"


PLAN_WORDS = {"vpp": "layers a chunk", "sequences": "global batch in sequences"}
"""What readers call a number of the plan beside its field's own words."""


def plan_said(job: TrainJob, plan: Plan, axis: str, otherwise: str = "") -> str:
    """Where a number of a plan comes from: the job's line, or who chose the plan."""
    if job.plan is None or job.plan.value != plan:
        return otherwise or "the plan that is estimated"
    if not isinstance(job.plan, Given):
        return stated(job.plan)
    words = {axis, FIELDS.get(axis), PLAN_WORDS.get(axis)}
    rows = [row for row in job.understood if row.understood_as in words and row.line]
    if rows:
        return f"{rows[0].file}:{rows[0].line}"
    if axis in ("dp", "fsdp", "accumulation") and getattr(plan, axis) > 1:
        return f"what the other degrees and the batch leave: {stated(job.plan)}"
    asked = f"{job.plan.file} asks for none"
    return asked if getattr(plan, axis, 1) in (0, 1) else stated(job.plan)


def devices_source(machine: Machine) -> str:
    """How a machine's devices are counted, in words."""
    per = machine.chip.devices_per_chip
    return f"{machine.name}: {machine.chips:,} chips of {per} device{'s' if per > 1 else ''}"


def stated(field: Given[Any] | Assumed[Any]) -> str:
    """Where a field of the job comes from, in words."""
    if isinstance(field, Given):
        return f"{field.file}:{field.line}" if field.line else field.file
    return f"assumed: {field.why}"


MODEL_WORDS = {
    "layers": "layers", "d_model": "model width", "heads": "attention heads",
    "kv_heads": "key/value heads", "width": "feed-forward width", "experts": "experts",
}  # fmt: skip
"""What readers of launch scripts call a model's sizes."""

MODEL_UNITS = {
    "": "elements", "heads": "heads", "kv_heads": "heads", "experts": "experts",
    "top_k": "experts", "matrices": "matrices", "vocab": "rows", "window": "keys",
    "norm_params": "parameters", "bias_params": "parameters", "router_params": "parameters",
    "final_norm_params": "parameters", "gate_params": "parameters",
}  # fmt: skip


def model_sources(job: TrainJob) -> dict[str, str]:
    """Where each size of the model comes from ("" key = the rest): the script's line, or config."""
    rows = {row.understood_as: row for row in job.understood if row.line}
    out = {
        field: f"{row.file}:{row.line}"
        for field, words in MODEL_WORDS.items()
        if (row := rows.get(words)) is not None
    }
    config = f"{job.model.name}: its config.json"
    out[""] = f"{job.files[0]}: the model's arguments" if "d_model" in out else config
    if "vocabulary" in rows:
        out["vocab"] = f"{rows['vocabulary'].file}:{rows['vocabulary'].line}"
    padding = next((why for what, _, why in job.assumed if "padding" in what), "")
    if padding:
        out["vocab"] = f"{out.get('vocab', config)}; {padding}"
    return out


def _model_leaves(job: TrainJob) -> Model:
    sources, model = model_sources(job), job.model
    of_layers = sources.get("layers", sources[""])
    runs: Any = tuple(
        (with_sources(layer, sources, MODEL_UNITS), leaf(n, "layers", f"{kind}layers", of_layers))
        for (layer, n), kind in zip(model.layers, model.kind_prefixes, strict=True)
    )
    return replace(with_sources(model, sources, MODEL_UNITS), layers=runs)
