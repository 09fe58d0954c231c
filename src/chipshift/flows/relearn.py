"""Part two of the answer: what must be relearned, as far as the job file tells.

Costs come from the same estimate: each is a difference between two of its figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chipshift.estimate import Estimate
from chipshift.estimate.setting import Setting, setting
from chipshift.estimate.work import attention_bytes
from chipshift.flows.flag_rules import FLAG_RULES
from chipshift.jobs.job import Flag, Given, TrainJob
from chipshift.models.ops import Cut, Op, end_ops, layer_ops
from chipshift.roofline.time import padded, stream_time
from chipshift.units import DTYPE_BYTES
from chipshift.worked import formula, plain

SEVERITIES = ("blocker", "high", "medium", "low")


@dataclass(frozen=True)
class Relearn:
    """One thing to relearn: where it shows, what it costs a step, and what to do instead.

    Attributes:
        rule: slug, of the same list as the audit's rules.
        seconds, bytes: cost a step; None where nothing can be worked from a job file.
        evidence: what the cost rests on.
    """

    topic: str
    rule: str
    severity: str
    file: str | None
    line: int | None
    what: str
    seconds: float | None
    fraction: float | None
    bytes: float | None
    instead: str
    evidence: str


def relearn(job: TrainJob, present: Estimate, target: Estimate, unchanged: Estimate | None
            ) -> list[Relearn]:  # fmt: skip
    """Everything to relearn on one target, worst first."""
    if target.machine.chip.family == present.machine.chip.family:
        return []
    s = setting(job, target.machine, target.stack)
    found = [
        *_topology(job, present, target, unchanged),
        *_flags(job, s, target),
        *_shapes(s, target),
        *_precision(job, s, present, target),
    ]
    order = {name: i for i, name in enumerate(SEVERITIES)}
    return sorted(found, key=lambda r: (order[r.severity], -(r.seconds or 0.0)))


def _item(topic: str, rule: str, severity: str, where: Given[Any] | Flag | None, what: str,
          seconds: float | None, target: Estimate, instead: str, evidence: str,
          moved: float | None = None) -> Relearn:  # fmt: skip
    file = where.file if where is not None else None
    line = where.line if where is not None else None
    share = None if seconds is None else seconds / float(plain(target.step_time_s))
    return Relearn(
        topic, rule, severity, file, line, what, seconds, share, moved, instead, evidence
    )


def _severity(seconds: float, target: Estimate) -> str:
    share = seconds / float(plain(target.step_time_s))
    return "high" if share > 0.10 else "medium" if share > 0.02 else "low"


def _topology(job: TrainJob, present: Estimate, target: Estimate, unchanged: Estimate | None
              ) -> Iterator[Relearn]:  # fmt: skip
    """Degrees that were shaped by the NVLink domain, and the plan that replaces them."""
    plan = present.plan
    inner = present.machine.fabric[0]
    domain = inner.dims[0]
    where = job.plan if isinstance(job.plan, Given) else None
    shaped = [
        f"{axis}={n}" for axis, n in (("tp", plan.tp), ("cp", plan.cp), ("ep", plan.ep))
        if n > 1 and domain % n == 0
    ]  # fmt: skip
    new = target.plan
    chosen = ", ".join(
        f"{axis}={getattr(new, axis)}" for axis in ("dp", "fsdp", "tp", "cp", "ep", "pp")
        if getattr(new, axis) > 1
    )  # fmt: skip
    torus = "×".join(str(n) for n in target.machine.fabric[0].dims)
    same = unchanged is not None and unchanged.plan == new
    if shaped and not same:
        seconds = None
        cost = "it does not fit as it is"
        if unchanged is not None and unchanged.fits:
            seconds = float(plain(unchanged.step_time_s)) - float(plain(target.step_time_s))
            cost = "step time of the plan unchanged, less that of the best plan"
        elif unchanged is None:
            cost = "the degrees do not divide the slice's devices"
        yield _item(
            "topology", "node8-topology", "high" if seconds is None else _severity(seconds, target),
            where, f"{', '.join(shaped)} follow{'s' if len(shaped) == 1 else ''} the {domain}-GPU "
            f"NVLink domain; a {torus} torus has no such island",
            seconds, target, f"on {target.machine.name} plan {chosen or 'one device'}", cost,
        )  # fmt: skip


def _flags(job: TrainJob, s: Setting, target: Estimate) -> Iterator[Relearn]:
    """What each setting pulls in that is another thing on the target; one item a rule."""
    seen: dict[str, Flag] = {}
    for flag in job.flags:
        if flag.kind not in FLAG_RULES or FLAG_RULES[flag.kind].rule in seen:
            continue
        row = FLAG_RULES[flag.kind]
        seen[row.rule] = flag
        seconds = moved = None
        evidence = "no such thing on the target; its replacement is what the estimate assumes"
        if flag.kind == "attention_kernel":
            moved = score_matrix_bytes(s, target)
            seconds = float(
                stream_time(moved, float(s.kernels.hbm_bytes_per_s), float(s.kernels.stream_e_hbm))
            )
            evidence = "HBM traffic of the score matrices if attention falls back to plain ops"
        others = sum(
            1 for f in job.flags if f.kind in FLAG_RULES and FLAG_RULES[f.kind].rule == row.rule
        ) - 1  # fmt: skip
        more = f" and {others} more" if others else ""
        yield _item(
            row.topic, row.rule, row.severity, flag, f"{flag.key}={flag.value}{more}", seconds,
            target, row.instead, evidence, moved,
        )  # fmt: skip


@formula(unit="B", source="scores written and read twice forward, three times backward, bf16")
def unfused_attention_bytes(sequences: float, heads: float, seq_len: float, keys: float) -> float:
    """HBM traffic of attention that keeps its score matrix in memory, one layer."""
    return 5 * 2 * sequences * heads * seq_len * keys


def score_matrix_bytes(s: Setting, target: Estimate) -> float:
    """Extra HBM bytes a step on a device if attention materialises its scores."""
    plan = target.plan
    total = 0.0
    seq = float(s.seq_len)
    for layer, count in s.model.layers:
        if layer.attention is None:
            continue
        heads = layer.attention.heads / plan.tp
        total += count / plan.pp * unfused_attention_bytes(plan.microbatch, heads, seq, seq)
        total -= count / plan.pp * float(
            attention_bytes(plan.microbatch * seq, heads, layer.attention.kv_heads / plan.tp,
                            layer.attention.head_dim, layer.attention.v_head_dim)
        )  # fmt: skip
    return total * plan.accumulation / plan.cp


def _shapes(s: Setting, target: Estimate) -> Iterator[Relearn]:
    """Dimensions that do not fill the matrix unit, each with the seconds its padding costs."""
    unit = s.machine.chip
    if not unit.has("matrix_unit_cols"):
        return
    lanes = unit.value("matrix_unit_cols")
    plan = target.plan
    etp = plan.etp or plan.tp
    cut = Cut(plan.microbatch * float(s.seq_len) / plan.cp, float(s.seq_len), plan.tp, plan.ep,
              plan.tp, 1.0, etp)  # fmt: skip
    waste: dict[str, float] = {}
    ops = [
        (op, n / plan.pp) for ly, n in s.model.layers for op in layer_ops(ly, s.model.d_model, cut)
    ]
    ops += [(op, 1.0) for op in end_ops(s.model, cut)[1]]
    for op, times in ops:
        for name, share in _padding(op, lanes).items():
            busy = 3 * float(op.flops) * times * plan.accumulation
            lost = busy / float(s.kernels.matmul.peak_flop_per_s) * share
            waste[f"{op.name}: {name}"] = waste.get(f"{op.name}: {name}", 0.0) + lost
    for name, seconds in sorted(waste.items(), key=lambda item: -item[1])[:4]:
        if seconds < 0.002 * float(plain(target.step_time_s)):
            continue
        rule = "vocab-not-128-multiple" if name.startswith("lm_head") else "dim-not-128-multiple"
        yield _item(
            "shapes", rule, _severity(seconds, target), None,
            f"{name} does not fill the {int(lanes)}-wide matrix unit", seconds, target,
            f"pad it to a multiple of {int(lanes)}, or choose a tp that leaves one",
            "padded over useful FLOPs at peak; the compiler may choose another layout",
        )  # fmt: skip
    for layer, _ in s.model.layers[:1]:
        if layer.attention is not None and layer.attention.head_dim < lanes:
            seconds = float(plain(target.time["attention"])) * (
                1 - layer.attention.head_dim / lanes
            )
            yield _item(
                "shapes", "head-dim-lt-128", _severity(seconds, target), None,
                f"head_dim {layer.attention.head_dim} fills "
                f"{layer.attention.head_dim / lanes:.0%} of the {int(lanes)}-wide matrix unit in "
                "QKᵀ", seconds, target,
                "fewer, wider heads in the next model; this one pays it on every chip of the kind",
                "upper bound: attention's time × the idle share of the unit's reduction side",
            )  # fmt: skip


def _padding(op: Op, lanes: float) -> dict[str, float]:
    """Share of a matmul's unit time lost to each of its dimensions that is not whole tiles."""
    if op.kind not in ("matmul", "grouped_matmul") or op.name == "router":
        return {}
    return {
        f"{label} {float(size):,.0f}": float(padded(size, lanes) / size) - 1
        for label, size in (("outputs", op.n), ("reduction", op.k))
        if float(padded(size, lanes) / size) > 1
    }


def _precision(job: TrainJob, s: Setting, present: Estimate, target: Estimate
               ) -> Iterator[Relearn]:  # fmt: skip
    """fp16 scalers, TF32 and fp8 recipes against what the chip has."""
    where = job.precision if isinstance(job.precision, Given) else None
    wanted = job.precision.value.compute
    if DTYPE_BYTES[wanted] < 2:
        chip = target.machine.chip
        peak = float(s.peak_flop_per_s) * chip.devices_per_chip
        plain_peak = chip.value("peak_bf16_flop_per_s")
        if target.peak_dtype != wanted or peak <= plain_peak * 1.01:
            gain = DTYPE_BYTES["bf16"] / DTYPE_BYTES[wanted]
            seconds = float(plain(target.time["matmul"])) * (1 - 1 / gain)
            yield _item(
                "other", "transformer-engine", _severity(seconds, target), where,
                f"{wanted} matmuls run at the bf16 rate on {chip.key}", seconds, target,
                "train in bf16 there (int8 by AQT or qwix doubles the rate where accuracy allows)",
                "matmul time, less what it would be at the rate the recipe counts on",
            )  # fmt: skip
    if wanted == "fp16" and not any(f.kind == "loss_scaler" for f in job.flags):
        row = FLAG_RULES["loss_scaler"]
        yield _item(
            row.topic, row.rule, row.severity, where,
            "fp16: its range needs a loss scaler, whose check reads a device value every step",
            None, target, row.instead, "the format's own range",
        )  # fmt: skip
