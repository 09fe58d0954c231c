"""The walk of a script's commands: what bash does itself, what it starts, what that prints."""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs.shell import started, streams
from chipshift.jobs.shell.assign import assign, read_into
from chipshift.jobs.shell.builtins import builtin, forget
from chipshift.jobs.shell.conditions import FILE_TESTS, holds
from chipshift.jobs.shell.declared import DECLARING, declare
from chipshift.jobs.shell.filters import PROGRAMS
from chipshift.jobs.shell.flow import Flow
from chipshift.jobs.shell.found import Command
from chipshift.jobs.shell.lex import CONTINUED, Cursor
from chipshift.jobs.shell.loops import LEAVING, Leave
from chipshift.jobs.shell.nodes import Node, Simple, Word
from chipshift.jobs.shell.parse import parse
from chipshift.jobs.shell.streams import Sink
from chipshift.jobs.shell.values import Environment, Field
from chipshift.jobs.shell.words import expand, expand_text

DEEPEST = 10
"""Scripts, functions and substitutions inside one another."""

_SILENT = ("mkdir", "cd", "rm", "cp", "mv", "set", "shift", "exit", "sleep", "wait", "touch")
_QUIET = (*_SILENT, "pip", "module")
_OWN = frozenset(
    {
        *("read", "mapfile", "readarray", "echo", "printf", "getopts", "shift", "set", "let"),
        *("unset", "source", ".", "command", "type", "hash"),
    }
)


class Walker(Flow):
    """A script on its way through."""

    def __init__(self, env: Environment, file: str) -> None:
        super().__init__(env, file)
        env.capture = self.capture

    def capture(self, text: str, line: int) -> Field | None:
        """What commands print, from whose walk nothing else is kept; None where it is not known.

        A job that is submitted there (``JOB=$(sbatch train.sh)``) is started all the same.
        """
        if self.depth >= DEEPEST:
            return None
        env, sink = self.env, Sink()
        variables, functions = dict(env.variables), dict(self.functions)
        exported, positional = dict(env.exported), list(env.positional)
        read, doubts = env.input, env.doubts
        commands, skipped = len(self.found.commands), len(self.found.skipped)
        self.sinks.append(sink)
        self.depth += 1
        try:
            self.apart(parse(text, self.file, line, self.depth))
        finally:
            self.sinks.pop()
            self.depth -= 1
            self.functions = functions
            env.variables, env.exported, env.positional = variables, exported, positional
            env.input = read
            added = self.found.commands[commands:]
            if not any(one.words[0].plain.endswith("sbatch") for one in added):
                del self.found.commands[commands:]
            del self.found.skipped[skipped:]
        if sink.unsure:
            return None
        return Field(sink.text.rstrip("\n"), line, sink.soft or env.doubts != doubts)

    def test(self, node: Simple, first: str) -> bool:
        """``[ ... ]`` and ``[[ ... ]]``, where quoted text is no pattern."""
        tokens: list[str] = []
        for word in node.words[1:]:
            before = tokens[-1] if tokens else ""
            if before == "-v":
                tokens.append("set" if self.is_set(self.text(word)) else "")
            elif first == "[[" and before in ("==", "=", "!="):
                tokens.append(self.pattern(word))
            else:
                tokens.append(self.text(word))
        if first != "test" and tokens and tokens[-1].strip("]") == "":
            tokens.pop()
        files = any(token in FILE_TESTS for token in tokens)
        self.env.doubts += files
        self.env.files_asked += files
        return holds(tokens, self.env)

    def is_set(self, name: str) -> bool:
        """``-v X`` and ``-v A[key]``."""
        if not re.fullmatch(r"\w+(\[[^\]]*\])?", name):
            return False
        word = Word((Cursor("${" + name + "+set}", 1).dollar(True),), 1)
        return expand_text(word, self.env).plain == "set"

    def simple(self, node: Simple) -> bool | None:
        first = node.words[0].literal if node.words else None
        if first in ("[", "[[", "test"):
            return self.test(node, first)
        if first in ("true", ":", "false"):
            for word in node.words[1:]:
                expand(word, self.env)  # ``: ${X:=1}`` is how a script sets what is not set yet
            return first != "false"
        if first in DECLARING:
            declare(node, first, self.env, self.scope)
            return True
        if streams.redirected_text(node):
            text = streams.document_text(self, node.documents[-1])
            streams.lose(self) if text is None else streams.emit(self, text)
            return True
        if not node.words:
            return self.assignments(node)
        words = [value for word in node.words for value in expand(word, self.env)]
        return self.reading(node.documents, node.aside, lambda: self.command(node, words))

    def assignments(self, node: Simple) -> bool | None:
        """Assignments alone; their success is that of a program which they ask."""
        known: bool | None = True
        for one in node.assignments:
            assign(one, self.env)
            parts = one.value.parts if isinstance(one.value, Word) else ()
            value = self.env.held(one.name)
            if any(part.kind == "command" for part in parts):
                known = None if isinstance(value, Field) and value.unknown else known
        return known

    def command(self, node: Simple, words: list[Field]) -> bool | None:
        while words and (match := re.match(r"([A-Za-z_]\w*)=", words[0].plain)):
            value = Field(words[0].text[match.end() :], words[0].line, words[0].soft)
            self.env.set(match.group(1), value)
            words = words[1:]
        if not words:
            return True
        name = words[0].plain
        if name in ("true", "false"):  # as ``if $USE_FP8; then`` has it
            return name == "true"
        if name in self.functions:
            return self.call(self.functions[name], words[1:])
        if name == "eval":
            return self.again(" ".join(w.text for w in words[1:]), words[0].line)
        if name in LEAVING and self.leaves(name):
            levels = words[1].plain if len(words) > 1 else "1"
            count = int(levels) if re.fullmatch(r"[1-9]", levels) else 1
            raise Leave(name, count, not self.unsure)
        return self.own(node, name, words) if name in _OWN else self.program(node, name, words)

    def own(self, node: Simple, name: str, words: list[Field]) -> bool | None:
        """Bash's own commands."""
        if name == "read":
            told = read_into(words, node, self.env)
            return told if told is not None else self.program(node, name, words)
        if name in ("mapfile", "readarray"):
            return True if streams.into_array(self, words) else self.program(node, name, words)
        if name in ("echo", "printf") and [word.plain for word in words[1:2]] != ["-v"]:
            if node.output is not None:
                streams.kept(self, words, expand_text(node.output, self.env).shown)
            streams.echoed(self, words)
            return True
        taken, status = builtin(name, words, self.env)
        if taken:
            return status
        if name == "unset":
            forget(words[1:], self.env)
            return True
        if name in ("source", ".") and len(words) > 1:
            return self.source(words[1])
        if name in ("command", "type", "hash") and [w.plain for w in words[1:2]] == ["-v"]:
            self.env.doubts += 1
            streams.lose(self)
            return True
        return self.program(node, name, words)

    def program(self, node: Simple, name: str, words: list[Field]) -> bool | None:
        """A program: what it prints where that is known, and that it is started."""
        if name in PROGRAMS:
            followed, status = self.filter(node, words)
            if followed:
                self.documents(node, name, words)
                return status
        self.documents(node, name, words)
        if name not in _SILENT:
            streams.lose(self)
        if name in _QUIET:
            return True
        own, inner = started.written(words, self.env), started.shell_text(words)
        if own is not None:
            self.found.written.append(Field(own[0], words[0].line))
            self.again(own[0], words[0].line, own[1])
        elif inner is not None:
            self.again(inner[0].text, inner[0].line, inner[1])
        assigned = tuple(
            (a.name, expand_text(a.value, self.env))
            for a in node.assignments
            if isinstance(a.value, Word)
        )
        self.found.commands.append(Command(tuple(words), assigned, node.line, self.file))
        if name == "exec" and len(words) > 1 and not self.unsure and not self.sinks:
            raise Leave("exit", 1, True)
        return None

    def filter(self, node: Simple, words: list[Field]) -> tuple[bool, bool | None]:
        """A program that prints what it reads otherwise, into a file too (``sed s/N/4/ a > b``)."""
        if node.output is None:
            return streams.through(self, words)
        sink = Sink()
        self.sinks.append(sink)
        try:
            followed, status = streams.through(self, words)
        finally:
            self.sinks.pop()
        if followed and not sink.unsure:
            target = expand_text(node.output, self.env).shown.rsplit("/", 1)[-1]
            self.env.files[target] = sink.text
        return followed, status

    def leaves(self, name: str) -> bool:
        """Whether there is something to leave.

        An ``exit`` that a condition leads to which only a run could tell is not followed, nor one
        before which nothing was started.
        """
        if name == "return":
            return self.calls > 0 or (self.sourcing > 0 and not self.unsure)
        if name == "exit" and not self.unsure and (self.found.commands or self.sinks):
            return True
        return self.loops > 0

    def documents(self, node: Simple, name: str, words: list[Field]) -> None:
        """Here-documents: a script for a shell or the scheduler, or a file that ``cat`` writes."""
        for document in node.documents:
            if document.kind not in ("text", "word"):
                continue
            text = document.text
            if document.expands:
                cursor = Cursor(text, document.line, file=self.file)
                text = expand_text(cursor.document(), self.env).text
            if node.output is not None and name in ("cat", "tee"):
                target = expand_text(node.output, self.env).shown.rsplit("/", 1)[-1]
                self.env.files[target] = Field(text, 0).shown
            elif name in (*started.SHELLS, "sbatch", "srun", "ssh", "pdsh"):
                self.found.written.append(Field(text, document.line))
                self.again(text, document.line, started.given_to_shell(words))

    def again(self, text: str, line: int, arguments: list[Field] | None = None) -> bool | None:
        """Text that a shell would read as a script of its own.

        Args:
            arguments: its own; None for ``eval``, which stays in this shell.
        """
        self.depth += 1
        if self.depth > DEEPEST:
            raise InputError(f"{self.file}:{line}: scripts nest more than {DEEPEST} deep")
        script = text.replace(CONTINUED, "\\\n")
        before, own = self.env.positional, self.env.given_none
        if arguments:
            self.env.positional, self.env.given_none = arguments, False
        try:
            nodes = parse(script, self.file, line, self.depth)
            return self.run(nodes) if arguments is None else self.apart(nodes)
        finally:
            self.env.positional, self.env.given_none = before, own
            self.depth -= 1

    def call(self, body: tuple[Node, ...], arguments: list[Field]) -> bool | None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise InputError(f"{self.file}: functions nest more than {DEEPEST} deep")
        env = self.env
        before, env.positional = env.positional, arguments
        own, env.given_none = env.given_none, False
        scope, self.scope = self.scope, {}
        references = dict(env.references)
        self.calls += 1
        status: bool | None = True
        try:
            status = self.run(body)
        except Leave as leave:
            if leave.kind != "return":
                raise
        finally:
            for name, value in self.scope.items():
                if value is None:
                    env.variables.pop(name, None)
                else:
                    env.variables[name] = value
            env.positional, env.given_none, env.references = before, own, references
            self.scope = scope
            self.calls -= 1
            self.depth -= 1
        return status

    def source(self, path: Field) -> bool | None:
        base = path.plain.rsplit("/", 1)[-1]
        text = self.env.given.get(base, self.env.files.get(base))
        if text is None:
            self.env.unsourced.setdefault(base if not path.unknown else path.shown, path.line)
            return None
        self.depth += 1
        if self.depth > DEEPEST:
            raise InputError(f"{self.file}:{path.line}: sourced files nest more than 10 deep")
        if base in self.env.given:
            self.found.sourced.add(base)
        before, self.file = self.file, base
        self.sourcing += 1
        try:
            return self.run(parse(text, base, 1, self.depth))
        except Leave as leave:
            if leave.kind != "return":
                raise
            return True
        finally:
            self.file = before
            self.sourcing -= 1
            self.depth -= 1
