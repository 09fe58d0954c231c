"""Where mesh axes land: JAX's own cases, ranks on domains of GPUs, slices over DCN."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.errors import InputError
from chipshift.fabric import assign, collective_time, group, links, subgroup
from chipshift.fabric.jax_mesh import assign_torus
from chipshift.machines.names import parse_machine


def where(machine, mesh):
    """Axis -> its pieces as (physical axis, size, stride), outermost first."""
    placed = assign(parse_machine(machine), mesh)
    return {
        name: [(p.axis, p.size, p.stride) for p in one.segments] for name, one in placed.items()
    }


@pytest.mark.parametrize(
    ("axes", "mesh", "whole"),
    [
        # From JAX's own tests of create_device_mesh: which physical axes each mesh axis gets.
        ((2, 2, 1), (1, 1, 4), [(), (), (0, 1)]),
        ((2, 2, 4), (1, 4, 4), [(), (2,), (0, 1)]),
        ((4, 4, 4), (1, 16, 4), [(), (1, 2), (0,)]),
        ((4, 4, 8), (1, 16, 8), [(), (0, 1), (2,)]),
        ((4, 4, 8), (1, 8, 16), [(), (2,), (0, 1)]),
        ((4, 4, 8), (16, 8, 1), [(0, 1), (2,), ()]),
        ((4, 8, 8), (1, 32, 8), [(), (0, 2), (1,)]),
        ((8, 8, 8), (1, 64, 8), [(), (1, 2), (0,)]),
        ((8, 8, 16), (1, 64, 16), [(), (0, 1), (2,)]),
    ],
)
def test_whole_axes_as_jax_gives_them(axes, mesh, whole):
    matrix = assign_torus(axes, mesh)
    for index, chosen in enumerate(whole):
        column = [row[index] for row in matrix]
        assert column == [size if at in chosen else 1 for at, size in enumerate(axes)]


@pytest.mark.parametrize(
    ("axes", "mesh", "matrix"),
    [
        # 4x4 into 2x2x4: the last takes x whole, the two others halve y.
        ((4, 4), (2, 2, 4), ((1, 1, 4), (2, 2, 1))),
        # 8x8 into 2x2x16: 16 = 8 × 2 beats 4 × 4 (a whole axis), and 2x2 share what is left of y.
        ((8, 8), (2, 2, 16), ((1, 1, 8), (2, 2, 2))),
    ],
)
def test_split_axes_as_jax_gives_them(axes, mesh, matrix):
    assert assign_torus(axes, mesh) == matrix


def test_v6e_pod():
    assert where("v6e:16x16", {"fsdp": 16, "tp": 16}) == {
        "fsdp": [("y", 16, 1)],
        "tp": [("x", 16, 1)],
    }
    assert where("v6e:16x16", {"fsdp": 256}) == {"fsdp": [("x", 16, 1), ("y", 16, 1)]}


def test_the_later_axis_of_a_split_is_contiguous_and_the_earlier_strided():
    placed = assign(parse_machine("v6e:16x16"), {"fsdp": 64, "tp": 4})
    tp, fsdp = placed["tp"], placed["fsdp"]
    assert [(p.axis, p.size, p.stride, p.wraps) for p in tp.segments] == [("x", 4, 1, False)]
    assert [(p.axis, p.size, p.stride, p.wraps) for p in fsdp.segments] == [
        ("x", 4, 4, True),
        ("y", 16, 1, True),
    ]
    assert tp.split and fsdp.split
    assert "one port instead of two" in tp.note
    assert "4 groups share" in fsdp.note


def test_v7x_cube_has_a_core_axis_last():
    # 4x4x4 chips are 128 devices: (32, 4) gives tp one whole torus axis, as JAX's 4-D mesh does.
    assert where("v7x:4x4x4", {"fsdp": 32, "tp": 4}) == {
        "fsdp": [("y", 4, 1), ("z", 4, 1), ("core", 2, 1)],
        "tp": [("x", 4, 1)],
    }
    assert where("v7x:4x4x4", {"fsdp": 64, "tp": 2})["tp"] == [("core", 2, 1)]
    assert where("v7x:4x4x4", {"fsdp": 16, "tp": 8})["tp"] == [("x", 4, 1), ("core", 2, 1)]


def test_v7x_rings_of_eight():
    # JAX walks 0,1,2,3,6,7,4,5: mesh (2, 4) is [0,1,2,3] and [6,7,4,5]: both devices of two
    # chips that are neighbours in x; (4, 8) on 2x2x4 is a ring of eight in each layer of z.
    assert where("v7x:2x2x1", {"a": 2, "b": 4}) == {
        "a": [("y", 2, 1)],
        "b": [("x", 2, 1), ("core", 2, 1)],
    }
    assert where("v7x:2x2x4", {"a": 4, "b": 8}) == {
        "a": [("z", 4, 1)],
        "b": [("y", 2, 1), ("x", 2, 1), ("core", 2, 1)],
    }


def test_a_2x4_of_v6e_is_walked_as_a_ring():
    # Order 0,1,2,3,7,6,5,4: pieces of 4 are the long axis, pieces of 2 are neighbours along it.
    assert where("v6e:2x4", {"fsdp": 2, "tp": 4}) == {
        "fsdp": [("x", 2, 1)],
        "tp": [("y", 4, 1)],
    }
    assert where("v6e:2x4", {"fsdp": 4, "tp": 2})["tp"] == [("y", 2, 1)]


def test_gpus_fill_the_domain_from_the_last_axis():
    assert where("h100*128", {"dp": 4, "fsdp": 8, "tp": 4}) == {
        "dp": [("net", 4, 4)],
        "fsdp": [("net", 4, 1), ("nvlink", 2, 4)],
        "tp": [("nvlink", 4, 1)],
    }
    assert where("h100*128", {"pp": 2, "fsdp": 64}) == {
        "pp": [("net", 2, 8)],
        "fsdp": [("net", 8, 1), ("nvlink", 8, 1)],
    }


def test_a_group_that_does_not_fill_its_domains_is_marked():
    placed = assign(parse_machine("gb200:72x2"), {"dp": 9, "tp": 16})
    assert placed["tp"].split
    assert "straddles" in placed["tp"].note


def test_the_first_axes_cross_the_data_centre_network():
    # dp takes the 4 slices and 2 of each; in a slice fsdp prefers y whole and 2 of x, which tp
    # already uses in pieces of 4.
    assert where("v6e:16x16*4", {"dp": 8, "fsdp": 32, "tp": 4}) == {
        "dp": [("slice", 4, 1), ("x", 2, 8)],
        "fsdp": [("x", 2, 4), ("y", 16, 1)],
        "tp": [("x", 4, 1)],
    }


def test_pieces_of_one_axis_join_again_in_a_group():
    placed = assign(parse_machine("v6e:16x16"), {"fsdp": 64, "tp": 4})
    both = group(placed, ("fsdp", "tp"))
    assert both.size == 256 and not both.split
    assert {(p.axis, p.size, p.stride, p.wraps) for p in both.segments} == {
        ("x", 16, 1, True),
        ("y", 16, 1, True),
    }


def test_a_subgroup_is_the_innermost_part():
    placed = assign(parse_machine("h100*128"), {"fsdp": 128})["fsdp"]
    part = subgroup(placed, 16)
    assert [(p.axis, p.size) for p in part.segments] == [("net", 2), ("nvlink", 8)]
    assert subgroup(placed, 4).segments[0].axis == "nvlink"
    torus = assign(parse_machine("v6e:16x16"), {"fsdp": 256})["fsdp"]
    assert [(p.axis, p.size, p.wraps) for p in subgroup(torus, 8).segments] == [("y", 8, False)]
    with pytest.raises(InputError, match="no part of 3"):
        subgroup(torus, 3)


def test_a_mesh_of_the_wrong_size_is_one_clear_sentence():
    with pytest.raises(InputError, match=r"fsdp=8,tp=4 has 32 devices, but v6e:4x4 has 16"):
        assign(parse_machine("v6e:4x4"), {"fsdp": 8, "tp": 4})
    with pytest.raises(InputError):
        assign(parse_machine("v6e:4x4"), {"fsdp": -4, "tp": -4})


MACHINES = ["h100*96", "gb200:72x4", "mi300x*64", "v5e:8x16", "v6e:2x4", "v6e:16x16*6",
            "v7x:2x2x2", "v7x:4x4x8", "v5p:4x4x12", "trn2:4x4", "trn1:4x4*4"]  # fmt: skip


@given(st.data())
def test_every_product_is_placed_and_covers_the_machine(data):
    machine = parse_machine(data.draw(st.sampled_from(MACHINES)))
    left, mesh = machine.devices, {}
    for name in ("pp", "dp", "fsdp", "tp"):
        divisors = [d for d in range(1, left + 1) if left % d == 0]
        mesh[name] = data.draw(st.sampled_from(divisors))
        left //= mesh[name]
    mesh["rest"] = left
    placed = assign(machine, mesh)
    for name, size in mesh.items():
        assert placed[name].size == size == math.prod(p.size for p in placed[name].segments)
    everything = group(placed, tuple(mesh))
    assert everything.size == machine.devices
    assert not everything.split
    assert all(piece.whole for piece in everything.segments)


def on_rings(machine, mesh, rings):
    placed = assign(parse_machine(machine), mesh, rings)
    return {
        name: [(p.axis, p.size, p.stride) for p in one.segments] for name, one in placed.items()
    }


def test_rings_of_maxtexts_custom_meshes() -> None:
    # reshape_mesh_to_rings: blocks of 2 × 2 or 2 × 4 walked round, 8 × 8 or 8 × 4 of them by rows
    assert on_rings("v6e:16x16", {"fsdp": 64, "tp": 4}, 4) == {
        "fsdp": [("x", 8, 2), ("y", 8, 2)],
        "tp": [("x", 2, 1), ("y", 2, 1)],
    }
    assert on_rings("v6e:16x16*2", {"dp": 2, "fsdp": 32, "tp": 8}, 8) == {
        "dp": [("slice", 2, 1)],
        "fsdp": [("x", 8, 2), ("y", 4, 4)],
        "tp": [("x", 2, 1), ("y", 4, 1)],
    }


def test_a_ring_of_four_gathers_twice_as_fast_as_a_line_of_four() -> None:
    # a corner of a 2 × 2 block has a link to each neighbour, the end of a line has one in all
    machine = parse_machine("v6e:16x16")
    line, ring = (assign(machine, {"fsdp": 64, "tp": 4}, rings)["tp"] for rings in (0, 4))
    gathers = [collective_time("all_gather", 1e9, links(machine, one)) for one in (line, ring)]
    assert gathers[0] == pytest.approx(2 * gathers[1], rel=1e-6)


@pytest.mark.parametrize(
    ("machine", "mesh"),
    [("v6e:8x8", {"fsdp": 16, "tp": 4}), ("v6e:16x16", {"fsdp": 128, "tp": 2}),
     ("v6e:16x16", {"dp": 8, "fsdp": 8, "tp": 4})],
)  # fmt: skip
def test_rings_that_a_slice_or_a_mesh_has_no_place_for(machine, mesh) -> None:
    with pytest.raises(InputError, match="rings of 2 x 2 chips stand on slices of 16x16"):
        assign(parse_machine(machine), mesh, 4)
