"""The first levels of the working of figures that stand in a report's tables and lists.

A page holds the whole working of the present run and of each best plan. Other plans, limits and
costs open their own first levels there; ``--explain`` with the figure's path opens the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from chipshift.estimate import Estimate
from chipshift.estimate.collectives import AXES
from chipshift.estimate.estimate import step_cost, step_time, token_cost
from chipshift.estimate.explain import machine_figures
from chipshift.flows.assess import Assessment, Target
from chipshift.flows.explain import counts, measured_figures
from chipshift.flows.output import figures_of, target_figures, with_working
from chipshift.flows.relearn import Relearn, relearn
from chipshift.planner.choose import Constraint, limit_cost, limit_usd
from chipshift.worked import Worked, leaf, plain, rename

REST = "worked out in full by chipshift assess --explain, with the figure's path in --json"
PART = "a part of this plan's own estimate: chipshift assess --explain, with its path in --json"
LEVELS = 3
COSTS = (("seconds_per_step", "seconds"), ("fraction_of_step", "fraction"), ("bytes", "bytes"),
         ("seconds_per_occurrence", "each_s"))  # fmt: skip
"""Keys of an item's cost, and the fields they are of."""

Figures = Iterator[tuple[str, Worked]]
"""Dotted paths of figures, with the first levels of their working."""


def first_levels(value: Worked, levels: int = LEVELS) -> Worked:
    """A derivation cut after some levels; what lies deeper is a leaf that says where it opens."""
    if not value.expression:
        return value
    if levels == 0:
        return leaf(value.value, value.unit, value.name, REST)
    inputs = tuple(first_levels(one, levels - 1) for one in value.inputs)
    return Worked(value.value, value.unit, value.name, value.expression, inputs, value.source)


def of_estimate(e: Estimate, path: str) -> Figures:
    """Step time, memory and cost of a plan, from its parts."""
    parts = [leaf(float(plain(v)), "s", f"{k}_s", PART) for k, v in e.time.items() if plain(v)]
    parts += [
        leaf(float(plain(v)), "s", f"collectives_exposed_{axis}_s", PART)
        for axis in AXES if plain(v := e.collectives_exposed[axis])
    ]  # fmt: skip
    seconds = rename(step_time(*parts), "step_time_s")
    yield f"{path}.step_time_s", seconds
    yield f"{path}.memory_bytes.total", _memory(e)
    price = e.price.usd_per_chip_hour
    if price is not None:
        usd = leaf(price, "USD/chip-hour", "usd_per_chip_hour", e.price.source)
        step = rename(step_cost(usd, machine_figures(e.machine)["chips"], seconds), "usd_per_step")
        job = e.job
        sequences = leaf(job.sequences_per_step.value, "sequences", "global_batch", PART)
        seq_len = leaf(job.seq_len.value, "tokens", "seq_len", PART)
        cost = rename(token_cost(step, sequences, seq_len), "usd_per_1e12_tokens")
        yield f"{path}.cost.usd_per_1e12_tokens", cost


def _memory(e: Estimate) -> Worked:
    rows = [(k, float(plain(v))) for k, v in e.memory.items() if k != "total" and plain(v)]
    parts: list[Any] = [leaf(size, "B", f"{name}_bytes", PART) for name, size in rows]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    return rename(whole, "memory_bytes")  # type: ignore[no-any-return]


def of_constraint(c: Constraint, best: Estimate, path: str) -> Figures:
    """A limit's cost: the best plan's step time, less that of the best plan without it."""
    step = leaf(float(plain(best.step_time_s)), "s", "step_time_s", PART)
    source = "step time of the best plan that the planner finds without this limit"
    without = leaf(c.without_s, "s", "step_time_without_s", source)
    cost = rename(limit_cost(step, without, c.steps), "cost_s")
    yield f"{path}.cost_s", cost
    price = best.price.usd_per_chip_hour
    if price is not None:
        usd = leaf(price, "USD/chip-hour", "usd_per_chip_hour", best.price.source)
        chips = machine_figures(best.machine)["chips"]
        yield f"{path}.cost_usd", rename(limit_usd(cost, usd, chips), "cost_usd")


def of_target(t: Target, path: str) -> Figures:
    """The other plans of a target, its sizes and its limits."""
    if t.estimate is None:
        return
    for i, row in enumerate(t.runners_up):
        yield from of_estimate(row.estimate, f"{path}.alternatives.{i}")
    for i, limit in enumerate(t.constraints):
        yield from of_constraint(limit, t.estimate, f"{path}.constraints.{i}")
    for i, e in enumerate(t.frontier):
        for name, value in of_estimate(e, f"{path}.frontier.{i}"):
            yield name.replace(".cost.usd_per_1e12", ".usd_per_1e12"), value
    for name in ("match_throughput", "equal_cost", "equal_chips"):
        sized = None if t.sizings is None else getattr(t.sizings, name)
        if sized is not None:
            yield from of_estimate(sized, f"{path}.sizings.{name}")


def of_relearn(a: Assessment, worked: Callable[[Target], list[Relearn]]) -> Figures:
    """The cost of each item to relearn; ``worked`` gives a target's items with their working."""
    at = 0
    for t in a.targets:
        own = {(r.rule, r.what): r for r in (worked(t) if t.relearn else [])}
        for r in t.relearn:
            found = own.get((r.rule, r.what))
            path = f"relearn.{at}.cost"
            at += 1
            for key, name in COSTS:
                value = None if found is None else getattr(found, name)
                if isinstance(value, Worked):
                    yield f"{path}.{key}", first_levels(value)


def besides(a: Assessment, now: Estimate, best: Callable[[Target], Estimate],
            carried: Callable[[Target], Estimate | None]) -> dict[str, Worked]:  # fmt: skip
    """Figures of a report's tables by path, with the first levels of their working.

    Args:
        now, best, carried: the explained estimates of the present run and of each target.
    """
    out: dict[str, Worked] = {}
    for i, t in enumerate(a.targets):
        out |= dict(of_target(t, f"targets.{i}"))

    def items(t: Target) -> list[Relearn]:
        return relearn(a.job, now, best(t), carried(t), a.options.goodput)

    return out | dict(of_relearn(a, items))


def explained_json(a: Assessment) -> dict[str, Any]:
    """What a report needs with its working.

    ``from``, ``targets`` and ``transfers`` hold every figure with all of its working, under the
    answer's own paths; ``besides`` the other figures of the page by path, with its first levels.
    """
    now, options = with_working(a.present), a.options
    best = {i: with_working(t.estimate) for i, t in enumerate(a.targets) if t.estimate is not None}
    carried = {
        i: with_working(t.unchanged) for i, t in enumerate(a.targets) if t.unchanged is not None
    }
    at = {id(t): i for i, t in enumerate(a.targets)}
    return {
        "from": figures_of(now, options),
        "targets": [
            {} if i not in best else {
                **target_figures(now, best[i], options),
                "unchanged_plan": figures_of(carried[i], options) if i in carried else None,
                **counts(t),
            }
            for i, t in enumerate(a.targets)
        ],
        "transfers": [{"from": t.present, "to": t.targets} for t in a.transfers],
        "besides": {
            **besides(a, now, lambda t: best[at[id(t)]], lambda t: carried.get(at[id(t)])),
            **_measured(a, now, best),
        },
    }  # fmt: skip


def _measured(a: Assessment, now: Estimate, best: dict[int, Estimate]) -> dict[str, Worked]:
    """Our error on the user's run and the anchored targets, in their first levels."""
    if a.measured is None:
        return {}
    found = measured_figures(a, now, lambda i: best[i])
    flat = {f"measured.our_error.{key}": value for key, value in found["our_error"].items()}
    for i, row in enumerate(found["anchored"]):
        flat |= {f"measured.anchored.{i}.{key}": value() for key, value in row.items()}
    flat |= {f"measured.{key}": found[key] for key in ("step_time_s", "memory_bytes")
             if key in found}  # fmt: skip
    return {path: first_levels(value) for path, value in flat.items()}
