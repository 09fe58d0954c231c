"""JAX's assignment of mesh axes to the axes of a torus, as sizes.

The rules are those of ``jax.experimental.mesh_utils.create_device_mesh`` with
``allow_split_physical_axes=True`` (jax/_src/mesh_utils.py, 2026): mesh axes are taken from the
last, each gets the largest number of whole physical axes that multiply to its size, the first
such combination in order; where one finds none, all are assigned anew with pieces of axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations

Matrix = tuple[tuple[int, ...], ...]
"""[physical axis][mesh axis] -> size; rows multiply to the axis, columns to the mesh size."""


def assign_torus(axes: tuple[int, ...], mesh: tuple[int, ...]) -> Matrix:
    """Sizes of each mesh axis on each physical axis; the products of both are equal."""
    whole = _whole_axes(axes, mesh)
    columns = whole if whole is not None else _split_axes(axes, mesh)
    return tuple(tuple(column[at] for column in columns) for at in range(len(axes)))


def _whole_axes(axes: tuple[int, ...], mesh: tuple[int, ...]) -> list[tuple[int, ...]] | None:
    """Without splitting; None where some mesh axis is no product of free physical axes."""
    free = list(axes)
    columns = [tuple(1 for _ in axes) for _ in mesh]
    for index in range(len(mesh) - 1, -1, -1):
        if mesh[index] == 1:
            continue
        chosen = _largest_combination(free, mesh[index])
        if chosen is None:
            return None
        columns[index] = tuple(size if at in chosen else 1 for at, size in enumerate(axes))
        for at in chosen:
            free[at] = 0
    return columns


def _largest_combination(free: list[int], size: int) -> tuple[int, ...] | None:
    for count in range(len(free), 0, -1):
        for chosen in combinations(range(len(free)), count):
            if math.prod(free[at] for at in chosen) == size:
                return chosen
    return None


def _split_axes(axes: tuple[int, ...], mesh: tuple[int, ...]) -> list[tuple[int, ...]]:
    """With pieces of axes; the later of two mesh axes on one physical axis is the contiguous."""
    taken = tuple(1 for _ in axes)
    columns = [taken for _ in mesh]
    for index in range(len(mesh) - 1, -1, -1):
        best = _best_pieces(axes, taken, mesh[index])
        columns[index] = best
        taken = tuple(used * piece for used, piece in zip(taken, best, strict=True))
    return columns


@lru_cache(maxsize=65536)
def _best_pieces(axes: tuple[int, ...], taken: tuple[int, ...], size: int) -> tuple[int, ...]:
    left = tuple(axis // used for axis, used in zip(axes, taken, strict=True))
    return max(_pieces(left, size), key=lambda pieces: _preference(pieces, axes, taken))


def _pieces(left: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
    """All ways to write ``size`` as a product of divisors of what is left of each axis."""
    if not left:
        if size == 1:
            yield ()
        return
    for piece in range(1, min(left[0], size) + 1):
        if left[0] % piece == 0 and size % piece == 0:
            for rest in _pieces(left[1:], size // piece):
                yield (piece, *rest)


def _preference(
    pieces: tuple[int, ...], axes: tuple[int, ...], taken: tuple[int, ...]
) -> tuple[int, int, int, tuple[int, ...]]:
    """JAX's order: more on whole axes, more whole axes, more on axes already in use, then first.

    The third is what the code does, though its comment speaks of the opposite.
    """
    whole = [p for p, axis in zip(pieces, axes, strict=True) if p == axis]
    in_use = [p for p, used in zip(pieces, taken, strict=True) if used > 1]
    return math.prod(whole), sum(p > 1 for p in whole), math.prod(in_use), pieces
