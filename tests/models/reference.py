"""The reference implementation: a config built by ``transformers`` without memory, and counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Counts:
    """Parameters of a model that was really built."""

    total: int
    embedding: int
    active: int
    """All but the experts that a token is not routed to."""


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
        built = built_config(config)
        model = getattr(transformers, auto).from_config(built)
    model.tie_weights()
    return _counted(model, built)


TOP_K = ("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts", "num_experts_per_token")


def _idle(model: Any, config: Any) -> int:
    """Parameters of the experts that one token does not visit, of every list or stack of them."""
    import torch

    text = config.get_text_config()
    idle = 0
    for name, module in model.named_modules():
        if name.rsplit(".", 1)[-1] != "experts":
            continue
        each = list(module.parameters())
        listed = isinstance(module, torch.nn.ModuleList)
        experts = len(module) if listed else each[0].shape[0]
        top_k = next(getattr(text, key) for key in TOP_K if hasattr(text, key))
        held = sum(one.numel() for one in each)
        idle += held // experts * (experts - top_k)
    return idle


def _counted(model: Any, config: Any = None) -> Counts:
    import torch

    tables = [m for m in model.modules() if isinstance(m, torch.nn.Embedding)]
    total = sum(p.numel() for p in model.parameters())
    return Counts(
        total=total,
        embedding=sum({id(t.weight): t.weight.numel() for t in tables}.values()),
        active=total - (_idle(model, config) if config is not None else 0),
    )
