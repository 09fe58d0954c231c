"""What the compiler's effort settings change: memory, collectives, cycles and the cost of each.

    python benchmarks/compile_effort.py               # settings that have no result yet
    python benchmarks/compile_effort.py --table       # data/compile_effort.jsonl as a table

Each program is compiled once under each setting; the first setting, the compiler's own effort, is
what the others are held against. Results are kept in data/compile_effort.jsonl.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from verify_compile import parse, request_of

from chipshift.compiled.request import Request
from chipshift.compiled.run import run

RESULTS = Path(__file__).parent / "data" / "compile_effort.jsonl"
OFFLOADS = ("all_gather", "reduce_scatter", "all_reduce")
LOW_BY_CHIP: dict[str, dict[str, Any]] = {
    # At low effort libtpu 0.0.42 aborts on v7x when collectives may go to the SparseCores.
    "v7x": {f"xla_tpu_enable_sparse_core_collective_offload_{kind}": "false" for kind in OFFLOADS},
}
EXEC, FIT = "exec_time_optimization_effort", "memory_fitting_effort"

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "low": {EXEC: -1.0, FIT: -1.0},
    "exec -1": {EXEC: -1.0},
    "fit -1": {FIT: -1.0},
    "exec -0.5, fit -1": {EXEC: -0.5, FIT: -1.0},
    "level 1": {"optimization_level": 1},
    "level 1, fit -1": {"optimization_level": 1, FIT: -1.0},
    "level 2": {"optimization_level": 2},
    "level 1, low": {"optimization_level": 1, EXEC: -1.0, FIT: -1.0},
}

PROGRAMS = {
    "llama-3.2-1b v6e:4x4 4096 fsdp=16,remat=full": ("low", "default", "level 1"),
    "llama-3.1-8b v6e:4x4 8192 fsdp=16,remat=full": ("default", "low"),
}


def measured(line: str, name: str) -> dict[str, Any]:
    """One program under one setting: what the compiler says, and the child's CPU seconds."""
    request: Request = request_of(parse(line), mode="time")
    options = dict(SETTINGS[name])
    if options.get(EXEC) == -1.0:
        options |= LOW_BY_CHIP.get(request.target.chip, {})
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    outcome = run(replace(request, options=tuple(options.items())), timeout_s=1200.0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "program": line,
        "setting": name,
        "options": options,
        "reason": outcome.get("reason"),
        "cpu_s": round(spent, 1),
        "wall_s": round(time.monotonic() - begun, 1),
        "peak_bytes": (outcome.get("memory_bytes") or {}).get("peak"),
        "cycles": (outcome.get("cycles") or {}).get("compute"),
        "collective_bytes": sum(
            one["bytes_per_device_per_step"] for one in outcome.get("collectives", ())
        ),
        "versions": outcome.get("versions"),
    }


def results() -> list[dict[str, Any]]:
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text("utf8").splitlines() if line]


def table() -> None:
    """Each setting's cost, and its differences from the compiler's own effort."""
    rows = results()
    own = {row["program"]: row for row in rows if row["setting"] == "default"}
    for row in rows:
        base = own.get(row["program"])
        if row["reason"] or base is None:
            print(f"{row['program']} | {row['setting']} | {row['cpu_s']} s | {row['reason']}")
            continue
        parts = " | ".join(
            f"{row[key] / base[key] - 1:+.2%}"
            for key in ("peak_bytes", "collective_bytes", "cycles")
        )
        print(f"{row['program']} | {row['setting']} | {row['cpu_s']} s | {parts}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=inf, help="begin nothing after so long")
    parser.add_argument("--table", action="store_true", help="print what is kept, compile nothing")
    chosen = parser.parse_args()
    if chosen.table:
        table()
        return 0
    done = {(row["program"], row["setting"]) for row in results()}
    ends = time.monotonic() + chosen.seconds
    for line, names in PROGRAMS.items():
        for name in names:
            if (line, name) in done or time.monotonic() > ends:
                continue
            row = measured(line, name)
            with RESULTS.open("a", encoding="utf8") as out:
                out.write(json.dumps(row) + "\n")
            print(f"{line} {name}: {row['cpu_s']} s, {row['peak_bytes'] or row['reason']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
