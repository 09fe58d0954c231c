"""Names across the files: which function of the tree a dotted name or a call means."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from chipshift.audit.facts import CallSite, FileFacts, FuncFact
from chipshift.audit.names import words

Key = tuple[str, str]
"""(file, local qualified name of a function)."""
Edges = dict[Key, list[tuple[Key, CallSite]]]
TEST_FILE = re.compile(r"(^|/)(test_\w+|\w+_tests?|conftest)\.py$")
GENERIC = words(
    """forward step call run train eval build load save init reset close next get set add apply
    process compute loss encode decode sample predict log main setup parse backward __init__
    state_dict load_state_dict item mean detach all any log_metrics"""
)


class Index:
    """Finds what a dotted name is in the tree."""

    def __init__(self, files: Sequence[FileFacts]) -> None:
        self.by_tail: dict[str, list[FileFacts]] = defaultdict(list)
        self.functions: dict[str, dict[str, FuncFact]] = {}
        self.methods: dict[str, list[Key]] = defaultdict(list)
        self.roots: set[str] = set()
        for facts in files:
            self.by_tail[facts.module.rsplit(".", 1)[-1]].append(facts)
            table = {one.name: one for one in facts.funcs}
            self.functions[facts.file] = table
            for name in table:
                head, _, last = name.rpartition(".")
                if head:
                    self.methods[last].append((facts.file, name))
            self.roots.update(facts.module.split(".")[:3])

    def module(self, dotted: str, near: str = "") -> FileFacts | None:
        """The file whose module is ``dotted``, or ends with it below a source folder.

        A name without dots is only looked up beside the importer (``near`` is its folder): a script
        imports its neighbours so, and anything else of that name is another package.
        """
        if "." not in dotted:
            for facts in self.by_tail.get(dotted, ()):
                if facts.module == (f"{near}.{dotted}" if near else dotted):
                    return facts
            return None
        best: FileFacts | None = None
        for facts in self.by_tail.get(dotted.rsplit(".", 1)[-1], ()):
            if facts.module == dotted:
                return facts
            if facts.module.endswith("." + dotted) and (
                best is None or len(facts.module) < len(best.module)
            ):
                best = facts
        return best

    def find(self, dotted: str, depth: int = 0, near: str = "") -> tuple[FileFacts, str] | None:
        """(file, name in it) of a dotted name, through re-exports."""
        if depth > 4:
            return None
        head, _, last = dotted.rpartition(".")
        tail = last
        while head:
            facts = self.module(head, near)
            if facts is not None:
                return self._inside(facts, tail, depth)
            head, _, more = head.rpartition(".")
            tail = f"{more}.{tail}"
        return None

    def _inside(self, facts: FileFacts, name: str, depth: int) -> tuple[FileFacts, str] | None:
        table = self.functions[facts.file]
        if name in table or name.split(".")[0] in facts.classes:
            return facts, name
        first, _, rest = name.partition(".")
        target = facts.imports.get(first)
        if target is not None:
            near = facts.module.rpartition(".")[0]
            return self.find(f"{target}.{rest}" if rest else target, depth + 1, near)
        for star, package in facts.imports.items():
            if star.startswith("*"):
                found = self.find(f"{package}.{name}", depth + 1)
                if found is not None:
                    return found
        return None

    def external(self, facts: FileFacts, dotted: str, depth: int = 0) -> str:
        """The dotted name outside the tree that an in-tree name re-exports; "" if none."""
        if depth > 4:
            return ""
        head, _, last = dotted.rpartition(".")
        found = self.module(head) if head else None
        if found is None:
            return dotted if depth else ""
        target = found.imports.get(last)
        return self.external(found, target, depth + 1) if target else ""


def resolve(index: Index, facts: FileFacts, func: FuncFact, callee: str) -> list[Key]:
    """Functions of the tree that a call may enter."""
    table = index.functions[facts.file]
    if callee.startswith("self."):
        return _method(index, facts, func.name.rpartition(".")[0], callee[5:], 0)
    if callee.startswith("."):
        name = callee[1:]
        keys = index.methods.get(name, [])
        return keys if name not in GENERIC and 1 <= len(keys) <= 2 else []
    if "." not in callee:
        scope = func.name
        while True:
            local = f"{scope}.{callee}" if scope else callee
            if local in table:
                return [(facts.file, local)]
            if not scope:
                break
            scope = scope.rpartition(".")[0]
        if callee in facts.classes:
            return [(facts.file, f"{callee}.__init__")] if f"{callee}.__init__" in table else []
        return []
    head, _, last = callee.rpartition(".")
    if head in facts.classes:
        return _method(index, facts, head, "forward" if last == "apply" else last, 0)
    found = index.find(callee, near=facts.module.rpartition(".")[0])
    if found is None:
        return []
    where, name = found
    there = index.functions[where.file]
    if name in there:
        return [(where.file, name)]
    if name in where.classes and f"{name}.__init__" in there:
        return [(where.file, f"{name}.__init__")]
    owner, _, method = name.rpartition(".")
    if owner in where.classes:
        return _method(index, where, owner, "forward" if method == "apply" else method, 0)
    return []


def _method(index: Index, facts: FileFacts, owner: str, name: str, depth: int) -> list[Key]:
    """A method of a class or of its bases."""
    table = index.functions[facts.file]
    if f"{owner}.{name}" in table:
        return [(facts.file, f"{owner}.{name}")]
    if depth > 3:
        return []
    for base in facts.classes.get(owner.rsplit(".", 1)[-1], ()):
        first, _, rest = base.partition(".")
        if base in facts.classes:
            found = _method(index, facts, base, name, depth + 1)
            if found:
                return found
            continue
        dotted = facts.imports.get(first)
        if dotted is None:
            continue
        near = facts.module.rpartition(".")[0]
        where = index.find(f"{dotted}.{rest}" if rest else dotted, near=near)
        if where is not None and where[1] in where[0].classes:
            found = _method(index, where[0], where[1], name, depth + 1)
            if found:
                return found
    return []


def edges(index: Index, files: Sequence[FileFacts]) -> tuple[Edges, Edges]:
    """(calls out of each function, calls into each function)."""
    out: Edges = defaultdict(list)
    into: Edges = defaultdict(list)
    for facts in files:
        if TEST_FILE.search(facts.file):
            continue  # what a test calls runs in training all the same
        for func in facts.funcs:
            key = (facts.file, func.name)
            for site in func.calls:
                for target in resolve(index, facts, func, site.callee):
                    if target != key:
                        out[key].append((target, site))
                        into[target].append((key, site))
    return out, into
