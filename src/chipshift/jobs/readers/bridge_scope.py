"""Which recipe of a Megatron-Bridge file, what it is built on, and the YAML laid over it.

Source: NVIDIA, Megatron-Bridge, src/megatron/bridge/perf_recipes (recipes that alter others of
their file) and "Using Recipes" (YAML overrides, ``--config-file``), 2026.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.errors import InputError, nearest
from chipshift.jobs import python_tree
from chipshift.jobs.context import Context
from chipshift.jobs.readers.megatron_core import PASSED
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


def scope_of(
    module: python_tree.Module, context: Context, file: str
) -> tuple[str, python_tree.Module]:
    """One recipe of the file: the only one, the one ``--set recipe=`` names, or the script's own.

    Returns:
        Its name, and its calls and attributes after those of the functions that it builds on.

    Raises:
        InputError: there is none of that name, or several and none is named.
    """
    recipes = _recipes(module)
    wanted = context.overrides.variable("recipe")
    if wanted is not None and wanted not in recipes:
        hint = nearest(wanted, recipes)
        raise InputError(f"{file} has no recipe '{wanted}'{hint} ({len(recipes)} there)")
    if wanted is not None:
        return wanted, _whole(wanted, module)
    if len(recipes) > 1:
        ours = [
            name
            for name in recipes
            if not name.endswith("config") and _called(name, module) & set(recipes)
        ]
        if len(ours) != 1:
            names = ", ".join(recipes[:4])
            raise InputError(
                f"{file} holds {len(recipes)} recipes ({names} ...); expected --set recipe=NAME"
            )
        recipes = ours
    if recipes:
        return recipes[0], _whole(recipes[0], module)
    return file.rsplit("/", 1)[-1].removesuffix(".py"), module


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


def _whole(name: str, module: python_tree.Module) -> python_tree.Module:
    """A recipe after what it calls, each once, the deepest first."""
    order: list[str] = []

    def visit(one: str, above: tuple[str, ...]) -> None:
        for called in sorted(_called(one, module)):
            if called not in above and called not in order:
                visit(called, (*above, one))
        order.append(one)

    visit(name, ())
    scopes = [module.functions[one] for one in order]
    attributes = {path: value for scope in scopes for path, value in scope.attributes.items()}
    return replace(
        module.functions[name],
        calls=[call for scope in scopes for call in scope.calls],
        attributes=attributes,
    )


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
