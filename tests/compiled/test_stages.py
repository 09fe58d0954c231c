"""Collectives over several slices: inside a slice and between slices, worked by hand."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.compiled.expected import expected
from chipshift.compiled.hlo.collectives import read_collectives
from chipshift.compiled.hlo.groups import MeshAxes
from chipshift.compiled.hlo.module import parse
from chipshift.compiled.stages import gathered, over, scattered, summed, vector_summed
from chipshift.compiled.step.config import Block, Config
from chipshift.fabric.lowering import Slice

BLOCK = Block(heads=4, kv_heads=4, head_dim=64, v_head_dim=64, mlp_width=512)


def plan(mesh: tuple[int, int, int, int, int], slices: int) -> Config:
    return Config(256, 512, (((BLOCK,), 1),), mesh, 256, prod(mesh), slices=slices)


def test_a_sum_over_eight_devices_of_two_slices() -> None:
    """800 B: scattered over four devices 600 B, their 200 B summed between slices, gathered 600 B;
    together 1,400 B, what an all-reduce over eight sends (2 x 7/8 x 800)."""
    where = over(plan((8, 1, 1, 1, 1), 2), ("dp",))
    assert summed(where, 800) == {
        ("reduce_scatter", "dp/part"): 600,
        ("all_reduce", "dp"): 200,
        ("all_gather", "dp/part"): 600,
    }


def test_a_gather_and_a_scatter_over_the_same_devices() -> None:
    """A part of 100 B goes to the other slice, then three quarters of 800 B inside; a scatter sends
    600 B inside and half of the 200 B that are left to the other slice."""
    where = over(plan((8, 1, 1, 1, 1), 2), ("dp",))
    assert gathered(where, 800, None) == {("all_gather", "dp"): 100, ("all_gather", "dp/part"): 600}
    assert scattered(where, 800, by_sum=False) == {
        ("reduce_scatter", "dp/part"): 600,
        ("reduce_scatter", "dp"): 100,
    }


def test_a_vector_is_summed_whole_inside_and_between() -> None:
    where = over(plan((2, 4, 1, 1, 1), 2), ("dp", "fsdp"))
    assert vector_summed(where, 80) == {("all_reduce", "fsdp"): 120, ("all_reduce", "dp"): 80}


def test_an_axis_of_one_device_a_slice_leaves_none_inside() -> None:
    where = over(plan((2, 4, 1, 1, 1), 2), ("dp",))
    assert (where.inside, where.in_stages) == ("", False)
    assert summed(where, 80) == {("all_reduce", "dp"): 80}


def test_dp_crosses_slices_before_fsdp_does() -> None:
    assert over(plan((4, 8, 1, 1, 1), 2), ("fsdp",)).slices == 1
    assert over(plan((1, 8, 1, 2, 1), 2), ("fsdp", "cp")).inside == "fsdp+cp/part"


@given(inside=st.sampled_from([1, 2, 4, 8]), cp=st.sampled_from([1, 2]), held=st.floats(1.0, 1e12))
def test_stages_of_two_slices_send_what_one_collective_over_all_devices_sends(
    inside: int, cp: int, held: float
) -> None:
    two, one = (over(plan((2 * inside, 1, 1, cp, 1), s), ("dp", "cp")) for s in (2, 1))
    for a, b in (
        (summed(two, held), summed(one, held)),
        (gathered(two, held, None), gathered(one, held, None)),
        (scattered(two, held, by_sum=False), scattered(one, held, by_sum=False)),
    ):
        assert sum(a.values()) == pytest.approx(sum(b.values()))


def test_a_sharded_optimizers_scatter_over_slices_is_gathered_whole_again() -> None:
    """libtpu sums all of it: as much is gathered inside a slice as was scattered, and twice as much
    goes between slices."""
    cfg = replace(plan((4, 2, 1, 1, 1), 2), zero=True)
    asked, sent = expected(cfg), expected(cfg, Slice("v6e", (2, 2), 4, layouts=False))
    again = sent["all_gather", "dp/part"] - asked["all_gather", "dp/part"]
    assert again == pytest.approx(asked["reduce_scatter", "dp/part"])
    between = sent["all_reduce", "dp"] - asked["all_reduce", "dp"]
    assert between == pytest.approx(2 * asked["reduce_scatter", "dp"])


TO_OTHERS = (
    'channel_id=1, is_host_transfer=true, frontend_attributes={_xla_host_transfer_rendezvous="s_0",'
    '_xla_megascale_target="{1,2}x{0:3}",_xla_megascale_transfer_type="ALL_REDUCE"}'
)


def program(last: str) -> str:
    """A sum of bf16[16,8] over two slices of four devices, in stages; then ``last`` of it."""
    groups = "replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}"
    return f"""HloModule jit_step

%add (a: bf16[], b: bf16[]) -> bf16[] {{
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %sum = bf16[] add(%a, %b)
}}

ENTRY %main (x: bf16[16,8], i: s32[]) -> bf16[] {{
  %x = bf16[16,8]{{1,0}} parameter(0)
  %i = s32[] parameter(1)
  %o = s32[] constant(0)
  %t = token[] after-all()
  %cut = bf16[4,8]{{1,0}} reduce-scatter(%x), {groups}, to_apply=%add
  %send = (bf16[4,8]{{1,0}}, u32[], token[]) send(%cut, %t), {TO_OTHERS}
  %recv = (bf16[4,8]{{1,0}}, u32[], token[]) recv(%t), {TO_OTHERS}
  %here = (bf16[4,8]{{1,0}}, token[]) recv-done(%recv), channel_id=1
  %got = bf16[4,8]{{1,0}} get-tuple-element(%here), index=0
  %all = bf16[16,8]{{1,0}} all-gather(%got), {groups}
{last}
}}
"""


EIGHT = MeshAxes(("dp",), (8,))


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("{1,2}x{0:3}", "megascale {1,2}x{0:3}"),
        # every device of an all-to-all, by slice and number: nothing for a reader
        ("{{100000,100001},{200000,200001}}", "megascale"),
    ],
)
def test_between_slices_the_groups_are_named_where_they_are_short(target: str, said: str) -> None:
    text = program("  ROOT %y = bf16[16,8]{1,0} negate(%all)").replace("{1,2}x{0:3}", target)
    (sent,) = [one for one in read_collectives(parse(text), EIGHT) if one.axis == "dcn"]
    assert sent.algorithm == said


def test_a_sum_over_slices_that_is_used_whole() -> None:
    found = read_collectives(parse(program("  ROOT %y = bf16[16,8]{1,0} negate(%all)")), EIGHT)
    assert {(one.kind, one.axis): (one.bytes, one.own) for one in found} == {
        ("reduce_scatter", "dp/part"): (192, 192),  # 3/4 of 16 x 8 x 2 B
        ("all_reduce", "dcn"): (64, 64),
        ("all_gather", "dp/part"): (192, 192),
    }


def test_a_sum_over_slices_of_which_each_device_keeps_an_eighth_does_a_scatters_work() -> None:
    part = "dynamic-slice(%all, %i, %o), dynamic_slice_sizes={2,8}"
    found = read_collectives(parse(program(f"  ROOT %y = bf16[2,8]{{1,0}} {part}")), EIGHT)
    spent = {(one.kind, one.axis): (one.own, one.instead) for one in found}
    assert spent["all_reduce", "dcn"] == (0, (("reduce_scatter", "dcn", 64),))
    assert spent["all_gather", "dp/part"] == (0, ())
    assert spent["reduce_scatter", "dp/part"] == (192, ())


def test_tiles_padded_for_the_way_between_slices_are_inserted() -> None:
    """Rows of 8 handed over as 16: of 128 B half are padding."""
    text = program("  ROOT %y = bf16[16,8]{1,0} negate(%all)")
    crop = 'custom-call(%cut), custom_call_target="ZeroCrop"'
    text = text.replace("  %send =", f"  %whole = bf16[4,16]{{1,0}} {crop}\n  %send =")
    text = text.replace("(bf16[4,8]{1,0}, u32[], token[]) send(%cut", SENT_WHOLE)
    (sent,) = [one for one in read_collectives(parse(text), EIGHT) if one.axis == "dcn"]
    assert (sent.bytes, sent.inserted, sent.why, sent.own) == (128, 64, "padding", 64)


SENT_WHOLE = "(bf16[4,16]{1,0}, u32[], token[]) send(%whole"
