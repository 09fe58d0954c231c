"""How MaxText deals tokens out to experts."""

from __future__ import annotations

from dataclasses import replace

from chipshift.jobs.job import Ignored
from chipshift.jobs.settings import Sheet
from chipshift.models.model import MoeMlp


def put_capacity(sheet: Sheet) -> None:
    """Tokens dealt out by masks to places of a fixed number, where ``sparse_matmul`` is off.

    Source: AI-Hypercomputer, MaxText, layers/moe.py (``dense_matmul``) and configs/base.yml, 2026.
    """
    draft = sheet.draft
    factor = sheet.number("capacity_factor", into="places for the rows of all experts", low=-1.0)
    sparse = sheet.boolean("sparse_matmul", into="experts by grouped matmuls")
    stated = draft.values.get("model")
    if stated is None or not stated.value.routed:
        return
    if sparse is None or sparse.value:
        if factor is not None and factor.value > 0:
            why = "sparse_matmul, which is on, drops nothing"
            draft.note("capacity_factor", factor.value, why)
        return
    if factor is None or factor.value <= 0:
        why = "without a capacity_factor every expert computes every token; top-k is counted"
        draft.ignored.append(Ignored("sparse_matmul", sparse.file, sparse.line, True, why))
        return
    layers = tuple(
        (replace(one, mlp=replace(one.mlp, capacity_factor=factor.value)), count)
        if isinstance(one.mlp, MoeMlp)
        else (one, count)
        for one, count in stated.value.layers
    )
    draft.values["model"] = replace(stated, value=replace(stated.value, layers=layers))
