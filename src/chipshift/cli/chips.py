"""``chipshift chips``: the chips known, each figure with its source, and chips side by side."""

from __future__ import annotations

import json
import sys
import textwrap
from typing import Annotated, Any

import typer

from chipshift import units
from chipshift.cli.completion import chips
from chipshift.errors import InputError
from chipshift.machines import all_chips, chip_named, rentable
from chipshift.machines.chip import Chip, Figure
from chipshift.machines.compare import Row, rows, scale_up_bytes_per_s
from chipshift.machines.instances import Instance, instances_of
from chipshift.machines.load import chip_file
from chipshift.machines.slices import SliceShape, Vm
from chipshift.report.lines import cut, room

CONVENTIONS = "FLOP/s are dense, link rates one-way; GB is 1e9 bytes, GiB 2^30."

Line = tuple[str, str]
"""A line of output and its style on a terminal."""


def command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="CHIP", help="Print this chip's figures.", autocompletion=chips),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", help="Print these chips side by side.", autocompletion=chips
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """The chips known, each figure with its source; side by side in the same units.

    \b
    Examples:
      chipshift chips
      chipshift chips v7x
      chipshift chips --compare h100,v6e,v7x
      chipshift chips --compare h100,v7x --json
    """
    if name is not None and compare is not None:
        raise InputError(f"chips: give either '{name}' or --compare, not both")
    if compare is not None:
        chips = _chips_named(compare)
        lines = comparison_lines(chips, room())
    elif name is not None:
        chips = (chip_named(name),)
        lines = chip_lines(chips[0], room())
    else:
        chips = all_chips()
        lines = list_lines(chips, room())
    if as_json:
        print(json.dumps(as_object(chips, compare is not None), ensure_ascii=False, indent=1))
    else:
        show(lines)


def _chips_named(compare: str) -> tuple[Chip, ...]:
    names = [part for part in compare.split(",") if part.strip()]
    if not names:
        raise InputError(
            f"chips: --compare '{compare}' names no chip; write --compare h100,v6e,v7x"
        )
    chips = tuple(chip_named(part) for part in names)
    return tuple(dict.fromkeys(chips))


def as_object(chips: tuple[Chip, ...], compared: bool) -> dict[str, Any]:
    """The JSON object of ``--json``; a comparison adds its rows."""
    found: dict[str, Any] = {
        "schema": "chipshift/chips/1",
        "chips": [
            {
                "key": chip.key,
                "name": chip.name,
                "vendor": chip.vendor,
                "family": chip.family,
                "devices_per_chip": chip.devices_per_chip,
                "figures": {name: _figure_object(f) for name, f in chip.figures.items()},
                "absent": dict(chip_file(chip.key).absent),
                "slices": [_slice_object(shape) for shape in rentable(chip.key)],
                "instances": [_instance_object(one) for one in instances_of(chip.key)],
            }
            for chip in chips
        ],
    }
    if compared:
        keys = [chip.key for chip in chips]
        found["compare"] = [
            {
                "name": row.name,
                "unit": row.unit,
                "per_chip": _by_key(keys, row.unit, row.values),
                "per_device": _by_key(keys, row.unit, row.per_device(chips)),
            }
            for row in rows(chips)
        ]
    return found


def _by_key(
    keys: list[str], unit: str, values: tuple[float | None, ...]
) -> dict[str, float | int | None]:
    return {key: _value(value, unit) for key, value in zip(keys, values, strict=True)}


def _value(value: float | None, unit: str) -> float | int | None:
    """Counts as integers, everything else as SI floats."""
    return int(value) if value is not None and unit == "1" else value


def _slice_object(shape: SliceShape) -> dict[str, Any]:
    return {
        "topology": shape.topology,
        "chips": shape.chips,
        "cloud_name": shape.cloud_name or None,
        "wraps": list(shape.wraps),
        "machine_types": [vm.name for vm in shape.vms],
    }


def _instance_object(one: Instance) -> dict[str, Any]:
    return {
        "name": one.name,
        "chips": one.chips,
        "scale_out_bytes_per_s": one.scale_out_bytes_per_s,
        "source": one.source,
    }


def _figure_object(figure: Figure) -> dict[str, Any]:
    return {
        "value": _value(figure.value, figure.unit),
        "unit": figure.unit,
        "source": figure.source,
        "date": figure.date,
        "note": figure.note,
        "alternatives": [
            {
                "value": _value(other.value, figure.unit),
                "source": other.source,
                "why_not": other.why_not,
            }
            for other in figure.alternatives
        ],
    }


def list_lines(chips: tuple[Chip, ...], width: int) -> list[Line]:
    """One line a chip; in a narrow terminal the names are cut, never the figures."""
    heads = ("chip", "", "bf16", "HBM", "HBM rate", "scale-up", "USD/h", "devices")
    under = ("", "", "TFLOP/s", "GB", "GB/s", "GB/s", "", "a chip")
    figures = (8, 6, 9, 9, 7, 8) if width >= 93 else (7, 5, 8, 8, 6, 7)
    widths = (7, min(32, width - 7 - sum(figures) - len(figures) - 1), *figures)
    body = [
        (
            chip.key,
            cut(chip.name, widths[1]),
            units.significant(chip.value("peak_bf16_flop_per_s") / 1e12, 4),
            units.significant(chip.value("hbm_bytes") / units.GB, 3),
            f"{chip.value('hbm_bandwidth_bytes_per_s') / units.GB:,.0f}",
            f"{scale_up_bytes_per_s(chip) / units.GB:,.0f}",
            _price(chip),
            str(chip.devices_per_chip),
        )
        for chip in chips
    ]
    lines = [(_columns(heads, widths), "bold"), (_columns(under, widths), "dim")]
    lines += [(_columns(row, widths), "") for row in body]
    foot = (
        f"Per chip. {CONVENTIONS} Scale-up: all links of a chip together. USD per chip-hour on "
        "demand, where sourced. `chipshift chips v7x` gives each figure with its source."
    )
    return [*lines, ("", ""), *((line, "dim") for line in textwrap.wrap(foot, width))]


def _price(chip: Chip) -> str:
    name = "price_usd_per_chip_hour_od"
    return f"{chip.value(name):.2f}" if chip.has(name) else "–"


def chip_lines(chip: Chip, width: int) -> list[Line]:
    """Every figure of a chip with its source, its alternatives, and what was not found."""
    per = chip.devices_per_chip
    several = f", {per} devices a chip" if per > 1 else ""
    lines: list[Line] = [(f"{chip.key}: {chip.name}{several}", "bold")]
    head = f"Per chip unless the name says otherwise. {CONVENTIONS}"
    lines += [(line, "dim") for line in textwrap.wrap(head, width)]
    for name, figure in chip.figures.items():
        lines.append(("", ""))
        lines.append((f"{name:42}{in_unit(figure.value, figure.unit)}", "bold"))
        note = f" ({figure.note})" if figure.note else ""
        lines += _wrapped(f"{figure.source}, {figure.date}{note}", "", width)
        for other in figure.alternatives:
            value = in_unit(other.value, figure.unit)
            lines += _wrapped(f"not {value}: {other.why_not} [{other.source}]", "dim", width)
    absent = chip_file(chip.key).absent
    if absent:
        lines += [("", ""), ("Not given", "bold")]
        for name, why in absent.items():
            lines += _wrapped(f"{name}: {why}", "", width)
    return [*lines, *_slice_lines(chip, width), *_instance_lines(chip, width)]


def _slice_lines(chip: Chip, width: int) -> list[Line]:
    shapes = rentable(chip.key)
    if not shapes:
        return []
    table = chip_file(chip.key).slices
    note = f" ({table['note']})" if table.get("note") else ""
    lines: list[Line] = [("", ""), (f"Slices that can be rented: {len(shapes)}", "bold")]
    lines += _wrapped(f"{table['source']}, {table['date']}{note}", "dim", width)
    kinds_of_wrap: dict[str, list[str]] = {}
    for shape in shapes:
        name = shape.topology + (f" ({shape.cloud_name})" if shape.cloud_name else "")
        kinds_of_wrap.setdefault(_wrap(shape), []).append(name)
    for kind, named in kinds_of_wrap.items():
        lines += _wrapped(f"{kind}: {', '.join(named)}", "", width)
    kinds = dict.fromkeys(vm for shape in shapes for vm in shape.vms)
    return [*lines, *_wrapped(f"Machine types: {', '.join(map(_vm, kinds))}", "", width)]


def _instance_lines(chip: Chip, width: int) -> list[Line]:
    """Instances with a name of their own: how many chips, and the network of each."""
    own = instances_of(chip.key)
    if not own:
        return []
    lines: list[Line] = [("", ""), (f"Instances by name: {len(own)}", "bold")]
    for one in own:
        rate = one.scale_out_bytes_per_s
        network = "" if rate is None else f", {_short(rate / units.GB)} GB/s of network a chip"
        lines.append((f"    {one.name} ({one.chips} chips{network})", ""))
        lines += _wrapped(one.source, "dim", width)
    return lines


def _wrap(shape: SliceShape) -> str:
    if all(shape.wraps):
        return "Every axis wraps"
    return "Axes of 16 wrap" if any(shape.wraps) else "No axis wraps"


def _vm(vm: Vm) -> str:
    chips = "1 chip" if vm.chips == 1 else f"{vm.chips} chips"
    return f"{vm.name} ({chips}, {_short(vm.dcn_bytes_per_s / units.GB)} GB/s of network a chip)"


def _wrapped(text: str, style: str, width: int) -> list[Line]:
    parts = textwrap.wrap(
        text, width, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
    )
    return [(part, style) for part in parts]


def in_unit(value: float, unit: str) -> str:
    """A figure in the unit people read: TFLOP/s, GB/s, GiB or MiB, GHz, microseconds."""
    if unit == "FLOP/s":
        return f"{_short(value / 1e12)} TFLOP/s"
    if unit == "B/s":
        return f"{_short(value / units.GB)} GB/s"
    if unit == "B":
        binary, size = ("GiB", units.GIB) if value >= units.GIB else ("MiB", units.MIB)
        if value < units.MIB:
            binary, size = "KiB", units.KIB
        return f"{value:,.0f} bytes = {_short(value / size)} {binary}"
    if unit == "Hz":
        return f"{_short(value / 1e9)} GHz"
    if unit == "s":
        return f"{_short(value * 1e6)} µs"
    if unit == "USD/chip-hour":
        return f"{value:.4g} USD a chip-hour"
    return f"{_short(value)} {unit}" if unit != "1" else _short(value)


def _short(value: float) -> str:
    """Up to three decimals, no trailing zeros, grouped thousands."""
    text = f"{value:,.3f}"
    return text.rstrip("0").rstrip(".")


def comparison_lines(chips: tuple[Chip, ...], width: int) -> list[Line]:
    """The chips side by side; a chip of several devices has a column for one of them too."""
    columns: list[tuple[Chip, bool]] = []
    for chip in chips:
        columns.append((chip, False))
        if chip.devices_per_chip > 1:
            columns.append((chip, True))
    column, label = 11, 33
    fits = (width - label) // (column + 1)
    found = rows(chips)
    lines: list[Line] = []
    for start in range(0, len(columns), fits):
        if start:
            lines.append(("", ""))
        lines += _block(found, chips, columns[start : start + fits], label, column)
    foot = (
        f"{CONVENTIONS} Per chip, and per device where a chip holds several: they share its links "
        "and have a memory each. – is not supported or not sourced (see chipshift chips CHIP)."
    )
    return [*lines, ("", ""), *((line, "dim") for line in textwrap.wrap(foot, width))]


def _block(
    found: tuple[Row, ...],
    chips: tuple[Chip, ...],
    columns: list[tuple[Chip, bool]],
    label: int,
    column: int,
) -> list[Line]:
    widths = (label, *(column,) * len(columns))
    heads = [chip.key for chip, _ in columns]
    under = [
        "a device" if device else "a chip" if chip.devices_per_chip > 1 else ""
        for chip, device in columns
    ]
    lines: list[Line] = [(_columns(["", *heads], widths, left=1), "bold")]
    if any(under):
        lines.append((_columns(["", *under], widths, left=1), "dim"))
    group = ""
    for row in found:
        if row.group != group:
            group = row.group
            lines.append((group, "bold"))
        unit, scale, digits = _scale(row)
        cells = []
        for chip, device in columns:
            values = row.per_device(chips) if device else row.values
            value = values[chips.index(chip)]
            cells.append("–" if value is None else f"{value / scale:,.{digits}f}")
        text = f"  {row.label}, {unit}" if unit else f"  {row.label}"
        lines.append((_columns([text, *cells], widths, left=1), ""))
    return lines


def _scale(row: Row) -> tuple[str, float, int]:
    """Printed unit, its size in SI and the decimals of a row."""
    if row.name == "hbm_bytes":
        return "GB", units.GB, 1
    if row.name == "usable_hbm_bytes":
        return "GiB", units.GIB, 2
    known = {
        "FLOP/s": ("TFLOP/s", 1e12, 1),
        "B/s": ("GB/s", units.GB, 2),
        "B": ("MiB", units.MIB, 1),
        "FLOP/B": ("FLOP/B", 1.0, 0),
        "USD/chip-hour": ("USD/h", 1.0, 2),
    }
    return known.get(row.unit, ("", 1.0, 0))


def _columns(cells: list[str] | tuple[str, ...], widths: tuple[int, ...], left: int = 2) -> str:
    """Cells in columns, the first ``left`` to the left and the rest to the right."""
    placed = [
        f"{cell:<{width}}" if place < left else f"{cell:>{width}}"
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return " ".join(placed).rstrip()


def show(lines: list[Line]) -> None:
    """Print lines, in style on a terminal and plain elsewhere."""
    if not sys.stdout.isatty():
        print("\n".join(text for text, _ in lines))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for text, style in lines:
        console.print(Text(text, style=style))
