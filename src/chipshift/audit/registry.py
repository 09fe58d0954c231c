"""What a detector looks at: the table that the reader consults at each node."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

Visit = Callable[..., None]
"""A detector: called with the reader, the node and, for calls and attributes, the full name."""


@dataclass(slots=True)
class Detectors:
    """Detectors by what they look at."""

    calls: dict[str, list[Visit]] = field(default_factory=dict)
    any_call: list[Visit] = field(default_factory=list)
    attributes: dict[str, list[Visit]] = field(default_factory=dict)
    strings: dict[str, list[Visit]] = field(default_factory=dict)
    numbers: list[Visit] = field(default_factory=list)
    conditional: list[Visit] = field(default_factory=list)
    subscripts: list[Visit] = field(default_factory=list)
    operators: dict[type[ast.AST], list[Visit]] = field(default_factory=dict)
    statements: dict[type[ast.AST], list[Visit]] = field(default_factory=dict)
    functions: list[Visit] = field(default_factory=list)
    finish: list[Visit] = field(default_factory=list)

    def on_call(self, names: str) -> Callable[[Visit], Visit]:
        return self._put(self.calls, names)

    def on_attribute(self, names: str) -> Callable[[Visit], Visit]:
        return self._put(self.attributes, names)

    def on_string(self, names: str) -> Callable[[Visit], Visit]:
        return self._put(self.strings, names)

    def on_statement(self, *types: type[ast.AST]) -> Callable[[Visit], Visit]:
        def add(visit: Visit) -> Visit:
            for one in types:
                self.statements.setdefault(one, []).append(visit)
            return visit

        return add

    @staticmethod
    def _put(table: dict[str, list[Visit]], names: str) -> Callable[[Visit], Visit]:
        def add(visit: Visit) -> Visit:
            for name in names.split():
                table.setdefault(name, []).append(visit)
            return visit

        return add
