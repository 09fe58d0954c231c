"""A model of no known family from its numbers alone: ``--set model.hidden_size=4096 ...``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.overrides import Overrides, typed
from chipshift.models.model import Model

FURTHER = ("num_key_value_heads", "head_dim", "tie_word_embeddings")


def stated_model(overrides: Overrides, config: Mapping[str, Any]) -> Model | None:
    """A gated decoder, or a mixture of experts, of the numbers that ``--set`` gives; else None.

    Args:
        config: the keys of an unknown architecture, which supply what ``--set`` does not; empty
            where no such config is beside.

    Raises:
        InputError: some are given and others missing, or a number cannot be used.
    """
    from chipshift.models.hf import STATED, STATED_EXPERTS, read_config

    known = (*STATED, *FURTHER, *STATED_EXPERTS)
    told = {
        key: typed(overrides.given[f"model.{key}"])
        for key in known
        if f"model.{key}" in overrides.given
    }
    given: dict[str, Any] = {key: config[key] for key in known if key in config}
    given |= told
    if not told or not {"hidden_size", "num_hidden_layers"} <= set(given):
        return None
    mixture = any(key in given for key in STATED_EXPERTS)
    needed = [key for key in STATED if not (mixture and key == "intermediate_size")]
    missing = [key for key in (*needed, *(STATED_EXPERTS if mixture else ())) if key not in given]
    if missing:
        flags = " ".join(f"--set model.{key}=N" for key in missing)
        raise InputError(
            f"--set model.{next(iter(told))}: the model lacks {flags}; expected those too"
        )
    overrides.used |= {f"model.{key}" for key in told}
    if mixture:
        given["num_local_experts"] = given.pop("num_experts")
        given["intermediate_size"] = given.pop("moe_intermediate_size")
    return read_config({"model_type": "mixtral" if mixture else "llama", **given}, name="model")
