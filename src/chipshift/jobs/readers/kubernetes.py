"""A Kubernetes manifest (Job, JobSet, PyTorchJob, RayJob ...): the command its container starts.

Keys: Kubernetes, "Jobs" and "Define a Command and Arguments"; Kubeflow, PyTorchJob; Google Cloud,
GKE node selectors for accelerators, 2026.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from chipshift.errors import InputError, slipped
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given, Ignored, Understood
from chipshift.jobs.launch import CHIPS
from chipshift.jobs.readers.kubernetes_pods import (
    DEVICES,
    HOSTS,
    SLICES,
    TPU,
    Pods,
    pods_of,
    trainers,
)
from chipshift.jobs.recognise import recognise
from chipshift.jobs.settings import as_integer
from chipshift.jobs.source import Source
from chipshift.jobs.yaml_lines import Document, parse
from chipshift.machines import chip
from chipshift.machines.instances import instance_named
from chipshift.machines.names import parse_machine

TPU_KIND = "cloud.google.com/gke-tpu-accelerator"
TPU_TOPOLOGIES = (
    "cloud.google.com/gke-tpu-topology",
    "cloud.google.com/gke-tpu-slice-topology",  # a slice made of smaller ones
)
TPUS = {
    "tpu7x": "v7x",
    "tpu-v6e-slice": "v6e",
    "tpu-v5p-slice": "v5p",
    "tpu-v5-lite-podslice": "v5e",
    "tpu-v4-podslice": "v4",
}
"""Values of GKE's accelerator selector (Google Cloud, "Plan TPUs in GKE", 2026)."""


COUNTS = (*DEVICES, *SLICES, *HOSTS)
"""Keys that count pods and accelerators."""


def read(source: Source, context: Context) -> Draft:
    """Read one manifest; see ``readers/__init__``.

    Raises:
        InputError: it starts nothing and asks for no accelerators, or it starts what cannot be
            read.
    """
    from chipshift.jobs.read import read_draft

    source = _with_variables(source, context)
    documents = parse(source)
    _mounted(documents, source, context)
    drafts, refusals, machines = [], [], []
    for document in documents:
        for path, container in _containers(document.tree, ""):
            script = _script(container, path, document, source.path)
            if script is not None and not _known(script):
                script = _started(script, context)
            if script is None:
                continue
            try:
                draft = read_draft(script, context)
            except InputError as error:
                refusals.append(error)
                continue
            _machine(draft, document)
            drafts.append(draft)
        alone = Draft(source.path, "launch script")
        _machine(alone, document)
        if alone.values:
            machines.append(alone)
    if not drafts and refusals:
        raise refusals[0]
    found = drafts or machines  # what an unknown program is started on is known all the same
    if not found:
        raise InputError(
            f"{source.path} starts no training command known here; expected a manifest whose "
            "container does, or the training file beside it"
        )
    return max(found, key=lambda draft: len(draft.values))  # sidecars say little


def _known(script: Source) -> bool:
    try:
        recognise(script)
    except InputError:
        return False
    return True


def _started(command: Source, context: Context) -> Source | None:
    """The script given beside that an unknown command starts: ``bash /workspace/entrypoint.sh``."""
    for name in re.findall(r"[\w./-]+\.(?:sh|py)\b", command.text):
        found = context.neighbour(name)
        if found is not None and _known(found):
            return found
    return None


def _with_variables(source: Source, context: Context) -> Source:
    """``$NODES`` and ``${NODES}`` of a manifest for ``envsubst``, by what ``--set`` gives."""

    def value(match: re.Match[str]) -> str:
        given = context.overrides.variable(match.group(1) or match.group(2))
        return match.group() if given is None else given

    text = re.sub(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))", value, source.text)
    return Source(source.path, text)


def _mounted(documents: list[Document], source: Source, context: Context) -> None:
    """Files that the manifest itself mounts: the entries of its ConfigMaps."""
    for document in documents:
        tree = document.tree
        if not isinstance(tree, dict) or tree.get("kind") != "ConfigMap":
            continue
        data = tree.get("data")
        for name, text in (data if isinstance(data, dict) else {}).items():
            if isinstance(text, str) and str(name) not in context.beside:
                line = document.lines.get(f"data.{name}", 0)
                mounted = Source(f"{source.path} ({name})", "\n" * line + text)
                context.beside = {**context.beside, str(name): mounted}


def _containers(tree: Any, path: str, depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every table with a command or args, and its dotted path."""
    if depth > 40:
        return
    if isinstance(tree, dict):
        starts = isinstance(tree.get("command"), list) or isinstance(tree.get("args"), list)
        ray = "rayClusterSpec" in tree and isinstance(tree.get("entrypoint"), str)
        if starts or ray:
            yield path, tree
        for key, value in tree.items():
            yield from _containers(value, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(tree, list):
        for at, value in enumerate(tree):
            yield from _containers(value, f"{path}.{at}", depth + 1)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _script(container: dict[str, Any], path: str, document: Document, file: str) -> Source | None:
    """The container's command as a script whose lines are the manifest's."""
    words = [str(word) for key in ("command", "args") for word in _list(container.get(key))]
    if not words and isinstance(container.get("entrypoint"), str):
        line = document.lines.get(f"{path}.entrypoint", 1)
        text = container["entrypoint"]
        return Source(file, "#!/bin/bash" + "\n" * (line if "\n" in text else line - 1) + text)
    if not words:
        return None
    env = {str(entry["name"]): str(entry["value"]) for entry in _list(container.get("env"))
           if isinstance(entry, dict) and {"name", "value"} <= set(entry)}  # fmt: skip
    exports = [
        f"export {name}={shlex.quote(value)}" for name, value in env.items() if name.isidentifier()
    ]
    at = next((i for i, word in enumerate(words) if re.fullmatch(r"-\w*c", word)), None)
    if at is not None and at + 1 < len(words):
        text = words[at + 1]
        key = "args" if text in map(str, _list(container.get("args"))) else "command"
        index = [str(word) for word in _list(container[key])].index(text)
        line = document.lines.get(f"{path}.{key}.{index}", 1)
        line = line if "\n" in text else line - 1
    else:
        text = " ".join(shlex.quote(word) for word in words)
        line = document.lines.get(f"{path}.command", document.lines.get(f"{path}.args", 1)) - 1
    for name, value in env.items():  # Kubernetes itself fills in $(NAME), before any shell
        text = text.replace(f"$({name})", value)
    head = "#!/bin/bash; " + "; ".join(exports) if not exports else "; ".join(exports)
    return Source(file, head + "\n" * max(1, line) + text)


def _machine(draft: Draft, document: Document) -> None:
    """Pods × accelerators a pod, and the chip that a node selector names."""
    for path, line in document.lines.items():
        value, last = _value(document.tree, path), path.rsplit(".", 1)[-1]
        if isinstance(value, str) and ("accelerator" in last or last.endswith("instance-type")):
            _chip(draft, value, line)
        if meant := next((name for name in COUNTS if slipped(_last(path), _last(name))), ""):
            key = ".".join(path.split(".")[-2 if "/" in _last(path) else -1 :])
            raise InputError(
                f"{draft.file}:{line}: {key} is {str(_value(document.tree, path))[:60]}, but no "
                f"such key is read; did you mean '{meant}'?"
            )
    found = pods_of(document.tree)
    for key, text in (entry for each in found for entry in each.wrong):
        row = document.lines.get(key) or document.lines.get(key.replace(".0.", "."))
        name = next((one for one in DEVICES if key.endswith(one)), key.rsplit(".", 1)[-1])
        place = f"{draft.file}:{row}" if row else draft.file
        raise InputError(f"{place}: {name} is '{text[:60]}'; expected a whole number")
    working = trainers(found)
    if not working:
        return
    first = working[0]
    at = _line(document, first)
    for key, text in dict(entry for pods in working for entry in pods.unset).items():
        name = re.sub(r"\W", "", text)
        draft.note(key, text, f"nothing sets it: --set {name}=N, or --on MACHINE")
    if any(pods.unset for pods in working) or _slice(draft, document, working):
        return
    pods, total = sum(one.count for one in working), sum(one.count * one.each for one in working)
    if not total:
        per = _processes(document)
        if per is not None and not draft.given("devices_per_node"):
            draft.put("devices_per_node", Given(per[0], draft.file, per[1]))
        if pods > 1 and draft.given("devices_per_node") and not draft.given("nodes"):
            # torchrun is told its processes alone: each pod runs it
            draft.put("nodes", Given(pods, draft.file, at))
            draft.understood.append(Understood("pods", str(pods), draft.file, at, "nodes"))
        return
    shown = " + ".join(f"{one.count} × {one.each}" for one in working)
    if first.resource == TPU and (kind := _tpu(document)):
        devices = total * chip(TPUS[kind]).devices_per_chip
        draft.put("machine", Given(f"{TPUS[kind]}*{total}", draft.file, at))
        draft.put("devices", Given(devices, draft.file, at))
        entry = Understood("TPU chips", shown, draft.file, at, f"{devices} devices")
        draft.understood.append(entry)
        return
    alike = len({one.each for one in working}) == 1
    started = (draft.get("nodes") or 0) * (draft.get("devices_per_node") or 0)
    if draft.given("nodes") and started not in (0, total):
        why = f"the command starts {started} processes, which were taken; its pods ask for {shown}"
        draft.ignored.append(Ignored("accelerators", draft.file, at, True, why))
        return
    if alike and "devices_per_node" not in draft.values:
        draft.put("devices_per_node", Given(first.each, draft.file, at))
    if alike and not draft.given("nodes"):
        draft.put("nodes", Given(pods, draft.file, at))
    if not alike and not draft.given("devices"):
        draft.put("devices", Given(total, draft.file, at))
    draft.understood.append(Understood("accelerators", shown, draft.file, at, "devices"))


def _last(path: str) -> str:
    return path.rsplit(".", 1)[-1]


def _line(document: Document, pods: Pods) -> int | None:
    """Where a kind of pod asks for its accelerators, or stands."""
    for path, line in document.lines.items():
        if path.startswith(pods.path) and pods.resource and path.endswith(f".{pods.resource}"):
            return line
    return document.lines.get(pods.path)


def _processes(document: Document) -> tuple[int, int] | None:
    """Processes a pod that the job's own field gives, and its line."""
    for path, line in document.lines.items():
        if path.rsplit(".", 1)[-1] in ("nprocPerNode", "numProcPerNode", "slotsPerWorker"):
            count = as_integer(_value(document.tree, path))
            if count is not None and count > 0:
                return count, line
    return None


def _tpu(document: Document) -> str:
    """The value of GKE's accelerator selector, where it is a TPU known here."""
    for path in document.lines:
        if path.endswith(f".{TPU_KIND}"):
            kind = str(_value(document.tree, path))
            return kind if kind in TPUS else ""
    return ""


def _slice(draft: Draft, document: Document, working: list[Pods]) -> bool:
    """A TPU slice by its node selectors: the topology counts chips, not what each pod asks for.

    A chip may be several devices to JAX (two on tpu7x), and so to a batch a device.
    """
    kind = _tpu(document)
    named = {
        path: line
        for path, line in document.lines.items()
        if any(path.endswith(f".{selector}") for selector in TPU_TOPOLOGIES)
    }
    if not kind or not named:
        return False
    path, line = next(iter(named.items()))
    text = f"{TPUS[kind]}:{_value(document.tree, path)}"
    slices = max(1, sum(one.slices for one in working if one.resource in (TPU, "")))
    text += f"*{slices}" if slices > 1 else ""
    try:
        machine = parse_machine(text)
    except InputError:
        return False
    draft.put("devices", Given(machine.devices, draft.file, line))
    draft.put("machine", Given(text, draft.file, line))
    entry = Understood("slices", text, draft.file, line, f"{machine.devices} devices")
    draft.understood.append(entry)
    return True


def _chip(draft: Draft, value: str, line: int | None) -> None:
    instance = instance_named(value)
    if instance is not None:
        found = Understood("instance", value, draft.file, line, f"chip {instance.chip}")
        draft.put("chip", Given(instance.chip, draft.file, line))
        draft.understood.append(found)
        return
    for word in re.split(r"[^a-z0-9]+", value.lower()):
        if word in CHIPS:
            draft.put("chip", Given(CHIPS[word], draft.file, line))
            draft.understood.append(
                Understood("accelerator", value, draft.file, line, f"chip {CHIPS[word]}")
            )
            return


def _value(tree: Any, path: str) -> Any:
    """The value at a dotted path; keys themselves may hold dots and slashes."""
    while path:
        if isinstance(tree, list):
            part, _, path = path.partition(".")
            if not part.isdecimal() or int(part) >= len(tree):
                return None
            tree = tree[int(part)]
        elif isinstance(tree, dict):
            key = next((k for k in map(str, tree) if path == k or path.startswith(f"{k}.")), None)
            if key is None:
                return None
            tree, path = tree[key], path[len(key) + 1 :]
        else:
            return None
    return tree
