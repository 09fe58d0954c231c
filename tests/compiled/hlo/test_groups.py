"""Device groups in all of XLA's notations, and the mesh axes they run over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.compiled.hlo.groups import MeshAxes, parse_groups

MESH = MeshAxes(("dp", "fsdp", "tp"), (2, 2, 2))


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{{0,1},{2,3}}, use_global", ((0, 1), (2, 3))),
        ("[2,2]<=[4]", ((0, 1), (2, 3))),
        # 0..3 as a 2x2 square, transposed: columns become rows
        ("[2,2]<=[2,2]T(1,0)", ((0, 2), (1, 3))),
        ("mesh['x'=2,'y'=2] {'x'}", ((0, 2), (1, 3))),
        ("mesh['x'=2,'y'=2] {'x','y'}", ((0, 1, 2, 3),)),
        # the mesh's order is the transposed count 0 2 1 3: x runs over rows (0 2) and (1 3)
        ("mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'y'}", ((0, 2), (1, 3))),
        # the upper half of an axis of 4: pairs two apart
        ("mesh['x'=4] {'x':(1)2}", ((0, 2), (1, 3))),
        ("mesh['x'=4] {'x':(2)2}", ((0, 1), (2, 3))),
        ("{}", ((0, 1, 2, 3),)),
    ],
)
def test_groups_in_every_notation(text: str, groups: tuple[tuple[int, ...], ...]) -> None:
    assert parse_groups(text, 4) == groups


@given(st.permutations(range(3)), st.integers(1, 3))
def test_the_same_group_in_mesh_and_iota_notation(order: list[int], inner: int) -> None:
    """A transposed iota and a mesh whose device order is that transpose name the same groups."""
    dims = [2, 4, 2]
    shape = [dims[axis] for axis in order]
    last = shape[-1]
    iota = f"[{16 // last},{last}]<=[2,4,2]T({','.join(map(str, order))})"
    axes = ",".join(f"'a{i}'={size}" for i, size in enumerate(shape))
    mesh = f"mesh[{axes}], device_ids=([2,4,2]T({','.join(map(str, order))})) {{'a2'}}"
    assert parse_groups(iota, 16) == parse_groups(mesh, 16)


@pytest.mark.parametrize(
    ("group", "axis"),
    [
        ((0, 1), "tp"),
        ((0, 2), "fsdp"),
        ((0, 4), "dp"),
        ((0, 1, 2, 3), "fsdp+tp"),
        ((0, 1, 4, 5), "dp+tp"),
        ((0, 3), "irregular"),
        ((0,), ""),
    ],
)
def test_the_axis_a_group_runs_over(group: tuple[int, ...], axis: str) -> None:
    assert MESH.over((group,)) == axis
