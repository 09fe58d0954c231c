"""nanoGPT's own configurations, which commands name and seldom have beside them.

Source: Karpathy, nanoGPT, config/*.py, 2023 to 2025; what they leave out is train.py's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

CONFIGS: dict[str, dict[str, int | str]] = {
    "train_gpt2.py": {"batch_size": 12, "block_size": 1024, "gradient_accumulation_steps": 40},
    "train_shakespeare_char.py": {
        "batch_size": 64,
        "block_size": 256,
        "gradient_accumulation_steps": 1,
        "n_layer": 6,
        "n_head": 6,
        "n_embd": 384,
        "dataset": "shakespeare_char",
    },
    "finetune_shakespeare.py": {
        "batch_size": 1,
        "gradient_accumulation_steps": 32,
        "init_from": "gpt2-xl",
    },
}


def nanogpt_config(names: Iterable[str], pairs: Mapping[str, object]) -> str | None:
    """The own configuration that a command of train.py names, "" for words enough without one.

    None where the words are not known to be nanoGPT's.
    """
    bases = [name.rsplit("/", 1)[-1] for name in names]
    named = next((base for base in bases if base in CONFIGS), None)
    if named is not None and "train.py" in bases:
        return named
    told = {"block_size", "gradient_accumulation_steps"} <= pairs.keys()
    return "" if told or {"block_size", "n_layer", "n_embd"} <= pairs.keys() else None
