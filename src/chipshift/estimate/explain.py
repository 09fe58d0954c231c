"""The working of every figure of an estimate: its JSON, with ``Worked`` for each number.

What the formulas worked out is theirs; what was counted or given is a leaf that says what was
counted, and where.
"""

from __future__ import annotations

from typing import Any

from chipshift.estimate.estimate import PLAN_UNITS, ErrorBand, Estimate
from chipshift.estimate.output import estimate_json
from chipshift.estimate.said import devices_source, plan_said, stated
from chipshift.jobs.job import TrainJob
from chipshift.machines.machine import Machine
from chipshift.worked import Worked, formula, leaf

Number = Any

ABSENT = {
    "time_s.input": "input pipelines are not modelled: taken to feed in time",
    "time_s.attention": "the model has no attention",
    "time_s.recompute": "nothing runs again under this remat policy",
    "time_s.collectives_total.ep": "the model has no routed experts to send tokens to",
    "time_s.collectives_exposed.ep": "the model has no routed experts to send tokens to",
    "time_s.collectives_total.cp": "the model has no attention whose keys would be exchanged",
    "time_s.collectives_exposed.cp": "the model has no attention whose keys would be exchanged",
}
"""Why a part is zero that no formula works out."""


@formula(unit="tokens", source="sequences a step × tokens a sequence")
def tokens_per_step(sequences: Number, seq_len: Number) -> Number:
    """Tokens of one step."""
    return sequences * seq_len


@formula(unit="devices", source="chips × devices that a framework counts on one")
def devices_of(chips: Number, devices_per_chip: Number) -> Number:
    """Devices of a machine."""
    return chips * devices_per_chip


def figures(e: Estimate) -> dict[str, Any]:
    """An explained estimate's JSON, each of its numbers with its working.

    Args:
        e: with ``Worked`` numbers (``estimate(..., explain=True)``).
    """
    tree = estimate_json(e)
    job = e.job
    tree["job"] |= figures_of_job(job)
    tree["machine"] |= machine_figures(e.machine)
    tree["plan"] = {
        key: leaf(value, PLAN_UNITS.get(key, "devices"), key,
                  plan_said(job, e.plan, key, e.plan_source))
        if isinstance(value, int | float) else value
        for key, value in tree["plan"].items()
    }  # fmt: skip
    tree["assumptions"] = [
        {**row, "value": leaf(row["value"], "", row["what"], f"assumed: {row['why']}")}
        if isinstance(row["value"], int | float) else row
        for row in tree["assumptions"]
    ]  # fmt: skip
    tree["error_band"] = band_figures(e.error_band, e.machine.chip.key, e.stack)
    if e.price.usd_per_chip_hour is not None:
        tree["cost"]["usd_per_chip_hour"] = leaf(
            e.price.usd_per_chip_hour, "USD/chip-hour", "usd_per_chip_hour", e.price.source
        )
    return {key: _zeros(value, key) for key, value in tree.items()}


def figures_of_job(job: TrainJob) -> dict[str, Worked]:
    """Tokens a step and a sequence, as the job's files state them."""
    sequences = leaf(job.sequences_per_step.value, "sequences", "global_batch",
                     stated(job.sequences_per_step))  # fmt: skip
    seq_len = leaf(job.seq_len.value, "tokens", "seq_len", stated(job.seq_len))
    whole: Worked = tokens_per_step(sequences, seq_len)
    return {"tokens_per_step": whole, "seq_len": seq_len}


def machine_figures(machine: Machine) -> dict[str, Worked]:
    """The counts of a machine."""
    dims = " × ".join(str(n) for level in machine.fabric for n in level.dims)
    chips = leaf(machine.chips, "chips", "chips", f"counted in the name {machine.name}: {dims}")
    per = machine.chip.devices_per_chip
    devices = (
        devices_of(chips, leaf(per, "devices", "devices_per_chip", f"the {machine.chip.name}"))
        if per > 1
        else leaf(machine.devices, "devices", "devices", devices_source(machine))
    )
    outer = "slices" if machine.chip.family == "tpu" else "domains"
    slices = leaf(machine.slices, outer, "slices", f"counted in the name {machine.name}: {outer}")
    return {"chips": chips, "devices": devices, "slices": slices}


def band_figures(band: ErrorBand, chip: str, stack: str) -> dict[str, Any]:
    """The measured error of a chip and stack; runs are counted in the carried data."""
    on = f"chipshift validate on the carried runs of {chip} under {stack.partition('@')[0]}"
    rows = {
        "median_abs_rel": ("1", f"{on}: {band.basis}"),
        "p90_abs_rel": ("1", f"{on}, nearest-rank: {band.basis}"),
        "n": ("runs", f"counted: {on}; {band.basis}"),
    }
    return {"basis": band.basis} | {
        name: None if (value := getattr(band, name)) is None else leaf(value, unit, name, source)
        for name, (unit, source) in rows.items()
    }


def _zeros(tree: Any, path: str) -> Any:
    """The tree with the plain zeros of absent parts as leaves that say why they are zero."""
    if isinstance(tree, dict):
        return {key: _zeros(value, f"{path}.{key}") for key, value in tree.items()}
    if isinstance(tree, Worked | bool | str) or tree is None or isinstance(tree, list):
        return tree
    unit = "s" if path.startswith("time_s") else "B" if path.startswith("memory") else ""
    why = ABSENT.get(path, "the model or the plan has no such part")
    return leaf(float(tree), unit, path.rpartition(".")[2], why)
