"""An assessment as the output contract writes it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from chipshift.estimate import Estimate, estimate
from chipshift.estimate.explain import figures
from chipshift.estimate.output import estimate_json, job_json, jsonable
from chipshift.flows.assess import Assessment, Sizings, Target
from chipshift.flows.launch_torch import lines_of, note_of
from chipshift.flows.options import Options
from chipshift.flows.run import Run, explained_run, run_of
from chipshift.flows.transfers import Transfer
from chipshift.flows.verdict import band_edge, flip_price, half_width, headroom, ratio_of, tokens_of
from chipshift.machines.names import readings
from chipshift.worked import leaf, rename
from chipshift.worked.tree import together

SCHEMA = "chipshift/assess/1"


def assessment_json(a: Assessment) -> dict[str, Any]:
    """The contract's object for ``assess``."""
    return {
        "schema": SCHEMA,
        "job": job_json(a.job),
        "from": _estimate(a.present, a.options),
        "replanned": _optional(a.replanned, a.options),
        "targets": [target_json(t, a.options) for t in a.targets],
        "transfers": [_transfer(t) for t in a.transfers],
        "relearn": [row for t in a.targets for row in _relearn(t)],
        "proof": None,
        "measured": None if a.measured is None else _measured(a),
    }


def _transfer(t: Transfer) -> dict[str, Any]:
    """One law; what the machines' derivations share stands once among them."""
    present, *others = together([t.present, *t.targets.values()])
    return {
        "topic": t.topic,
        "statement": t.statement,
        "from": {"value": t.present.value, "unit": t.unit},
        "to": {name: {"value": v.value, "unit": t.unit} for name, v in t.targets.items()},
        "worked": {"from": present, "to": dict(zip(t.targets, others, strict=True))},
    }


def _estimate(e: Estimate, options: Options) -> dict[str, Any]:
    row: dict[str, Any] = jsonable(estimate_json(e))
    row["machine"]["readings"] = readings(e.machine)
    row["long_run"] = _run(run_of(e, options))
    return row


def _run(run: Run | None) -> dict[str, Any] | None:
    return None if run is None else asdict(run)


def _optional(e: Estimate | None, options: Options) -> dict[str, Any] | None:
    return None if e is None else _estimate(e, options)


def target_json(t: Target, o: Options) -> dict[str, Any]:
    """One target; without a present run to compare with, ratio, band and verdict are null."""
    counts = {
        "plans_considered": t.found.considered,
        "plans_scored": t.found.scored,
        "plans_pruned": t.found.pruned,
        "plans_fitting": t.found.counted_fitting,
        "search_time_s": t.found.seconds,
    }
    if t.estimate is None:
        return {
            "machine": {"name": t.machine.name, "chip": t.machine.chip.key,
                        "chips": t.machine.chips, "devices": t.machine.devices,
                        "topology": t.machine.topology, "slices": t.machine.slices,
                        "cloud_name": t.machine.cloud_name, "readings": readings(t.machine)},
            "plan": None, "verdict": "does_not_fit", "short_bytes": t.short_bytes,
            "would_fit": t.would_fit, "sizings": None, "unchanged_plan": None,
            "alternatives": [], "constraints": [], "run": {}, **counts,
        }  # fmt: skip
    v = t.verdict
    return {
        **_estimate(t.estimate, o),
        "ratio": None if v is None else asdict(v.ratio),
        "band": None if v is None else asdict(v.band),
        "verdict": None if v is None else v.word,
        "deciding": None if v is None else v.deciding,
        "flips_at": {"usd_per_chip_hour": None if v is None else v.flips_at_usd_per_chip_hour},
        "sizings": _sizings(t.sizings, o),
        "unchanged_plan": _optional(t.unchanged, o),
        "unchanged_note": t.unchanged_note,
        "alternatives": [
            {**_estimate(r.estimate, o), "loses_because": r.loses_because} for r in t.runners_up
        ],
        "constraints": [
            {"name": c.name, "cost_s": c.cost_s, "cost_usd": c.cost_usd} for c in t.constraints
        ],
        "frontier": [_point(e) for e in t.frontier],
        "run": lines_of(t.estimate),
        "run_note": note_of(t.estimate),
        "short_bytes": None,
        "would_fit": [],
        "batch_note": t.batch_note,
        **counts,
    }


def _point(e: Estimate) -> dict[str, Any]:
    row: dict[str, Any] = jsonable(estimate_json(e))
    return {
        "machine": row["machine"]["name"],
        "chips": e.machine.chips,
        "step_time_s": row["step_time_s"],
        "usd_per_1e12_tokens": row["cost"]["usd_per_1e12_tokens"],
        "plan": row["plan"],
    }


def _sizings(s: Sizings | None, o: Options) -> dict[str, Any]:
    if s is None:
        return {"match_throughput": None, "equal_cost": None, "equal_chips": None}
    return {
        "match_throughput": _optional(s.match_throughput, o),
        "equal_cost": _optional(s.equal_cost, o),
        "equal_chips": _optional(s.equal_chips, o),
    }


def _relearn(t: Target) -> list[dict[str, Any]]:
    return [
        {
            "topic": r.topic,
            "rule": r.rule,
            "severity": r.severity,
            "target": t.machine.name,
            "where": None if r.file is None else {"file": r.file, "line": r.line},
            "what": r.what,
            "cost": {
                "seconds_per_step": r.seconds,
                "fraction_of_step": r.fraction,
                "bytes": r.bytes,
                "bytes_are": None if r.bytes is None else "HBM traffic a step a device",
                "seconds_per_occurrence": r.each_s,
                "occurrence": r.each or None,
            },
            "instead": r.instead,
            "evidence": r.evidence,
        }
        for r in t.relearn
    ]


def _measured(a: Assessment) -> dict[str, Any]:
    m = a.measured
    assert m is not None
    return {
        "step_time_s": m.measured.step_time_s,
        "memory_bytes": m.measured.memory_bytes,
        "our_error": {"step_time_s": m.error_step_time, "memory_bytes": m.error_memory},
        "anchored": [asdict(row) for row in m.targets],
    }


def figures_of(e: Estimate, options: Options) -> dict[str, Any]:
    """An explained estimate's figures, its price and its run among them."""
    return {**figures(e), "long_run": explained_run(e, options)}


def with_working(e: Estimate) -> Estimate:
    """The same estimate, its numbers ``Worked``."""
    return estimate(e.job, e.plan, e.machine, e.stack, price=e.price, explain=True,
                    plan_source=e.plan_source)  # fmt: skip


def _present(value: Any) -> Any:
    """A figure of the present run under a name that tells it from the target's."""
    return rename(value, f"present_{value.name}")


def target_figures(now: Estimate, then: Estimate, options: Options) -> dict[str, Any]:
    """A target's figures, and its ratios to the present run, with their working."""
    cost = None
    if now.usd_per_1e12_tokens is not None and then.usd_per_1e12_tokens is not None:
        cost = ratio_of(then.usd_per_1e12_tokens, _present(now.usd_per_1e12_tokens))
    flips = None
    if cost is not None and then.price.usd_per_chip_hour is not None:
        price = leaf(then.price.usd_per_chip_hour, "USD/chip-hour", "price", then.price.source)
        flips = flip_price(price, cost)
    seconds, present_s = then.step_time_s, _present(now.step_time_s)
    tokens = leaf(tokens_of(then), "tokens", "tokens_per_step", f"{then.machine.name}: its batch")
    before = leaf(tokens_of(now), "tokens", "present_tokens_per_step", "the job's own batch")
    own = half_width(then.error_band)
    width = leaf(own, "1", "median_error", then.error_band.basis)
    return {
        **figures_of(then, options),
        "ratio": {
            "step_time": ratio_of(seconds, present_s),
            "time_per_token": ratio_of(
                rename(seconds / tokens, "s_per_token"),
                rename(present_s / before, "present_s_per_token"),
            ),
            "tokens_per_s_per_chip": ratio_of(
                then.tokens_per_s_per_chip, _present(now.tokens_per_s_per_chip)
            ),
            "cost_per_token": cost,
            "memory_headroom": headroom(then.memory["total"], then.available),
        },
        "band": {
            "step_time_low_s": band_edge(then.step_time_s, -width),
            "step_time_high_s": band_edge(then.step_time_s, width),
        },
        "flips_at": {"usd_per_chip_hour": flips},
    }
