"""Two reports side by side: what a change of plan, model or compiler changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chipshift.errors import InputError


def load(path: str) -> dict[str, Any]:
    """A report that ``compile --json`` wrote.

    Raises:
        InputError: the file cannot be read or is no such report.
    """
    try:
        found = json.loads(Path(path).read_text("utf8"))
    except OSError as error:
        raise InputError(f"--against {path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise InputError(f"--against {path}: is not JSON; expected a report of compile") from None
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema != "chipshift/compile/1":
        raise InputError(f"--against {path}: schema is {schema!r}, expected 'chipshift/compile/1'")
    for key, whole in (("memory_bytes", _memory), ("collectives", _rows)):
        if not whole(found.get(key)):
            raise InputError(
                f"--against {path}: {key} is not as compile --json writes it; expected a whole "
                "report"
            )
    return dict(found)


def _memory(value: Any) -> bool:
    return isinstance(value, dict) and all(one is None or _is_figure(one) for one in value.values())


def _rows(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, dict)
        and {"kind", "mesh_axis"} <= row.keys()
        and _is_figure(row.get("bytes_per_device_per_step"))
        for row in value
    )


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def compare(path: str, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """New minus old: bytes of memory by part, of collectives by kind and axis, seconds; and what
    the old report is of, where that is another program, machine, mode or compiler."""
    return {
        "file": path,
        "differs": [*_differs(old, new)],
        "memory_bytes": _changes(old.get("memory_bytes"), new.get("memory_bytes")),
        "collectives": _collectives(old.get("collectives", []), new.get("collectives", [])),
        "estimated_time_s": _changes(old.get("estimated_time_s"), new.get("estimated_time_s")),
    }


def _differs(old: dict[str, Any], new: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for what in ("machine", "program", "mode"):
        if old.get(what) != new.get(what):
            yield {"what": what, "old": old.get(what), "new": new.get(what)}
    before, after = (one.get("versions") or {} for one in (old, new))
    for what in dict.fromkeys((*before, *after)):
        if before.get(what) != after.get(what):
            yield {"what": what, "old": before.get(what), "new": after.get(what)}


def _changes(old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any] | None:
    if not isinstance(old, dict) or new is None:
        return None
    return {
        key: value - old[key] if _is_figure(value) and _is_figure(old.get(key)) else None
        for key, value in new.items()
        if not isinstance(value, (str, bool, dict))
    }


def _collectives(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    before, after = (_bytes(rows) for rows in (old, new))
    changes = {key: after.get(key, 0.0) - before.get(key, 0.0) for key in {**before, **after}}
    return [
        {"kind": kind, "mesh_axis": axis, "change": change}
        for (kind, axis), change in sorted(changes.items(), key=lambda item: -abs(item[1]))
        if change
    ]


def _bytes(rows: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    sums: dict[tuple[str, str], float] = {}
    for row in rows:
        key = (row["kind"], row["mesh_axis"])
        sums[key] = sums.get(key, 0.0) + row["bytes_per_device_per_step"]
    return sums
