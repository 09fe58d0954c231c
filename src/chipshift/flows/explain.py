"""The working of any figure of an assessment, by its dotted path."""

from __future__ import annotations

from typing import Any

from chipshift.errors import InputError
from chipshift.estimate.output import at_path
from chipshift.flows.assess import Assessment, Target
from chipshift.flows.measured import anchored_time, relative_error
from chipshift.flows.output import figures_of, target_figures, with_working
from chipshift.worked import leaf, rename

SIZINGS = ("match_throughput", "equal_cost", "equal_chips")


def explained(a: Assessment, answer: dict[str, Any], path: str) -> Any:
    """The figure at a path with its working, or as it stands in the answer where it has none.

    Args:
        answer: the assessment as the output contract writes it.

    Raises:
        InputError: the path names nothing.
    """
    plain = at_path(answer, path)
    match path.split("."):
        case ["from", *rest] if rest:
            return _within(figures_of(with_working(a.present), a.options), rest, plain)
        case ["targets", number, *rest] if rest:
            return _of_target(a, a.targets[int(number)], rest, plain)
        case ["transfers", number, "from", "value"]:
            return a.transfers[int(number)].present
        case ["transfers", number, "to", machine, "value"]:
            return a.transfers[int(number)].targets[machine]
        case ["measured", "our_error", name] if plain is not None:
            return _our_error(a, name)
        case ["measured", "anchored", number, "anchored_step_time_s"]:
            return _anchored(a, answer["measured"]["anchored"][int(number)]["machine"])
    return plain


def _our_error(a: Assessment, name: str) -> Any:
    now = with_working(a.present)
    if name == "step_time_s":
        return relative_error(now.step_time_s, _theirs(a, name))
    return relative_error(now.memory["total"], _theirs(a, name))


def _anchored(a: Assessment, machine: str) -> Any:
    """The target's step time over the present's, times the measured one."""
    target = next(t.estimate for t in a.targets
                  if t.estimate is not None and t.machine.name == machine)  # fmt: skip
    now, there = with_working(a.present), with_working(target)
    present = rename(now.step_time_s, "present_step_time_s")
    return anchored_time(there.step_time_s, present, _theirs(a, "step_time_s"))


def _theirs(a: Assessment, name: str) -> Any:
    assert a.measured is not None
    unit = "s" if name == "step_time_s" else "B"
    return leaf(getattr(a.measured.measured, name), unit, f"measured_{name}", "--measured")


def _of_target(a: Assessment, t: Target, rest: list[str], plain: Any) -> Any:
    match rest:
        case ["alternatives", number, *inner] if inner:
            runner = t.runners_up[int(number)].estimate
            return _within(figures_of(with_working(runner), a.options), inner, plain)
        case ["frontier", number, *inner] if inner:
            tree = figures_of(with_working(t.frontier[int(number)]), a.options)
            return _within({**tree, **tree["cost"]}, inner, plain)
        case ["sizings", name, *inner] if inner and name in SIZINGS:
            sized = getattr(t.sizings, name)
            return _within(figures_of(with_working(sized), a.options), inner, plain)
        case ["unchanged_plan", *inner] if inner and t.unchanged is not None:
            return _within(figures_of(with_working(t.unchanged), a.options), inner, plain)
        case [head, *_] if t.estimate is not None:
            best = with_working(t.estimate)
            if head not in ("ratio", "band", "flips_at"):
                return _within(figures_of(best, a.options), rest, plain)
            return _within(target_figures(with_working(a.present), best, a.options), rest, plain)
    return plain


def _within(tree: dict[str, Any], steps: list[str], plain: Any) -> Any:
    try:
        return at_path(tree, ".".join(steps))
    except InputError:
        return plain
