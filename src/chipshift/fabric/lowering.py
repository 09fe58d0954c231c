"""What the TPU's compiler sends for collectives that a sharding asks for, by rules of the slice.

libtpu does some gathers and scatters as all-reduces of the whole array, which send twice the bytes.
Where that depends on the chip, the slice, the group and the array's dimensions it is a rule of
lowering.toml; what else it decides by an array's layout shows as a difference.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from math import prod
from typing import Any


@functools.cache
def rules() -> dict[str, Any]:
    file = resources.files("chipshift.fabric") / "lowering.toml"
    return tomllib.loads(file.read_text("utf8"))


@dataclass(frozen=True)
class Laid:
    """What of an array's layout decides how it is scattered.

    Attributes:
        across: columns of a matrix that is scattered by the other dimension, 0 = no matrix.
        cut: that other dimension, 0 where nothing goes by it.
        heads: width that is scattered of an array of three dimensions, one of them heads, else 0.
        rows: the same of a feed-forward's matrix, which a matmul scatters in padded parts, else 0.
        along: columns of one that is scattered by its last dimension, else 0.
        behind_one: what it is where a dimension of size one lies before the scattered one
            (``expert``, the down projection of one; ``head``, keys or values of one), else "".
    """

    across: float = 0.0
    cut: float = 0.0
    heads: float = 0.0
    rows: float = 0.0
    along: float = 0.0
    behind_one: str = ""


@dataclass(frozen=True)
class Slice:
    """A TPU slice: its chip and the chips along each axis of the torus.

    ``layouts``: whether rules that go by an array's layout count, or those of the slice alone.
    """

    chip: str
    dims: tuple[int, ...]
    devices: int
    layouts: bool = True

    def gathers_by_sum(self, n: int, array_bytes: float) -> bool:
        """Whether an array is gathered over ``n`` devices by an all-reduce."""
        rule = rules()["gather_as_sum"]
        largest = rule["largest_bytes"].get(self.chip)
        if largest is None or n != self.devices or n < rule["devices"]:
            return False
        return bool(largest == 0 or array_bytes <= largest)

    def scatters_by_sum(self, n: int, in_matmul: bool) -> bool:
        """Whether a sum is scattered over ``n`` devices by an all-reduce; ``in_matmul``: it is a
        matmul's, which may scatter while it multiplies."""
        rule = rules()["scatter_as_sum"]
        smallest = rule["chips"].get(self.chip)
        if smallest is None or n != self.devices or prod(self.dims) < smallest["chips"]:
            return False
        if smallest["square"] and len(set(self.dims)) > 1:
            return False
        return not in_matmul or n >= int(rule["in_matmul_below"])

    def scatters_stage_by_sum(self, n: int) -> bool:
        """Whether the stage inside a slice of a sum over several is scattered by an all-reduce."""
        in_stages = rules()["scatter_as_sum"]["in_stages"]
        return self.chip in in_stages and self.scatters_by_sum(n, in_matmul=False)

    def multiplies_meanwhile(self, n: int, summed: int) -> bool:
        """Whether a gradient is scattered over ``n`` devices part by part while its matmul runs;
        ``summed``: devices over which the parts are summed then."""
        rule = rules()["scatter_in_matmul"]
        small = self.devices <= rule["not_up_to"].get(self.chip, 0)
        many = n >= rule["devices_below"] and (n == self.devices or self.chip in rule["any_group"])
        return summed == 1 and n >= rule["devices_from"] and not many and not small

    def scatters_layout_by_sum(self, n: int, laid: Laid) -> bool:
        """Whether an array is scattered over ``n`` devices by an all-reduce because of how it lies
        in memory."""
        return self.layouts and (
            self.columns_too_rough(n, laid.across, laid.cut)
            or self.halves_no_part(n, laid.heads)
            or self.halves_no_matrix(n, laid.cut)
            or self.pads_no_part(n, laid.rows)
            or self.parts_are_odd(n, laid.along)
            or (laid.behind_one != "" and self.scatters_behind_one(laid.behind_one))
        )

    def scatters_part_by_sum(self, n: int, laid: Laid) -> bool:
        """Whether the stage inside a slice of a sum over several is an all-reduce because of how
        fsdp's part lies in memory: the stage goes by the array's first dimension."""
        if self.chip not in rules()["scatter_first_dimension"]["chips"]:
            return self.scatters_layout_by_sum(n, laid)
        if not self.layouts:
            return False
        if not laid.along:
            ragged = bool(laid.heads) and self.parts_are_ragged(n, laid.heads)
            return ragged or self.columns_too_rough(n, laid.across, laid.cut)
        if not laid.across or in_whole_tiles(laid.along):
            return False
        return not in_whole_tiles(laid.across / n) or self.parts_are_odd(n, laid.across)

    def columns_too_rough(self, n: int, columns: float, cut: float = 0.0) -> bool:
        """Whether a matrix's columns do not come to pieces that are small enough. Columns that
        fill no whole tiles are padded to them, but where the other dimension's parts do, by which
        the matrix lies then: that counts in the same way, and by its own parts."""
        most = rules()["scatter_by_columns"]["most_tiles"].get(self.chip)
        if most is None or not columns or columns != int(columns):
            return False
        largest = next((tiles for devices, tiles in most if n <= devices), most[-1][1])
        if cut and not in_whole_tiles(columns):
            if in_whole_tiles(cut / n) and self.chip in rules()["scatter_odd_parts"]["chips"]:
                return rough(int(columns)) > int(largest) or self.parts_are_odd(n, cut)
            columns = tiles_of(columns)
        return rough(int(columns)) > int(largest)

    def parts_are_odd(self, n: int, columns: float) -> bool:
        """Whether a device's part of a matrix's columns is an odd number of whole tiles."""
        rule = rules()["scatter_odd_parts"]
        tiles, rest = divmod(columns / n, rule["tile"])
        return self.chip in rule["chips"] and not rest and tiles % 2 == 1

    def cuts_tiles(self, n: int, columns: float) -> bool:
        """Whether what fsdp leaves of a matrix's last dimension, by which it lies where that is
        whole tiles, is cut within a tile."""
        in_chip = self.layouts and self.chip in rules()["scatter_within_tiles"]["chips"]
        return in_chip and in_whole_tiles(columns) and not in_whole_tiles(columns / n)

    def parts_are_ragged(self, n: int, width: float) -> bool:
        """Whether a device's part of an array fills no whole tiles of rows."""
        rule = rules()["scatter_ragged_heads"]
        return self.layouts and self.chip in rule["chips"] and width / n % rule["rows"] != 0

    def halves_no_part(self, n: int, width: float) -> bool:
        """Whether a device's part of an array of heads is an odd number of tiles of rows."""
        rule = rules()["scatter_ragged_heads"]
        tiles, rest = divmod(width / n, rule["rows"])
        return self.chip in rule["odd"] and not rest and tiles % 2 == 1

    def halves_no_matrix(self, n: int, width: float) -> bool:
        """The same of a matrix, over all of a large slice."""
        rule = rules()["scatter_ragged_heads"]
        whole = n == self.devices and n >= int(rule["odd_matrix_from"])
        return whole and self.chip in rule["odd_matrix"] and self.halves_no_part(n, width)

    def pads_no_part(self, n: int, width: float) -> bool:
        """Whether a feed-forward's matrix in ragged parts is not padded where it is scattered
        outside a running matmul."""
        padded = self.chip not in rules()["scatter_ragged_heads"]["feed_forward"]
        return not padded and self.parts_are_ragged(n, width)

    def pads_no_head(self, n: int, width: float) -> bool:
        """Whether a head's gradient in ragged parts is no part of its running matmul, where a
        layer's matrices are padded."""
        return self.chip in rules()["scatter_ragged_heads"]["head"] and self.parts_are_ragged(
            n, width
        )

    def scatters_behind_one(self, what: str) -> bool:
        """Whether an array is scattered by an all-reduce where a dimension of size one lies before
        the scattered one. ``what``: ``sequence`` (activations of one, over tp), ``lookup`` (the
        same, of the embedding), ``expert`` (the down projection of one) or ``head`` (keys or
        values of one)."""
        return self.layouts and self.chip in rules()["scatter_behind_one"][what]

    def scatters_in_mesh_order(self, looked_up: bool) -> bool:
        """Whether an array is scattered over several axes by an all-reduce where its parts lie in
        another order than the mesh's devices; ``looked_up``: a table's gradient by its rows, whose
        sum is written out in the step."""
        return looked_up or self.chip in rules()["scatter_out_of_order"]["chips"]

    def scatters_at_once(self) -> bool:
        """Whether a sharded optimizer's gradient is scattered over fsdp and dp in one move."""
        return self.chip in rules()["scattered_at_once"]["chips"]

    def gathers_at_once(self) -> bool:
        """Whether a sharded optimizer's head, used once a step, is gathered over fsdp and dp in one
        move."""
        return self.chip in rules()["gathered_at_once"]["chips"]

    def sums_once(self, scattered: int, summed: int) -> bool:
        """Whether a gradient scattered over some devices and summed over others is summed whole."""
        both = scattered > 1 and summed > 1 and scattered * summed == self.devices
        return both and self.chip in rules()["summed_once"]["chips"]


def in_whole_tiles(columns: float) -> bool:
    """Whether experts' columns on one device fill tiles, so that their gradients lie by them."""
    return columns % int(rules()["experts_by_width"]["tile"]) == 0


def rows_padded(rows: float) -> float:
    """Times the room that an array takes with so many heads as its rows: more than a tile of rows
    are padded to whole ones (ten to sixteen)."""
    tile = int(rules()["scatter_ragged_heads"]["rows"])
    return -(-rows // tile) * tile / rows if rows > tile else 1.0


def tiles_of(columns: float) -> int:
    """Tiles that so many columns take."""
    return -int(-columns // int(rules()["scatter_odd_parts"]["tile"]))


def rough(columns: int) -> int:
    """What is left of a number with its prime factors up to ``primes_to`` divided out."""
    for prime in range(2, int(rules()["scatter_by_columns"]["primes_to"]) + 1):
        while columns % prime == 0:
            columns //= prime
    return columns


def slice_of(chip: str, topology: str, devices: int, slices: int) -> Slice | None:
    """The slice by libtpu's name (``v6e:4x4``), one of them where there are several: what crosses
    slices goes over the data-center network. None where no rule is known, for other chips than
    TPUs."""
    _, _, dims = topology.partition(":")
    if chip not in rules()["gather_as_sum"]["largest_bytes"]:
        return None
    return Slice(chip, tuple(int(n) for n in dims.split("x")), devices // slices)
