"""What a Megatron-Bridge or NeMo 2 script leaves open, said: values that only a run could tell,
branches that it takes or not, and functions of files that were not given.
"""

from __future__ import annotations

import re
from typing import Any

from chipshift.jobs import python_tree
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Ignored
from chipshift.jobs.overrides import COUNTS, WORDS, typed
from chipshift.jobs.readers.bridge_library import library
from chipshift.jobs.readers.bridge_shape import SHAPE, is_shape
from chipshift.jobs.readers.bridge_walk import Assigned, Called, Choice, Event, Walk
from chipshift.jobs.readers.megatron_core import argument_of
from chipshift.jobs.settings import Setting

CONFIG = re.compile(
    r"(?:\w+_)?(?:cfg|config|conf|recipe|container|provider|model_cfg|model_config)(?:\.\w+)*"
)
"""What scripts call a job's configuration, or a part of it."""

LIBRARIES = re.compile(
    r"(?:megatron|nemo|nemo_run|torch|omegaconf|hydra|transformers|logging|os|sys|json|yaml|typing|"
    r"dataclasses|functools|copy|argparse|pathlib|math|lightning|modelopt|datasets|numpy|wandb|"
    r"rich|pprint|signal|socket|subprocess|tempfile|time|inspect|pytest)(?:\.|$)"
)
"""Modules whose functions set no field of a job unseen."""

SETTERS = re.compile(
    r"(?:^|_)(?:set|apply|overrides?|updated?|configure|with|adjust|patch|customi[sz]e)(?:_|$)"
)
"""Names of the library's own functions that alter a configuration."""

KNOWN = re.compile(
    r"set_primary_perf_configs|set_random|set_seed|set_start|set_level|set_device|"
    r"pipeline_model_parallel_layout|_with_global_batch_size|process_config_with_overrides|"
    r"apply_overrides|parse_hydra_overrides|create_omegaconf|_benchmark_common|from_dotlist|"
    r"set_workspace|set_cuda|set_rng|OmegaConf|apply_args_to_config|env"
)
"""Those of them that are read, or that set nothing read here."""


def put_arguments(module: python_tree.Module, context: Context) -> None:
    """The script's own arguments as ``--set`` or the command that starts it gives them."""
    for key, text in context.overrides.given.items():
        name = key.removeprefix("args.").lstrip("-").replace("-", "_")
        if name in module.arguments:
            module.arguments[name] = typed(text)
            if key not in COUNTS and key not in WORDS:
                context.overrides.used.add(key)


def untold(key: str, setting: Setting) -> Ignored:
    """A field that is set to what only a run could tell."""
    shown = str(setting.value)[:60]
    argument = re.fullmatch(r"(?:args|cli_args|parsed_args)\.(\w+)", shown)
    settled = f"--set {argument.group(1)}=..." if argument else f"--set model.{key}=..."
    why = f"set to {shown}, which only a run could tell; {settled} settles it"
    return Ignored(key, setting.file, setting.line, True, why)


def say_unseen(draft: Draft, walk: Walk, module: python_tree.Module, context: Context) -> None:
    """Note every open branch and unseen helper that can change what was read."""
    for choice in walk.choices:
        _say_choice(draft, choice, context)
    told: set[str] = set()
    for event in walk.events:
        if isinstance(event, Called) and event.call.name not in told:
            why = _helper(event, module, walk)
            if why:
                told.add(event.call.name)
                key = f"{event.call.name}()"
                draft.ignored.append(Ignored(key, event.file, event.call.line, True, why))


def _say_choice(draft: Draft, choice: Choice, context: Context) -> None:
    """Fields that the branch not taken would have set otherwise."""
    taken, other = _fields(choice.taken), _fields(choice.other)
    for key in [*dict.fromkeys([*other, *taken])]:
        if f"model.{key}" in context.overrides.given or taken.get(key) == other.get(key):
            continue
        mine = taken.get(key, "as it was")
        theirs = other.get(key, "as it was")
        why = (
            f"{mine} if {choice.test}, else {theirs}: only a run could tell which, and "
            f"{mine} was taken; --set model.{key}=... settles it"
        )
        if key == "recipe":
            why = why.rsplit(";", 1)[0] + "; give --set with the argument that it tests"
        draft.ignored.append(Ignored(key, choice.file, choice.line, True, why))


def _fields(events: tuple[Event, ...]) -> dict[str, str]:
    """The fields that a branch sets, and the recipe that it takes."""
    found: dict[str, str] = {}

    def keep(key: str, value: Any, path: str) -> None:
        if argument_of(key) or (key in SHAPE and is_shape(path, key)):
            found[key] = str(value)[:40]

    for event in events:
        if isinstance(event, Assigned):
            keep(event.path.rsplit(".", 1)[-1], event.setting.value, event.path)
            continue
        last = event.call.name.rsplit(".", 1)[-1]
        if last in library():
            found["recipe"] = last
        for key, setting in event.call.keywords.items():
            keep(key, setting.value, f"{event.call.name}.{key}")
    return found


def _helper(event: Called, module: python_tree.Module, walk: Walk) -> str:
    """Why a call may set what is not seen, or ""."""
    name = event.call.name
    last, base = name.rsplit(".", 1)[-1], name.rpartition(".")[0]
    whose = module.origin.get(last, "") if not base else module.imported.get(base, "")
    if base and base in module.origin:
        whose = f"{module.origin[base]}.{module.imported[base]}".strip(".")
    about = [one for one in event.takes if CONFIG.fullmatch(one)]
    returns = not about and bool(CONFIG.fullmatch(event.into)) and not event.call.keywords
    ours = bool(whose) and LIBRARIES.match(whose) is None
    theirs = bool(LIBRARIES.match(whose)) and SETTERS.search(last) and not KNOWN.search(name)
    if not (about or (returns and ours)) or not (ours or theirs):
        return ""
    file = whose.replace(".", "/").lstrip("/") + ".py"
    about_what = about[0] if about else event.into
    if theirs:
        return (
            f"{last} of the library ({file}) may set any field of {about_what}, and is not read; "
            "--set model.FIELD=VALUE settles what it sets"
        )
    return (
        f"{last} stands in {file}, which was not given, and may set any field of {about_what}; "
        "name that file too, or --set model.FIELD=VALUE"
    )
