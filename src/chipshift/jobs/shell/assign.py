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
    name, old = assignment.name, env.variables.get(assignment.name)
    if isinstance(assignment.value, tuple):
        elements = [v for word in assignment.value for v in expand(word, env)]
        table = _keyed(elements)
        before = old if isinstance(old, list) else ([old] if old is not None else [])
        plain = before + elements if assignment.append else elements
        env.set(name, table if table is not None else plain)
        return
    value = expand_text(assignment.value, env)
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


def read_into(words: list[Field], node: Simple, env: Environment) -> bool:
    """``IFS=, read -r A B <<< "1,2"`` and ``read -r -d '' X <<EOF``; whether there is text."""
    if not node.documents:
        return False
    last = node.documents[-1]
    text = last.text
    if last.word is not None:
        text = expand_text(last.word, env).text
    elif last.expands:
        text = expand_text(Cursor(text, last.line, file=env.file).document(), env).text
    options = [word.plain for word in words[1:] if word.plain.startswith("-")]
    names = [word.plain for word in words[1:] if re.fullmatch(r"[A-Za-z_]\w*", word.plain)]
    whole = any("d" in option for option in options)
    line = Field(text if whole else text.split("\n")[0], last.line)
    between = _separator(node, env)
    pieces = [Field(each, line.line) for each in line.text.strip().split(between)]
    if any("a" in option for option in options) and names:
        env.set(names[-1], pieces if between else split(line))
        return True
    parts = (pieces if between else split(line)) if len(names) > 1 else [line]
    for at, name in enumerate(names):
        rest = parts[at:] if at == len(names) - 1 else parts[at : at + 1]
        joined = (between or " ").join(part.text for part in rest)
        env.set(name, Field(joined.strip("\n") if whole else joined, line.line))
    return True


def _separator(node: Simple, env: Environment) -> str | None:
    """The one character of ``IFS=,`` before a command; None for blanks."""
    for assignment in node.assignments:
        if assignment.name == "IFS" and isinstance(assignment.value, Word):
            found = expand_text(assignment.value, env).plain
            return found if len(found) == 1 and not found.isspace() else None
    return None


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
