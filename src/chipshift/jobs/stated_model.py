"""A model of no known family from its numbers alone: ``--set model.hidden_size=4096 ...``."""

from __future__ import annotations

from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.overrides import Overrides, typed
from chipshift.models.model import Model

TELLING = ("hidden_size", "num_hidden_layers")
NEEDED = (*TELLING, "num_attention_heads", "intermediate_size", "vocab_size")
FURTHER = ("num_key_value_heads", "head_dim", "tie_word_embeddings")
OF_EXPERTS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")


def stated_model(overrides: Overrides) -> Model | None:
    """A gated decoder, or a mixture of experts, of the numbers that ``--set`` gives; else None.

    Raises:
        InputError: some are given and others missing, or a number cannot be used.
    """
    from chipshift.models.hf import read_config

    known = (*NEEDED, *FURTHER, *OF_EXPERTS)
    given: dict[str, Any] = {
        key: typed(overrides.given[f"model.{key}"])
        for key in known
        if f"model.{key}" in overrides.given
    }
    if not all(key in given for key in TELLING):
        return None
    mixture = any(key in given for key in OF_EXPERTS)
    needed = [key for key in NEEDED if not (mixture and key == "intermediate_size")]
    missing = [key for key in (*needed, *(OF_EXPERTS if mixture else ())) if key not in given]
    if missing:
        flags = " ".join(f"--set model.{key}=N" for key in missing)
        raise InputError(f"--set model.hidden_size: the model lacks {flags}; expected those too")
    overrides.used |= {f"model.{key}" for key in given}
    if mixture:
        given["num_local_experts"] = given.pop("num_experts")
        given["intermediate_size"] = given.pop("moe_intermediate_size")
    return read_config({"model_type": "mixtral" if mixture else "llama", **given}, name="model")
