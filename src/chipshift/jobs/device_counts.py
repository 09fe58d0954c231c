"""Counts of nodes and devices that a launch gives: by its words, or by the GPUs that it sees."""

from __future__ import annotations

import re

from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given, Understood
from chipshift.jobs.settings import as_integer
from chipshift.jobs.shell.found import Resolved
from chipshift.jobs.shell.values import Field

OWN_COUNT = ("gpu", "auto", "cpu")
"""Words by which torchrun's ``--nproc-per-node`` takes the devices that a node has."""


def put_count(draft: Draft, name: str, value: Field | None) -> None:
    """A count that a launcher's word gives; one that only a run could tell is noted."""
    count = as_integer(value.plain) if value is not None else None
    if value is not None and value.unknown:
        by = f"--set {name}=N, or --on, settles it"
        draft.note(name.replace("_", " "), value.shown, f"only a run could tell; {by}")
    if value is None:
        return
    if count is None or not 1 <= count <= 10**7:
        if not value.unknown:
            said = "as many as there are" if value.plain in OWN_COUNT else "no whole number from 1"
            by = f"{said}: --set {name}=N, or --on, settles it"
            draft.note(name.replace("_", " "), value.shown, by)
        return
    if value.soft:
        why = "the script's default of an environment variable; --on or --set says otherwise"
        draft.assume(name, count, why)
    else:
        draft.put(name, Given(count, draft.file, value.line or None))
    draft.understood.append(
        Understood(name, str(count), draft.file, value.line or None, name.replace("_", " "))
    )


TAKE_ALL = re.compile(
    r"(?:^|/)llamafactory-cli$|(?:^|/)axolotl$|(?:^|/)deepspeed$|(?:^|/)accelerate$"
)
"""Launchers that start a process for each GPU that they see, where they are told no number."""


def put_visible(draft: Draft, found: Resolved) -> None:
    """As many devices as ``CUDA_VISIBLE_DEVICES`` shows, where a launcher takes all it sees.

    LLaMA-Factory's command also has the variables ``NNODES`` and ``NPROC_PER_NODE``.

    Sources: LLaMA-Factory, src/llamafactory/launcher.py; DeepSpeed, launcher/runner.py; Hugging
    Face, Accelerate, commands/launch.py (num_processes), 2026.
    """
    if "devices" in draft.values or "devices_per_node" in draft.values:
        return
    for command in reversed(found.commands):
        plain = [word.plain for word in command.words]
        starts = [word for word in plain[:8] if TAKE_ALL.search(word)]
        by_count = "--nproc_per_node=gpu" in plain or "--nproc_per_node=auto" in plain
        told = any(word.startswith(("--config_file", "--hostfile", "-H")) for word in plain)
        if not (starts or by_count) or told:
            continue
        variables = {**found.environment.exported, **dict(command.environment)}
        if any("llamafactory-cli" in word for word in starts):
            put_count(draft, "nodes", variables.get("NNODES"))
            put_count(draft, "devices_per_node", variables.get("NPROC_PER_NODE"))
        shown = variables.get("CUDA_VISIBLE_DEVICES")
        if shown is None or shown.unknown or "devices_per_node" in draft.values:
            return
        listed = [one for one in shown.plain.strip("'\"").split(",") if one.strip()]
        if listed and all(one.strip().isdecimal() or one.startswith("GPU-") for one in listed):
            count = Field(str(len(listed)), shown.line, shown.soft)
            put_count(draft, "devices_per_node", count)
            draft.assume("nodes", 1, "the launcher's default of one node")
        return
