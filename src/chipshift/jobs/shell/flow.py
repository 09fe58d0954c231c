"""The walk of a script's blocks: conditions, loops, pipelines and groups, as bash runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chipshift.jobs.shell import streams
from chipshift.jobs.shell.found import Resolved
from chipshift.jobs.shell.loops import (
    Leave,
    TooLong,
    Turns,
    assigns,
    inside,
    leads_out,
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
    HereDoc,
    If,
    Node,
    Redirected,
    Select,
    Simple,
    While,
    Word,
    names_set,
)
from chipshift.jobs.shell.patterns import matches
from chipshift.jobs.shell.streams import Sink
from chipshift.jobs.shell.values import Environment, Field, Input, Value
from chipshift.jobs.shell.words import arithmetic, expand, expand_pattern, expand_text

Walk = Callable[[], "bool | None"]

MOST_STEPS = 5_000
"""Steps of one loop; one that takes more is left where it is."""

ARGUMENTS = "arguments of the script's own: none is given, so that what stands before holds"
DOUBTFUL = "only a run could tell: taken as not so"


class Flow:
    """A script on its way through: conditions, loops, pipelines and groups.

    Attributes:
        unsure: conditions around that only a run, or the launch, could tell.
        sinks: who reads what is printed here; None where it goes to a file or to the errors.
        scope: values to come back when the function ends.
    """

    def __init__(self, env: Environment, file: str) -> None:
        self.env, self.file = env, file
        self.functions: dict[str, tuple[Node, ...]] = {}
        self.found = Resolved()
        self.depth = self.loops = self.calls = self.sourcing = self.unsure = 0
        self.sinks: list[Sink | None] = []
        self.scope: dict[str, Value | None] | None = None

    def run(self, nodes: Iterable[Node]) -> bool | None:
        """Walk commands; the last one's success, None when only a run could tell."""
        status: bool | None = True
        for node in nodes:
            self.env.steps -= 1
            if self.env.steps < 0:
                raise TooLong(
                    f"{self.file} takes too many steps to resolve; expected a launch script"
                )
            status = self.env.status = self.step(node)
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
        if isinstance(node, Redirected):
            return self.redirected(node)
        if isinstance(node, Arithmetic):
            value = arithmetic(node.text, self.env, node.line)
            self.env.doubts += bool(value.unknown or value.soft)
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
            streams.lose(self)
        return None if told else True

    def chain(self, node: Chain) -> bool | None:
        status: bool | None = True
        before, asked = self.unsure, self.env.files_asked
        try:
            for op, negated, commands in node.links:
                if op == "&&" and status is False:
                    if self.unsure == before:
                        self.env.passed |= names_set(commands)
                    continue
                if op == "||" and status is not False:
                    continue
                if op == "&&" and self.env.files_asked != asked and leads_out(commands):
                    status = False
                    continue
                doubts = self.env.doubts
                status = self.piped(commands)
                self.unsure += status is None or self.env.doubts != doubts
                if negated and status is not None:
                    status = not status
        finally:
            self.unsure = before
        return status

    def piped(self, commands: tuple[Node, ...]) -> bool | None:
        """A pipeline: each command reads what the one before prints, in a shell of its own."""
        if len(commands) == 1:
            return self.run(commands)
        variables, read = dict(self.env.variables), self.env.input
        status: bool | None = True
        try:
            for command in commands[:-1]:
                sink = Sink()
                self.sinks.append(sink)
                try:
                    self.apart((command,))
                finally:
                    self.sinks.pop()
                self.env.input = None if sink.unsure else Input(sink.text, 0)
            status = self.apart(commands[-1:])
        finally:
            self.env.variables, self.env.input = variables, read
        return status

    def apart(self, nodes: tuple[Node, ...]) -> bool | None:
        """Commands of a shell of their own, which ``exit`` alone leaves."""
        loops, self.loops = self.loops, 0
        try:
            return self.run(nodes)
        except Leave as leave:
            if leave.kind not in ("exit", "return"):
                raise
            return None
        finally:
            self.loops = loops

    def branch(self, node: If) -> bool | None:
        before, taken = self.unsure, node.otherwise
        try:
            for condition, body in node.branches:
                doubts, asked = self.env.doubts, self.env.files_asked
                told = self.run(condition)
                self.unsure += told is None or self.env.doubts != doubts
                if told is None:
                    self.doubtful(node)
                if told and self.env.files_asked != asked and leads_out(body):
                    told = False  # ``if [ -f done ]; then exit``: what is read here is the run
                if told:
                    taken = body
                    break
            if self.unsure == before:
                for body in (*(one for _, one in node.branches), node.otherwise):
                    self.env.passed |= names_set(body) if body is not taken else set()
            return self.run(taken)
        finally:
            self.unsure = before

    def doubtful(self, node: If) -> None:
        """A condition that only a run could tell, where anything rests on it."""
        streams.lose(self)
        asked = [one for first in node.branches[0][0] for one in (first, *inside(first))]
        line = min((one.line for one in asked if isinstance(one, Simple)), default=0)
        if line and not self.sinks and assigns((node,)):
            self.found.skipped.append((line, DOUBTFUL))

    def case(self, node: Case) -> bool | None:
        before, doubts = self.unsure, self.env.doubts
        subject = self.text(node.subject)
        self.unsure += self.env.doubts != doubts
        status: bool | None = True
        falls = False
        try:
            for patterns, body, ends in node.branches:
                if not falls and not any(matches(subject, self.pattern(one)) for one in patterns):
                    continue
                status = self.run(body)
                if ends == ";;":
                    return status
                falls = ends == ";&"
        finally:
            self.unsure = before
        return status

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
        if not node.apart:
            return self.run(node.body)
        before = dict(self.env.variables)
        try:
            return self.apart(node.body)
        finally:
            self.env.variables = before

    def redirected(self, node: Redirected) -> bool | None:
        """A loop or a group with what it reads."""
        return self.reading(node.documents, node.aside, lambda: self.run(node.body))

    def reading(self, documents: list[HereDoc], aside: bool, walk: Walk) -> bool | None:
        """Walk something with what it reads, and with nobody who reads what it prints aside."""
        before = self.env.input
        self.env.input = streams.reading(self, documents)
        if aside:
            self.sinks.append(None)
        try:
            return walk()
        finally:
            self.env.input = before
            if aside:
                self.sinks.pop()

    def text(self, word: Word) -> str:
        """A word in a condition: what nothing sets is empty, and remembered."""
        return self.plainly(expand_text(word, self.env), word.line)

    def pattern(self, word: Word) -> str:
        """A word as the pattern of a condition."""
        return self.plainly(expand_pattern(word, self.env), word.line)

    def plainly(self, value: Field, line: int) -> str:
        for name in value.unknown:
            self.env.unset.setdefault(name, line)
        self.env.doubts += bool(value.unknown or value.soft)
        return value.empty_unknown

    def ends(self, leave: Leave) -> bool:
        """Whether the outermost loop ends here by ``exit``, or by more levels than there are."""
        if leave.kind == "exit" and leave.sure and self.found.commands:
            return False
        return self.loops == 1 and leave.kind != "return"

    def simple(self, node: Simple) -> bool | None:
        """A command with its arguments: of the walk that this is part of."""
        raise NotImplementedError
