"""Part one of the answer: what transfers unchanged, worked with this job's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chipshift.estimate import Estimate, estimate
from chipshift.machines.chip import Chip
from chipshift.machines.machine import Machine
from chipshift.models.count import params
from chipshift.models.model import DenseMlp, MoeMlp
from chipshift.parallel.thresholds import dp_batch_threshold, tp_degree_threshold
from chipshift.roofline.time import ridge_point
from chipshift.worked import Worked, leaf, rename

Number = Any


@dataclass(frozen=True)
class Transfer:
    """One law that holds on both sides, with its value here and there.

    Attributes:
        topic: roofline, sharding or parallelism.
        statement: the law and what it says of this job.
        unit: of all values; ``worked`` holds each machine's derivation.
    """

    topic: str
    statement: str
    unit: str
    present: Worked
    targets: dict[str, Worked]


def figure(chip: Chip, name: str) -> Worked:
    """A chip's figure as a leaf with its source."""
    found = chip.figures[name]
    return leaf(found.value, found.unit, f"{chip.key}_{name}", f"{found.source}, {found.date}")


def chip_bandwidth(machine: Machine) -> Worked:
    """Bytes/s that data parallelism can use on one chip: every ICI link both ways, else egress.

    A torus axis counts its two links. A gather that leaves the domain needs each network card for
    its own share only (its chips' cards work together), so that the domain's whole egress counts,
    up to the rate inside.
    """
    inner, outer = machine.fabric[0], machine.fabric[-1]
    if inner.kind == "torus":
        axes = max(sum(1 for n in inner.dims if n > 1), 1)
        links = sum(2 if wrap else 1 for n, wrap in zip(inner.dims, inner.wraps, strict=True)
                    if n > 1) or 1  # fmt: skip
        rate = leaf(inner.link_bytes_per_s, "B/s", "link_rate", inner.source)
        return rename(rate * links, f"ici_bytes_per_s_over_{axes}_axes")  # type: ignore[no-any-return]
    inside: Any = leaf(inner.link_bytes_per_s, "B/s", f"{inner.kind}_bytes_per_s", inner.source)
    if outer is inner:
        return inside  # type: ignore[no-any-return]
    nic: Any = leaf(outer.link_bytes_per_s, "B/s", f"{outer.kind}_bytes_per_s", outer.source)
    least: Worked = rename(np.minimum(inside, nic * inner.dims[0]), "data_parallel_bytes_per_s")
    return least


def transfers(present: Estimate, targets: Sequence[Estimate]) -> list[Transfer]:
    """The laws of part one for a present run and its targets."""
    runs = [present, *targets]
    job = present.job
    dtype = present.peak_dtype
    name = "bf16" if any(r.peak_dtype != dtype for r in runs) else dtype

    def each(make: Any) -> tuple[Worked, dict[str, Worked]]:
        values = [make(run) for run in runs]
        return values[0], {r.machine.name: v for r, v in zip(targets, values[1:], strict=True)}

    def ridge(run: Estimate) -> Worked:
        chip = run.machine.chip
        return ridge_point(  # type: ignore[no-any-return]
            figure(chip, f"peak_{name}_flop_per_s"), figure(chip, "hbm_bandwidth_bytes_per_s")
        )

    def tokens(run: Estimate) -> Worked:
        chip = run.machine.chip
        return dp_batch_threshold(  # type: ignore[no-any-return]
            figure(chip, f"peak_{name}_flop_per_s"), chip_bandwidth(run.machine)
        )

    width = _width(present)

    def degree(run: Estimate) -> Worked:
        chip = run.machine.chip
        size = leaf(width, "elements", "feed_forward_width", f"{job.model.name}: its config.json")
        return tp_degree_threshold(  # type: ignore[no-any-return]
            size, figure(chip, f"peak_{name}_flop_per_s"), _tp_rate(run.machine)
        )

    explained = {
        id(r): estimate(job if r is present else r.job, r.plan, r.machine, r.stack, price=r.price,
                        explain=True) for r in runs
    }  # fmt: skip

    def per_token(run: Estimate) -> Worked:
        return explained[id(run)].model_flops_per_token  # type: ignore[no-any-return]

    def state(run: Estimate) -> Worked:
        m = explained[id(run)].memory
        whole = m["weights"] + m["gradients"] + m["optimizer"]
        return rename(whole, "state_bytes")  # type: ignore[no-any-return]

    own = job.sequences_per_step.value * job.seq_len.value
    per_chip = " and ".join(f"{own / r.machine.chips:,.0f} on {r.machine.name}" for r in runs)
    count = params(job.model) / 1e9
    rows = [
        ("roofline", f"A token costs the same model FLOPs wherever it is trained ({count:.1f} B "
         "parameters, causal attention counted half).", "FLOP", per_token),
        ("roofline", f"An op is bound by compute above peak/HBM FLOPs a byte ({name}); the same op "
         "can change sides only because this ridge moves.", "FLOP/B", ridge),
        ("sharding", "Weights, gradients and moments are parameters × bytes / devices that share "
         "them, in the plan chosen on each machine.", "B", state),
        ("parallelism", "Data parallelism hides its traffic above peak/bandwidth tokens a chip; "
         f"this job has {per_chip}.", "tokens", tokens),
        ("parallelism", f"Tensor parallelism pays up to width × bandwidth / peak devices "
         f"(width {width:,}).", "devices", degree),
    ]  # fmt: skip
    return [Transfer(topic, text, unit, *each(make)) for topic, text, unit, make in rows]


def _width(present: Estimate) -> int:
    """Width of the widest feed-forward of the model."""
    widths = [
        layer.mlp.width
        for layer, _ in present.job.model.layers
        if isinstance(layer.mlp, (DenseMlp, MoeMlp))
    ]
    return max(widths, default=present.job.model.d_model)


def _tp_rate(machine: Machine) -> Worked:
    """Bytes/s for tensor parallelism: the egress of a switched domain, one whole torus axis."""
    inner = machine.fabric[0]
    rate = leaf(inner.link_bytes_per_s, "B/s", "link_rate", inner.source)
    if inner.kind != "torus":
        return rate
    both = 2 if any(inner.wraps) else 1
    return rename(rate * both, "ici_bytes_per_s_of_one_axis")  # type: ignore[no-any-return]
