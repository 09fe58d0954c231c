"""What a started program says, in the Trainer's words: its calls over its arguments.

An argument that a call is made of says what that call is given and no more; a default that a
program declares stands under what its command gives.
"""

from __future__ import annotations

import re

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given, Ignored
from chipshift.jobs.python_values import Absent, Module, Unknown
from chipshift.jobs.readers.hf_args import LENGTHS, MICRO, MODELS
from chipshift.jobs.readers.own_loop import divided_batch, loop_settings, put_loader
from chipshift.jobs.readers.own_words import OWN, TRL_CLASSES, WHOLE, put_trl_defaults
from chipshift.jobs.readers.preference_keys import SHARED
from chipshift.jobs.readers.script_model import put_built_model, put_own_gpt, script_model
from chipshift.jobs.readers.started import Started, parsed_classes
from chipshift.jobs.settings import Setting, as_integer

DECLARED = (
    *MICRO,
    *("gradient_accumulation_steps", "gradient_checkpointing", "optim", "bf16", "fp16", "packing"),
    *("use_lora", "use_peft", "lora_r", "lora_rank", "lora_target_modules", "load_in_4bit"),
    *("torch_dtype", "deepspeed", "fsdp", "mixed_precision"),
)
"""Arguments whose defaults are taken; of the lengths only where the command gives none."""
_OWN = tuple(name for names in OWN.values() for name in names)


def lay_program(settings: dict[str, Setting], started: Started, draft: Draft) -> None:
    """What the program says, laid over and under a command's settings in the Trainer's words."""
    told = _spelt(settings)
    for key, setting in started.given.items():
        if key not in told and "." not in key:
            settings[key] = setting
    _lay_under(settings, started, draft)
    said = _said(settings, started, draft)
    length = said.pop("_length", None)
    _lay_over(settings, said)
    _drop_answered(settings, said, started, draft)
    told = _spelt(settings)
    if length is not None and not told & {*LENGTHS, *OWN["max_length"]}:
        settings["max_length"] = length
    if started.loop:
        _leave_losses(settings, started)
    _note_trl(settings, started, draft)
    why = "the program itself: its calls are read as far as its text tells, and nothing is run"
    name = started.entry.path.rsplit("/", 1)[-1]
    draft.ignored.append(Ignored(name, started.entry.path, None, True, why))


def _spelt(settings: dict[str, Setting]) -> set[str]:
    return {key.replace("-", "_") for key in settings}


def _lay_under(settings: dict[str, Setting], started: Started, draft: Draft) -> None:
    """What the program declares, and its own words for a length and a batch that are stated."""
    text = "".join(source.text for source in started.sources)
    adapts = "use_lora" in started.calls.settings or "get_peft_config(" in text
    _length_stated(settings, started, draft)
    _whole_batch(settings, text, draft)
    _under(settings, started, adapts=adapts)


def _said(settings: dict[str, Setting], started: Started, draft: Draft) -> dict[str, Setting]:
    """What its calls, its loop and its own assignments say."""
    module = started.module
    said = {**started.calls.settings}
    if started.loop:
        said = {**loop_settings(module, draft), **said}
        _by_constants(said, settings, module, draft)
    else:
        loader: dict[str, Setting] = {}
        put_loader(loader, module)
        said |= {key: one for key, one in loader.items() if key in ("_length", "_positions")}
    _assigned(said, module)
    _leave_open(said, draft)
    return said


def _lay_over(settings: dict[str, Setting], said: dict[str, Setting]) -> None:
    """Calls go before the command, but for what only a run could tell."""
    for key, setting in said.items():
        spelt = next((k for k in settings if k.replace("-", "_") == key), key)
        if not (isinstance(setting.value, Unknown) and spelt in settings):
            settings[spelt] = setting


def _leave_losses(settings: dict[str, Setting], started: Started) -> None:
    """Keys that DPO shares with others say nothing of a loop's own loss; a loss's name does."""
    for key in [key for key in settings if key.replace("-", "_") in SHARED]:
        del settings[key]
    if (named := started.given.get("loss.name")) is not None:
        settings.setdefault("stage", named)


_ALIKE = {"torch_dtype": ("dtype",), "optim": ("optimizer", "optimizer_type", "optimizer_name")}
_RANKS = (
    "lora_r",
    "lora_rank",
    "lora_alpha",
    "lora_target_modules",
    "lora_dropout",
    "lora_alpha_r",
)
_ADAPTING = re.compile(r"\b(?:LoraConfig|get_peft_model|get_peft_config)\(")


def _drop_answered(
    settings: dict[str, Setting], said: dict[str, Setting], started: Started, draft: Draft
) -> None:
    """Arguments whose part a call plays; adapters' settings where no adapters are built."""
    answered = {name for ours, names in {**OWN, **_ALIKE}.items() if ours in said for name in names}
    text = "".join(source.text for source in started.sources)
    switched = "get_peft_config(" in text or "use_lora" in said
    if not switched and (_ADAPTING.search(text) or started.loop):
        answered |= {*_RANKS, "use_lora", "use_peft"}
    ranks = [
        key for key in settings if key.replace("-", "_") in _RANKS[:2] and key in started.given
    ]
    if ranks and "use_lora" not in said and {*_RANKS} & answered:
        why = "adapters of the program's own, or none: all weights were taken as trained"
        at = settings[ranks[0]]
        draft.ignored.append(Ignored(ranks[0], at.file, at.line, True, why))
    answered |= started.calls.reads - {*KEPT}
    for key in [key for key in settings if key.replace("-", "_") in answered - said.keys()]:
        del settings[key]


def _by_constants(
    said: dict[str, Setting], settings: dict[str, Setting], module: Module, draft: Draft
) -> None:
    """A batch and a length that a loop's own constants name, where nothing else says them."""
    known = {**settings, **said}
    whole = module.constants.get("total_batch_size")
    micro, length = module.constants.get("B"), module.constants.get("T")
    if whole and micro and length and all(type(one.value) is int for one in (whole, micro, length)):
        said["per_device_train_batch_size"], said["max_length"] = micro, length
        draft.put("tokens_per_step", Given(whole.value, whole.file, whole.line))
        draft.note("batch", f"B={micro.value}", "total_batch_size in tokens, T a sequence's")
        return
    for ours in ("per_device_train_batch_size", "gradient_accumulation_steps", "max_length"):
        names = [*OWN[ours], ours, *(LENGTHS if ours == "max_length" else MICRO)]
        if ours == "gradient_accumulation_steps":
            names = [*OWN[ours], ours]
        if (ours == "max_length" and "_length" in said) or any(name in known for name in names):
            continue
        for name in names:
            one = module.constants.get(name) or module.constants.get(name.upper())
            if one is not None and type(one.value) is int and one.value > 0:
                said[ours] = one
                draft.note(ours, one.value, f"the program's own {name}")
                break


_OPEN = {
    **dict.fromkeys(("torch_dtype", "dtype"), "bfloat16"),
    **dict.fromkeys(("bf16", "fp16", "gradient_checkpointing", "packing"), "true"),
    **dict.fromkeys(("load_in_4bit", "load_in_8bit"), "true"),
}
"""Switches that are said where only a run could tell them, and a value that ``--set`` takes."""


def _leave_open(said: dict[str, Setting], draft: Draft) -> None:
    """A dtype or switch that only a run could tell is said, and not asked for."""
    for key, example in _OPEN.items():
        setting = said.get(key)
        if setting is not None and isinstance(setting.value, Unknown):
            del said[key]
            why = f"{setting.value}: only a run could tell, and its default was taken; "
            why += f"--set {key}={example} where it is so"
            draft.ignored.append(Ignored(key, setting.file, setting.line, True, why))


KEPT = (*DECLARED, *LENGTHS, *MODELS, *_OWN, *WHOLE)
"""Arguments that are read as the Trainer's though a call is made of them."""


SHORTEST = 64
"""Tokens of the shortest length that an argument's default is taken for."""
_LENGTH = re.compile(r"(?:^|_)(?:max|seq|context|ctx|block|cut|cutoff)\w*(?:len|length|size)$")
_NOT_LENGTH = re.compile(
    r"prompt|target|source|src|tgt|eval|gen|response|query|passage|completion|answer|new|batch_size|"
    r"vocab|hidden|shard|bucket|cache|buffer|file|image|max_size|doc|label|output"
)


def _whole_batch(settings: dict[str, Setting], text: str, draft: Draft) -> None:
    """A batch that the program divides over its devices is the whole step's."""
    name = divided_batch(text)
    key = next((k for k in settings if k.replace("-", "_") == name), "")
    if key and name not in (*WHOLE, *MICRO) and "_eval" not in name and "eval_" not in name:
        settings["global_batch_size"] = settings.pop(key)
        draft.note("sequences a step", name, "the program divides it over its devices")


def _length_stated(settings: dict[str, Setting], started: Started, draft: Draft) -> None:
    """A length in a word of the program's own (``data_max_length``), where no other states one."""
    spelt = {key.replace("-", "_") for key in started.given}
    if spelt & {*LENGTHS, *OWN["max_length"]}:
        return
    for key, setting in started.given.items():
        last = key.rsplit(".", 1)[-1].replace("-", "_")
        count = as_integer(setting.value)
        if _LENGTH.search(last) and not _NOT_LENGTH.search(last) and count and count >= SHORTEST:
            settings["max_length"] = setting
            draft.note("the sequence length", count, f"the program's own {key}")
            for name in [one for one in settings if one.replace("-", "_") == last]:
                if name != "max_length":
                    del settings[name]
            return


def _under(settings: dict[str, Setting], started: Started, *, adapts: bool) -> None:
    """Defaults of the program's own arguments, where the command says nothing."""
    told, module, path = _spelt(settings), started.module, started.entry.path
    long = any(key in told for key in (*LENGTHS, *OWN["max_length"]))
    keys = [*DECLARED, *MODELS[:-2], *WHOLE]
    for ours, theirs in OWN.items():
        if ours not in told and not any(name in told for name in theirs):
            keys += [] if ours == "max_length" and long else theirs
    keys += [] if long else LENGTHS
    for key in keys:
        value = module.arguments.get(key)
        if key in _RANKS and not adapts:
            continue
        if key in LENGTHS and type(value) is int and value < SHORTEST:
            continue  # of an answer that is generated
        if key in told or value is None or isinstance(value, Unknown) or _open(value):
            continue
        settings[key] = Setting(value, path)


def _open(value: object) -> bool:
    if isinstance(value, list):
        return not value or any(isinstance(part, Unknown) for part in value)
    return value == "" or isinstance(value, Absent)


def _assigned(said: dict[str, Setting], module: Module) -> None:
    """``training_args.max_seq_length = ...``: what the program sets on its own arguments."""
    for name, setting in module.attributes.items():
        base, _, key = name.rpartition(".")
        known = key in DECLARED or key in LENGTHS
        if known and base in module.parsed and not isinstance(setting.value, Unknown):
            said[key] = setting


def _note_trl(settings: dict[str, Setting], started: Started, draft: Draft) -> None:
    """TRL's defaults, where its configuration is built or parsed."""
    classes = {name.removesuffix("Config") for name in parsed_classes(started.module)}
    known = classes & {*TRL_CLASSES}
    if started.calls.own_defaults or known:
        plain = {key.replace("-", "_"): one for key, one in settings.items()}
        cuts = started.calls.cuts or bool(known & {*TRL_CLASSES[:7]})
        put_trl_defaults(plain, draft, cuts=cuts)


def put_started_model(draft: Draft, started: Started, context: Context) -> Setting | None:
    """The model that the program builds in place, or the name of the one that it loads."""
    if (
        started.loop
        and not context.model_named
        and put_own_gpt(draft, started.module, started.sources)
    ):
        return None
    named = script_model(started.module, started.entry.path)
    if named is not None and not put_built_model(draft, started.module, context):
        return named
    if named is None:
        put_built_model(draft, started.module, context)
    return None
