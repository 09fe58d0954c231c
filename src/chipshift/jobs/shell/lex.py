"""Words of a shell script: quotes, escapes, ``$`` forms; and the cursor that reads them."""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs.shell.nodes import HereDoc, Part, Word

DEPTH = 30
"""Deepest nesting of substitutions, blocks and quotes that is read."""

OPEN, CLOSE = "\ue000", "\ue001"
"""Around what could not be resolved: a variable nothing sets, a command's output."""

CONTINUED = "\ue002"
"""Stands for a backslash-newline inside a word: no text, one line further."""

_UNRESOLVED = re.compile(f"{OPEN}[^{CLOSE}]*{CLOSE}")
_PLAIN = re.compile(rf"[^\s\\'\"$`;&|()<>{OPEN}]+")
_IN_QUOTES = re.compile(r"[^\\\"$`]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_BRACED = re.compile(r"([#!]?)([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])(\[[^\]\n]*\])?")
_IN_DOCUMENT = re.compile(r"[^$`\\]+")
_CASE = re.compile(r"(?<![\w$./-])(?:case(?=\s+\S+\s+in\b)|esac)(?![\w=-])")
_OPS = ("//", "/#", "/%", ":-", ":=", ":+", ":?", "##", "%%", "^^", ",,")
_META = " \t\n;&|()<>"


class Cursor:
    """A place in the text, the line it is on, and the here-documents still to come."""

    def __init__(self, text: str, line: int = 1, depth: int = 0, file: str = "") -> None:
        if depth > DEPTH:
            raise InputError(
                f"{file}:{line}: the script nests more than {DEPTH} deep; expected a launch script"
            )
        self.text, self.line, self.depth, self.file = text, line, depth, file
        self.at = 0
        self.pending: list[tuple[str, bool, bool, list[HereDoc]]] = []

    @property
    def here(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def looking_at(self, token: str) -> bool:
        return self.text.startswith(token, self.at)

    def skip_blanks(self) -> None:
        """Spaces, continued lines and comments, but no line end."""
        while self.at < len(self.text):
            here = self.here
            if here in " \t":
                self.at += 1
            elif self.looking_at("\\\n"):
                self.at += 2
                self.line += 1
            elif here == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def newline(self) -> None:
        """Past a line end, and past the here-documents that begin after it."""
        self.at += 1
        self.line += 1
        waiting, self.pending = self.pending, []
        for delimiter, expands, dedent, found in waiting:
            lines: list[str] = []
            start = self.line
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                self.line += 1
                if (line.lstrip("\t") if dedent else line) == delimiter:
                    break
                lines.append(line.lstrip("\t") if dedent else line)
            found.append(HereDoc("\n".join(lines), start, expands))

    def word(self) -> Word:
        """The word at the cursor; empty when a metacharacter stands there."""
        parts: list[Part] = []
        start = self.line
        while self.at < len(self.text) and self.here not in _META:
            parts += self._piece()
        return Word(tuple(parts), start)

    def whole(self, quoted: bool) -> Word:
        """All that is left as one word, spaces and all."""
        parts: list[Part] = []
        start = self.line
        while self.at < len(self.text):
            if self.here in _META:
                parts.append(Part("text", self.here, quoted))
                self.line += self.here == "\n"
                self.at += 1
            elif quoted and self.here == "'":
                parts.append(Part("text", "'", True))
                self.at += 1
            else:
                parts += self._piece(quoted)
        return Word(tuple(parts), start)

    def document(self) -> Word:
        """A here-document's text: quotes stand as written; ``$``, a backtick and ``\\`` do not."""
        parts: list[Part] = []
        start = self.line
        while self.at < len(self.text):
            following = self.text[self.at + 1 : self.at + 2]
            if self.here == "\\" and following not in ("$", "`", "\\", "\n"):
                parts.append(Part("text", "\\", True))
                self.at += 1
            elif self.here in "$`\\":
                parts += self._piece(True)
            else:
                match = _IN_DOCUMENT.match(self.text, self.at)
                assert match is not None
                self.line += match.group().count("\n")
                self.at = match.end()
                parts.append(Part("text", match.group(), True))
        return Word(tuple(parts), start)

    def _piece(self, quoted: bool = False) -> list[Part]:
        here = self.here
        if here == "\\":
            following = self.text[self.at + 1 : self.at + 2]
            self.at += 2
            if following == "\n":
                self.line += 1
                return [Part("text", CONTINUED, quoted)]
            return [Part("text", following, True)]
        if here == "'":
            end = self.text.find("'", self.at + 1)
            end = len(self.text) if end < 0 else end
            inner = self.text[self.at + 1 : end]
            self.at = end + 1
            self.line += inner.count("\n")
            return [Part("text", inner, True)]
        if here == '"':
            return self._double()
        if here == "$":
            return [self.dollar(quoted)]
        if here == "`":
            return [self._backticks(quoted)]
        match = _UNRESOLVED.match(self.text, self.at) or _PLAIN.match(self.text, self.at)
        if match is None:
            self.at += 1
            return [Part("text", here, quoted)]
        self.at = match.end()
        return [Part("text", match.group(), quoted)]

    def _double(self) -> list[Part]:
        parts: list[Part] = [Part("text", "", True)]
        self.at += 1
        while self.at < len(self.text):
            here = self.here
            if here == '"':
                self.at += 1
                return parts
            if here == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                self.at += 2
                if following == "\n":
                    self.line += 1
                    parts.append(Part("text", CONTINUED, True))
                elif following in '"$`\\':
                    parts.append(Part("text", following, True))
                else:
                    parts.append(Part("text", "\\" + following, True))
            elif here == "$":
                parts.append(self.dollar(True))
            elif here == "`":
                parts.append(self._backticks(True))
            else:
                match = _IN_QUOTES.match(self.text, self.at)
                assert match is not None
                self.line += match.group().count("\n")
                self.at = match.end()
                parts.append(Part("text", match.group(), True))
        return parts

    def _backticks(self, quoted: bool) -> Part:
        end = self.text.find("`", self.at + 1)
        end = len(self.text) if end < 0 else end
        inner = self.text[self.at + 1 : end]
        self.at = end + 1
        self.line += inner.count("\n")
        return Part("command", inner, quoted)

    def dollar(self, quoted: bool) -> Part:
        """A ``$`` form at the cursor."""
        if self.looking_at("$(("):
            inner = self.balanced("$((", "))")
            if inner is not None:
                return Part("arith", inner, quoted)
        if self.looking_at("$("):
            return Part("command", self.balanced("$(", ")") or "", quoted)
        if self.looking_at("$["):
            end = self.text.find("]", self.at)
            inner = self.text[self.at + 2 : end if end >= 0 else len(self.text)]
            self.at = end + 1 if end >= 0 else len(self.text)
            return Part("arith", inner, quoted)
        if self.looking_at("${"):
            return self._braced(self.balanced("${", "}") or "", quoted)
        if self.looking_at("$'"):
            end = self.text.find("'", self.at + 2)
            end = len(self.text) if end < 0 else end
            inner = self.text[self.at + 2 : end]
            self.at = end + 1
            self.line += inner.count("\n")
            return Part("text", inner.replace("\\n", "\n").replace("\\t", "\t"), True)
        match = _NAME.match(self.text, self.at + 1)
        if match is None:
            self.at += 1
            return Part("text", "$", True)
        self.at = match.end()
        return Part("var", match.group(), quoted)

    def _braced(self, inner: str, quoted: bool) -> Part:
        match = _BRACED.match(inner)
        if match is None:
            return Part("command", inner, quoted)
        prefix, name, index = match.group(1), match.group(2), (match.group(3) or "")[1:-1]
        rest = inner[match.end() :]
        if not rest:
            return Part("var", name, quoted, op=prefix, index=index)
        op = next((o for o in _OPS if rest.startswith(o)), rest[0])
        rest = rest[len(op) :]
        second: Word | None = None
        if op in ("/", "//", "/#", "/%"):  # quotes around it all do not make a pattern plain text
            rest, bar, put = _halves(rest)
            inside = Cursor(put, self.line, self.depth + 1, self.file)
            second = inside.whole(quoted) if bar else None
        inside = Cursor(rest, self.line, self.depth + 1, self.file)
        argument = inside.whole(quoted and op[0] not in "/%#")
        return Part("var", name, quoted, op=op, argument=argument, index=index, second=second)

    def balanced(self, opening: str, closing: str) -> str | None:
        """Text between brackets, quotes respected; None if they are ``$((`` and not ``))``."""
        start = self.at + len(opening)
        at, depth = start, 0
        pair = {"}": "{", ")": "("}[closing[-1]]
        cases: list[int] = []  # depths at which a ``case`` stands, whose patterns end in brackets
        while at < len(self.text):
            here = self.text[at]
            if here in "ce" and opening == "$(" and (word := _CASE.match(self.text, at)):
                cases = [*cases, depth] if word.group() == "case" else cases[:-1]
                at = word.end() - 1
            elif cases and here == ")" and depth == cases[-1]:
                pass
            elif here == "\\":
                at += 1
            elif here == "'" and closing != "}":
                end = self.text.find("'", at + 1)
                at = len(self.text) if end < 0 else end
            elif here == pair and (pair == "(" or self.text[at - 1] == "$"):
                depth += 1
            elif here == closing[-1]:
                if depth == 0:
                    if closing == "))" and self.text[at : at + 2] != "))":
                        return None
                    break
                depth -= 1
            at += 1
        inner = self.text[start:at]
        self.at = min(at + len(closing), len(self.text))
        self.line += inner.count("\n")
        return inner


def _halves(text: str) -> tuple[str, str, str]:
    """``pattern/text`` at its first bar that is not escaped, quoted or inside ``${...}``."""
    depth, quote, at = 0, "", 0
    while at < len(text):
        here = text[at]
        if here == "\\":
            at += 1
        elif quote:
            quote = "" if here == quote else quote
        elif here in "'\"":
            quote = here
        elif here == "{" and at and text[at - 1] == "$":
            depth += 1
        elif here == "}" and depth:
            depth -= 1
        elif here == "/" and not depth:
            return text[:at], "/", text[at + 1 :]
        at += 1
    return text, "", ""
