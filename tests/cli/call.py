"""The command line as a test calls it: in this process, with what it printed and returned."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chipshift.cli.app import run

ROOT = Path(__file__).parents[2]
TORCHTITAN = str(ROOT / "examples" / "llama3-8b-torchtitan.toml")
NATIVE = str(ROOT / "examples" / "llama3-8b.toml")


@dataclass(frozen=True)
class Called:
    """Exit code and the two streams of one call."""

    code: int
    out: str
    err: str

    def object(self) -> Any:
        """The one JSON object on standard output; NaN and Infinity are no JSON."""
        return json.loads(self.out, parse_constant=_not_json)


def _not_json(word: str) -> float:
    raise ValueError(f"{word} is no JSON number")


def call(*args: str) -> Called:
    """Run the command line; an exception that it lets through is the test's failure."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(list(args))
    return Called(code, out.getvalue(), err.getvalue())
