"""Which format a file is in, told from its content; its name and extension are not looked at."""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs.source import Source

FORMATS = ("native", "torchtitan", "megatron")
"""Names of the readers, each a module of ``jobs/readers``."""

_TABLE = re.compile(r"^[ \t]*\[\[?[ \t]*([A-Za-z0-9_.\"'-]+)[ \t]*\]\]?[ \t]*(?:#.*)?$", re.M)
_TOML_PAIR = re.compile(r"^[ \t]*[A-Za-z0-9_.-]+[ \t]*=[ \t]*\S", re.M)
_NATIVE_TABLES = {"job", "plan", "precision", "machine", "assumed", "flag", "model"}
_TITAN_TABLES = {"training", "parallelism", "activation_checkpoint", "lr_scheduler", "checkpoint"}
_MEGATRON = re.compile(
    r"--(?:tensor-model-parallel-size|micro-batch-size|hidden-size|num-layers)\b"
)


def recognise(source: Source) -> str:
    """The name of the reader for a file.

    Raises:
        InputError: the content is in no format known here.
    """
    text = source.text
    if not text.strip():
        raise InputError(f"{source.path} is empty; expected a job file")
    if form := _toml(text):
        return form
    if _MEGATRON.search(text):
        return "megatron"
    raise InputError(
        f"{source.path} is in no format known here; expected a torchtitan or chipshift TOML, or a "
        "Megatron-LM launch script"
    )


def _toml(text: str) -> str:
    """``native`` or ``torchtitan`` when the text looks like TOML, else ""."""
    tables = {name.split(".")[0].strip("\"'") for name in _TABLE.findall(text)}
    keys = {match.split("=")[0].strip().split(".")[0] for match in _TOML_PAIR.findall(text)}
    if "chipshift" in keys:
        return "native"
    if tables & _TITAN_TABLES:
        return "torchtitan"
    if tables and tables <= _NATIVE_TABLES and tables & {"job", "plan"}:
        if re.search(r"^[ \t]*flavor[ \t]*=", text, re.M):
            return "torchtitan"
        return "native"
    return ""
