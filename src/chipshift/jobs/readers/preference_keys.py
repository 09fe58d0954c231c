"""Training on preferences in the words of TRL, axolotl and LLaMA-Factory.

Keys: Hugging Face, TRL, DPOConfig, KTOConfig, ORPOConfig, CPOConfig, RewardConfig and GRPOConfig
references, 2026; axolotl, "RLHF" page and config reference, 2026; LLaMA-Factory, "Arguments", 2026.
"""

from __future__ import annotations

import re

from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Assumed, Given
from chipshift.jobs.loss import ALIKE, GENERATES, LM, LOSSES, NO_REFERENCE
from chipshift.jobs.near_value import near_text
from chipshift.jobs.preference import OWN
from chipshift.jobs.settings import Sheet, as_boolean
from chipshift.jobs.shell.found import Command

TELLING = (
    ("bco", ("min_density_ratio", "max_density_ratio", "prompt_sample_size")),
    ("kto", ("desirable_weight", "undesirable_weight", "kto_chosen_weight", "kto_rejected_weight")),
    ("simpo", ("simpo_gamma", "cpo_alpha")),
    ("orpo", ("orpo_alpha",)),
    ("reward", ("reward_model", "center_rewards_coefficient")),
    ("dpo", ("precompute_ref_log_probs", "reference_free", "sync_ref_model", "rpo_alpha",
             "ref_model_name_or_path")),
)  # fmt: skip
"""Keys that are of one loss alone."""
SHARED = ("beta", "max_prompt_length")
"""Keys of DPO, KTO, ORPO and CPO alike."""
SAMPLING = ("num_generations", "num_ppo_epochs", "max_completion_length", "missing_eos_penalty")
"""Keys of GRPOConfig, RLOOConfig and PPOConfig, which sample what they train on."""
PLAIN = ("pt", "pretrain", "sft")
SAMPLED = "training on answers that the model samples"

_PROGRAM = re.compile(
    r"(?:^|[/_])(online_dpo|dpo|kto|bco|orpo|cpo|simpo|reward_modeling|grpo|ppo|rloo)\w*\.py$"
)
_MODULE = re.compile(r"\.(?:\w+_)?(dpo|kto|bco|orpo|cpo|simpo|grpo|ppo|rloo|rm|reward)$")
_CONFIG = re.compile(r"(?:^|\.)(DPO|KTO|BCO|ORPO|CPO|Reward|GRPO|PPO|RLOO|OnlineDPO)Config$")


_CLASS = re.compile(
    r"(?:^|\.)(?:\w+_)?(DPO|KTO|BCO|ORPO|CPO|SimPO|GRPO|PPO|RLOO)(?:(?:Lit|Lightning)?"
    r"(?:Module|Model|Task|Trainer))?$"
)


def known_loss(name: str) -> str:
    """Our name of a stage or a loss, or ""."""
    lowered = ALIKE.get(name.lower(), name.lower())
    return lowered if lowered in LOSSES and lowered != LM else ""


def put_program(draft: Draft, command: Command, file: str) -> None:
    """The loss that a program's name tells: ``trl/scripts/dpo.py``, ``trl dpo``."""
    words = command.words
    for at, word in enumerate(words):
        found = _PROGRAM.search(word.plain.lower())
        name = found.group(1) if found else ""
        if (
            at
            and words[at - 1].plain in ("-m", "--module")
            and (module := _MODULE.search(word.plain.lower()))
        ):
            name = module.group(1)
        if word.plain.rsplit("/", 1)[-1] == "trl" and at + 1 < len(words):
            name = words[at + 1].plain.lower()
        if name:
            _put_named(draft, name, Given(name, file, word.line))
            return


def put_configured(draft: Draft, call: str, line: int | None) -> None:
    """The loss whose configuration a script builds: ``trl.DPOConfig(...)``."""
    if found := _CONFIG.search(call):
        name = found.group(1).lower().replace("onlinedpo", "online_dpo")
        _put_named(draft, name, Given(name, draft.file, line))


def put_class(draft: Draft, path: str, line: int | None) -> None:
    """The loss that a class of a training module is named after: ``lms.DPO``, ``ORPOModule``."""
    if found := _CLASS.search(path):
        draft.counts_examples = True
        _put_named(draft, found.group(1).lower(), Given(found.group(1), draft.file, line))


def _put_named(draft: Draft, name: str, place: Given[str]) -> None:
    if known_loss(name):
        draft.put("loss", Given(known_loss(name), place.file, place.line))
    elif name in GENERATES:
        say_sampled(draft, name)


def say_sampled(draft: Draft, told: str) -> None:
    """Training that samples its own sequences is counted as a step on them, and that is said."""
    draft.note(
        "task",
        "sft",
        f"{told} is of {SAMPLED}: sampling them, scoring them and "
        "a reference are not counted, the step on them is",
    )


def put_loss(sheet: Sheet, stage: Given[str] | None) -> None:
    """The loss: by the stage's name, by its own, or by a key that it alone has."""
    draft = sheet.draft
    _put_reference(sheet)
    known = (*ALIKE, *LOSSES)
    kind = near_text(sheet, "pref_loss", into="loss", known=known)
    listed = sheet.settings.get("loss_type")
    if kind is None and listed is not None and isinstance(listed.value, str):
        kind = near_text(sheet, "loss_type", into="loss", known=known)
    for stated in (stage, kind):
        if stated is not None and stated.value.lower() in GENERATES:
            say_sampled(draft, stated.value)
            return
    if sampling := next((key for key in SAMPLING if _on(sheet, key)), ""):
        if stage is None and draft.get("loss") is None:
            say_sampled(draft, sampling)
        return
    if stage is not None and known_loss(stage.value):
        draft.put("loss", Given(known_loss(stage.value), stage.file, stage.line))
    elif stage is not None and stage.value.lower() not in PLAIN:
        draft.note("task", "sft", f"{stage.value} is not known: counted as plain fine-tuning")
    _by_keys(sheet)
    other = known_loss(kind.value) if kind is not None else ""
    shared = (None, "dpo", "kto") if other == "bco" else (None, "dpo")  # KTOConfig has both
    if kind is not None and other and draft.get("loss") in shared:
        draft.put("loss", Given(other, kind.file, kind.line))


def _by_keys(sheet: Sheet) -> None:
    """The loss by a key that it alone has; where several share it, DPO is taken, and said."""
    draft = sheet.draft
    if draft.get("loss") is not None or any(SAMPLED in why for _, _, why in draft.assumed):
        return
    for name, keys in TELLING:
        if key := next((key for key in keys if _on(sheet, key)), ""):
            setting = sheet.settings[key]
            sheet.raw(key)
            sheet.record(key, setting, "what the loss is of")
            draft.put("loss", Given(name, setting.file, setting.line))
            return
    if key := next((key for key in SHARED if _on(sheet, key)), ""):
        name, told = _by_run(sheet)
        why = f"{key} is a key of DPO, KTO and ORPO alike{told}; --set loss=NAME for another"
        draft.put("loss", Assumed(name, why))


def _by_run(sheet: Sheet) -> tuple[str, str]:
    """The loss in a run's own name, and where (``output_dir: data/zephyr-orpo``); else DPO."""
    for key in ("output_dir", "run_name", "hub_model_id"):
        setting = sheet.settings.get(key)
        words = re.split(r"[^a-z]+", str(setting.value).lower()) if setting is not None else []
        if name := next((n for n in ("kto", "bco", "orpo", "simpo", "cpo") if n in words), ""):
            return known_loss(name), f", and {key} names {name.upper()}"
    return "dpo", ""


def _on(sheet: Sheet, key: str) -> bool:
    """Whether a key is stated and not switched off."""
    return key in sheet.settings and sheet.settings[key].value not in (None, False, "", "false")


def _put_reference(sheet: Sheet) -> None:
    """A reference that is not run, or that is a model of its own beside adapters."""
    for key in ("precompute_ref_log_probs", "reference_free"):
        off = sheet.boolean(key, into="no reference in the step")
        if off is not None and off.value:
            sheet.draft.put("reference", Given(NO_REFERENCE, off.file, off.line))
            return
    bits = sheet.integer("ref_model_quantization_bit", into="bits of the reference's weights")
    if bits is not None:
        dtype = "int4" if bits.value <= 4 else "int8"
        sheet.draft.put("reference", Given(dtype, bits.file, bits.line))
        return
    forced = sheet.boolean("force_use_ref_model", into="a reference of its own")
    if forced is not None and forced.value:
        sheet.draft.put("reference", Given(OWN, forced.file, forced.line))
    own = sheet.raw("ref_model", "ref_model_name_or_path", "rl_adapter_ref_model")
    if own is not None and own[1].value is not None and as_boolean(own[1].value) is not False:
        sheet.record(*own, "reference")
        sheet.draft.put("reference", Given(OWN, own[1].file, own[1].line))
