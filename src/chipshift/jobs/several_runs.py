"""A script that starts one program several times with other settings: a sweep."""

from __future__ import annotations

import re
from collections.abc import Sequence

from chipshift.jobs.draft import Draft
from chipshift.jobs.shell.found import Command
from chipshift.jobs.shell.values import Field

BEARING = re.compile(
    r"batch|parallel|seq|len(?:gth)?(?:$|_)|layers?(?:$|_)|heads?(?:$|_)|embd|hidden|_dim|dim_|dtype|"
    r"precision|expert|model|remat|recompute|fsdp|zero|lora|gpus?(?:$|_)|devices|nodes|shard|context|"
    r"block_size|^(?:[tpcde]p|b|t|mb|gb|mbs|gbs|n_\w+)$|^(?:use|enable)_|optim|vocab|fp8|config"
)
"""Settings in which two runs are two jobs."""
OTHERWISE = re.compile(r"rank|save|log|eval|test|path|dir$|name$|data|port|checkpoint")
"""Words of settings of a run's place or files, whatever else they name."""
PLAIN = re.compile(r"^model(?:_name)?(?:_or_path)?$|^lora_r(?:ank)?$|^data_parallel|^dataset_len")
"""Settings that bear on a step though they hold such a word."""


STARTED = ("nemo", "litgpt", "tune", "axolotl", "swift", "llamafactory-cli", "trl")
"""Programs that are commands of their own."""


def say_runs(draft: Draft, commands: Sequence[Command]) -> None:
    """Note the runs of one program that differ in what bears on a step; one of them is read."""
    if any(what == "jobs of the script" for what, _, _ in draft.assumed):
        return
    runs: dict[tuple[str, frozenset[str]], list[dict[str, str]]] = {}
    for command in commands:
        program, settings = _run(command.words)
        if program:
            alike = runs.setdefault((program, frozenset(settings)), [])
            if settings not in alike:
                alike.append(settings)
    for (_, names), alike in runs.items():
        differ = sorted(n for n in names if len({run[n] for run in alike}) > 1)
        leaves = [n.rsplit(".", 1)[-1].replace("-", "_").lower() for n in differ]
        bearing = [
            n
            for n, leaf in zip(differ, leaves, strict=True)
            if PLAIN.search(leaf) or (BEARING.search(leaf) and not OTHERWISE.search(leaf))
        ]
        if bearing:
            why = f"they differ in {', '.join(bearing[:4])}; one of them is read"
            draft.note("jobs of the script", len(alike), why)
            return


def _run(words: Sequence[Field]) -> tuple[str, dict[str, str]]:
    """The program and its settings: ``--key value``, ``--key=value`` and ``key=value``."""
    program, settings = "", {}
    for at, word in enumerate(words):
        text = word.plain
        if text.endswith((".py", ".sh")) or re.search(r"(?:^|/)train_gpt2\w*cu$", text):
            program = program or text
        pair = re.fullmatch(r"[-+]{0,2}([A-Za-z][\w.-]*)=(.*)", text, re.S)
        if pair is not None:
            settings[pair.group(1)] = pair.group(2)
        elif text != "-m" and re.fullmatch(r"--?[A-Za-z][\w.-]*", text):
            following = words[at + 1].plain if at + 1 < len(words) else ""
            settings[text.lstrip("-")] = "" if following.startswith("--") else following
        elif text == "-m" and at + 1 < len(words):
            program = program or words[at + 1].plain
    first = words[0].plain if words else ""
    return program or (first if first in STARTED else ""), settings
