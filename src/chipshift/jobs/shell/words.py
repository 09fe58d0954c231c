"""Words expanded: variables, arithmetic, defaults, patterns; what is not known stays marked."""

from __future__ import annotations

import fnmatch
import re

from chipshift.errors import InputError
from chipshift.jobs.shell.arith import Unsure, evaluate
from chipshift.jobs.shell.lex import CONTINUED, OPEN, Cursor
from chipshift.jobs.shell.nodes import Part, Word
from chipshift.jobs.shell.values import (
    MOST_TEXT,
    Environment,
    Field,
    Value,
    split,
    unresolved,
)

DEEPEST = 40


def expand(word: Word, env: Environment, depth: int = 0) -> list[Field]:
    """The fields a word becomes: unquoted expansions split, ``"${A[@]}"`` one an element."""
    fields: list[Field] = []
    open_field: Field | None = None

    def glue(piece: Field, quoted: bool) -> None:
        nonlocal open_field
        if open_field is None:
            open_field = piece
        else:
            line = piece.line if not open_field.text.strip(CONTINUED) else open_field.line
            text = open_field.text + piece.text
            open_field = Field(text, line, open_field.soft or piece.soft)
        if len(open_field.text) > MOST_TEXT:
            raise InputError(f"{env.file}:{word.line}: a value grows past {MOST_TEXT} characters")

    def close() -> None:
        nonlocal open_field
        if open_field is not None:
            fields.append(open_field)
            open_field = None

    line = word.line
    for part in word.parts:
        if part.kind == "text":
            if part.text == CONTINUED:
                line += 1
            if part.text or part.quoted:
                glue(Field(part.text, line), part.quoted)
            line += part.text.count("\n")
            continue
        value = part_value(part, env, line, depth)
        if isinstance(value, Field):
            pieces = [value] if part.quoted else split(value)
            whole = not part.quoted
        else:
            whole = not part.quoted
            pieces = value if part.quoted else [p for v in value for p in split(v)]
        for count, piece in enumerate(pieces):
            if count:
                close()
            glue(piece, part.quoted)
        if whole and not pieces:
            continue
    close()
    return [f for f in fields if f.text or _quoted_empty(word)]


def _quoted_empty(word: Word) -> bool:
    return any(part.quoted for part in word.parts)


def expand_text(word: Word, env: Environment, depth: int = 0) -> Field:
    """A word as one text, as an assignment or a condition takes it: nothing is split."""
    text, soft, line, first = "", False, word.line, word.line
    for part in word.parts:
        if part.kind == "text":
            text += part.text
            line += part.text.count("\n") + part.text.count(CONTINUED)
            continue
        value = part_value(part, env, line, depth)
        pieces = [value] if isinstance(value, Field) else value
        if not text.strip(CONTINUED + " \n") and pieces:
            first = pieces[0].line or first
        text += " ".join(piece.text for piece in pieces)
        soft = soft or any(piece.soft for piece in pieces)
        if len(text) > MOST_TEXT:
            raise InputError(f"{env.file}:{word.line}: a value grows past {MOST_TEXT} characters")
    first = word.line if "\n" in text or CONTINUED in text else first
    return Field(text, first, soft)


def part_value(part: Part, env: Environment, line: int, depth: int) -> Value:
    """What one ``$`` form stands for."""
    if depth > DEEPEST:
        raise InputError(f"{env.file}:{line}: expansions nest more than {DEEPEST} deep")
    if part.kind == "arith":
        return arithmetic(part.text, env, line, depth)
    if part.kind == "command":
        return _substitution(part.text, env, line, depth)
    return _variable(part, env, line, depth)


def arithmetic(text: str, env: Environment, line: int, depth: int = 0) -> Field:
    """``$(( text ))``; soft when it rests on a soft variable, marked when it cannot be done."""
    soft = False

    def look_up(name: str) -> int:
        nonlocal soft
        value = env.get(name)
        if isinstance(value, list):
            value = value[0] if value else None
        if value is None:
            raise Unsure(name)
        soft = soft or value.soft
        if value.unknown:
            raise Unsure(value.unknown[0])
        plain = value.plain.strip()
        return int(plain) if re.fullmatch(r"-?\d{1,18}", plain) else evaluate(plain, look_once)

    def look_once(name: str) -> int:
        raise Unsure(name)

    if "$" in text and not re.fullmatch(r"(?:[^$]|\$\{?[A-Za-z_]\w*\}?)*", text):
        inner = expand_text(Cursor(text, line, file=env.file).whole(True), env, depth + 1)
        if inner.unknown:
            return unresolved(inner.unknown[0], line)
        text, soft = inner.plain, inner.soft
    try:
        return Field(str(evaluate(text, look_up)), line, soft)
    except Unsure as missing:
        return unresolved(str(missing), line)


def _substitution(text: str, env: Environment, line: int, depth: int) -> Field:
    """``$(echo X)`` and ``$(seq ...)``-like text is known; other commands' output is not."""
    stripped = text.strip()
    match = re.fullmatch(r"(?:echo|printf)[ \t]+(?:-n[ \t]+)?([^|;&<>\n]+)", stripped)
    if match:
        return expand_text(Cursor(match.group(1), line, file=env.file).whole(False), env, depth + 1)
    match = re.fullmatch(r"expr[ \t]+([^|;&<>\n]+)", stripped)
    if match:
        return arithmetic(match.group(1).replace("\\", ""), env, line, depth + 1)
    return unresolved(f"({stripped[:78]})", line)


def _variable(part: Part, env: Environment, line: int, depth: int) -> Value:
    name, op = part.text, part.op
    if op == "!" and not part.argument:
        pointed = env.get(name)
        name = pointed.plain if isinstance(pointed, Field) else name
        op = ""
    value = env.get(name)
    if isinstance(value, list):
        return _array(value, part, env, line)
    empty = value is None or not value.plain
    if (op.startswith(":") and op[1:2] in ("-", "=", "+", "?")) or op in ("-", "=", "+", "?"):
        missing = empty if op.startswith(":") else value is None
        return _defaulted(part, op[-1], None if missing else value, name, env, line, depth)
    if value is None:
        if name in ("@", "*") or part.index in ("@", "*"):
            return []
        if name in ("$", "?", "-", "#"):
            return Field("0", line)
        return unresolved(name, line)
    if op == "#" and part.argument is None:
        return Field(str(len(value.plain)), line, value.soft)
    if op and part.argument is not None:
        return _edited(value, op, part.argument, env, depth)
    return value


def _array(value: list[Field], part: Part, env: Environment, line: int) -> Value:
    if part.op == "#" and part.argument is None:
        return Field(str(len(value)), line)
    if part.index in ("@", "*") or part.text in ("@", "*"):
        if part.quoted and (part.index == "*" or part.text == "*"):
            return Field(" ".join(f.text for f in value), line)
        return value
    at = arithmetic(part.index or "0", env, line).plain
    index = int(at) if re.fullmatch(r"-?\d{1,6}", at) else 0
    return value[index] if -len(value) <= index < len(value) else Field("", line)


def _defaulted(
    part: Part, op: str, value: Field | None, name: str, env: Environment, line: int, depth: int
) -> Field:
    argument = part.argument or Word((), line)
    if op == "+":
        return Field("", line) if value is None else expand_text(argument, env, depth + 1)
    if value is not None:
        return value
    if op == "?":
        return unresolved(name, line)
    default = expand_text(argument, env, depth + 1)
    soft = Field(default.text, default.line, True)
    if op == "=":
        env.set(name, soft)
    return soft


def _edited(value: Field, op: str, argument: Word, env: Environment, depth: int) -> Field:
    """``${X%pattern}`` and its relatives."""
    text = value.plain
    pattern = expand_text(argument, env, depth + 1).plain
    if OPEN in pattern or OPEN in text:
        return value
    if op in ("%", "%%", "#", "##"):
        return Field(_trimmed(text, op, pattern), value.line, value.soft)
    if op in ("/", "//"):
        old, _, new = pattern.partition("/")
        if old and not set(old) & set("*?["):
            return Field(text.replace(old, new, 1 if op == "/" else -1), value.line, value.soft)
    if op in ("^^", ",,"):
        return Field(text.upper() if op == "^^" else text.lower(), value.line, value.soft)
    if op == ":":
        numbers = re.fullmatch(r"\s*(-?\d{1,6})(?::(\d{1,6}))?\s*", pattern)
        if numbers:
            start = int(numbers.group(1))
            length = int(numbers.group(2)) if numbers.group(2) else None
            piece = text[start:] if length is None else text[start:][:length]
            return Field(piece, value.line, value.soft)
    return value


def _trimmed(text: str, op: str, pattern: str) -> str:
    if len(text) > 4096 or len(pattern) > 256:
        return text
    cuts = range(len(text) + 1)
    if op[0] == "#":
        order = cuts if op == "#" else reversed(cuts)
        return next((text[c:] for c in order if fnmatch.fnmatchcase(text[:c], pattern)), text)
    order = reversed(cuts) if op == "%" else cuts
    return next((text[:c] for c in order if fnmatch.fnmatchcase(text[c:], pattern)), text)
