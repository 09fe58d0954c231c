"""An optimizer by the name that a framework gives it."""

from __future__ import annotations

from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given

OPTIMIZERS = (
    ("adafactor", "adafactor"),
    ("muon", "muon"),
    ("lion", "lion"),
    ("sgd", "sgd"),
    ("lamb", "lamb"),
    ("adam", "adamw"),
)
"""An optimizer's name contains the first, and is then the second."""


def put_optimizer_named(draft: Draft, name: Given[str]) -> None:
    """Any framework's name of an optimizer; 8-bit and fused ones are flagged."""
    lowered = name.value.lower()
    known = next((ours for part, ours in OPTIMIZERS if part in lowered), lowered[:40])
    draft.put("optimizer", Given(known, name.file, name.line))
    if "8bit" in lowered or "bnb" in lowered:
        draft.put("moments", Given("int8", name.file, name.line))
        draft.flag("quantised_optimizer", "optim", name.value, name.line)
    if "apex" in lowered or "fused" in lowered:
        draft.flag("fused_optimizer", "optim", name.value, name.line)
