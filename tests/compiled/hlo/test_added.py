"""Gradients of one array that the compiler scatters one by one, though the program adds them."""

from __future__ import annotations

import pytest

from chipshift.compiled.hlo.collectives import read_collectives
from chipshift.compiled.hlo.groups import MeshAxes
from chipshift.compiled.hlo.module import parse

FOUR = MeshAxes(("dp",), (4,))


def program(total: str, *, named: str = "", last: str = "%head") -> str:
    """A table's two gradients, bf16[16,8] each, scattered over four devices, then ``total``."""
    groups = "replica_groups={{0,1,2,3}}, dimensions={0}, to_apply=%more"
    return f"""HloModule jit_step

%more (a: bf16[], b: bf16[]) -> bf16[] {{
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %s = bf16[] add(%a, %b)
}}

%total (c: bf16[4,8], d: bf16[4,8]) -> f32[4,8] {{
  %c = bf16[4,8]{{1,0}} parameter(0)
  %d = bf16[4,8]{{1,0}} parameter(1)
  %e = f32[4,8]{{1,0}} convert(%c)
  %f = f32[4,8]{{1,0}} convert(%d)
  ROOT %g = f32[4,8]{{1,0}} {total}
}}

ENTRY %main (x: bf16[16,8], y: bf16[16,8]) -> f32[4,8] {{
  %x = bf16[16,8]{{1,0}} parameter(0)
  %y = bf16[16,8]{{1,0}} parameter(1)
  %look = bf16[4,8]{{1,0}} reduce-scatter(%x), {groups}
  %head = bf16[4,8]{{1,0}} reduce-scatter(%y), {groups}, metadata={{op_name="jit(step)/{named}"}}
  %moved = bf16[4,8]{{1,0}} copy({last})
  ROOT %sum = f32[4,8]{{1,0}} fusion(%look, %moved), kind=kLoop, calls=%total
}}
"""


ADDED = 'add(%e, %f), metadata={op_name="jit(step)/transpose(jvp())/add_any"}'


def test_of_two_gradients_scattered_and_then_added_one_is_inserted() -> None:
    """Each sends 3/4 of 16 x 8 x 2 B; their sum, scattered once, would have sent that once."""
    first, second = read_collectives(parse(program(ADDED)), FOUR)
    assert (first.bytes, first.inserted) == (192, 0)
    assert (second.bytes, second.inserted, second.why) == (192, 192, "scattered apart")


def test_what_a_sparse_core_lays_out_anew_is_followed_to_the_sum() -> None:
    start = "async-start(%head), calls=%more"
    text = program(ADDED, last="%data-format.done").replace(
        "  %moved",
        f"  %data-format.start = (bf16[4,8]{{1,0}}, bf16[4,8]{{1,0}}) {start}\n"
        "  %data-format.done = bf16[4,8]{1,0} async-done(%data-format.start)\n  %moved",
    )
    assert [one.inserted for one in read_collectives(parse(text), FOUR)] == [0, 192]


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        (program(ADDED, named="shard_map/reduce_scatter"), ()),  # the program's own scatter
        (program(ADDED), ("dp",)),  # of an axis over which it asks for each
        (program("multiply(%e, %f)"), ()),
        (program("add(%e, %f)"), ()),  # of a residual, not of gradients
        (program(ADDED, last="%look"), ()),  # another value than the second's
    ],
)
def test_what_the_program_asks_for_is_not(text: str, asked: tuple[str, ...]) -> None:
    assert [one.inserted for one in read_collectives(parse(text), FOUR, asked)] == [0, 0]
