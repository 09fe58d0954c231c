"""What the Trainer shards: ``fsdp``, ``fsdp_config``, ``deepspeed`` and ``zero_stage``.

Keys and defaults: as in hf_args.py.
"""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft, join
from chipshift.jobs.job import Given, Ignored
from chipshift.jobs.near_value import FSDP_WORDS, refuse_near
from chipshift.jobs.readers import deepspeed
from chipshift.jobs.recognise import recognise
from chipshift.jobs.settings import Setting, Sheet, as_boolean, flatten
from chipshift.jobs.source import Source


def put_sharding(sheet: Sheet, context: Context) -> None:
    """``fsdp``, ``deepspeed`` or neither (DDP)."""
    draft = sheet.draft
    found = sheet.raw("fsdp")
    if found is not None and found[1].value not in (None, "", [], False):
        key, setting = found
        sheet.record(key, setting, "FSDP")
        words = (
            " ".join(map(str, setting.value))
            if isinstance(setting.value, list)
            else str(setting.value)
        )
        put_fsdp(draft, words, setting)
        _say_unwrapped(sheet, words, setting)
    _fsdp_config(sheet)
    named = _engine_file(sheet)
    if named is not None and named[1].value not in (None, "", False):
        deepspeed_file(sheet, context, *named)
    table = deepspeed.read_table(sheet, "deepspeed.")
    if table is not None:
        _take_engine(draft, table)
    stage = sheet.integer("zero_stage", into="ZeRO stage", low=0, high=3)
    if stage is not None:
        kind = ("ddp", "zero1", "zero2", "fsdp")[stage.value]
        draft.put("sharding", Given(kind, stage.file, stage.line))
        draft.put("engine", Given("deepspeed", stage.file, stage.line))
    draft.assume("sharding", "ddp", "neither FSDP nor DeepSpeed is named: replicas hold it all")


_WRAPS = re.compile(
    r"fsdp_?(?:config\.)?(?:.*_)?(?:transformer_layer_cls|min_num_params|auto_wrap)"
)


def _say_unwrapped(sheet: Sheet, words: str, setting: Setting) -> None:
    """``--fsdp full_shard`` without ``auto_wrap``: the model is one unit.

    Source: Hugging Face, Transformers, TrainingArguments.fsdp, 2026.
    """
    wraps = (
        "auto_wrap" in words or words.lower() in ("true", "1") or "fsdp_config" in sheet.settings
    )
    if wraps or any(_WRAPS.search(key.replace("-", "_")) for key in sheet.settings):
        return
    sheet.draft.ignored.append(Ignored("fsdp", setting.file, setting.line, True, NO_WRAP))


ENGINE_FILES = (
    "deepspeed_config",
    "ds_config",
    "deepspeed_config_file",
    "ds_config_path",
    "ds_file",
)
"""What programs call their DeepSpeed file; the first is DeepSpeed's own argument.

Source: DeepSpeed, deepspeed/__init__.py (add_config_arguments: a switch ``--deepspeed`` and
``--deepspeed_config``), 2026.
"""


def _engine_file(sheet: Sheet) -> tuple[str, Setting] | None:
    """``--deepspeed ds.json``, or ``--deepspeed --deepspeed_config ds.json``."""
    named = sheet.raw("deepspeed")
    if named is not None and as_boolean(named[1].value) is None:
        return named
    for key in ENGINE_FILES:
        setting = sheet.settings.get(key)
        if setting is not None and str(setting.value).endswith((".json", ".yaml", ".yml")):
            return sheet.raw(key)
    return named


NO_WRAP = "nothing is wrapped by layer: FSDP gathers the whole model at once, counted by layer here"


def put_fsdp(draft: Draft, words: str, setting: Setting) -> None:
    """``full_shard auto_wrap``, ``HYBRID_SHARD``, ``1`` ... as a kind of sharding."""
    lowered = words.lower()
    for word in words.split():
        refuse_near("FSDP's sharding", Setting(word, setting.file, setting.line), FSDP_WORDS)
    kind = "fsdp"
    if "hybrid" in lowered:
        kind = "hybrid"
    elif "shard_grad_op" in lowered or re.fullmatch(r"\s*2\s*", lowered):
        kind = "zero2"
    elif "no_shard" in lowered or re.fullmatch(r"\s*3\s*", lowered):
        kind = "ddp"
    draft.put("sharding", Given(kind, setting.file, setting.line))
    draft.put("engine", Given("fsdp", setting.file, setting.line))
    if "offload" in lowered:
        draft.flag("cpu_offload", "fsdp", words, setting.line)


def _fsdp_config(sheet: Sheet) -> None:
    draft = sheet.draft
    for key in list(sheet.settings):
        if not key.startswith("fsdp_config."):
            continue
        short = key.split(".", 1)[1].removeprefix("fsdp_")
        setting = sheet.settings[key]
        if short in ("activation_checkpointing",) and as_boolean(setting.value):
            sheet.raw(key)
            sheet.record(key, setting, "rematerialisation")
            draft.put("remat", Given("full", setting.file, setting.line))
        elif short in ("sharding_strategy", "reshard_after_forward"):
            sheet.raw(key)
            sheet.record(key, setting, "what is sharded")
            if short == "sharding_strategy":
                put_fsdp(draft, str(setting.value), setting)
            elif as_boolean(setting.value) is False:
                draft.put("sharding", Given("zero2", setting.file, setting.line))
        elif short in ("offload_params",) and as_boolean(setting.value):
            sheet.raw(key)
            sheet.record(key, setting, "flag: cpu_offload")
            draft.flag("cpu_offload", key, "true", setting.line)


def deepspeed_file(sheet: Sheet, context: Context, key: str, setting: Setting) -> None:
    """A DeepSpeed file is read where it was given beside; else its name must do."""
    draft = sheet.draft
    if isinstance(setting.value, dict):  # a script's own table
        lines = {f"{key}.{inner}": setting.line or 0 for inner in setting.value}
        sheet.settings.update(flatten(setting.value, setting.file, lines, key))
        table = deepspeed.read_table(sheet, f"{key}.")
        if table is not None:
            sheet.record(key, Setting("a table", setting.file, setting.line), "DeepSpeed")
            _take_engine(draft, table)
            return
    sheet.record(key, setting, "flag: deepspeed")
    draft.flag("deepspeed", key, setting.value, setting.line)
    draft.put("engine", Given("deepspeed", setting.file, setting.line))
    path = str(setting.value)
    beside = context.neighbour(path)
    if beside is not None:
        _take_engine(draft, deepspeed.read(beside, context))
        return
    others = [name for name, one in context.beside.items() if _is_deepspeed(one)]
    if others:
        why = f"{others[0]}, which was given, is read in its place"
        draft.miss(path.rsplit("/", 1)[-1], setting.file, setting.line, why)
    kind, why = stage_named(path)
    draft.assume("sharding", kind, why)
    if "offload" in path.rsplit("/", 1)[-1].lower():
        draft.flag("cpu_offload", key, setting.value, setting.line)
        draft.note("offload", "on the device", f"{why}; the host's part is not modelled")


def _take_engine(draft: Draft, engine: Draft) -> None:
    """A DeepSpeed file: an optimizer that it names is built in place of the Trainer's ``optim``.

    Source: Hugging Face, Transformers, integrations/deepspeed.py (deepspeed_optim_sched), 2026.
    """
    ours, theirs = draft.values.get("optimizer"), engine.values.get("optimizer")
    moments = draft.values.get("moments")
    if isinstance(theirs, Given) and isinstance(ours, Given):
        del draft.values["optimizer"]
        draft.values.pop("moments", None)
        if ours.value != theirs.value or (moments and moments != engine.values.get("moments")):
            why = "the optimizer that the DeepSpeed file names is built in its place"
            draft.ignored.append(Ignored("optim", ours.file, ours.line, True, why))
            draft.flags = [one for one in draft.flags if one.kind != "quantised_optimizer"]
    take(draft, engine)


def stage_named(path: str) -> tuple[str, str]:
    """What a DeepSpeed file that was not given shards, by the stage in its name, and why."""
    match = re.search(r"(?:zero|stage|z)[-_]?(?:stage)?[-_]?([0-3])", path.lower())
    stage = int(match.group(1)) if match else 2
    why = f"told from the name {path}" if match else f"give {path} too for its stage"
    return ("ddp", "zero1", "zero2", "fsdp")[stage], why


def _is_deepspeed(source: Source) -> bool:
    try:
        return recognise(source) == "deepspeed"
    except InputError:
        return False


def take(draft: Draft, other: Draft) -> None:
    """Another file's statements into this draft; what the file itself states wins."""
    join([draft, other])
