"""Values that are a framework's own names but for a slip: refused, not passed over."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from chipshift.jobs.job import Given
from chipshift.jobs.settings import Setting, Sheet, wrong

NEAR = 0.85
"""Share of letters in common (difflib's ratio) from which a value is a slip, as ``lorra``."""

FSDP_WORDS = (
    *("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"),
    *("_hybrid_shard_zero2", "offload", "auto_wrap"),
)
"""PyTorch's ``ShardingStrategy`` and what Transformers' ``fsdp`` may add to it."""


def refuse_near(key: str, setting: Setting, known: Iterable[str]) -> None:
    """Refuse a value that is nearly, and not quite, one of the names that the framework has.

    Other values pass: a fork has names of its own, which the reading says by itself.

    Raises:
        InputError: a name is meant, with the place.
    """
    names = {name.lower(): name for name in known}
    value = str(setting.value).strip().lower()
    close = difflib.get_close_matches(value, names, 1, cutoff=NEAR)
    if value not in names and close:
        meant = names[close[0]]
        raise wrong(key, setting, "a name that is known", f"; did you mean '{meant}'?")


def near_text(sheet: Sheet, *keys: str, into: str, known: Iterable[str]) -> Given[str] | None:
    """A string of the sheet that is one of the framework's names, or far from all of them.

    Raises:
        InputError: as ``refuse_near``.
    """
    stated = sheet.text(*keys, into=into)
    if stated is not None:
        key = next(key for key in keys if key in sheet.settings)
        refuse_near(key, Setting(stated.value, stated.file, stated.line), known)
    return stated
