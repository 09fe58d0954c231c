"""The report of ``validate`` as one self-contained page: scatter plots and the worst runs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

from chipshift.units import GIB, duration
from chipshift.validate.run import Report
from chipshift.validate.score import Scored, Summary
from chipshift.validate.table import percent, seen_lines, sweep_lines

SIZE, LEFT, RIGHT, TOP, BOTTOM = 300, 46, 290, 10, 270
WORST = 20
KINDS = ("matmul", "attention", "memory_bound", "bubble", "optimizer", "other", "collectives")
"""Parts of a step time as the worst runs' bars colour them, all collectives alike."""
TABLES = (
    ("framework", "framework"),
    ("TFLOP/s, chip", "chip_tflops"),
    ("task", "task"),
    ("source", "source"),
)


def write_page(report: Report, path: Path) -> None:
    """Render the page to ``path``, making its folder where needed."""
    import jinja2

    text = (resources.files("chipshift.validate") / "page.html").read_text("utf8")
    template = jinja2.Environment(autoescape=True, trim_blocks=True).from_string(text)
    sweep = [row for row in report.scored if row.case.task == "sweep"]
    records = [row for row in report.scored if row.case.task != "sweep"]
    timed = [row for row in records if row.step_error is not None]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        template.render(
            rows=report.rows,
            scored=len(report.scored),
            skipped=len(report.skipped),
            sweep_only=not records,
            chips=_beside(report.by["chip"], report.baseline),
            groups=_beside(report.by["group"], report.baseline_group),
            seen=seen_lines(report),
            tables=[(title, _groups(report.by[key])) for title, key in TABLES],
            charts=[
                _times(chip, [row for row in timed if row.case.chip == chip])
                for chip in dict.fromkeys(row.case.chip for row in timed)
            ],
            sweep_charts=_of_sweep(sweep),
            sweep_lines=[line.strip() for line in sweep_lines(sweep)[1:]],
            worst=[
                (title, [_worst(row) for row in _largest(rows)])
                for title, rows in (("public runs", records), ("the sweep", sweep))
                if rows
            ],
            kinds=[kind.replace("_", " ") for kind in KINDS],
            size=SIZE,
            left=LEFT,
            right=RIGHT,
            top=TOP,
            bottom=BOTTOM,
        ),
        encoding="utf8",
    )


def _beside(groups: dict[str, Summary], naive: dict[str, Summary]) -> list[dict[str, str]]:
    """Groups with the naive estimate's error on the same runs."""
    out = []
    for row in _groups(groups):
        one = naive.get(row["key"])
        beside = {
            "naive_median": percent(one.median_abs_rel if one else None),
            "naive_p90": percent(one.p90_abs_rel if one else None),
        }
        out.append(row | beside)
    return out


def _groups(groups: dict[str, Summary]) -> list[dict[str, str]]:
    return [
        {
            "key": name,
            "name": name.replace("_", " "),
            "n": str(one.n),
            "median": percent(one.median_abs_rel),
            "p90": percent(one.p90_abs_rel),
            "bias": percent(one.bias),
        }
        for name, one in groups.items()
    ]


def _times(name: str, rows: list[Scored]) -> dict[str, Any]:
    points = [(r, r.case.measured.step_time_s, r.predicted.step_time_s) for r in rows]
    return _chart(f"{name}, seconds", points)


def _of_sweep(rows: list[Scored]) -> list[dict[str, Any]]:
    """Step time, and peak memory, of the sweep's runs; none where there are none."""
    if not rows:
        return []
    peaks = [
        (r, r.case.measured.memory_bytes / GIB, r.predicted.memory_bytes / GIB)
        for r in rows
        if r.case.measured.memory_bytes
    ]
    timed = [row for row in rows if row.step_error is not None]
    return [_times("step time", timed), _chart("peak memory, GiB", peaks)]


def _chart(name: str, points: Iterable[tuple[Scored, float | None, float]]) -> dict[str, Any]:
    """Measured across and predicted up, on log axes that both span the same whole decades."""
    held = [(row, measured, predicted) for row, measured, predicted in points if measured]
    values = [value for _, measured, predicted in held for value in (measured, predicted)] or [1.0]
    low = math.floor(math.log10(min(values)))
    high = max(low + 1, math.ceil(math.log10(max(values))))

    def x(value: float) -> float:
        return round(LEFT + (math.log10(value) - low) / (high - low) * (RIGHT - LEFT), 1)

    def y(value: float) -> float:
        return round(BOTTOM - (math.log10(value) - low) / (high - low) * (BOTTOM - TOP), 1)

    first, last = 10.0**low, 10.0**high
    guides = [{"kind": "one", "x1": x(first), "y1": y(first), "x2": x(last), "y2": y(last)}]
    for factor in (1.2, 0.8):
        a, b = (first / factor, last) if factor < 1 else (first, last / factor)
        guides.append(
            {"kind": "band", "x1": x(a), "y1": y(a * factor), "x2": x(b), "y2": y(b * factor)}
        )
    return {
        "name": name,
        "n": len(held),
        "guides": guides,
        "ticks": [
            {"at": x(10.0**e), "across": y(10.0**e) + 4, "label": f"{10.0**e:g}"}
            for e in range(low, high + 1)
        ],
        "dots": [
            {"x": x(m), "y": y(p), "title": f"{row.case.id}: {100 * (p / m - 1):+.1f} %"}
            for row, m, p in held
        ],
    }


def _largest(rows: list[Scored]) -> list[Scored]:
    timed = [row for row in rows if row.step_error is not None]
    return sorted(timed, key=lambda row: -abs(row.step_error or 0.0))[:WORST]


def _worst(row: Scored) -> dict[str, Any]:
    """A run with its plan, its predicted time part by part, and what its source leaves out."""
    c, p = row.case, row.case.plan
    degrees = " ".join(
        f"{axis}={getattr(p, axis)}"
        for axis in ("dp", "fsdp", "tp", "cp", "ep", "pp", "vpp")
        if getattr(p, axis) > 1
    )
    measured, total = c.measured.step_time_s or 0.0, row.predicted.step_time_s
    parts = sorted(row.predicted.parts_s.items(), key=lambda item: -item[1])
    return {
        "id": c.id,
        "what": f"{c.model} {c.precision} on {c.machine}, {c.stack_release}, {degrees}, "
        f"microbatch {p.microbatch:g} × {p.accumulation}, remat {row.remat}",
        "measured": duration(measured),
        "predicted": duration(total),
        "error": f"{100 * (row.step_error or 0.0):+.1f}\u00a0%",
        "parts": ", ".join(
            f"{name.replace('_', ' ')} {duration(t)}" for name, t in parts if t >= 0.01 * total
        ),
        "bar": _bar(row.predicted.parts_s, max(measured, total)),
        "mark": round(100 * measured / max(measured, total), 2),
        "open": ", ".join(dict.fromkeys(what for what, _, _ in c.inferred)),
    }


def _bar(parts_s: dict[str, float], whole: float) -> list[dict[str, Any]]:
    """Rectangles of a step's predicted parts, in hundredths of the longer time."""
    kinds = dict.fromkeys(KINDS, 0.0)
    for name, seconds in parts_s.items():
        kinds[name if name in kinds else "collectives"] += seconds
    out, at = [], 0.0
    for number, seconds in enumerate(kinds.values()):
        wide = 100 * seconds / whole
        out.append({"kind": number, "x": round(at, 2), "width": round(wide, 2)})
        at += wide
    return [one for one in out if one["width"]]
