"""What the fast mode is known to stray by from a compilation to its end, chip by chip.

``data/fast_mode.toml`` holds, for each chip, the range over programs compiled in both modes
(``benchmarks/compare_compile.py --fast`` writes it): fast over time, less one.
"""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Any

from chipshift.machines.machine import Machine


@functools.cache
def known() -> dict[str, dict[str, Any]]:
    """By chip: ``programs``, ``models``, ``evidence``, and ``low``, ``median`` and ``high`` of the
    deviation of ``peak``."""
    file = resources.files("chipshift.compiled") / "data" / "fast_mode.toml"
    return tomllib.loads(file.read_text("utf8"))


def stated(mode: str, machine: Machine, memory: dict[str, Any]) -> dict[str, Any] | None:
    """What a report in the fast mode says of itself; None where both modes are the same compile.

    Args:
        memory: the report's ``memory_bytes``, bytes a device.
    """
    if mode != "fast" or machine.chip.family != "tpu":
        return None
    found = known().get(machine.chip.key)
    if found is None:
        return dict.fromkeys(("peak", "evidence", "verdict_holds")) | {"programs": 0, "models": 0}
    return found | {"verdict_holds": verdict_holds(found["peak"], memory)}


def verdict_holds(peak: dict[str, float], memory: dict[str, Any]) -> bool | None:
    """Whether no deviation that was seen would turn "fits" into its opposite; None where there is
    no verdict."""
    found, available = memory["peak"], memory["available"]
    if found is None or available is None:
        return None
    # fast = to the end × (1 + deviation)
    least, most = found / (1 + peak["high"]), found / (1 + peak["low"])
    return bool(most <= available) if found <= available else bool(least > available)
