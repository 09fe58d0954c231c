"""Put every case of data/compile_cases.toml through the compilers and keep what they say.

    python benchmarks/verify_compile.py            # compile the cases that have no result yet
    python benchmarks/verify_compile.py --only v6e --mode time

Results are one JSON object a line in data/compile_results.jsonl: memory, collectives by kind and
mesh axis, compile time. A case that does not fit or crashes the compiler is a result too.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import tomllib
from math import inf
from pathlib import Path
from typing import Any

from chipshift.compiled import describe
from chipshift.compiled.request import Request
from chipshift.compiled.run import run
from chipshift.compiled.topology import target
from chipshift.errors import InputError
from chipshift.jobs.job import Precision
from chipshift.jobs.plan import Plan
from chipshift.machines.names import parse_machine
from chipshift.models.preset import preset

HERE = Path(__file__).parent
CASES, RESULTS = HERE / "data" / "compile_cases.toml", HERE / "data" / "compile_results.jsonl"
TIMEOUT_S = 1200.0


def parse(line: str) -> dict[str, Any]:
    """One case: ``MODEL MACHINE SEQ PLAN [key=value ...]``."""
    model, machine, seq, plan, *settings = line.split()
    chosen = dict(setting.split("=") for setting in settings)
    return {
        "id": line,
        "model": model,
        "machine": machine,
        "seq_len": int(seq),
        "plan": {k: number(v) for k, v in (part.split("=") for part in plan.split(","))},
        "reduce": chosen.get("reduce", "bf16"),
        "loss_chunks": int(chosen.get("loss_chunks", 1)),
        "mode": chosen.get("mode", "fast"),
    }


def number(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def request_of(case: dict[str, Any], *, mode: str = "", keep: str = "") -> Request:
    """The compilation of a case."""
    aim = target(parse_machine(case["machine"]))
    config, notes = describe.config(
        preset(case["model"]),
        Plan(**case["plan"]),
        seq_len=case["seq_len"],
        precision=Precision(reduce=case["reduce"]),
        slices=aim.slices,
        splash=aim.platform == "tpu",
        loss_chunks=case["loss_chunks"],
    )
    program = "; ".join((case["model"], *notes))
    return Request("job", program, aim, mode=mode or case["mode"], config=config, keep=keep)


def compile_case(case: dict[str, Any], programs: str) -> dict[str, Any]:
    """The case with what the compiler said of it."""
    begun = time.monotonic()
    keep = str(Path(programs) / (re.sub(r"[^\w.]+", "_", case["id"]) + ".hlo")) if programs else ""
    request = request_of(case, keep=keep)
    report = run(request, timeout_s=TIMEOUT_S)
    keys = (
        "compiled", "reason", "wanted_bytes", "available_bytes", "memory_bytes", "collectives",
        "padding", "cycles", "lower_time_s", "compile_time_s", "versions",
    )  # fmt: skip
    kept = {key: report[key] for key in keys if key in report}
    if "padding" in kept:
        kept["padding"] = {key: kept["padding"][key] for key in ("bytes", "fraction")}
    notes = request.program.split("; ")[1:]
    return case | {"devices": request.target.devices, "notes": notes} | kept | {
        "wall_s": round(time.monotonic() - begun, 1)
    }  # fmt: skip


def results() -> dict[str, dict[str, Any]]:
    if not RESULTS.exists():
        return {}
    rows = [json.loads(line) for line in RESULTS.read_text("utf8").splitlines() if line]
    return {row["id"]: row for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="a group of the case file, such as v6e")
    parser.add_argument("--again", action="store_true", help="compile cases that have a result")
    parser.add_argument("--seconds", type=float, default=inf, help="begin no case after so long")
    parser.add_argument("--programs", default="", help="folder to keep the compiled programs in")
    chosen = parser.parse_args()
    groups = tomllib.loads(CASES.read_text("utf8"))
    known, ends = results(), time.monotonic() + chosen.seconds
    for name, group in groups.items():
        if chosen.only not in (None, name):
            continue
        for line in group["cases"]:
            if (line in known and not chosen.again) or time.monotonic() > ends:
                continue
            try:
                row = compile_case(parse(line), chosen.programs)
            except InputError as error:
                print(f"{line}: {error}", file=sys.stderr)
                continue
            with RESULTS.open("a", encoding="utf8") as out:
                out.write(json.dumps(row) + "\n")
            peak = (row.get("memory_bytes") or {}).get("peak")
            print(f"{line}: {peak or row['reason']} ({row['wall_s']} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
