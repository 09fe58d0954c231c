"""Where each number of a setting comes from: a line of the job, a chip's figure, who assumed it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chipshift.estimate.setting import Bytes, Setting
from chipshift.estimate.stack import sources
from chipshift.jobs.draft import FIELDS
from chipshift.jobs.job import Assumed, Given, TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines.machine import Machine
from chipshift.models.model import Model
from chipshift.roofline.kernels import (
    Kernels,
    attention_sources,
    figure_source,
    grouped_sources,
    matmul_sources,
    stream_source,
)
from chipshift.worked import leaf, with_sources

Number = Any


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
        document_len=leaf(s.document_len, "tokens", "document_len", said_of(job, "document_len"))
        if job.document_len else leaf(s.seq_len, "tokens", "seq_len", stated(job.seq_len)),
        trainable=leaf(s.trainable, "1", "trainable_fraction", f"task {job.task}: {_trained(job)}"),
        loss_chunks=leaf(s.loss_chunks, "1", "loss_chunks", said_of(job, "loss_chunks")),
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
            f"weights of the reference: {said_of(s.job, 'reference')}",
        )
    rows["activations"] = leaf(s.bytes.activations, "B", "activation_bytes_each",
                               "activations are kept and moved in bf16")  # fmt: skip
    return replace(s.bytes, **rows)


def _passes_leaf(s: Setting, name: str) -> Number:
    """Passes without gradient: a leaf that says which loss asks for them, or the bare zero."""
    passes = getattr(s, name)
    if not passes:
        return passes
    said = said_of(s.job, "loss")
    return leaf(passes, "1", name, f"loss {s.job.loss}, reference {s.job.reference}: {said}")


def _trained(job: TrainJob) -> str:
    if job.trainable_fraction == 1:
        return "every weight gets a gradient"
    return "the share of the matmul weights that get a gradient"


def said_of(job: TrainJob, key: str) -> str:
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
