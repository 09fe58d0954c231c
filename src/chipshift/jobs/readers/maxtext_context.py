"""MaxText's ``context_parallel_strategy``.

Key and values: Google, MaxText, src/maxtext/configs/types.py and base.yml, 2026: all_gather (the
default), ring, ulysses, and usp, whose axis ``context_usp_ulysses`` deals heads out inside rings.
"""

from __future__ import annotations

from chipshift.jobs.job import Given
from chipshift.jobs.settings import Sheet, as_integer

INNER = ("ici_context_usp_ulysses_parallelism", "dcn_context_usp_ulysses_parallelism")
STRATEGIES = {"all_gather": "allgather", "ring": "ring", "ulysses": "all_to_all", "usp": "ring"}


def put_strategy(sheet: Sheet, cut: bool) -> None:
    """The exchange where sequences are cut; of ``usp`` the part that heads are dealt over."""
    draft = sheet.draft
    strategy = sheet.text(
        "context_parallel_strategy", into="context-parallel exchange", choices=STRATEGIES
    )
    if not cut:
        return
    if strategy is None:
        draft.assume("cp_kind", "allgather", "MaxText's default context_parallel_strategy")
        return
    kind, inner, line = STRATEGIES[strategy.value], 1, strategy.line
    if strategy.value == "usp":
        for key in INNER:
            stated = sheet.settings.get(key)
            size = as_integer(stated.value) if stated is not None else None
            if size is not None and size > 0:
                inner *= size
    if inner > 1:
        kind = "all_to_all"
        draft.put("ulysses_degree", Given(inner, strategy.file, line))
    draft.put("cp_kind", Given(kind, strategy.file, line))
