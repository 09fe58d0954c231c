"""The roofline of a job on several machines, op by op, as the output contract writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chipshift.estimate import Estimate
from chipshift.estimate.explain import figures_of_job, machine_figures
from chipshift.estimate.op_table import OpTime, op_table, plan_cut
from chipshift.estimate.output import job_json
from chipshift.estimate.output import machine_json as named_machine
from chipshift.estimate.said import explained, stated
from chipshift.estimate.setting import Setting, setting
from chipshift.machines.compare import DTYPES
from chipshift.models.ops import Cut
from chipshift.roofline.time import ridge_point
from chipshift.worked import leaf, rename

Number = Any

SCHEMA = "chipshift/roofline/1"


def op_json(op: OpTime) -> dict[str, Any]:
    """One op; ``flops`` and ``bytes`` are of one run on one device."""
    return {
        "name": op.name,
        "kind": op.kind,
        "count": op.count,
        "flops": op.flops,
        "bytes": op.moved_bytes,
        "intensity_flop_per_byte": op.intensity_flop_per_byte,
        "time_s": op.time_s,
        "compute_s": op.compute_s,
        "memory_s": op.memory_s,
        "bound": op.bound,
        "why": op.why,
    }


def machine_json(s: Setting, cut: Cut, name: str) -> dict[str, Any]:
    """One machine's roof and ops; peak and bandwidth are per chip, ops per device."""
    chip = s.machine.chip
    rate = chip.value("hbm_bandwidth_bytes_per_s")
    peaks = {d: f"peak_{d}_flop_per_s" for d in DTYPES if chip.has(f"peak_{d}_flop_per_s")}
    return {
        "name": name,
        "machine": named_machine(s.machine),
        "chip": chip.key,
        "stack": s.stack.name,
        "devices_per_chip": chip.devices_per_chip,
        "dtype": s.peak_dtype,
        "peak_flop_per_s": chip.value(f"peak_{s.peak_dtype}_flop_per_s"),
        "hbm_bytes_per_s": rate,
        "ridge_flop_per_byte": {
            d: float(ridge_point(chip.value(figure), rate)) for d, figure in peaks.items()
        },
        "cut": {"tokens": float(cut.tokens), "tp": float(cut.tp), "ep": float(cut.ep)},
        "ops": [op_json(op) for op in op_table(s, cut)],
    }


def of_estimate(e: Estimate) -> dict[str, Any]:
    """The ops of one microbatch as an estimate's own plan cuts them."""
    s = setting(e.job, e.machine, e.stack)
    return machine_json(s, plan_cut(s, e.plan), e.machine.name)


def of_one_sequence(settings: Sequence[tuple[str, Setting]], sequences: float, tp: int, ep: int
                    ) -> dict[str, Any]:  # fmt: skip
    """The same microbatch on every machine: whole sequences, cut over tp and ep devices only."""
    machines = [
        machine_json(s, _cut(s, sequences, float(tp), float(ep)), name) for name, s in settings
    ]
    first = settings[0][1]
    return {"schema": SCHEMA, "job": job_json(first.job), "machines": machines}


def _cut(s: Setting, sequences: Number, tp: Number, ep: Number) -> Cut:
    return Cut(
        tokens=sequences * s.seq_len, seq_len=s.document_len, tp=tp, ep=ep, sp=tp, etp=tp,
        imbalance=s.stack.moe_imbalance if float(ep) > 1 else 1.0,
    )  # fmt: skip


def figures_of_one_sequence(settings: Sequence[tuple[str, Setting]], sequences: float, tp: int,
                            ep: int) -> dict[str, Any]:  # fmt: skip
    """``of_one_sequence`` with the working of every number."""
    given = {
        name: leaf(float(value), unit, name, f"--{name}")
        for name, value, unit in (
            ("sequences", sequences, "sequences"), ("tp", tp, "devices"), ("ep", ep, "devices")
        )
    }  # fmt: skip
    job = settings[0][1].job
    return {
        "job": figures_of_job(job),
        "machines": [
            _figures(explained(s), _cut(explained(s), **given), name) for name, s in settings
        ],
    }


def _figures(s: Setting, cut: Cut, name: str) -> dict[str, Any]:
    chip = s.machine.chip
    own = {
        key: leaf(figure.value, figure.unit, key, f"{figure.source}, {figure.date}")
        for key, figure in chip.figures.items()
    }
    rate = own["hbm_bandwidth_bytes_per_s"]
    once = f"once a microbatch: it stands outside the layers ({stated(s.job.seq_len)})"
    tree: dict[str, Any] = {
        "machine": machine_figures(s.machine),
        "devices_per_chip": leaf(chip.devices_per_chip, "devices", "devices_per_chip",
                                 f"the {chip.name}: what a framework counts on one chip"),
        "peak_flop_per_s": own[f"peak_{s.peak_dtype}_flop_per_s"],
        "hbm_bytes_per_s": rate,
        "ridge_flop_per_byte": {
            dtype: ridge_point(own[f"peak_{dtype}_flop_per_s"], rate)
            for dtype in DTYPES if chip.has(f"peak_{dtype}_flop_per_s")
        },
        "cut": {"tokens": rename(cut.tokens, "tokens"), "tp": cut.tp, "ep": cut.ep},
        "ops": [op_json(op) for op in op_table(s, cut)],
    }  # fmt: skip
    none = f"the op has none: it is {name}'s other side that bounds it"
    for op in tree["ops"]:
        for key, value in op.items():
            if isinstance(value, int | float):
                op[key] = leaf(value, "", key, once if key == "count" else none)
    return tree
