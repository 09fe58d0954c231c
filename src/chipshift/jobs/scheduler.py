"""What a scheduler's lines in a script ask for: ``#SBATCH``, ``#PBS`` and ``#BSUB``.

Options: SchedMD, Slurm, sbatch(1), 2025; Altair, PBS Professional, qsub(1B) and "Requesting
resources", 2024.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from chipshift.jobs.settings import as_integer
from chipshift.jobs.shell.values import Field

_DIRECTIVE = re.compile(r"^[ \t]*#(SBATCH|PBS|BSUB)[ \t]+(.*)$")
_GRES = re.compile(r"gpu(?::([A-Za-z0-9_.-]+?))?:(\d{1,4})\b|^(?:([A-Za-z][\w.-]*):)?(\d{1,4})$")

PBS, SLURM = "#PBS", "#SBATCH"
"""Stand among the options where PBS's directives gave the nodes, and where Slurm has any."""


def directives(text: str) -> dict[str, Field]:
    """The options of a script's directives, by name without dashes."""
    options: dict[str, Field] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        match = _DIRECTIVE.match(line)
        if match is None:
            continue
        words = [Field(word, number) for word in match.group(2).split("#")[0].split()]
        of_pbs = match.group(1) == "PBS"
        options.update(_of_pbs(words) if of_pbs else options_of(words))
        if match.group(1) == "SBATCH":
            options[SLURM] = Field(match.group(2), number)
    return options


def _of_pbs(words: list[Field]) -> dict[str, Field]:
    """``-l select=2:ncpus=8:ngpus=8`` (chunks), ``-l nodes=2:ppn=8:gpus=8`` of TORQUE.

    PBS's ``-N`` is the job's name and its ``-n`` a switch, so that nothing else is taken.
    """
    found: dict[str, Field] = {}
    for at, word in enumerate(words):
        asked = word.plain.removeprefix("-l")
        if asked == word.plain and (at == 0 or words[at - 1].plain != "-l"):
            continue
        for resource in asked.split(","):
            kind, _, value = resource.partition("=")
            if kind not in ("select", "nodes"):
                continue
            chunks = [chunk.split(":") for chunk in value.split("+")]
            nodes = sum(as_integer(chunk[0]) or 1 for chunk in chunks)
            found["nodes"] = found[PBS] = Field(str(nodes), word.line)
            each = {
                count
                for chunk in chunks
                for part in chunk[1:]
                if (count := _gpus_of(part)) is not None
            }
            if len(each) == 1:
                found["gpus-per-node"] = Field(str(each.pop()), word.line)
    return found


def _gpus_of(part: str) -> int | None:
    name, _, value = part.partition("=")
    return as_integer(value) if name in ("ngpus", "gpus") else None


def options_of(words: Iterable[Field]) -> dict[str, Field]:
    """``--name value``, ``--name=value``, ``-N 4`` and ``-N4`` of a launcher."""
    found: dict[str, Field] = {}
    name = ""
    for word in words:
        plain = word.plain
        match = re.match(r"--?([A-Za-z][\w-]*)(?:=(.*))?$", plain, re.S)
        short = re.match(r"-([Nn])(\d+)$", plain)
        if short:
            found[short.group(1)] = Field(short.group(2), word.line, word.soft)
            name = ""
        elif match and match.group(2) is not None:
            text = word.text.partition("=")[2]
            found[match.group(1)] = Field(text, word.line, word.soft)
            name = ""
        elif match:
            name = match.group(1)
        elif name:
            found[name] = word
            name = ""
    return found


def set_by_scheduler(options: Mapping[str, Field]) -> dict[str, Field]:
    """Variables that the scheduler sets in the job.

    Source: SchedMD, Slurm, sbatch(1), "Output environment variables", 2025.
    """
    variables: dict[str, Field] = {}
    nodes = options.get("nodes") or options.get("N")
    if nodes is not None and PBS in options:
        return {"PBS_NUM_NODES": nodes}
    if nodes is not None:
        nodes = Field(nodes.text.split("-")[0], nodes.line, nodes.soft)
        for name in ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"):
            variables[name] = nodes
    tasks = options.get("ntasks-per-node")
    if tasks is not None:
        variables["SLURM_NTASKS_PER_NODE"] = tasks
    if (gpus := gpus_per_node(options)) is not None:
        variables["SLURM_GPUS_PER_NODE"] = variables["SLURM_GPUS_ON_NODE"] = gpus
    if (gpus := all_gpus(options)) is not None:
        variables["SLURM_GPUS"] = gpus
    total = options.get("ntasks") or options.get("n")
    if total is None and nodes is not None and tasks is not None:
        count = (as_integer(nodes.plain) or 0) * (as_integer(tasks.plain) or 0)
        total = Field(str(count), nodes.line) if count else None
    if total is not None:
        variables["SLURM_NTASKS"] = variables["SLURM_NPROCS"] = total
    return variables


def gpus_per_node(options: Mapping[str, Field]) -> Field | None:
    """From ``--gpus-per-node=8``, ``--gres=gpu:h100:8`` and their like."""
    for name in ("gpus-per-node", "gres"):
        value = options.get(name)
        match = _GRES.search(value.plain) if value is not None else None
        if value is not None and match:
            return Field(match.group(2) or match.group(4), value.line, value.soft)
    return None


def all_gpus(options: Mapping[str, Field]) -> Field | None:
    """Slurm's ``--gpus=4``, ``--gpus=h100:4`` and ``-G 4``: those of the whole job."""
    for name in ("gpus", "G"):
        value = options.get(name)
        match = re.fullmatch(r"(?:[A-Za-z][\w.-]*:)?(\d{1,6})", value.plain) if value else None
        if value is not None and match:
            return Field(match.group(1), value.line, value.soft)
    return None
