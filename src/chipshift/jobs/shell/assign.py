"""Assignments: ``X=1``, ``X+=2``, ``A=(...)``, ``A[i]=x``, ``M=([key]=x)``."""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs.shell.lex import Cursor
from chipshift.jobs.shell.nodes import Assignment, Simple, Word
from chipshift.jobs.shell.values import MOST_TEXT, Environment, Field, Keyed, Value, split
from chipshift.jobs.shell.words import arithmetic, expand, expand_text


def assign(assignment: Assignment, env: Environment) -> None:
    """Set a variable as the assignment says."""
    name, old = assignment.name, env.held(assignment.name)
    if isinstance(assignment.value, tuple):
        elements = [v for word in assignment.value for v in expand(word, env)]
        table = _keyed(elements)
        before = old if isinstance(old, list) else ([old] if old is not None else [])
        plain = before + elements if assignment.append else elements
        env.set(name, table if table is not None else plain)
        return
    value = expand_text(assignment.value, env)
    if name in env.integers and not value.unknown:
        value = arithmetic(value.plain, env, value.line)
    if assignment.index:
        _put_element(assignment, value, old, env)
    elif assignment.append and isinstance(old, list):
        env.set(name, [Field(old[0].text + value.text, value.line), *old[1:]] if old else [value])
    elif assignment.append and isinstance(old, Field):
        text = old.text + value.text
        if len(text) > MOST_TEXT:
            raise InputError(f"{env.file}:{value.line}: {name} grows past {MOST_TEXT} characters")
        env.set(name, Field(text, old.line, old.soft))
    else:
        env.set(name, value)


def read_into(words: list[Field], node: Simple, env: Environment) -> bool | None:
    """``IFS=, read -r A B <<< "1,2"``, ``read -r -d '' X <<EOF`` and ``while read -r X``.

    Returns:
        Whether there was something left to read; None where that is not known.
    """
    if env.input is None:
        return None
    options = [word.plain for word in words[1:] if word.plain.startswith("-")]
    names = [word.plain for word in words[1:] if re.fullmatch(r"[A-Za-z_]\w*", word.plain)]
    whole = any("d" in option for option in options)
    text = env.input.take(whole)
    line = Field(text or "", env.input.line)
    between = _separator(node, env)
    pieces = [Field(each, line.line) for each in line.text.strip().split(between)]
    if any("a" in option for option in options) and names:
        env.set(names[-1], pieces if between else split(line))
        return text is not None
    parts = (pieces if between else split(line)) if len(names) > 1 else [line]
    for at, name in enumerate(names or ["REPLY"]):
        rest = parts[at:] if at == len(names) - 1 else parts[at : at + 1]
        joined = (between or " ").join(part.text for part in rest)
        env.set(name, Field(joined.strip("\n") if whole else joined.strip(" \t"), line.line))
    return text is not None


def _separator(node: Simple, env: Environment) -> str | None:
    """The one character of ``IFS=,`` before a command, or in force; None for blanks."""
    found = env.between or ""
    for assignment in node.assignments:
        if assignment.name == "IFS" and isinstance(assignment.value, Word):
            found = expand_text(assignment.value, env).plain
    return found if len(found) == 1 and found not in " \n" else None


def _put_element(assignment: Assignment, value: Field, old: Value | None, env: Environment) -> None:
    """``A[2]=x`` and ``M[key]=x``; an index past the end is the next."""
    index = expand_text(Cursor(assignment.index, assignment.line).whole(True), env).plain
    listed = list(old) if isinstance(old, list) else []
    number = arithmetic(index, env, assignment.line).plain
    if isinstance(old, Keyed) or not re.fullmatch(r"-?\d{1,6}", number):
        table = old if isinstance(old, Keyed) else Keyed()
        table.put(index.strip("'\""), value)
        env.set(assignment.name, table)
    elif -len(listed) <= int(number) < len(listed):
        listed[int(number)] = value
        env.set(assignment.name, listed)
    else:
        env.set(assignment.name, [*listed, value])


def _keyed(elements: list[Field]) -> Keyed | None:
    """``([a]=1 [b]=2)`` as a table by its keys; None where it is a plain list."""
    found = [re.match(r"\[([^\]]*)\]=", element.text) for element in elements]
    if not elements or not all(found):
        return None
    table = Keyed()
    for element, match in zip(elements, found, strict=True):
        assert match is not None
        value = Field(element.text[match.end() :], element.line, element.soft)
        table.put(match.group(1).strip("'\""), value)
    return table
