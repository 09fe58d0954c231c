"""One plan of one job on one machine: step time, memory and cost, part by part."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from chipshift.errors import InputError
from chipshift.estimate.collectives import AXES, forwards_beside
from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.groups import group_links, plan_placements
from chipshift.estimate.parts import absent
from chipshift.estimate.said import explained, plan_said
from chipshift.estimate.score import Score, policy_named, score
from chipshift.estimate.setting import Setting, setting
from chipshift.estimate.stack import default_stack
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines.machine import Machine
from chipshift.models.model import Model
from chipshift.models.ops import Cut, flops_of, forward_flops_per_token, layer_ops
from chipshift.worked import formula, leaf, plain, rename

Number = Any

PLAN_UNITS = {"pp": "stages", "vpp": "stages", "microbatch": "sequences", "accumulation": "1"}
"""Units of a plan's numbers that do not count devices."""


@dataclass(frozen=True)
class Price:
    """Dollars a chip-hour, and whose price it is; None where none is sourced or given."""

    usd_per_chip_hour: float | None
    source: str


@dataclass(frozen=True)
class ErrorBand:
    """The error that this chip and stack has shown on measured runs."""

    median_abs_rel: float | None
    p90_abs_rel: float | None
    n: int
    basis: str


@dataclass(frozen=True)
class Estimate:
    """The outputs of one estimate; numbers are floats, or ``Worked`` when explaining.

    ``time`` holds matmul, attention, memory_bound, bubble, optimizer, input and other;
    ``memory`` the parts of ``memory_bytes`` and their total; ``update_memory`` is what stays
    allocated at the end of the optimizer step, ``first_stage_memory`` the parts on
    the first pipeline stage, with their total (its ranks' logs say that, not what the fullest
    stage holds);
    ``plan_source`` says who chose the plan where it is
    not the job's own.
    """

    job: TrainJob
    machine: Machine
    stack: str
    plan: Plan
    step_time_s: Number
    tokens_per_s_per_chip: Number
    model_flops_per_token: Number
    tflops_per_chip: Number
    mfu: Number
    hfu: Number
    peak_dtype: str
    time: dict[str, Number]
    collectives_total: dict[str, Number]
    collectives_exposed: dict[str, Number]
    recompute: Number
    memory: dict[str, Number]
    update_memory: Number
    first_stage_memory: dict[str, Number]
    available: Number
    usd_per_step: Number | None
    usd_per_1e12_tokens: Number | None
    price: Price
    error_band: ErrorBand
    plan_source: str = ""

    @property
    def fits(self) -> bool:
        return bool(plain(self.memory["total"]) <= plain(self.available))


@formula(unit="s", source="the parts of time_s, exposed collectives among them")
def step_time(*parts: Number) -> Number:
    """Sum of every part of the step."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


@formula(unit="tokens/s", source="tokens a step over step time and chips")
def throughput_per_chip(sequences: Number, seq_len: Number, step_time_s: Number, chips: Number
                        ) -> Number:  # fmt: skip
    """Tokens a second a chip."""
    return sequences * seq_len / (step_time_s * chips)


@formula(unit="FLOP", source="forward, and twice as much backward; frozen weights have no gradient")
def training_flops_per_token(forward: Number, matmul_forward: Number, trainable: Number) -> Number:
    """Model FLOPs of one token, forward and backward: 3 × forward when every weight is trained."""
    return 3 * forward - (1 - trainable) * matmul_forward


@formula(unit="FLOP", source="passes without gradient, of a policy or of its frozen reference")
def with_forwards(trained: Number, forward: Number, passes: Number) -> Number:
    """Model FLOPs of one token trained on, forward passes beside it included."""
    return trained + passes * forward


@formula(unit="TFLOP/s", source="model FLOPs a second a chip")
def achieved_tflops(flops_per_token: Number, tokens_per_s_per_chip: Number) -> Number:
    """The numerator of MFU, in 1e12 FLOP/s."""
    return flops_per_token * tokens_per_s_per_chip / 1e12


@formula(unit="1", source="MFU: model FLOPs over the chip's peak, PaLM appendix B")
def utilization(tflops_per_chip: Number, peak_flop_per_s: Number, devices_per_chip: Number
                ) -> Number:  # fmt: skip
    """Model FLOPs utilisation of the peak of the main matmuls' dtype."""
    return tflops_per_chip * 1e12 / (peak_flop_per_s * devices_per_chip)


@formula(unit="1", source="HFU counts recomputed FLOPs too")
def hardware_utilization(mfu: Number, recomputed_flops: Number, model_flops: Number) -> Number:
    """Hardware FLOPs utilisation."""
    return mfu * (1 + recomputed_flops / model_flops)


@formula(unit="USD", source="chips × price × time")
def step_cost(usd_per_chip_hour: Number, chips: Number, step_time_s: Number) -> Number:
    """Dollars of one step."""
    return usd_per_chip_hour * chips * step_time_s / 3600


@formula(unit="USD", source="dollars of a step over its tokens, for 1e12 of them")
def token_cost(usd_per_step: Number, sequences: Number, seq_len: Number) -> Number:
    """Dollars of 1e12 tokens."""
    return usd_per_step * 1e12 / (sequences * seq_len)


def estimate(job: TrainJob, plan: Plan, machine: Machine, stack: str | None = None, *,
             price: Price | None = None, explain: bool = False, plan_source: str = ""
             ) -> Estimate:  # fmt: skip
    """Time, memory and cost of one step.

    Args:
        job: what is trained.
        plan: how it is cut; dp·fsdp·cp·tp·pp must be the machine's devices and the global batch
            the job's.
        machine: what it runs on.
        stack: framework and compiler; None = the job's own where it runs there, else the default.
        price: dollars a chip-hour; None = the chip's sourced on-demand price.
        explain: numbers are ``Worked``, with formula, inputs and sources.
        plan_source: who chose the plan, where it is not the job's own.

    Raises:
        InputError: a plan that does not fit the machine or the job.
    """
    name = stack or default_stack(machine.chip.family, job.stack.value)
    s = setting(job, machine, name)
    check_plan(s, plan)
    columns = columns_of(job, plan, machine, explain=explain, plan_source=plan_source)
    if explain:
        s = explained(s)
    found = finish(s, plan, score(s, columns, choice_of(plan)), price)
    return replace(found, plan_source=plan_source)


def columns_of(job: TrainJob, plan: Plan, machine: Machine, *, explain: bool = False,
               plan_source: str = "") -> Columns:  # fmt: skip
    """The numbers of a plan, and the links of its groups on a machine."""
    groups = group_links(machine, plan_placements(machine, plan), explain=explain)
    numbers: dict[str, Number] = {
        axis: float(getattr(plan, axis))
        for axis in ("dp", "fsdp", "tp", "cp", "ep", "pp", "vpp", "microbatch", "accumulation")
    }
    numbers["etp"] = float(plan.etp or plan.tp)
    if plan.cp_kind == "all_to_all":
        numbers["ulysses"] = float(plan.ulysses)
    if explain:
        numbers = {
            k: leaf(v, PLAN_UNITS.get(k, "devices"), k, plan_said(job, plan, k, plan_source))
            for k, v in numbers.items()
        }
    return Columns(**numbers, links=groups, cp_shards=plan.cp_shards)


def choice_of(plan: Plan) -> Choice:
    """The categorical part of a plan."""
    return Choice(plan.remat, plan.optimizer_sharding, plan.schedule, plan.cp_kind,
                  plan.sequence_parallel, plan.stage_layers)  # fmt: skip


def check_plan(s: Setting, plan: Plan) -> None:
    """Raise InputError when the plan contradicts machine or job."""
    if plan.devices != s.machine.devices:
        raise InputError(
            f"plan dp={plan.dp} fsdp={plan.fsdp} cp={plan.cp} tp={plan.tp} pp={plan.pp} makes "
            f"{plan.devices} devices, but {s.machine.name} has {s.machine.devices}"
        )
    batch = plan.global_batch
    if abs(batch - s.sequences) > 1e-6 * s.sequences:
        raise InputError(
            f"plan microbatch {plan.microbatch:g} × accumulation {plan.accumulation} × dp "
            f"{plan.dp} × fsdp {plan.fsdp} is {batch:g} sequences a step, but the job has "
            f"{s.sequences:g}"
        )


def finish(s: Setting, plan: Plan, found: Score, price: Price | None) -> Estimate:
    """Derived figures of a score."""
    chips = s.devices / s.devices_per_chip
    parts = {**found.time}
    total = rename(
        step_time(*parts.values(), *(found.exposed[axis] for axis in AXES)), "step_time_s"
    )
    forward = rename(forward_flops_per_token(s.model, s.document_len), "forward_flops_per_token")
    matmul = forward - attention_flops_per_token(s.model, s.document_len)
    trained = training_flops_per_token(forward, matmul, s.trainable)
    beside = forwards_beside(s)
    if not absent(beside):
        trained = with_forwards(rename(trained, "trained_flops_per_token"), forward, beside)
    if s.teacher is not None:
        taught = forward_flops_per_token(s.teacher.model, s.document_len)
        taught = rename(taught, "teacher_flops_per_token")
        trained = with_forwards(rename(trained, "student_flops_per_token"), taught, 1.0)
    flops = rename(trained, "model_flops_per_token")
    rate = rename(throughput_per_chip(s.sequences, s.seq_len, total, chips),
                  "tokens_per_s_per_chip")  # fmt: skip
    tflops = rename(achieved_tflops(flops, rate), "tflops_per_chip")
    mfu = rename(utilization(tflops, s.peak_flop_per_s, s.devices_per_chip), "mfu")
    again = recomputed_flops_per_token(s, plan)
    cost = price or default_price(s.machine)
    per_step = per_tokens = None
    if cost.usd_per_chip_hour is not None:
        usd: Number = cost.usd_per_chip_hour
        if not isinstance(s.seq_len, float):
            usd = leaf(usd, "USD/chip-hour", "usd_per_chip_hour", cost.source)
        per_step = rename(step_cost(usd, chips, total), "usd_per_step")
        per_tokens = rename(token_cost(per_step, s.sequences, s.seq_len), "usd_per_1e12_tokens")
    return Estimate(
        job=s.job,
        machine=s.machine,
        stack=s.stack.name,
        plan=plan,
        step_time_s=total,
        tokens_per_s_per_chip=rate,
        model_flops_per_token=flops,
        tflops_per_chip=tflops,
        mfu=mfu,
        hfu=rename(hardware_utilization(mfu, again, flops), "hfu"),
        peak_dtype=s.peak_dtype,
        time=parts,
        collectives_total=found.total,
        collectives_exposed=found.exposed,
        recompute=found.recompute,
        memory=found.memory,
        update_memory=found.update_memory,
        first_stage_memory=found.first_stage_memory,
        available=s.usable_bytes,
        usd_per_step=per_step,
        usd_per_1e12_tokens=per_tokens,
        price=cost,
        error_band=error_band(s.machine.chip.key, s.stack.name),
    )


def attention_flops_per_token(model: Model, seq_len: Number) -> Number:
    """Forward FLOPs of one token's attention (no weights in it)."""
    total: Number = 0.0
    for (layer, count), kind in zip(model.layers, model.kind_prefixes, strict=True):
        ops = layer_ops(layer, model.d_model, Cut(tokens=1.0, seq_len=seq_len))
        flops = flops_of([op for op in ops if op.kind == "attention"])
        total = total + rename(flops, f"{kind}attention_flops_per_token") * count
    return rename(total, "attention_flops_per_token")


def recomputed_flops_per_token(s: Setting, plan: Plan) -> Number:
    """Forward FLOPs of one token that the plan's remat policy runs again."""
    policy = policy_named(s, plan.remat)
    total: Number = 0.0
    for (layer, count), kind in zip(s.model.layers, s.model.kind_prefixes, strict=True):
        ops = layer_ops(layer, s.model.d_model, Cut(tokens=1.0, seq_len=s.document_len))
        flops = flops_of([op for op in ops if policy.recomputes(op.name, layer.side_by_side)])
        total = total + rename(flops, f"{kind}layer_recomputed_flops") * count * policy.every
    return rename(total, "recomputed_flops_per_token")


def default_price(machine: Machine) -> Price:
    """The chip's sourced on-demand list price, or None with the reason."""
    figure = machine.chip.figures.get("price_usd_per_chip_hour_od")
    if figure is None:
        return Price(None, f"no sourced on-demand price of {machine.chip.key}: give --price")
    return Price(figure.value, f"on demand, {figure.source}, {figure.date}")


@functools.cache
def _bands() -> dict[str, Any]:
    file = resources.files("chipshift.estimate") / "bands.toml"
    return tomllib.loads(file.read_text("utf8")) if file.is_file() else {}


def error_band(chip_key: str, stack_name: str) -> ErrorBand:
    """The band measured for this chip and stack (bands.toml, written by ``validate``)."""
    row = _bands().get(chip_key, {}).get(stack_name.partition("@")[0])
    if row is None:
        return ErrorBand(None, None, 0, "not validated on this chip and stack")
    return ErrorBand(row["median_abs_rel"], row["p90_abs_rel"], row["n"], row["basis"])
