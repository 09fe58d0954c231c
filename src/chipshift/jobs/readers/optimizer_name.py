"""An optimizer by the name that a framework gives it."""

from __future__ import annotations

from chipshift.errors import nearest
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given, Ignored
from chipshift.jobs.optimizers import OPTIMIZERS, low_rank, moments_named, optimizer_named


def put_optimizer_named(draft: Draft, name: Given[str], key: str = "optim") -> None:
    """Any framework's name of an optimizer; 8-bit and fused ones are flagged.

    One that is not known is taken as AdamW, and the reading says so.
    """
    lowered = name.value.lower()
    known = optimizer_named(name.value)
    if known is None:
        known = _taken_as(draft, name, key)
    else:
        draft.put("optimizer", Given(known, name.file, name.line))
    narrow = moments_named(lowered)
    if narrow is not None:
        draft.put("moments", Given(narrow, name.file, name.line))
        draft.flag("quantised_optimizer", key, name.value, name.line)
    if "apex" in lowered or "fused" in lowered:
        draft.flag("fused_optimizer", key, name.value, name.line)


def _taken_as(draft: Draft, name: Given[str], key: str) -> str:
    """What an optimizer that is not known is taken as, said among what is assumed and ignored."""
    shown = " ".join(name.value.split())[:40]
    smaller = low_rank(name.value)
    if smaller is not None:
        taken, why = smaller, f"'{shown}' keeps its moments at a low rank; they are counted whole"
    else:
        hint = nearest(name.value.lower(), list(OPTIMIZERS)).removeprefix("; ")
        taken = "adamw"
        why = f"'{shown}' is no optimizer known here{f' ({hint})' if hint else ''}; AdamW's two "
        why += "moments a parameter are taken"
    draft.values.pop("optimizer", None)
    draft.assume("optimizer", taken, why)
    draft.ignored.append(Ignored(key, name.file, name.line, True, why))
    return taken
