"""The sweep's step time on node counts, and on model sizes, that the constants have not seen.

usage: cross_sweep.py

Each node count (and then each model) is left out of the fit of the stack ``nanotron`` in turn and
timed under constants that the rest would give.
"""

from __future__ import annotations

from collections.abc import Callable

from chipshift.validate.case import Case
from chipshift.validate.cross import left_out_errors
from chipshift.validate.fit import Fit, usable
from chipshift.validate.run import carried, read_data
from chipshift.validate.score import summary

GROUPS: dict[str, Callable[[Case], object]] = {
    "in sample": lambda case: None,
    "node count left out": lambda case: case.chips,
    "model left out": lambda case: case.model.partition("x")[0],
}


def main() -> None:
    rows = [c for c in read_data(carried("nanotron_h100_sweep.csv")) if isinstance(c, Case)]
    fit = Fit(usable([c for c in rows if not c.measured.oom]))
    narrow = [run.case.job.model.d_model < 16384 for run in fit.runs]
    for name, group in GROUPS.items():
        if name == "in sample":
            errors = [float(e) for e in fit.relative_errors(fit.stored())]
        else:
            errors = left_out_errors(fit, group)
        without = [e for e, kept in zip(errors, narrow, strict=True) if kept]
        for what, found in ((name, errors), (f"{name}, without width 16,384", without)):
            one = summary(found)
            print(
                f"{what:40} n={one.n:4} median {one.median_abs_rel:6.1%} "
                f"p90 {one.p90_abs_rel:6.1%} bias {one.bias:6.1%}"
            )


if __name__ == "__main__":
    main()
