"""Chips from their data files (``machines/data/<key>.toml``), read once and checked."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from chipshift.errors import InputError, nearest
from chipshift.machines.chip import Alternative, Chip, Figure

DATA = Path(__file__).parent / "data"

KEYS = (
    "a100", "h100", "h200", "b200", "b300", "gb200", "gb300",
    "mi300x", "mi325x", "mi350x", "mi355x",
    "v4", "v5e", "v5p", "v6e", "v7x",
    "trn1", "trn2", "trn3",
)  # fmt: skip
"""Every chip, in the order in which they are listed."""

FAMILIES = {"nvidia": "gpu", "amd": "gpu", "google": "tpu", "aws": "trainium"}

UNIT_OF_SUFFIX = (
    ("_flop_per_s", "FLOP/s"),
    ("_flop_per_cycle_per_sm_bf16", "FLOP/cycle"),
    ("_bytes_per_s", "B/s"),
    ("_bytes_per_device", "B"),
    ("_bytes_per_sm", "B"),
    ("_bytes", "B"),
    ("_hz", "Hz"),
    ("_w", "W"),
    ("_latency_s", "s"),
)
"""The unit that a figure's name promises; a price is ``USD/chip-hour``, a count ``1``."""

_DATE = re.compile(r"20\d\d(-(0[1-9]|1[0-2])(-([0-2]\d|3[01]))?)?")


@dataclass(frozen=True)
class ChipFile:
    """One data file.

    Attributes:
        chip: its figures.
        absent: figures looked for and not given, with the reason.
        slices: the table ``[slices]`` as read, empty for GPUs.
        vms: the tables ``[vms]`` as read.
    """

    chip: Chip
    absent: Mapping[str, str]
    slices: Mapping[str, Any]
    vms: Mapping[str, Mapping[str, Any]]


def chip(key: str) -> Chip:
    """The chip called ``key`` (see ``names.chip_named`` for what people write instead).

    Raises:
        InputError: there is no such chip, or its data file is broken.
    """
    return chip_file(key).chip


@cache
def all_chips() -> tuple[Chip, ...]:
    """Every chip, in the order of ``KEYS``."""
    return tuple(chip(key) for key in KEYS)


@cache
def chip_file(key: str) -> ChipFile:
    """The whole data file of a chip; raises InputError as ``chip`` does."""
    if key not in KEYS:
        raise InputError(
            f"no chip is called '{key}'{nearest(key, KEYS)} (known: {', '.join(KEYS)})"
        )
    return read_chip_file(DATA / f"{key}.toml")


def read_chip_file(path: Path) -> ChipFile:
    """Read and check one data file.

    Raises:
        InputError: naming the file, the key, what was found and what was expected.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path.name}: cannot be read as TOML: {error}") from error
    for key in ("key", "name", "vendor", "family"):
        if not isinstance(raw.get(key), str):
            raise InputError(f"{path.name}: '{key}' must be a string, found {raw.get(key)!r}")
    if FAMILIES.get(raw["vendor"]) != raw["family"]:
        raise InputError(
            f"{path.name}: vendor '{raw['vendor']}' with family '{raw['family']}'; expected one of "
            + ", ".join(f"{vendor} ({family})" for vendor, family in FAMILIES.items())
        )
    devices = raw.get("devices_per_chip")
    if not isinstance(devices, int) or isinstance(devices, bool) or devices < 1:
        raise InputError(f"{path.name}: 'devices_per_chip' must be 1 or more, found {devices!r}")
    figures = {name: _figure(path, name, table) for name, table in raw.get("figures", {}).items()}
    chip = Chip(raw["key"], raw["name"], raw["vendor"], raw["family"], devices, figures)
    return ChipFile(chip, raw.get("absent", {}), raw.get("slices", {}), raw.get("vms", {}))


def unit_of(name: str) -> str:
    """The unit that a figure's name promises."""
    if name.startswith("price_usd_per_chip_hour_"):
        return "USD/chip-hour"
    return next((unit for suffix, unit in UNIT_OF_SUFFIX if name.endswith(suffix)), "1")


def _figure(path: Path, name: str, table: Any) -> Figure:
    where = f"{path.name}: figures.{name}"
    if not isinstance(table, dict):
        raise InputError(f"{where}: expected a table with value, unit, source and date")
    unknown = set(table) - {"value", "unit", "source", "date", "note", "alternatives"}
    if unknown:
        raise InputError(f"{where}: unknown key '{min(unknown)}'")
    value = _number(where, table.get("value"))
    if value <= 0:
        raise InputError(f"{where}: value must be above 0, found {value:g}")
    if table.get("unit") != unit_of(name):
        raise InputError(f"{where}: unit must be '{unit_of(name)}', found {table.get('unit')!r}")
    if not isinstance(table.get("date"), str) or not _DATE.fullmatch(table["date"]):
        raise InputError(
            f"{where}: date must be a string YYYY, YYYY-MM or YYYY-MM-DD, "
            f"found {table.get('date')!r}"
        )
    source = _text(where, table, "source")
    note = _text(where, table, "note") if "note" in table else ""
    alternatives = tuple(
        Alternative(
            _number(f"{where}.alternatives", item.get("value")),
            _text(f"{where}.alternatives", item, "source"),
            _text(f"{where}.alternatives", item, "why_not"),
        )
        for item in table.get("alternatives", [])
    )
    return Figure(value, table["unit"], source, table["date"], alternatives, note)


def _number(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{where}: value must be a finite number, found {value!r}")
    return float(value)


def _text(where: str, table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: '{key}' must be a sentence, found {value!r}")
    return value
