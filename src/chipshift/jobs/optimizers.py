"""Optimizers: the moments that each keeps, and the names that frameworks give them."""

from __future__ import annotations

import re

OPTIMIZERS = {
    "adamw": 2.0, "adam": 2.0, "adamax": 2.0, "nadam": 2.0, "radam": 2.0, "adadelta": 2.0,
    "lamb": 2.0, "adopt": 2.0, "sophia": 2.0,
    "lion": 1.0, "muon": 1.0, "sgdm": 1.0, "adagrad": 1.0, "rmsprop": 1.0, "novograd": 1.0,
    "lars": 1.0, "came": 1.0, "adam_mini": 1.0,
    "ademamix": 3.0, "grokadamw": 3.0, "distributed_shampoo": 3.0, "adan": 4.0,
    "sgd": 0.0, "adafactor": 0.0, "lomo": 0.0, "adalomo": 0.0,
}  # fmt: skip
"""Tensors of the parameters' size that each keeps (factored second moments are
small, as are Adam-mini's, one a block): PyTorch's
``torch.optim``, bitsandbytes' and Transformers' documentation, and each optimizer's paper."""

_SPELT = {name.replace("_", ""): name for name in OPTIMIZERS} | {
    "adam": "adamw",
    "lionw": "lion",
    "sgdw": "sgd",
    "nadamw": "nadam",
    "sophiag": "sophia",
    "sophiah": "sophia",
    "shampoo": "distributed_shampoo",
    "moonlight": "muon",
    "momentum": "sgdm",
    "schedulefreeadamw": "adamw",
    "adamwschedulefree": "adamw",
    "schedulefreeradam": "radam",
    "schedulefreesgd": "sgdm",
    "sgdschedulefree": "sgdm",
}
"""Names without separators; AdamW stands for Adam, whose state is the same."""

_AFFIX = (
    r"fused|foreach|paged|pytorch|torchao|torch|bnb|apex|npu|xla|anyprecision|lowbit|layerwise|"
    r"8bit|4bit|16bit|32bit|fp8|int8|ao|optimi|decoupled|distributed|dist|megatron|mcore|deepspeed|"
    r"cpu|hf|onebit|zeroone|clip|adalr|stable|hybrid|pax|optimizer|optim|grouped|adaptive"
)
_LONGEST_FIRST = "|".join(sorted(_SPELT, key=len, reverse=True))
_NAMED = re.compile(rf"(?:{_AFFIX})*({_LONGEST_FIRST})(?:{_AFFIX})*")
_NARROW = (("8bit", "int8"), ("int8", "int8"), ("4bit", "int4"), ("fp8", "fp8"))
_LOW_RANK = re.compile(r"^(?:q_?)?(?:galore|apollo|golore|fira|flora)_?")


def optimizer_named(name: str) -> str | None:
    """``adamw_torch_fused``, ``torch.optim.AdamW``, ``PagedAdamW8bit``: all ``adamw``.

    None where the name is of no optimizer that is known, ``sgdd`` as well.
    """
    plain = name.strip().lower()
    if plain in OPTIMIZERS:
        return plain
    last = re.sub(r"[^a-z0-9]", "", plain.rsplit(".", 1)[-1])
    found = _NAMED.fullmatch(last)
    return _SPELT[found.group(1)] if found else None


def low_rank(name: str) -> str | None:
    """The optimizer whose moments a method of low rank keeps smaller: of ``galore_adamw`` adamw."""
    last = name.strip().lower().rsplit(".", 1)[-1]
    rest = _LOW_RANK.sub("", last)
    return optimizer_named(rest) if rest != last else None


def moments_named(name: str) -> str | None:
    """The dtype of the moments that an optimizer's name tells: of ``adamw_bnb_8bit`` int8."""
    lowered = name.lower()
    return next((dtype for part, dtype in _NARROW if part in lowered), None)
