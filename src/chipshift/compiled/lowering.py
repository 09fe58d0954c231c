"""What the TPU's compiler sends for collectives that a sharding asks for, by rules of the slice.

libtpu does some gathers and scatters as all-reduces of the whole array, which send twice the bytes.
Where that depends on the chip, the slice and the group alone it is a rule of data/lowering.toml;
what it decides by an array's layout is no rule here and shows as a difference.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from math import prod
from typing import Any


@functools.cache
def rules() -> dict[str, Any]:
    file = resources.files("chipshift.compiled") / "data" / "lowering.toml"
    return tomllib.loads(file.read_text("utf8"))


@dataclass(frozen=True)
class Slice:
    """A TPU slice: its chip and the chips along each axis of the torus."""

    chip: str
    dims: tuple[int, ...]
    devices: int

    def gathers_by_sum(self, n: int, array_bytes: float) -> bool:
        """Whether an array is gathered over ``n`` devices by an all-reduce."""
        rule = rules()["gather_as_sum"]
        largest = rule["largest_bytes"].get(self.chip)
        if largest is None or n != self.devices or n < rule["devices"]:
            return False
        return bool(largest == 0 or array_bytes <= largest)

    def scatters_by_sum(self, n: int, in_matmul: bool) -> bool:
        """Whether a sum is scattered over ``n`` devices by an all-reduce; ``in_matmul``: it is a
        matmul's, which may scatter while it multiplies."""
        rule = rules()["scatter_as_sum"]
        smallest = rule["chips"].get(self.chip)
        if smallest is None or n != self.devices or prod(self.dims) < smallest["chips"]:
            return False
        if smallest["square"] and len(set(self.dims)) > 1:
            return False
        return not in_matmul or n >= int(rule["in_matmul_below"])

    def sums_once(self, scattered: int, summed: int) -> bool:
        """Whether a gradient scattered over some devices and summed over others is summed whole."""
        both = scattered > 1 and summed > 1 and scattered * summed == self.devices
        return both and self.chip in rules()["summed_once"]["chips"]


def slice_of(chip: str, topology: str, devices: int, slices: int) -> Slice | None:
    """The slice by libtpu's name (``v6e:4x4``); None where no rule is known: other chips than
    TPUs, and several slices."""
    _, _, dims = topology.partition(":")
    if slices > 1 or chip not in rules()["gather_as_sum"]["largest_bytes"]:
        return None
    return Slice(chip, tuple(int(n) for n in dims.split("x")), devices)
