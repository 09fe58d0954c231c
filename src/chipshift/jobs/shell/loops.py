"""Loops walked as far as their turns are known, and never for ever.

A condition that only a run could tell leaves the body out. ``while true`` and a loop that makes
more turns than any launch script's are walked once: what they start, they start again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chipshift.errors import InputError
from chipshift.jobs.shell.nodes import (
    Case,
    Chain,
    ForArithmetic,
    Group,
    If,
    Node,
    Simple,
    While,
)
from chipshift.jobs.shell.values import Environment
from chipshift.jobs.shell.words import arithmetic

MOST_TURNS = 1000
UNKNOWN = "a loop whose turns only a run could tell"
FOLLOWED_ONCE = "a loop without an end of its own: followed once"
Run = Callable[[Iterable[Node]], "bool | None"]


class Leave(Exception):
    """``break``, ``continue``, ``return`` and ``exit`` on their way out of blocks.

    Attributes:
        kind: which of them.
        levels: loops still to be left.
        sure: nothing that only a run could tell led here.
    """

    def __init__(self, kind: str, levels: int = 1, sure: bool = False) -> None:
        super().__init__(kind)
        self.kind, self.levels, self.sure = kind, levels, sure


class TooLong(InputError):
    """A walk that does not end."""


class Turns:
    """A loop's turns: how each ends, and whether another follows."""

    def __init__(self, run: Run, env: Environment) -> None:
        self.run, self.env = run, env
        self.status: bool | None = True

    def turn(self, body: tuple[Node, ...]) -> bool:
        """Walk the body once; whether the loop goes on.

        Raises:
            Leave: for a loop or a function further out.
            TooLong: the walk's allowance of steps is used up.
        """
        self.env.steps -= 1
        if self.env.steps < 0:
            raise TooLong(
                f"{self.env.file} takes too many steps to resolve; expected a launch script"
            )
        try:
            self.status = self.run(body)
        except Leave as leave:
            if leave.kind not in ("break", "continue"):
                raise
            if leave.levels > 1:
                raise Leave(leave.kind, leave.levels - 1) from None
            return leave.kind == "continue"
        return True


def walk_while(node: While, run: Run, env: Environment) -> str:
    """Walk a ``while`` or ``until``; what could not be followed, or "".

    Raises:
        Leave: for a loop or a function further out.
    """
    turns = Turns(run, env)
    for count in range(MOST_TURNS):
        held = run(node.condition)
        if held is None:
            return UNKNOWN if assigns(node.body) else ""
        if held is node.until:
            return ""
        if not turns.turn(node.body):
            return ""
        if count == 0 and _forever(node):
            return FOLLOWED_ONCE
    return f"a loop of more than {MOST_TURNS} turns"


def assigns(body: Iterable[Node]) -> bool:
    """Whether commands set anything: a loop that waits or sleeps does not."""
    return any(bool(getattr(one, "assignments", ())) or assigns(inside(one)) for one in body)


LEAVING = ("break", "continue", "return", "exit")


def leads_out(body: Iterable[Node]) -> bool:
    """Whether commands end in leaving the loop, the function or the script."""
    nodes = list(body)
    last = nodes[-1] if nodes else None
    while isinstance(last, Group | Chain) and (held := inside(last)):
        last = held[-1]
    return isinstance(last, Simple) and bool(last.words) and last.words[0].literal in LEAVING


def inside(node: Node) -> list[Node]:
    """The commands that a loop, a group, a condition or a chain holds."""
    if isinstance(node, If):
        bodies = [body for _, body in node.branches]
        return [one for body in (*bodies, node.otherwise) for one in body]
    if isinstance(node, Case):
        return [one for _, body, _ in node.branches for one in body]
    if isinstance(node, Chain):
        return [one for _, _, commands in node.links for one in commands]
    return list(getattr(node, "body", ()))


def _forever(node: While) -> bool:
    """``while true``, ``while :``, ``until false``."""
    words = [word for one in node.condition for word in getattr(one, "words", ())]
    told = words[0].literal if len(words) == 1 else None
    return told == "false" if node.until else told in ("true", ":")


def walk_arithmetic(node: ForArithmetic, run: Run, env: Environment) -> str:
    """``for ((i = 0; i < n; i++))``; what could not be followed, or "".

    Raises:
        Leave: for a loop or a function further out.
    """
    turns = Turns(run, env)
    if node.start.strip():
        arithmetic(node.start, env, node.line)
    for _ in range(MOST_TURNS):
        held = arithmetic(node.test, env, node.line) if node.test.strip() else None
        if held is None or held.unknown:
            return UNKNOWN
        if held.plain == "0" or not turns.turn(node.body):
            return ""
        arithmetic(node.step, env, node.line)
    return f"a loop of more than {MOST_TURNS} turns"


def takes_arguments(node: While) -> bool:
    """A loop over ``$#``, ``$1`` or ``getopts``."""
    words = [word for one in node.condition for word in getattr(one, "words", ())]
    text = " ".join(getattr(one, "text", "") for one in node.condition)
    if any(word.literal == "getopts" for word in words) or "#" in text:
        return True
    parts = [part for word in words for part in word.parts if part.kind == "var"]
    return any(part.text in ("#", "1", "@", "*") for part in parts)
