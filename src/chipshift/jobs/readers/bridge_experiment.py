"""A script that starts Megatron-Bridge's ``setup_experiment.py -mr llama3_8b -g h100 -ng 64``.

Model, task, number and kind of GPU and precision name a recipe of the benchmarks; options lie over
it. Where there is none for that many GPUs, the launcher takes the one it has and scales the global
batch with the data-parallel replicas. Source: NVIDIA, Megatron-Bridge, scripts/performance
(argument_parser.py, run_script.py, utils/utils.py, utils/overrides.py), 2026-08.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from chipshift.errors import InputError, nearest
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given, Ignored
from chipshift.jobs.launch import CHIPS, program_words, put_environment, read_launch
from chipshift.jobs.overrides import typed
from chipshift.jobs.readers.bridge import HELD, finish, from_library
from chipshift.jobs.readers.bridge_library import LibraryRecipe, library, perf_library
from chipshift.jobs.readers.bridge_options import LAUNCHER
from chipshift.jobs.readers.bridge_vocab import put_vocabulary
from chipshift.jobs.readers.megatron_core import PASSED, RENAMED, pass_on
from chipshift.jobs.settings import Setting, as_boolean, as_integer, wrong
from chipshift.jobs.shell.values import Field
from chipshift.jobs.source import Source
from chipshift.machines.announced import chips_per_host

PROGRAM = "setup_experiment.py"
STARTED = (PROGRAM, "scripts/performance/run_script.py")
"""The program, and the one that it starts on every device, with the same options."""
SMALLER = {
    ("llama3_8b", 8): (
        "b200:bf16,fp8cs gb200:bf16,fp8cs gb300:bf16,fp8cs,fp8mx,nvfp4 h100:bf16,fp8cs"
    ),
    ("nemotronh_56b", 64): "b200:fp8cs gb300:fp8cs",
    ("qwen3_30b_a3b", 8): "b200:bf16,fp8cs gb200:bf16,fp8cs gb300:bf16,fp8cs",
    ("qwen3_30b_a3b", 16): "h100:bf16,fp8cs",
}
"""Where the recipe of that many GPUs and not the largest is the default."""

UNREAD = {
    "activation_offload_layers": "activations moved to the host are counted as if they stayed",
    "first_k_dense_replace": "the recipe's own layers without experts are taken",
    "use_tokendrop": "the recipe's own treatment of tokens beyond an expert's capacity is taken",
    "optimizer_type": "the recipe's own optimizer is taken",
}
"""Options that can change the numbers and are not read."""

_PAIR = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:\.\w+)+)=(.*)", re.S)


@dataclass(frozen=True)
class _Asked:
    """The options of one command, by their long names, and its ``key=value`` words."""

    file: str
    line: int
    options: dict[str, Field]
    pairs: list[tuple[str, Field]]

    def text(self, name: str, default: str = "") -> str:
        return self.options[name].plain if name in self.options else default

    def setting(self, name: str) -> Setting:
        word = self.options[name]
        return Setting(typed(word.plain), self.file, word.line)


def read(source: Source, context: Context) -> Draft:
    """Read one script; see ``readers/__init__``.

    Raises:
        InputError: no such command, an option that it needs is not given, or no such recipe.
    """
    draft = Draft(source.path, "megatron-bridge", uneven_pp=False, pads_vocab=False)
    launch = read_launch(source, context)
    put_environment(draft, launch)
    started = [
        command
        for command in launch.found.commands
        if any(word.plain.endswith(STARTED) for word in command.words)
    ]
    if not started:
        raise InputError(f"{source.path} starts no {PROGRAM}; expected a command that does")
    asked = _asked(program_words(started[-1]), source.path, started[-1].line)
    for needed in ("model_recipe_name", "gpu", "num_gpus"):
        if needed not in asked.options:
            raise InputError(
                f"{asked.file}:{asked.line}: {PROGRAM} is given no --{needed}; expected one"
            )
    recipe, own = _recipe(asked)
    settings: dict[str, Setting] = {}
    from_library(draft, settings, recipe, asked.line)
    for key, word in asked.pairs:
        if not key.startswith("tokenizer."):
            value = Setting(typed(word.plain), asked.file, word.line)
            pass_on(settings, key.rsplit(".", 1)[-1], value)
    _lay_options(settings, asked)
    devices = _count(asked, "num_gpus")
    if own and own != devices:
        _scale(draft, settings, recipe, asked, own, devices)
    if "use_recipes" in asked.options and "tokenizer_type" not in asked.options:
        put_vocabulary(draft, context, settings, recipe, (), asked.line)
    _machine(draft, asked, devices)
    for name, why in UNREAD.items():
        if name in asked.options:
            line = asked.options[name].line
            draft.ignored.append(Ignored(f"--{name}", asked.file, line, True, why))
    finish(draft, context, settings, recipe.name, recipe.model, recipe)
    return draft


def _asked(words: list[Field], file: str, line: int) -> _Asked:
    options: dict[str, Field] = {}
    pairs: list[tuple[str, Field]] = []
    for at, word in enumerate(words):
        option = re.fullmatch(r"--?([A-Za-z][\w-]*)(?:=(.*))?", word.plain, re.S)
        pair = _PAIR.fullmatch(word.plain)
        if option is not None:
            name = option.group(1).replace("-", "_")
            follows = words[at + 1] if at + 1 < len(words) else Field("", word.line, word.soft)
            alone = follows.plain.startswith("-") and not follows.plain[1:].isdecimal()
            value = Field("true", word.line, word.soft) if alone else follows
            if option.group(2) is not None:
                value = Field(word.text.partition("=")[2], word.line, word.soft)
            options[LAUNCHER.get(name, name)] = value
        elif pair is not None:
            value = Field(word.text.partition("=")[2], word.line, word.soft)
            pairs.append((pair.group(1), value))
    return _Asked(file, line, options, pairs)


def _recipe(asked: _Asked) -> tuple[LibraryRecipe, int]:
    """The recipe that the options name, and the GPUs it is for; 0 where that does not matter."""
    model, task = asked.text("model_recipe_name"), asked.text("task", "pretrain")
    where = f"{asked.file}:{asked.options['model_recipe_name'].line}"
    if "use_recipes" in asked.options:
        name = f"{model}_{task}_config"
        found = library().get(name)
        if found is None:
            hint = nearest(name, list(library()))
            raise InputError(f"{where}: {name} is no recipe known here{hint}; expected one")
        return found, 0
    precision = asked.text("compute_dtype", "bf16").replace("_", "")
    variant = asked.text("config_variant").lower()
    end = f"_{variant}" if variant not in ("", "v1", "v2") else ""
    head, tail = f"{model}_{task}_", f"gpu_{asked.text('gpu')}_{precision}{end}_config"
    counts = sorted(
        int(number)
        for name in perf_library()
        if name.startswith(head)
        and name.endswith(tail)
        and (number := name[len(head) : -len(tail)]).isdecimal()
    )
    if not counts:
        wanted = f"{head}{asked.text('num_gpus')}{tail}"
        hint = nearest(wanted, list(perf_library()))
        raise InputError(
            f"{where}: no benchmark of {model} for {task} on {asked.text('gpu')} in {precision}"
            f"{' ' + variant if end else ''} is known here{hint}; expected one of perf_recipes, or "
            "the file that defines it"
        )
    devices = _count(asked, "num_gpus")
    taken = devices if devices in counts else _default(model, task, tail, counts)
    return perf_library()[f"{head}{taken}{tail}"], taken


def _default(model: str, task: str, tail: str, counts: list[int]) -> int:
    """The largest, but for a few that the launcher lists."""
    gpu, _, precision = tail.removeprefix("gpu_").removesuffix("_config").partition("_")
    for (name, count), where in SMALLER.items():
        listed = dict(one.split(":") for one in where.split())
        if (name, task) == (model, "pretrain") and precision in listed.get(gpu, "").split(","):
            return count if count in counts else counts[-1]
    return counts[-1]


def _count(asked: _Asked, name: str) -> int:
    setting = asked.setting(name)
    value = as_integer(setting.value)
    if value is None or not 1 <= value <= 10**6:
        raise wrong(f"--{name}", setting, "a whole number of at least 1")
    return value


def _lay_options(settings: dict[str, Setting], asked: _Asked) -> None:
    """The options that set fields, as ``set_user_overrides`` lays them."""
    for name in asked.options:
        if name not in PASSED and name not in RENAMED:
            continue
        setting = asked.setting(name)
        if str(setting.value) in ("None", "true") and name.endswith("parallel_size"):
            settings.pop(RENAMED.get(name, name.replace("_", "-")), None)
            continue
        if name == "recompute_modules":
            setting = Setting(str(setting.value).split(","), setting.file, setting.line)
            settings["recompute-granularity"] = Setting("selective", setting.file, setting.line)
        if name == "use_megatron_fsdp" and as_boolean(setting.value):
            settings["data-parallel-sharding-strategy"] = Setting(
                "optim_grads_params", setting.file, setting.line
            )
        if name == "recompute_num_layers":
            settings["recompute-granularity"] = Setting("full", setting.file, setting.line)
            settings["recompute-method"] = Setting("block", setting.file, setting.line)
        if name == "tensor_model_parallel_size":
            on = (as_integer(setting.value) or 1) > 1
            settings["sequence-parallel"] = Setting(on, setting.file, setting.line)
        pass_on(settings, name, setting)


def _scale(
    draft: Draft,
    settings: dict[str, Setting],
    recipe: LibraryRecipe,
    asked: _Asked,
    own: int,
    devices: int,
) -> None:
    """The global batch of a recipe for ``own`` GPUs on another number, sequences a replica kept.

    Raises:
        InputError: the degrees do not divide the GPUs, or the batch does not come out whole.
    """
    names = [name.replace("-", "_") for name in HELD]
    before = math.prod(as_integer(recipe.settings.get(name, 1)) or 1 for name in names)
    now = math.prod(as_integer(settings[name].value) or 1 for name in HELD if name in settings)
    stated = as_integer(recipe.settings["global_batch_size"]) or 1
    given = settings.get("global-batch-size")
    if given is not None and as_integer(given.value) != stated:
        return
    if devices % now or (stated * (devices // now)) % (own // before):
        raise InputError(
            f"{asked.file}: --num_gpus {devices} is no multiple of tp × pp × cp = {now}, or its "
            f"batch is not whole; expected such as {own}, which {recipe.name} is for"
        )
    total = stated * (devices // now) // (own // before)
    settings["global-batch-size"] = Setting(total, asked.file, asked.options["num_gpus"].line)
    why = f"{recipe.name}'s {stated}, scaled with the replicas as the launcher does"
    draft.note("global batch", total, why)


def _machine(draft: Draft, asked: _Asked, devices: int) -> None:
    gpu, line = asked.text("gpu"), asked.options["num_gpus"].line
    draft.put("devices", Given(devices, asked.file, line))
    if gpu in CHIPS:
        draft.put("chip", Given(CHIPS[gpu], asked.file, asked.options["gpu"].line))
    if "gpus_per_node" in asked.options:
        each = _count(asked, "gpus_per_node")
        where = asked.options["gpus_per_node"]
        draft.put("devices_per_node", Given(each, asked.file, where.line))
    elif (host := chips_per_host(gpu)) is not None:
        draft.assume("devices_per_node", host, f"a node of {gpu}")
