"""Whether a shallower model's programs foretell the whole one's: memory and collectives.

    python benchmarks/compile_depth.py             # depths that have no result yet
    python benchmarks/compile_depth.py --table     # extrapolated against compiled

Each kept case of CASES is compiled at a quarter and at half of its layers; peak and bytes of
collectives at the whole depth are drawn through the two and held against the kept result. Compile
time does not depend on depth (layers are scanned), so the product compiles whole models; this
shows what time_compile.py and anyone in a hurry may rely on. Results: data/compile_depth.jsonl.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from verify_compile import parse, request_of
from verify_compile import results as kept

from chipshift.compiled.run import run

RESULTS = Path(__file__).parent / "data" / "compile_depth.jsonl"
CASES = (
    "llama-3.2-1b v6e:4x4 4096 fsdp=16,remat=full",
    "llama-3.2-1b v5e:4x4 4096 fsdp=8,tp=2,remat=full,microbatch=2",
    "llama-3.1-8b v5p:2x2x2 8192 fsdp=8,remat=full,microbatch=4",
    "llama-3.1-8b v7x:2x2x2 8192 fsdp=16,remat=full,microbatch=2",
    "qwen3-8b v6e:4x4 4096 fsdp=16,remat=full,microbatch=2",
)
PARTS = (4, 2)
"""The whole depth is divided by these."""


def layers(line: str) -> int:
    config = request_of(parse(line)).config
    assert config is not None and len(config.segments) == 1
    return config.segments[0][1]


def compiled(line: str, depth: int) -> dict[str, Any]:
    """Peak, and bytes of collectives by kind and axis, of a case at another depth."""
    request = request_of(parse(line))
    assert request.config is not None
    shallow = replace(request.config, segments=((request.config.segments[0][0], depth),))
    outcome = run(replace(request, config=shallow), timeout_s=1200.0)
    return {"case": line, "depth": depth} | figures(outcome)


def figures(outcome: dict[str, Any]) -> dict[str, Any]:
    sent: dict[str, float] = defaultdict(float)
    for one in outcome.get("collectives", ()):
        sent[f"{one['kind']} {one['mesh_axis']}"] += one["bytes_per_device_per_step"]
    peak = (outcome.get("memory_bytes") or {}).get("peak")
    return {"peak": peak, "sent": dict(sent), "reason": outcome.get("reason")}


def results() -> dict[tuple[str, int], dict[str, Any]]:
    if not RESULTS.exists():
        return {}
    rows = [json.loads(line) for line in RESULTS.read_text("utf8").splitlines() if line]
    return {(row["case"], row["depth"]): row for row in rows}


def drawn(low: float, high: float, depths: tuple[int, int], depth: int) -> float:
    """The value at ``depth`` on the line through those at two depths."""
    return low + (high - low) * (depth - depths[0]) / (depths[1] - depths[0])


def deviations(line: str) -> tuple[float, float]:
    """Relative error of the extrapolated peak, and of the bytes of all collectives, the largest of
    any kind and axis that carries 1 % of them."""
    whole, known = figures(kept("fast")[line]), results()
    depth = layers(line)
    depths = (depth // PARTS[0], depth // PARTS[1])
    low, high = (known[line, one] for one in depths)
    peak = drawn(low["peak"], high["peak"], depths, depth) / whole["peak"] - 1
    everything = sum(whole["sent"].values())
    sent = [
        drawn(low["sent"].get(key, 0.0), high["sent"].get(key, 0.0), depths, depth) / size - 1
        for key, size in whole["sent"].items()
        if size > 0.01 * everything
    ]
    return peak, max(sent, key=abs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=inf, help="begin nothing after so long")
    parser.add_argument("--table", action="store_true", help="compare, compile nothing")
    chosen = parser.parse_args()
    ends = time.monotonic() + chosen.seconds
    for line in CASES:
        if chosen.table:
            peak, sent = deviations(line)
            print(f"peak {peak:+.2%}  collectives {sent:+.2%}  {line}")
            continue
        for part in PARTS:
            depth = layers(line) // part
            if (line, depth) not in results() and time.monotonic() <= ends:
                row = compiled(line, depth)
                with RESULTS.open("a", encoding="utf8") as out:
                    out.write(json.dumps(row) + "\n")
                print(f"{line} at {depth}: {row['peak'] or row['reason']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
