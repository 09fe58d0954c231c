"""Windowed einsums: permutes around a matmul, counted as what they implement."""

from __future__ import annotations

from chipshift.compiled.hlo.collectives import read_collectives
from chipshift.compiled.hlo.groups import MeshAxes
from chipshift.compiled.hlo.module import parse

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


def test_a_ring_of_a_program_without_names_is_known_by_its_sums() -> None:
    """Programs for several slices name no operations: the same three sums of 64 B, added up."""
    named = ring("z1 zeros there", "z2 zeros back", "a1 z1.sum there", "a2 z2.sum back",
                 "a3 a1.sum there")  # fmt: skip
    adds = named.replace("convolution(%p0, %p1), dim_labels=bf_io->bf", "add(%p0, %p1)")
    nameless = adds.replace(', metadata={op_name="jit(step)/dot_general"}', "")
    (one,) = read_collectives(parse(nameless), MeshAxes(("tp",), (4,)))
    assert (one.kind, one.bytes, one.inserted) == ("reduce_scatter", 192, 0)
