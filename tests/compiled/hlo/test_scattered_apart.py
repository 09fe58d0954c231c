"""Sums of several matmuls that the compiler scatters one by one, though the program adds them."""

from __future__ import annotations

import pytest

from chipshift.compiled.hlo.collectives import read_collectives
from chipshift.compiled.hlo.groups import MeshAxes
from chipshift.compiled.hlo.module import parse

THERE, BACK = "{{0,1},{1,2},{2,3},{3,0}}", "{{0,3},{1,0},{2,1},{3,2}}"
DOT = 'metadata={op_name="jit(step)/dot_general"}'


def ring(name: str, done: str) -> str:
    """One matmul's sums of 4 x 8 x 2 = 64 B scattered over four devices, unrolled: two parts go one
    way round, one the other, and ``done`` gives what arrives last."""
    lines = [
        f"%{name}1 = bf16[4,8]{{1,0}} collective-permute(%{name}0), pairs=there, {DOT}",
        f"%{name}sum = bf16[4,8]{{1,0}} fusion(%{name}1), kind=kLoop, calls=%more",
        f"%{name}2 = bf16[4,8]{{1,0}} collective-permute(%{name}sum), pairs=there, {DOT}",
        f"%{name}3 = bf16[4,8]{{1,0}} collective-permute(%{name}0), pairs=back, {DOT}",
        f"%{name}last = bf16[4,8]{{1,0}} {done}(%{name}2)",
        f"%{name}0 = bf16[4,8]{{1,0}} fusion(%x), kind=kLoop, calls=%more",
    ]
    text = "".join(f"  {line}\n" for line in (lines[-1], *lines[:-1]))
    for way, pairs in (("there", THERE), ("back", BACK)):
        text = text.replace(f"pairs={way}", f"source_target_pairs={pairs}")
    return text


def program(total: str, done: str = "copy") -> str:
    """Two such matmuls, whose last parts one fusion takes."""
    return f"""HloModule jit_step

%more (q: bf16[4,8]) -> bf16[4,8] {{
  %q = bf16[4,8]{{1,0}} parameter(0)
  ROOT %one = bf16[4,8]{{1,0}} dot(%q, %q)
}}

%total (a: bf16[4,8], b: bf16[4,8], c: bf16[4,8], d: bf16[4,8]) -> bf16[4,8] {{
  %a = bf16[4,8]{{1,0}} parameter(0)
  %b = bf16[4,8]{{1,0}} parameter(1)
  %c = bf16[4,8]{{1,0}} parameter(2)
  %d = bf16[4,8]{{1,0}} parameter(3)
{total}
}}

ENTRY %main (x: bf16[4,8]) -> bf16[4,8] {{
  %x = bf16[4,8]{{1,0}} parameter(0)
{ring("gate", done)}{ring("up", done)}  ROOT %sum = bf16[4,8]{{1,0}} fusion(%gatelast, %gate3, %uplast, %up3), calls=%total
}}
"""  # noqa: E501


ADDED = """  %e = f32[4,8]{1,0} convert(%a)
  %f = f32[4,8]{1,0} add(%e, %b)
  %g = f32[4,8]{1,0} add(%c, %d)
  ROOT %h = bf16[4,8]{1,0} add(%f, %g)"""

NORMED = """  %e = bf16[4,8]{1,0} add(%a, %b)
  %f = bf16[4,8]{1,0} add(%c, %d)
  %g = bf16[4,8]{1,0} multiply(%e, %e)
  %i = bf16[4,8]{1,0} multiply(%f, %f)
  ROOT %h = bf16[4,8]{1,0} add(%g, %i)"""


@pytest.mark.parametrize("done", ["copy", "bitcast"])
def test_of_two_scatters_whose_results_are_added_one_is_inserted(done: str) -> None:
    """Two scatters send 2 x 3 x 64 B; the sum, scattered once, would have sent half of that."""
    (one,) = read_collectives(parse(program(ADDED, done)), MeshAxes(("tp",), (4,)))
    assert (one.kind, one.count, one.bytes) == ("reduce_scatter", 2, 2 * 192)
    assert (one.why, one.inserted, one.own) == ("scattered apart", 192, 192)


def test_two_gradients_that_meet_in_a_norm_are_scattered_each_for_itself() -> None:
    (one,) = read_collectives(parse(program(NORMED)), MeshAxes(("tp",), (4,)))
    assert (one.count, one.why, one.inserted) == (2, "", 0)
