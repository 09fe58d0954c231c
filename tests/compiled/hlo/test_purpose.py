"""What a collective is for: sent bytes, all-reduces that do other work, what was put in."""

from __future__ import annotations

import pytest

from chipshift.compiled.hlo.collective import by_axis
from chipshift.compiled.hlo.collectives import read_collectives
from chipshift.compiled.hlo.groups import MeshAxes
from chipshift.compiled.hlo.module import parse
from chipshift.compiled.hlo.purpose import sent_bytes


@pytest.mark.parametrize(
    ("kind", "operand", "sent"),
    [
        # of 4 devices with 100 B each: an all-gather sends its 100 B to 3 others
        ("all_gather", 100, 300),
        # 400 B in, each keeps a quarter: 3/4 of 400 sent
        ("reduce_scatter", 400, 300),
        ("all_reduce", 400, 600),
        ("all_to_all", 400, 300),
        ("permute", 100, 100),
    ],
)
def test_bytes_that_one_of_four_devices_sends(kind: str, operand: int, sent: float) -> None:
    assert sent_bytes(kind, operand, 4) == sent


def program(lines: str, result: str = "bf16[16,8]", more: str = "") -> str:
    return f"""HloModule jit_step

%add (a: bf16[], b: bf16[]) -> bf16[] {{
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %sum = bf16[] add(%a, %b)
}}
{more}
ENTRY %main (x: bf16[16,8], p: bf16[4,8], i: s32[]) -> {result} {{
  %x = bf16[16,8]{{1,0}} parameter(0)
  %p = bf16[4,8]{{1,0}} parameter(1)
  %i = s32[] parameter(2)
  %o = s32[] constant(0)
{lines}
}}
"""


FOUR = MeshAxes(("fsdp",), (4,))


SUM = "replica_groups={{0,1,2,3}}, to_apply=%add"


def test_an_all_reduce_of_which_a_part_is_kept_does_a_reduce_scatters_work() -> None:
    """16 x 8 x 2 = 256 B: 2 x 3/4 of it sent, where 3/4 would do."""
    text = program(f"""  %all = bf16[16,8]{{1,0}} all-reduce(%x), {SUM}
  %same = bf16[16,8]{{1,0}} copy(%all)
  ROOT %part = bf16[4,8]{{1,0}} dynamic-slice(%same, %i, %o), dynamic_slice_sizes={{4,8}}""")
    (one,) = read_collectives(parse(text), FOUR)
    assert (one.kind, one.bytes, one.own) == ("all_reduce", 384, 0)
    assert one.instead == (("reduce_scatter", "fsdp", 192),)


def test_a_part_kept_inside_a_fusion_counts_and_a_second_use_of_the_whole_does_not() -> None:
    more = """
%cuts (whole: bf16[16,8], at: s32[]) -> bf16[4,8] {
  %whole = bf16[16,8]{1,0} parameter(0)
  %at = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %cut = bf16[4,8]{1,0} dynamic-slice(%whole, %at, %zero), dynamic_slice_sizes={4,8}
}
"""
    lines = f"""  %all = bf16[16,8]{{1,0}} all-reduce(%x), {SUM}
  ROOT %part = bf16[4,8]{{1,0}} fusion(%all, %i), kind=kLoop, calls=%cuts"""
    (one,) = read_collectives(parse(program(lines, more=more)), FOUR)
    assert one.instead == (("reduce_scatter", "fsdp", 192),)
    lines = lines.replace("ROOT ", "") + "\n  ROOT %twice = bf16[16,8]{1,0} add(%all, %all)"
    (one,) = read_collectives(parse(program(lines, more=more)), FOUR)
    assert (one.instead, one.own) == ((), 384)


def test_an_all_reduce_over_two_axes_of_which_a_part_is_kept_is_a_scatter_and_a_sum() -> None:
    """dp=2 x fsdp=4: 256 B scattered over 4 (192 B), and a quarter of it summed over 2
    (2 x 1/2 x 64 B), done by 2 x 7/8 x 256 B."""
    lines = """  %all = bf16[16,8]{1,0} all-reduce(%x), replica_groups={}, to_apply=%add
  ROOT %part = bf16[4,8]{1,0} dynamic-slice(%all, %i, %o), dynamic_slice_sizes={4,8}"""
    (one,) = read_collectives(parse(program(lines)), MeshAxes(("dp", "fsdp"), (2, 4)))
    assert (one.axis, one.bytes, one.own) == ("dp+fsdp", 448, 0)
    assert one.instead == (("reduce_scatter", "fsdp", 192), ("all_reduce", "dp", 64))


def test_an_all_reduce_of_zeros_around_a_part_does_an_all_gathers_work() -> None:
    lines = f"""  %zero = bf16[] constant(0)
  %zeros = bf16[16,8]{{1,0}} broadcast(%zero), dimensions={{}}
  %own = bf16[16,8]{{1,0}} dynamic-update-slice(%zeros, %p, %i, %o)
  ROOT %all = bf16[16,8]{{1,0}} all-reduce(%own), {SUM}"""
    (one,) = read_collectives(parse(program(lines)), FOUR)
    assert one.instead == (("all_gather", "fsdp", 192),)


def test_parts_that_several_devices_have_are_summed_not_gathered() -> None:
    """Of 4 devices each writes 8 of 16 rows, so that two write the same: their rows add up."""
    lines = f"""  %zero = bf16[] constant(0)
  %zeros = bf16[16,8]{{1,0}} broadcast(%zero), dimensions={{}}
  %p2 = bf16[8,8]{{1,0}} concatenate(%p, %p), dimensions={{0}}
  %own = bf16[16,8]{{1,0}} dynamic-update-slice(%zeros, %p2, %i, %o)
  ROOT %all = bf16[16,8]{{1,0}} all-reduce(%own), {SUM}"""
    (one,) = read_collectives(parse(program(lines)), FOUR)
    assert (one.instead, one.own) == ((), 384)


@pytest.mark.parametrize(("named", "own"), [(', metadata={op_name="gather"}', 192), ("", 0)])
def test_a_gather_of_which_a_part_is_used_is_a_sums_last_stage_unless_the_program_asks_for_it(
    named: str, own: float
) -> None:
    """16 x 8 x 2 = 256 B gathered, 3/4 of it sent; then 2 of its 16 rows are used, of which each
    device had 4: fewer key heads than tp devices are gathered and one of them taken."""
    groups = "replica_groups={{0,1,2,3}}, dimensions={0}" + named
    lines = f"""  %all = bf16[16,8]{{1,0}} all-gather(%p), {groups}
  ROOT %part = bf16[2,8]{{1,0}} dynamic-slice(%all, %i, %o), dynamic_slice_sizes={{2,8}}"""
    (one,) = read_collectives(parse(program(lines, "bf16[2,8]")), FOUR)
    assert (one.bytes, one.own) == (192, own)


def test_each_array_of_one_all_reduce_does_its_own_work() -> None:
    """Of zeros around a part a gather, in the type that comes out (16 x 8 x 2 = 256 B, 3/4 of it,
    though 512 B of fp32 are sent); of one used in parts a scatter; of one used whole a sum."""
    lines = f"""  %zero = f32[] constant(0)
  %zeros = f32[16,8]{{1,0}} broadcast(%zero), dimensions={{}}
  %f = f32[4,8]{{1,0}} convert(%p)
  %own = f32[16,8]{{1,0}} dynamic-update-slice(%zeros, %f, %i, %o)
  %all = (bf16[16,8]{{1,0}}, bf16[16,8]{{1,0}}, bf16[4,8]{{1,0}}) all-reduce(%own, %x, %p), {SUM}
  %whole = bf16[16,8]{{1,0}} get-tuple-element(%all), index=0
  %sum = bf16[16,8]{{1,0}} get-tuple-element(%all), index=1
  %part = bf16[4,8]{{1,0}} dynamic-slice(%sum, %i, %o), dynamic_slice_sizes={{4,8}}
  %used = bf16[4,8]{{1,0}} get-tuple-element(%all), index=2
  ROOT %end = (bf16[16,8]{{1,0}}, bf16[4,8]{{1,0}}, bf16[4,8]{{1,0}}) tuple(%whole, %part, %used)"""
    (one,) = read_collectives(parse(program(lines, "(bf16[16,8], bf16[4,8], bf16[4,8])")), FOUR)
    assert one.bytes == 2 * 3 / 4 * (512 + 256 + 64)
    assert one.instead == (("all_gather", "fsdp", 192), ("reduce_scatter", "fsdp", 192))
    assert one.own == 2 * 3 / 4 * 64


def test_a_gather_that_the_compiler_made_again_is_inserted_and_one_of_them_is_not() -> None:
    groups = "replica_groups={{0,1,2,3}}, dimensions={0}"
    lines = f"""  %g.1 = bf16[16,8]{{1,0}} all-gather(%p), {groups}
  %g.1.remat = bf16[16,8]{{1,0}} all-gather(%p), {groups}
  %g.1.remat2 = bf16[16,8]{{1,0}} all-gather(%p), {groups}
  %h.remat = bf16[16,8]{{1,0}} all-gather(%p), {groups}
  ROOT %end = bf16[16,8]{{1,0}} copy(%x)"""
    (one,) = by_axis(read_collectives(parse(program(lines)), FOUR))
    # four gathers of 192 B; %h itself is gone, so that its copy stands for it
    assert (one.bytes, one.inserted, one.own) == (768, 384, 384)


def test_padding_of_a_reduce_scatter_and_the_permutes_after_it_are_inserted() -> None:
    """16 rows padded to 20: 3/4 of 4 x 8 x 2 = 64 B more; then a row of 16 B is passed on."""
    more = """
%all-reduce-scatter (input: bf16[16,8]) -> bf16[5,8] {
  %input = bf16[16,8]{1,0} parameter(0)
  %nought = bf16[] constant(0)
  %pad = bf16[20,8]{1,0} pad(%input, %nought), padding=0_4x0_0
  %all = bf16[20,8]{1,0} all-reduce(%pad), replica_groups={{0,1,2,3}}, to_apply=%add
  %zero = s32[] constant(0)
  ROOT %part = bf16[5,8]{1,0} dynamic-slice(%all, %zero, %zero), dynamic_slice_sizes={5,8}
}
"""
    lines = """  %part = bf16[5,8]{1,0} fusion(%x), kind=kCustom, calls=%all-reduce-scatter
  %row = bf16[1,8]{1,0} slice(%part), slice={[4:5], [0:8]}
  ROOT %moved = bf16[1,8]{1,0} collective-permute(%row), source_target_pairs={{0,1},{1,2},{2,3}}"""
    found = read_collectives(parse(program(lines, more=more)), FOUR)
    scatter, permute = (
        next(c for c in found if c.kind == k) for k in ("reduce_scatter", "permute")
    )
    assert (scatter.bytes, scatter.inserted, scatter.why) == (240, 48, "padding")
    assert (permute.bytes, permute.inserted, permute.why) == (16, 16, "evened out")
