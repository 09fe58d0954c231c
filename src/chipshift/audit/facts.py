"""What one file gives: hazards before it is known where they run, and the facts that decide it.

A file is read once, in its own process; these small records are all that travels back, so that
memory does not grow with the trees.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from chipshift.audit.finding import Confidence, Severity, Target

STEP, EVAL, EPOCH, STARTUP, HOST, NEVER = "step", "eval", "epoch", "startup", "host", "never"


@dataclass(slots=True)
class Hazard:
    """A hazard in a file. ``func`` is the local qualified name of the function it stands in.

    ``local`` is the place that the surrounding loop decides (``step``, ``eval``, ``epoch``) or ""
    when the function's own place decides; ``cadence`` says that it runs every N steps only;
    ``flag`` names an option that is off by default and guards it. ``needs_step`` hazards are none
    outside the step and evaluation. ``raises`` marks what fails before step one.
    """

    rule: str
    line: int
    end_line: int
    what: str
    func: str = ""
    local: str = ""
    cadence: bool = False
    flag: str = ""
    severity: Severity | None = None
    confidence: Confidence = "sure"
    targets: tuple[Target, ...] = ()
    needs_step: bool = False
    raises: bool = False
    looped: bool = False
    cause: str = ""
    places: list[int] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    cell: int | None = None


@dataclass(slots=True)
class CallSite:
    """A call of something that may be in the tree: dotted name, or ``.method`` when only that."""

    callee: str
    line: int
    end_line: int
    local: str = ""
    cadence: bool = False
    guarded: bool = False
    rank0: bool = False
    looped: bool = False


@dataclass(slots=True)
class FuncFact:
    """A function, method or (name "") the module body. ``role`` is what its shape says it is."""

    name: str
    line: int
    end_line: int
    role: str = ""
    sure: bool = False
    kernel: str = ""
    calls: list[CallSite] = field(default_factory=list)
    step_spans: list[tuple[int, int]] = field(default_factory=list)
    bases: tuple[str, ...] = ()


@dataclass(slots=True)
class FileFacts:
    """All that linking needs of one file."""

    file: str
    module: str
    lines: int = 0
    uses_torch: bool = False
    uses_jax: bool = False
    uses_xla: bool = False
    imports: dict[str, str] = field(default_factory=dict)
    import_lines: list[tuple[str, int, int, bool]] = field(default_factory=list)
    funcs: list[FuncFact] = field(default_factory=list)
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    hazards: list[Hazard] = field(default_factory=list)
    cells: tuple[tuple[int, int], ...] = ()
    jax_weight: int = 0
    skipped: str = ""
