"""Write ``estimate/bands.toml``: the error each chip and stack has shown on models left out.

usage: bands.py src/chipshift/estimate/bands.toml
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from chipshift.validate.case import Case
from chipshift.validate.cross import left_out, left_out_errors
from chipshift.validate.fit import Fit, usable
from chipshift.validate.run import carried, read_data
from chipshift.validate.score import summary


def main() -> None:
    rows = read_data(carried("measured_training.jsonl"))
    cases = [r for r in rows if isinstance(r, Case)]
    found = left_out(cases, cases)
    sweep = [r for r in read_data(carried("nanotron_h100_sweep.csv")) if isinstance(r, Case)]
    runs = usable([r for r in sweep if not r.measured.oom])
    found["h100", "nanotron"] = left_out_errors(Fit(runs))
    chips: dict[str, list[str]] = defaultdict(list)
    for (chip, stack), errors in sorted(found.items()):
        one = summary(errors)
        what = (
            "runs of one sweep under"
            if stack == "nanotron"
            else f"public run{'s' * (one.n != 1)} of"
        )
        basis = f"{one.n} {what} {stack} on {chip}, each model left out of its own fit"
        chips[chip].append(
            f"{stack} = {{ n = {one.n}, median_abs_rel = {one.median_abs_rel:.4f}, "
            f'p90_abs_rel = {one.p90_abs_rel:.4f}, basis = "{basis}" }}'
        )
    text = "# written by benchmarks/calibration/bands.py: what `chipshift validate --cross` shows\n"
    for chip, lines in chips.items():
        text += f"\n[{chip}]\n" + "\n".join(lines) + "\n"
    Path(sys.argv[1]).write_text(text, encoding="utf8")


if __name__ == "__main__":
    main()
