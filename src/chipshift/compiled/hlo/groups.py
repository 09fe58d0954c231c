"""Who talks to whom: device groups in every notation XLA prints, and their mesh axes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

Groups = tuple[tuple[int, ...], ...]

_IOTA = re.compile(r"\[([0-9,]+)\]<=\[([0-9,]+)\](?:T\(([0-9,]+)\))?")
_MESH = re.compile(r"mesh\[([^\]]*)\](?:, *device_ids=\((.*?)\))? *\{([^}]*)\}")
_AXIS = re.compile(r"'([^']+)'(?::\((\d+)\)(\d+))?")


def parse_groups(text: str, devices: int) -> Groups:
    """Groups of device numbers from a ``replica_groups=`` value, whatever its notation.

    ``{{0,1},{2,3}}``; ``[2,2]<=[4]`` and ``[2,2]<=[2,2]T(1,0)``;
    ``mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'x'}``; ``{}`` (all of them).
    """
    text = text.strip()
    mesh = _MESH.match(text)
    if mesh:
        return _of_mesh(*mesh.groups())
    iota = _IOTA.match(text)
    if iota:
        return _rows(_iota(*iota.groups()).reshape(_numbers(iota.group(1))))
    listed = re.match(r"\{((?:\{[0-9, ]*\},?)*)\}", text)
    groups = re.findall(r"\{([0-9, ]+)\}", listed.group(1)) if listed else []
    return tuple(_numbers(group) for group in groups) or (tuple(range(devices)),)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.replace(" ", "").split(",") if n)


def _rows(grid: np.ndarray) -> Groups:
    return tuple(tuple(int(n) for n in row) for row in grid.reshape(-1, grid.shape[-1]))


def _iota(_: str, shape: str, order: str | None) -> np.ndarray:
    dims = _numbers(shape)
    numbers = np.arange(int(np.prod(dims))).reshape(dims)
    return numbers.transpose(_numbers(order)) if order else numbers


def _of_mesh(axes: str, ids: str | None, chosen: str) -> Groups:
    named = re.findall(r"'([^']+)'=(\d+)", axes)
    names, dims = [name for name, _ in named], tuple(int(size) for _, size in named)
    numbers = _mesh_ids(ids, dims)
    # Axes may be cut ('x':(2)4 = the part of size 4 after a part of size 2): split them first.
    pieces: list[tuple[str, int]] = []
    wanted: set[int] = set()
    cuts = {name: (int(pre), int(size)) for name, pre, size in _AXIS.findall(chosen) if pre}
    whole = {name for name, pre, _ in _AXIS.findall(chosen) if not pre}
    for name, size in zip(names, dims, strict=True):
        if name in cuts:
            pre, part = cuts[name]
            wanted.add(len(pieces) + 1)
            pieces += [(name, pre), (name, part), (name, size // (pre * part))]
        else:
            if name in whole:
                wanted.add(len(pieces))
            pieces.append((name, size))
    grid = numbers.reshape([size for _, size in pieces])
    outside = [i for i in range(len(pieces)) if i not in wanted]
    inside = int(np.prod([pieces[i][1] for i in wanted], dtype=int))
    return _rows(grid.transpose([*outside, *sorted(wanted)]).reshape(-1, inside))


def _mesh_ids(ids: str | None, dims: tuple[int, ...]) -> np.ndarray:
    """Device numbers in mesh order: counting up, a transposed count, or a list."""
    total = int(np.prod(dims))
    if not ids:
        return np.arange(total)
    shape = re.match(r"\[([0-9,]+)\](?:<=\[([0-9,]+)\])?(?:T\(([0-9,]+)\))?", ids)
    if shape:
        return _iota("", shape.group(2) or shape.group(1), shape.group(3)).reshape(-1)
    return np.array(_numbers(ids.strip("{}")))


@dataclass(frozen=True)
class MeshAxes:
    """Names and sizes of the program's mesh, its devices numbered in mesh order."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @cached_property
    def devices(self) -> int:
        return int(np.prod(self.sizes, dtype=int))

    def over(self, groups: Groups) -> str:
        """Axes along which a group's members differ, joined by ``+``; ``irregular`` when groups
        are no whole sub-grid of the mesh; "" when every device is alone."""
        members = np.array(groups[0])
        if len(members) < 2:
            return ""
        if members.max() >= self.devices:
            return "irregular"
        return self._named(np.array(np.unravel_index(members, self.sizes)), len(members))

    def _named(self, where: np.ndarray, size: int) -> str:
        varying = [axis for axis in range(len(self.sizes)) if len(set(where[axis])) > 1]
        spread = int(np.prod([len(set(where[axis])) for axis in varying], dtype=int))
        partial = any(len(set(where[axis])) < self.sizes[axis] for axis in varying)
        if spread != size:
            return "irregular"
        return "+".join(self.names[axis] for axis in varying) + ("/part" if partial else "")

    def part(self, axis: str, size: int) -> str:
        """The axes among those of ``axis`` (joined by ``+``) that have ``size`` devices together,
        the innermost where several do; "" where none do."""
        names = [name for name in axis.split("+") if name in self.names]
        sizes = dict(zip(self.names, self.sizes, strict=True))
        for count in range(1, len(names) + 1):
            for chosen in reversed(list(combinations(names, count))):
                if np.prod([sizes[name] for name in chosen]) == size:
                    return "+".join(chosen)
        return ""

    def over_pairs(self, pairs: Groups) -> tuple[str, int]:
        """Axes that a permute moves along, and the devices of one closed chain of its pairs."""
        after = {a: b for a, b in pairs if a != b}
        chain = _chain(after)
        if not chain:
            return "", 1
        where = np.array(np.unravel_index(np.array(chain), self.sizes))
        varying = [axis for axis in range(len(self.sizes)) if len(set(where[axis])) > 1]
        return "+".join(self.names[axis] for axis in varying), len(chain)


def _chain(after: dict[int, int]) -> list[int]:
    """Devices reached from the lowest one that sends, in order."""
    if not after:
        return []
    at = min(after)
    chain = [at]
    while at in after and after[at] != chain[0] and len(chain) <= len(after):
        at = after[at]
        chain.append(at)
    return chain


def parse_pairs(text: str) -> Groups:
    """``{{0,1},{1,0}}`` of ``source_target_pairs=``."""
    return tuple(_numbers(pair) for pair in re.findall(r"\{([0-9]+,[0-9]+)\}", text))
