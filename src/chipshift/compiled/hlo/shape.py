"""Shapes as XLA prints them: ``bf16[8,1024]{1,0:T(8,128)(2,1)S(1)}``, and tuples of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

BITS = {
    "pred": 8, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16,
    "s32": 32, "u32": 32, "s64": 64, "u64": 64, "bf16": 16, "f16": 16, "f32": 32, "f64": 64,
    "c64": 64, "c128": 128, "f4e2m1fn": 4, "token": 0, "opaque": 0,
}  # fmt: skip
"""Bits of an element; every 8-bit float is named f8…"""

_SHAPE = re.compile(r"([a-z][a-z0-9]*)\[([0-9,<=]*)\](?:\{([^{}]*)\})?")
_TILE = re.compile(r"\(([0-9,]*)\)")


@dataclass(frozen=True)
class Shape:
    """One array.

    Attributes:
        order: dimensions from the one that varies fastest to the slowest.
        tiles: each level of tiling, as printed: ``((8, 128), (2, 1))``.
        space: memory space: 0 device memory, 1 the core's own vector memory, 2 sync flags, 5 host.
    """

    dtype: str
    dims: tuple[int, ...]
    order: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...] = ()
    space: int = 0

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(str(d) for d in self.dims)}]"

    @property
    def bytes(self) -> int:
        """Logical bytes."""
        return -(-prod(self.dims) * bits(self.dtype) // 8)

    @property
    def physical_bytes(self) -> int:
        """Bytes once the fastest dimensions are rounded up to whole tiles."""
        if not self.tiles:
            return self.bytes
        sizes = [self.dims[dim] for dim in reversed(self.order)]  # slowest first
        tile = self.tiles[0]
        sizes = [1] * (len(tile) - len(sizes)) + sizes
        for back, length in enumerate(reversed(tile), start=1):
            sizes[-back] = -(-sizes[-back] // length) * length
        return -(-prod(sizes) * bits(self.dtype) // 8)


def bits(dtype: str) -> int:
    """Bits of one element.

    Raises:
        ValueError: an element type that is not known.
    """
    if dtype.startswith("f8"):
        return 8
    if dtype not in BITS:
        raise ValueError(f"unknown element type '{dtype}'")
    return BITS[dtype]


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """Every array of a printed shape, tuples flattened."""
    return tuple(_shape(*match.groups()) for match in _SHAPE.finditer(text))


def _shape(dtype: str, dims: str, layout: str | None) -> Shape:
    sizes = tuple(int(d.lstrip("<=")) for d in dims.split(",") if d)
    order, _, marks = (layout or "").partition(":")
    fast_first = tuple(int(d) for d in order.split(",") if d)
    if len(fast_first) != len(sizes):
        fast_first = tuple(reversed(range(len(sizes))))
    space = re.search(r"S\((\d+)\)", marks)
    tiled = re.search(r"T((?:\([0-9,]*\))+)", marks)
    tiles = tuple(
        tuple(int(n) for n in tile.split(",") if n)
        for tile in _TILE.findall(tiled.group(1) if tiled else "")
    )
    return Shape(dtype, sizes, fast_first, tiles, int(space.group(1)) if space else 0)
