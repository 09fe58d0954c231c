"""Megatron-Bridge's own recipes by the name of their function, with what each sets.

A script that imports ``llama3_8b_pretrain_config`` says no more than that name: the settings stand
in the library. ``bridge_recipes.csv`` holds them, and ``bridge_perf_recipes.csv`` those of the
benchmarks, one recipe a row under Bridge's own field names; an empty field is Megatron Core's
default, and an empty model is the one whose numbers the row has. ``tokenizer_vocab`` is the null
tokenizer's vocabulary where the model takes its own from the tokenizer, or ``tokenizer`` where
that is a real one.

Source of the rows: NVIDIA, Megatron-Bridge, src/megatron/bridge/recipes (common.py for what every
recipe starts from, the ``*/h100``, ``gb200`` and ``gb300`` folders, and the older names that their
modules alias) and src/megatron/bridge/perf_recipes, 2026-08-22.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from chipshift.models.lora import ALL_LINEAR, Lora

FOLDER = Path(__file__).parent
OWN = ("recipe", "aliases", "model", "task", "precision", "tokenizer_vocab")
PERF = "perf_recipes"
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
        tokenizer_vocab: the null tokenizer's vocabulary that the model takes, ``tokenizer``, or "".
    """

    name: str
    model: str
    task: str
    precision: str
    settings: dict[str, str | bool] = field(default_factory=dict)
    tokenizer_vocab: str = ""


@cache
def library() -> dict[str, LibraryRecipe]:
    """Every recipe by its name and by each older name of it; of two of a name, not the benchmark's.

    Both packages have a few names in common, with other settings (``named``).
    """
    return {**perf_library(), **_table("bridge_recipes.csv")}


@cache
def perf_library() -> dict[str, LibraryRecipe]:
    """The benchmarks' recipes by name."""
    return _table("bridge_perf_recipes.csv")


def named(name: str, origin: str = "") -> LibraryRecipe | None:
    """The recipe that a name means when it is taken from a module; None where there is none."""
    if PERF in origin and name in perf_library():
        return perf_library()[name]
    return library().get(name)


def _table(file: str) -> dict[str, LibraryRecipe]:
    found: dict[str, LibraryRecipe] = {}
    with (FOLDER / file).open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if row["exp_avg_dtype"]:  # set together in every recipe of the library
                row["exp_avg_sq_dtype"] = row["exp_avg_dtype"]
                row["use_precision_aware_optimizer"] = "true"
            recipe = LibraryRecipe(
                name=row["recipe"],
                model=row["model"],
                task=row["task"],
                precision=row["precision"],
                settings={
                    key: {"true": True, "false": False}.get(value, value)
                    for key, value in row.items()
                    if key not in OWN and value
                },
                tokenizer_vocab=row["tokenizer_vocab"],
            )
            for name in (recipe.name, *row["aliases"].split()):
                found[name] = recipe
    return found
