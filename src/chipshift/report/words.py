"""What the report says in sentences: verdicts, errors, and how a cost is put."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from chipshift.flows.verdict import believed
from chipshift.units import GIB, duration

VERDICTS = {
    "both": "faster and cheaper",
    "faster": "faster, not cheaper",
    "cheaper": "cheaper, not faster",
    "within_the_error": "no difference beyond the error",
    "neither": "neither faster nor cheaper",
    "does_not_fit": "does not fit",
}
GOOD = {"both": "good", "faster": "good", "cheaper": "good", "neither": "bad",
        "within_the_error": "even", "does_not_fit": "bad"}  # fmt: skip

SEVERITIES = ("blocker", "high", "medium", "low")


def half_width(estimate: Mapping[str, Any]) -> float:
    """The relative half-width of an estimate: its own median error where it was validated."""
    band = estimate.get("error_band") or {}
    return believed(band.get("median_abs_rel"), int(band.get("n") or 0))


def ratio_error(present: Mapping[str, Any], target: Mapping[str, Any]) -> float:
    """Relative half-width of a ratio of two estimates with independent errors."""
    return math.hypot(half_width(present), half_width(target))


def verdict_words(target: Mapping[str, Any]) -> str:
    """The verdict; without a price it says nothing of the cost."""
    word = target["verdict"]
    if word in ("faster", "neither") and (target.get("ratio") or {}).get("cost_per_token") is None:
        return {"faster": "faster, cost unknown", "neither": "not faster, cost unknown"}[word]
    return VERDICTS[word]


def headline(answer: Mapping[str, Any]) -> str:
    """The verdicts in one sentence, the best first, machines of the same verdict together."""
    found: dict[str, list[str]] = {}
    for target in best_first(answer["targets"]):
        found.setdefault(verdict_words(target), []).append(target["machine"]["name"])
    clauses = [f"{words} on {_listed(names)}" for words, names in found.items()]
    text = "; ".join(clauses)
    return text[:1].upper() + text[1:]


def loss_words(job: Mapping[str, Any]) -> str:
    """What the loss is of where it is not every token's next, for a list: ``DPO, ``."""
    loss = job.get("loss", "lm")
    return "" if loss == "lm" else f"{'reward model' if loss == 'reward' else loss.upper()}, "


def best_first(targets: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Targets by verdict, the best first; in the order asked about where it is the same."""
    return sorted(targets, key=lambda t: list(VERDICTS).index(t["verdict"]))


def _listed(names: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def compared(target: Mapping[str, Any]) -> str:
    """Ratios to the present in words."""
    ratio = target.get("ratio") or {}
    parts = []
    if ratio.get("step_time") is not None:
        parts.append(f"step time {ratio['step_time']:.2f}×")
        if more_tokens(target) != 1:
            parts[0] += f" with {more_tokens(target):g}× the tokens"
            parts.append(f"time a token {ratio['time_per_token']:.2f}×")
    if ratio.get("tokens_per_s_per_chip") is not None:
        parts.append(f"tokens/s a chip {ratio['tokens_per_s_per_chip']:.2f}×")
    if ratio.get("cost_per_token") is not None:
        parts.append(f"cost a token {ratio['cost_per_token']:.2f}×")
    else:
        parts.append("cost a token unknown: no price")
    return ", ".join(parts)


def more_tokens(target: Mapping[str, Any]) -> float:
    """How many times the present step's tokens the target's has."""
    ratio = target.get("ratio") or {}
    step, token = ratio.get("step_time"), ratio.get("time_per_token")
    return round(step / token, 9) if step and token else 1.0


def does_not_fit(target: Mapping[str, Any]) -> str:
    """By how much, and what would make it fit."""
    short = target.get("short_bytes")
    text = "no plan is legal there" if short is None or not math.isfinite(short) else (
        f"the smallest plan is {_short(short)} a device too large"
    )  # fmt: skip
    would = target.get("would_fit") or []
    names = [w if isinstance(w, str) else w.get("name") or w.get("machine", {}).get("name", "")
             for w in would]  # fmt: skip
    return text + (f"; it would fit: {', '.join(n for n in names if n)}" if any(names) else "")


def _short(missing_bytes: float) -> str:
    """In MiB below a tenth of a GiB, so that what is missing never reads as nothing."""
    if missing_bytes < GIB / 10:
        return f"{max(math.ceil(missing_bytes / 2**20), 1)} MiB"
    return f"{missing_bytes / GIB:,.1f} GiB"


def error_text(band: Mapping[str, Any], *, short: bool = False) -> str:
    """The measured error of a chip and stack, or that there is none; ``short`` without basis."""
    if not band or not band.get("n"):
        return (band or {}).get("basis") or "not validated on this chip and stack"
    found = (
        f"median {band['median_abs_rel']:.1%}, 9 in 10 within {band['p90_abs_rel']:.1%}, "
        f"on {band['n']} measured run{'s' if band['n'] != 1 else ''}"
    )
    return found if short else f"{found} ({band['basis']})"


def item_cost(item: Mapping[str, Any], *, short: bool = False) -> str:
    """The cost of something to relearn; ``short`` in seconds and their share alone."""
    cost = item.get("cost") or {}
    parts = []
    if cost.get("seconds_per_step") is not None:
        parts.append(f"{duration(cost['seconds_per_step'])} a step")
    if cost.get("fraction_of_step") is not None:
        parts.append(f"{cost['fraction_of_step']:.1%} of it")
    if short:
        return ", ".join(parts)
    if cost.get("bytes"):
        of = cost.get("bytes_are") or "moved"
        parts.append(f"{cost['bytes'] / GIB:,.1f} GiB of {of}")
    if cost.get("seconds_per_occurrence") is not None:
        each = duration(cost["seconds_per_occurrence"])
        parts.append(f"{each} for each {cost['occurrence']}")
    return ", ".join(parts)


def place(item: Mapping[str, Any], *, short: bool = False) -> str:
    """``file:line`` of something to relearn, "" when it has none; ``short`` leaves folders out."""
    where = item.get("where")
    if not where or not where.get("file"):
        return ""
    file = str(where["file"]).rsplit("/", 1)[-1] if short else str(where["file"])
    return f"{file}:{where['line']}" if where.get("line") else file


def by_weight(relearn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Worst first: by severity, then by seconds a step."""

    def key(item: Mapping[str, Any]) -> tuple[int, float]:
        seconds = (item.get("cost") or {}).get("seconds_per_step") or 0.0
        return SEVERITIES.index(item["severity"]), -seconds

    return sorted(relearn, key=key)


def grouped(relearn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same finding on several targets as one item, with every target's cost in ``on``.

    ``paths`` has the path of each of these costs in the answer.
    """
    out: dict[tuple[Any, ...], dict[str, Any]] = {}
    for i, item in enumerate(relearn):
        key = (item["rule"], item["what"], place(item))
        kept = out.setdefault(key, {**item, "on": {}, "paths": {}})
        kept["on"][item.get("target") or ""] = item_cost(item)
        kept["paths"][item.get("target") or ""] = f"relearn.{i}.cost.seconds_per_step"
        seconds = (item.get("cost") or {}).get("seconds_per_step")
        old = (kept.get("cost") or {}).get("seconds_per_step")
        if seconds is not None and (old is None or seconds > old):
            kept["cost"] = item["cost"]
    return list(out.values())


def nothing_to_relearn(answer: Mapping[str, Any]) -> str:
    """Why the list is empty."""
    if all(target.get("plan") is None for target in answer["targets"]):
        return "not looked at: the job fits on none of the machines asked about"
    return "nothing found in the job file"
