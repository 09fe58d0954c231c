"""The report of ``validate`` as one self-contained page: scatter plots and the worst runs."""

from __future__ import annotations

import math
from importlib import resources
from pathlib import Path
from typing import Any

from chipshift.units import duration
from chipshift.validate.run import Report
from chipshift.validate.score import Scored
from chipshift.validate.table import percent

SIZE, LEFT, RIGHT, TOP, BOTTOM = 300, 46, 290, 10, 270
WORST = 20


def write_page(report: Report, path: Path) -> None:
    """Render the page to ``path``, making its folder where needed."""
    import jinja2

    text = (resources.files("chipshift.validate") / "page.html").read_text("utf8")
    template = jinja2.Environment(autoescape=True).from_string(text)
    timed = [row for row in report.scored if row.step_error is not None]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        template.render(
            rows=report.rows,
            scored=len(report.scored),
            skipped=len(report.skipped),
            sweep_only=all(row.case.task == "sweep" for row in report.scored),
            chips=_chips(report),
            charts=[
                _chart(chip, [row for row in timed if row.case.chip == chip])
                for chip in dict.fromkeys(row.case.chip for row in timed)
            ],
            worst=[_worst(row) for row in _largest(timed)],
            size=SIZE,
            left=LEFT,
            right=RIGHT,
            top=TOP,
            bottom=BOTTOM,
        ),
        encoding="utf8",
    )


def _chips(report: Report) -> list[dict[str, Any]]:
    out = []
    for chip, one in report.by["chip"].items():
        naive = report.baseline.get(chip)
        out.append(
            {
                "name": chip,
                "n": one.n,
                "median": percent(one.median_abs_rel),
                "p90": percent(one.p90_abs_rel),
                "bias": percent(one.bias),
                "naive_median": percent(naive.median_abs_rel if naive else None),
                "naive_p90": percent(naive.p90_abs_rel if naive else None),
            }
        )
    return out


def _chart(name: str, rows: list[Scored]) -> dict[str, Any]:
    """Points on log axes that both start and end at the same whole decades."""
    times = [(row.case.measured.step_time_s or 1.0, row.predicted.step_time_s) for row in rows]
    low = math.floor(math.log10(min(min(t) for t in times)))
    high = max(low + 1, math.ceil(math.log10(max(max(t) for t in times))))

    def x(seconds: float) -> float:
        return LEFT + (math.log10(seconds) - low) / (high - low) * (RIGHT - LEFT)

    def y(seconds: float) -> float:
        return BOTTOM - (math.log10(seconds) - low) / (high - low) * (BOTTOM - TOP)

    first, last = 10.0**low, 10.0**high
    guides = [{"kind": "one", "x1": x(first), "y1": y(first), "x2": x(last), "y2": y(last)}]
    for factor in (1.2, 0.8):
        a, b = (first / factor, last) if factor < 1 else (first, last / factor)
        guides.append(
            {"kind": "band", "x1": x(a), "y1": y(a * factor), "x2": x(b), "y2": y(b * factor)}
        )
    ticks = [
        {"at": x(10.0**e), "across": y(10.0**e) + 4, "label": f"{10.0**e:g}"}
        for e in range(low, high + 1)
    ]
    dots = [
        {"x": round(x(m), 1), "y": round(y(p), 1), "title": f"{row.case.id}: {_signed(row)}"}
        for row, (m, p) in zip(rows, times, strict=True)
    ]
    return {"name": name, "guides": guides, "ticks": ticks, "dots": dots}


def _signed(row: Scored) -> str:
    return f"{100 * (row.step_error or 0.0):+.1f} %"


def _largest(rows: list[Scored]) -> list[Scored]:
    return sorted(rows, key=lambda row: -abs(row.step_error or 0.0))[:WORST]


def _worst(row: Scored) -> dict[str, str]:
    c, p = row.case, row.case.plan
    degrees = " ".join(
        f"{axis}={getattr(p, axis)}"
        for axis in ("dp", "fsdp", "tp", "cp", "ep", "pp", "vpp")
        if getattr(p, axis) > 1
    )
    total = row.predicted.step_time_s
    parts = sorted(row.predicted.parts_s.items(), key=lambda item: -item[1])[:5]
    return {
        "id": c.id,
        "what": f"{c.model} {c.precision} on {c.machine}, {c.stack_release}, {degrees}, "
        f"microbatch {p.microbatch:g} × {p.accumulation}, remat {row.remat}",
        "measured": duration(c.measured.step_time_s or 0.0),
        "predicted": duration(total),
        "error": _signed(row),
        "parts": ", ".join(f"{name} {100 * t / total:.0f} %" for name, t in parts),
    }
