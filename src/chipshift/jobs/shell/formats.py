"""``printf``'s formats: strings and whole numbers, padded."""

from __future__ import annotations

import re

from chipshift.jobs.shell.values import Field

_FORMAT = re.compile(
    r"%(?P<flags>[-+ 0#]*)(?P<width>\d{0,3})(?:\.(?P<most>\d{1,3}))?(?P<kind>[sdifxXqb%])"
)
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\\": "\\"}
WIDEST = 200
"""Widest field of a format that is padded to."""


def formatted(words: list[Field], line: int) -> Field:
    """``printf``'s text; its format is used again while arguments are left."""
    if not words:
        return Field("", line)
    pattern, arguments = words[0].plain, list(words[1:])
    soft = any(word.soft for word in words)
    text = ""
    for _ in range(100):
        before = len(arguments)
        text += _FORMAT.sub(lambda match: _one(match, arguments), _unescaped(pattern))
        if not arguments or len(arguments) == before:
            break
    return Field(text, line, soft)


def _unescaped(text: str) -> str:
    return re.sub(r"\\[nt\\]", lambda match: _ESCAPES[match.group()], text)


def _one(match: re.Match[str], arguments: list[Field]) -> str:
    kind, flags = match["kind"], match["flags"]
    if kind == "%":
        return "%"
    text = arguments.pop(0).text if arguments else ""
    width = min(int(match["width"] or 0), WIDEST)
    if kind == "s" and match["most"] is not None:
        text = text[: int(match["most"])]
    if kind in "dixX" and re.fullmatch(r"-?\d{1,18}", text):
        number = int(text)
        text = format(number, kind) if kind in "xX" else str(number)
        if "0" in flags and "-" not in flags:
            return text.zfill(width)
    return text.ljust(width) if "-" in flags else text.rjust(width)
