"""A launcher's YAML that holds the command itself: SkyPilot, dstack, Determined and their like.

Sources: SkyPilot, "SkyPilot YAML" (run, num_nodes, resources.accelerators, envs); dstack,
"Tasks" (commands, nodes, resources.gpu); Determined AI, "Experiment configuration" (entrypoint,
resources.slots_per_trial); Azure Machine Learning, "CLI command job" (command,
resources.instance_count), 2026.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given, Understood
from chipshift.jobs.launch import CHIPS
from chipshift.jobs.settings import as_integer
from chipshift.jobs.source import Source
from chipshift.jobs.yaml_lines import Document, parse

COMMANDS = ("run", "commands", "command", "entrypoint", "script", "cmd")
"""Keys at the top whose text is a shell's."""

NODES = ("num_nodes", "nodes", "resources.instance_count", "distribution.instance_count")
TOTAL = ("resources.slots_per_trial",)
ENVIRONMENTS = ("envs", "env", "environment_variables", "environment.environment_variables")
_ACCELERATORS = re.compile(r"([A-Za-z][\w-]*)(?::(\d{1,3}))?$")


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``.

    Raises:
        InputError: its command starts nothing known here.
    """
    from chipshift.jobs.read import read_draft

    document = parse(source)[0]
    tree = document.tree if isinstance(document.tree, dict) else {}
    machine = Draft(source.path, "launch script")
    counts = _machine(machine, document)
    script = _script(tree, document, source.path, counts)
    if script is None:
        raise InputError(
            f"{source.path} holds no command; expected one under {', '.join(COMMANDS[:4])}"
        )
    own = trial_settings(source, tree)
    if own is not None and not _names_settings(script.text):
        from chipshift.jobs.readers import transformers

        for program in re.findall(r"\S+\.py\b", script.text):
            context.neighbour(program)  # what it sets is what it is given here
        draft = transformers.read(own, context)
        if _SEARCHED.search(source.text.replace("\n  ", "\n")):
            why = "the platform tries several: the first value of each is taken"
            draft.note("searched hyperparameters", "the first", why)
    else:
        draft = read_draft(script, context)
    for name, value in machine.values.items():
        if not draft.given(name):
            draft.put(name, value)
    draft.understood += machine.understood
    return draft


_TRIAL = ("training_args", "training_arguments", "trainer_args", "per_device_train_batch_size")


def _names_settings(text: str) -> bool:
    """Whether a command says the Trainer's settings, or a file of them, itself."""
    return bool(re.search(r"--per_device_train|--config\b|\S\.(?:ya?ml|toml)\b", text))


def trial_settings(source: Source, tree: dict[str, Any]) -> Source | None:
    """Determined's ``hyperparameters`` as a file of its own, on the same lines.

    The program takes them from the platform (``det.get_cluster_info().trial.hparams``) and gives
    ``training_args`` to the Trainer.
    """
    table = tree.get("hyperparameters")
    if not isinstance(table, dict) or not any(key in table for key in _TRIAL):
        return None
    kept: list[str] = []
    inside = False
    for line in source.text.split("\n"):
        top = re.match(r"[^\s#]", line)
        inside = line.startswith("hyperparameters:") if top else inside
        kept.append("" if top or not inside else line)
    step = min((len(one) - len(one.lstrip()) for one in kept if one.strip()), default=0)
    text = "\n".join(one[step:] for one in kept)
    text = _first_searched(text)
    lora = re.search(r"^lora:\s*true\b", text, re.M | re.I)
    text = re.sub(r"^r:", "lora_r:", text, flags=re.M) if lora else text
    text = re.sub(r"^lora:(?=\s*(?:true|false)\b)", "use_lora:", text, flags=re.M | re.I)
    return Source(source.path, re.sub(r"^model:", "model_name_or_path:", text, flags=re.M))


_SEARCHED = re.compile(
    r"^(?P<key>[ ]*[\w-]+):[ ]*\n(?P<in>[ ]+)type:[ ]*(?P<type>categorical|const|int|double|log)"
    r"[ ]*\n(?P<rest>(?:(?P=in)[^\n]*(?:\n|\Z))+)",
    re.M,
)


def _first_searched(text: str) -> str:
    """A hyperparameter that is searched by the first of its values, on as many lines."""

    def first(match: re.Match[str]) -> str:
        listed = re.search(r"\bvals?:\s*(?:\[|-)?[ ]*([^\],\n]+)", match["rest"])
        low = re.search(r"\bminval:[ ]*(\S+)", match["rest"])
        told = listed or low
        if told is None or (match["type"] in ("int", "double", "log") and low is None):
            return match.group()
        lines = match.group().count("\n")
        return f"{match['key']}: {told.group(1).strip()}" + "\n" * lines

    return _SEARCHED.sub(first, text)


def _script(
    tree: dict[str, Any], document: Document, file: str, counts: dict[str, int]
) -> Source | None:
    """The command as a script whose lines are the file's, its variables exported before it."""
    key = next((key for key in COMMANDS if isinstance(tree.get(key), (str, list))), "")
    if not key:
        return None
    value = tree[key]
    line = document.lines.get(key, 1)
    if isinstance(value, list):  # one command in words, or a command a line
        parts = [str(part) for part in value]
        words = not any(" " in part.strip() for part in parts)
        text = " ".join(map(shlex.quote, parts)) if words else "\n".join(parts)
        line = document.lines.get(f"{key}.0", line + 1) - 1
    else:
        text = value
        line -= 0 if "\n" in text.strip() else 1
    exports = [f"export {name}={shlex.quote(text)}" for name, text in _variables(tree).items()]
    exports += [f"export {name}={count}" for name, count in counts.items()]
    return Source(file, "; ".join(["#!/bin/bash", *exports][bool(exports) :]) +
                  "\n" * max(1, line) + text)  # fmt: skip


def _variables(tree: dict[str, Any]) -> dict[str, str]:
    """``envs: {A: 1}`` and ``environment_variables: [A=1]``."""
    found: dict[str, str] = {}
    for path in ENVIRONMENTS:
        table: Any = tree
        for part in path.split("."):
            table = table.get(part) if isinstance(table, dict) else None
        entries = table.items() if isinstance(table, dict) else (
            str(one).partition("=")[::2] for one in table if "=" in str(one)
        ) if isinstance(table, list) else ()  # fmt: skip
        for name, value in entries:
            if str(name).isidentifier() and isinstance(value, (str, int, float)):
                found[str(name)] = str(value)
    return found


def _machine(draft: Draft, document: Document) -> dict[str, int]:
    """Nodes, devices and chip; the variables by which SkyPilot and dstack tell a task of them."""
    values = _flat(document.tree)
    nodes = next((as_integer(values[key]) for key in NODES if key in values), None)
    total = next((as_integer(values[key]) for key in TOTAL if key in values), None)
    each, chip, key = _accelerators(document.tree)
    at = document.lines.get(key)
    if chip:
        draft.put("chip", Given(chip, draft.file, at))
    if total:
        draft.put("devices", Given(total, draft.file, document.lines.get(TOTAL[0])))
        return {}
    if not each:
        return {}
    nodes = nodes or 1
    draft.put("nodes", Given(nodes, draft.file, at))
    draft.put("devices_per_node", Given(each, draft.file, at))
    shown = f"{nodes} × {each}"
    draft.understood.append(Understood("accelerators", shown, draft.file, at, "nodes and devices"))
    return {
        "SKYPILOT_NUM_NODES": nodes,
        "SKYPILOT_NUM_GPUS_PER_NODE": each,
        "DSTACK_NODES_NUM": nodes,
        "DSTACK_GPUS_PER_NODE": each,
        "DSTACK_GPUS_NUM": nodes * each,
    }


def _accelerators(tree: Any) -> tuple[int, str, str]:
    """Devices a node, the chip known here, and where: ``H100:8``, ``{A100-80GB: 8}``, ``[...]``."""
    resources = tree.get("resources") if isinstance(tree, dict) else None
    table = resources if isinstance(resources, dict) else {}
    key = next((k for k in ("accelerators", "gpu", "gpus") if table.get(k) is not None), "")
    value = table.get(key)
    if isinstance(value, dict):
        count = value.get("count")
        if count is None and len(value) == 1:
            name, count = next(iter(value.items()))
        else:
            name = value.get("name", "")
    else:
        first = value[0] if isinstance(value, list) and value else value
        match = _ACCELERATORS.match(str(first).split("@")[0])
        name, count = (match.group(1), match.group(2) or 1) if match else ("", first)
        parts = str(first).split(":")
        if len(parts) > 2:  # dstack's NAME:MEMORY:COUNT
            name, count = parts[0], parts[-1]
    words = re.split(r"[^a-z0-9]+", str(name).lower())
    chip = next((CHIPS[word] for word in words if word in CHIPS), "")
    return as_integer(count) or 0, chip, f"resources.{key}"


def _flat(tree: Any) -> dict[str, Any]:
    """Keys of the first two levels, dotted."""
    found: dict[str, Any] = {}
    for key, value in (tree if isinstance(tree, dict) else {}).items():
        inner = value.items() if isinstance(value, dict) else ()
        found[str(key)] = value
        found |= {f"{key}.{name}": one for name, one in inner}
    return found
