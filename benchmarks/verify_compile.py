"""Put every case of data/compile_cases.toml through the compilers and keep what they say.

    python benchmarks/verify_compile.py            # compile the cases that have no result yet
    python benchmarks/verify_compile.py --only v6e --mode time

Mode fast, at the compiler's own effort until its buffers are placed, is what is compared; mode time
is the same compilation to its end, of some cases. Results are one JSON object a line and mode in
data/compile_results.jsonl: memory, collectives by kind and mesh axis, cycles, compile time. A case
that does not fit or crashes the compiler is a result too.
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
MODES = ("fast", "time")
TIMEOUT_S = 1800.0
Row = dict[str, Any]
KEYS = ("compiled", "reason", "wanted_bytes", "available_bytes")
SENT = ("kind", "mesh_axis", "count_per_step", "bytes_per_device_per_step")
"""What is kept of a report, and of each collective, as it is."""


def cases() -> dict[str, list[str]]:
    """Lines of the case file by group."""
    groups = tomllib.loads(CASES.read_text("utf8"))
    return {name: group["cases"] for name, group in groups.items()}


def parse(line: str) -> Row:
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
    }


def number(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def request_of(case: Row, *, mode: str = "fast", keep: str = "") -> Request:
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
    return Request("job", program, aim, mode=mode, config=config, keep=keep)


def kept(line: str, mode: str, report: Row) -> Row:
    """What the file keeps of a report."""
    row = {"id": line, "mode": mode} | {key: report[key] for key in KEYS if key in report}
    if report.get("collectives"):
        row["collectives"] = [{key: one[key] for key in SENT} for one in report["collectives"]]
    for key in ("lower_time_s", "compile_time_s"):
        row |= {key: round(report[key], 1)} if key in report else {}
    if report.get("memory_bytes"):
        sizes = ("arguments", "outputs", "temporaries", "peak")
        row["memory_bytes"] = {key: report["memory_bytes"][key] for key in sizes}
    if "padding" in report:
        row["padding"] = {key: report["padding"][key] for key in ("bytes", "fraction")}
    if mode == "time" and "cycles" in report:
        row["cycles"] = report["cycles"]["compute"]
    versions = report.get("versions", {})
    return row | {"versions": {key: versions.get(key) for key in ("jax", "libtpu")}}


def compile_case(line: str, mode: str, programs: str) -> Row:
    """What the compiler says of a case, and how long it took."""
    begun = time.monotonic()
    name = re.sub(r"[^\w.]+", "_", line)
    keep = str(Path(programs) / f"{name}.{mode}.hlo") if programs else ""
    report = run(request_of(parse(line), mode=mode, keep=keep), timeout_s=TIMEOUT_S)
    return kept(line, mode, report) | {"wall_s": round(time.monotonic() - begun, 1)}


def every_result() -> dict[tuple[str, str], Row]:
    """Rows of the file by case and mode."""
    if not RESULTS.exists():
        return {}
    rows = [json.loads(line) for line in RESULTS.read_text("utf8").splitlines() if line]
    return {(row["id"], row["mode"]): row for row in rows}


def results(mode: str) -> dict[str, Row]:
    """Rows of one mode by case, each with the case's own fields."""
    return {line: parse(line) | row for (line, m), row in every_result().items() if m == mode}


def write(rows: dict[tuple[str, str], Row]) -> None:
    """The file in the order of the cases."""
    order = [(line, mode) for group in cases().values() for line in group for mode in MODES]
    lines = [json.dumps(rows[key], separators=(",", ":")) for key in order if key in rows]
    RESULTS.write_text("".join(f"{line}\n" for line in lines), "utf8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="a group of the case file, such as v6e")
    parser.add_argument("--mode", choices=MODES, default="fast", help="how far to compile")
    parser.add_argument("--again", action="store_true", help="compile cases that have a result")
    parser.add_argument("--seconds", type=float, default=inf, help="begin no case after so long")
    parser.add_argument("--programs", default="", help="folder to keep the compiled programs in")
    chosen = parser.parse_args()
    known, ends = every_result(), time.monotonic() + chosen.seconds
    if chosen.programs:
        Path(chosen.programs).mkdir(parents=True, exist_ok=True)
    wanted = [
        (line, chosen.mode)
        for name, group in cases().items()
        if chosen.only in (None, name)
        for line in group
    ]
    for line, mode in wanted:
        if ((line, mode) in known and not chosen.again) or time.monotonic() > ends:
            continue
        try:
            row = compile_case(line, mode, chosen.programs)
        except InputError as error:
            print(f"{line}: {error}", file=sys.stderr)
            continue
        write(every_result() | {(line, mode): row})
        peak = (row.get("memory_bytes") or {}).get("peak")
        print(f"{line} ({mode}): {peak or row['reason']} ({row['wall_s']} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
