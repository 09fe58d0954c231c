"""One measured run, as the estimate takes it, and what the estimate says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines.machine import Machine


@dataclass(frozen=True)
class Skip:
    """A row that cannot be scored, and why; ``line`` is its place in the file, from 1."""

    id: str
    why: str
    line: int | None = None


@dataclass(frozen=True)
class Measured:
    """What the run showed; None where the source does not say.

    Attributes:
        step_time_s: of one optimizer step.
        state_memory_bytes: what stays allocated around the optimizer step (the sweep only).
        memory_bytes: the most that the allocator held.
        oom: the run went out of memory.
        tflops_per_chip: achieved, in the source's own convention (``Case.counted``).
    """

    step_time_s: float | None = None
    state_memory_bytes: float | None = None
    memory_bytes: float | None = None
    oom: bool = False
    tflops_per_chip: float | None = None


@dataclass(frozen=True)
class Case:
    """A measured run: what ran, where, and what came of it.

    Attributes:
        machine: its name, for ``machines.parse_machine``.
        wider: plans that cut the model further, to go through where the source states no degree
            and nothing makes ``plan`` fit.
        remats: the rematerialisation that the source states, or, where it states none, the
            choices to go through in order until one fits (``inferred`` says so then).
        release: year and month of the stack's release, where the source states one.
        publisher: repository or site of the source, without the page; with ``model`` it names
            the group that is left out whole in a cross-validation.
        groups: names of the special groups that it belongs to (``moe``, ``fp8`` ...).
        inferred: what the source does not say and how it was filled: (what, value, why).
        counted: how the source counts a token's FLOPs, in words, and the FLOPs of this model so
            counted; '' and None where that is not known.
        line: its place in the file, from 1.
    """

    id: str
    chip: str
    machine: str
    stack: str
    framework: str
    task: str
    quality: str
    source: str
    publisher: str
    model: str
    precision: str
    job: TrainJob
    plan: Plan
    remats: tuple[str, ...]
    measured: Measured
    groups: tuple[str, ...] = ()
    inferred: tuple[tuple[str, str, str], ...] = ()
    release: str = ""
    counted: tuple[str, float | None] = ("", None)
    line: int | None = None
    wider: tuple[Plan, ...] = ()

    @property
    def stack_release(self) -> str:
        """The stack, with its release where the source states one (``megatron@26.04``)."""
        return f"{self.stack}@{self.release}" if self.release else self.stack

    @property
    def tokens_per_step(self) -> float:
        return float(self.job.sequences_per_step.value * self.job.seq_len.value)

    def tflops_per_chip(self, step_time_s: float) -> float | None:
        """TFLOP/s a chip of a step of that time, as the source counts FLOPs."""
        each = self.counted[1]
        return each and each * self.tokens_per_step / self.chips / step_time_s / 1e12

    @property
    def chips(self) -> float:
        """Chips of the machine's name."""
        return _chips(self.machine)


def _chips(name: str) -> float:
    """Chips that ``CHIP*COUNT`` or ``CHIP:AxB[*SLICES]`` names."""
    if ":" not in name:
        return float(name.split("*")[1])
    shape, _, slices = name.split(":")[1].partition("*")
    total = float(slices or 1)
    for size in shape.split("x"):
        total *= float(size)
    return total


@dataclass(frozen=True)
class Prediction:
    """What the estimate says of a run.

    Attributes:
        parts_s: step time by part, to explain an error.
    """

    step_time_s: float
    state_memory_bytes: float
    memory_bytes: float
    fits: bool
    parts_s: dict[str, float] = field(default_factory=dict)


Predict = Callable[[TrainJob, Plan, Machine, str], Prediction]
"""The estimate as a function of a job, a plan, a machine and a stack."""


def fill(row: list[tuple[str, str, str]], what: str, value: object, why: str) -> None:
    """Note a field that the source does not state."""
    row.append((what, str(value), why))
