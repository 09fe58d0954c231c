"""Turning a dataclass of numbers into one of sourced leaves."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from chipshift.worked.value import leaf

T = TypeVar("T")


def with_sources(record: T, source: str | dict[str, str], unit: str | dict[str, str] = "") -> T:
    """The same dataclass with every number replaced by a leaf named after its field.

    Args:
        record: a frozen dataclass; nested dataclasses and tuples of them are turned as well,
            other fields kept.
        source: of all fields, or by field name ("" key = the rest).
        unit: likewise.
    """
    changes: dict[str, Any] = {}
    for field in fields(record):  # type: ignore[arg-type]
        value = getattr(record, field.name)
        if isinstance(value, bool) or (isinstance(value, (int, float)) and value == 0):
            continue  # a zero says that the part is absent: nothing to trace
        if isinstance(value, (int, float)):
            changes[field.name] = leaf(
                value, _pick(unit, field.name), field.name, _pick(source, field.name)
            )
        elif is_dataclass(value) and not isinstance(value, type):
            changes[field.name] = with_sources(value, source, unit)
        elif isinstance(value, tuple) and value and all(is_dataclass(one) for one in value):
            changes[field.name] = tuple(with_sources(one, source, unit) for one in value)
    return replace(record, **changes)  # type: ignore[type-var]


def _pick(table: str | dict[str, str], name: str) -> str:
    return table if isinstance(table, str) else table.get(name, table.get("", ""))
