"""The shell's patterns, and regular expressions that cannot run away."""

from __future__ import annotations

import fnmatch
import re
import warnings

LONGEST_TEXT, LONGEST_PATTERN = 4096, 256
MOST_STARS = 3
"""Unbounded repeats in one pattern: tried on a short text, they cost at most its cube."""

_CLASSES = {
    "digit": r"\d", "space": r"\s", "alpha": "A-Za-z", "alnum": "A-Za-z0-9",
    "upper": "A-Z", "lower": "a-z", "xdigit": "0-9A-Fa-f", "blank": r" \t",
    "punct": r"!-/:-@\[-`{-~",
}  # fmt: skip


def literally(text: str) -> str:
    """Text that a pattern has in quotes: none of its characters stands for others."""
    return re.sub(r"[*?\[\\]", lambda match: f"[{match.group()}]", text)


def glob(pattern: str) -> str:
    """A glob as a regular expression, unanchored."""
    made, at = "", 0
    while at < len(pattern):
        here = pattern[at]
        end = pattern.find("]", at + 2) if here == "[" else -1
        if here == "[" and pattern[at : at + 3] == "[[]":
            made, at = made + r"\[", at + 3
            continue
        if end > 0:
            while (inner := pattern.find("[:", at, end)) >= 0 and pattern[end - 1] == ":":
                end = pattern.find("]", end + 1)
                if end < 0 or inner < 0:
                    return re.escape(pattern)
                if pattern[end - 1] != ":":
                    break
            body = pattern[at + 1 : end]
            negated = body[:1] in ("!", "^")
            listed = _classed(body[1:] if negated else body)
            made, at = f"{made}[{'^' if negated else ''}{listed}]", end + 1
            continue
        made += {"*": ".*", "?": "."}.get(here) or re.escape(here)
        at += 1
    return made


def _classed(body: str) -> str:
    """The inside of brackets, with POSIX's classes."""
    named = re.sub(r"\[:(\w+):\]", lambda match: _CLASSES.get(match.group(1), ""), body)
    return re.sub(r"\\(?![dst])|[\[&~|]", lambda match: "\\" + match.group(), named)


def matches(text: str, pattern: str) -> bool:
    """Whether a glob fits the whole text."""
    found = searched(rf"(?s:{glob(pattern)})\Z", text, from_start=True)
    return bool(found)


def extended(pattern: str) -> str:
    """A regular expression of POSIX as Python has it."""
    return re.sub(r"\[:(\w+):\]", lambda match: _CLASSES.get(match.group(1), ""), pattern)


def searched(pattern: str, text: str, *, from_start: bool = False) -> re.Match[str] | bool | None:
    """What a regular expression finds; False where it is none, or might take too long."""
    repeats = len(re.findall(r"(?<!\\)[*+]|\{\d+,\}", pattern))
    nested = re.search(r"[*+}]\)*[*+{]|\)[*+{]", pattern.replace("\\)", ""))
    if len(pattern) > LONGEST_PATTERN or len(text) > LONGEST_TEXT or nested:
        return False
    if repeats > MOST_STARS or (repeats > 1 and len(text) > 400):
        return False
    made = compiled(pattern)
    if made is None:
        return False
    return made.match(text) if from_start else made.search(text)


def compiled(pattern: str) -> re.Pattern[str] | None:
    """A regular expression; None where it is none."""
    try:
        with warnings.catch_warnings():  # of sets that a later Python may read otherwise
            warnings.simplefilter("ignore")
            return re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return None


def replaced(text: str, op: str, pattern: str, put: str, most: int) -> str | None:
    """``${X/a/b}``: the longest match, the first or all, or at one end; None past ``most``."""
    if not pattern or not set(pattern) & set("*?["):
        old = pattern
        if op in ("/", "//") and old:
            if len(text) + text.count(old) * (len(put) - len(old)) > most and op == "//":
                return None
            return text.replace(old, put, 1 if op == "/" else -1)
        if op == "/#" and text.startswith(old):
            return put + text[len(old) :]
        if op == "/%" and text.endswith(old):
            return text[: len(text) - len(old)] + put
        return text
    made = {"/#": rf"\A(?s:{glob(pattern)})", "/%": rf"(?s:{glob(pattern)})\Z"}.get(op)
    made = made or f"(?s:{glob(pattern)})"
    pattern_made = compiled(made)
    found = searched(made, text)
    if not found or pattern_made is None or len(text) * (len(put) + 1) > most:
        return text
    return pattern_made.sub(lambda match: put if match.group() else "", text, count=int(op != "//"))


def trimmed(text: str, op: str, pattern: str) -> str:
    if len(text) > 4096 or len(pattern) > 256:
        return text
    pattern = re.sub(r"\[\^(?!\])", "[!", pattern)
    cuts = range(len(text) + 1)
    if op[0] == "#":
        order = cuts if op == "#" else reversed(cuts)
        return next((text[c:] for c in order if fnmatch.fnmatchcase(text[:c], pattern)), text)
    order = reversed(cuts) if op == "%" else cuts
    return next((text[:c] for c in order if fnmatch.fnmatchcase(text[c:], pattern)), text)
