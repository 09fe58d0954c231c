"""Switches of Google's MaxText recipes, which its tables of runs do not print.

Whether attention's backward pass is one kernel and whether 8-bit operands have a fixed range stands
in the recipe's own flags (``data/maxtext_recipes.csv``: MaxText's benchmarks and tpu-recipes, each
line read from the file that it names, from the day of the commit that set the flag). What no line
and no note of a run says is MaxText's default.
"""

from __future__ import annotations

import csv
import functools
import re
from dataclasses import dataclass
from importlib import resources

from chipshift.jobs.job import Flag

SPLASH = "2024-02-08"
"""Day from which MaxText calls splash attention (its layers/attentions.py)."""
FUSED = re.compile(r"\b(use_tokamax_splash|sa_use_fused_bwd_kernel)=True")
"""Notes that say of one backward kernel; tokamax's splash attention has no other."""


@dataclass(frozen=True)
class MaxTextRecipe:
    """One line of the table.

    Attributes:
        precisions: of the matmuls; () = any.
        seq_len: tokens of a row; 0 = any.
        since: ``YYYY-MM-DD`` of the commit.
        fused_backward: ``sa_use_fused_bwd_kernel=True``.
        fixed_ranges: ``weight_`` and ``act_quantization_calibration_method=fixed,...``.
        where: the file and, where it holds several, the configuration.
    """

    model: str
    chip: str
    precisions: tuple[str, ...]
    seq_len: int
    since: str
    fused_backward: bool
    fixed_ranges: bool
    where: str


@functools.cache
def maxtext_recipes() -> tuple[MaxTextRecipe, ...]:
    """Every line of the table."""
    file = resources.files("chipshift.validate") / "data" / "maxtext_recipes.csv"
    return tuple(
        MaxTextRecipe(
            model=row["model"],
            chip=row["chip"],
            precisions=tuple(filter(None, row["precisions"].split("+"))),
            seq_len=int(row["seq_len"] or 0),
            since=row["since"],
            fused_backward=row["fused_backward"] == "yes",
            fixed_ranges=row["fixed_ranges"] == "yes",
            where=row["where"],
        )
        for row in csv.DictReader(file.read_text("utf8").splitlines())
    )


def maxtext_recipe_of(
    model: str, chip: str, precision: str, seq_len: int, day: str
) -> MaxTextRecipe | None:
    """The recipe that a run of that day (``YYYY-MM-DD``) was, where the table knows it."""
    found = (
        one
        for one in maxtext_recipes()
        if (model, chip) == (one.model, one.chip)
        and precision in (one.precisions or (precision,))
        and seq_len == (one.seq_len or seq_len)
        and one.since <= day
    )
    return next(found, None)


def day_of(notes: str) -> str:
    """``YYYY-MM-DD`` that notes give a run's table or log, else the commit it was read at; '' where
    they give none."""
    dated = re.search(r"(?:table|log line) dated (20\d\d-\d\d-\d\d)", notes)
    commit = re.search(r"at (?:commit )?\w+ \((20\d\d-\d\d-\d\d)", notes)
    found = dated or commit
    return found[1] if found else ""


def kernel_flags(
    recipe: MaxTextRecipe | None, notes: str, file: str, line: int | None
) -> tuple[Flag, ...]:
    """What a job's file would say of attention's kernels on a TPU and of 8-bit operands' ranges."""
    day = day_of(notes)
    flags = []
    if "" < day < SPLASH:
        flags.append(Flag("attention_kernel", "notes", "pallas_flash", file, line))
    elif not FUSED.search(notes) and not (recipe and recipe.fused_backward):
        flags.append(Flag("separate_backward", "sa_use_fused_bwd_kernel", "False", file, line))
    if recipe and recipe.fixed_ranges:
        key = "act_quantization_calibration_method"
        flags.append(Flag("fixed_ranges", key, "fixed", file, line))
    return tuple(flags)
