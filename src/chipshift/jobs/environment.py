"""Variables of the environment that a Python file asks for, as ``--set`` gives them."""

from __future__ import annotations

import re
from dataclasses import replace

from chipshift.jobs.overrides import Overrides
from chipshift.jobs.python_tree import LONGEST
from chipshift.jobs.source import Source

_ASKED = re.compile(
    r"(?:\bos\.|\b)(?:getenv|environ\.get)\(\s*([\"'])(?P<call>[A-Za-z_]\w*)\1\s*"
    r"(?:,(?:[^()]|\((?:[^()]|\([^()]{0,99}\)){0,99}\)){0,99})?\)"
    r"|\b(?:os\.)?environ\[\s*([\"'])(?P<item>[A-Za-z_]\w*)\3\s*\](?!\s*=[^=])"
)
"""``os.getenv("X", 1)``, ``os.environ.get("X")`` and ``os.environ["X"]`` that is not assigned."""


def with_environment(source: Source, overrides: Overrides) -> Source:
    """The file with each of those variables that ``--set`` gives as its text, lines kept."""
    asked = any(key in source.text for key in overrides.given)
    if not asked or len(source.text) > LONGEST or not re.search(r"environ|getenv", source.text):
        return source

    def written(match: re.Match[str]) -> str:
        text = overrides.variable(match["call"] or match["item"])
        if text is None:
            return match.group()
        return repr(text) + "\\\n" * match.group().count("\n")

    return replace(source, text=_ASKED.sub(written, source.text))
