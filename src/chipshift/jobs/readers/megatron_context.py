"""How Megatron's context-parallel devices exchange: a ring, gathers, or all-to-alls of heads.

Arguments: NVIDIA, Megatron-LM, megatron/core/model_parallel_config.py and transformer_config.py,
2026; Huawei, MindSpeed, docs/features (Ulysses and hybrid context parallelism), 2026, for
``--context-parallel-algo``.
"""

from __future__ import annotations

import math
import re

from chipshift.errors import InputError
from chipshift.jobs.job import Given
from chipshift.jobs.settings import Sheet, wrong

KINDS = {
    "p2p": "ring",
    "all_gather": "allgather",
    "allgather": "allgather",
    "a2a": "all_to_all",
    "a2a+p2p": "all_to_all",
    "megatron_cp_algo": "ring",
    "ulysses_cp_algo": "all_to_all",
    "hybrid_cp_algo": "all_to_all",
}
BOTH = ("a2a+p2p", "hybrid_cp_algo")
SIZES = "hierarchical-context-parallel-sizes"
DEGREE = "ulysses-degree-in-cp"
INTO = "devices of cp that heads are dealt over"


def put_exchange(sheet: Sheet) -> None:
    """The exchange, and over how many devices heads are dealt where a ring goes round the rest.

    Raises:
        InputError: an exchange of another name, or sizes that do not multiply to cp.
    """
    draft = sheet.draft
    found = sheet.raw("cp-comm-type", "context-parallel-algo")
    if found is not None and found[1].value is None:
        found = None
    if found is None or (draft.get("cp") or 1) == 1:
        if (draft.get("cp") or 1) > 1:
            draft.assume("cp_kind", "ring", "Megatron's default --cp-comm-type p2p")
        sheet.ignore((SIZES, DEGREE), False, "no exchange of two levels is asked for")
        return
    key, setting = found
    named = re.findall(r"[\w+]+", str(setting.value).lower())
    if not named or any(name not in KINDS for name in named):
        raise wrong(key, setting, f"one of {', '.join(KINDS)}")
    sheet.record(key, setting, "context-parallel exchange")
    if len(set(named)) > 1:
        draft.note("cp_kind", KINDS[named[0]], "layers differ; the first one's is taken for all")
    draft.put("cp_kind", Given(KINDS[named[0]], setting.file, setting.line))
    if named[0] in BOTH:
        _two_levels(sheet, key)
    sheet.ignore((SIZES, DEGREE), False, f"{named[0]} has one level")


def _two_levels(sheet: Sheet, key: str) -> None:
    """The inner level: the first of the hierarchical sizes, or MindSpeed's degree."""
    draft = sheet.draft
    degree, cp = sheet.integer(DEGREE, into=INTO), draft.get("cp")
    found = sheet.raw(SIZES)
    if degree is not None:
        draft.put("ulysses_degree", degree)
        return
    if found is None:
        raise InputError(
            f"{draft.file}: --{key} of two levels needs the size of each; expected --{SIZES} with "
            f"two sizes that multiply to cp={cp}, heads being dealt over the first"
        )
    sizes = [int(size) for size in re.findall(r"\d+", str(found[1].value))]
    if not sizes or math.prod(sizes) != cp:
        raise wrong(SIZES, found[1], f"sizes that multiply to cp={cp}")
    sheet.record(SIZES, found[1], INTO)
    draft.put("ulysses_degree", Given(sizes[0], found[1].file, found[1].line))
