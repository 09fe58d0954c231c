"""Training on preferences: what a loss makes of a batch, of the head and of a reference.

Where the reference's weights lie and in which dtype: Hugging Face, TRL, dpo_trainer.py and
kto_trainer.py (with adapters the reference is the policy with them off; DeepSpeed and FSDP cut it
as they cut the policy), 2026; LLaMA-Factory, train/trainer_utils.py, 2026.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.errors import InputError, nearest
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Assumed, Given
from chipshift.jobs.loss import (
    ALIKE,
    BASE,
    HOST,
    LM,
    LOSSES,
    NO_REFERENCE,
    with_scalar_head,
)
from chipshift.units import DTYPE_BYTES

OWN = "own"
"""A reference that a file says to be a model of its own, its dtype being the policy's."""

WITHOUT_WEIGHTS = (BASE, HOST, NO_REFERENCE)
"""References that hold nothing more on a device."""


def settle_loss(draft: Draft) -> None:
    """Fill in what the loss implies: sequences of a batch, a scalar head, the reference.

    Raises:
        InputError: no such loss or reference, or adapters to turn off where there are none.
    """
    stated = draft.values.get("loss")
    name = str(stated.value) if stated is not None else LM
    name = ALIKE.get(name, name)
    if name not in LOSSES:
        raise InputError(
            f"{_where(draft, 'loss')}: loss is '{name}'{nearest(name, [*LOSSES])}; "
            f"expected one of {', '.join(LOSSES)}"
        )
    if stated is not None:
        draft.put("loss", replace(stated, value=name))
    asked = LOSSES[name]
    if asked.answers > 1 and draft.counts_examples:
        _whole_examples(draft, asked.answers)
    model = draft.values.get("model")
    if asked.scalar and model is not None:
        draft.put("model", replace(model, value=with_scalar_head(model.value)))
        why = "a reward model has one output a token in place of the vocabulary's, untied"
        draft.note("head", "1 output", why)
    if not asked.referred:
        draft.values.pop("reference", None)
        return
    _reference(draft)


def _whole_examples(draft: Draft, answers: int) -> None:
    """Examples to sequences: a framework's batch counts pairs, ours what goes through the model."""
    for field in ("microbatch", "global_batch"):
        stated = draft.values.get(field)
        if stated is not None and getattr(stated, "file", "") != "--set":
            draft.values[field] = replace(stated, value=stated.value * answers)
    why = "a pair's two answers go through the model side by side: the batch counts pairs"
    draft.note("sequences of an example", answers, why)


def _reference(draft: Draft) -> None:
    """Which weights the reference has; ``OWN`` becomes the dtype that the policy is loaded in."""
    stated = draft.values.get("reference")
    value = None if stated is None else str(stated.value)
    adapters = "lora" in draft.values or draft.get("adapters") is not None
    if value is None and adapters:
        why = "the reference is the policy with its adapters off: no weights of its own"
        draft.assume("reference", BASE, why)
    elif value in (None, OWN):
        why = "a reference of its own, held in the dtype that the model is loaded in"
        draft.values["reference"] = Assumed(_loaded(draft), why)
    elif value == BASE and not adapters:
        raise InputError(
            f"{_where(draft, 'reference')}: reference is 'base', the policy with its adapters "
            "off, but the job has no adapters; expected a dtype such as bf16, or none"
        )
    elif value not in WITHOUT_WEIGHTS and value not in DTYPE_BYTES:
        known = [*WITHOUT_WEIGHTS, *DTYPE_BYTES]
        raise InputError(
            f"{_where(draft, 'reference')}: reference is '{value}'{nearest(str(value), known)}; "
            "expected a dtype such as bf16, base, host or none"
        )


def _loaded(draft: Draft) -> str:
    """The dtype of a frozen copy of the model: what it is loaded in, or computes in."""
    mixed = draft.get("mixed")
    half = mixed if mixed in ("bf16", "fp16") else None
    if draft.get("engine") == "deepspeed" and half:
        return str(half)
    return str(draft.get("loaded") or draft.get("gather") or draft.get("weights") or "bf16")


def _where(draft: Draft, field: str) -> str:
    stated = draft.values.get(field)
    if not isinstance(stated, Given):
        return draft.file
    return stated.file if stated.line is None else f"{stated.file}:{stated.line}"
