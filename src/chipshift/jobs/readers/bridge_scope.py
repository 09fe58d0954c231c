"""Which recipe of a Megatron-Bridge file, what it is built on, and the YAML laid over it.

Source: NVIDIA, Megatron-Bridge, src/megatron/bridge/perf_recipes (recipes that alter others of
their file) and "Using Recipes" (YAML overrides, ``--config-file``), 2026.
"""

from __future__ import annotations

from chipshift.errors import InputError, nearest
from chipshift.jobs import python_tree
from chipshift.jobs.context import Context
from chipshift.jobs.readers.bridge_library import library
from chipshift.jobs.readers.bridge_walk import Assigned, Event, Script, Walk, follow, script_of
from chipshift.jobs.readers.megatron_core import PASSED
from chipshift.jobs.readers.nemo_library import CALLS
from chipshift.jobs.settings import Setting, flatten
from chipshift.jobs.source import Source
from chipshift.jobs.yaml_lines import parse

SECTIONS = frozenset(
    {
        *("model", "train", "validation", "dataset", "optimizer", "scheduler", "ddp", "dist"),
        *("checkpoint", "logger", "tokenizer", "rng", "mixed_precision", "comm_overlap", "peft"),
        *("profiling", "rerun_state_machine", "nvrx_straggler", "straggler", "ft", "env_vars"),
        *("tensor_inspect", "inprocess_restart", "optimizer_config_override_provider"),
    }
)
"""Sections of Bridge's ConfigContainer."""


def followed(source: Source, module: python_tree.Module, context: Context) -> tuple[str, Walk]:
    """The job that a file holds: the recipe that ``--set recipe=`` names, what its own statements
    do when it is started, or its only recipe.

    Returns:
        The name, and what sets a field, in order.

    Raises:
        InputError: there is no recipe of that name, or several and none is named.
    """
    files = _given(source, context)
    script = script_of(source.path, source.text, module)
    recipes = _recipes(module)
    wanted = context.overrides.variable("recipe") if "recipe" not in module.arguments else None
    if wanted is not None and wanted not in recipes:
        hint = nearest(wanted, recipes)
        raise InputError(f"{source.path} has no recipe '{wanted}'{hint} ({len(recipes)} there)")
    if wanted is not None:
        return wanted, _kept(follow(script, files, wanted), context)
    own = source.path.rsplit("/", 1)[-1].removesuffix(".py")
    started = follow(script, files, "")
    if any(_tells(event) for event in started.events) or not recipes:
        return own, _kept(started, context)
    if len(recipes) > 1:
        ours = [
            name
            for name in recipes
            if not name.endswith("config") and _called(name, module) & set(recipes)
        ]
        if len(ours) != 1:
            names = ", ".join(recipes[:4])
            raise InputError(
                f"{source.path} holds {len(recipes)} recipes ({names} ...); "
                "expected --set recipe=NAME"
            )
        recipes = ours
    return recipes[0], _kept(follow(script, files, recipes[0]), context)


def _kept(walk: Walk, context: Context) -> Walk:
    context.consumed |= {path.rsplit("/", 1)[-1] for path in walk.met}
    return walk


def _given(source: Source, context: Context) -> dict[str, Script]:
    """The other Python files given, by the module's name in an import."""
    found: dict[str, Script] = {}
    for base, other in context.beside.items():
        if base.endswith(".py") and other.path != source.path:
            try:
                facts = python_tree.parse(other)
            except InputError:
                continue  # the reading of that file says what is wrong with it
            found[base.removesuffix(".py")] = script_of(other.path, other.text, facts)
    return found


def _tells(event: Event) -> bool:
    """Whether it sets a field of a job, or names a model or a recipe of the library."""
    if isinstance(event, Assigned):
        return event.path.rsplit(".", 1)[-1] in PASSED
    last = event.call.name.rsplit(".", 1)[-1]
    return bool(
        set(event.call.keywords) & PASSED
        or last in library()
        or last in CALLS
        or last == "from_hf_pretrained"
    )


def _recipes(module: python_tree.Module) -> list[str]:
    """Functions that set a job's fields, or that alter one that does; helpers left out."""
    found = [name for name, scope in module.functions.items() if _sets(scope)]
    public = [name for name in found if not name.startswith("_")] or found
    return [
        name
        for name in module.functions
        if name in public
        or (name.endswith("config") and name[0] != "_" and _called(name, module) & set(public))
    ]


def _sets(scope: python_tree.Module) -> bool:
    return any(path.rsplit(".", 1)[-1] in PASSED for path in scope.attributes) or any(
        set(call.keywords) & PASSED for call in scope.calls
    )


def _called(name: str, module: python_tree.Module) -> set[str]:
    """Functions of the same file that one calls."""
    calls = {call.name for call in module.functions[name].calls}
    return {called for called in calls if called in module.functions and called != name}


def overrides_beside(context: Context) -> dict[str, Setting]:
    """The settings of every YAML beside that has ConfigContainer's sections and no others."""
    found: dict[str, Setting] = {}
    for base, source in context.beside.items():
        if is_overrides(source):
            document = parse(source)[0]
            found |= flatten(document.tree, source.path, document.lines)
            context.consumed.add(base)
    return found


def is_overrides(source: Source) -> bool:
    """A YAML of ConfigContainer's sections alone, which means nothing without a recipe."""
    if not source.path.endswith((".yaml", ".yml")):
        return False
    documents = parse(source)
    tree = documents[0].tree if documents else None
    return isinstance(tree, dict) and bool(
        {"model", "train"} & tree.keys() and tree.keys() <= SECTIONS
    )
