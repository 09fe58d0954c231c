"""What ``yq`` and ``jq`` print of a file that was given beside the script.

Sources: Mike Farah, yq, "Traverse (Read)"; jq manual, "Object Identifier-Index", 2026.
"""

from __future__ import annotations

import re
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.shell.values import Environment
from chipshift.jobs.source import Source
from chipshift.jobs.yaml_lines import parse

QUERY = re.compile(r"(?:yq|jq)[ \t]+([^|;&<>\n]+)")
_PATH = re.compile(r"\.[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*")


def queried(words: list[str], env: Environment) -> str | None:
    """The value at ``.a.b`` of a YAML or JSON file; None where it cannot be told."""
    plain = [word for word in words if not word.startswith("-") and word not in ("e", "eval")]
    if len(plain) != 2 or not _PATH.fullmatch(plain[0]):
        return None
    base = plain[1].rsplit("/", 1)[-1]
    text = env.given.get(base)
    if text is None:
        return None
    try:
        documents = parse(Source(base, text))  # JSON is YAML
    except InputError:
        return None
    value: Any = documents[0].tree if documents else None
    for key in plain[0].strip(".").split("."):
        value = value.get(key) if isinstance(value, dict) else None
    env.queried.add(base)
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value) if isinstance(value, (str, int, float)) else None
