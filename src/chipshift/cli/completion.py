"""What a shell offers after ``--on``, ``--to`` and ``--model``: machines, chips, shipped models.

A file's name stays the shell's own to complete where nothing here begins so.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def machines(incomplete: str) -> list[str]:
    """Chips, and after ``CHIP:`` the shapes that can be rented."""
    from chipshift.machines.load import KEYS
    from chipshift.machines.slices import rentable

    chip, colon, _ = incomplete.lower().partition(":")
    if not colon:
        return _beginning(KEYS, incomplete)
    if chip not in KEYS:
        return []
    shapes = ("x".join(map(str, shape.dims)) for shape in rentable(chip))
    return _beginning((f"{chip}:{shape}" for shape in shapes), incomplete)


def chips(incomplete: str) -> list[str]:
    """Chips by their keys; in a list with commas its last one."""
    from chipshift.machines.load import KEYS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _beginning(KEYS, last)]


def models(incomplete: str) -> list[str]:
    """Shipped models by their names, else the files and folders that begin so."""
    from chipshift.models.preset import names

    found = _beginning(names(), incomplete)
    return found or _paths(incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    """The names that begin so, whatever their case."""
    return [name for name in names if name.lower().startswith(incomplete.lower())]


def _paths(incomplete: str) -> list[str]:
    """Files and folders that begin so; a folder with a stroke behind it."""
    folder, _, stem = incomplete.rpartition("/")
    at = Path(folder or ("/" if incomplete.startswith("/") else "."))
    try:
        inside = sorted(path for path in at.iterdir() if path.name.startswith(stem))
    except OSError:  # no such folder, or not to be looked into
        return []
    start = incomplete[: len(incomplete) - len(stem)]
    return [f"{start}{path.name}{'/' if path.is_dir() else ''}" for path in inside]
