"""The report: one self-contained HTML page, read without a script."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from chipshift.report import proof
from chipshift.report.derivation import Book, figures_of, panel, written
from chipshift.report.lines import quantity
from chipshift.report.pictures import breakdown_of, fabrics, frontier_of, memory_of, rooflines
from chipshift.report.pictures import rulers_of as rulers
from chipshift.report.rows import (
    cell,
    machine_text,
    plan_text,
    rows_for,
    usd,
    value_at,
)
from chipshift.report.terminal import proof_commands
from chipshift.report.words import (
    GOOD,
    by_weight,
    compared,
    does_not_fit,
    error_text,
    grouped,
    half_width,
    headline,
    item_cost,
    loss_words,
    more_tokens,
    nothing_to_relearn,
    place,
    verdict_words,
)
from chipshift.units import duration, gib, si

MOST_STEPS, SOME_STEPS = 5000, 2600
"""Steps worked out beyond which no further best plan, or plan carried over, is."""

MOST_BYTES = 1_190_000
MOST_ACROSS, MOST_DENSE = 6, 9
"""Columns of figures side by side, and in small type; more are stacked, as on a phone."""


@dataclass(frozen=True)
class Detail:
    """How much of an answer of many machines is drawn and opened where it stands.

    Attributes:
        panel_lines: lines of a figure's panel; 0 has the figure lead to its working instead.
        drawn: targets whose fabric and roofline are drawn.
        others: whether figures of other plans and sizes have panels too, or lead to their working.
    """

    panel_lines: int
    drawn: int
    others: bool = False

    def opens(self, path: str) -> bool:
        """Whether a figure opens where it stands."""
        return self.panel_lines > 0 and (self.others or not OTHERS.search(path))


OTHERS = re.compile(r"\.(alternatives|frontier|sizings)\.")
DETAILS = (Detail(10, 16, others=True), Detail(5, 12), Detail(0, 4))
"""Tried in this order until the page is below ``MOST_BYTES``."""


def page(answer: Mapping[str, Any], explained: Mapping[str, Any],
         roofs: Sequence[Mapping[str, Any]] = ()) -> str:  # fmt: skip
    """The page of ``chipshift assess``.

    Args:
        answer: the object of ``assess --json``.
        explained: ``from``, ``targets`` and ``transfers`` with ``Worked`` figures, under the same
            paths; ``besides`` maps paths of further figures to the first levels of their working.
        roofs: the ops of the present run and of each target (``machines`` of ``roofline --json``).
    """
    book = entered(answer, explained)
    text = ""
    for detail in DETAILS:
        text = _render(answer, book, roofs, detail)
        if len(text.encode()) < MOST_BYTES:
            break
    return text


def _render(answer: Mapping[str, Any], book: Book, roofs: Sequence[Mapping[str, Any]],
            detail: Detail) -> str:  # fmt: skip
    import jinja2

    from chipshift import __version__

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("chipshift.report"), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.globals.update(
        panel=lambda path: panel(book, path, detail.panel_lines),
        step_of=lambda path: shown_at(book, path, detail), opens=detail.opens,
        written=lambda: written(book),
        value_at=value_at, cell=cell, count=count, plan_text=plan_text, usd=usd,
        machine_text=machine_text,
        loss_words=loss_words,
        duration=duration, gib=gib, si=si, quantity=quantity, compared=compared,
        does_not_fit=does_not_fit, error_text=error_text, item_cost=item_cost, place=place,
        verdict_words=verdict_words, more_tokens=more_tokens,
        nothing_to_relearn=nothing_to_relearn,
        proof_verdict=proof.verdict, proof_room=proof.room, proof_details=proof.details,
    )  # fmt: skip
    environment.filters.update(breakable=breakable, broken=broken)
    across = columns(answer)
    fitting = [t for t in answer["targets"] if t.get("plan") is not None]
    drawn = {**answer, "targets": fitting[: detail.drawn]}
    return environment.get_template("page.html").render(
        answer=answer, job=answer["job"], present=answer["from"], targets=answer["targets"],
        columns=across, stacked=across_class(len(across)),
        rows=rows_for([e for _, _, e in across]), book=book, version=__version__,
        headline=headline(answer), good=GOOD,
        relearn=by_weight(grouped(answer["relearn"])), proofs=proof_commands(answer),
        compiled=proof.proofs_of(answer),
        derived=sum(not step.leaf for step in book.steps), assumptions=assumptions(answer),
        undrawn=len(fitting) - len(drawn["targets"]),
        charts={
            "rulers": {t["machine"]["name"]: rulers(answer["from"], t) for t in fitting},
            "roofline": rooflines(roofs[: 1 + detail.drawn]),
            "breakdown": breakdown_of(answer),
            "memory": memory_of(answer),
            "fabrics": fabrics(drawn),
            "frontier": frontier_of(answer),
        },
    )  # fmt: skip


def count(value: float) -> str:
    """A large count as people write it: ``15e12``."""
    mantissa, _, exponent = f"{value:.3e}".partition("e")
    whole = float(mantissa)
    power = int(exponent)
    while power % 3:
        whole, power = whole * 10, power - 1
    return f"{whole:g}e{power}" if power else f"{value:g}"


def across_class(columns: int) -> str:
    """The class of a table of so many columns."""
    return "" if columns <= MOST_ACROSS else " dense" if columns <= MOST_DENSE else " stacked"


def breakable(words: str) -> Markup:
    """Text that may be broken after a sign within a word, where a narrow column has to."""
    return Markup("").join(
        Markup(f"{escape(part)}<wbr>") if part in "_=+:" else escape(part)
        for part in re.split("([_=+:])", words)
    )


def broken(command: str) -> str:
    """A command over lines that a shell joins."""
    parts = textwrap.wrap(command, 96, break_long_words=False, break_on_hyphens=False)
    return " \\\n    ".join(parts)


def shown_at(book: Book, path: str, detail: Detail) -> int | None:
    """The step behind a figure where the page shows its working; a leaf stands in panels only."""
    at = book.figures.get(path)
    return None if at is None or (not detail.opens(path) and book.steps[at].leaf) else at


def entered(answer: Mapping[str, Any], explained: Mapping[str, Any]) -> Book:
    """The derivations of the page: the present run, best plans, then plans carried over.

    Best plans are worked out until ``MOST_STEPS`` steps stand and plans carried over until
    ``SOME_STEPS`` do, which keeps a page of many targets or of a large model small.
    """
    runs: list[tuple[str, str, Any]] = [
        (answer["from"]["machine"]["name"], "from", explained["from"])
    ]
    carried: list[tuple[str, str, Any]] = []
    for i, tree in enumerate(explained["targets"]):
        if not tree:
            continue
        name = answer["targets"][i]["machine"]["name"]
        own = {key: value for key, value in tree.items() if key != "unchanged_plan"}
        runs.append((name, f"targets.{i}", own))
        if tree.get("unchanged_plan"):
            path = f"targets.{i}.unchanged_plan"
            carried.append((f"{name}, present plan", path, tree["unchanged_plan"]))
    book = Book()
    for limit, part in ((MOST_STEPS, runs), (SOME_STEPS, carried)):
        for heading, path, tree in part:
            if sum(not step.leaf for step in book.steps) < limit:
                book.add(heading, figures_of(path, tree))
    book.add("what transfers", _transferred(explained.get("transfers", ())))
    book.add("what else stands on the page", explained.get("besides", {}).items())
    return book


def _transferred(laws: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    out = []
    for i, law in enumerate(laws):
        out.append((f"transfers.{i}.from", law["from"]))
        out += [(f"transfers.{i}.to.{name}", value) for name, value in law["to"].items()]
    return out


def columns(answer: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Columns of the same-units table: path, heading, estimate."""
    out = [("from", "now", answer["from"])]
    for i, target in enumerate(answer["targets"]):
        if target.get("plan") is None:
            continue
        if target.get("unchanged_plan"):
            out.append((f"targets.{i}.unchanged_plan", "present plan", target["unchanged_plan"]))
        out.append((f"targets.{i}", "best plan", target))
    return out


def assumptions(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every assumption once, with the machines it was made for."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for estimate in (answer["from"], *answer["targets"]):
        for row in estimate.get("assumptions") or []:
            key = (str(row["what"]), str(row["value"]), str(row["why"]))
            found.setdefault(key, []).append(estimate["machine"]["name"])
        band = estimate.get("error_band")
        if band is not None and not band["n"]:
            key = ("interval of the estimate", f"±{half_width(estimate):.0%}", band["basis"])
            found.setdefault(key, []).append(estimate["machine"]["name"])
    return [
        {"what": what, "value": value, "why": why, "on": on}
        for (what, value, why), on in found.items()
    ]
