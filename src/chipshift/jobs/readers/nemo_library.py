"""NeMo 2's own recipes: what ``llm.llama3_8b.pretrain_recipe(num_nodes=2)`` leaves to the library.

``nemo_recipes.csv`` holds each recipe's settings in each form that its arguments choose
(pretraining; fine-tuning with LoRA or of all weights; packed; with the performance options), under
Megatron Core's field names; an empty field is Megatron Core's default.

Source of the rows: NVIDIA, NeMo 2.6.0rc0, nemo/collections/llm/recipes (each model's file, with
finetune_default.py, precision/mixed_precision.py and optim/adam.py), 2025-09-20.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from chipshift.jobs.python_tree import Call, Module
from chipshift.jobs.readers.bridge_library import LibraryRecipe
from chipshift.models.lora import ALL_LINEAR, Lora

TABLE = Path(__file__).parent / "nemo_recipes.csv"
OWN = ("recipe", "form", "model", "precision", "nodes", "devices_per_node")
ADAPTER = ("lora_rank", "lora_targets")
CALLS = ("pretrain_recipe", "finetune_recipe", "pretrain_recipe_performance")

MAPS = {
    "linear_qkv": ("q_proj", "k_proj", "v_proj"),
    "linear_proj": ("o_proj",),
    "linear_fc1": ("gate_proj", "up_proj"),
    "linear_fc2": ("down_proj",),
    "linear_q_down_proj": ("q_a_proj",),
    "linear_q_up_proj": ("q_b_proj",),
    "linear_kv_down_proj": ("kv_a_proj_with_mqa",),
    "linear_kv_up_proj": ("kv_b_proj",),
}
"""Megatron Core's names of a layer's maps, and the checkpoint's."""


@dataclass(frozen=True)
class NemoRecipe:
    """One recipe in one form.

    Attributes:
        library: name, model, task, precision and Megatron Core fields.
        nodes: the default of its ``num_nodes``; ``devices_per_node`` likewise.
        lora: the adapters that it trains, or None.
    """

    library: LibraryRecipe
    nodes: int
    devices_per_node: int
    lora: Lora | None


@cache
def nemo_library() -> dict[tuple[str, str], NemoRecipe]:
    """Every recipe, by its name and form."""
    found: dict[tuple[str, str], NemoRecipe] = {}
    with TABLE.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            form = row["form"]
            settings: dict[str, str | bool] = {
                key: {"true": True, "false": False}.get(value, value)
                for key, value in row.items()
                if key not in (*OWN, *ADAPTER) and value
            }
            adapted = form.startswith("finetune_lora")
            task = "pretrain" if form.startswith("pretrain") else "lora" if adapted else "sft"
            name = f"{row['recipe']} {form}"
            recipe = LibraryRecipe(name, row["model"], task, row["precision"], settings)
            found[row["recipe"], form] = NemoRecipe(
                recipe,
                int(row["nodes"]),
                int(row["devices_per_node"]),
                _lora(row) if adapted else None,
            )
    return found


def _lora(row: dict[str, str]) -> Lora:
    """NeMo's adapters sit on every linear map of the layers unless the recipe names some."""
    names = row["lora_targets"].split()
    targets = tuple(own for name in names for own in MAPS.get(name, (name,))) or (ALL_LINEAR,)
    return Lora(rank=int(row["lora_rank"]), targets=targets)


def recipe_called(call: Call, module: Module) -> NemoRecipe | None:
    """The library's recipe that a call takes, in the form that its arguments choose; else None."""
    last = call.name.rsplit(".", 1)[-1]
    function = module.imported.get(last, last)
    if function not in CALLS:
        return None
    whose = call.name.split(".")[-2] if "." in call.name else module.origin.get(last, "")
    whose = module.imported.get(whose, whose).rsplit(".", 1)[-1]
    forms = _forms(function, {key: setting.value for key, setting in call.keywords.items()})
    library = nemo_library()
    return next((library[whose, form] for form in forms if (whose, form) in library), None)


def _forms(function: str, given: dict[str, Any]) -> list[str]:
    """The form, and the plainer ones for recipes that do not tell it apart."""
    fast = given.get("performance_mode") is True or function.endswith("_performance")
    if function != "finetune_recipe":
        return ["pretrain_performance", "pretrain"] if fast else ["pretrain"]
    scheme = given.get("peft_scheme", "lora")
    base = "finetune_full" if scheme is None or scheme == "none" else "finetune_lora"
    packed = given.get("packed_sequence", fast) is True
    return [
        *([f"{base}_performance"] if fast else []),
        *([f"{base}_packed"] if packed else []),
        base,
    ]
