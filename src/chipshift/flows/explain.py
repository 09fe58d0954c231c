"""The working of any figure of an assessment or a plan, by its dotted path.

The answer's tree is mirrored with ``Worked`` numbers. What takes an estimate to work out stands
in the mirror as a function, called when a path leads through it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chipshift.estimate import Estimate, estimate
from chipshift.estimate.explain import figures_of_job, machine_figures
from chipshift.estimate.output import at_path
from chipshift.flows.assess import Assessment, Target
from chipshift.flows.measured import anchored_time, relative_error
from chipshift.flows.options import Options
from chipshift.flows.output import figures_of, target_figures, with_working
from chipshift.flows.planning import scored_per_s
from chipshift.flows.relearn import Relearn, relearn
from chipshift.planner.choose import Constraint, limit_cost, limit_usd
from chipshift.worked import Worked, formula, leaf, rename

Tree = Any
"""Numbers as ``Worked``, in dicts and lists; a function stands for what it returns."""


@formula(unit="B", source="memory of the plan that needs least, over what a device has")
def missing_bytes(smallest_bytes: Any, available_bytes: Any) -> Any:
    """By how much nothing fits."""
    return smallest_bytes - available_bytes


@formula(unit="plans", source="legal plans that a proved bound left unscored")
def left_out(considered: Any, scored: Any) -> Any:
    """Plans pruned."""
    return considered - scored


def explained(a: Assessment, answer: dict[str, Any], path: str) -> Any:
    """The figure at a path of an assessment with its working.

    Args:
        answer: the assessment as the output contract writes it.

    Raises:
        InputError: the path names nothing.
    """
    return worked_at(assessment_tree(a, answer), answer, path)


def worked_at(tree: Tree, answer: dict[str, Any], path: str) -> Any:
    """The value at a path of the mirror, or the answer's own where that is no number.

    Raises:
        InputError: the path names nothing in the answer.
    """
    plain = at_path(answer, path)
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        return plain
    found = tree
    for step in path.split("."):
        found = _step(found() if callable(found) else found, step)
    return found() if callable(found) else found


def _step(found: Tree, step: str) -> Tree:
    """One step into the mirror; a derivation is walked by the keys of its JSON."""
    if isinstance(found, Worked):
        return found if step == "value" else list(getattr(found, step))
    return found[int(step)] if isinstance(found, list) else found[step]


def whole(tree: Tree) -> Tree:
    """The mirror with every function called."""
    if callable(tree):
        return whole(tree())
    if isinstance(tree, dict):
        return {key: whole(value) for key, value in tree.items()}
    return [whole(value) for value in tree] if isinstance(tree, list) else tree


def assessment_tree(a: Assessment, answer: dict[str, Any]) -> Tree:
    """The mirror of ``assess --json``."""
    now = _once(lambda: with_working(a.present))
    figures = _once(lambda: figures_of(now(), a.options))
    return {
        "job": lambda: figures()["job"],
        "from": figures,
        "replanned": _estimate(a.replanned, a.options),
        "targets": [target_tree(t, a.options, now) for t in a.targets],
        "transfers": [
            {
                "from": {"value": t.present},
                "to": {name: {"value": value} for name, value in t.targets.items()},
                "worked": {"from": t.present, "to": t.targets},
            }
            for t in a.transfers
        ],
        "relearn": [item for t in a.targets for item in _relearn(a, t, now)],
        "measured": lambda: _measured(a, now()),
        "proof": lambda: compiler_figures(answer.get("proof")),
        "proofs": lambda: compiler_figures(answer.get("proofs")),
    }


def target_tree(t: Target, options: Options, now: Callable[[], Estimate] | None) -> Tree:
    """The mirror of one target; ``now`` works out the present run, None for the planner alone."""
    if t.estimate is None:
        return {
            "job": figures_of_job(t.found.setting.job), "machine": machine_figures(t.machine),
            "short_bytes": lambda: _short(t), **counts(t),
        }  # fmt: skip
    chosen = t.estimate
    best = _once(lambda: with_working(chosen))
    if now is None:
        own = _once(lambda: figures_of(best(), options))
    else:
        own = _once(lambda: target_figures(now(), best(), options))
    keys = ("job", "machine", "plan", "step_time_s", "tokens_per_s_per_chip", "long_run",
            "model_flops_per_token", "tflops_per_chip", "mfu", "hfu", "time_s", "memory_bytes",
            "cost", "assumptions", "error_band", "ratio", "band", "flips_at")  # fmt: skip
    return {
        **{key: _part(own, key) for key in keys},
        "sizings": {} if t.sizings is None else {
            name: _estimate(getattr(t.sizings, name), options)
            for name in ("match_throughput", "equal_cost", "equal_chips")
        },
        "unchanged_plan": _estimate(t.unchanged, options),
        "alternatives": [_estimate(r.estimate, options) for r in t.runners_up],
        "constraints": [_constraint(c, best) for c in t.constraints],
        "frontier": [_point(e, options) for e in t.frontier],
        **counts(t),
    }  # fmt: skip


def _once(make: Callable[[], Any]) -> Callable[[], Any]:
    """The function, called at most once."""
    kept: list[Any] = []

    def get() -> Any:
        if not kept:
            kept.append(make())
        return kept[0]

    return get


def _part(of: Callable[[], Any], key: str) -> Callable[[], Any]:
    return lambda: of().get(key)


def _estimate(e: Estimate | None, options: Options) -> Tree:
    return None if e is None else _once(lambda: figures_of(with_working(e), options))


def _point(e: Estimate, options: Options) -> Tree:
    own = _once(lambda: figures_of(with_working(e), options))
    return {
        "chips": lambda: own()["machine"]["chips"],
        "step_time_s": _part(own, "step_time_s"),
        "usd_per_1e12_tokens": lambda: own()["cost"]["usd_per_1e12_tokens"],
        "plan": _part(own, "plan"),
    }


def _constraint(c: Constraint, best: Callable[[], Estimate]) -> Tree:
    """What a limit costs: the best plan's step time, less that of the best plan without it."""

    def cost_s() -> Worked:
        there = best()
        free = estimate(c.job, c.plan, there.machine, there.stack, price=there.price, explain=True,
                        plan_source=f"the best plan without the limit: {c.name}")  # fmt: skip
        without = rename(free.step_time_s, "step_time_without_s")
        cost = limit_cost(there.step_time_s, without, c.steps)
        return rename(cost, "cost_s")  # type: ignore[no-any-return]

    def cost_usd() -> Worked:
        there = best()
        price = there.price
        rate = leaf(price.usd_per_chip_hour or 0.0, "USD/chip-hour", "usd_per_chip_hour",
                    price.source)  # fmt: skip
        chips = machine_figures(there.machine)["chips"]
        return limit_usd(cost_s(), rate, chips)  # type: ignore[no-any-return]

    return {"cost_s": cost_s, "cost_usd": cost_usd}


def counts(t: Target) -> dict[str, Worked]:
    """What the planner's search counted, and how long it took."""
    f, on = t.found, t.machine.name
    considered = leaf(
        f.considered,
        "plans",
        "plans_considered",
        f"counted by the planner on {on}: legal degrees × microbatch × remat × sharding × schedule",
    )
    scored = leaf(f.scored, "plans", "plans_scored",
                  f"counted by the planner on {on}: all parts computed")  # fmt: skip
    return {
        "plans_considered": considered,
        "plans_scored": scored,
        "plans_pruned": rename(left_out(considered, scored), "plans_pruned"),
        "plans_fitting": leaf(f.counted_fitting, "plans", "plans_fitting",
                              f"counted by the planner on {on}: scored plans within the memory of "
                              "a device"),
        "search_time_s": leaf(f.seconds, "s", "search_time_s",
                              f"measured: this process's clock over the search on {on}"),
    }  # fmt: skip


def _short(t: Target) -> Worked | None:
    """By how much the smallest plan misses the memory of a device; None where no plan is legal."""
    s = t.found.setting
    if t.smallest is None:
        return None
    smallest = estimate(s.job, t.smallest, t.machine, s.stack.name, explain=True,
                        plan_source="the plan that needs least memory")  # fmt: skip
    return rename(  # type: ignore[no-any-return]
        missing_bytes(smallest.memory["total"], smallest.available), "short_bytes"
    )


def _relearn(a: Assessment, t: Target, now: Callable[[], Estimate]) -> list[Tree]:
    """The costs of a target's items, worked anew on explained estimates."""

    def found() -> dict[tuple[str, str], Relearn]:
        assert t.estimate is not None
        carried = None if t.unchanged is None else with_working(t.unchanged)
        items = relearn(a.job, now(), with_working(t.estimate), carried, a.options.goodput)
        return {(r.rule, r.what): r for r in items}

    own = _once(found)
    return [_item(r, own) for r in t.relearn]


def _item(r: Relearn, own: Callable[[], dict[tuple[str, str], Relearn]]) -> Tree:
    def cost(name: str, unit: str) -> Callable[[], Worked]:
        def get() -> Worked:
            worked = getattr(own().get((r.rule, r.what), r), name)
            if isinstance(worked, Worked):
                return worked
            return leaf(worked or 0.0, unit, name, r.evidence)  # a finding's, by its formula

        return get

    return {
        "where": {"line": leaf(r.line or 0, "", "line", f"{r.file}:{r.line}")},
        "cost": {
            "seconds_per_step": cost("seconds", "s"),
            "fraction_of_step": cost("fraction", "1"),
            "bytes": cost("bytes", "B"),
            "seconds_per_occurrence": cost("each_s", "s"),
        },
    }


def _measured(a: Assessment, now: Estimate) -> Tree:
    if a.measured is None:
        return None
    found = [None if t.estimate is None else _worked_once(t.estimate) for t in a.targets]

    def best(i: int) -> Estimate:
        get = found[i]
        assert get is not None
        return get()

    return measured_figures(a, now, best)


def _worked_once(e: Estimate) -> Callable[[], Estimate]:
    return _once(lambda: with_working(e))


def measured_figures(a: Assessment, now: Estimate, best: Callable[[int], Estimate]) -> Tree:
    """Our error on the user's run, and the targets anchored to it.

    Args:
        now, best: the explained estimates of the present run and of the target of an index.
    """
    assert a.measured is not None
    theirs = {
        name: leaf(value, unit, f"measured_{name}", "given: --measured")
        for name, unit in (("step_time_s", "s"), ("memory_bytes", "B"))
        if (value := getattr(a.measured.measured, name)) is not None
    }
    ours = {"step_time_s": now.step_time_s, "memory_bytes": now.memory["total"]}
    at = {t.machine.name: i for i, t in enumerate(a.targets) if t.estimate is not None}
    present = rename(now.step_time_s, "present_step_time_s")

    def anchored(i: int) -> Tree:
        return {
            "raw_step_time_s": lambda: best(i).step_time_s,
            "anchored_step_time_s": lambda: anchored_time(
                best(i).step_time_s, present, theirs["step_time_s"]
            ),
        }

    return {
        **theirs,
        "our_error": {name: relative_error(ours[name], value) for name, value in theirs.items()},
        "anchored": [anchored(at[row.machine]) for row in a.measured.targets],
    }


def compiler_figures(report: Any, source: str = "the target's own compiler") -> Tree:
    """A compile report's numbers as leaves: what the compiler said, and of which program."""
    if isinstance(report, dict):
        if "program" in report and "machine" in report:
            source = f"{source}, as it reported on: {report['program']}"
        return {key: compiler_figures(value, source) for key, value in report.items()}
    if isinstance(report, list):
        return [compiler_figures(value, source) for value in report]
    if isinstance(report, int | float) and not isinstance(report, bool):
        return leaf(report, "", "as_compiled", source)
    return report


def plan_tree(t: Target, options: Options) -> Tree:
    """The mirror of ``plan --json``."""
    own = target_tree(t, options, None)
    rate = scored_per_s(own["plans_scored"], own["search_time_s"])
    return {**own, "best": own, "plans_per_s": rename(rate, "plans_per_s")}
