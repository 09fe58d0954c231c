"""Every legal plan of a job on a machine: degrees, microbatches and the categorical choices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from chipshift.errors import InputError, nearest
from chipshift.estimate.columns import Choice
from chipshift.estimate.setting import Setting
from chipshift.jobs.loss import loss
from chipshift.jobs.plan import OPTIMIZER_SHARDINGS, SCHEDULES
from chipshift.models.model import Model, MoeMlp
from chipshift.parallel.remat import policy

DEGREES = ("dp", "fsdp", "cp", "tp", "ep", "pp")
FIXABLE = (*DEGREES, "vpp", "microbatch", "accumulation", "remat", "optimizer_sharding", "schedule")

REMATS_BY_STACK = {
    "maxtext": ("none", "minimal", "minimal_with_context", "save_dot_with_context_except_mlp",
                "save_dot_except_mlp", "save_qkv_proj", "save_out_proj", "full",
                "qkv_proj_offloaded", "minimal_offloaded"),
    "torchtitan": ("none", "selective_op", "full"),
    "megatron": ("none", "selective", "full"),
}  # fmt: skip
"""Remat policies each stack offers; other stacks: none, selective, full."""

SCHEDULES_BY_STACK = {
    "torchtitan": ("1f1b", "interleaved", "zero_bubble"),
    "megatron": ("1f1b", "interleaved"),
    "maxtext": ("gpipe",),  # its pipeline keeps every microbatch
    "jax": ("1f1b",),
    "nanotron": ("1f1b",),
    "deepspeed": ("1f1b",),
}  # fmt: skip
"""Pipeline schedules each stack offers; other stacks: 1F1B and interleaved."""

EVEN_STAGES = ("maxtext", "nanotron", "levanter")
"""Stacks whose pipeline stages hold equal numbers of layers."""

SHARDINGS_BY_STACK = {
    "torchtitan": ("none",),
    "megatron": ("none", "zero1"),
    "nanotron": ("none", "zero1"),
    "maxtext": ("none", "zero1"),
    "jax": ("none", "zero1"),
    "deepspeed": ("none", "zero1", "zero2"),
}  # fmt: skip
"""Optimizer shardings over dp each stack offers; other stacks: none and zero1."""

RING_STACKS = ("megatron", "nanotron", "deepspeed")
"""Stacks whose context parallelism passes keys and values round a ring; the others gather them."""


@dataclass(frozen=True)
class Base:
    """Rows of degrees, virtual stages and microbatches.

    Attributes:
        degrees: (tuples, 6) int array in the order of DEGREES; every tuple has a row.
        tuple_of, vpp, microbatch, accumulation: one entry a row.
    """

    degrees: np.ndarray
    tuple_of: np.ndarray
    vpp: np.ndarray
    microbatch: np.ndarray
    accumulation: np.ndarray

    def __len__(self) -> int:
        return len(self.tuple_of)


def divisors(n: int) -> list[int]:
    """Divisors of n in ascending order."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return small + [n // d for d in reversed(small) if d * d != n]


def degree_tuples(models: Sequence[Model], devices: int, sequences: int, seq_len: int,
                  fixed: Mapping[str, str | int | float]) -> np.ndarray:  # fmt: skip
    """All (dp, fsdp, cp, tp, ep, pp) that are legal for the models and the batch.

    Legal: dp·fsdp·cp·tp·pp = devices; dp·fsdp divides the batch; tp divides the query heads and
    the feed-forward widths; 2·cp divides the sequence; pp is at most the layers; ep divides the
    experts and dp·fsdp·cp.
    """
    layers = [layer for model in models for layer, _ in model.layers]
    heads = [layer.attention.heads for layer in layers if layer.attention]
    widths = [layer.mlp.width for layer in layers if layer.mlp]
    experts = [layer.mlp.experts for layer in layers if isinstance(layer.mlp, MoeMlp)]
    most = min(model.n_layers for model in models)
    cuts = [d for d in divisors(devices) if all(n % d == 0 for n in (*heads, *widths))]
    rows: list[tuple[int, int, int, int, int, int]] = []
    for pp in _allowed(divisors(devices), "pp", fixed):
        if pp > most:
            continue
        for tp in _allowed(cuts, "tp", fixed):
            if (devices // pp) % tp:
                continue
            data = devices // pp // tp
            for cp in _allowed(divisors(data), "cp", fixed):
                if cp > 1 and seq_len % (2 * cp):
                    continue
                replicas = data // cp
                if sequences % replicas:
                    continue
                for dp in _allowed(divisors(replicas), "dp", fixed):
                    fsdp = replicas // dp
                    if fsdp not in _allowed([fsdp], "fsdp", fixed):
                        continue
                    for ep in _allowed(_expert_degrees(experts, data, fsdp, cp), "ep", fixed):
                        rows.append((dp, fsdp, cp, tp, ep, pp))
    return np.array(rows, dtype=np.int64).reshape(-1, 6)


def models_cut(s: Setting) -> list[Model]:
    """The models that a plan cuts: the job's, and a distillation's teacher."""
    return [s.model] if s.teacher is None else [s.model, s.teacher.model]


def _expert_degrees(experts: list[int], data: int, fsdp: int, cp: int) -> list[int]:
    """Expert degrees: divisors of experts and of dp·fsdp·cp that nest with the weight shards."""
    if not experts:
        return [1]
    shards = fsdp * cp if fsdp > 1 else 1
    common = math.gcd(math.gcd(*experts), data)
    return [d for d in divisors(common) if shards % d == 0 or d % shards == 0]


def _allowed(values: list[int], axis: str, fixed: Mapping[str, str | int | float]) -> list[int]:
    return [v for v in values if v == int(fixed[axis])] if axis in fixed else values


def base_rows(s: Setting, fixed: Mapping[str, str | int | float]) -> Base:
    """All rows of degrees × virtual stages × microbatch for a job on a machine."""
    sequences, seq_len = int(s.job.sequences_per_step.value), int(s.job.seq_len.value)
    degrees = degree_tuples(models_cut(s), s.machine.devices, sequences, seq_len, fixed)
    even = s.stack.name in EVEN_STAGES
    shares = sequences // (degrees[:, 0] * degrees[:, 1])
    kinds, kind_of = np.unique(
        np.stack([shares, degrees[:, 5]], axis=1), axis=0, return_inverse=True
    )
    answers = loss(s.job.loss).answers
    grids = [
        _grid(s.model.n_layers, share, pp, even, answers, fixed) for share, pp in kinds.tolist()
    ]
    # tuples of equal share and stages have the same rows; one without any is no plan
    sizes = np.array([grid.shape[1] for grid in grids], dtype=np.int64)
    used = np.flatnonzero(sizes[kind_of.reshape(-1)])
    degrees, kind_of = degrees[used], kind_of.reshape(-1)[used]
    counts = sizes[kind_of]
    starts = (np.cumsum(sizes) - sizes)[kind_of]
    ends = np.cumsum(counts)
    index = np.arange(int(counts.sum())) + np.repeat(starts - (ends - counts), counts)
    table = (np.concatenate(grids, axis=1) if grids else np.empty((3, 0)))[:, index]
    return Base(degrees, np.repeat(np.arange(len(used)), counts), table[0], table[1], table[2])


def _grid(layers: int, share: int, pp: int, even: bool, answers: int,
          fixed: Mapping[str, str | int | float]) -> np.ndarray:  # fmt: skip
    """Virtual stages, microbatch and accumulation of a replica's share of the sequences.

    A microbatch holds whole examples of so many ``answers``.
    """
    micro = [m for m in divisors(share) if m % answers == 0 if "microbatch" not in fixed
             or math.isclose(m, float(fixed["microbatch"]))]  # fmt: skip
    if "accumulation" in fixed:
        micro = [m for m in micro if share // m == int(fixed["accumulation"])]
    virtual = _virtual_stages(layers, pp, fixed)
    if even:
        virtual = [v for v in virtual if layers % (pp * v) == 0]
    grid = np.array(np.meshgrid(virtual, micro, indexing="ij"), dtype=float).reshape(2, -1)
    return np.stack([grid[0], grid[1], share / grid[1]])


def _virtual_stages(layers: int, pp: int, fixed: Mapping[str, str | int | float]) -> list[int]:
    if pp == 1:
        return _allowed([1], "vpp", fixed)
    most = layers // pp
    return _allowed([v for v in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16) if v <= most], "vpp", fixed)


def choices(s: Setting, fixed: Mapping[str, str | int | float]) -> list[Choice]:
    """The categorical combinations to score: remat × optimizer sharding × schedule."""

    def of(axis: str, values: tuple[str, ...]) -> tuple[str, ...]:
        return (str(fixed[axis]),) if axis in fixed else values

    cp_kind = "ring" if s.stack.base in RING_STACKS else "allgather"
    remats = REMATS_BY_STACK.get(s.stack.base, ("none", "selective", "full"))
    schedules = SCHEDULES_BY_STACK.get(s.stack.base, ("1f1b", "interleaved"))
    shardings = SHARDINGS_BY_STACK.get(s.stack.base, ("none", "zero1"))
    return [
        Choice(remat, sharding, schedule, cp_kind)
        for schedule in of("schedule", schedules)
        for sharding in of("optimizer_sharding", shardings)
        for remat in of("remat", remats)
    ]


def applies(choice: Choice, base: Base) -> np.ndarray:
    """Rows for which a choice is a plan of its own (bool, one a row).

    Zero bubble needs stages; interleaving needs virtual ones and only it has them (without stages
    1F1B and GPipe are the same, and a stack offers one of them); both interleaving and MaxText's
    pipeline (GPipe's schedule; configs/types.py) take microbatches in multiples of the stages;
    optimizer sharding needs replicas, and zero2 keeps gradients in shards, which a pipeline's
    microbatches would reduce again and again: it is left to pp = 1.
    """
    dp, cp, fsdp, pp = (base.degrees[:, DEGREES.index(a)] for a in ("dp", "cp", "fsdp", "pp"))
    keep: np.ndarray = (base.vpp > 1) if choice.schedule == "interleaved" else (base.vpp == 1)
    if choice.schedule in ("interleaved", "gpipe"):
        keep = keep & (base.accumulation % np.maximum(pp, 1)[base.tuple_of] == 0)
    if choice.schedule == "zero_bubble":
        keep = keep & (pp > 1)[base.tuple_of]
    if choice.optimizer_sharding != "none":
        replicas = np.where(fsdp > 1, dp, dp * cp)
        keep = keep & (replicas > 1)[base.tuple_of]
    if choice.optimizer_sharding == "zero2":
        keep = keep & (pp == 1)[base.tuple_of]
    return keep


def read_fixed(text: str) -> dict[str, str | int | float]:
    """``tp=4,remat=full`` as a mapping.

    Raises:
        InputError: an unknown key or a value that is no number where one is needed.
    """
    out: dict[str, str | int | float] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, sign, value = part.partition("=")
        key = key.strip()
        if not sign and key in FIXABLE:
            raise InputError(
                f"plan '{part}': '{key}' has no value (expected key=value, such as "
                "fsdp=64,remat=full)"
            )
        if not sign or key not in FIXABLE:
            raise InputError(
                f"plan '{part}': '{key}' is not part of a plan{nearest(key, FIXABLE)} "
                f"(expected {', '.join(FIXABLE)} as key=value)"
            )
        if key in out:
            raise InputError(f"plan '{text}': {key} is given twice")
        out[key] = _word(key, value.strip()) if key in FIXABLE[9:] else _number(key, value)
    return out


def _word(key: str, text: str) -> str:
    known = {"schedule": SCHEDULES, "optimizer_sharding": OPTIMIZER_SHARDINGS}.get(key)
    if known is None:
        policy(text)
    elif text not in known:
        raise InputError(f"plan {key}='{text}'{nearest(text, known)} (expected {', '.join(known)})")
    return text


def _number(key: str, text: str) -> int | float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    whole = key != "microbatch"
    if not value > 0 or value > 1e9 or (whole and value != int(value)):
        kind = "a positive whole number" if whole else "a positive number"
        raise InputError(f"plan {key}='{text.strip()}': expected {kind}")
    return int(value) if whole else value


def chunks(total: int, size: int) -> Iterator[slice]:
    """Slices of at most ``size`` rows."""
    for start in range(0, total, size):
        yield slice(start, min(start + size, total))
