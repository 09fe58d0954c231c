"""A chip: a data file of sourced figures (``machines/data/*.toml``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Alternative:
    """A figure that another source gives, kept beside the chosen one."""

    value: float
    source: str
    why_not: str


@dataclass(frozen=True)
class Figure:
    """One sourced figure, in the SI unit that ``unit`` names.

    Attributes:
        value: the chosen figure.
        unit: ``FLOP/s``, ``B``, ``B/s``, ``W``, ``Hz``, ``USD/chip-hour``, ``1`` ...
        source: publisher, page; or ``derived: <arithmetic>`` or ``assumed: <why>``.
        date: date of the source's copy, ISO, possibly only year-month or year.
        alternatives: what other sources give and why it was not chosen.
        note: anything a reader must know before using it.
    """

    value: float
    unit: str
    source: str
    date: str
    alternatives: tuple[Alternative, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Chip:
    """What is bought, numbered and linked as one accelerator.

    Links belong to the chip, memory to its devices: a v7x chip holds two devices with a memory
    each, a Trainium2 four (LNC=2).

    Attributes:
        key: ``h100``, ``v6e``, ...; the name used on the command line.
        name: as the vendor writes it.
        vendor: ``nvidia``, ``amd``, ``google`` or ``aws``.
        family: ``gpu``, ``tpu`` or ``trainium``.
        devices_per_chip: what the framework counts as devices on one chip.
        figures: every sourced figure by name, **per chip** unless the name says ``per_device``.
            Names are listed in docs/machines.md.
    """

    key: str
    name: str
    vendor: str
    family: str
    devices_per_chip: int
    figures: Mapping[str, Figure] = field(hash=False)

    def has(self, name: str) -> bool:
        return name in self.figures

    def value(self, name: str) -> float:
        """The figure's value. Raises KeyError naming chip and figure when unsourced."""
        figure = self.figures.get(name)
        if figure is None:
            raise KeyError(f"{self.key} has no sourced figure '{name}'")
        return figure.value

    def peak_flop_per_s(self, dtype: str) -> float:
        """Dense peak of one **device** for a matmul dtype. KeyError where the chip has none."""
        return self.value(f"peak_{dtype}_flop_per_s") / self.devices_per_chip
