"""Shapes of optimised programs and the room that their tiled layouts take."""

from __future__ import annotations

import pytest

from chipshift.compiled.hlo.shape import parse_shapes


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
