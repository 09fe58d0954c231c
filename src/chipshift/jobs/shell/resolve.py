"""A script walked: which commands it would start, with what arguments and environment."""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Iterable, Mapping

from chipshift.errors import InputError
from chipshift.jobs.shell.assign import assign, read_into
from chipshift.jobs.shell.builtins import builtin
from chipshift.jobs.shell.conditions import holds
from chipshift.jobs.shell.found import Command, Resolved
from chipshift.jobs.shell.lex import CONTINUED, Cursor
from chipshift.jobs.shell.loops import (
    Leave,
    TooLong,
    Turns,
    takes_arguments,
    walk_arithmetic,
    walk_while,
)
from chipshift.jobs.shell.nodes import (
    Arithmetic,
    Case,
    Chain,
    For,
    ForArithmetic,
    Function,
    Group,
    If,
    Node,
    Select,
    Simple,
    While,
    Word,
    names_set,
)
from chipshift.jobs.shell.parse import parse
from chipshift.jobs.shell.values import Environment, Field
from chipshift.jobs.shell.words import arithmetic, expand, expand_text

LONGEST = 1_000_000
"""Characters of a launch script: real ones stay below a hundredth of it."""

LONGEST_ARGUMENTS = 10_000

MOST_STEPS = 5_000
"""Steps of one loop; one that takes more is left where it is."""

LEAVING = ("break", "continue", "return", "exit")
ARGUMENTS = "arguments of the script's own: none is given, so that what stands before holds"

_SHELLS = ("bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/usr/bin/bash")
STARTING = ("sbatch", "qsub", "bsub", "bash", "sh", "source", ".")
_QUIET = (
    *("echo", "printf", "mkdir", "cd", "rm", "cp", "mv", "pip", "module", "set", "shift", "exit"),
)


def resolve(
    text: str,
    file: str,
    fixed: Mapping[str, str] | None = None,
    preset: Mapping[str, Field] | None = None,
    beside: Mapping[str, str] | None = None,
) -> Resolved:
    """Walk a script.

    Args:
        fixed: ``--set`` values of variables; ``args`` holds the script's own arguments.
        preset: variables the scheduler sets (``SLURM_NNODES``).
        beside: texts of files given beside it, by base name, for ``source``.

    Raises:
        InputError: too long, nested too deep, or a walk that does not end.
    """
    if len(text) > LONGEST:
        raise InputError(
            f"{file} is a script of {len(text)} characters; expected a launch script of at most "
            f"{LONGEST}"
        )
    env = Environment(dict(fixed or {}), file=file)
    env.variables.update(preset or {})
    env.positional = _arguments(env, text)
    env.given = dict(beside or {})
    walker = _Walker(env, dict(beside or {}), file)
    walker.run(parse(text, file))
    walker.found.environment = env
    walker.found.sourced |= env.queried
    return walker.found


def _arguments(env: Environment, text: str) -> list[Field]:
    """The script's own arguments, as ``--set args='a b c'`` gives them.

    Raises:
        InputError: a quote in them is not closed.
    """
    if "args" not in env.fixed or re.search(r"\bargs\+?=", text):
        return []
    env.used_fixed.add("args")
    try:
        return [Field(word, 0) for word in shlex.split(env.fixed["args"][:LONGEST_ARGUMENTS])]
    except ValueError:
        raise InputError(
            f"--set args is {env.fixed['args'][:60]}; expected words as the script is started with"
        ) from None


class _Walker:
    def __init__(self, env: Environment, beside: dict[str, str], file: str) -> None:
        self.env, self.beside, self.file = env, beside, file
        self.functions: dict[str, tuple[Node, ...]] = {}
        self.found = Resolved()
        self.depth = self.loops = self.calls = 0
        self.unsure = 0  # unresolved names met in conditions so far

    def run(self, nodes: Iterable[Node]) -> bool | None:
        """Walk commands; the last one's success, None when only a run could tell."""
        status: bool | None = True
        for node in nodes:
            self.env.steps -= 1
            if self.env.steps < 0:
                raise TooLong(
                    f"{self.file} takes too many steps to resolve; expected a launch script"
                )
            status = self.step(node)
        return status

    def step(self, node: Node) -> bool | None:
        if isinstance(node, Simple):
            return self.simple(node)
        if isinstance(node, Chain):
            return self.chain(node)
        if isinstance(node, If):
            return self.branch(node)
        if isinstance(node, Case):
            return self.case(node)
        if isinstance(node, For):
            return self.loop(node)
        if isinstance(node, Group):
            return self.group(node)
        if isinstance(node, Arithmetic):
            value = arithmetic(node.text, self.env, node.line)
            return None if value.unknown else value.plain != "0"
        if isinstance(node, Function):
            self.functions[node.name] = node.body
            return True
        return self.looped(node)

    def looped(self, node: While | ForArithmetic | Select) -> bool | None:
        """A loop's turns as far as they are known; what is not is listed."""
        if isinstance(node, Select):
            self.found.skipped.append((node.line, "select: somebody chooses"))
            return None
        self.loops += 1
        before, given = self.env.steps, list(self.env.positional)
        self.env.steps = min(before, MOST_STEPS)
        try:
            if isinstance(node, While):
                told = walk_while(node, self.run, self.env)
            else:
                told = walk_arithmetic(node, self.run, self.env)
        except Leave as leave:
            told = ""
            if not self.ends(leave):
                raise
        except TooLong:
            told = "a loop of too many steps"
        finally:
            self.loops -= 1
            self.env.steps = before - max(0, min(before, MOST_STEPS) - self.env.steps)
        if not told and not given and isinstance(node, While) and takes_arguments(node):
            told = ARGUMENTS
        if told:
            self.found.skipped.append((node.line, told))
        return None if told else True

    def chain(self, node: Chain) -> bool | None:
        status: bool | None = True
        before = self.unsure
        for op, negated, commands in node.links:
            if op == "&&" and status is False:
                if self.unsure == before:
                    self.env.passed |= names_set(commands)
                continue
            if op == "||" and status is not False:
                continue
            status = self.run(commands)
            if negated and status is not None:
                status = not status
        return status

    def branch(self, node: If) -> bool | None:
        before, known, taken = self.unsure, True, node.otherwise
        for condition, body in node.branches:
            status = self.run(condition)
            known = known and status is not None
            if status:
                taken = body
                break
        if known and self.unsure == before:
            bodies = (*(body for _, body in node.branches), node.otherwise)
            for body in bodies:
                if body is not taken:
                    self.env.passed |= names_set(body)
        return self.run(taken)

    def case(self, node: Case) -> bool | None:
        subject = self.text(node.subject)
        for patterns, body in node.branches:
            for pattern in patterns:
                if fnmatch.fnmatchcase(subject, self.text(pattern)):
                    return self.run(body)
        return True

    def loop(self, node: For) -> bool | None:
        values = [value for word in node.words for value in expand(word, self.env)]
        turns = Turns(self.run, self.env)
        self.loops += 1
        try:
            for value in values[:1000]:
                self.env.set(node.name, value)
                if not turns.turn(node.body):
                    break
        except Leave as leave:
            if not self.ends(leave):
                raise
        finally:
            self.loops -= 1
        return turns.status

    def group(self, node: Group) -> bool | None:
        before = dict(self.env.variables)
        status = self.run(node.body)
        if node.apart:
            self.env.variables = before
        return status

    def text(self, word: Word) -> str:
        """A word in a condition: what nothing sets is empty, and remembered."""
        value = expand_text(word, self.env)
        for name in value.unknown:
            self.env.unset.setdefault(name, word.line)
            self.unsure += 1
        return value.empty_unknown

    def simple(self, node: Simple) -> bool | None:
        first = node.words[0].literal if node.words else None
        if first in ("[", "[[", "test"):
            tokens = [self.text(word) for word in node.words[1:]]
            if first != "test" and tokens and tokens[-1].strip("]") == "":
                tokens.pop()
            return holds(tokens)
        if first in ("true", ":", "false"):
            for word in node.words[1:]:
                expand(word, self.env)  # ``: ${X:=1}`` is how a script sets what is not set yet
            return first != "false"
        declares = first in ("export", "local", "declare", "readonly", "typeset")
        if not node.words or declares:
            for assignment in node.assignments:
                assign(assignment, self.env)
                if first == "export":
                    self.export(assignment.name)
            for word in node.words[1:] if first == "export" else ():
                self.export(word.literal or "")
            return True
        words = [value for word in node.words for value in expand(word, self.env)]
        return self.command(node, words)

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
            raise Leave(name, int(levels) if re.fullmatch(r"[1-9]", levels) else 1)
        if name == "read" and read_into(words, node, self.env):
            return True
        taken, status = builtin(name, words, self.env)
        if taken:
            return status
        if name == "unset":
            for word in words[1:]:
                self.env.variables.pop(word.plain, None)
                self.env.exported.pop(word.plain, None)
            return True
        if name in ("source", ".") and len(words) > 1:
            return self.source(words[1])
        self.documents(node, name)
        if name in _QUIET:
            return True
        if name in STARTING and (written := self.written(words)) is not None:
            self.found.written.append(written)
            self.again(written.text, node.line)
        inner = _shell_text(words)
        if inner is not None:
            self.again(inner.text, inner.line)
        assigned = tuple(
            (a.name, expand_text(a.value, self.env))
            for a in node.assignments
            if isinstance(a.value, Word)
        )
        self.found.commands.append(Command(tuple(words), assigned, node.line, self.file))
        return None

    def written(self, words: list[Field]) -> Field | None:
        """The script that a command starts and that this one wrote with a here-document."""
        for word in words[1:]:
            if not word.plain.startswith("-"):
                text = self.env.files.get(word.plain.rsplit("/", 1)[-1])
                return None if text is None else Field(text, word.line)
        return None

    def ends(self, leave: Leave) -> bool:
        """Whether the outermost loop ends here by ``exit``, or by more levels than there are."""
        return self.loops == 1 and leave.kind != "return"

    def leaves(self, name: str) -> bool:
        """Whether there is something to leave; at the top ``exit`` may follow what is not known."""
        if name == "return":
            return self.calls > 0
        return self.loops > 0

    def documents(self, node: Simple, name: str) -> None:
        """Here-documents: a script for a shell or the scheduler, or a file that ``cat`` writes."""
        for document in node.documents:
            text = document.text
            if document.expands:
                cursor = Cursor(text, document.line, file=self.file)
                text = expand_text(cursor.document(), self.env).text
            if node.output is not None and name in ("cat", "tee"):
                target = expand_text(node.output, self.env).shown.rsplit("/", 1)[-1]
                self.env.files[target] = Field(text, 0).shown
            elif name in (*_SHELLS, "sbatch", "srun", "ssh", "pdsh"):
                self.again(text, document.line)

    def again(self, text: str, line: int) -> bool | None:
        """Text that a shell would read as a script of its own."""
        self.depth += 1
        if self.depth > 10:
            raise InputError(f"{self.file}:{line}: scripts nest more than 10 deep")
        script = text.replace(CONTINUED, "\\\n")
        status = self.run(parse(script, self.file, line, self.depth))
        self.depth -= 1
        return status

    def call(self, body: tuple[Node, ...], arguments: list[Field]) -> bool | None:
        self.depth += 1
        if self.depth > 10:
            raise InputError(f"{self.file}: functions nest more than 10 deep")
        before, self.env.positional = self.env.positional, arguments
        self.calls += 1
        status: bool | None = True
        try:
            status = self.run(body)
        except Leave as leave:
            if leave.kind != "return":
                raise
        finally:
            self.env.positional = before
            self.calls -= 1
            self.depth -= 1
        return status

    def source(self, path: Field) -> bool | None:
        base = path.plain.rsplit("/", 1)[-1]
        text = self.beside.get(base)
        if text is None:
            self.env.unsourced.setdefault(base if not path.unknown else path.shown, path.line)
            return None
        self.depth += 1
        if self.depth > 10:
            raise InputError(f"{self.file}:{path.line}: sourced files nest more than 10 deep")
        self.found.sourced.add(base)
        before, self.file = self.file, base
        status = self.run(parse(text, base, 1, self.depth))
        self.file = before
        self.depth -= 1
        return status

    def export(self, name: str) -> None:
        value = self.env.get(name)
        if isinstance(value, Field):
            self.env.exported[name] = value


def _shell_text(words: list[Field]) -> Field | None:
    """The script in ``bash -c "..."`` or ``srun ... bash -c "..."``."""
    for at, word in enumerate(words[:-2]):
        if word.plain in _SHELLS:
            for after in range(at + 1, len(words) - 1):
                if re.fullmatch(r"-\w*c", words[after].plain):
                    return words[after + 1]
    return None
