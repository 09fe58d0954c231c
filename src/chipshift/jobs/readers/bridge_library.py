"""Megatron-Bridge's own recipes by the name of their function, with what each sets.

A script that imports ``llama3_8b_pretrain_config`` says no more than that name: the settings stand
in the library. ``bridge_recipes.csv`` holds them, one recipe a row under Bridge's own field names;
an empty field is Megatron Core's default.

Source of the rows: NVIDIA, Megatron-Bridge, src/megatron/bridge/recipes (common.py for what every
recipe starts from, the ``*/h100``, ``gb200`` and ``gb300`` folders, and the older names that their
modules alias), 2026-08-22.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from chipshift.models.lora import ALL_LINEAR, Lora

TABLE = Path(__file__).parent / "bridge_recipes.csv"
OWN = ("recipe", "aliases", "model", "task", "precision")
ADAPTERS = Lora(rank=32, targets=(ALL_LINEAR,))
"""Bridge's LoRA: rank 32 on every linear map of the layers."""


@dataclass(frozen=True)
class LibraryRecipe:
    """One recipe of the library.

    Attributes:
        name: the function's full name, which tells devices and chip.
        model: the hub name whose checkpoint it trains.
        task: ``pretrain``, ``sft`` or ``lora``.
        precision: of its mixed-precision recipe.
        settings: Megatron Core fields and values.
    """

    name: str
    model: str
    task: str
    precision: str
    settings: dict[str, str | bool] = field(default_factory=dict)


@cache
def library() -> dict[str, LibraryRecipe]:
    """Every recipe by its name and by each older name of it."""
    found: dict[str, LibraryRecipe] = {}
    with TABLE.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            recipe = LibraryRecipe(
                name=row["recipe"],
                model=row["model"],
                task=row["task"],
                precision=row["precision"],
                settings={
                    key: True if value == "true" else value
                    for key, value in row.items()
                    if key not in OWN and value
                },
            )
            for name in (recipe.name, *row["aliases"].split()):
                found[name] = recipe
    return found
