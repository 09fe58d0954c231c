"""Cycles that the compiler estimates."""

from __future__ import annotations

from chipshift.compiled.hlo.cycles import read_cycles
from chipshift.compiled.hlo.module import parse


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
