"""A compilation on the terminal: does it fit, what it sends, what it pads, what changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from chipshift.report.lines import Line, Span, cut, indented, print_lines
from chipshift.units import duration, gib, si

ROWS = 12
"""Collectives and tensors listed."""


def print_compile(report: Mapping[str, Any]) -> None:
    """Print the screen of a compilation and of those beside it."""
    print_lines(screen(report))


def screen(report: Mapping[str, Any], width: int = 100) -> Iterator[Line]:
    """The lines of one report's JSON."""
    yield from _one(report, width)
    for other in report["also"]:
        yield []
        yield from _one(other, width)
    if report["also"]:
        yield []
        yield from _side_by_side([report, *report["also"]])
    if report["against"]:
        yield []
        yield from _against(report["against"])


def _one(r: Mapping[str, Any], width: int) -> Iterator[Line]:
    yield [
        Span(r["machine"], "bold"),
        Span(f"  {cut(r['program'], width - len(r['machine']) - 2)}"),
    ]
    yield _verdict(r)
    fit = r.get("nearest_fit")
    if fit:
        yield [
            Span("  fits instead: ", "bold"),
            Span(f"{fit['plan']} ({gib(fit['memory_bytes']['peak'])} at the peak)"),
        ]
    yield from _memory(r)
    if r["collectives"]:
        yield []
        yield from _collectives(r, width)
    yield from _tensors(r, width)
    for finding in r["findings"]:
        place = f"{finding.get('file')}:{finding.get('line')}" if finding.get("file") else ""
        yield [Span(f"  {finding['severity']}: ", "bold"), Span(f"{place} {finding['message']}")]
        yield from indented(finding.get("instead", ""), width, 4)
    spent = r["compile_time_s"]
    versions = ", ".join(f"{name} {version}" for name, version in r["versions"].items())
    how = ", from the cache" if r["cached"] else f", {duration(spent)} to compile" if spent else ""
    yield [Span(f"  {r['mode']} mode{how}; {versions}", "dim")]


def _verdict(r: Mapping[str, Any]) -> Line:
    memory = r["memory_bytes"]
    if r["fits"]:
        share = memory["peak"] / memory["available"]
        return [
            Span("  fits: ", "bold green"),
            Span(f"{gib(memory['peak'])} of {gib(memory['available'])} at the peak ({share:.0%})"),
        ]
    if r["short_bytes"]:
        return [Span("  does not fit: ", "bold red"), Span(f"{gib(r['short_bytes'])} too much")]
    if not r["compiled"]:
        return [Span("  did not compile: ", "bold red"), Span(str(r["reason"]))]
    peak = memory["peak"]
    return [Span(f"  compiled, {gib(peak)} at the peak" if peak is not None else "  compiled")]


def _memory(r: Mapping[str, Any]) -> Iterator[Line]:
    parts = [
        f"{name} {gib(r['memory_bytes'][name])}"
        for name in ("arguments", "outputs", "temporaries")
        if r["memory_bytes"][name] is not None
    ]
    if parts:
        yield [Span("  " + ", ".join(parts))]
    if r["estimated_time_s"]:
        t = r["estimated_time_s"]
        yield [
            Span("  time by the compiler's cycles: ", "bold"),
            Span(
                f"{duration(t['total'])} a step = compute {duration(t['compute'])} + exposed "
                f"collectives {duration(t['collectives'])}"
            ),
        ]


def _collectives(r: Mapping[str, Any], width: int) -> Iterator[Line]:
    head = f"  {'Collective':<16}{'axis':<12}{'times':>8}{'sent a step':>14}{'expected':>14}"
    yield [Span(head, "bold"), Span("  how", "bold")]
    for one in r["collectives"][:ROWS]:
        wanted = one.get("expected_bytes_per_device_per_step")
        row = (
            f"  {one['kind']:<16}{one['mesh_axis']:<12}{one['count_per_step']:>8,}"
            f"{si(one['bytes_per_device_per_step'], 'B'):>14}"
            f"{'–' if wanted is None else si(wanted, 'B'):>14}"
        )
        how = cut(one["algorithm"], width - len(row) - 14)
        line: Line = [Span(row), Span(f"  {how}", "dim")]
        yield line if one.get("planned", True) else [*line, Span("  unplanned", "yellow")]
    for one in r["collectives"]:
        if not one.get("planned", True):
            yield from _where(r, one, width)


def _where(r: Mapping[str, Any], one: Mapping[str, Any], width: int) -> Iterator[Line]:
    """The place in the source that an unplanned collective comes from."""
    for place in r["places"]:
        same = (place["kind"], place["mesh_axis"]) == (one["kind"], one["mesh_axis"])
        if same and place["source"]:
            file, line = place["source"]
            words = f"{one['kind']} over {one['mesh_axis']} comes from {file}:{line}"
            yield [Span("  " + cut(words, width - 2), "yellow")]
            return


def _tensors(r: Mapping[str, Any], width: int) -> Iterator[Line]:
    padding = r["padding"]
    if padding.get("bytes"):
        text = f"  padding of the arguments: {gib(padding['bytes'], 2)} ({padding['fraction']:.1%})"
        yield [Span(text)]
    worst = [t for t in padding.get("tensors", []) if t["physical_bytes"] >= 2**27][:3]
    for tensor in worst:
        grown = tensor["physical_bytes"] / max(tensor["logical_bytes"], 1)
        words = f"    {tensor['shape']} takes {grown:.1f}x its size: {tensor['name']}"
        yield [Span(cut(words, width), "dim")]
    if r["fits"] is False or not r["compiled"]:
        for tensor in r["largest"][:5]:
            size = tensor.get("physical_bytes", tensor.get("bytes", 0))
            words = f"    {gib(size)} {tensor['shape']}: {tensor.get('name', tensor.get('where'))}"
            yield [Span(cut(words, width))]


def _side_by_side(reports: list[Mapping[str, Any]]) -> Iterator[Line]:
    yield [Span(f"  {'':<24}" + "".join(f"{r['machine']:>18}" for r in reports), "bold")]
    for label, path in (("peak", "peak"), ("available", "available"), ("arguments", "arguments")):
        values = [r["memory_bytes"][path] for r in reports]
        cells = "".join(f"{'–' if v is None else gib(v):>18}" for v in values)
        yield [Span(f"  {label:<24}{cells}")]
    kinds = sorted({(c["kind"], c["mesh_axis"]) for r in reports for c in r["collectives"]})
    for kind, axis in kinds:
        cells = ""
        for r in reports:
            sent = sum(
                c["bytes_per_device_per_step"]
                for c in r["collectives"]
                if (c["kind"], c["mesh_axis"]) == (kind, axis)
            )
            cells += f"{si(sent, 'B') if sent else '–':>18}"
        yield [Span(f"  {kind + ' ' + axis:<24}{cells}")]


def _against(a: Mapping[str, Any]) -> Iterator[Line]:
    yield [Span(f"Against {a['file']}", "bold")]
    for name, change in (a["memory_bytes"] or {}).items():
        if change:
            yield [Span(f"  {name:<24}{'+' if change > 0 else '-'}{gib(abs(change), 2)}")]
    for one in a["collectives"][:ROWS]:
        sign = "+" if one["change"] > 0 else "-"
        words = f"{one['kind']} {one['mesh_axis']}"
        yield [Span(f"  {words:<24}{sign}{si(abs(one['change']), 'B')}")]
