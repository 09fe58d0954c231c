"""The reference implementation: a config built by ``transformers`` without memory, and counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Counts:
    """Parameters of a model that was really built."""

    total: int
    embedding: int


def built_config(config: dict[str, Any]) -> Any:
    """The config as the reference completes it."""
    import transformers

    values = {key: value for key, value in config.items() if key != "model_type"}
    return transformers.AutoConfig.for_model(config["model_type"], **values)


def count_diffusers(config: dict[str, Any]) -> Counts:
    """The same for a diffusers config, by the class that it names."""
    import diffusers
    import torch

    with torch.device("meta"):
        return _counted(getattr(diffusers, config["_class_name"]).from_config(config))


def count(config: dict[str, Any], auto: str = "AutoModelForCausalLM") -> Counts:
    """Build the config on the meta device and count its parameters, tied ones once.

    Embedding counts every ``nn.Embedding``: token tables, learned positions, token types.
    """
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    with torch.device("meta"):
        model = getattr(transformers, auto).from_config(built_config(config))
    model.tie_weights()
    return _counted(model)


def _counted(model: Any) -> Counts:
    import torch

    tables = [m for m in model.modules() if isinstance(m, torch.nn.Embedding)]
    return Counts(
        total=sum(p.numel() for p in model.parameters()),
        embedding=sum({id(t.weight): t.weight.numel() for t in tables}.values()),
    )
