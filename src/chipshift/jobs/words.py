"""Words that ``--set`` gives a job's own fields: those of the native format, in any spelling."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from functools import cache

from chipshift.errors import InputError, nearest
from chipshift.jobs.dtypes import dtype_of


def checked_word(key: str, text: str) -> str:
    """The word as the native format has it (``bfloat16`` as ``bf16``); free ones as they are.

    Raises:
        InputError: a field of few words (a dtype, a task, a loss ...) is given another.
    """
    words = _words().get(key)
    if words is None:
        return text
    plain = text.strip().lower()
    named = dtype_of(plain)
    for word in (plain, *([named] if named else [])):
        if word in words:
            return word
    raise InputError(
        f"--set {key} is '{text}'; expected one of {', '.join(filter(None, words))}"
        f"{nearest(plain, words)}"
    )


@cache
def _words() -> Mapping[str, tuple[str, ...]]:
    """The words of every field of the native format that has a list of them."""
    from chipshift.jobs.readers import native_schema

    tables = (native_schema.JobTable, native_schema.PlanTable, native_schema.PrecisionTable)
    found = {name: _literals(field.annotation)
             for table in tables for name, field in table.model_fields.items()}  # fmt: skip
    return {name: words for name, words in found.items() if words}


def _literals(annotation: object) -> tuple[str, ...]:
    parts = typing.get_args(annotation)
    if all(isinstance(part, str) for part in parts):
        return parts
    return tuple(word for part in parts for word in _literals(part))
