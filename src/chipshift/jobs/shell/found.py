"""What the walk of a script finds: the commands it would start, and what was left out."""

from __future__ import annotations

from dataclasses import dataclass, field

from chipshift.jobs.shell.values import Environment, Field


@dataclass(frozen=True)
class Command:
    """A command that the script would start.

    Attributes:
        words: its name and arguments.
        environment: assignments before it (``NCCL_DEBUG=INFO torchrun ...``).
        file: the file it stands in (a sourced one may have its own).
    """

    words: tuple[Field, ...]
    environment: tuple[tuple[str, Field], ...]
    line: int
    file: str


@dataclass
class Resolved:
    """What a walk found.

    Attributes:
        skipped: lines of loops and conditions that were not followed, and why.
        written: scripts that it wrote itself and started, for their scheduler's lines.
    """

    commands: list[Command] = field(default_factory=list)
    environment: Environment = field(default_factory=lambda: Environment({}))
    skipped: list[tuple[int, str]] = field(default_factory=list)
    sourced: set[str] = field(default_factory=set)
    written: list[Field] = field(default_factory=list)
