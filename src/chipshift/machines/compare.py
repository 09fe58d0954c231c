"""Chips side by side in the same units: what each row of the comparison is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chipshift.machines.chip import Chip

DTYPES = ("bf16", "fp16", "fp8", "int8", "int4", "fp4", "mxfp4", "tf32", "fp32")
"""Matmul dtypes whose peaks are compared, the common ones first."""


@dataclass(frozen=True)
class Row:
    """One line of the comparison.

    Attributes:
        group: heading under which it stands.
        name: key in the JSON; SI unit in ``unit``.
        label: what is printed.
        unit: SI unit of ``values``.
        shared: True where the figure belongs to the chip and its devices divide it; False where
            it is the same for a chip and for each of its devices.
        values: one for each chip, per chip; None where unsourced or unsupported.
    """

    group: str
    name: str
    label: str
    unit: str
    shared: bool
    values: tuple[float | None, ...]

    def per_device(self, chips: tuple[Chip, ...]) -> tuple[float | None, ...]:
        """The same row for one device of each chip."""
        if not self.shared:
            return self.values
        return tuple(
            None if value is None else value / chip.devices_per_chip
            for value, chip in zip(self.values, chips, strict=True)
        )


def rows(chips: tuple[Chip, ...]) -> tuple[Row, ...]:
    """Every row of the comparison of these chips; rows that none of them has are left out."""
    built: list[Row] = []

    def row(
        group: str,
        name: str,
        label: str,
        unit: str,
        of: Callable[[Chip], float | None],
        shared: bool,
    ) -> None:
        values = tuple(of(chip) for chip in chips)
        if any(value is not None for value in values):
            built.append(Row(group, name, label, unit, shared, values))

    row(
        "Chip",
        "devices_per_chip",
        "devices a chip",
        "1",
        lambda c: float(c.devices_per_chip),
        False,
    )
    width = "matrix_unit_cols"
    row("Chip", width, "matrix unit width", "1", _figure(width), False)
    for dtype in DTYPES:
        name = f"peak_{dtype}_flop_per_s"
        row("Peak, dense", name, dtype, "FLOP/s", _figure(name), True)
    memory = "Memory"
    row(memory, "hbm_bytes", "HBM as sold", "B", _figure("hbm_bytes"), True)
    row(memory, "usable_hbm_bytes", "HBM usable", "B", usable_hbm_bytes, True)
    rate = "hbm_bandwidth_bytes_per_s"
    row(memory, rate, "HBM bandwidth", "B/s", _figure(rate), True)
    row(memory, "vmem_bytes", "VMEM or SBUF", "B", _figure("vmem_bytes"), True)
    row(memory, "l2_bytes", "L2", "B", _figure("l2_bytes"), True)
    for dtype in DTYPES:
        row(
            "Ridge against HBM",
            f"ridge_{dtype}_flop_per_byte",
            dtype,
            "FLOP/B",
            _ridge(dtype),
            False,
        )
    for name, label, of in LEVELS:
        row("Network, one-way", name, label, "B/s", of, True)
    row("Network, one-way", "scale_up_domain_chips", "chips in a domain", "1", _domain, False)
    for name, label, of in LEVELS:
        key = name.removesuffix("_bytes_per_s") + "_flop_per_byte"
        row("bf16 FLOP per byte of each level", key, label, "FLOP/B", _per_byte(of), False)
    for commit, label in (
        ("od", "on demand"),
        ("1y", "1 year"),
        ("3y", "3 years"),
        ("spot", "spot"),
    ):
        name = f"price_usd_per_chip_hour_{commit}"
        row("Price", name, label, "USD/chip-hour", _figure(name), True)
    return tuple(built)


def ridge_flop_per_byte(chip: Chip, dtype: str) -> float | None:
    """FLOPs that a byte from HBM must feed for a matmul of ``dtype`` to be compute-bound.

    Dense peak / HBM bandwidth, the same for a chip and for each of its devices; None where the
    chip has no such dtype. Source: the roofline model (Williams, Waterman and Patterson, 2009).
    """
    peak, rate = _figure(f"peak_{dtype}_flop_per_s")(chip), chip.value("hbm_bandwidth_bytes_per_s")
    return None if peak is None else peak / rate


def scale_up_bytes_per_s(chip: Chip) -> float:
    """One-way bytes/s of all scale-up links of a chip together."""
    total = chip.value("scale_up_link_bytes_per_s") * chip.value("scale_up_links")
    if chip.has("scale_up_z_link_bytes_per_s"):
        total += chip.value("scale_up_z_link_bytes_per_s") * chip.value("scale_up_z_links")
    return total


def usable_hbm_bytes(chip: Chip) -> float:
    """Bytes that programs can allocate on a whole chip."""
    return chip.value("usable_hbm_bytes_per_device") * chip.devices_per_chip


def _figure(name: str) -> Callable[[Chip], float | None]:
    return lambda chip: chip.value(name) if chip.has(name) else None


def _ridge(dtype: str) -> Callable[[Chip], float | None]:
    return lambda chip: ridge_flop_per_byte(chip, dtype)


def _domain(chip: Chip) -> float | None:
    return chip.value("scale_up_domain_chips")


def _per_byte(of: Callable[[Chip], float | None]) -> Callable[[Chip], float | None]:
    def ratio(chip: Chip) -> float | None:
        rate = of(chip)
        return None if rate is None else chip.value("peak_bf16_flop_per_s") / rate

    return ratio


LEVELS: tuple[tuple[str, str, Callable[[Chip], float | None]], ...] = (
    ("scale_up_link_bytes_per_s", "one scale-up link", _figure("scale_up_link_bytes_per_s")),
    ("scale_up_bytes_per_s", "all scale-up links", scale_up_bytes_per_s),
    ("scale_out_bytes_per_s", "scale-out or DCN", _figure("scale_out_bytes_per_s")),
    ("host_link_bytes_per_s", "host", _figure("host_link_bytes_per_s")),
)
"""Network levels of a chip, from the inside out."""
