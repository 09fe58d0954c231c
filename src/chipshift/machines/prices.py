"""Prices of a chip-hour: what is sourced, what the user gives, and comparing like with like."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from chipshift.errors import InputError, nearest
from chipshift.machines.chip import Chip, Figure
from chipshift.machines.names import chip_named

COMMITS: dict[str, str] = {
    "od": "on demand",
    "1y": "1-year commitment",
    "3y": "3-year commitment",
    "spot": "spot",
}
"""How a chip is paid for: the value of ``--commit``, and what it is called."""


def price(chip: Chip, commit: str = "od") -> Figure | None:
    """USD per chip-hour, host included, or None where no source gives one.

    Raises:
        InputError: ``commit`` is none of ``COMMITS``.
    """
    if commit not in COMMITS:
        raise InputError(
            f"no commitment is called '{commit}'{nearest(commit, tuple(COMMITS))}; "
            f"expected one of {', '.join(COMMITS)}"
        )
    return chip.figures.get(f"price_usd_per_chip_hour_{commit}")


def common_commits(chips: Iterable[Chip]) -> tuple[str, ...]:
    """The commitments for which every one of the chips has a sourced price, on demand first."""
    listed = tuple(chips)
    return tuple(commit for commit in COMMITS if all(price(chip, commit) for chip in listed))


def like_with_like(
    chips: Sequence[Chip], commit: str = "od"
) -> tuple[str, dict[str, Figure | None]]:
    """Prices of several chips under one commitment, and a sentence that says what they are.

    The commitment is never changed to one that happens to be sourced: a chip without a price
    under it is None, and the sentence names it and the commitments that all the chips share.

    Raises:
        InputError: ``commit`` is none of ``COMMITS``.
    """
    found = {chip.key: price(chip, commit) for chip in chips}
    missing = [key for key, figure in found.items() if figure is None]
    said = f"list prices, {COMMITS[commit]}, host included"
    if missing:
        said += f"; no sourced price for {', '.join(missing)}"
        shared = [other for other in common_commits(chips) if other != commit]
        said += f" (all are sourced under --commit {' or '.join(shared)})" if shared else ""
    return said, found


def given_prices(options: Iterable[str]) -> dict[str, Figure]:
    """Prices as the user gives them, ``h100=2.20``, by chip key.

    Raises:
        InputError: not of the form CHIP=USD, an unknown chip, or a price that is not above 0.
    """
    found: dict[str, Figure] = {}
    for option in options:
        name, equals, written = option.partition("=")
        if not equals:
            raise InputError(f"--price '{option}': expected CHIP=USD a chip-hour, as h100=2.20")
        try:
            value = float(written)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            raise InputError(
                f"--price '{option}': expected a number of USD above 0, found '{written}'"
            )
        figure = Figure(value, "USD/chip-hour", f"given: --price {option}", "given by the user")
        found[chip_named(name).key] = figure
    return found
