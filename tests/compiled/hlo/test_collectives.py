"""Collectives of a program: how often, over which axis, bytes, line, and what runs beside."""

from __future__ import annotations

from chipshift.compiled.hlo.collective import by_axis
from chipshift.compiled.hlo.collectives import read_collectives
from chipshift.compiled.hlo.groups import MeshAxes
from chipshift.compiled.hlo.loops import multiplicities
from chipshift.compiled.hlo.module import parse

MESH = MeshAxes(("dp", "fsdp", "tp"), (2, 2, 2))


PROGRAM = """HloModule jit_step, is_scheduled=true

FileNames
1 "/home/me/train.py"

FunctionNames
1 "layer"

FileLocations
1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=1 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%condition (p: (s32[], bf16[8,128])) -> pred[] {
  %p = (s32[], bf16[8,128]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %limit = s32[] constant(13)
  ROOT %less = pred[] compare(%i, %limit), direction=LT
}

%body (q: (s32[], bf16[8,128])) -> (s32[], bf16[8,128]) {
  %q = (s32[], bf16[8,128]{1,0}) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %x = bf16[8,128]{1,0} get-tuple-element(%q), index=1
  %step = s32[] constant(3)
  %next = s32[] add(%j, %step)
  %gathered = bf16[16,128]{1,0} all-gather(%x), replica_groups=[4,2]<=[2,2,2]T(0,2,1), dimensions={0}, metadata={op_name="jit(step)/while/body/gather" stack_frame_id=1}
  %reduced = bf16[8,128]{1,0} all-reduce(%x), replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}, to_apply=%add
  ROOT %out = (s32[], bf16[8,128]{1,0}) tuple(%next, %x)
}

%all-reduce-scatter (input: f32[64,8]) -> f32[32,8] {
  %input = f32[64,8]{1,0} parameter(0)
  %all = f32[64,8]{1,0} all-reduce(%input), replica_groups={{0,4},{1,5},{2,6},{3,7}}, to_apply=%add
  %zero = u32[] constant(0)
  ROOT %part = f32[32,8]{1,0} dynamic-slice(%all, %zero, %zero), dynamic_slice_sizes={32,8}
}

ENTRY %main (x.1: bf16[8,128], g: f32[64,8]) -> f32[32,8] {
  %x.1 = bf16[8,128]{1,0} parameter(0)
  %g = f32[64,8]{1,0} parameter(1)
  %start = s32[] constant(1)
  %enter = (s32[], bf16[8,128]{1,0}) tuple(%start, %x.1)
  %loop = (s32[], bf16[8,128]{1,0}) while(%enter), condition=%condition, body=%body
  %moved = bf16[8,128]{1,0} collective-permute(%x.1), source_target_pairs={{0,1},{1,0},{2,3},{3,2},{4,5},{5,4},{6,7},{7,6}}
  ROOT %scattered = f32[32,8]{1,0} fusion(%g), kind=kCustom, calls=%all-reduce-scatter, metadata={op_name="jit(step)/grad" stack_frame_id=1}
}
"""  # noqa: E501


def test_a_loop_from_1_below_13_by_3_runs_4_times() -> None:
    times = multiplicities(parse(PROGRAM))
    assert times["body"] == 4
    assert times["all-reduce-scatter"] == 1
    assert "add" not in times


def test_collectives_with_axis_times_bytes_and_source() -> None:
    found = {c.kind: c for c in by_axis(read_collectives(parse(PROGRAM), MESH))}
    assert set(found) == {"all_gather", "reduce_scatter", "permute"}  # alone groups move nothing
    gather = found["all_gather"]
    # 8 x 128 x 2 B = 2,048 B to the one other device of the pair, four times
    assert (gather.axis, gather.group, gather.count, gather.bytes) == ("fsdp", 2, 4, 8192)
    assert gather.source == ("/home/me/train.py", 12)
    scatter = found["reduce_scatter"]
    # libtpu's fused form: 64 x 8 x 4 B = 2,048 B, half of it sent; the line is the fusion's
    assert scatter.source == ("/home/me/train.py", 12)
    assert (scatter.axis, scatter.count, scatter.bytes) == ("dp", 1, 1024)
    assert (found["permute"].axis, found["permute"].bytes) == ("tp", 2048)


OFFLOADED = """HloModule jit_step

%gather (x: bf16[4,8]) -> bf16[16,8] {
  %x = bf16[4,8]{1,0} parameter(0)
  ROOT %all = bf16[16,8]{1,0} all-gather(%x), replica_groups={{0,1,2,3}}, dimensions={0}
}

%aside (v: bf16[4,8]) -> bf16[16,8] {
  %v = bf16[4,8]{1,0} parameter(0)
  ROOT %inner = bf16[16,8]{1,0} call(%v), to_apply=%gather
}

%product (a: bf16[4,8], b: bf16[8,8]) -> bf16[4,8] {
  %a = bf16[4,8]{1,0} parameter(0)
  %b = bf16[8,8]{1,0} parameter(1)
  ROOT %c = bf16[4,8]{1,0} convolution(%a, %b), dim_labels=bf_io->bf
}

ENTRY %main (w: bf16[4,8], u: bf16[8,8]) -> bf16[16,8] {
  %w = bf16[4,8]{1,0} parameter(0)
  %u = bf16[8,8]{1,0} parameter(1)
  %begin = ((bf16[4,8]{1,0}), bf16[16,8]{1,0}) call-start(%w), async_execution_thread="sparsecore", to_apply=%aside
  %meanwhile = bf16[4,8]{1,0} fusion(%w, %u), kind=kOutput, calls=%product
  ROOT %end = bf16[16,8]{1,0} call-done(%begin), async_execution_thread="sparsecore", to_apply=%aside
}
"""  # noqa: E501


def test_a_collective_on_the_sparse_cores_counts_once_and_is_overlapped_by_matmuls_alone() -> None:
    """4 x 8 x 2 = 64 B to each of three others, in a computation inside the one that is started."""
    (one,) = read_collectives(parse(OFFLOADED), MeshAxes(("fsdp",), (4,)))
    assert (one.kind, one.count, one.bytes, one.overlapped) == ("all_gather", 1, 192, True)
    waiting = OFFLOADED.replace("  %c = bf16[4,8]{1,0} convolution(%a, %b), dim_labels=bf_io->bf",
                                "  %c = bf16[4,8]{1,0} add(%a, %a)")  # fmt: skip
    waiting = waiting.replace("ROOT %c = bf16[4,8]{1,0} convolution(%a, %b), dim_labels=bf_io->bf",
                              "ROOT %c = bf16[4,8]{1,0} add(%a, %a)")  # fmt: skip
    (one,) = read_collectives(parse(waiting), MeshAxes(("fsdp",), (4,)))
    assert one.overlapped is False


ASYNCHRONOUS = """HloModule jit_step

%begins (x: bf16[4,8]) -> (bf16[4,8], bf16[16,8]) {
  %x = bf16[4,8]{1,0} parameter(0)
  %all.1 = bf16[16,8]{1,0} all-gather(%x), channel_id=7, replica_groups={{0,1,2,3}}, dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %call.1 = (bf16[4,8]{1,0}, bf16[16,8]{1,0}) custom-call(%all.1), custom_call_target="AsyncCollectiveStart"
}

%async_collective_fusion (y: bf16[4,8], z: bf16[8,8]) -> (bf16[4,8], bf16[16,8]) {
  %y = bf16[4,8]{1,0} parameter(0)
  %z = bf16[8,8]{1,0} parameter(1)
  %c = bf16[4,8]{1,0} convolution(%y, %z), dim_labels=bf_io->bf
  %all.2 = bf16[16,8]{1,0} all-gather(%y), channel_id=7, replica_groups={{0,1,2,3}}, dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %t = (bf16[4,8]{1,0}, bf16[16,8]{1,0}) tuple(%c, %all.2)
}

%ends (w: bf16[4,8]) -> bf16[16,8] {
  %w = bf16[4,8]{1,0} parameter(0)
  %all.3 = bf16[16,8]{1,0} all-gather(%w), channel_id=7, replica_groups={{0,1,2,3}}, dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %call.3 = bf16[16,8]{1,0} custom-call(%all.3), custom_call_target="AsyncCollectiveDone"
}

ENTRY %main (a: bf16[4,8], b: bf16[8,8]) -> bf16[16,8] {
  %a = bf16[4,8]{1,0} parameter(0)
  %b = bf16[8,8]{1,0} parameter(1)
  %f.1 = (bf16[4,8]{1,0}, bf16[16,8]{1,0}) fusion(%a), kind=kCustom, calls=%begins
  %f.2 = (bf16[4,8]{1,0}, bf16[16,8]{1,0}) fusion(%a, %b), kind=kOutput, calls=%async_collective_fusion
  ROOT %f.3 = bf16[16,8]{1,0} fusion(%a), kind=kCustom, calls=%ends
}
"""  # noqa: E501


def test_a_gather_that_goes_through_several_fusions_counts_once_and_is_overlapped() -> None:
    """64 B to each of three others; a convolution runs in the fusion between its ends."""
    (one,) = read_collectives(parse(ASYNCHRONOUS), MeshAxes(("fsdp",), (4,)))
    assert (one.kind, one.count, one.bytes, one.overlapped) == ("all_gather", 1, 192, True)


def test_a_sum_that_lost_its_line_has_that_of_what_it_sums() -> None:
    """libtpu names no operation where it sends a scatter as an all-reduce. Between it and the
    matmul (line 12) lies a bitcast; the first operand with a computation here counts."""
    tables = PROGRAM[: PROGRAM.index("%condition")]
    text = f"""{tables}ENTRY %main (x: bf16[8,128]) -> bf16[128,8] {{
  %x = bf16[8,128]{{1,0}} parameter(0)
  %made = bf16[8,128]{{1,0}} negate(%x), metadata={{op_name="jit(f)/dot" stack_frame_id=1}}
  %turned = bf16[128,8]{{1,0}} bitcast(%made)
  ROOT %sum = bf16[128,8]{{1,0}} all-reduce(%turned), replica_groups=[4,2]<=[8], to_apply=%add
}}
"""
    (one,) = read_collectives(parse(text), MESH)
    assert one.source == ("/home/me/train.py", 12)
