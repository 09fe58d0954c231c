"""From the answer to its charts: which figures each chart is drawn from."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from chipshift.machines.names import parse_machine
from chipshift.report.charts.breakdown import breakdown
from chipshift.report.charts.fabric import fabric, placed_axes
from chipshift.report.charts.frontier import Point, frontier
from chipshift.report.charts.memory import memory
from chipshift.report.charts.ratio import Ruler, rulers
from chipshift.report.charts.roofline import Mark, Roof, roofline
from chipshift.report.rows import plan_text
from chipshift.report.words import half_width, more_tokens, ratio_error

LETTERS = string.ascii_uppercase + string.ascii_lowercase
MOST_MARKS = 9
LEAST_SHARE = 0.004
MOST_POINTS = 24
NEAR = 0.02


def rulers_of(present: Mapping[str, Any], target: Mapping[str, Any]) -> Markup:
    """Time (of a step, or of a token where steps differ) and cost as ratios to the present."""
    error = ratio_error(present, target)
    ratio = target["ratio"]
    time = "step time" if more_tokens(target) == 1 else "time a token"
    rows = [Ruler(time, ratio["time_per_token"], error)]
    if ratio["cost_per_token"] is not None:
        rows.append(Ruler("cost a token", ratio["cost_per_token"], error))
    return rulers(rows, target["machine"]["name"])


def _runs(answer: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Label, note and estimate: the present, then on each target the present plan and the best."""
    out = [(answer["from"]["machine"]["name"], "now", answer["from"])]
    for target in answer["targets"]:
        if target.get("plan") is None:
            continue
        name = target["machine"]["name"]
        if target.get("unchanged_plan"):
            out.append((name, "present plan", target["unchanged_plan"]))
        more = more_tokens(target)
        out.append((name, "best plan" if more == 1 else f"best plan, {more:g}× the tokens", target))
    return out


def breakdown_of(answer: Mapping[str, Any]) -> Markup:
    """Step times with the interval of each estimate's error."""
    rows = []
    for label, note, e in _runs(answer):
        width, seconds = half_width(e), e["step_time_s"]
        rows.append((label, note, e, (seconds * (1 - width), seconds * (1 + width))))
    return breakdown(rows)


def memory_of(answer: Mapping[str, Any]) -> Markup:
    """Memory of a device on each machine."""
    return memory(_runs(answer))


def fabrics(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For the present run and each best plan: machine, plan, picture, and what splits cost."""
    out = []
    for estimate in (answer["from"], *answer["targets"]):
        plan = estimate.get("plan")
        if plan is None:
            continue
        name = estimate["machine"]["name"]
        machine = parse_machine(name)
        degrees = {axis: int(plan[axis]) for axis in ("dp", "fsdp", "tp", "cp", "pp")}
        placed = placed_axes(machine, degrees, plan.get("order") or ())
        title = f"Fabric of {name} with the plan's axes"
        out.append({
            "name": name,
            "plan": plan_text(plan),
            "picture": fabric(machine, placed, title),
            "notes": [f"{axis}: {p.note}" for axis, p in placed.items() if p.size > 1 and p.note],
        })  # fmt: skip
    return out


def marks_of(machine: Mapping[str, Any], names: Sequence[str]) -> tuple[Mark, ...]:
    """The named ops at the rate that a chip reaches on them."""
    per_chip = machine["devices_per_chip"]
    return tuple(
        Mark(op["name"], op["intensity_flop_per_byte"], op["flops"] / op["time_s"] * per_chip,
             op["bound"])
        for op in machine["ops"] if op["name"] in names
    )  # fmt: skip


def plotted(machines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Ops with matmuls that take most time anywhere, in order of the network.

    Forward passes, and attention's backward: the gradients of a matmul have the same intensity
    as its forward pass and lie under it.
    """
    spent: dict[str, float] = {}
    for machine in machines:
        total = sum(op["time_s"] * op["count"] for op in machine["ops"])
        for op in machine["ops"]:
            if op["flops"] > 0 and not op["name"].endswith("_grad"):
                share = op["time_s"] * op["count"] / total
                spent[op["name"]] = max(spent.get(op["name"], 0.0), share)
    most = [name for name in sorted(spent, key=lambda n: -spent[n]) if spent[name] >= LEAST_SHARE]
    return [name for name in spent if name in most[:MOST_MARKS]]


def rooflines(machines: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The plot and, for the list beside it, each op on each machine; None without ops."""
    if not machines:
        return None
    names = plotted(machines)
    roofs = [
        Roof(m["name"], m["dtype"], m["peak_flop_per_s"], m["hbm_bytes_per_s"],
             marks_of(m, names))
        for m in machines
    ]  # fmt: skip
    tables = [{op["name"]: op for op in m["ops"]} for m in machines]
    listed = list(dict.fromkeys(name for table in tables for name in table))
    total = [sum(op["time_s"] * op["count"] for op in m["ops"]) for m in machines]
    rows = [{"name": name, "on": [t.get(name) for t in tables]} for name in listed]
    return {
        "picture": roofline(roofs),
        "machines": machines,
        "rows": rows,
        "totals": total,
        "dtypes": list(dict.fromkeys(d for m in machines for d in m["ridge_flop_per_byte"])),
    }


def _near(point: Point, step_time_s: float, usd: float) -> bool:
    """Whether a plan would lie on a point that is drawn already."""
    return (
        abs(point.step_time_s / step_time_s - 1) < NEAR
        and abs(point.usd_per_1e12_tokens / usd - 1) < NEAR
    )


USD_IN_POINT, USD_IN_ESTIMATE = ".usd_per_1e12_tokens", ".cost.usd_per_1e12_tokens"
"""Where the cost of a plan stands behind its path: on the frontier, and in an estimate."""


def frontier_of(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """Plans by time and cost, with a list that names their letters; None without prices."""
    points: list[Point] = []
    listed: list[dict[str, Any]] = []
    seen: set[tuple[Any, ...]] = set()

    def add(e: Mapping[str, Any], path: str, kind: str, series: int, note: str) -> None:
        machine = e["machine"] if isinstance(e["machine"], str) else e["machine"]["name"]
        cost = e["usd_per_1e12_tokens"] if "usd_per_1e12_tokens" in e \
            else e["cost"]["usd_per_1e12_tokens"]  # fmt: skip
        key = (machine, plan_text(e["plan"]))
        if cost is None or key in seen or len(points) >= MOST_POINTS:
            return
        if kind == "other" and any(_near(p, e["step_time_s"], cost) for p in points):
            return
        seen.add(key)
        if not e.get("memory_bytes", {"fits": True})["fits"]:
            kind, note = "unfit", f"{note}: does not fit"
        letter = LETTERS[len(points)]
        points.append(Point(letter, f"{machine}, {note}", e["step_time_s"], cost, kind, series))
        listed.append({"letter": letter, "machine": machine, "note": note, "series": series,
                       "plan": plan_text(e["plan"]), "step_time_s": e["step_time_s"],
                       "usd": cost, "path": path, "usd_key": USD_IN_POINT
                       if "usd_per_1e12_tokens" in e else USD_IN_ESTIMATE})  # fmt: skip

    add(answer["from"], "from", "present", 0, "now")
    for i, target in enumerate(answer["targets"], start=1):
        if target.get("plan") is None:
            continue
        at = f"targets.{i - 1}"
        add(target, at, "best", i, "best plan")
        if target.get("unchanged_plan"):
            add(target["unchanged_plan"], f"{at}.unchanged_plan", "unchanged", i,
                "present plan unchanged")  # fmt: skip
        for j, row in enumerate(target.get("frontier") or []):
            add(row, f"{at}.frontier.{j}", "other", i, f"best on {row['chips']:,} chips")
        for j, row in enumerate((target.get("alternatives") or [])[:3]):
            add(row, f"{at}.alternatives.{j}", "other", i, row["loses_because"])
    return {"picture": frontier(points), "rows": listed} if len(points) > 1 else None
