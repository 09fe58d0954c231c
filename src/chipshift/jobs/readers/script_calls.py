"""What the calls of a training script say, in the Trainer's words.

``TrainingArguments(...)``, ``SFTConfig(...)`` and their kin, ``LoraConfig(...)``,
``from_pretrained(...)``, TRL's trainers, and what is done to the model before they run.

Sources: Hugging Face, Transformers, TRL (0.7 to 0.22) and PEFT API references, 2026: a call of
``prepare_model_for_kbit_training`` turns recomputation on unless it says otherwise.
"""

from __future__ import annotations

import re

from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Ignored
from chipshift.jobs.python_values import Absent, Call, Module, Unknown
from chipshift.jobs.readers.hf_args import LENGTHS
from chipshift.jobs.readers.own_words import TRL_CUTS
from chipshift.jobs.readers.preference_keys import put_configured
from chipshift.jobs.settings import Setting, as_boolean, unset_names

ARGUMENTS = re.compile(
    r"(?:^|\.)(?:(?:Seq2Seq|SFT|DPO|ORPO|KTO|BCO|CPO|(?:Async)?GRPO|Reward|PPO|RLOO|Online\w*|GKD)?"
    r"(?:TrainingArguments|Config))$"
)
NOT_ARGUMENTS = ("LoraConfig", "BitsAndBytesConfig", "AutoConfig", "GenerationConfig")
TRAINERS = ("SFTTrainer", "DPOTrainer", "KTOTrainer", "ORPOTrainer", "RewardTrainer")
_TRAINERS_OWN = ("max_seq_length", "max_length", "packing")
"""What TRL's trainers took themselves before their configurations did (TRL 0.7 to 0.12, 2024)."""
_LOADING = ("torch_dtype", "dtype", "attn_implementation", "load_in_4bit", "load_in_8bit")
RECOMPUTING = (
    *("gradient_checkpointing_enable", "enable_gradient_checkpointing"),
    *("apply_activation_checkpointing", "apply_fsdp_checkpointing"),
)
"""Methods and functions that turn recomputation on."""
_NO_MODEL = re.compile(r"Tokenizer|Processor|FeatureExtractor|GenerationConfig|AutoConfig|Peft")


_UNSLOTH = re.compile(r"(?:^|\.)Fast(?:Language|Vision|)?Model$")
"""Unsloth's loaders, which quantise to 4 bits unless they are told otherwise."""


class Calls:
    """What a script's calls say.

    Attributes:
        settings: in the Trainer's words.
        reads: arguments of the script's own that those are made of.
        own_defaults: a configuration of TRL's is built; ``cuts``: one that cuts samples to length.
        started: by a command, its arguments known.
        configured: training arguments of Transformers or TRL are built.
        trainer: the name of the last class of that kind (``SFTTrainer``) that is built, or "".
    """

    def __init__(self) -> None:
        self.settings: dict[str, Setting] = {}
        self.reads: set[str] = set()
        self.own_defaults = False
        self.cuts = False
        self.configured = False
        self.started = False
        self.trainer = ""

    def take(self, key: str, setting: Setting, reads: tuple[str, ...] = ()) -> None:
        self.settings[key] = setting
        self.reads.update(reads)


def take_calls(module: Module, draft: Draft) -> Calls:
    """What the calls of a script or program say."""
    found = Calls()
    found.started = module.started
    for call in module.calls:
        last = call.name.rsplit(".", 1)[-1]
        if last == "from_pretrained":
            _loaded(found, call, draft)
        elif last == "LoraConfig":
            _adapters(found, call, draft)
        elif last == "get_peft_model" and "r" in call.keywords:  # Unsloth's own
            _unsloth(found, call, draft)
        elif last == "ParallelismConfig":
            for key, setting in call.keywords.items():
                found.take(f"parallelism_config.{key}", setting)
        elif last == "BitsAndBytesConfig" or (
            last not in NOT_ARGUMENTS and ARGUMENTS.search(call.name)
        ):
            for key, setting in call.keywords.items():
                found.take(key, setting, call.reads.get(key, ()))
            _say_passed(draft, call)
            put_configured(draft, call.name, call.line)
            found.configured = found.configured or last != "BitsAndBytesConfig"
            config = last.endswith("Config") and last != "BitsAndBytesConfig"
            found.own_defaults = found.own_defaults or config
            found.cuts = found.cuts or last.removesuffix("Config") in TRL_CUTS
        elif last in TRAINERS:
            for key in _TRAINERS_OWN:
                if key in call.keywords:
                    found.take(key, call.keywords[key], call.reads.get(key, ()))
            if last == "RewardTrainer":
                put_configured(draft, "RewardConfig", call.line)
        _recomputing(found, call, last, draft)
        runs = last.endswith("Trainer") and {"args", "model", "train_dataset"} & set(call.keywords)
        found.trainer = call.name if runs else found.trainer
    _say_head(draft, module)
    for key in ("deepspeed", "fsdp"):  # an argument of the script that is None by default
        if key in found.settings and isinstance(found.settings[key].value, Absent):
            del found.settings[key]
    return found


def _loaded(found: Calls, call: Call, draft: Draft) -> None:
    if module_of(call) and _NO_MODEL.search(module_of(call)):
        return
    for key in _LOADING:
        first = key not in found.settings or not found.started  # a reference is loaded after it
        if key in call.keywords and first:
            found.take(key, call.keywords[key], call.reads.get(key, ()))
    if _UNSLOTH.search(module_of(call)):
        length = call.keywords.get("max_seq_length")
        if length is not None and not isinstance(length.value, Unknown):
            found.settings.setdefault("max_seq_length", length)
        others = [call.keywords.get(key) for key in ("load_in_8bit", "full_finetuning")]
        whole = any(one is not None and one.value is not False for one in others)
        if "load_in_4bit" not in call.keywords and not whole:
            found.take("load_in_4bit", Setting(True, _file(call, draft), call.line))


def module_of(call: Call) -> str:
    """``AutoModel`` of ``AutoModel.from_pretrained``."""
    return call.name.rpartition(".")[0]


def _adapters(found: Calls, call: Call, draft: Draft) -> None:
    """PEFT's configuration; targets that a function gathers are every linear map."""
    for key, setting in call.keywords.items():
        told = setting
        if key == "target_modules" and isinstance(setting.value, Unknown):
            every = re.search(r"linear", str(setting.value), re.I)
            why = f"{setting.value}: only a run could tell; "
            why += "every linear map was taken" if every else "the family's usual ones were taken"
            draft.note("adapters' targets", "all-linear" if every else "the usual", why)
            if not every:
                continue
            told = Setting("all-linear", setting.file, setting.line)
        found.take(f"lora_{key}", told, call.reads.get(key, ()))
    first = next(iter(call.keywords.values()), None)
    found.take("use_lora", Setting(True, first.file if first else draft.file, call.line))
    if call.splats and "r" not in call.keywords:
        found.settings["_adapters_passed"] = Setting(call.splats[0], draft.file, call.line)
    _say_passed(draft, call)


def _unsloth(found: Calls, call: Call, draft: Draft) -> None:
    """``FastLanguageModel.get_peft_model(model, r=16, ...)``: adapters and recomputation at once.

    Source: Unsloth, "FastLanguageModel.get_peft_model", 2026: every linear map, and recomputation
    with its inputs on the host, unless it says otherwise.
    """
    _adapters(found, call, draft)
    place = _file(call, draft)
    if "target_modules" not in call.keywords:
        found.take("lora_target_modules", Setting("all-linear", place, call.line))
    told = call.keywords.get("use_gradient_checkpointing")
    off = told is not None and as_boolean(told.value) is False
    if not off:
        found.settings["_recomputes"] = told or Setting("unsloth", place, call.line)
    for key in (
        "use_gradient_checkpointing",
        "random_state",
        "loftq_config",
        "use_rslora",
        "model",
    ):
        found.settings.pop(f"lora_{key}", None)


def _say_passed(draft: Draft, call: Call) -> None:
    """``TrainingArguments(**table)`` of a table that only a run could tell."""
    for text in call.splats:
        why = (
            f"{call.name}({text}): what it passes only a run could tell, and is not in the numbers"
        )
        draft.ignored.append(Ignored(text, call.file or draft.file, call.line, True, why))


def _recomputing(found: Calls, call: Call, last: str, draft: Draft) -> None:
    """``model.gradient_checkpointing_enable()``, and PEFT's preparation of quantised weights."""
    on = last in RECOMPUTING
    if last in ("prepare_model_for_kbit_training", "prepare_model_for_int8_training"):
        asked = call.keywords.get("use_gradient_checkpointing")
        on = asked is None or as_boolean(asked.value) is not False
        on = on and not (asked is not None and isinstance(asked.value, Unknown))
    if on:
        found.settings["_recomputes"] = Setting(True, _file(call, draft), call.line)


def _file(call: Call, draft: Draft) -> str:
    return next((one.file for one in call.keywords.values()), call.file or draft.file)


def recompute_as_called(settings: dict[str, Setting]) -> None:
    """The model's own switch goes before the Trainer's default, and before a false one."""
    called = settings.pop("_recomputes", None)
    if called is None:
        return
    stated = settings.get("gradient_checkpointing")
    if stated is None or not as_boolean(stated.value):
        settings["gradient_checkpointing"] = called


def _say_head(draft: Draft, module: Module) -> None:
    """A classification head, which only a reward model's is counted as."""
    if any(call.name.endswith(("RewardTrainer", "RewardConfig")) for call in module.calls):
        return
    why = "a classification head: the vocabulary's is counted in its place"
    for call in module.calls:
        if call.name.endswith("ForSequenceClassification.from_pretrained"):
            draft.ignored.append(Ignored(call.name, draft.file, call.line, True, why))


def declared_length(settings: dict[str, Setting], module: Module, path: str) -> None:
    """The length that the script's own arguments declare, where nothing it calls is given one."""
    if any(_told(settings[key]) for key in LENGTHS if key in settings):
        return
    for key in LENGTHS:
        value = module.arguments.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            settings[key] = Setting(value, path)
            return


def _told(setting: Setting) -> bool:
    return setting.value is not None and not unset_names(setting.value)
