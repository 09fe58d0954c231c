"""The working of any figure of an assessment, by its dotted path."""

from __future__ import annotations

from typing import Any

from chipshift.errors import InputError
from chipshift.estimate.output import at_path
from chipshift.flows.assess import Assessment, Target
from chipshift.flows.output import figures_of, target_figures, with_working

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
    return plain


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
