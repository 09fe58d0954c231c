"""Chips that launch files name before there are figures of them: ``vr200``, ``r100``."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from chipshift.machines.load import KEYS, chip

DATA = Path(__file__).parent / "announced.toml"


@cache
def announced() -> dict[str, dict[str, Any]]:
    """Key → name, nearest, chips_per_host, source and date, as the file has them."""
    return tomllib.loads(DATA.read_text(encoding="utf-8"))


def without_figures(key: str) -> str:
    """One sentence on a chip that is known by name alone; "" for any other."""
    entry = announced().get(key)
    if entry is None:
        return ""
    near = " and ".join(entry["nearest"])
    return (
        f"{entry['name']} ('{key}') has no figures here; the nearest chips that do are {near}: "
        f"name one, such as '{entry['nearest'][0]}*64'"
    )


def chips_per_host(key: str) -> int | None:
    """Chips that share a host, of a chip with figures or without; None where none is known."""
    if key in announced():
        return int(announced()[key]["chips_per_host"])
    if key in KEYS and chip(key).has("chips_per_host"):
        return int(chip(key).value("chips_per_host"))
    return None
