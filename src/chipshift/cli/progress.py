"""A line on standard error while something takes longer than two seconds, on a terminal only."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

AFTER_S = 2.0


@contextlib.contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Say what is going on once it has taken longer than two seconds; silent in pipes."""
    start = time.monotonic()
    shown = False

    def say(now: str) -> None:
        nonlocal shown
        if sys.stderr.isatty() and time.monotonic() - start > AFTER_S:
            shown = True
            print(f"\r\x1b[K{now} ({time.monotonic() - start:.0f} s)", end="", file=sys.stderr)

    say(what)
    try:
        yield say
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
