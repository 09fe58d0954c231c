"""Megatron-DeepSpeed's own arguments, as the Megatron-LM ones they equal.

Arguments and defaults: DeepSpeed, Megatron-DeepSpeed, megatron/arguments.py and
megatron/model/transformer.py, 2025; BigScience, Megatron-DeepSpeed, megatron/arguments.py, 2022.
Experts sit in every ``--expert-interval``-th layer, two being the default, and one expert is none.
"""

from __future__ import annotations

import re

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Ignored
from chipshift.jobs.settings import Setting, as_integer
from chipshift.jobs.source import Source

TOLD = ("deepspeed", "deepspeed_config", "deepspeed-config", "zero-stage")
RENAMED = {
    "moe-expert-parallel-size": "expert-model-parallel-size",
    "topk": "moe-router-topk",
    "checkpoint-num-layers": "recompute-num-layers",
    "moe-train-capacity-factor": "moe-expert-capacity-factor",
}


def translate(
    settings: dict[str, Setting], draft: Draft, context: Context, files: dict[str, str]
) -> None:
    """Rewrite the fork's arguments in place; those of Megatron-LM itself stay.

    Args:
        files: what the script writes with here-documents, by base name.
    """
    if not any(key in settings for key in TOLD):
        return
    named = settings.get("deepspeed_config") or settings.get("deepspeed-config")
    if "deepspeed" not in settings and named is None:
        settings.pop("zero-stage", None)
        return
    line = settings["deepspeed"].line if "deepspeed" in settings else None
    draft.flag("deepspeed", "deepspeed", "true", line)
    stage = _stage_in(str(named.value), context, files) if named is not None else None
    if stage is not None and named is not None:
        settings["zero-stage"] = Setting(stage, named.file, named.line)
    if named is not None and _file_of(str(named.value), context, files) is None:
        base = str(named.value).rsplit("/", 1)[-1]
        draft.miss(base, named.file, named.line, "its settings are not in the numbers")
    for old, new in RENAMED.items():
        if old in settings:
            settings.setdefault(new, settings.pop(old))
    _experts(settings, draft)
    groups, heads = settings.get("num-key-value-heads"), settings.get("num-attention-heads")
    if groups is not None:
        settings.setdefault("num-query-groups", settings.pop("num-key-value-heads"))
        if heads is None or heads.value != groups.value:
            grouped = Setting(True, groups.file, groups.line)
            settings.setdefault("group-query-attention", grouped)
    settings.setdefault("transformer-impl", Setting("local", draft.file))
    _sequence(settings, draft)


def _sequence(settings: dict[str, Setting], draft: Draft) -> None:
    """``--ds-sequence-parallel-size`` is DeepSpeed-Ulysses: all-to-alls of heads."""
    size = settings.pop("ds-sequence-parallel-size", None)
    if size is None or str(size.value) == "1":
        return
    settings.setdefault("context-parallel-size", size)
    settings["cp-comm-type"] = Setting("a2a", size.file, size.line)
    if "num-query-groups" in settings:
        why = "Megatron-DeepSpeed repeats them to as many as the queries' before it deals them out"
        draft.note("key/value heads dealt out", "as many as the queries'", why)


def _experts(settings: dict[str, Setting], draft: Draft) -> None:
    found = settings.get("num-experts")
    if found is None:
        return
    counts = found.value if isinstance(found.value, list) else [found.value]
    if len(set(map(str, counts))) > 1:
        why = f"layers have {', '.join(map(str, dict.fromkeys(counts)))} experts; the first taken"
        draft.ignored.append(Ignored("num-experts", found.file, found.line, True, why))
    if as_integer(counts[0]) == 1:
        for key in [key for key in settings if re.match(r"num-experts$|moe-|expert-", key)]:
            del settings[key]
        return
    settings["num-experts"] = Setting(counts[0], found.file, found.line)
    settings.setdefault("moe-router-topk", Setting(1, found.file, found.line))
    interval = settings.pop("expert-interval", Setting(2, found.file, found.line))
    settings.setdefault("moe-layer-freq", interval)
    kind = settings.pop("mlp-type", None)
    if kind is not None and kind.value == "residual":
        why = "the dense block beside each layer's experts is not counted"
        draft.ignored.append(Ignored("mlp-type", kind.file, kind.line, True, why))


def _stage_in(path: str, context: Context, files: dict[str, str]) -> int | None:
    """The stage that a DeepSpeed file states, given beside the script or written by it."""
    from chipshift.errors import InputError
    from chipshift.jobs import json_lines

    source = _file_of(path, context, files)
    if source is None:
        return None
    try:
        tree, _ = json_lines.parse(source)
    except InputError:
        return None  # what only a run could tell stands in it
    zero = tree.get("zero_optimization") if isinstance(tree, dict) else None
    found = as_integer(zero.get("stage")) if isinstance(zero, dict) else None
    return found if found in (0, 1, 2, 3) else None


def _file_of(path: str, context: Context, files: dict[str, str]) -> Source | None:
    """A DeepSpeed file, given beside the script or written by it."""
    base = path.rsplit("/", 1)[-1]
    source = context.neighbour(path)
    return Source(base, files[base]) if base in files else source
