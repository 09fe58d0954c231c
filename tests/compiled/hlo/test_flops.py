"""FLOPs of matmuls, those inside kernels that libtpu makes among them."""

from __future__ import annotations

from chipshift.compiled.hlo.flops import matmul_flops
from chipshift.compiled.hlo.module import parse


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
