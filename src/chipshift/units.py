"""Units: SI inside the package, converted and printed only here."""

from __future__ import annotations

import math

GB = 1e9
GIB = float(2**30)
MIB = float(2**20)
KIB = float(2**10)
KIB = float(2**10)
TERA = 1e12
SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86400.0

DTYPE_BYTES: dict[str, float] = {
    "fp64": 8.0, "fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0,
    "fp8": 1.0, "int8": 1.0, "mxfp8": 1.0, "fp4": 0.5, "nvfp4": 0.5, "mxfp4": 0.5, "int4": 0.5,
}  # fmt: skip
"""Bytes of one element, by the field's name for the dtype (tf32 is stored as fp32)."""

_PREFIXES = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")]


def si(value: float, unit: str, digits: int = 3) -> str:
    """``si(9.894e14, 'FLOP/s')`` is ``'989 TFLOP/s'``; a null prints as a dash."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    for scale, prefix in _PREFIXES:
        if size >= scale * 0.9995 or scale == 1.0:
            return f"{significant(value / scale, digits)} {prefix}{unit}".rstrip()
    raise AssertionError("the last prefix always matches")


def significant(value: float, digits: int = 3) -> str:
    """A plain decimal with ``digits`` significant digits and grouped thousands."""
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)) + 1e-9))
    return f"{value:,.{min(decimals, 9)}f}"


def gib(value_bytes: float, digits: int = 1) -> str:
    """Bytes printed as GiB (2^30)."""
    return f"{value_bytes / GIB:,.{digits}f} GiB"


def gib_or_mib(value_bytes: float) -> str:
    """Bytes as GiB, below a tenth of one as MiB, below a tenth of that as KiB or bytes."""
    if abs(value_bytes) >= GIB / 10:
        return gib(value_bytes)
    if abs(value_bytes) >= MIB / 10 or not value_bytes:
        return f"{significant(value_bytes / MIB, 3)} MiB"
    if abs(value_bytes) >= KIB:
        return f"{significant(value_bytes / KIB, 3)} KiB"
    return f"{value_bytes:.0f} B"


def gb(value_bytes: float, digits: int = 1) -> str:
    """Bytes printed as GB (1e9)."""
    return f"{value_bytes / GB:,.{digits}f} GB"


def duration(seconds: float, digits: int = 3) -> str:
    """Seconds in the unit people would say: µs, ms, s, h or days."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    size = abs(seconds)
    if size >= 2 * SECONDS_PER_DAY:
        return f"{significant(seconds / SECONDS_PER_DAY, digits)} days"
    if size >= 2 * SECONDS_PER_HOUR:
        return f"{significant(seconds / SECONDS_PER_HOUR, digits)} h"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if size >= scale * 0.9995:
            return f"{significant(seconds / scale, digits)} {unit}"
    return f"{significant(seconds / 1e-9, digits)} ns" if seconds else "0 s"
