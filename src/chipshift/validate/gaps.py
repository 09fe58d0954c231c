"""What a record leaves out or spells its own way, from what it says elsewhere; all of it marked.

A record is scored wherever the model's sizes and a time are known: figures that follow from others
(tokens a step from a rate and a time) are worked out, words are matched, the rest is assumed.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.stacks import STACKS
from chipshift.machines.load import KEYS
from chipshift.machines.names import ALIASES
from chipshift.models.preset import preset
from chipshift.validate.typed import typed

Row = dict[str, Any]
Inferred = list[tuple[str, str, str]]

FRAMEWORKS = {
    "nemo": "megatron", "megatron": "megatron", "automodel": "automodel", "titan": "torchtitan",
    "maxtext": "maxtext", "foundry": "llm-foundry", "composer": "llm-foundry", "pax": "paxml",
    "levanter": "levanter", "torchprime": "torch_xla", "torch xla": "torch_xla",
    "pytorch/xla": "torch_xla", "torchax": "torchax", "fms": "fms-fsdp", "nanotron": "nanotron",
    "deepspeed": "deepspeed",
}  # fmt: skip
"""A word of a framework's name, and the stack that it means; the later in the text, the likelier
the more special (NeMo AutoModel is AutoModel)."""
DTYPES = (
    (r"mxfp8|mxfloat8", "fp8"), (r"nvfp4|mxfp4|fp4", "nvfp4"), (r"fp8|float8|e4m3|e5m2", "fp8"),
    (r"int8|aqt|w8a8", "int8"), (r"bf16|bfloat16|fp16|float16|half", "bf16"),
    (r"tf32|fp32|float32", "bf16"),
)  # fmt: skip
"""Words for a precision, the narrowest first, and the class that a record calls it by."""
CLASSES = frozenset(name for _, name in DTYPES)


def completed(row: Mapping[str, Any], number: int | None = None) -> tuple[Row, Inferred]:
    """A record with its gaps filled where that can be done, and what was filled."""
    out, wrong = typed(row)
    inferred: Inferred = [("unreadable", "", clause) for clause in wrong]
    out["id"] = out["id"] or f"line {number}"
    out["source"] = out["source"] or "not stated"
    out["chip_key"] = _chip(out)
    _words(out, inferred)
    _sizes(out, inferred)
    _amounts(out, inferred)
    return out, inferred


def _chip(row: Mapping[str, Any]) -> str | None:
    """The machine file's name: as keyed, or the first words of the chip's name that are one."""
    said = f"{row.get('chip_key') or ''} {row.get('chip') or ''}".lower()
    words = re.findall(r"[a-z0-9]+", said)
    for at in range(len(words)):
        for end in range(len(words), at, -1):
            for joint in ("-", ""):
                name = joint.join(words[at:end])
                if name in KEYS or name in ALIASES:
                    return ALIASES.get(name, name)
    return None


def _words(out: Row, inferred: Inferred) -> None:
    """Stack, task, grade and precision, in the words that the rest of the reader knows."""
    if str(out["chip_key"]).startswith("trn"):
        if out.get("stack") != "neuron":
            inferred.append(("stack", "neuron", "what runs on Trainium is built by its compiler"))
        out["stack"] = "neuron"
    elif out.get("stack") not in STACKS:
        said = f"{out.get('stack') or ''} {out.get('framework') or ''}".lower().replace("_", " ")
        found = [stack for word, stack in FRAMEWORKS.items() if word in said]
        out["stack"] = found[-1] if found else "other"
        inferred.append(("stack", out["stack"], "not among the stacks by name"))
    task = str(out.get("task") or "").lower()
    named = [kind for kind in ("lora", "sft", "pretrain") if kind in task]
    out["task"] = named[0] if named else "pretrain"
    if not named:
        inferred.append(("task", "pretrain", "not stated"))
    out["quality"] = str(out.get("quality") or "C")
    if out.get("dtype_class") not in CLASSES:
        kind, why = _told_precision(out)
        inferred.append(("precision of the matmuls", kind, why))
        out["dtype_class"] = kind


def _told_precision(out: Row) -> tuple[str, str]:
    """The precision that a record tells in words, and which words; bf16 where in none.

    Of several alternatives ("fp8/nvfp4") the name of the configuration decides, else the first.
    """
    for key in ("dtype_class", "dtype"):
        said = str(out.get(key) or "")
        configured = _precision(out.get("notes"), r"config\S*[_.-]({})\b") if "/" in said else ""
        if configured:
            return configured, "the name of the configuration"
        found = _precision(said.partition("/")[0])
        if found:
            return found, f"'{said}'"
    return "bf16", "not stated: the usual mixed precision"


def _precision(said: object, pattern: str = "({})") -> str:
    """The class of precision that a text names, or ''."""
    text = str(said or "").lower()
    return next((name for words, name in DTYPES if re.search(pattern.format(words), text)), "")


def _sizes(out: Row, inferred: Inferred) -> None:
    """Sizes of the model that follow from others, or from its public name (``model_of``)."""
    m = out["model"]
    m["name"] = str(m.get("name") or out["id"])
    if not m.get("heads") and m.get("d_model") and m.get("head_dim"):
        m["heads"] = int(m["d_model"]) // int(m["head_dim"])
    if not m.get("d_ff") and m.get("moe_d_ff"):
        m["d_ff"] = m["moe_d_ff"]  # every layer routes
    if not m.get("seq_len") and out.get("tokens_per_step") and out.get("global_batch"):
        m["seq_len"] = round(out["tokens_per_step"] / out["global_batch"])
        inferred.append(("seq_len", str(m["seq_len"]), "tokens a step over sequences a step"))
    if any(not m.get(key) for key in ("layers", "d_model", "heads", "d_ff", "vocab")):
        sizes = _known().get(m["name"].lower().replace("_", "-"))
        if sizes:
            m.update({key: value for key, value in sizes.items() if not m.get(key)})
            inferred.append(("model", m["name"], f"its sizes are not stated: {m.pop('source')}"))
            return
        try:
            known = preset(m["name"])
        except InputError:
            return
        m["preset"] = known.name
        inferred.append(("model", known.name, "its sizes are not stated, its public name is"))


@functools.cache
def _known() -> dict[str, Row]:
    """Sizes of models by name (data/known_models.toml)."""
    file = resources.files("chipshift.validate") / "data" / "known_models.toml"
    return tomllib.loads(file.read_text("utf8"))


def _amounts(out: Row, inferred: Inferred) -> None:
    """Chips, tokens a step and the step's time: any one of them from the others and the rate."""
    measured = out["measured"]
    chips, tokens = _or_zero(out.get("n_chips")), _or_zero(out.get("tokens_per_step"))
    time = _or_zero(out.get("scored_step_time_s")) or _or_zero(measured.get("step_time_s"))
    rate = _or_zero(measured.get("tokens_per_s_per_chip"))
    batch, seq = _or_zero(out.get("global_batch")), _or_zero(out["model"].get("seq_len"))
    if not tokens and not batch and chips and time and rate:
        tokens = rate * chips * time
        batch = _whole_batch(tokens / seq, chips) if seq else 0.0
        tokens = batch * seq
        why = "tokens a second a chip × chips × step time"
        inferred.append(("sequences a step", f"{batch:g}", why))
    tokens = tokens or batch * seq
    if not time and tokens and chips and rate:
        time = tokens / chips / rate
        inferred.append(("step time", f"{time:g}", "tokens a step / chips / tokens a second"))
    if not chips and tokens and time and rate:
        chips = round(tokens / time / rate)
        inferred.append(("chips", f"{chips:g}", "tokens a step / time / tokens a second a chip"))
    out["scored_step_time_s"] = time or None
    out["n_chips"] = int(chips) or None
    out["tokens_per_step"] = tokens or None
    out["global_batch"] = int(batch) or None


def _or_zero(value: float | None) -> float:
    return float(value or 0)


def _whole_batch(found: float, chips: float) -> float:
    """Sequences a step from rounded figures: as many for each chip where that is within 2 %."""
    each = round(found / chips)
    return each * chips if abs(each * chips - found) <= 0.02 * found else max(1.0, round(found))
