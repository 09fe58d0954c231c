"""Part two of the answer: what must be relearned, as far as the job file tells.

Each item's cost is in seconds a step, worked from the target's own estimate: with the thing and
without it (docs/relearn.md has every formula with an example).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chipshift.estimate import Estimate
from chipshift.flows.flag_rules import COSTS, FLAG_RULES
from chipshift.flows.kernel_costs import at_bf16_rate, narrow_matmuls
from chipshift.flows.port import Cost, Port, difference, port, share_of_step
from chipshift.flows.shape_costs import LEAST_SHARE, MOST_ITEMS, fills, narrow_heads
from chipshift.flows.state_costs import loss_scaler
from chipshift.jobs.job import Flag, Given, TrainJob
from chipshift.planner.choose import choose
from chipshift.units import DTYPE_BYTES
from chipshift.worked import plain, rename

Number = Any
SEVERITIES = ("blocker", "high", "medium", "low")
GOODPUT = 0.9
"""Share of the time that makes progress where nobody says: ``Options.goodput``'s own default."""


@dataclass(frozen=True)
class Relearn:
    """One thing to relearn: where it shows, what it costs a step, and what to do instead.

    Attributes:
        rule: slug, of the same list as the audit's rules.
        seconds, fraction: cost a step, and its share of the target's step; None where a job file
            cannot tell, with the reason in ``evidence``. ``Worked`` where the estimates are.
        bytes: HBM traffic a step on a device, where that is what costs.
        each_s, each: seconds of one occurrence, and of what, where no step count spreads them.
        evidence: what the cost compares, and what it assumes.
    """

    topic: str
    rule: str
    severity: str
    file: str | None
    line: int | None
    what: str
    seconds: Number | None
    fraction: Number | None
    bytes: Number | None
    instead: str
    evidence: str
    each_s: Number | None = None
    each: str = ""


def relearn(job: TrainJob, present: Estimate, target: Estimate, unchanged: Estimate | None,
            goodput: float = GOODPUT) -> list[Relearn]:  # fmt: skip
    """Everything to relearn on one target, worst first.

    Args:
        present, target, unchanged: estimates of the present run, of the target's best plan and of
            the present plan carried over; with ``Worked`` numbers the costs are worked too.
        goodput: share of the time that makes progress.
    """
    if target.machine.chip.family == present.machine.chip.family:
        return []
    p = port(job, present, target, unchanged, goodput)
    found = [*_topology(p), *_flags(p), *_shapes(p), *_precision(p)]
    order = {name: i for i, name in enumerate(SEVERITIES)}
    return sorted(found, key=lambda r: (order[r.severity], -float(plain(r.seconds) or 0.0)))


def _item(p: Port, rule: tuple[str, str, str], where: Given[Any] | Flag | None, what: str,
          cost: Cost, instead: str) -> Relearn:  # fmt: skip
    """An item under a rule's topic, slug and severity."""
    topic, slug, severity = rule
    share = None
    if cost.seconds is not None:
        share = rename(share_of_step(cost.seconds, p.target.step_time_s), "fraction_of_step")
    return Relearn(
        topic, slug, severity,
        where.file if where is not None else None,
        where.line if where is not None else None,
        what, rename(cost.seconds, "seconds_per_step"), share, cost.moved, instead, cost.evidence,
        cost.each_s, cost.each,
    )  # fmt: skip


def _severity(cost: Cost, p: Port) -> str:
    """How bad a cost is by its share of the step; what cannot be told is taken to be high."""
    if cost.seconds is None:
        return "high"
    share = float(plain(cost.seconds)) / float(plain(p.target.step_time_s))
    return "high" if share > 0.10 else "medium" if share > 0.02 else "low"


def _topology(p: Port) -> Iterator[Relearn]:
    """Degrees that were shaped by the NVLink domain, and the plan that replaces them."""
    plan, new = p.present.plan, p.target.plan
    domain = p.present.machine.fabric[0].dims[0]
    shaped = {axis: n for axis in ("tp", "cp", "ep") if (n := getattr(plan, axis)) > 1
              and domain % n == 0}  # fmt: skip
    if not shaped or (p.unchanged is not None and p.unchanged.plan == new):
        return
    chosen = ", ".join(
        f"{axis}={getattr(new, axis)}" for axis in ("dp", "fsdp", "tp", "cp", "ep", "pp")
        if getattr(new, axis) > 1
    )  # fmt: skip
    torus = "×".join(str(n) for n in p.target.machine.fabric[0].dims)
    cost = _kept_degrees(p, shaped)
    names = ", ".join(f"{axis}={n}" for axis, n in shaped.items())
    yield _item(
        p, ("topology", "node8-topology", _severity(cost, p)),
        p.job.plan if isinstance(p.job.plan, Given) else None,
        f"{names} follow{'s' if len(shaped) == 1 else ''} the {domain}-GPU NVLink domain; a "
        f"{torus} torus has no such island",
        cost, f"on {p.target.machine.name} plan {chosen or 'one device'}",
    )  # fmt: skip


def _kept_degrees(p: Port, shaped: dict[str, int]) -> Cost:
    """The present plan carried over, or the best plan with its shaped degrees, against the best."""
    kept, words = p.unchanged, "the plan unchanged"
    if kept is None:
        held = ", ".join(f"{axis}={n}" for axis, n in shaped.items())
        kept = choose(p.job, p.target.machine, p.target.stack, fixed=dict(shaped),
                      price=p.target.price, explain_choice=False).best  # fmt: skip
        words = f"the degrees do not divide the slice's devices; the best plan with {held}"
        if kept is None:
            return Cost(None, f"no plan with {held} fits there, so that there is no such step")
        if p.worked:
            kept = _explained(kept)
    seconds = difference(
        rename(kept.step_time_s, "step_with_present_degrees_s"),
        rename(p.target.step_time_s, "step_of_best_plan_s"),
    )
    fits = "" if kept.fits else "; it does not fit as it is: the step it would take with the memory"
    return Cost(seconds, f"step time of {words}, less that of the best plan{fits}")


def _explained(e: Estimate) -> Estimate:
    from chipshift.estimate import estimate

    return estimate(e.job, e.plan, e.machine, e.stack, price=e.price, explain=True,
                    plan_source=e.plan_source)  # fmt: skip


def _flags(p: Port) -> Iterator[Relearn]:
    """What each setting pulls in that is another thing on the target; one item a rule and cost."""
    flags = [flag for flag in p.job.flags if flag.kind in FLAG_RULES]
    for rule in dict.fromkeys(FLAG_RULES[flag.kind].rule for flag in flags):
        same = [flag for flag in flags if FLAG_RULES[flag.kind].rule == rule]
        costs = [COSTS[flag.kind](p, flag) for flag in same]
        # of equal costs the option rather than the environment's variable
        worst = max(
            range(len(same)),
            key=lambda i: (float(plain(costs[i].seconds) or 0.0), not same[i].key.isupper()),
        )
        flag, row = same[worst], FLAG_RULES[same[worst].kind]
        more = f" and {len(same) - 1} more" if len(same) > 1 else ""
        yield _item(p, (row.topic, row.rule, row.severity), flag,
                    f"{flag.key}={flag.value}{more}", costs[worst], row.instead)  # fmt: skip


def _shapes(p: Port) -> Iterator[Relearn]:
    """Dimensions that do not fill the matrix unit, each with the seconds its padding costs."""
    chip = p.target.machine.chip
    if not chip.has("matrix_unit_cols"):
        return
    lanes = int(chip.value("matrix_unit_cols"))
    step = float(plain(p.target.step_time_s))
    worst = sorted(fills(p), key=lambda row: -float(plain(row[2])))
    for rule, name, seconds in worst[:MOST_ITEMS]:
        if float(plain(seconds)) < LEAST_SHARE * step:
            continue
        cost = Cost(seconds, "its matmuls at the padded dimension, less at the exact one; the "
                    "compiler may choose another layout")  # fmt: skip
        yield _item(
            p, ("shapes", rule, _severity(cost, p)), None,
            f"{name} does not fill the {lanes}-wide matrix unit", cost,
            f"pad it to a multiple of {lanes}, or choose a tp that leaves one",
        )  # fmt: skip
    narrow = narrow_heads(p)
    if narrow is not None:
        width, _, cost = narrow
        yield _item(
            p, ("shapes", "head-dim-lt-128", _severity(cost, p)), None,
            f"head_dim {width:g} fills {width / lanes:.0%} of the {lanes}-wide matrix unit in QKᵀ",
            cost, "fewer, wider heads in the next model; this one pays it on every chip of the "
            "kind",
        )  # fmt: skip


def _precision(p: Port) -> Iterator[Relearn]:
    """fp16 without a scaler's flag, and fp8 recipes against what the chip has."""
    precision = p.job.precision
    where = precision if isinstance(precision, Given) else None
    wanted = precision.value.compute
    chip = p.target.machine.chip
    if DTYPE_BYTES[wanted] < 2:
        cost = narrow_matmuls(p, wanted)
        runs = p.target.peak_dtype
        slower = at_bf16_rate(p)
        what = (
            f"{wanted} matmuls run at the {'bf16 rate' if slower else f'{runs} rate'} on {chip.key}"
        )
        instead = (
            "train in bf16 there (int8 by AQT or qwix doubles the rate where accuracy allows)"
            if slower else f"{runs} matmuls by qwix or AQT in place of Transformer Engine's recipe"
        )  # fmt: skip
        yield _item(p, ("other", "transformer-engine", _severity(cost, p)), where, what, cost,
                    instead)  # fmt: skip
    if wanted == "fp16" and not any(f.kind == "loss_scaler" for f in p.job.flags):
        row = FLAG_RULES["loss_scaler"]
        yield _item(
            p, (row.topic, row.rule, row.severity), where,
            "fp16: its range needs a loss scaler, whose check reads a device value every step",
            loss_scaler(p, None), row.instead,
        )  # fmt: skip
