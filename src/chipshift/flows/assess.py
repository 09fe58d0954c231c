"""The main job: a present run, the machines asked about, and the four-part answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from chipshift.errors import InputError
from chipshift.estimate import Estimate, estimate
from chipshift.estimate.setting import setting
from chipshift.flows.carry import unchanged
from chipshift.flows.measured import Anchored, anchor
from chipshift.flows.options import Options
from chipshift.flows.relearn import Relearn, relearn
from chipshift.flows.sizing import (
    Sizer,
    cheapest,
    fastest,
    largest_within,
    machines_of,
    smallest_within,
)
from chipshift.flows.transfers import Transfer, transfers
from chipshift.flows.verdict import Verdict, verdict
from chipshift.jobs.complete import resolve_machine
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines.machine import Machine
from chipshift.machines.names import chip_of, has_size, parse_machine
from chipshift.planner.choose import Choice, Constraint, RunnerUp, batch_limit, choose, with_batch
from chipshift.planner.held import check_held, held_text
from chipshift.planner.search import Found
from chipshift.worked import plain

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Sizings:
    """Answers to "how many chips?": to match the throughput, the cost, the chip count."""

    match_throughput: Estimate | None
    equal_cost: Estimate | None
    equal_chips: Estimate | None

    def with_best(self, best: Estimate) -> Sizings:
        """The same with the fully searched plan wherever the machine is the chosen one."""
        answers = (self.match_throughput, self.equal_cost, self.equal_chips)
        return Sizings(
            *(best if e is not None and e.machine.name == best.machine.name else e for e in answers)
        )


@dataclass(frozen=True)
class Target:
    """One machine asked about.

    Attributes:
        estimate: the best plan on it; None where nothing fits.
        short_bytes, would_fit, smallest: by how much nothing fits, what would, and the plan that
            needs least.
        batch_note: set where the batch limits the number of chips.
    """

    machine: Machine
    estimate: Estimate | None
    verdict: Verdict | None
    sizings: Sizings | None
    unchanged: Estimate | None
    unchanged_note: str
    runners_up: list[RunnerUp]
    constraints: list[Constraint]
    relearn: list[Relearn]
    short_bytes: float | None
    would_fit: list[str]
    batch_note: str
    found: Found
    frontier: list[Estimate]
    smallest: Plan | None = None


@dataclass(frozen=True)
class Assessment:
    """The whole answer.

    Attributes:
        replanned: the planner's plan on the present machine, where it beats the job's own: what
            planning alone would give.
    """

    job: TrainJob
    present: Estimate
    targets: list[Target]
    transfers: list[Transfer]
    measured: Anchored | None
    options: Options
    replanned: Estimate | None = None


def present_run(job: TrainJob, machine: Machine, options: Options) -> Estimate:
    """The estimate of the run as it is: its own plan, or the planner's where the file has none."""
    stack = options.stack_on(machine.chip, job.stack.value)
    price = options.price_of(machine)
    if job.plan is not None:
        return estimate(job, job.plan.value, machine, stack, price=price)
    chosen = choose(job, machine, stack, price=price, explain_choice=False)
    if chosen.best is None:
        raise InputError(
            f"{job.files[0]}: no plan of this job fits on {machine.name}, so that it cannot be "
            "what it runs on now; expected a larger --on"
        )
    return chosen.best


def assess(job: TrainJob, present: Machine, targets: Sequence[str],
           options: Options | None = None, progress: Progress | None = None
           ) -> Assessment:  # fmt: skip
    """What the job on ``present`` becomes on each target.

    Args:
        job: as read; its open axis is filled with the present machine's devices.
        targets: machine names, with a size (``v6e:16x16``) or without (``v7x``).

    Raises:
        InputError: a machine that does not exist, or a job that does not run on the present one.
    """
    options = options or Options()
    options.check_asked([present.chip, *map(chip_of, targets)])
    job = resolve_machine(job, present)
    now = present_run(job, present, options)
    replanned = _replanned(job, now) if job.plan is not None else None
    found = []
    for name in targets:
        if progress is not None:
            progress(f"planning {name}")
        found.append(plan_target(job, name, options, now, replanned))
    estimates = [t.estimate for t in found if t.estimate is not None]
    return Assessment(
        job, now, found, transfers(now, estimates), anchor(now, estimates, options.measured),
        options, replanned,
    )  # fmt: skip


def _replanned(job: TrainJob, now: Estimate) -> Estimate | None:
    """The best plan on the present machine, None where the job's own is as good."""
    best = choose(job, now.machine, now.stack, price=now.price, explain_choice=False).best
    faster = best is not None and plain(best.step_time_s) < 0.99 * plain(now.step_time_s)
    return best if faster else None


def plan_target(job: TrainJob, name: str, options: Options, now: Estimate | None = None,
                replanned: Estimate | None = None) -> Target:  # fmt: skip
    """The answer for one machine named with or without its size.

    Args:
        now: the present run to compare with; None for the planner by itself.
        replanned: a better plan on the present machine, where there is one.
    """
    sized = has_size(name)
    chip = chip_of(name)
    stack = options.stack_on(chip, job.stack.value)
    check_held(job, options.fixed)
    sizer = Sizer(job, chip, stack, options)
    sizings, note = None, ""
    if sized:
        machine = parse_machine(name)
    else:
        machine, sizings, note = _size(sizer, now)
    before = None if options.exhaustive else sizer.known.get(machine.name)
    chosen = choose(job, machine, stack, fixed=options.fixed, price=options.price_of(machine),
                    prune=not options.exhaustive,
                    found=None if before is None else before.found)  # fmt: skip
    if not chosen.found.considered and options.fixed:
        raise InputError(
            f"--fix {held_text(options.fixed)}: no plan of this job on {machine.name} is so "
            f"({machine.devices} devices, {job.sequences_per_step.value} sequences a step)"
        )
    if chosen.best is None:
        return _nothing_fits(job, machine, chosen, sizer)
    best = chosen.best
    sizings = None if sizings is None else sizings.with_best(best)
    limits = list(chosen.constraints)
    batch = batch_limit(job, machine, stack, best) if _batch_limits(best) else None
    if batch is not None:
        limits.append(batch)
    if options.allow_batch:
        chosen, note = _larger_batch(job, machine, stack, options, chosen, note)
        best = chosen.best or best
    carried, carried_note = (None, "") if now is None else _carry(job, now, best)
    return Target(
        machine=machine,
        estimate=best,
        verdict=None if now is None else verdict(now, best, replanned),
        sizings=sizings,
        unchanged=carried,
        unchanged_note=carried_note,
        runners_up=chosen.runners_up,
        constraints=limits,
        relearn=[] if now is None else relearn(job, now, best, carried, options.goodput),
        short_bytes=None,
        would_fit=[],
        batch_note=note,
        frontier=_frontier(sizer, best),
        found=chosen.found,
    )


def _larger_batch(job: TrainJob, machine: Machine, stack: str, options: Options, own: Choice,
                  note: str) -> tuple[Choice, str]:  # fmt: skip
    """The best choice when tokens a step may grow up to eightfold: least time a token."""
    assert own.best is not None
    best, least = own, float(plain(own.best.step_time_s))
    for factor in (2, 4, 8):
        other = choose(with_batch(job, factor), machine, stack, fixed=options.fixed,
                       price=options.price_of(machine))  # fmt: skip
        if other.best is None:
            break
        per_token = float(plain(other.best.step_time_s)) / factor
        if per_token < least * 0.999:
            best, least = other, per_token
            note = (
                f"{factor} times the batch: {factor * job.sequences_per_step.value:,} sequences a "
                f"step, {1 - least / float(plain(own.best.step_time_s)):.1%} less time a token"
            )
    return best, note


def _batch_limits(best: Estimate) -> bool:
    """Whether every replica already has a single sequence, so that no further one can be cut."""
    p = best.plan
    return p.microbatch * p.accumulation <= 1


def _size(sizer: Sizer, now: Estimate | None) -> tuple[Machine, Sizings | None, str]:
    """The slice for a target without a size, and the three sizings against the present run."""
    present_s = float("inf") if now is None else float(plain(now.step_time_s))
    limit, aim = present_s, f"reaches {present_s:.3g} s a step"
    if sizer.options.deadline_s is not None and sizer.options.tokens is not None:
        limit = _deadline_step_s(sizer)
        aim = f"makes the deadline, {limit:.3g} s a step,"
    objective = sizer.options.objective
    if now is None and objective == "time":
        chosen = fastest(sizer)
        return chosen or list(machines_of(sizer.chip))[-1], None, ""
    match = smallest_within(sizer, limit)
    note = ""
    chosen = match or fastest(sizer)
    if match is None and chosen is not None:
        shown = "the fastest is shown" if objective == "time" else "the fastest misses it too"
        note = f"no {sizer.chip.key} slice {aim} with this batch: {shown}"
    sizings = None
    if now is not None:
        same = match if limit == present_s else smallest_within(sizer, present_s)
        sizings = _sizings(sizer, now, same)
    if objective == "chips":
        chosen = smallest_within(sizer, float("inf")) or chosen
    elif objective == "cost":
        chosen = cheapest(sizer) or chosen
    return chosen or list(machines_of(sizer.chip))[-1], sizings, note


def _sizings(sizer: Sizer, now: Estimate, match: Machine | None) -> Sizings:
    equal_chips = largest_within(sizer, now.machine.chips)
    price = sizer.options.price_of(now.machine).usd_per_chip_hour
    own = sizer.options.price_of(next(iter(machines_of(sizer.chip)))).usd_per_chip_hour
    equal_cost = None
    if price is not None and own is not None:
        equal_cost = largest_within(sizer, now.machine.chips * price / own)
    best = [sizer.on(m).best if m is not None else None for m in (match, equal_cost, equal_chips)]
    return Sizings(*best)


def _deadline_step_s(sizer: Sizer) -> float:
    """Step time that the deadline leaves for the run's tokens at the assumed goodput."""
    job, o = sizer.job, sizer.options
    steps = (o.tokens or 0.0) / (job.sequences_per_step.value * job.seq_len.value)
    return (o.deadline_s or 0.0) * o.goodput / max(steps, 1e-9)


def _carry(job: TrainJob, now: Estimate, best: Estimate) -> tuple[Estimate | None, str]:
    """The present plan on the target as it is, or why it cannot be."""
    s = setting(job, best.machine, best.stack)
    plan = unchanged(s, replace(now.plan, order=()))
    if plan is None:
        return None, "the present degrees do not divide the target's devices and the batch"
    whose = "the present plan, carried over as it is"
    return estimate(job, plan, best.machine, best.stack, price=best.price, plan_source=whose), ""


def _nothing_fits(job: TrainJob, machine: Machine, chosen: Choice, sizer: Sizer
                  ) -> Target:  # fmt: skip
    """The answer where no plan fits: by how much, and what would make it fit."""
    would = _would_fit(job, machine, sizer)
    return Target(
        machine=machine, estimate=None, verdict=None, sizings=None, unchanged=None,
        unchanged_note="", runners_up=[], constraints=[], relearn=[],
        short_bytes=chosen.short_bytes, would_fit=would, batch_note="", frontier=[],
        found=chosen.found, smallest=chosen.smallest,
    )  # fmt: skip


def _would_fit(job: TrainJob, machine: Machine, sizer: Sizer) -> list[str]:
    """What would make it fit: less held, the next larger machine, or half the batch."""
    held = sizer.options.fixed
    would: list[str] = []
    for key in held:
        rest = {k: v for k, v in held.items() if k != key}
        free = choose(job, machine, sizer.stack, fixed=rest, explain_choice=False)
        if free.best is not None:
            would.append(f"{machine.name} without --fix {key}={held[key]}")
    for candidate in machines_of(sizer.chip):
        if candidate.chips > machine.chips and sizer.on(candidate).best is not None:
            return [*would, candidate.name]
    sequences = job.sequences_per_step
    if sequences.value > 1 and not would:
        smaller = replace(job, sequences_per_step=replace(sequences, value=sequences.value // 2))
        less = choose(smaller, machine, sizer.stack, fixed=held, explain_choice=False)
        if less.best is not None:
            would.append("half the batch")
    return would


def _frontier(sizer: Sizer, best: Estimate) -> list[Estimate]:
    """Best plans on the machines that were looked at, and on the chosen one, by chips."""
    known = [c.best for c in sizer.known.values() if c.best is not None]
    names = {e.machine.name for e in known}
    rows = known + ([best] if best.machine.name not in names else [])
    return sorted(rows, key=lambda e: (e.machine.chips, float(plain(e.step_time_s))))
