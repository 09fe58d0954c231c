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


def test_a_kernel_has_its_writers_cost_or_the_bytes_of_its_operands_in_device_memory() -> None:
    """Both take and give f32[8,128], 4,096 B; the second's operand lies in the core's own memory
    (S(1)): 4,096 B moved. The first is stated to do 12 FLOP and move 34 B, whatever it takes."""
    cost = '"cost_estimate":{"flops":"12","transcendentals":"0","bytes_accessed":"34"}'

    def call(of: str, name: str) -> str:
        made = f'custom-call(%{of}), custom_call_target="tpu_custom_call"'
        return f'{made}, metadata={{op_name="jit(f)/{name}/pallas_call"}}'

    text = f"""HloModule m

ENTRY %main (p: f32[8,128]) -> f32[8,128] {{
  %p = f32[8,128]{{1,0:T(8,128)S(1)}} parameter(0)
  %a = f32[8,128]{{1,0:T(8,128)S(1)}} {call("p", "one")}, backend_config={{{cost}}}
  ROOT %b = f32[8,128]{{1,0:T(8,128)}} {call("a", "two")}
}}
"""
    one, two = read_cycles(parse(text)).without
    assert (one.name, one.flops, one.bytes, one.times) == ("one", 12, 34, 1)
    assert (two.name, two.flops, two.bytes) == ("two", None, 4096)
