"""Why a compiler refused, in its own words and in bytes."""

from __future__ import annotations

import re
from typing import Any

_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_EXCEEDS = re.compile(
    r"(?:temporaries|arguments|outputs|[Uu]sed)[^(]*?\(?([\d.]+)([KMGT]?)\)? "
    r"(?:exceeds available HBM \(|of )([\d.]+)([KMGT]?)"
)


def explain(message: str) -> dict[str, Any]:
    """``reason`` and, for out of memory, the bytes wanted and the bytes there."""
    first = message.strip().split("\n", 1)[0]
    if "RESOURCE_EXHAUSTED" not in message:
        return {"reason": first[:600]}
    found = _EXCEEDS.search(message)
    out: dict[str, Any] = {"reason": first[:600], "out_of_memory": True}
    if found:
        wanted, available = _bytes(*found.groups()[:2]), _bytes(*found.groups()[2:])
        out |= {"wanted_bytes": wanted, "available_bytes": available}
    return out


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _SIZES[unit])
