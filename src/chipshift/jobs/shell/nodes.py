"""What a shell script is made of: words of parts, commands of words."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Part:
    """A piece of a word.

    Attributes:
        kind: ``text``, ``var``, ``arith`` or ``command`` (a substitution, its text kept).
        text: literal text, variable name, or the inner text.
        quoted: inside double or single quotes, or escaped: not split, not a pattern.
        op: of a variable: ``:-``, ``%%``, ``[@]``, ``#`` (length), ``!`` (indirect) ...
        argument: the word after ``op``; second: what ``${X/argument/second}`` puts in its place.
        index: text between brackets of ``${A[...]}``.
    """

    kind: str
    text: str
    quoted: bool = False
    op: str = ""
    argument: Word | None = None
    index: str = ""
    second: Word | None = None


@dataclass(frozen=True)
class Word:
    parts: tuple[Part, ...]
    line: int

    @property
    def literal(self) -> str | None:
        """The word's text when nothing in it needs expanding."""
        if any(part.kind != "text" for part in self.parts):
            return None
        return "".join(part.text for part in self.parts)


@dataclass(frozen=True)
class Assignment:
    """``name=value``, ``name+=value``, ``name[i]=value``, ``name=(...)``."""

    name: str
    value: Word | tuple[Word, ...]
    line: int
    append: bool = False
    index: str = ""


@dataclass(frozen=True)
class HereDoc:
    """What a command reads: a here-document, the ``word`` of a here-string (``<<< "$X"``), a
    ``file`` (``< x``), or what ``commands`` print (``< <(seq 3)``).
    """

    text: str
    line: int
    expands: bool
    word: Word | None = None
    kind: str = "text"


@dataclass(frozen=True)
class Simple:
    """A command with its arguments; ``documents`` fill when the line's end is reached.

    Attributes:
        output: the file that it writes; aside: what it prints goes to a file or to the errors.
    """

    words: tuple[Word, ...]
    assignments: tuple[Assignment, ...]
    line: int
    documents: list[HereDoc] = field(default_factory=list)
    output: Word | None = None
    aside: bool = False


@dataclass(frozen=True)
class Arithmetic:
    """``(( text ))``."""

    text: str
    line: int


@dataclass(frozen=True)
class Group:
    """Commands in braces, or in parentheses: what those assign is gone after them."""

    body: tuple[Node, ...]
    apart: bool = False


@dataclass(frozen=True)
class If:
    branches: tuple[tuple[tuple[Node, ...], tuple[Node, ...]], ...]
    otherwise: tuple[Node, ...]


@dataclass(frozen=True)
class Redirected:
    """A loop, a group or a condition with what it reads, or whose printing goes elsewhere."""

    body: tuple[Node, ...]
    documents: list[HereDoc]
    aside: bool


@dataclass(frozen=True)
class Case:
    """Branches end in ``;;``, in ``;&`` (the next body too) or in ``;;&`` (tested on)."""

    subject: Word
    branches: tuple[tuple[tuple[Word, ...], tuple[Node, ...], str], ...]


@dataclass(frozen=True)
class For:
    name: str
    words: tuple[Word, ...]
    body: tuple[Node, ...]


@dataclass(frozen=True)
class ForArithmetic:
    """``for ((start; test; step))``."""

    start: str
    test: str
    step: str
    body: tuple[Node, ...]
    line: int


@dataclass(frozen=True)
class While:
    """``while`` and ``until``; a condition that only a run could tell leaves the body out."""

    condition: tuple[Node, ...]
    body: tuple[Node, ...]
    line: int
    until: bool = False


@dataclass(frozen=True)
class Select:
    """``select``: somebody at the keyboard chooses."""

    line: int


@dataclass(frozen=True)
class Function:
    name: str
    body: tuple[Node, ...]


@dataclass(frozen=True)
class Chain:
    """Pipelines joined by ``&&``, ``||`` or nothing (first): ``((op, negated, commands), ...)``."""

    links: tuple[tuple[str, bool, tuple[Node, ...]], ...] = field(default=())


Node = (
    Simple
    | Arithmetic
    | Group
    | Redirected
    | If
    | Case
    | For
    | ForArithmetic
    | While
    | Select
    | Function
    | Chain
)


def names_set(nodes: tuple[Node, ...]) -> set[str]:
    """Variables that commands would assign, those inside branches and loops too."""
    found: set[str] = set()
    left = list(nodes)
    while left:
        node = left.pop()
        if isinstance(node, Simple):
            found.update(assignment.name for assignment in node.assignments)
        elif isinstance(node, If):
            left += [*node.otherwise, *(one for _, body in node.branches for one in body)]
        elif isinstance(node, Case):
            left += [one for _, body, _ in node.branches for one in body]
        elif isinstance(node, Chain):
            left += [one for _, _, commands in node.links for one in commands]
        elif isinstance(node, Group | Redirected | For | ForArithmetic | While):
            left += node.body
    return found
