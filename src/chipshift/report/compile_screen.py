"""A compilation on the terminal: does it fit, what it sends, what it pads, what changed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from chipshift.report.lines import Line, Span, cut, indented, labelled, print_lines, room
from chipshift.report.sharding_lines import sharding_lines
from chipshift.units import duration, gib_or_mib, si

Report = Mapping[str, Any]

ROWS = 12
"""Collectives and tensors listed."""

SEEN = 1.05
"""Physical over logical bytes from which a tensor's padding is shown: 1.1 times."""

ROOMY = 90
"""Columns from which the table of collectives has its full spacing and room beside it."""

TENSORS = 6
"""Largest tensors listed where it does not fit."""

NEAR_THE_LIMIT = "so near the limit the fast mode's error could turn that: compile with --time"
"""Said where the fast mode's verdict is not safe."""

KERNELS = 6
"""Kernels listed that the compiler has no cycles for."""

BY = {
    "attention": "by the chip's attention kernels",
    "roofline": "by the roofline",
    "bytes": "at least, by its bytes (pl.CostEstimate would state its work)",
}
"""Where a kernel's seconds are from."""

NO_TIME = "and no time (pl.CostEstimate would state its work)"
"""Of a kernel whose operands lie in the core's own memory."""

SENT = "bytes_per_device_per_step"

ROUNDING = 0.005
"""Share of a collective's bytes, or of a peak, below which what its parts leave is not said."""


def print_compile(report: Report) -> None:
    """Print the screen of a compilation and of those beside it."""
    print_lines(screen(report, room()))


def screen(report: Report, width: int = 100) -> Iterator[Line]:
    """The lines of one report's JSON."""
    yield from _one(report, width)
    for other in report["also"]:
        yield []
        yield from _one(other, width)
    if report["also"]:
        yield []
        yield from _side_by_side([report, *report["also"]], width)
    if report["against"]:
        yield []
        yield from _against(report["against"], width)


def _one(r: Report, width: int) -> Iterator[Line]:
    yield [
        Span(r["machine"], "bold"),
        Span(f"  {cut(r['program'], width - len(r['machine']) - 2)}"),
    ]
    for note in r["notes"]:
        yield from indented(note, width, 2)
    yield from _verdict(r, width)
    yield from _fast_mode(r, width)
    if r["fits"] is False:
        yield from _too_large(r, width)
    yield from _memory(r, width)
    yield from sharding_lines(r.get("sharding"), width)
    if r["collectives"]:
        yield []
        yield from _collectives(r, width)
    yield from _padding(r, width)
    for finding in r["findings"]:
        yield from _finding(finding, width)
    spent = r["compile_time_s"]
    versions = ", ".join(f"{name} {found}" for name, found in r["versions"].items() if found)
    how = ", from the cache" if r["cached"] else f", {duration(spent)} to compile" if spent else ""
    by = f"; {versions}" if versions else ""
    yield [Span(cut(f"  {r['mode']} mode{how}{by}", width), "dim")]


def _verdict(r: Report, width: int) -> Iterator[Line]:
    memory = r["memory_bytes"]
    if r["fits"]:
        share = memory["peak"] / memory["available"]
        peak, available = gib_or_mib(memory["peak"]), gib_or_mib(memory["available"])
        yield [
            Span("  fits: ", "bold green"),
            Span(f"{peak} of {available} at the peak ({share:.0%})"),
        ]
    elif r["fits"] is False:
        held = f"{gib_or_mib(memory['peak'])} at the peak, {gib_or_mib(memory['available'])} there"
        yield [
            Span("  does not fit: ", "bold red"),
            Span(f"{gib_or_mib(r['short_bytes'])} too much ({held})"),
        ]
    elif not r["compiled"]:
        yield [Span("  did not compile", "bold red")]
        if not r["findings"]:
            yield from indented(str(r["reason"]), width, 4)
    else:
        peak = memory["peak"]
        held = f", {gib_or_mib(peak)} at the peak" if peak is not None else ""
        yield [Span(f"  compiled{held}")]


def _fast_mode(r: Report, width: int) -> Iterator[Line]:
    """How far the fast mode is known to stray on this chip, and whether that could turn the
    verdict."""
    known = r["fast_mode"]
    if known is None or not r["memory_bytes"]["peak"]:
        return
    for words, style in fast_mode_words(known, r["machine"]):
        for line in indented(words, width, 2):
            yield [Span(span.text, style) for span in line]


def fast_mode_words(known: Mapping[str, Any], machine: str) -> Iterator[tuple[str, str]]:
    """The known deviation of the fast mode in words, each with the style it is shown in."""
    chip = machine.partition(":")[0]
    if not known["programs"]:
        yield f"fast mode: how far its peak is off a whole compile's on {chip} is not known", "dim"
        return
    peak, over = known["peak"], f"{known['programs']} programs on {chip}"
    if peak["low"] == peak["high"] == 0:
        yield f"fast mode: its peak was the whole compile's to the byte in {over}", "dim"
        return
    yield (
        f"fast mode: its peak is {peak['low']:+.1%} to {peak['high']:+.1%} off the whole compile's "
        f"(median {peak['median']:+.1%}, {over})",
        "dim",
    )
    if known["verdict_holds"] is False:
        yield NEAR_THE_LIMIT, "yellow"


def _too_large(r: Report, width: int) -> Iterator[Line]:
    """What takes the room, and the plan nearest to this one that fits."""
    fit = r["nearest_fit"]
    if fit:
        memory = fit["memory_bytes"]
        peak, available = gib_or_mib(memory["peak"]), gib_or_mib(memory["available"])
        yield [
            Span("  fits instead: ", "bold"),
            Span(f"--plan {fit['plan']}"),
        ]
        yield [Span(f"    {peak} of {available}, compiled to confirm", "dim")]
    if r["largest"]:
        yield [Span("  largest temporaries", "bold")]
    for tensor in r["largest"][:TENSORS]:
        times = f"{tensor['count']} × " if tensor.get("count", 1) > 1 else ""
        size = f"{times}{gib_or_mib(tensor['physical_bytes'])}"
        line: Line = [Span(f"  {size:>16}  {tensor['shape']:<26}")]
        made = place(tensor["source"]) or tensor["name"]
        yield [*line, Span(f"  {_end(made, width - 48)}", "dim")]


def place(source: Any) -> str:
    """``file:line``, the file from the current folder on where it is in it."""
    if not source:
        return ""
    file, line = source[0], source[1]
    for root in ("/site-packages/", f"{Path(__file__).parents[2]}/"):
        _, library, inside = file.rpartition(root)
        if library:
            return f"{inside}:{line}"
    return f"{os.path.relpath(file) if Path(file).is_relative_to(Path.cwd()) else file}:{line}"


def _end(words: str, room: int) -> str:
    """The words, their beginning left out where they do not fit."""
    return words if len(words) <= room else "…" + words[len(words) - room + 1 :]


def _memory(r: Report, width: int) -> Iterator[Line]:
    parts = [
        f"{name} {gib_or_mib(r['memory_bytes'][name])}"
        for name in ("arguments", "outputs", "temporaries")
        if r["memory_bytes"][name] is not None
    ]
    if parts:
        yield [Span("  " + ", ".join(parts))]
    for words in below_the_sum(r["memory_bytes"]):
        yield from _dim(words, width)
    if r["flops_per_device"]:
        yield [Span(f"  {si(r['flops_per_device'], 'FLOP')} a device in matmuls and attention")]
    if r["estimated_time_s"]:
        yield from _time(r["estimated_time_s"], width)


def _time(t: Mapping[str, Any], width: int) -> Iterator[Line]:
    """By the compiler's cycles, and the kernels that have none."""
    parts = f"compute {duration(t['compute'])}"
    if t["total"] is None:
        words = f"{parts}; for what is sent no link's rate is known, so that a step has no time"
    else:
        sent = duration(t["collectives"])
        words = f"{duration(t['total'])} a step = {parts} + exposed collectives {sent}"
    yield from labelled("  time by the compiler's cycles:", words, width)
    for kernel in t.get("kernels", [])[:KERNELS]:
        times = f"{kernel['count_per_step']:,} × {kernel['name']}"
        took = f"{duration(kernel['seconds'])} {BY[kernel['by']]}" if kernel["seconds"] else NO_TIME
        words = f"no cycles, {took}: {times}"
        where = place(kernel["source"])
        yield from _dim(f"{words}  {where}" if where else words, width)


def below_the_sum(memory: Mapping[str, Any]) -> Iterator[str]:
    """Why a peak is less than the parts that are named beside it: they are room, the peak is what
    of it is in use at one time."""
    names = ("peak", "arguments", "outputs", "temporaries")
    peak, given, made, temporary = (memory[name] for name in names)
    if None in (peak, given, made, temporary):
        return
    if given + made + temporary - peak <= ROUNDING * peak:
        return
    shared = "outputs take the room of donated arguments"
    short = "not all temporaries are alive at one time"
    told = [shared] if peak < given + made else []
    told += [short] if peak < given + temporary else []
    yield f"the peak is below their sum: {', and '.join(told) or f'{shared}, or {short}'}"


def _collectives(r: Report, width: int) -> Iterator[Line]:
    rows = r["collectives"]
    ruled = any(one.get("lowered_bytes_per_device_per_step") is not None for one in rows)
    libtpu = "by libtpu" if ruled else ""
    by_plan = "by the plan" if any(one["planned"] is not None for one in rows) else ""
    heads = ("Collective", "axis", "times", "sent a step", by_plan, libtpu, "overlapped")
    yield [Span(_columns(heads, width) + "  how" * (width >= ROOMY), "bold")]
    for one in rows[:ROWS]:
        wanted = one["expected_bytes_per_device_per_step"]
        ways, hidden = one.get("lowered_bytes_per_device_per_step"), one.get("overlapped_fraction")
        by_rule = "" if not ruled else "–" if ways is None else si(ways, "B")
        cells = (
            one["kind"], one["mesh_axis"], f"{one['count_per_step']:,}", si(one[SENT], "B"),
            "" if not by_plan else "–" if wanted is None else si(wanted, "B"), by_rule,
            "–" if hidden is None else f"{hidden:.0%}",
        )  # fmt: skip
        row = _columns(cells, width)
        how = one["algorithm"] or ""
        beside = not how or len(how) <= width - len(row) - 2
        yield [Span(row), Span(f"  {how}" if beside else "", "dim")]
        if not beside:  # an emitter and its strategy are longer than what is left
            yield from _dim(f"how: {how}", width)
        if one["planned"] is None:  # a user's own program: whether it is wanted, its lines tell
            yield from _by_line(one, width)
    yield from _untold(r, ruled, width)
    for one in rows:
        if one["planned"] is False:
            yield from _unplanned(one, width)
        yield from _inserted(one, width)


def _columns(cells: tuple[str, ...], width: int) -> str:
    """A row of the table of collectives: two names and five figures, closer in a narrow one."""
    kind, axis, *figures = cells
    widths = (8, 13, 13, 11, 12) if width >= ROOMY else (7, 12, 12, 10, 11)
    placed = (f"{cell:>{each}}" for cell, each in zip(figures, widths, strict=True))
    return f"  {kind:<16}{axis:<10}{''.join(placed)}"


def _untold(r: Report, ruled: bool, width: int) -> Iterator[Line]:
    """What of the table's columns this report cannot have, and who says it."""
    rows, tpu = r["collectives"], bool(r["versions"].get("libtpu")) and r["fast_mode"] is not None
    if tpu and any(one[SENT] and not one["algorithm"] for one in rows):
        yield from _dim(
            "how: an algorithm is chosen after the buffers are placed; --time says it", width
        )
    if r.get("sharding"):
        yield from _dim(
            "by the plan: what the module's cut asks for, not in which form this compiler sends it",
            width,
        )
    elif r["plan"] and not ruled and any(one["planned"] is not None for one in rows):
        yield from _dim(
            "what this compiler sends for the plan's collectives is not foretold (v5e, v5p, "
            "v6e, v7x are); where it sends other kinds stands below as unplanned",
            width,
        )


def _dim(words: str, width: int) -> Iterator[Line]:
    for line in indented(words, width, 4):
        yield [Span(span.text, "dim") for span in line]


def _inserted(one: Mapping[str, Any], width: int) -> Iterator[Line]:
    """What the compiler put in of a kind over an axis: why, how much and from which line."""
    for put in one.get("insertions", []):
        where = place((put["file"], put["line"])) if put["file"] else ""
        words = f"{si(put[SENT], 'B')} of {one['kind']} over {one['mesh_axis']}, {put['why']}"
        yield [Span("  inserted: ", "yellow"), Span(cut(f"{words}  {where}", width - 12))]


def _unplanned(one: Mapping[str, Any], width: int) -> Iterator[Line]:
    """What the plan did not call for, what it stands in for, and where it comes from."""
    words = f"{one['kind']} over {one['mesh_axis']}"
    more = one[SENT] - one["expected_bytes_per_device_per_step"]
    instead = f", where the plan has {one['instead_of']}" if one["instead_of"] else ""
    # a line's bytes are of all that is sent so: planned and unplanned cannot be told apart there
    origin = f"; all {si(one[SENT], 'B')} by line" if one["sources"] else ""
    yield [
        Span("  unplanned: ", "yellow"),
        Span(cut(f"{si(more, 'B')} of {words}{instead}{origin}", width - 13)),
    ]
    yield from _by_line(one, width)
    if one.get("way_out"):
        yield from indented(f"way out: {one['way_out']}", width, 4)


def _by_line(one: Mapping[str, Any], width: int) -> Iterator[Line]:
    """What a kind over an axis sends by the lines of the program that it comes from."""
    for source in one["sources"]:
        within = f" {source['function']}" if source.get("function") else ""
        where = place((source["file"], source["line"])) + within
        yield [Span(f"    {_end(where, width - 20)}  {si(source[SENT], 'B')}", "dim")]
    rest = one[SENT] - sum(source[SENT] for source in one["sources"])
    if one["sources"] and rest > ROUNDING * one[SENT]:
        yield [Span(f"    other lines, or none known  {si(rest, 'B')}", "dim")]


def _padding(r: Report, width: int) -> Iterator[Line]:
    padding = r["padding"]
    if padding.get("bytes"):
        size, share = gib_or_mib(padding["bytes"]), padding["fraction"]
        yield [Span(f"  padding of the arguments: {size} ({share:.1%})")]
    worst = [
        t
        for t in padding.get("tensors", [])
        if t["physical_bytes"] >= max(2**27, SEEN * t["logical_bytes"])
    ]
    said = dict.fromkeys(
        f"    {t['shape']} takes {t['physical_bytes'] / max(t['logical_bytes'], 1):.1f}x its size: "
        f"{t['name']}"
        for t in worst
    )  # the same tensor of several layers once
    for words in list(said)[:3]:
        yield [Span(cut(words, width), "dim")]


def _finding(finding: Mapping[str, Any], width: int) -> Iterator[Line]:
    where = f"{finding['file']}:{finding['line']} " if finding.get("file") else ""
    yield [Span(f"  {finding['severity']}: ", "bold"), Span(f"{where}{finding['rule']}")]
    yield from indented(finding["message"], width, 4)
    if finding.get("instead"):
        yield from indented(f"instead: {finding['instead']}", width, 4)


def _side_by_side(reports: list[Report], width: int) -> Iterator[Line]:
    each = min(18, (width - 26) // len(reports))
    yield [Span(f"  {'':<24}" + "".join(f"{r['machine']:>{each}}" for r in reports), "bold")]
    for label in ("peak", "available", "arguments", "temporaries"):
        values = [r["memory_bytes"][label] for r in reports]
        cells = "".join(f"{'–' if v is None else gib_or_mib(v):>{each}}" for v in values)
        yield [Span(f"  {label:<24}{cells}")]
    rows = [("FLOP", [r["flops_per_device"] or 0.0 for r in reports], "FLOP")]
    for kind, axis in sorted(
        {(c["kind"], c["mesh_axis"]) for r in reports for c in r["collectives"]}
    ):
        rows.append((f"{kind} {axis}", [_sent(r, kind, axis) for r in reports], "B"))
    for label, sums, unit in rows:
        cells = "".join(f"{si(value, unit) if value else '–':>{each}}" for value in sums)
        yield [Span(f"  {label:<24}{cells}")]


def _sent(r: Report, kind: str, axis: str) -> float:
    same = [c for c in r["collectives"] if (c["kind"], c["mesh_axis"]) == (kind, axis)]
    return float(sum(c[SENT] for c in same))


def _against(a: Mapping[str, Any], width: int) -> Iterator[Line]:
    yield [Span(f"Against {a['file']}", "bold")]
    for one in a["differs"]:
        words = f"of another {one['what']}: {one['old']}, now {one['new']}"
        for line in indented(words, width, 2):
            yield [Span(span.text, "yellow") for span in line]
    changed = False
    for name, change in (a["memory_bytes"] or {}).items():
        if change:
            changed = True
            yield [Span(f"  {name:<24}{'+' if change > 0 else '-'}{gib_or_mib(abs(change))}")]
    for one in a["collectives"][:ROWS]:
        changed = True
        sign = "+" if one["change"] > 0 else "-"
        words = f"{one['kind']} {one['mesh_axis']}"
        yield [Span(f"  {words:<24}{sign}{si(abs(one['change']), 'B')}")]
    for name, change in (a["estimated_time_s"] or {}).items():
        if change:
            changed = True
            yield [Span(f"  time, {name:<18}{'+' if change > 0 else '-'}{duration(abs(change))}")]
    if not changed:
        yield [Span("  nothing changed")]
