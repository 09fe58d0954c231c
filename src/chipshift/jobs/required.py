"""What no job goes without, a model and a sequence length: where one is missing, what was meant."""

from __future__ import annotations

import difflib
import re

from chipshift.errors import InputError
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given, Stated
from chipshift.jobs.settings import ABSURD

LONGEST = 10**9
"""Tokens of the longest sequence that is read; the native format's limit too."""

_LENGTH = re.compile(r"seq\w*_?len|max_?len|length|block_size|cutoff_len")


def require_model(draft: Draft) -> None:
    """The model must be known.

    Raises:
        InputError: it is not, with the shipped model of the nearest name.
    """
    if draft.get("model") is not None:
        return
    wanted = " ".join(draft.wanted_model.split())
    said = f"trains '{wanted}', which is not a shipped model"
    raise InputError(
        f"{draft.file} {said if wanted else 'does not say which model it trains'}; "
        "expected --model with a preset name or a config.json, or --torch MODULE:FUNCTION"
        f"{_nearest_preset(wanted)}{_or_file(draft)}"
    )


def _nearest_preset(wanted: str) -> str:
    from chipshift.models.preset import names

    close = difflib.get_close_matches(wanted.rsplit("/", 1)[-1].lower(), names(), 1, cutoff=0.8)
    return f"; the nearest shipped one is '{close[0]}'" if close else ""


def required_length(draft: Draft) -> Stated[int]:
    """The sequence length.

    Raises:
        InputError: it is missing, with the key that was likely meant for it, or absurd.
    """
    stated: Stated[int] | None = draft.values.get("seq_len")
    if stated is None:
        raise InputError(f"{_no_length(draft)}; expected --set seq_len=N{_or_file(draft)}")
    if stated.value > LONGEST:
        place = _place(stated.file, stated.line) if isinstance(stated, Given) else draft.file
        raise InputError(
            f"{place}: the sequence length is {stated.value}; expected at most {LONGEST:,} tokens"
        )
    return stated


def _no_length(draft: Draft) -> str:
    null = next((u for u in draft.understood if u.understood_as == "sequence length"), None)
    if null is not None:  # as torchtune's max_seq_len: null
        place = _place(null.file, null.line)
        return f"{place}: {null.key} is unset, and sequences are as long as their texts"
    said = f"{draft.file} does not give the sequence length"
    lengths = [key for key in draft.known if _LENGTH.search(key)]
    for left in draft.ignored:
        meant = difflib.get_close_matches(left.key, lengths, 1, cutoff=0.75)
        if meant and _LENGTH.search(left.key):
            key = f"{_place(left.file, left.line)}: {left.key}"
            return f"{said}, and {key} is not read (did you mean '{meant[0]}'?)"
    return said


def bounded_batch(batch: Stated[int], where: str) -> None:
    """The sequences of a step.

    Raises:
        InputError: there are absurdly many.
    """
    if batch.value > ABSURD:
        place = _place(batch.file, batch.line) if isinstance(batch, Given) else where
        raise InputError(
            f"{place}: the batch comes to {batch.value} sequences; expected at most {ABSURD:,}"
        )


def _or_file(draft: Draft) -> str:
    """The files that may say what is missing, as a clause."""
    return f", or {' and '.join(draft.absent[:3])}, which it names, beside it" * bool(draft.absent)


def _place(file: str, line: int | None) -> str:
    return file if line is None else f"{file}:{line}"
