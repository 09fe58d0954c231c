"""Collectives of the compilers' kept programs against the arithmetic, by kind and mesh axis.

    python benchmarks/compare_collectives.py                 # every program, and the counts
    python benchmarks/compare_collectives.py --hard          # those of plans chosen to be hard
    python benchmarks/compare_collectives.py --read FOLDER   # read the programs' texts again

``--read`` takes the texts that verify_compile.py --programs keeps, at the compiler's own effort,
and writes what they send in place of those cases' rows in data/compile_collectives.jsonl
(``--hard``: in compile_collectives_hard.jsonl, where every case that the former does not have is
added); the rest compiles and reads nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verify_compile import cases, parse, request_of

from chipshift.compiled.expected import expected
from chipshift.compiled.hlo.collective import by_axis
from chipshift.compiled.hlo.collectives import read_collectives
from chipshift.compiled.hlo.groups import MeshAxes
from chipshift.compiled.hlo.module import parse as parse_program
from chipshift.compiled.planned import delivered
from chipshift.compiled.reading import asked_alone, in_step
from chipshift.compiled.stages import AXES, Sums, in_turn
from chipshift.fabric.lowering import slice_of

KEPT = Path(__file__).parent / "data" / "compile_collectives.jsonl"
HARD = Path(__file__).parent / "data" / "compile_collectives_hard.jsonl"
TEXTS = (".time.hlo", ".fast.hlo")
"""Endings of texts: of a complete compilation, and of one stopped after buffers are placed."""

WITHIN, SMALL = 0.01, 1e-3
"""Relative difference of bytes that counts as none, and the share of all traffic below which none
is looked at."""

SENT = "bytes_per_device_per_step"
Row = dict[str, Any]
Differences = list[tuple[str, str, float, float]]


@dataclass(frozen=True)
class Compared:
    """One program beside the arithmetic.

    Attributes:
        asked: (kind, axis, bytes done, bytes that the sharding asks for) where these differ,
            insertions left out and all-reduces counted as what they do the work of.
        plain: the same with all-reduces counted as all-reduces.
        lowered: bytes sent without insertions, against what the rules of lowering.py say is sent.
        inserted: bytes that the compiler put in, by kind and axis.
    """

    id: str
    asked: Differences
    plain: Differences
    lowered: Differences
    inserted: Sums


def read(folder: Path) -> list[Row]:
    """Rows of the cases whose program is in the folder."""
    rows = []
    for line in (line for group in cases().values() for line in group):
        name = re.sub(r"[^\w.]+", "_", line)
        texts = [folder / (name + end) for end in TEXTS if (folder / (name + end)).exists()]
        if not texts:
            continue
        request = request_of(parse(line))
        assert request.config is not None
        mesh = MeshAxes(AXES, request.config.mesh)
        module = parse_program(texts[0].read_text("utf8"))
        found = read_collectives(module, mesh, asked_alone(request))
        summed = by_axis(tuple(in_step(request, one) for one in found))
        rows.append({"id": line, "collectives": [kept(one) for one in summed]})
    return rows


def kept(one: Any) -> Row:
    """What is kept of a kind over an axis, bytes rounded to whole ones."""
    row = {"kind": one.kind, "mesh_axis": one.axis, SENT: round(one.bytes)}
    if one.inserted:
        row[f"inserted_{SENT}"] = round(one.inserted)
    if one.inserted or one.spent:
        row[f"own_{SENT}"] = round(one.own)
    if one.instead:
        row["in_place_of"] = [
            {"kind": kind, "mesh_axis": axis, SENT: round(sent)} for kind, axis, sent in one.instead
        ]
    return row


def rows(path: Path = KEPT) -> list[Row]:
    return [json.loads(line) for line in path.read_text("utf8").splitlines() if line]


def compare(row: Row) -> Compared:
    request = request_of(parse(row["id"]))
    aim, config = request.target, request.config
    assert config is not None
    inserted: Sums = defaultdict(float)
    sent: Sums = defaultdict(float)
    for one in row["collectives"]:
        key = (one["kind"], one["mesh_axis"])
        inserted[key] += one.get(f"inserted_{SENT}", 0)
        sent[key] += one[SENT] - one.get(f"inserted_{SENT}", 0)
    small = SMALL * sum(sent.values())
    on = slice_of(aim.chip, aim.topology, aim.devices, aim.slices)
    wanted = expected(config)
    done = in_turn(delivered(row["collectives"]), wanted, config)
    return Compared(
        row["id"],
        differences(done, wanted, small),
        differences(sent, wanted, small),
        differences(sent, expected(config, on), small),
        {key: put for key, put in inserted.items() if put > small},
    )


def differences(found: Sums, wanted: Sums, small: float) -> Differences:
    out = []
    for kind, axis in sorted(set(found) | set(wanted)):
        a, b = found.get((kind, axis), 0.0), wanted.get((kind, axis), 0.0)
        if abs(a - b) > WITHIN * b and abs(a - b) > small:
            out.append((kind, axis, a, b))
    return out


def show(one: Compared) -> None:
    """What is to be said of a program, nothing where it sends just what is asked for."""
    if not (one.plain or one.inserted):
        return
    print(one.id)
    for (kind, axis), put in sorted(one.inserted.items()):
        print(f"    {kind:15} {axis:10} {put / 1e6:12.1f} MB inserted by the compiler")
    if one.plain and not one.asked:
        way = "by rule" if not one.lowered else "by layout"
        print(f"    all-reduces in place of gathers or scatters, {way}")
    for kind, axis, a, b in one.lowered if one.plain else ():
        print(f"    {kind:15} {axis:10} {a / 1e6:12.1f} MB, by the rules {b / 1e6:12.1f} MB")
    for kind, axis, a, b in one.asked:
        print(f"    {kind:15} {axis:10} {a / 1e6:12.1f} MB done, asked for {b / 1e6:12.1f} MB")


def count(found: list[Compared]) -> None:
    """The figures that the bar is about."""
    print(
        f"{len(found)} programs at the compiler's own effort, within {WITHIN:.0%} by kind and axis:"
    )
    for words, number in (
        ("all that the sharding asks for is done", sum(not one.asked for one in found)),
        ("  sent as the kinds that it asks for", sum(not one.plain for one in found)),
        ("  sent as the rules of this compiler say", sum(not one.lowered for one in found)),
        ("with unexplained differences", sum(bool(one.asked) for one in found)),
        ("with collectives inserted, each listed", sum(bool(one.inserted) for one in found)),
    ):
        print(f"{number:5}  {words}")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--read", default="", help="folder of the programs' texts")
    parser.add_argument("--hard", action="store_true", help="plans chosen to be hard, and drawn")
    chosen = parser.parse_args(words)
    path = HARD if chosen.hard else KEPT
    if chosen.read:
        kept_ids, held = {row["id"] for row in rows()}, {row["id"]: row for row in rows(path)}
        fresh = [row for row in read(Path(chosen.read)) if (row["id"] in kept_ids) != chosen.hard]
        held |= {row["id"]: row for row in fresh}
        lines = [json.dumps(row, separators=(",", ":")) for row in held.values()]
        path.write_text("".join(f"{line}\n" for line in lines), "utf8")
    found = [compare(row) for row in rows(path)]
    for one in found:
        show(one)
    count(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
