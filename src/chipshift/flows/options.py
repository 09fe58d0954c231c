"""What the person asking can hold, price and state; validated where it is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from chipshift.errors import InputError, nearest
from chipshift.estimate import Price
from chipshift.estimate.stack import RUNS_ON, default_stack, stack
from chipshift.machines.chip import Chip
from chipshift.machines.machine import Machine
from chipshift.machines.names import chip_named
from chipshift.machines.prices import COMMITS, price

T = TypeVar("T")


@dataclass(frozen=True)
class Measured:
    """The user's own run, in the present job's plan and machine."""

    step_time_s: float | None = None
    memory_bytes: float | None = None


@dataclass(frozen=True)
class Options:
    """Everything that an assessment can be told beyond job and machines.

    Attributes:
        prices: dollars a chip-hour by chip key, the user's own.
        commit: how chips are paid for where the user gives no price: od, 1y, 3y, spot.
        objective: time, cost or chips; decides the slice where a target has no size.
        fixed: parts of the target's plan that the user holds.
        allow_batch: tokens a step may change.
        tokens: length of the run, or None.
        deadline_s: the run must end within, or None.
        goodput: share of the time that a run makes progress (checkpoints, restarts, failures).
        stacks: stack by chip key, where the default is not wanted.
        exhaustive: the planner scores every plan instead of pruning by its bounds.
    """

    prices: Mapping[str, float] = field(default_factory=dict)
    commit: str = "od"
    objective: str = "time"
    fixed: Mapping[str, str | int | float] = field(default_factory=dict)
    allow_batch: bool = False
    measured: Measured = Measured()
    tokens: float | None = None
    deadline_s: float | None = None
    goodput: float = 0.9
    stacks: Mapping[str, str] = field(default_factory=dict)
    exhaustive: bool = False

    def __post_init__(self) -> None:
        if self.objective not in ("time", "cost", "chips"):
            raise InputError(
                f"--objective '{self.objective}' is not known (expected time, cost or chips)"
            )
        if self.commit not in COMMITS:
            raise InputError(
                f"--commit '{self.commit}' is not known (expected {', '.join(COMMITS)})"
            )
        if not 0 < self.goodput <= 1:
            raise InputError(f"--goodput {self.goodput:g}: expected above 0, at most 1")

    def check_asked(self, chips: Iterable[Chip]) -> None:
        """Refuse a price or a stack of a chip that is in none of the machines asked about.

        Raises:
            InputError: there is one; it would change nothing.
        """
        keys = tuple(dict.fromkeys(chip.key for chip in chips))
        check_asked(self.prices, "--price", keys)
        check_asked(self.stacks, "--stack", keys)

    def stack_on(self, chip: Chip, job_stack: str) -> str:
        """The stack of a run on a chip: the user's, else the job's own or the family's default.

        Raises:
            InputError: a stack that is not known or does not run on that chip.
        """
        wanted = self.stacks.get(chip.key)
        return default_stack(chip.family, job_stack) if wanted is None else runs(wanted, chip)

    def price_of(self, machine: Machine) -> Price:
        """The price that applies to a machine's chips."""
        key = machine.chip.key
        if key in self.prices:
            return Price(self.prices[key], f"given: --price {key}={self.prices[key]:g}")
        figure = price(machine.chip, self.commit)
        if figure is None:
            return Price(
                None, f"no sourced {COMMITS[self.commit]} price of {key}: give --price {key}=..."
            )
        return Price(figure.value, f"{COMMITS[self.commit]}, {figure.source}, {figure.date}")


def runs(name: str, chip: Chip) -> str:
    """The stack's name, once it is known to run on the chip.

    Raises:
        InputError: a stack that is not known or does not run there.
    """
    stack(name, chip.key)
    if name.partition("@")[0] not in RUNS_ON[chip.family]:
        raise InputError(
            f"--stack {name} does not run on {chip.key} (expected one of "
            f"{', '.join(sorted(RUNS_ON[chip.family]))})"
        )
    return name


def check_asked(values: Mapping[str, object], option: str, keys: Iterable[str]) -> None:
    """Refuse a value for a chip that is in none of the machines asked about.

    Args:
        values: by chip key, as ``by_chip`` gives them. keys: of the chips asked about.

    Raises:
        InputError: there is one; it would change nothing.
    """
    keys = tuple(keys)
    for key, value in values.items():
        if key not in keys:
            said = f"{value:g}" if isinstance(value, float) else value
            raise InputError(
                f"{option} {key}={said}: no machine asked about has {key} chips "
                f"(expected {' or '.join(keys)}){nearest(key, keys)}"
            )


def by_chip(values: Mapping[str, T]) -> dict[str, T]:
    """The same keyed by the chips' own keys, whatever names the user gave them.

    Raises:
        InputError: a key that names no chip.
    """
    return {chip_named(key).key: value for key, value in values.items()}


def read_numbers(texts: list[str], flag: str, example: str = "h100=2.20") -> dict[str, float]:
    """``["h100=2.20", "v6e=1.22"]`` or ``["a=1,b=2"]`` as a mapping.

    Raises:
        InputError: no ``key=number``, or a number that is not positive and finite.
    """
    out: dict[str, float] = {}
    for part in (p.strip() for text in texts for p in text.split(",")):
        key, sign, value = part.partition("=")
        number = positive(value, f"{flag} {part}") if sign else None
        if not key or number is None:
            raise InputError(f"{flag} '{part}': expected KEY=NUMBER, such as {flag} {example}")
        out[key.strip().lower()] = number
    return out


def positive(text: str, where: str) -> float:
    """A positive finite number.

    Raises:
        InputError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < 1e30:
        raise InputError(f"{where}: '{text.strip()}' is no positive number")
    return value


_DURATIONS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def read_duration(text: str, flag: str) -> float:
    """``30d``, ``12h`` or plain seconds.

    Raises:
        InputError: neither.
    """
    for unit in sorted(_DURATIONS, key=len, reverse=True):
        if text.strip().endswith(unit):
            return positive(text.strip()[: -len(unit)], f"{flag} {text}") * _DURATIONS[unit]
    return positive(text, f"{flag} {text} (expected a number with s, min, h, d or w)")
