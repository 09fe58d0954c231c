"""``--set KEY=VALUE``: a setting laid over the file's own, in the file's words or in ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from chipshift.errors import InputError, nearest, slipped
from chipshift.jobs.draft import FIELDS, Draft
from chipshift.jobs.job import Given, Understood
from chipshift.jobs.open_axes import GROWS
from chipshift.jobs.optimizers import moments_named
from chipshift.jobs.settings import ABSURD, Setting, as_boolean, as_integer, as_number, unknown
from chipshift.jobs.words import checked_word

COUNTS = {
    "seq_len": "seq_len",
    "sequences_per_step": "global_batch",
    "tokens_per_step": "tokens_per_step",
    "accumulation": "accumulation",
    "devices": "devices",
    "nodes": "nodes",
    "devices_per_node": "devices_per_node",
    "dp": "dp",
    "fsdp": "fsdp",
    "tp": "tp",
    "cp": "cp",
    "ep": "ep",
    "etp": "etp",
    "pp": "pp",
    "vpp": "vpp",
    "ulysses_degree": "ulysses_degree",
    "document_len": "document_len",
    "loss_chunks": "loss_chunks",
}
WORDS = {
    "optimizer",
    "stack",
    "machine",
    "remat",
    "schedule",
    "optimizer_sharding",
    "cp_kind",
    "compute",
    "weights",
    "gradients",
    "reduce",
    "master",
    "moments",
    "gather",
    "task",
    "loss",
    "reference",
    "name",
}

SWITCHES = {"sequence_parallel"}

Place = tuple[str, int | None]


class Overrides:
    """The ``--set`` settings, and which of them something has used.

    Attributes:
        places: file and line of those that a command line in a script gives; others are --set's.
        added: dotted keys laid over a file that has none such; ``replaced``: keys that one has.
    """

    def __init__(self, given: dict[str, str], places: Mapping[str, Place] | None = None) -> None:
        self.given = given
        self.places = dict(places or {})
        self.used: set[str] = set()
        self.added: set[str] = set()
        self.replaced: set[str] = set()

    def lay_over(self, settings: dict[str, Setting], known: tuple[str, ...] = ()) -> None:
        """Replace the file's own keys; ``known`` lists keys that the file need not have."""
        for key, text in self.given.items():
            if key in settings or key in known or ("." in key and key not in COUNTS):
                (self.replaced if key in settings or key in known else self.added).add(key)
                settings[key] = Setting(typed(text), *self.places.get(key, ("--set", None)))
                self.used.add(key)
            elif key in self.places:
                meant = next((k for k in (*settings, *known) if slipped(key, k)), "")
                if meant:
                    raise unknown(key, Setting(text, *self.places[key]), meant)
                settings[key] = Setting(typed(text), *self.places[key])  # the command adds it
                self.used.add(key)

    def variable(self, name: str) -> str | None:
        """A script's variable, if it was set."""
        if name not in self.given:
            return None
        self.used.add(name)
        return self.given[name]

    def apply(self, draft: Draft) -> None:
        """Lay what is left over the job's own fields.

        Raises:
            InputError: a key that nothing knows, or a value that does not fit.
        """
        known = [*COUNTS, *WORDS, *SWITCHES, "microbatch", *sorted(draft.known)]
        for key in sorted(self.added - self.replaced - draft.reached):
            leaf = "." + key.rsplit(".", 1)[-1]
            alike = [k for k in known if k.endswith(leaf)] or known
            raise InputError(
                f"--set {key}: {draft.file} has no such key, and none of that name is read"
                f"{nearest(key, alike)}"
            )
        for key, text in self.given.items():
            if key in self.used:
                continue
            if key in COUNTS:
                value = as_integer(text)
                if value is None or not 1 <= value <= ABSURD:
                    raise InputError(
                        f"--set {key} is '{_short(text)}'; expected a whole number from 1 to "
                        f"{ABSURD:,}"
                    )
                self._put(draft, COUNTS[key], key, value)
            elif key == "microbatch":
                number = as_number(text)
                if number is None or not 0 < number <= ABSURD:
                    raise InputError(f"--set {key} is '{_short(text)}'; expected a number above 0")
                self._put(draft, key, key, number)
            elif key in SWITCHES:
                switch = as_boolean(text)
                if switch is None:
                    raise InputError(f"--set {key} is '{text}'; expected true or false")
                self._put(draft, key, key, switch)
            elif key in WORDS:
                self._put(draft, key, key, checked_word(key, text))
                narrow = moments_named(text) if key == "optimizer" else None
                if narrow and "moments" not in self.given:
                    self._put(draft, "moments", key, narrow)
            else:
                leaf = "." + key.rsplit(".", 1)[-1]
                alike = [k for k in known if "." in key and k.endswith(leaf)] or known
                raise InputError(
                    f"--set {key}: no such key in {draft.file} or in a job{nearest(key, alike)}"
                )

    def _put(self, draft: Draft, field: str, key: str, value: Any) -> None:
        if field == draft.slices_open:
            draft.slices_open = ""
        elif field == draft.open_axis:
            self._close(draft, key, value)
        if field == "tokens_per_step":
            draft.values.pop("global_batch", None)
        if field in ("global_batch", "tokens_per_step"):
            draft.values.pop("accumulation", None)
        draft.put(field, Given(value, "--set"))
        draft.understood.append(Understood(key, str(value), "--set", None, FIELDS[field]))

    @staticmethod
    def _close(draft: Draft, key: str, value: int) -> None:
        """The open axis is told: what grows with it does, and the slices' axis is left open."""
        axis = draft.open_axis
        draft.open_axis, draft.slices_open = draft.slices_open, ""
        if axis in GROWS:
            known, also = draft.get(axis) or 1, draft.get(GROWS[axis]) or 1
            if value % known:
                raise InputError(
                    f"--set {key} is {value}, of which the file tells {known}; expected a multiple"
                )
            draft.put(GROWS[axis], Given(also * (value // known), "--set"))


def read_pairs(
    texts: Iterable[str], flag: str = "--set", example: str = "seq_len=8192"
) -> dict[str, str]:
    """``["tp=4"]`` to ``{"tp": "4"}``.

    Args:
        flag, example: the option that the texts were given with, and a pair that it could have.

    Raises:
        InputError: a text without ``=``, or one key with two values.
    """
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InputError(f"{flag} {text}: expected KEY=VALUE, such as {flag} {example}")
        if found.setdefault(key.strip(), value) != value:
            raise InputError(
                f"{flag} {key.strip()} is given twice, as '{_short(found[key.strip()])}' and as "
                f"'{_short(value)}'; expected it once"
            )
    return found


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def typed(text: str) -> Any:
    """A command-line value as TOML or YAML would type it: true, 8, 1e-4, else a string."""
    lowered = text.strip().lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered in ("none", "null", "~"):
        return None
    integer = as_integer(text)
    if integer is not None and "e" not in lowered and "." not in lowered:
        return integer
    number = as_number(text)
    return text if number is None else number
