"""torchtitan's Python configurations (2026), which replaced its TOML: a function that returns
``Trainer.Config(...)``, read through the syntax tree.

Names and defaults: PyTorch, torchtitan, torchtitan/config/configs.py and
models/*/config_registry.py, 2026-03 to 2026-08. They are read as the TOML keys they equal.
"""

from __future__ import annotations

import re

from chipshift.errors import InputError, nearest
from chipshift.jobs import python_tree
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.python_tree import Call, Module
from chipshift.jobs.readers import torchtitan
from chipshift.jobs.readers.preference_keys import say_sampled
from chipshift.jobs.settings import Setting, as_integer
from chipshift.jobs.source import Source
from chipshift.models.lora import ALL_LINEAR, Lora

SECTIONS = {
    "TrainingConfig": "training",
    "BatchConfig": "training",
    "ParallelismConfig": "parallelism",
    "CompileConfig": "compile",
    "ActivationCheckpointConfig": "activation_checkpoint",
    "OptimizersContainer.Config": "optimizer",
    "default_adamw": "optimizer",
    "DebugConfig": "debug",
    "CommConfig": "comm",
}
"""What is called, and the TOML table whose keys its arguments are."""

CHECKPOINTS = {"SelectiveAC": "selective", "FullAC": "full", "MemoryBudgetAC": "memory_budget"}
CONVERTERS = {"Float8": "float8", "MXFP8": "mx", "NVFP4": "nvfp4"}
_FAMILY = re.compile(r"(llama[234]|deepseek_v3|qwen3_5|qwen3(?:_vl)?|gpt_oss|kimi_k2|flux)")
CHUNKS = 8
MAPS = {
    "wq": ("q_proj",),
    "wk": ("k_proj",),
    "wv": ("v_proj",),
    "wo": ("o_proj",),
    "wkv": ("k_proj", "v_proj"),
    "wqkv": ("q_proj", "k_proj", "v_proj"),
    "w1": ("gate_proj",),
    "w2": ("down_proj",),
    "w3": ("up_proj",),
}
"""torchtitan's names of a layer's maps and the checkpoint's."""


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "torchtitan", kv_replicated=False)
    return torchtitan.fill(settings_of(source, "", draft, context), draft, context)


def settings_of(source: Source, named: str, draft: Draft, context: Context) -> dict[str, Setting]:
    """A configuration's settings as the TOML keys that they equal.

    Args:
        named: the function; "" for the one that ``--set recipe=`` names, or the only one.
    """
    module = python_tree.parse(source)
    name = named or _chosen(module, context, source.path)
    settings: dict[str, Setting] = {}
    for function in _bases(module, name):
        scope = module.functions[function]
        _refuse_other_file(module, scope, function, source.path)
        for call in _of_the_trainer(scope.calls):
            _call(call, settings, draft)
        for path, setting in scope.attributes.items():
            parts = path.split(".")
            if len(parts) >= 3:
                settings[".".join(parts[-2:])] = setting
    folder = source.path.rsplit("/", 2)[-2:-1]  # models/llama3/config_registry.py
    family = next(
        filter(None, map(_FAMILY.search, (name.replace("qwen35", "qwen3_5"), *folder))), None
    )
    if family is not None:
        line = module.functions[name].line
        settings.setdefault("model.name", Setting(family.group(1), source.path, line))
    elif not context.model_named and "hf_model" not in settings:
        raise InputError(
            f"{source.path}: the name '{name}' tells no model family; expected --model with a "
            "preset or a config.json"
        )
    _option(settings)
    draft.put("name", Given(name, source.path))
    return settings


def _chosen(module: Module, context: Context, file: str) -> str:
    """The configuration that ``--set recipe=`` names, or the only one."""
    recipes = [
        name
        for name, scope in module.functions.items()
        if any(call.name.endswith(("Trainer.Config", "TrainingConfig")) for call in scope.calls)
        or any(call.name in module.functions for call in scope.calls)
        or any(_of_registry(call, module) for call in scope.calls)
    ]
    wanted = context.overrides.variable("recipe")
    if wanted is not None:
        if wanted not in recipes:
            raise InputError(f"{file} has no configuration '{wanted}'{nearest(wanted, recipes)}")
        return wanted
    if len(recipes) != 1:
        names = ", ".join(recipes[:4]) or "none"
        raise InputError(
            f"{file} holds {len(recipes)} configurations ({names} ...); expected --set recipe=NAME"
        )
    return recipes[0]


def _of_registry(call: Call, module: Module) -> bool:
    """A call of another file's configuration, from which this one starts."""
    return module.origin.get(call.name, "").endswith("config_registry")


def _bases(module: Module, name: str) -> list[str]:
    """The configurations that this one starts from, the first of them first."""
    chain = [name]
    while len(chain) < 10:
        called = [call.name for call in module.functions[chain[-1]].calls]
        base = next((c for c in called if c in module.functions and c not in chain), None)
        if base is None:
            break
        chain.append(base)
    return chain[::-1]


def _of_the_trainer(calls: list[Call]) -> list[Call]:
    """Without what is inside a generator's configuration: it samples answers on other devices."""
    inside: list[Call] = []
    last = 0
    for call in calls:
        if call.line > last:
            inside.append(call)
            if re.search(r"Generator\.Config$", call.name):
                last = call.end
    return inside


def _refuse_other_file(module: Module, scope: Module, name: str, file: str) -> None:
    """A configuration that starts from another file's cannot be read from this one alone.

    Raises:
        InputError: naming the other configuration and the module that it is in.
    """
    for call in scope.calls:
        if _of_registry(call, module):
            origin, base = module.origin[call.name], module.imported[call.name]
            raise InputError(
                f"{file}:{call.line}: {name} starts from {base} of {origin}, another file; "
                f"expected that file, with --set recipe={base}"
            )


def _call(call: Call, settings: dict[str, Setting], draft: Draft) -> None:
    last = call.name.rsplit(".", 1)[-1]
    owner = call.name.split(".")[0]
    for name, section in SECTIONS.items():
        if call.name == name or call.name.endswith(f".{name}") or last == name:
            settings.update({f"{section}.{key}": value for key, value in call.keywords.items()})
    if last == "model_registry" and call.arguments:
        settings["model.flavor"] = Setting(str(call.arguments[0]), draft.file, call.line)
        kind = call.keywords.get("attn_backend")
        if kind is not None:
            settings["model.attn_type"] = kind
    elif owner in CHECKPOINTS and last == "Config":
        settings["activation_checkpoint.mode"] = Setting(CHECKPOINTS[owner], draft.file, call.line)
        settings["activation_checkpoint.selective_ac_option"] = Setting("op", draft.file, call.line)
    elif owner.startswith(("ChunkedLoss", "ChunkedCE")):
        chunks = call.keywords.get("num_chunks")
        count = as_integer(chunks.value) if chunks is not None else None
        draft.put("loss_chunks", Given(count or CHUNKS, draft.file, call.line))
    elif owner == "LoRAConverter" and last == "Config":
        draft.put("lora", Given(_adapters(call), draft.file, call.line))
    elif last == "Config" and owner == "RLTrainer":
        say_sampled(draft, "grpo")
    elif owner.endswith("Config") and "hf_model" in call.keywords:
        settings["hf_model"] = call.keywords["hf_model"]
    for word, converter in CONVERTERS.items():
        if owner.startswith(word) and last == "Config":
            settings["model.converters"] = Setting([converter], draft.file, call.line)


def _adapters(call: Call) -> Lora:
    """``LoRAConverter.Config(rank=8, target_modules=["wq"])``; None adapts every linear map."""
    rank, named = call.keywords.get("rank"), call.keywords.get("target_modules")
    words = named.value if named is not None and isinstance(named.value, list) else [ALL_LINEAR]
    targets = [own for word in words for own in MAPS.get(str(word), (str(word),))]
    return Lora(as_integer(rank.value if rank else 8) or 8, tuple(dict.fromkeys(targets)))


def _option(settings: dict[str, Setting]) -> None:
    """Selective checkpointing without an option is of ops."""
    if "activation_checkpoint.mode" in settings:
        settings.setdefault(
            "activation_checkpoint.selective_ac_option",
            Setting("op", settings["activation_checkpoint.mode"].file),
        )
