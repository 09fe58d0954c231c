"""What commands print and read: pipelines, substitutions, here-documents, ``< <(...)``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from chipshift.jobs.shell.filters import filtered
from chipshift.jobs.shell.formats import formatted
from chipshift.jobs.shell.lex import OPEN, Cursor
from chipshift.jobs.shell.nodes import HereDoc, Simple
from chipshift.jobs.shell.values import Environment, Field, Input
from chipshift.jobs.shell.words import expand_text


@dataclass
class Sink:
    """What is printed for another command to read.

    Attributes:
        soft: part of it rests on what the launch may set otherwise.
        unsure: something printed here that only a run could tell.
    """

    text: str = ""
    soft: bool = False
    unsure: bool = False


class Walks(Protocol):
    """What walks a script."""

    env: Environment
    sinks: list[Sink | None]


def emit(walker: Walks, text: str, soft: bool = False) -> None:
    """Print, where somebody reads it."""
    sink = walker.sinks[-1] if walker.sinks else None
    if sink is not None:
        sink.text += walker.env.spend(text, 0)
        sink.soft = sink.soft or soft


def lose(walker: Walks) -> None:
    """Something is printed that only a run could tell."""
    sink = walker.sinks[-1] if walker.sinks else None
    if sink is not None:
        sink.unsure = True


def echoed(walker: Walks, words: list[Field]) -> None:
    """``echo`` and ``printf``."""
    soft = any(word.soft for word in words)
    if words[0].plain == "printf":
        emit(walker, formatted(words[1:], words[0].line).text, soft)
        return
    rest = words[1:]
    options = ""
    while rest and rest[0].plain in ("-n", "-e", "-E", "-ne", "-en"):
        options += rest.pop(0).plain[1:]
    text = " ".join(word.text for word in rest)
    if "e" in options:
        text = text.replace("\\n", "\n").replace("\\t", "\t")
    emit(walker, text if "n" in options else f"{text}\n", soft)


def kept(walker: Walks, words: list[Field], name: str) -> None:
    """``echo "$TEXT" > job.sh``: a script that is written, which later commands may start."""
    sink = Sink()
    walker.sinks.append(sink)
    echoed(walker, words)
    walker.sinks.pop()
    base = name.rsplit("/", 1)[-1]
    if base.endswith((".sh", ".sbatch", ".slurm")):
        walker.env.files[base] = walker.env.files.get(base, "") + Field(sink.text, 0).shown


def document_text(walker: Walks, document: HereDoc) -> str | None:
    """What a here-document or a redirection gives to read; None where only a run could tell."""
    env = walker.env
    if document.kind == "commands":
        made = env.capture(document.text, document.line)
        return f"{made.text}\n" if made is not None else None
    if document.kind == "file" and document.word is not None:
        name = expand_text(document.word, env).plain.rsplit("/", 1)[-1]
        return env.files.get(name, env.given.get(name))
    if document.word is not None:
        return f"{expand_text(document.word, env).text}\n"
    if not document.expands:
        return f"{document.text}\n"
    cursor = Cursor(document.text, document.line, file=env.file)
    return f"{expand_text(cursor.document(), env).text}\n"


def reading(walker: Walks, documents: list[HereDoc]) -> Input | None:
    """What is there to read: of several, the last."""
    if not documents:
        return walker.env.input
    text = document_text(walker, documents[-1])
    return Input(text, documents[-1].line) if text is not None else None


def through(walker: Walks, words: list[Field]) -> tuple[bool, bool | None]:
    """A program that prints what it reads otherwise: whether it could be followed, its success."""
    env = walker.env
    name, rest = words[0].plain.rsplit("/", 1)[-1], [word.plain for word in words[1:]]
    text = env.input.take(whole=True) or "" if env.input is not None else None
    base = rest[-1].rsplit("/", 1)[-1] if rest else ""
    if base and base in (env.files.keys() | env.given.keys()):
        if base not in env.files:
            env.queried.add(base)
        text, rest = env.files.get(base, env.given.get(base)), rest[:-1]
    if name == "tee" and text is not None:
        env.files.update({one.rsplit("/", 1)[-1]: text for one in rest if one[:1] != "-"})
        emit(walker, text)
        return True, True
    if text is None and not (name == "awk" and any("BEGIN" in word for word in rest)):
        return False, None
    known = OPEN not in (text or "") and not any(word.unknown for word in words[1:])
    printed = filtered(name, rest, text or "") if known else None
    if printed is None:
        return False, None
    emit(walker, printed[0], any(word.soft for word in words))
    return True, printed[1]


def into_array(walker: Walks, words: list[Field]) -> bool:
    """``mapfile -t A``; whether there is something known to read."""
    env = walker.env
    names = [word.plain for word in words[1:] if word.plain.isidentifier()]
    if env.input is None or len(names) > 1:
        return False
    text = env.input.take(whole=True) or ""
    lines = text.removesuffix("\n").split("\n") if text else []
    env.set(names[0] if names else "MAPFILE", [Field(line, words[0].line) for line in lines])
    return True


def redirected_text(node: Simple) -> bool:
    """``$(< file)``: a redirection alone, which prints what it reads."""
    return not node.words and not node.assignments and bool(node.documents)
