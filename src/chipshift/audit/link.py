"""Joins the files: tells where each function runs, follows kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from chipshift.audit.facts import (
    EPOCH,
    EVAL,
    HOST,
    NEVER,
    STARTUP,
    STEP,
    CallSite,
    FileFacts,
    FuncFact,
    Hazard,
)
from chipshift.audit.resolve import Edges, Index, Key, edges

RANK = {NEVER: 0, HOST: 1, STARTUP: 2, EPOCH: 3, EVAL: 4, STEP: 5}


@dataclass(slots=True)
class Place:
    """Where a function runs; ``sure`` when its shape or its callers say so."""

    where: str
    sure: bool = False
    looped: bool = False


@dataclass(slots=True)
class Linked:
    """The tree joined: places of all functions and the kernels behind them."""

    places: dict[Key, Place] = field(default_factory=dict)
    functions: dict[Key, FuncFact] = field(default_factory=dict)
    unresolved_files: int = 0
    unresolved_imports: int = 0


EVAL_FILE = re.compile(
    r"(^|_)(val|eval|evaluate|test|sample|generate|infer|inference|predict|detect"
    r"|demo|benchmark|bench|decoding|transcribe|sampler|sampling|beam_search|translate|generation)(_\w*)?\.(py|ipynb)$"
)


def _seed(file: str, func: FuncFact, called: bool) -> Place:
    if not func.name:
        return Place(func.role or STARTUP, func.role != STEP)
    if func.sure:
        return Place(func.role or STEP, True)
    if called:
        return Place(NEVER)
    other = EVAL if EVAL_FILE.search(file.rsplit("/", 1)[-1]) else STEP
    return Place(func.role or other, False)


def places(
    files: Sequence[FileFacts], out: Edges, into: Edges, entry: Key | None
) -> dict[Key, Place]:
    """Where every function runs, spread along the calls until nothing changes."""
    found: dict[Key, Place] = {}
    fixed: set[Key] = set()
    for facts in files:
        for func in facts.funcs:
            key = (facts.file, func.name)
            found[key] = _seed(facts.file, func, bool(into.get(key)))
            if func.sure or not func.name:
                fixed.add(key)
    if entry is not None:
        found[entry] = Place(STEP, True)
        fixed.add(entry)
    roles = {(facts.file, func.name): func.role for facts in files for func in facts.funcs}
    # First what is known, then what is only guessed, which does not outweigh it.
    for sure in (True, False):
        work = [key for key, place in found.items() if place.where != NEVER and place.sure == sure]
        work.sort()
        while work:
            key = work.pop()
            for target, site in out.get(key, ()):
                if site.guarded or target not in found or target in fixed:
                    continue
                there = found[target]
                place = _reached(found[key], there, site, roles.get(target, ""))
                guess = not place.sure and there.sure and there.where != NEVER
                if place != there and not guess:
                    found[target] = place
                    work.append(target)
    _unreached(files, found, into)
    return found


def _reached(here: Place, there: Place, site: CallSite, role: str) -> Place:
    """Where a function runs that is called at ``site`` from one that runs ``here``."""
    where = site.local or here.where
    if where == "quiet":
        where = STEP if here.where == STEP else EVAL
    if here.where in (EVAL, HOST):
        where = here.where
    if role == EVAL and where in (STARTUP, EPOCH):
        where = EVAL
    elif where == STEP and not here.sure and not site.local and role:
        # A guess about the caller does not outweigh the callee's own name, but within a class
        # the caller's call does.
        inside = site.callee.startswith("self.") and role == STARTUP
        where = where if inside else role
    if site.cadence and where == STEP:
        where = EVAL
    looped = there.looped or site.looped or here.looped
    if RANK[where] > RANK[there.where]:
        return Place(where, here.sure or bool(site.local), looped)
    return Place(there.where, there.sure, looped) if looped != there.looped else there


def _unreached(files: Sequence[FileFacts], found: dict[Key, Place], into: Edges) -> None:
    """Functions called only from each other keep what their own shape says."""
    for facts in files:
        for func in facts.funcs:
            key = (facts.file, func.name)
            if found[key].where == NEVER:
                callers = into.get(key, [])
                if callers and all(site.guarded for _, site in callers):
                    continue
                found[key] = Place(func.role or STEP, False)


WRAPPED = {
    "flash-attn-kernel": "flash-attn-kernel",
    "triton-kernel": "triton-kernel",
    "third-party-gpu-kernel": "third-party-gpu-kernel",
}


def kernels(
    files: Sequence[FileFacts], index: Index, out: Edges, functions: dict[Key, FuncFact]
) -> None:
    """Add hazards where a file imports and calls in-tree functions that are kernels inside."""
    bound: dict[Key, str] = {key: func.kernel for key, func in functions.items() if func.kernel}
    for _ in range(3):
        grown = {
            key: bound[target]
            for key, calls in out.items()
            if key not in bound and functions[key].name
            for target, site in calls
            if target in bound and not site.guarded and target[0] == key[0]
        }
        bound.update(grown)
    if not bound:
        return
    for facts in files:
        _wrapped(facts, index, bound)


def _wrapped(facts: FileFacts, index: Index, bound: dict[Key, str]) -> None:
    for local, dotted in facts.imports.items():
        if local.startswith("*"):
            continue
        found = index.find(dotted, near=facts.module.rpartition(".")[0])
        if found is None or found[0].file == facts.file:
            continue
        where, name = found
        rule = bound.get((where.file, name)) or bound.get((where.file, f"{name}.forward"), "")
        if not rule or (
            name in where.classes and f"{name}.forward" not in index.functions[where.file]
        ):
            continue
        line = next((one for one in facts.import_lines if one[0] == dotted and not one[3]), None)
        if line is None:
            continue
        kind = WRAPPED.get(rule, "cuda-extension")
        what = f"{name} of {where.module} is a device kernel inside"
        sites = [
            (func, site)
            for func in facts.funcs
            for site in func.calls
            if site.callee == dotted and not site.guarded
        ]
        facts.hazards.append(
            Hazard(
                kind,
                line[1],
                line[1],
                f"imports {local}: {what}",
                raises=True,
                confidence="likely",
                cause=f"wrapped {where.module} {kind}",
            )
        )
        for func, site in sites:
            facts.hazards.append(
                Hazard(
                    kind,
                    site.line,
                    site.line,
                    what,
                    func=func.name,
                    local=site.local,
                    confidence="likely",
                    cause=f"wrapped {where.module} {kind}",
                )
            )


def in_tree(facts: FileFacts, index: Index) -> None:
    """Drop package hazards whose package is the tree itself."""
    kept = []
    for hazard in facts.hazards:
        if hazard.cause.startswith("import "):
            root = hazard.cause.split(" ", 1)[1]
            if root in index.roots and any(
                one.module.split(".")[0] == root or f".{root}." in f".{one.module}."
                for one in index.by_tail.get(root, ())
            ):
                continue
        kept.append(hazard)
    facts.hazards = kept


def link(files: Sequence[FileFacts], entry: Key | None = None) -> Linked:
    """Join the files of a tree (see the module's text)."""
    index = Index(files)
    linked = Linked()
    for facts in files:
        for func in facts.funcs:
            linked.functions[(facts.file, func.name)] = func
        in_tree(facts, index)
    out, into = edges(index, files)
    linked.places = places(files, out, into, entry)
    kernels(files, index, out, linked.functions)
    for facts in files:
        near = facts.module.rpartition(".")[0]
        missing = sum(
            1
            for dotted, _, _, _ in facts.import_lines
            if dotted.split(".")[0] in index.roots
            and index.module(dotted, near) is None
            and index.module(dotted.rpartition(".")[0], near) is None
            and index.find(dotted, near=near) is None
        )
        linked.unresolved_imports += missing
        linked.unresolved_files += bool(missing)
    return linked
