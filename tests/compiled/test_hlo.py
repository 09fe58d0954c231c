"""Reading optimised programs: shapes and their padding, device groups, loops, bytes sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.compiled.hlo.collective import by_axis
from chipshift.compiled.hlo.collectives import read_collectives
from chipshift.compiled.hlo.cycles import read_cycles
from chipshift.compiled.hlo.flops import matmul_flops
from chipshift.compiled.hlo.groups import MeshAxes, parse_groups
from chipshift.compiled.hlo.loops import multiplicities
from chipshift.compiled.hlo.module import parse
from chipshift.compiled.hlo.purpose import sent_bytes
from chipshift.compiled.hlo.shape import parse_shapes

MESH = MeshAxes(("dp", "fsdp", "tp"), (2, 2, 2))


@pytest.mark.parametrize(
    ("text", "logical", "physical"),
    [
        ("bf16[4,128]{1,0:T(4,128)(2,1)}", 4 * 128 * 2, 4 * 128 * 2),
        # 1 row padded to a tile of 2, 2048 columns are 16 tiles: 2 x 2048 x 2 B
        ("bf16[1,2048]{1,0:T(2,128)(2,1)}", 4096, 8192),
        # 7 rows to 8: 8 x 2048 x 4 B
        ("f32[7,2048]{1,0:T(8,128)}", 7 * 2048 * 4, 8 * 2048 * 4),
        # dimension 0 varies fastest: 64 columns of 65,536 rows, 65,536 = 512 tiles of 128
        ("bf16[65536,64]{0,1:T(8,128)(2,1)}", 65536 * 64 * 2, 65536 * 64 * 2),
        # 64 lanes where 128 are: twice the size
        ("f32[1,4096,32,64]{3,2,1,0:T(8,128)}", 4096 * 32 * 64 * 4, 4096 * 32 * 128 * 4),
        ("f32[]{:T(128)}", 4, 128 * 4),
        ("s32[5]", 20, 20),
    ],
)
def test_physical_bytes_round_the_fastest_dimensions_up_to_tiles(
    text: str, logical: int, physical: int
) -> None:
    (shape,) = parse_shapes(text)
    assert (shape.bytes, shape.physical_bytes) == (logical, physical)


def test_a_tuple_is_its_arrays_and_memory_spaces_are_read() -> None:
    shapes = parse_shapes("(bf16[8,128]{1,0:T(8,128)(2,1)S(1)}, u32[]{:S(2)}, pred[3])")
    assert [(s.dtype, s.dims, s.space) for s in shapes] == [
        ("bf16", (8, 128), 1), ("u32", (), 2), ("pred", (3,), 0),
    ]  # fmt: skip


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


RING = """HloModule jit_step

%fused_computation (p0: bf16[4,8], p1: bf16[4,8]) -> bf16[4,8] {
  %p0 = bf16[4,8]{1,0} parameter(0)
  %p1 = bf16[4,8]{1,0} parameter(1)
  ROOT %c = bf16[4,8]{1,0} convolution(%p0, %p1), dim_labels=bf_io->bf
}

ENTRY %main (x: bf16[4,8]) -> bf16[4,8] {
  %x = bf16[4,8]{1,0} parameter(0)
  %part.0 = bf16[4,8]{1,0} fusion(%x, %x), kind=kOutput, calls=%fused_computation
  %s.0 = (bf16[4,8]{1,0}, bf16[4,8]{1,0}) collective-permute-start(%part.0), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}, metadata={op_name="jit(step)/dot_general"}
  %d.0 = bf16[4,8]{1,0} collective-permute-done(%s.0)
  %s.1 = (bf16[4,8]{1,0}, bf16[4,8]{1,0}) collective-permute-start(%d.0), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}, metadata={op_name="jit(step)/dot_general"}
  %d.1 = bf16[4,8]{1,0} collective-permute-done(%s.1)
  %s.2 = (bf16[4,8]{1,0}, bf16[4,8]{1,0}) collective-permute-start(%d.1), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}, metadata={op_name="jit(step)/dot_general"}
  ROOT %d.2 = bf16[4,8]{1,0} collective-permute-done(%s.2)
}
"""  # noqa: E501


def test_a_windowed_einsum_counts_as_the_reduce_scatter_it_implements() -> None:
    """Partial sums of 4 x 8 x 2 = 64 B passed around a ring of 4: each device sends 3 of them."""
    (one,) = read_collectives(parse(RING), MeshAxes(("tp",), (4,)))
    assert (one.kind, one.axis, one.count, one.bytes, one.windowed) == (
        "reduce_scatter", "tp", 1, 192, True,
    )  # fmt: skip


def test_text_without_an_entry_is_refused() -> None:
    with pytest.raises(ValueError, match="ENTRY"):
        parse("module @jit_step {}")


OFFLOADED = """HloModule jit_step

%gather (x: bf16[4,8]) -> bf16[16,8] {
  %x = bf16[4,8]{1,0} parameter(0)
  ROOT %all = bf16[16,8]{1,0} all-gather(%x), replica_groups={{0,1,2,3}}, dimensions={0}
}

ENTRY %main (w: bf16[4,8]) -> bf16[16,8] {
  %w = bf16[4,8]{1,0} parameter(0)
  %begin = ((bf16[4,8]{1,0}), bf16[16,8]{1,0}) call-start(%w), async_execution_thread="sparsecore", to_apply=%gather
  ROOT %end = bf16[16,8]{1,0} call-done(%begin), async_execution_thread="sparsecore", to_apply=%gather
}
"""  # noqa: E501


def test_a_collective_offloaded_to_the_sparse_cores_counts_once_and_is_overlapped() -> None:
    """4 x 8 x 2 = 64 B to each of three others."""
    (one,) = read_collectives(parse(OFFLOADED), MeshAxes(("fsdp",), (4,)))
    assert (one.kind, one.count, one.bytes, one.overlapped) == ("all_gather", 1, 192, True)


def test_the_largest_number_of_cycles_stands_for_none() -> None:
    # 2^63 - 1, the largest signed number of 64 bits
    text = """HloModule m

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %a = f32[8]{0} negate(%p), backend_config={"estimated_cycles":"9223372036854775807"}
  ROOT %b = f32[8]{0} negate(%a), backend_config={"estimated_cycles":"250"}
}
"""
    assert read_cycles(parse(text)).compute == 250


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


def ring(*lines: str) -> str:
    """Windowed matmuls over a ring of 4, their sums passed on in both directions."""
    there, back = "{{0,1},{1,2},{2,3},{3,0}}", "{{0,3},{1,0},{2,1},{3,2}}"
    start, part = "collective-permute-start", "bf16[4,8]{1,0}"
    out = []
    for line in lines:
        name, of, way = line.split()
        pairs = there if way == "there" else back
        out.append(f"  %{name} = ({part}, {part}) {start}(%{of}), source_target_pairs={pairs}, "
                   f'metadata={{op_name="jit(step)/dot_general"}}')  # fmt: skip
        out.append(f"  %{name}.done = bf16[4,8]{{1,0}} collective-permute-done(%{name})")
        out.append(f"  %{name}.sum = bf16[4,8]{{1,0}} fusion(%{name}.done), kind=kOutput, "
                   "calls=%fused_computation")  # fmt: skip
    head = RING[: RING.index("ENTRY")]
    body = "\n".join(out)
    return f"""{head}ENTRY %main (x: bf16[4,8]) -> bf16[4,8] {{
  %x = bf16[4,8]{{1,0}} parameter(0)
  %zero = bf16[] constant(0)
  %zeros = bf16[4,8]{{1,0}} broadcast(%zero), dimensions={{}}
{body}
  ROOT %end = bf16[4,8]{{1,0}} copy(%x)
}}
"""


def test_zeros_that_several_windowed_matmuls_start_from_carry_nothing() -> None:
    """Two matmuls of one shape: each passes three sums of 64 B, all start from the same zeros."""
    program = ring(
        "z1 zeros there", "z2 zeros back",
        "a1 z1.sum there", "a2 z2.sum back", "a3 a1.sum there",
        "b1 z1.sum there", "b2 z2.sum back", "b3 b1.sum there",
    )  # fmt: skip
    (one,) = read_collectives(parse(program), MeshAxes(("tp",), (4,)))
    assert (one.kind, one.count, one.bytes) == ("reduce_scatter", 2, 2 * 192)


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


LIBRARY = "/env/lib/site-packages/transformers/models/llama/modeling_llama.py"


def test_a_library_of_models_is_named_with_its_class_where_no_file_of_the_users_is_met() -> None:
    # innermost first: torch (2), transformers (1), our own tracer (3)
    text = f"""HloModule jit_value

FileNames
1 "{LIBRARY}"
2 "/env/lib/site-packages/torch/nn/functional.py"
3 "/home/me/chipshift/compiled/torch_program.py"

FunctionNames
1 "LlamaMLP.forward"
2 "linear"
3 "trace.<locals>.value"

FileLocations
1 {{file_name_id=1 function_name_id=1 line=164 end_line=164 column=1 end_column=9}}
2 {{file_name_id=2 function_name_id=2 line=7 end_line=7 column=1 end_column=9}}
3 {{file_name_id=3 function_name_id=3 line=9 end_line=9 column=1 end_column=9}}

StackFrames
1 {{file_location_id=3 parent_frame_id=1}}
2 {{file_location_id=1 parent_frame_id=2}}
3 {{file_location_id=2 parent_frame_id=3}}

ENTRY %main (x: bf16[8]) -> bf16[8] {{
  %x = bf16[8]{{0}} parameter(0)
  %made = bf16[8]{{0}} copy(%x), metadata={{op_name="a" stack_frame_id=3}}
  ROOT %own = bf16[8]{{0}} copy(%made), metadata={{op_name="b" stack_frame_id=1}}
}}
"""
    module = parse(text)
    made, own = (module.computations["main"].by_name[name] for name in ("made", "own"))
    assert module.source(made) == (LIBRARY, 164)
    assert module.functions[LIBRARY, 164] == "LlamaMLP.forward"
    assert module.source(own) is None  # only the tracer's own line, which says nothing


def test_a_softmax_that_libtpu_fused_with_the_values_counts_their_matmul() -> None:
    # 2 heads, 8 queries by 16 keys, values 4 wide: 2 x 2 x 8 x 16 x 4 = 2,048
    text = """HloModule m

ENTRY %main (s: bf16[2,8,16], v: bf16[2,16,4]) -> bf16[2,8,4] {
  %s = bf16[2,8,16]{2,1,0} parameter(0)
  %v = bf16[2,16,4]{2,1,0} parameter(1)
  ROOT %k = bf16[2,8,4]{2,1,0} custom-call(%s, %v), metadata={op_name="online-softmax"}
}
"""
    assert matmul_flops(parse(text)) == 2048
