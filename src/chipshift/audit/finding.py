"""What an audit says: findings with their places, costs and the result they add up to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from chipshift.errors import InputError, nearest

Target = Literal["jax", "torchax", "torchtpu", "torch_xla", "neuron"]
Topic = Literal["kernels", "shapes", "topology", "other"]
Severity = Literal["blocker", "high", "medium", "low"]
Loop = Literal["step", "eval", "startup", "unknown"]
Confidence = Literal["sure", "likely", "possible"]
Basis = Literal["job", "measurement", "unknown"]

TARGETS: tuple[Target, ...] = ("jax", "torchax", "torchtpu", "torch_xla", "neuron")
TORCH: tuple[Target, ...] = ("torchax", "torchtpu", "torch_xla", "neuron")
"""The ways to run PyTorch code, of the targets."""
LAZY: tuple[Target, ...] = ("torch_xla",)
"""The target that records operations and runs them when a step is marked."""
TOPICS: tuple[Topic, ...] = ("kernels", "shapes", "topology", "other")
SEVERITIES: tuple[Severity, ...] = ("blocker", "high", "medium", "low")
"""Worst first, so that an index compares: a smaller one is worse."""


@dataclass(frozen=True, slots=True)
class Place:
    """A further line that must change for the same reason; ``line`` counts from 1."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What a finding costs; None is unknown, never zero.

    ``formula`` says what the figure is or how to get it; ``basis`` whether it was worked from the
    job, comes from a documented measurement, or is not known from the source.
    """

    seconds_per_step: float | None = None
    fraction_of_step: float | None = None
    bytes: float | None = None
    recompiles: float | None = None
    formula: str = ""
    basis: Basis = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause in one file: where the edit starts, what happens there, what to write instead.

    ``file`` is relative to the audited path (POSIX). ``line`` and ``end_line`` count from 1 (in a
    notebook: within ``cell``, which counts from 0 over all cells). ``targets`` are all targets for
    which the finding holds; ``target`` the one it is worded for.
    """

    rule: str
    target: Target
    topic: Topic
    severity: Severity
    file: str
    line: int
    end_line: int
    message: str
    instead: str
    cell: int | None = None
    places: tuple[Place, ...] = ()
    cost: Cost = Cost()
    loop: Loop = "unknown"
    confidence: Confidence = "sure"
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was not read and the reason."""

    file: str
    why: str


@dataclass(frozen=True, slots=True)
class Entry:
    """The function taken as the training step."""

    file: str
    function: str


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Coverage: files with an import that could not be resolved, and the number of imports."""

    files: int
    imports: int


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The outcome over a tree; ``target`` is the one of most files; ``files`` those audited, beside
    ``configs`` launch scripts and configurations.

    ``notes`` are sentences about the whole (a deprecated target, files already ported).
    ``portable_fraction`` is the share of lines reachable from the step that carry no blocker, high
    or medium finding; None when no step was found.
    """

    target: Target
    files: int
    entry: Entry | None
    portable_fraction: float | None
    findings: tuple[Finding, ...]
    skipped: tuple[Skipped, ...]
    unresolved: Unresolved
    seconds: float
    notes: tuple[str, ...] = ()
    configs: int = 0


def parse_target(text: str | None) -> Target | Literal["all"] | None:
    """``text`` as a target, ``"all"``, or None for the default of each file.

    Raises InputError naming the nearest target for any other text.
    """
    if text is None:
        return None
    if text == "all":
        return "all"
    for target in TARGETS:
        if text == target:
            return target
    choices = (*TARGETS, "all")
    raise InputError(
        f"--target: found '{text}', expected one of {', '.join(choices)}{nearest(text, choices)}"
    )


def finding_json(finding: Finding) -> dict[str, Any]:
    """The object that stands in the ``findings`` list of ``--json``."""
    cost: Mapping[str, Any] = {
        name: getattr(finding.cost, name)
        for name in (
            "seconds_per_step",
            "fraction_of_step",
            "bytes",
            "recompiles",
            "formula",
            "basis",
        )
    }
    return {
        "rule": finding.rule,
        "target": finding.target,
        "targets": list(finding.targets),
        "topic": finding.topic,
        "severity": finding.severity,
        "file": finding.file,
        "line": finding.line,
        "end_line": finding.end_line,
        "cell": finding.cell,
        "places": [{"file": place.file, "line": place.line} for place in finding.places],
        "message": finding.message,
        "instead": finding.instead,
        "cost": dict(cost),
        "loop": finding.loop,
        "confidence": finding.confidence,
    }
