"""What libtpu sends for the collectives that a sharding asks for, by rules of the slice."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.compiled.expected import expected
from chipshift.compiled.stages import in_turn
from chipshift.compiled.step.config import Block, Config
from chipshift.fabric.lowering import Laid, Slice, rough, rows_padded, slice_of

GIB = 2.0**30


def on(chip: str, *dims: int, cores: int = 1) -> Slice:
    return Slice(chip, dims, math.prod(dims) * cores)


@pytest.mark.parametrize(
    ("where", "n", "array_bytes", "by_sum"),
    [
        (on("v5p", 4, 4, 4), 64, GIB, True),
        (on("v5p", 4, 4, 4), 32, GIB, False),  # half of the slice
        (on("v5p", 2, 4, 4), 32, GIB, False),  # a slice below 64 devices
        (on("v7x", 2, 4, 4, cores=2), 64, GIB, True),
        (on("v6e", 8, 8), 64, GIB, False),
        (on("v6e", 8, 8), 64, 2.0**24, True),  # 16 MiB and less
    ],
)
def test_gathers_over_a_whole_large_slice_are_all_reduces(
    where: Slice, n: int, array_bytes: float, by_sum: bool
) -> None:
    assert where.gathers_by_sum(n, array_bytes) is by_sum


@pytest.mark.parametrize(
    ("where", "by_sum"),
    [
        (on("v6e", 4, 4), True),
        (on("v6e", 2, 2), False),
        (on("v6e", 4, 8), False),  # not square
        (on("v5p", 2, 2, 2), True),
        (on("v5p", 2, 2, 1), False),
        (on("v7x", 2, 2, 2, cores=2), False),
    ],
)
def test_scatters_over_a_whole_slice_outside_a_matmul(where: Slice, by_sum: bool) -> None:
    assert where.scatters_by_sum(where.devices, in_matmul=False) is by_sum
    assert where.scatters_by_sum(where.devices, in_matmul=True) is False  # below 64 devices
    assert where.scatters_by_sum(where.devices // 2, in_matmul=False) is False


def test_a_matmul_of_64_devices_no_longer_takes_its_scatter_in() -> None:
    assert on("v6e", 8, 8).scatters_by_sum(64, in_matmul=True) is True


def test_a_slice_by_its_compilers_name_and_what_has_no_rules() -> None:
    assert slice_of("v7x", "tpu7x:2x2x1", 8, 1) == Slice("v7x", (2, 2, 1), 8)
    assert slice_of("v6e", "v6e:4x4", 32, 2) == Slice("v6e", (4, 4), 16)  # one of two
    assert slice_of("h100", "1x1x8", 8, 1) is None


@pytest.mark.parametrize(
    ("columns", "left"),
    [
        (128256, 167),  # 2^8 x 3 x 167, Llama 3's vocabulary
        (151936, 1187),  # 2^7 x 1187, Qwen's
        (128000, 1),  # 2^10 x 5^3
        (50304, 131),  # 2^7 x 3 x 131, OLMoE's
        (23 * 29 * 19, 667),  # 19 is divided out, 23 is not
    ],
)
def test_what_is_left_of_a_number_of_columns(columns: int, left: int) -> None:
    assert rough(columns) == left


@given(st.integers(1, 10**6), st.integers(1, 10**4))
def test_what_is_left_of_a_product_is_the_product_of_what_is_left(a: int, b: int) -> None:
    assert rough(a * b) == rough(a) * rough(b)


@pytest.mark.parametrize(
    ("where", "n", "columns", "by_sum"),
    [
        (on("v5p", 2, 2, 1), 4, 128256, True),  # 167 tiles are left, 113 scatter
        (on("v5p", 2, 2, 1), 2, 128256, False),  # over two devices 257 do
        (on("v6e", 4, 4), 8, 128256, False),
        (on("v6e", 4, 4), 8, 151936, True),
        (on("v5e", 4, 4), 4, 128256, False),
        (on("v5e", 4, 4), 8, 128256, True),
        (on("v7x", 2, 4, 4, cores=2), 64, 128000, False),
        (on("v7x", 2, 4, 4, cores=2), 64, 128256, True),
    ],
)
def test_scatters_of_rough_numbers_of_columns_are_all_reduces(
    where: Slice, n: int, columns: int, by_sum: bool
) -> None:
    assert where.scatters_layout_by_sum(n, Laid(across=columns)) is by_sum


def test_parts_of_an_odd_number_of_tiles_are_all_reduced() -> None:
    """2,560 columns over four: 640, five tiles of 128; over eight: 320, no whole tiles."""
    where = on("v6e", 2, 4)
    assert where.scatters_layout_by_sum(4, Laid(along=2560)) is True
    assert where.scatters_layout_by_sum(8, Laid(along=2560)) is False
    assert where.scatters_layout_by_sum(4, Laid(along=2048)) is False  # four tiles each


def test_a_matmul_that_runs_meanwhile_is_one_of_many_devices_and_no_replicas() -> None:
    where = on("v6e", 4, 4)
    assert where.multiplies_meanwhile(16, 1) is True
    assert where.multiplies_meanwhile(8, 2) is False  # summed over dp too
    assert where.multiplies_meanwhile(2, 1) is False
    assert on("v6e", 8, 8).multiplies_meanwhile(64, 1) is False  # a whole slice
    assert on("v5e", 8, 16).multiplies_meanwhile(64, 1) is False  # nor half of one there
    assert on("v7x", 4, 4, 4, cores=2).multiplies_meanwhile(64, 1) is True
    assert on("v5p", 2, 2, 1).multiplies_meanwhile(4, 1) is False


def test_one_sequence_a_device_is_all_reduced_over_tp_and_two_are_scattered() -> None:
    """Layers' scatters become all-reduces of twice the bytes; the embedding's own stays on v6e."""
    where = on("v6e", 4, 4)
    one, two = (replace(small((1, 4, 1, 1, 4)), batch=batch) for batch in (4, 8))
    assert expected(two, where) == expected(two)
    asked, sent = expected(one), expected(one, where)
    embedding = 256 * 256 * 2 * 3 / 4  # one sequence of 256, 256 wide, in bf16, over four
    assert sent["reduce_scatter", "tp"] == pytest.approx(embedding)
    more = asked["reduce_scatter", "tp"] - embedding
    assert sent["all_reduce", "tp"] == pytest.approx(2 * more)


def test_the_down_projection_of_one_expert_a_device_is_all_reduced() -> None:
    """Of gate, up and down, alike in size, one is sent whole."""
    routed = Block(4, 4, 128, 128, experts=8, top_k=2, expert_width=512)
    cfg = replace(small((1, 4, 8, 1, 1)), segments=(((routed,), 3),), batch=64)
    where = on("v6e", 4, 8)
    asked, sent = expected(cfg), expected(cfg, where)
    assert sent["reduce_scatter", "fsdp"] == pytest.approx(2 / 3 * asked["reduce_scatter", "fsdp"])
    assert sent["all_reduce", "fsdp"] == pytest.approx(2 / 3 * asked["reduce_scatter", "fsdp"])


def small(mesh: tuple[int, int, int, int, int], **settings: int) -> Config:
    block = Block(heads=4, kv_heads=4, head_dim=128, v_head_dim=128, mlp_width=512)
    return Config(256, 512, (((block,), 3),), mesh, 256, 512, **settings)  # type: ignore[arg-type]


def test_every_gather_and_scatter_of_weights_doubles_on_a_cube_of_v5p() -> None:
    cfg = small((1, 64, 1, 1, 1))
    asked, sent = expected(cfg), expected(cfg, on("v5p", 4, 4, 4))
    gathers, scatters = asked["all_gather", "fsdp"], asked["reduce_scatter", "fsdp"]
    assert ("all_gather", "fsdp") not in sent and ("reduce_scatter", "fsdp") not in sent
    more = sent["all_reduce", "fsdp"] - asked["all_reduce", "fsdp"]
    assert more == pytest.approx(2 * (gathers + scatters))


def test_a_gradient_over_dp_and_fsdp_of_v7x_is_summed_once_whole() -> None:
    """4 fsdp x 2 dp = the slice: 2 x 7/8 of each gradient in place of 3/4 + 2 x 1/2 of a quarter.
    The embedding's rows are summed over dp by the lookup as well, which is no matmul's."""
    cfg = small((2, 4, 1, 1, 1))
    asked, sent = expected(cfg), expected(cfg, on("v7x", 2, 2, 1, cores=2))
    gradients = asked["reduce_scatter", "fsdp"] / (3 / 4)
    assert ("reduce_scatter", "fsdp") not in sent
    more = sent["all_reduce", "dp+fsdp"] - asked["all_reduce", "dp+fsdp"]
    assert more == pytest.approx(2 * 7 / 8 * gradients)
    embedding = 512 * 256 * 2
    assert sent["all_reduce", "dp"] == pytest.approx(2 * 1 / 2 * embedding / 4)


def sharded_optimizer(mesh: tuple[int, int, int, int, int]) -> Config:
    """``small`` with the optimizer in parts over dp."""
    return replace(small(mesh), zero=True)


def test_a_sharded_optimizers_gradient_on_v7x_is_scattered_over_fsdp_and_dp_at_once() -> None:
    """7/8 of each gradient over both in place of 3/4 and 1/2 of a quarter, the same bytes; the
    table's rows, looked up in parts, are scattered over dp alone. The head, which a step of one
    microbatch uses once, is gathered so too: 7/8 of it in place of 3/4 and 1/2 of a quarter."""
    cfg = sharded_optimizer((2, 4, 1, 1, 1))
    asked, sent = expected(cfg), expected(cfg, on("v7x", 2, 2, 1, cores=2))
    gradients = asked["reduce_scatter", "fsdp"] / (3 / 4)
    assert ("reduce_scatter", "fsdp") not in sent
    assert sent["reduce_scatter", "dp+fsdp"] == pytest.approx(7 / 8 * gradients)
    assert sent["reduce_scatter", "dp"] == pytest.approx(512 * 256 * 2 / 4 / 2)
    head = 512 * 256 * 2
    assert sent["all_gather", "dp+fsdp"] == pytest.approx(7 / 8 * head)
    assert asked["all_gather", "dp"] - sent["all_gather", "dp"] == pytest.approx(head / 4 / 2)
    done = in_turn(sent, asked, cfg)
    for kind in ("reduce_scatter", "all_gather"):
        assert (kind, "dp+fsdp") not in done
        for axis in ("dp", "fsdp"):
            assert done[kind, axis] == pytest.approx(asked[kind, axis])


def test_keys_and_values_of_one_head_a_device_are_all_reduced_outside_a_matmul() -> None:
    """256 x 128 in bf16 each, of three layers, over two: 2 x 1/2 of it in place of 1/2."""
    one = replace(small((2, 2, 1, 1, 4)), batch=16)
    two = replace(one, segments=(((replace(HEADS, kv_heads=8),), 3),))
    one = replace(one, segments=(((HEADS,), 3),))
    each = 3 * 2 * 256 * 128 * 2
    over_fsdp = ("all_reduce", "fsdp")
    where = on("v6e", 4, 4)
    assert expected(one, where)[over_fsdp] - expected(two, where)[over_fsdp] == each
    where = on("v7x", 2, 2, 2, cores=2)
    assert expected(one, where).get(over_fsdp) == expected(two, where).get(over_fsdp)


@pytest.mark.parametrize(
    ("chip", "dims"), [("v7x", (4, 8, 8)), ("v6e", (16, 16)), ("v5e", (16, 16))]
)
def test_arrays_of_heads_in_parts_of_ragged_rows_are_all_reduced(
    chip: str, dims: tuple[int, ...]
) -> None:
    """7,168 over 128 devices are 56 rows, seven tiles of 8; over 256 they are 28."""
    where = on(chip, *dims)
    assert where.parts_are_ragged(256, 7168) is True
    assert where.parts_are_ragged(128, 7168) is False


def test_arrays_of_heads_in_an_odd_number_of_tiles_of_rows_are_all_reduced() -> None:
    """3,584 over 64 devices are 56 rows, seven tiles of 8; 4,096 are eight tiles. A feed-forward's
    matrix in seven is scattered."""
    for chip, by_sum in (("v5e", True), ("v6e", True), ("v7x", False)):
        where = on(chip, 16, 16)
        assert where.scatters_layout_by_sum(64, Laid(heads=3584)) is by_sum
        assert where.scatters_layout_by_sum(64, Laid(heads=4096)) is False
        assert where.scatters_layout_by_sum(64, Laid(across=14336, rows=3584)) is False


@pytest.mark.parametrize(
    ("chip", "n", "columns", "width", "by_sum"),
    [
        # 5,472 columns take 43 tiles, a prime, where parts of 32 rows fill no whole tiles
        ("v5e", 64, 5472, 2048, True),
        # 75,968 take 594 = 2 x 27 x 11
        ("v5e", 64, 75968, 2048, False),
        # 18,992 = 16 x 1,187 lie by the 2,048 rows of a part, sixteen tiles
        ("v6e", 2, 18992, 4096, True),
        ("v7x", 2, 18992, 4096, False),  # which counts tiles there too: 149
        # 192 columns lie by parts of 128 rows, one tile
        ("v6e", 16, 192, 2048, True),
        ("v6e", 8, 192, 2048, False),
    ],
)
def test_columns_of_no_whole_tiles_count_in_tiles_or_lie_by_the_other_dimension(
    chip: str, n: int, columns: int, width: int, by_sum: bool
) -> None:
    laid = Laid(across=columns, cut=width)
    assert on(chip, 8, 16).scatters_layout_by_sum(n, laid) is by_sum


def test_a_gradient_over_two_slices_of_v7x_is_not_summed_at_once() -> None:
    """fsdp=16 and dp=2 are 32 devices, as many as one slice of 2x2x4 has, but of two slices."""
    cfg = replace(small((2, 16, 1, 1, 1)), slices=2)
    where = on("v7x", 2, 2, 4, cores=2)
    assert expected(cfg, where)["all_gather", "fsdp"] == expected(cfg)["all_gather", "fsdp"]


@pytest.mark.parametrize(
    ("laid", "by_sum"),
    [
        # 18,944 rows over eight are 18.5 tiles, by which it lies as 224 columns fill none
        (Laid(across=18944, cut=3584, rows=3584, along=224), True),
        (Laid(across=16384, cut=3584, rows=3584, along=224), False),  # sixteen tiles
        (Laid(across=18944, cut=4096, rows=4096, along=256), False),  # two tiles of columns
        (Laid(heads=224), True),  # 28 rows of heads each
        (Laid(along=256), False),  # a looked-up table, by its rows
    ],
)
def test_a_stage_inside_a_slice_goes_by_the_first_dimension(laid: Laid, by_sum: bool) -> None:
    assert on("v5e", 8, 16).scatters_part_by_sum(8, laid) is by_sum


def test_over_all_of_a_slice_of_v5e_matrices_in_an_odd_number_of_tiles_are_all_reduced() -> None:
    """5,120 over 128 devices are 40 rows, five tiles of 8; 4,096 four; half a slice scatters."""
    matrix = Laid(across=17920, cut=5120, rows=5120)
    assert on("v5e", 8, 16).scatters_layout_by_sum(128, matrix) is True
    assert on("v5e", 8, 16).scatters_layout_by_sum(128, replace(matrix, cut=4096)) is False
    assert on("v5e", 16, 16).scatters_layout_by_sum(128, matrix) is False
    assert on("v6e", 8, 16).scatters_layout_by_sum(128, matrix) is False


def test_a_table_in_parts_of_no_whole_tiles_lies_by_its_rows_to_a_sharded_optimizer() -> None:
    """256 columns over fsdp=4 leave 64: 1,009 rows, a prime above the limit, are all-reduced over
    dp=2, of the table and of the head, 2 x 1/2 of each part in bf16; 1,024 are scattered."""
    cfg = sharded_optimizer((2, 4, 1, 1, 1))
    prime, smooth = (expected(replace(cfg, vocab=n), on("v6e", 4, 8)) for n in (1009, 1024))
    assert prime["all_reduce", "dp"] == pytest.approx(2 * 1009 * 64 * 2)
    assert ("all_reduce", "dp") not in smooth


def test_what_fsdp_leaves_in_whole_tiles_is_not_cut_within_one() -> None:
    """896 columns are seven tiles, over four 224; by 192, no whole tiles, no matrix lies."""
    for chip in ("v5e", "v6e", "v5p"):
        assert on(chip, 8, 8).cuts_tiles(4, 896) is True
        assert on(chip, 8, 8).cuts_tiles(7, 896) is False  # a tile each
        assert on(chip, 8, 8).cuts_tiles(2, 192) is False
    assert on("v7x", 4, 4, 4).cuts_tiles(4, 896) is False


@pytest.mark.parametrize(
    ("rows", "times"), [(10, 1.6), (40, 1.0), (4, 1.0), (8, 1.0), (28, 32 / 28)]
)
def test_heads_above_a_tile_of_rows_are_padded_to_whole_ones(rows: float, times: float) -> None:
    assert rows_padded(rows) == pytest.approx(times)


def test_a_sums_stage_inside_a_slice_is_all_reduced_on_v5p() -> None:
    assert on("v5p", 2, 2, 2).scatters_stage_by_sum(8) is True
    assert on("v5p", 2, 2, 2).scatters_stage_by_sum(4) is False
    assert on("v5e", 8, 8).scatters_stage_by_sum(64) is False


def test_a_feed_forward_in_ragged_parts_is_all_reduced_outside_a_matmul() -> None:
    """7,168 over 512 devices are 14 rows; over 128 they are 56."""
    where = on("v7x", 4, 8, 8, cores=2)
    assert where.scatters_layout_by_sum(512, Laid(across=2048, rows=7168)) is True
    assert where.scatters_layout_by_sum(128, Laid(across=2048, rows=7168)) is False
    where = on("v5e", 8, 16)  # which pads 28 rows to 32 and scatters them
    assert where.scatters_layout_by_sum(128, Laid(across=20480, rows=3584)) is False


def test_a_heads_matmul_takes_in_no_ragged_parts_on_v5p_and_v7x() -> None:
    """5,376 over 64 devices are 84 rows, which no tiles of 8 hold; 5,120 are 80."""
    for where, apart in ((on("v7x", 4, 4, 4), True), (on("v5p", 4, 4, 8), True),
                         (on("v6e", 8, 16), False)):  # fmt: skip
        assert where.pads_no_head(64, 5376) is apart
        assert where.pads_no_head(64, 5120) is False


def test_on_v7x_a_sharded_optimizer_gets_only_its_table_by_an_all_reduce() -> None:
    """dp after cp; the table's sum is written out in the step, the others the partitioner's."""
    assert on("v7x", 2, 2, 1).scatters_in_mesh_order(looked_up=False) is False
    assert on("v7x", 2, 2, 1).scatters_in_mesh_order(looked_up=True) is True
    assert on("v6e", 4, 8).scatters_in_mesh_order(looked_up=False) is True


def test_attention_of_ragged_rows_is_all_reduced_and_the_feed_forward_scattered() -> None:
    """256 over 64 of 128 devices, four rows each: q, k, v and o, 256 x 512 in bf16, of three
    layers, twice 63/64 of each."""
    cfg = replace(small((1, 64, 1, 1, 2)), batch=128)
    where = on("v7x", 4, 4, 4, cores=2)
    matrix = 256 * 512 * 2 / 2  # half of it under tp
    assert expected(cfg, where)["all_reduce", "fsdp"] == pytest.approx(3 * 4 * matrix * 2 * 63 / 64)


def test_latents_and_heads_of_no_whole_tiles_lie_by_the_models_width() -> None:
    """Of 256 over two devices each has one tile: queries' 256 x 8 x 192 and the 256 x (128 + 64)
    into latents are all-reduced, heads of 128 and 256 columns into latents are not; in bf16, of
    three layers, 2 x 1/2 of each."""
    ragged = Block(8, 8, 192, 128, mlp_width=512, kv_rank=128, rope_dim=64)
    tiled = replace(ragged, head_dim=128, kv_rank=192)
    cfg = replace(small((2, 2, 1, 1, 1)), batch=16)

    def all_reduced(block: Block) -> float:
        one = replace(cfg, segments=(((block,), 3),))
        return expected(one, on("v6e", 2, 2))["all_reduce", "fsdp"]

    matrices = 256 * 8 * 192 + 256 * (128 + 64)
    assert all_reduced(ragged) - all_reduced(tiled) == pytest.approx(3 * 2 * matrices)


def test_matrices_of_heads_narrower_than_a_tile_lie_by_the_width_that_is_scattered() -> None:
    """Of 256 over two devices each has one tile, an odd number: queries', keys' and values' 256 x
    512 in bf16 of three layers are all-reduced like the two that lie so anyway, which of heads of
    128 they are not; 2 x 1/2 of each in place of 1/2."""
    wide = replace(small((2, 2, 1, 1, 1)), batch=16)
    wide = replace(wide, segments=(((HEADS,), 3),))
    narrow = replace(wide, segments=(((replace(HEADS, heads=16, kv_heads=8, head_dim=64,
                                               v_head_dim=64),), 3),))  # fmt: skip
    where, over_fsdp = on("v6e", 2, 2), ("all_reduce", "fsdp")
    more = expected(narrow, where)[over_fsdp] - expected(wide, where)[over_fsdp]
    assert more == pytest.approx(3 * (256 * 1024 + 2 * 256 * 512) * 2)


HEADS = Block(heads=8, kv_heads=4, head_dim=128, v_head_dim=128, mlp_width=512)


def test_experts_whose_columns_fill_no_tiles_are_scattered_by_the_models_width() -> None:
    """256 over two devices are one tile of 128 each, an odd number: all three matrices of experts
    192 wide are all-reduced, of those 256 wide the down projection."""
    where = on("v6e", 4, 2)

    def all_reduced(width: int) -> float:
        routed = Block(4, 4, 128, 128, experts=8, top_k=2, expert_width=width)
        cfg = replace(small((1, 2, 4, 1, 1)), segments=(((routed,), 3),), batch=64)
        return expected(cfg, where)["all_reduce", "fsdp"]

    matrix = 3 * 2 * 256 * 2  # of three layers' two experts a device, in bf16, a column
    assert all_reduced(192) == pytest.approx(3 * matrix * 192)
    assert all_reduced(256) == pytest.approx(matrix * 256)


def test_a_sharded_optimizers_scatter_over_dp_and_cp_is_an_all_reduce_and_over_dp_is_not() -> None:
    """Parts over cp are cut into parts over dp, but dp comes first in the mesh."""
    both, one = sharded_optimizer((2, 1, 1, 4, 1)), sharded_optimizer((4, 1, 1, 1, 1))
    where = on("v6e", 4, 8)
    asked, sent = expected(both), expected(both, where)
    assert ("reduce_scatter", "dp+cp") not in sent
    more = sent["all_reduce", "dp+cp"] - asked["all_reduce", "dp+cp"]
    assert more == pytest.approx(2 * asked["reduce_scatter", "dp+cp"])
    assert sent["all_gather", "dp+cp"] == asked["all_gather", "dp+cp"]
    assert expected(one, where) == pytest.approx(expected(one))


def test_a_sharded_optimizers_parts_of_odd_tiles_are_all_reduced() -> None:
    """256 columns over dp=2, one tile each: attention's output matrix, the feed-forward's last and
    the table looked up; so where fsdp=2 leaves a tile, of which dp=2 takes half."""
    cfg = sharded_optimizer((2, 1, 1, 1, 1))
    where = on("v6e", 4, 8)
    asked, sent = expected(cfg), expected(cfg, where)
    ((block,), layers) = cfg.segments[0]
    odd = layers * (block.heads * block.v_head_dim + block.mlp_width) * 256 + 512 * 256
    less = asked["reduce_scatter", "dp"] - sent["reduce_scatter", "dp"]
    assert less == pytest.approx(odd * 2 * 1 / 2)
    assert sent["all_reduce", "dp"] - asked["all_reduce", "dp"] == pytest.approx(2 * less)
    halves = sharded_optimizer((2, 2, 1, 1, 1))
    over_dp = ("reduce_scatter", "dp")
    less = expected(halves)[over_dp] - expected(halves, where)[over_dp]
    assert less == pytest.approx(odd * 2 / 2 * 1 / 2)


def test_a_sharded_optimizer_over_a_cube_of_v5p_gathers_by_sums_too() -> None:
    """Over 64 devices gathers are all-reduces too, of what is cast already: everything twice."""
    cfg = sharded_optimizer((64, 1, 1, 1, 1))
    asked, sent = expected(cfg), expected(cfg, on("v5p", 4, 4, 4))
    assert {kind for kind, _ in sent} == {"all_reduce"}
    gathers, scatters = asked["all_gather", "dp"], asked["reduce_scatter", "dp"]
    more = sent["all_reduce", "dp"] - asked["all_reduce", "dp"]
    assert more == pytest.approx(2 * gathers + 2 * scatters)


@given(
    st.sampled_from([(1, 64, 1, 1, 1), (8, 8, 1, 1, 1), (1, 8, 8, 1, 1), (4, 16, 1, 1, 1)]),
    st.sampled_from(["v5e", "v6e", "v5p", "v7x"]),
)
def test_rules_add_bytes_and_leave_other_axes_alone(
    mesh: tuple[int, int, int, int, int], chip: str
) -> None:
    cfg = small(mesh)
    where = on(chip, 8, 8) if chip in ("v5e", "v6e") else on(chip, 4, 4, 4)
    asked, sent = expected(cfg), expected(cfg, where)
    assert sum(sent.values()) >= sum(asked.values()) * (1 - 1e-12)
    if mesh[0] > 1 and chip != "v7x":
        assert sent == asked  # no axis is the whole slice
