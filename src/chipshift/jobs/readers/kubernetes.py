"""A Kubernetes manifest (Job, JobSet, PyTorchJob, Pod): the command its container starts.

Keys: Kubernetes, "Jobs" and "Define a Command and Arguments"; Kubeflow, PyTorchJob; Google Cloud,
GKE node selectors for accelerators, 2026.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given, Understood
from chipshift.jobs.launch import CHIPS
from chipshift.jobs.settings import as_integer
from chipshift.jobs.source import Source
from chipshift.jobs.yaml_lines import Document, parse
from chipshift.machines.names import parse_machine

COUNTS = ("replicas", "parallelism", "completions", "numNodes", "minMember")
DEVICES = ("nvidia.com/gpu", "amd.com/gpu", "google.com/tpu", "aws.amazon.com/neuron")

TPU_KIND = "cloud.google.com/gke-tpu-accelerator"
TPU_TOPOLOGY = "cloud.google.com/gke-tpu-topology"
TPUS = {
    "tpu7x": "v7x",
    "tpu-v6e-slice": "v6e",
    "tpu-v5p-slice": "v5p",
    "tpu-v5-lite-podslice": "v5e",
    "tpu-v4-podslice": "v4",
}
"""Values of GKE's accelerator selector (Google Cloud, "Plan TPUs in GKE", 2026)."""


def read(source: Source, context: Context) -> Draft:
    """Read one manifest; see ``readers/__init__``."""
    from chipshift.jobs.read import read_draft

    drafts = []
    for document in parse(source):
        for path, container in _containers(document.tree, ""):
            script = _script(container, path, document, source.path)
            if script is None:
                continue
            try:
                draft = read_draft(script, context)
            except InputError:
                continue
            _machine(draft, document)
            drafts.append(draft)
    if not drafts:
        raise InputError(
            f"{source.path} starts no training command known here; expected a manifest whose "
            "container does, or the training file beside it"
        )
    return drafts[0]


def _containers(tree: Any, path: str, depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every table with a command or args, and its dotted path."""
    if depth > 40:
        return
    if isinstance(tree, dict):
        if isinstance(tree.get("command"), list) or isinstance(tree.get("args"), list):
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
    if not words:
        return None
    exports = [
        f"export {entry['name']}={shlex.quote(str(entry['value']))}"
        for entry in _list(container.get("env"))
        if isinstance(entry, dict) and {"name", "value"} <= set(entry)
        if str(entry["name"]).isidentifier()
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
    head = "#!/bin/bash; " + "; ".join(exports) if not exports else "; ".join(exports)
    return Source(file, head + "\n" * max(1, line) + text)


def _machine(draft: Draft, document: Document) -> None:
    """Pods × accelerators a pod, and the chip that a node selector names."""
    found: dict[str, tuple[Any, int | None]] = {}
    for path, line in document.lines.items():
        value = _value(document.tree, path)
        last = path.rsplit(".", 1)[-1]
        for name in (*DEVICES, *COUNTS):
            if path.endswith(f".{name}") or last == name:
                found.setdefault(name, (value, line))
        if "accelerator" in last and isinstance(value, str):
            _chip(draft, value, line)
    if _slice(draft, document, found):
        return
    each = next((found[name] for name in DEVICES if name in found), None)
    counted = max((as_integer(found[n][0]) or 1 for n in COUNTS if n in found), default=1)
    pods = _pods(document.tree) or counted
    count = as_integer(each[0]) if each is not None else None
    if each is None or not count:
        at = next((found[name][1] for name in COUNTS if name in found), None)
        if pods > 1 and draft.given("devices_per_node") and not draft.given("nodes"):
            # torchrun is told its processes alone: each pod runs it
            draft.put("nodes", Given(pods, draft.file, at))
            draft.understood.append(Understood("pods", str(pods), draft.file, at, "nodes"))
        return
    if "devices_per_node" not in draft.values:
        draft.put("devices_per_node", Given(count, draft.file, each[1]))
    if not draft.given("nodes"):
        draft.put("nodes", Given(pods, draft.file, each[1]))
    shown = f"{pods} × {count}"
    draft.understood.append(Understood("accelerators", shown, draft.file, each[1], "devices"))


def _pods(tree: Any) -> int:
    """Pods of a job with roles or replicated jobs; 0 where the manifest is of another kind.

    A PyTorchJob's master trains as its workers do; an MPIJob's launcher does not. The job may stand
    in another kind's template (an AppWrapper's component).
    """
    return next(filter(None, map(_pods_of, _tables(tree))), 0)


def _tables(tree: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Every table, outer ones first."""
    if isinstance(tree, dict) and depth <= 40:
        yield tree
    for value in tree.values() if isinstance(tree, dict) else _list(tree):
        if depth <= 40:
            yield from _tables(value, depth + 1)


def _pods_of(spec: dict[str, Any]) -> int:
    """Pods of one job's spec."""
    roles = next((v for k, v in spec.items() if str(k).lower().endswith("replicaspecs")), None)
    if isinstance(roles, dict):
        return sum(_count(role, "replicas") for k, role in roles.items() if k != "Launcher")
    if isinstance(roles, list):  # v1alpha1: each names its own role
        return sum(_count(role, "replicas") for role in roles)
    sizes = []
    for job in _list(spec.get("replicatedJobs")):
        template = job.get("template") if isinstance(job, dict) else None
        inner = template.get("spec") if isinstance(template, dict) else None
        sizes.append(_count(job, "replicas") * _count(inner, "parallelism"))
    return max(sizes, default=0)


def _count(table: Any, key: str) -> int:
    value = as_integer(table.get(key)) if isinstance(table, dict) else None
    return 1 if value is None else max(0, value)


def _slice(draft: Draft, document: Document, found: dict[str, tuple[Any, int | None]]) -> bool:
    """A TPU slice by its node selectors: the topology counts chips, not what each pod asks for.

    A chip may be several devices to JAX (two on tpu7x), and so to a batch a device.
    """
    named: dict[str, tuple[str, int]] = {}
    for path, line in document.lines.items():
        for selector in (TPU_KIND, TPU_TOPOLOGY):
            if path.endswith(f".{selector}"):
                named.setdefault(selector, (str(_value(document.tree, path)), line))
    if len(named) < 2 or named[TPU_KIND][0] not in TPUS:
        return False
    topology, line = named[TPU_TOPOLOGY]
    text = f"{TPUS[named[TPU_KIND][0]]}:{topology}"
    try:
        machine = parse_machine(text)
    except InputError:
        return False
    slices = as_integer(found["replicas"][0]) if "replicas" in found else 1
    devices = machine.devices * max(1, slices or 1)
    draft.put("devices", Given(devices, draft.file, line))
    if slices in (None, 0, 1):
        draft.put("machine", Given(text, draft.file, line))
    shown = f"{max(1, slices or 1)} × {text}"
    draft.understood.append(Understood("slices", shown, draft.file, line, f"{devices} devices"))
    return True


def _chip(draft: Draft, value: str, line: int | None) -> None:
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
