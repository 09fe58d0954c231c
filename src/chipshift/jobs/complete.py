"""From what the files say to a whole ``TrainJob``: the rest filled in, each filling stated."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

from chipshift.errors import InputError, nearest
from chipshift.jobs.check import check_plan
from chipshift.jobs.devices import devices_of_nodes, machine_of
from chipshift.jobs.draft import DEGREES, FIELDS, Draft
from chipshift.jobs.job import Assumed, Given, Precision, Stated, TrainJob, restated
from chipshift.jobs.loss import LM, NO_REFERENCE, loss
from chipshift.jobs.open_axes import GROWS, grown, over_slices
from chipshift.jobs.plan import Plan
from chipshift.jobs.preference import settle_loss
from chipshift.jobs.required import bounded_batch, require_model, required_length
from chipshift.jobs.settle import settle
from chipshift.jobs.told_batch import FROM_BATCH, fitting_batch, nearest_batch, told_batch
from chipshift.jobs.words import checked_word
from chipshift.machines.machine import Machine
from chipshift.models.checkpoint import OF_TENSORS, UNREAD
from chipshift.models.hf import OWN_CODE
from chipshift.units import DTYPE_BYTES

PLAN_FIELDS = (
    *("dp", "fsdp", "tp", "cp", "ep", "etp", "pp", "vpp", "remat", "optimizer_sharding"),
    *("schedule", "cp_kind", "ulysses_degree", "cp_shards", "sequence_parallel", "stage_layers"),
    "rings",
)
PRECISION_FIELDS = tuple(entry.name for entry in fields(Precision))


def complete(draft: Draft, files: tuple[str, ...]) -> TrainJob:
    """Fill what the draft leaves open and check what it holds.

    Raises:
        InputError: the model or the sequence length is missing, or figures contradict each other.
    """
    require_model(draft)
    seq_len = required_length(draft)
    devices_of_nodes(draft)
    settle_loss(draft)
    settle(draft)
    job = _over_own_slices(_job(draft, files, seq_len))
    if isinstance(job.devices, Given) and not job.slices_open:
        where = _where(job.devices, draft.file)
        return fill(job, job.devices.value, f"{job.devices.value} devices ({where})")
    check_plan(job, draft.file)
    return job


def _job(draft: Draft, files: tuple[str, ...], seq_len: Stated[int]) -> TrainJob:
    """The job of a settled draft, its open axes still open.

    Raises:
        InputError: the batch is missing or comes to no whole number, or a word is none that is
            known.
    """
    batch, microbatch, accumulation, batch_open = _batch(draft)
    bounded_batch(batch, draft.file)
    plan = _plan(draft, microbatch, accumulation)
    if plan is not None and draft.get("microbatch") is None and not draft.open_axis:
        draft.note("microbatch", f"{microbatch:g}", "the global batch over the replicas, undivided")
    _refuse_unknown_words(draft)
    precision = _precision(draft)
    optimizer = draft.values.get("optimizer") or Assumed("adamw", "no optimizer is named")
    stack = draft.values.get("stack") or Assumed("other", "the framework is not known")
    made = (("precision", precision), ("optimizer", optimizer), ("stack", stack))
    return TrainJob(
        name=draft.get("name") or draft.get("model").name,
        files=files,
        format=draft.format,
        model=draft.get("model"),
        sequences_per_step=batch,
        seq_len=seq_len,
        precision=precision,
        optimizer=optimizer,
        stack=stack,
        machine=machine_of(draft),
        devices=draft.values.get("devices"),
        plan=plan,
        plan_open=draft.open_axis,
        slices_open=draft.slices_open if draft.open_axis else "",
        slices_known=draft.slices_known,
        batch_open=batch_open,
        microbatch_rule=_rule(draft),
        uneven_pp=draft.uneven_pp,
        kv_replicated=draft.kv_replicated,
        task=draft.get("task") or "pretrain",
        trainable_fraction=draft.get("trainable_fraction") or 1.0,
        adapters=draft.get("adapters"),
        document_len=draft.get("document_len") or 0,
        loss_chunks=draft.get("loss_chunks") or 1,
        loss=draft.get("loss") or LM,
        reference=draft.get("reference") or NO_REFERENCE,
        teacher=draft.get("teacher"),
        flags=tuple(draft.flags),
        understood=tuple(draft.understood),
        ignored=tuple(draft.ignored),
        assumed=tuple(draft.assumed + _assumptions(draft, *made)),
    )


def _over_own_slices(job: TrainJob) -> TrainJob:
    """The axis of the slices filled, where the files name the machine."""
    if not job.slices_open or job.machine is None:
        return job
    from chipshift.machines.names import parse_machine

    machine = parse_machine(job.machine.value)
    return over_slices(job, machine.slices, f"{machine.name} ({_where(job.machine, job.files[0])})")


def resolve_machine(job: TrainJob, machine: Machine) -> TrainJob:
    """The job on a machine: its open axis filled with the devices the other degrees leave.

    Raises:
        InputError: the degrees do not multiply to the machine's devices, or a batch, head, layer
            or sequence count does not divide as the plan needs.
    """
    there = f"{machine.name} ({machine.devices} devices)"
    said = job.devices
    if isinstance(said, Given) and said.value != machine.devices:
        raise InputError(
            f"{_where(said, job.files[0])} puts the job on {said.value} devices, but {there} was "
            f"named; expected a machine of {said.value} devices, or --set to change the file's"
        )
    filled = fill(over_slices(job, machine.slices, there), machine.devices, there)
    stated = job.machine if isinstance(job.machine, Given) else Given(machine.name, "--on")
    return replace(filled, machine=stated)


def fill(job: TrainJob, devices: int, there: str) -> TrainJob:
    """As ``resolve_machine``, for a number of devices described as ``there``."""
    where = job.files[0]
    if job.plan is None:
        check_plan(job, where)
        return job
    plan, stated = job.plan.value, job.plan
    axis = job.plan_open
    batch = job.sequences_per_step
    if axis:
        others = plan.devices if axis in GROWS else _without(plan, axis).devices
        if devices % others:
            left = _product(plan, skip="" if axis in GROWS else axis)
            raise InputError(
                f"{where}: {left} = {others} does not divide {there}; "
                f"expected degrees whose product divides {devices}, or --set nodes=N"
            )
        count = devices // others
        plan = grown(plan if axis in GROWS else _without(plan, axis), axis, count)
        if axis == "fsdp":
            plan = replace(plan, cp_shards=plan.fsdp == 1 and plan.cp > 1)
        if job.batch_open:
            batch = restated(batch, batch.value * count)
            bounded_batch(batch, where)
        else:
            plan = _shared(plan, batch.value, job.microbatch_rule, where)
    elif plan.devices != devices:
        raise InputError(
            f"{where}: {_product(plan)} = {plan.devices} devices, but the job runs on {there}; "
            f"expected degrees that multiply to {devices}{fitting_batch(job, plan, devices)}"
        )
    filled = replace(
        job,
        plan=restated(stated, plan),
        plan_open="",
        slices_open="",
        batch_open=False,
        microbatch_rule="exact",
        sequences_per_step=batch,
    )
    check_plan(filled, where)
    return filled


def _without(plan: Plan, axis: str) -> Plan:
    """The plan before dp or fsdp took anything."""
    return replace(plan, dp=1) if axis == "dp" else replace(plan, fsdp=1)


def _rule(draft: Draft) -> str:
    """The rule of the microbatch, where one still has something to fill."""
    idle = not draft.open_axis or draft.values.get("global_batch") is None
    stated = draft.get("microbatch") is not None
    return "exact" if idle or (draft.microbatch_rule == "all" and stated) else draft.microbatch_rule


def _shared(plan: Plan, sequences: int, rule: str, where: str) -> Plan:
    """The plan with its microbatch and accumulation, now that the replicas are known."""
    replicas = plan.dp * plan.fsdp
    share = sequences // replicas
    if rule != "exact" and (sequences % replicas or share < plan.accumulation):
        raise InputError(
            f"{where}: a global batch of {sequences} sequences does not divide over {replicas} "
            "data-parallel replicas; expected a multiple"
        )
    if rule == "all":
        return replace(plan, microbatch=share / plan.accumulation)
    if rule == "at_most":
        count = math.ceil(share / plan.microbatch)
        return replace(plan, accumulation=count, microbatch=share / count)
    return replace(plan, accumulation=_accumulation(plan, sequences, where))


def _accumulation(plan: Plan, sequences: int, where: str) -> int:
    """Forwards a step that make up the global batch."""
    replicas = plan.dp * plan.fsdp
    each = plan.microbatch * replicas
    count = sequences / each
    if count < 1 or count != int(count):
        raise InputError(
            f"{where}: a global batch of {sequences} sequences is not a multiple of microbatch "
            f"{plan.microbatch:g} × {replicas} data-parallel replicas = {each:g}; expected a "
            "global batch that is"
        )
    return int(count)


def _batch(draft: Draft) -> tuple[Stated[int], float, int, bool]:
    """(global batch, microbatch, accumulation, whether the batch waits for the open axis)."""
    _batch_of_tokens(draft)
    total = draft.values.get("global_batch")
    micro, accumulation = draft.get("microbatch"), draft.get("accumulation")
    replicas = (draft.get("dp") or 1) * (draft.get("fsdp") or 1)
    axis = draft.open_axis
    if total is not None and micro and accumulation and axis:
        _close_axis(draft, total.value, micro * accumulation)
        axis = draft.open_axis
        replicas = (draft.get("dp") or 1) * (draft.get("fsdp") or 1)
    if total is None and micro is None:
        raise InputError(
            f"{draft.file} gives no batch; expected --set sequences_per_step=N, or the training "
            "file that gives it, beside this one"
        )
    if total is None:
        why = f"microbatch {micro:g} × accumulation {accumulation or 1} × replicas"
        value = micro * (accumulation or 1) * replicas
        if value != int(value):
            raise InputError(f"{draft.file}: {why} = {value:g}; expected whole sequences")
        made: Stated[int] = Assumed(int(value), why)
        source = draft.values["microbatch"]
        if isinstance(source, Given):
            made = Given(int(value), source.file, source.line)
        return made, micro, accumulation or 1, bool(axis)
    if axis:
        return (
            total,
            micro or float(loss(draft.get("loss") or LM).answers),
            accumulation or 1,
            False,
        )
    if micro is None:
        micro = total.value / replicas / (accumulation or 1)
        return total, micro, accumulation or 1, False
    plan = Plan(dp=replicas, microbatch=micro)
    if accumulation and accumulation * micro * replicas != total.value:
        raise InputError(
            f"{draft.file}: microbatch {micro:g} × accumulation {accumulation} × {replicas} "
            f"replicas is not the global batch of {total.value}; expected them to agree"
        )
    return total, micro, _accumulation(plan, total.value, draft.file), False


def _batch_of_tokens(draft: Draft) -> None:
    tokens = draft.values.get("tokens_per_step")
    if tokens is None or "global_batch" in draft.values:
        return
    length = draft.get("seq_len")
    if tokens.value % length:
        raise InputError(
            f"{draft.file}: {tokens.value} tokens a step is not a multiple of the sequence "
            f"length {length}; expected a multiple"
        )
    draft.put("global_batch", restated(tokens, tokens.value // length))


def _close_axis(draft: Draft, total: int, per_replica: float) -> None:
    """Global batch, microbatch and accumulation together say how many replicas there are."""
    axis = draft.open_axis
    other = draft.get("fsdp" if axis == "dp" else "dp") or 1
    count = total / (per_replica * other)
    if count < 1 or count != int(count):
        raise InputError(
            f"{draft.file}: a global batch of {total} is not a multiple of microbatch × "
            f"accumulation = {per_replica:g}{told_batch(draft.understood)}; expected it to be, "
            f"{nearest_batch(total, per_replica * other)} being the nearest"
        )
    why = FROM_BATCH
    draft.values[axis] = Assumed(int(count), why)
    draft.open_axis = ""


def _plan(draft: Draft, microbatch: float, accumulation: int) -> Stated[Plan] | None:
    given = [value for name in PLAN_FIELDS if isinstance(value := draft.values.get(name), Given)]
    known = {name: draft.get(name) for name in PLAN_FIELDS if draft.get(name) is not None}
    if not known and not draft.open_axis:
        return None
    plan = Plan(microbatch=float(microbatch), accumulation=accumulation, **known)
    if given:
        telling = [stated for stated in given if stated.line is not None and stated.value != 1]
        first = (telling or given)[0]
        return Given(plan, first.file, first.line)
    return Assumed(plan, "the framework's defaults; the file gives no degrees")


def _refuse_unknown_words(draft: Draft) -> None:
    """What a reader took for a dtype or a rematerialisation policy and is none.

    Raises:
        InputError: with its place and the nearest that is one.
    """
    for name in PRECISION_FIELDS:
        stated = draft.values.get(name)
        if stated is not None and stated.value not in (*DTYPE_BYTES, "none", ""):
            raise InputError(
                f"{_where(stated, draft.file)}: {FIELDS[name]} is {stated.value}; expected one of "
                f"{', '.join(DTYPE_BYTES)}{nearest(str(stated.value), list(DTYPE_BYTES))}"
            )
    remat = draft.values.get("remat")
    if remat is not None:
        said = f"{_where(remat, draft.file)}: {FIELDS['remat']}"
        checked_word("remat", str(remat.value), said)


def _precision(draft: Draft) -> Stated[Precision]:
    known = {name: draft.get(name) for name in PRECISION_FIELDS if draft.get(name) is not None}
    given = [v for n in PRECISION_FIELDS if isinstance(v := draft.values.get(n), Given)]
    precision = Precision(**known)
    if given:
        return Given(precision, given[0].file, given[0].line)
    reasons = [v.why for n in PRECISION_FIELDS if isinstance(v := draft.values.get(n), Assumed)]
    return Assumed(precision, reasons[0] if reasons else "mixed-precision training's usual dtypes")


SAID = {
    OF_TENSORS: "the tensors beside the config have it, and were taken",
    UNREAD: "its format is not read here: the model is its config's",
    OWN_CODE: "code beside the config is never run: what it adds is not counted",
}
"""Why a model is as it is, by the entry of its ``defaults``."""


def _assumptions(draft: Draft, *made: tuple[str, Stated[Any]]) -> list[tuple[str, str, str]]:
    """Every field that was assumed, as (what, value, why); dtypes of one reason in one entry."""
    shown: list[tuple[str, str, str]] = []
    dtypes: dict[str, list[str]] = {}
    for name, stated in draft.values.items():
        if not isinstance(stated, Assumed):
            continue
        if name in PRECISION_FIELDS:
            dtypes.setdefault(stated.why, []).append(f"{name} {stated.value}")
        else:
            value = stated.value.name if name in ("model", "teacher") else stated.value
            shown.append((FIELDS[name], str(value), stated.why))
    shown += [("dtypes", ", ".join(found), why) for why, found in dtypes.items()]
    if not any(name in draft.values for name in PRECISION_FIELDS):
        precision = made[0][1]
        assert isinstance(precision, Assumed)
        each = ", ".join(f"{n} {getattr(precision.value, n)}" for n in PRECISION_FIELDS[:-1])
        shown.append(("dtypes", each, precision.why))
    for what, stated in made[1:]:
        if isinstance(stated, Assumed) and what not in draft.values:
            shown.append((what, str(stated.value), stated.why))
    left_open = dict(draft.get("model").defaults)
    for what, why in SAID.items():
        if what in left_open:
            shown.append((what, str(left_open.pop(what)), why))
    if left_open:
        each = ", ".join(f"{key} {value}" for key, value in left_open.items())
        why = "its config leaves them to the reference implementation"
        if draft.get("model").architecture == "torch":
            why = "inferred: a run on tensors without values does not show it"
        shown.append(("model", each, why))
    return shown


def _product(plan: Plan, skip: str = "") -> str:
    parts = [f"{n}={getattr(plan, n)}" for n in DEGREES if n != skip and getattr(plan, n) > 1]
    return " × ".join(parts) or "1"


def _where(stated: Stated[Any], file: str) -> str:
    if isinstance(stated, Given):
        return stated.file if stated.line is None else f"{stated.file}:{stated.line}"
    return file
