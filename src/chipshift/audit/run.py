"""Audit a file or a tree: find the files, read them, judge them, put the result together."""

from __future__ import annotations

import gc
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from chipshift.audit.configs import config_findings
from chipshift.audit.discover import discover
from chipshift.audit.facts import STEP, FileFacts
from chipshift.audit.finding import (
    AuditResult,
    Entry,
    Finding,
    Skipped,
    Target,
    Unresolved,
    parse_target,
)
from chipshift.audit.judge import file_targets, findings_of
from chipshift.audit.link import Linked, link
from chipshift.audit.nearby import context
from chipshift.audit.read import read_file
from chipshift.audit.resolve import Index, Key
from chipshift.errors import InputError, nearest

Progress = Callable[[int, int], None]
"""Called with (files done, files in all)."""
PARALLEL_FROM = 24
"""Fewer files are read in this process: starting others would take longer."""


def audit(
    path: Path | str,
    target: str | None = None,
    entry: str | None = None,
    only_files: Sequence[str] | None = None,
    jobs: int | None = None,
    exclude: Sequence[str] = (),
    job: Mapping[str, float] | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """What of the code under ``path`` will not run, recompile, stall or waste the chip.

    ``target`` is one target, ``"all"``, or None for each file's own; ``entry`` is ``FILE:FUNCTION``
    to be taken as the training step; ``only_files`` (relative, POSIX) limits what is reported, not
    what is read to resolve names; ``jobs`` is the number of processes (None: one a core);
    ``exclude`` are gitignore-style patterns; ``job`` the numbers of the job for the costs (see
    ``audit.cost.cost_from_job``). Raises InputError for a path, target or entry that does not
    exist. The code is never imported or executed.
    """
    started = time.monotonic()
    chosen = parse_target(target)
    root, names, configs, skipped, around = _inputs(Path(path), exclude)
    facts = _read(root, names, jobs, progress)
    files = [one for one in facts if not one.skipped]
    skipped += [Skipped(one.file, one.why) for one in _whys(facts)]
    extra = context(root, around, files) if around is not None else []
    linked = link([*files, *extra], _entry(entry, files))
    own = file_targets(files, _importers(files))
    wanted = set(only_files) if only_files is not None else None
    findings: list[Finding] = []
    for one in files:
        if wanted is not None and one.file not in wanted:
            continue
        worded = None if chosen == "all" else (chosen or own[one.file])
        findings += findings_of(one, linked, worded, job)
    counts = Counter(own[one.file] for one in files if one.jax_weight or len(files) == 1)
    majority: Target = counts.most_common(1)[0][0] if counts else "torchtpu"
    shown: Target = chosen if chosen is not None and chosen != "all" else majority
    for name in configs:
        if wanted is None or name in wanted:
            findings += config_findings(root, name, None if chosen == "all" else shown)
    return AuditResult(
        target=shown,
        files=len(files),
        entry=_step(entry, files),
        portable_fraction=_portable(files, linked, findings),
        findings=tuple(
            sorted(findings, key=lambda one: (one.file, one.cell or 0, one.line, one.rule))
        ),
        skipped=tuple(skipped),
        unresolved=Unresolved(linked.unresolved_files, linked.unresolved_imports),
        seconds=time.monotonic() - started,
        notes=_notes(files, shown),
        configs=len(configs),
    )


def _inputs(
    path: Path, exclude: Sequence[str]
) -> tuple[Path, list[str], list[str], list[Skipped], Path | None]:
    """(folder the names are relative to, code, configuration files, skipped, the file when one
    alone was named)."""
    found = list(discover(path, exclude))
    code = [one.name for one in found if one.skip is None and one.kind != "config"]
    configs = [one.name for one in found if one.skip is None and one.kind == "config"]
    skipped = [Skipped(one.name, one.skip) for one in found if one.skip is not None]
    if path.is_file():
        return path.parent, code, configs, skipped, path if code else None
    return path, code, configs, skipped, None


def _whys(facts: Sequence[FileFacts]) -> list[Skipped]:
    return [Skipped(one.file, one.skipped) for one in facts if one.skipped]


def _chunk(argument: tuple[str, list[str]]) -> list[FileFacts]:
    """Read some files in a worker; trees are freed file by file, so collection only costs."""
    root, names = argument
    gc.disable()
    folder = Path(root)
    return [read_file(folder, name) for name in names]


def _read(
    root: Path, names: list[str], jobs: int | None, progress: Progress | None
) -> list[FileFacts]:
    processes = jobs or os.cpu_count() or 1
    total = len(names)
    if processes == 1 or total < PARALLEL_FROM:
        collecting = gc.isenabled()
        gc.disable()
        try:
            done: list[FileFacts] = []
            for name in names:
                done.append(read_file(root, name))
                if progress is not None:
                    progress(len(done), total)
            return done
        finally:
            if collecting:
                gc.enable()
    return _parallel(root, names, processes, progress)


def _parallel(
    root: Path, names: list[str], processes: int, progress: Progress | None
) -> list[FileFacts]:
    from concurrent.futures import ProcessPoolExecutor

    size = max(1, min(32, len(names) // (processes * 4) or 1))
    chunks = [(str(root), names[i : i + size]) for i in range(0, len(names), size)]
    done: list[FileFacts] = []
    with ProcessPoolExecutor(processes, max_tasks_per_child=None) as pool:
        for part in pool.map(_chunk, chunks):
            done += part
            if progress is not None:
                progress(len(done), len(names))
    return done


def _entry(entry: str | None, files: Sequence[FileFacts]) -> Key | None:
    """The function that ``FILE:FUNCTION`` names."""
    if entry is None:
        return None
    file, _, function = entry.rpartition(":")
    here = {one.file: one for one in files}
    if file not in here:
        raise InputError(
            f"--entry: no file '{file}' among those audited{nearest(file, list(here))}"
        )
    names = [one.name for one in here[file].funcs if one.name]
    if function not in names:
        raise InputError(
            f"--entry: '{file}' has no function '{function}'{nearest(function, names)}"
        )
    return file, function


def _step(entry: str | None, files: Sequence[FileFacts]) -> Entry | None:
    """The function taken as the step: the one named, else the longest training loop."""
    if entry is not None:
        file, _, function = entry.rpartition(":")
        return Entry(file, function)
    best: tuple[int, Entry] | None = None
    for facts in files:
        named = "train" in facts.file.rsplit("/", 1)[-1]
        for func in facts.funcs:
            last = func.name.rsplit(".", 1)[-1]
            length = max((end - start + 1 for start, end in func.step_spans), default=0)
            if last in ("training_step", "train_step"):
                length = max(length, func.end_line - func.line + 1)
            if length:
                score = length + (1000 if named else 0)
                if best is None or score > best[0]:
                    best = (score, Entry(facts.file, func.name or "<module>"))
    return best[1] if best else None


def _portable(
    files: Sequence[FileFacts], linked: Linked, findings: Sequence[Finding]
) -> float | None:
    """Share of lines reachable from the step without a blocker, high or medium finding."""
    reached: dict[str, set[int]] = defaultdict(set)
    found = False
    for facts in files:
        for func in facts.funcs:
            for start, end in func.step_spans:
                found = True
                reached[facts.file].update(range(start, end + 1))
            place = linked.places.get((facts.file, func.name))
            if func.name and place is not None and place.where == STEP and place.sure:
                if func.name.rsplit(".", 1)[-1] in ("training_step", "train_step"):
                    found = True
                reached[facts.file].update(range(func.line, func.end_line + 1))
    total = sum(len(lines) for lines in reached.values())
    if not found or not total:
        return None
    marked: dict[str, set[int]] = defaultdict(set)
    for one in findings:
        if one.severity == "low" or one.cell is not None:
            continue
        marked[one.file].update(range(one.line, one.end_line + 1))
        for place_ in one.places:
            marked[place_.file].add(place_.line)
    bad = sum(len(reached[file] & lines) for file, lines in marked.items() if file in reached)
    return 1 - bad / total


def _importers(files: Sequence[FileFacts]) -> dict[str, list[FileFacts]]:
    index = Index(files)
    into: dict[str, list[FileFacts]] = defaultdict(list)
    for facts in files:
        for dotted, _, _, _ in facts.import_lines:
            near = facts.module.rpartition(".")[0]
            where = index.module(dotted, near) or index.module(dotted.rpartition(".")[0], near)
            if where is not None:
                into[where.file].append(facts)
    return into


def _notes(files: Sequence[FileFacts], target: Target) -> tuple[str, ...]:
    notes: list[str] = []
    if target == "torch_xla":
        notes.append("torch_xla is deprecated: its documentation names TorchTPU as successor.")
    ported = [one.file for one in files if one.uses_xla]
    if ported and target == "torchtpu":
        notes.append(
            f"{len(ported)} file(s) already use torch_xla ({ported[0]}): look at what runs there."
        )
    return tuple(notes)
