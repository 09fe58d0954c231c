"""Words of a job's own fields, as ``--set`` and the native format give them, against their choices.

Every field that is a word has either a list (a dtype, a task, a schedule ...) or a form of its own
(a machine, a rematerialisation, a framework and its release); ``name`` alone is free.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from functools import cache

from chipshift.errors import InputError, nearest
from chipshift.jobs.dtypes import dtype_of
from chipshift.jobs.optimizers import OPTIMIZERS, optimizer_named
from chipshift.jobs.remats import parse_remat
from chipshift.jobs.stacks import checked_stack


def checked_word(key: str, text: str, said: str = "") -> str:
    """The word as the native format has it (``bfloat16`` as ``bf16``, ``SGD`` as ``sgd``).

    Args:
        said: the place and the key as the message begins; ``--set KEY`` where it is left out.

    Raises:
        InputError: it is none of the field's choices; with the nearest one.
    """
    said = said or f"--set {key}"
    own = OWN.get(key)
    if own is not None:
        return own(text.strip(), said)
    words = _words().get(key)
    if words is None:
        return text
    plain = text.strip().lower()
    named = dtype_of(plain)
    for word in (plain, *([named] if named else [])):
        if word in words:
            return word
    raise InputError(
        f"{said} is '{text}'; expected one of {', '.join(filter(None, words))}"
        f"{nearest(plain, words)}"
    )


def _optimizer(text: str, said: str) -> str:
    known = optimizer_named(text)
    if known is None:
        raise InputError(
            f"{said} is '{text}'; expected one of {', '.join(OPTIMIZERS)}"
            f"{nearest(text.lower(), list(OPTIMIZERS))}"
        )
    return known


def _remat(text: str, said: str) -> str:
    return _parsed(parse_remat, text, said)


def _machine(text: str, said: str) -> str:
    """A machine's name; one of a chip without figures is refused where it is used."""
    from chipshift.machines.announced import without_figures
    from chipshift.machines.names import parse_machine

    if without_figures(text.strip().lower().partition("*")[0]):
        return text
    return _parsed(parse_machine, text, said)


def _parsed(parse: Callable[[str], object], text: str, said: str) -> str:
    """The text as it is, once ``parse`` has taken it; its message begins with what was said."""
    try:
        parse(text)
    except InputError as error:
        raise InputError(f"{said}: {error}") from None
    return text


def _name(text: str, said: str) -> str:
    if not text:
        raise InputError(f"{said} is empty; expected a name")
    return text


OWN: Mapping[str, Callable[[str, str], str]] = {
    "optimizer": _optimizer,
    "stack": checked_stack,
    "remat": _remat,
    "machine": _machine,
    "name": _name,
}
"""Fields whose words are no plain list: each takes (text, how the message begins)."""


@cache
def _words() -> Mapping[str, tuple[str, ...]]:
    """The words of every field of the native format that has a list of them."""
    from chipshift.jobs.readers import native_schema  # brings pydantic, which most runs go without

    tables = (native_schema.JobTable, native_schema.PlanTable, native_schema.PrecisionTable)
    found = {name: _literals(field.annotation)
             for table in tables for name, field in table.model_fields.items()}  # fmt: skip
    return {name: words for name, words in found.items() if words}


def _literals(annotation: object) -> tuple[str, ...]:
    parts = typing.get_args(annotation)
    if all(isinstance(part, str) for part in parts):
        return parts
    return tuple(word for part in parts for word in _literals(part))
