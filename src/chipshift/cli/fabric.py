"""``chipshift fabric``: where mesh axes sit on a machine, and how long collectives take there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from chipshift import units
from chipshift.cli.chips import Line, show
from chipshift.cli.completion import machines
from chipshift.errors import InputError, nearest
from chipshift.fabric.describe import describe, explain
from chipshift.fabric.paces import KINDS
from chipshift.fabric.torus import AXES
from chipshift.machines.names import parse_machine, readings
from chipshift.report.lines import room

DEFAULT_BYTES = "1MiB,16MiB,256MiB,1GiB"
_UNITS = {
    "": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9,
    "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30,
}  # fmt: skip
_MOST_BYTES = 1e15


def command(
    machine: Annotated[
        str,
        typer.Argument(metavar="MACHINE", help="As v6e:16x16, h100*128.", autocompletion=machines),
    ],
    mesh: Annotated[str, typer.Option(metavar="A=N,B=N", help="Axes; the last communicates most.")],
    message: Annotated[
        str, typer.Option("--bytes", metavar="SIZE,...", help="Bytes of the full array.")
    ] = DEFAULT_BYTES,
    explain_path: Annotated[
        str | None,
        typer.Option("--explain", metavar="PATH", help="Working of one figure of the output."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Where the axes of a mesh sit on a machine, and how long collectives take on each.

    \b
    Examples:
      chipshift fabric v6e:16x16 --mesh fsdp=16,tp=16
      chipshift fabric 'h100*128' --mesh dp=2,fsdp=8,tp=8 --bytes 64MiB,1GiB
      chipshift fabric v7x:4x4x4 --mesh fsdp=32,tp=4 --explain collectives.0.time_s
      chipshift fabric v6e:16x16*4 --mesh dp=4,fsdp=256 --json
    """
    on, axes = parse_machine(machine), parse_mesh(mesh)
    found = describe(on, axes, parse_sizes(message))
    working = None
    if explain_path is not None:
        working = explain(on, axes, _entry(found, explain_path))
    if as_json:
        from chipshift.worked.tree import as_json as worked_json

        extra = {} if working is None else {"worked": worked_json(working)}
        print(json.dumps({**found, **extra}, ensure_ascii=False, indent=1))
    elif working is not None:
        from chipshift.worked.tree import lines

        print("\n".join(lines(working)))
    else:
        show([(readings(on), "bold"), *fabric_lines(found, room())])


def parse_mesh(text: str) -> dict[str, int]:
    """``fsdp=16,tp=16`` as sizes by name, in order.

    Raises:
        InputError: saying what was found and what a mesh looks like.
    """
    axes: dict[str, int] = {}
    for part in text.split(","):
        name, sign, size = (piece.strip() for piece in part.partition("="))
        if not sign or not name or not re.fullmatch(r"[0-9]{1,9}", size) or int(size) < 1:
            raise InputError(
                f"--mesh '{text}': '{part}' is not AXIS=SIZE with a size of at least 1"
            )
        if name in axes:
            raise InputError(f"--mesh '{text}': axis '{name}' is given twice")
        axes[name] = int(size)
    return axes


def parse_sizes(text: str) -> list[float]:
    """``1MiB,64MB,1e9`` as bytes.

    Raises:
        InputError: for a size that is no positive number of bytes up to 1e15.
    """
    sizes = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([a-z]*)\s*", part.lower())
        unit = found[2] if found else None
        try:
            size = float(found[1]) * _UNITS[found[2]] if found else 0.0
        except (KeyError, ValueError):
            size = 0.0
        if not 0 < size <= _MOST_BYTES:
            close = nearest(unit, list(_UNITS)) if unit else ""
            raise InputError(
                f"--bytes '{text}': '{part}' is not a size such as 1MiB, 64MB or 1e9{close}"
            )
        sizes.append(size)
    return sizes


def _entry(found: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The entry that ``collectives.N.time_s`` or ``axes.N.bandwidth_bytes_per_s`` belongs to."""
    match = re.fullmatch(
        r"(collectives)\.([0-9]{1,6})\.time_s|(axes)\.([0-9]{1,6})\.bandwidth_bytes_per_s", path
    )
    if match is None:
        raise InputError(
            f"--explain '{path}': expected collectives.N.time_s or axes.N.bandwidth_bytes_per_s"
        )
    key, index = match[1] or match[3], int(match[2] or match[4])
    entries: list[Mapping[str, Any]] = found[key]
    if index >= len(entries):
        raise InputError(f"--explain '{path}': {key} has {len(entries)} entries, numbered from 0")
    if key == "axes" and entries[index]["size"] == 1:
        raise InputError(f"--explain '{path}': an axis of 1 device has no bandwidth")
    return entries[index]


def fabric_lines(found: Mapping[str, Any], width: int) -> list[Line]:
    """The axes, then a table of times an axis, then what to know about them."""
    lines: list[Line] = [("", ""), (f"{'axis':<8}{'size':>6}  {'hops':>4}  {'links':>5}  "
                                    f"{'one-way/device':>14}  on", "bold")]  # fmt: skip
    for axis in found["axes"]:
        rate = axis["bandwidth_bytes_per_s"]
        lines.append(
            (
                f"{axis['name']:<8.8}{axis['size']:>6}  {axis['hops']:>4}  {axis['links']:>5}  "
                f"{'–' if rate is None else units.si(rate, 'B/s'):>14}  {_where(axis)}",
                "",
            )
        )
    for axis in found["axes"]:
        if axis["size"] > 1:
            lines += _times(axis["name"], found["collectives"], width)
    lines.append(("", ""))
    for label, texts in (("note", found["notes"]), ("measured", found["curves"])):
        for text in texts:
            lines += [(line, "dim") for line in _wrapped(f"{label}: {text}", width)]
    return lines


def _where(axis: Mapping[str, Any]) -> str:
    """``x 4 (every 4th) · y 16 ring``: the pieces, outermost first."""
    texts = []
    for piece in axis["physical"]:
        text = f"{piece['axis']} {piece['size']}"
        if piece["stride"] > 1:
            text += f" (stride {piece['stride']})"
        if piece["wraps"]:
            text += " ring"
        elif piece["axis"] in AXES:
            text += " line"
        texts.append(text)
    return " · ".join(texts) or "one device"


def _times(name: str, collectives: Sequence[Mapping[str, Any]], width: int) -> list[Line]:
    """A table of times by kind and size, in as many blocks as the width needs."""
    mine = [one for one in collectives if one["axis"] == name]
    every = list(dict.fromkeys(one["message_bytes"] for one in mine))
    fits = (width - 18) // 13
    lines: list[Line] = []
    for start in range(0, len(every), fits):
        sizes = every[start : start + fits]
        head = f"{name + ', V =':<18.18}" + "".join(f"{_size(size):>13}" for size in sizes)
        lines += [("", ""), (head, "bold")]
        for kind in KINDS:
            times = {one["message_bytes"]: one["time_s"] for one in mine if one["kind"] == kind}
            cells = "".join(f"{units.duration(times[size]):>13}" for size in sizes)
            lines.append((f"{kind.replace('_', '-'):<18}{cells}", ""))
    return lines


def _size(value: float) -> str:
    """Bytes in the largest binary unit that they are a whole number of, else in SI."""
    for name, unit in (("GiB", units.GIB), ("MiB", units.MIB), ("KiB", units.KIB)):
        if value >= unit and value % unit == 0:
            return f"{int(value / unit)} {name}"
    return units.si(value, "B")


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width - 2, subsequent_indent="  ")
