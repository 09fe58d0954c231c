"""A shell script's text as commands; forgiving, since the shell itself has the last word."""

from __future__ import annotations

import re
from dataclasses import dataclass

from chipshift.errors import InputError
from chipshift.jobs.shell.lex import DEPTH, Cursor
from chipshift.jobs.shell.nodes import (
    Arithmetic,
    Assignment,
    Case,
    Chain,
    For,
    ForArithmetic,
    Function,
    Group,
    HereDoc,
    If,
    Node,
    Part,
    Redirected,
    Select,
    Simple,
    While,
    Word,
)

_ASSIGN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]\n]*\])?(\+?)=")
_RESERVED = re.compile(r"(if|case|for|while|until|function|select|time)(?=[\s(;])")
_KEYWORD = re.compile(r"(then|elif|else|fi|do|done|esac|in|\})(?![^\s;&|()<>])")
_FUNCTION = re.compile(r"([A-Za-z_][\w.:-]*)[ \t]*\([ \t]*\)")
_REDIRECT = re.compile(r"(\d*|&)(<<<|<<-|<<|<>|>>|>&|<&|>\||>|<)")
_DECLARE = ("export", "local", "declare", "readonly", "typeset")


def parse(text: str, file: str = "", line: int = 1, depth: int = 0) -> tuple[Node, ...]:
    """Commands of a script.

    Raises:
        InputError: nested deeper than any launch script.
    """
    cursor = Cursor(text, line, depth, file)
    found: list[Node] = []
    while cursor.at < len(text):
        before = cursor.at
        found += _list(cursor, ())
        if cursor.at == before:  # a stray keyword or bracket
            cursor.at += 1
    return tuple(found)


def _list(cursor: Cursor, until: tuple[str, ...]) -> list[Node]:
    """Commands up to one of the keywords, a closing bracket or ``;;``."""
    cursor.depth += 1
    if cursor.depth > DEPTH:
        raise InputError(
            f"{cursor.file}:{cursor.line}: the script nests more than {DEPTH} deep; expected a "
            "launch script"
        )
    found: list[Node] = []
    while True:
        _skip_separators(cursor)
        if not cursor.here or cursor.here == ")" or cursor.looking_at(";;"):
            break
        if cursor.looking_at(";&"):
            break
        keyword = _KEYWORD.match(cursor.text, cursor.at)
        if keyword and (keyword.group(1) in until or not until):
            break
        before = cursor.at
        found.append(_chain(cursor))
        if cursor.at == before:
            cursor.at += 1
    cursor.depth -= 1
    return found


def _skip_separators(cursor: Cursor) -> None:
    while True:
        cursor.skip_blanks()
        if cursor.here == "\n":
            cursor.newline()
        elif cursor.here in (";", "&") and not re.match(";[;&]", cursor.text[cursor.at :][:2]):
            cursor.at += 1
        else:
            return


def _chain(cursor: Cursor) -> Node:
    links: list[tuple[str, bool, tuple[Node, ...]]] = []
    op = ""
    while True:
        cursor.skip_blanks()
        negated = False
        if re.match(r"!\s", cursor.text[cursor.at : cursor.at + 2]):
            negated = True
            cursor.at += 1
        commands = [_command(cursor)]
        cursor.skip_blanks()
        while cursor.here == "|" and not cursor.looking_at("||"):
            cursor.at += 2 if cursor.looking_at("|&") else 1
            _skip_newlines(cursor)
            commands.append(_command(cursor))
            cursor.skip_blanks()
        links.append((op, negated, tuple(commands)))
        if not (cursor.looking_at("&&") or cursor.looking_at("||")):
            break
        op = cursor.text[cursor.at : cursor.at + 2]
        cursor.at += 2
        _skip_newlines(cursor)
        if not cursor.here:
            break
    if len(links) == 1 and len(links[0][2]) == 1 and not links[0][1]:
        return links[0][2][0]
    return Chain(tuple(links))


def _skip_newlines(cursor: Cursor) -> None:
    cursor.skip_blanks()
    while cursor.here == "\n":
        cursor.newline()
        cursor.skip_blanks()


def _command(cursor: Cursor) -> Node:
    """A command, with the redirections after a compound one."""
    node = _unredirected(cursor)
    if isinstance(node, Simple | Function | Arithmetic):
        return node
    documents: list[HereDoc] = []
    found = Redirects(documents)
    some = False
    while True:
        cursor.skip_blanks()
        redirect = _REDIRECT.match(cursor.text, cursor.at)
        if redirect is None:
            return Redirected((node,), documents, found.aside) if some else node
        some = True
        cursor.at = redirect.end()
        _redirect(cursor, redirect.group(1), redirect.group(2), found)


def _unredirected(cursor: Cursor) -> Node:
    cursor.skip_blanks()
    line = cursor.line
    if cursor.looking_at("(("):
        inner = cursor.balanced("((", "))")
        if inner is not None:
            return Arithmetic(inner, line)
    if cursor.here == "(":
        cursor.at += 1
        body = _list(cursor, ("\x00",))
        _take(cursor, ")")
        return Group(tuple(body), apart=True)
    if re.match(r"\{\s", cursor.text[cursor.at : cursor.at + 2]):
        return Group(_block(cursor))
    if reserved := _RESERVED.match(cursor.text, cursor.at):
        cursor.at = reserved.end()
        return _compound(cursor, reserved.group(1), line)
    if function := _FUNCTION.match(cursor.text, cursor.at):
        cursor.at = function.end()
        return _function(cursor, function.group(1))
    return _simple(cursor)


def _block(cursor: Cursor) -> tuple[Node, ...]:
    cursor.at += 1
    body = _list(cursor, ("}",))
    _take(cursor, "}")
    return tuple(body)


def _function(cursor: Cursor, name: str) -> Node:
    _skip_newlines(cursor)
    if cursor.here in "{(" and cursor.here:
        body = _command(cursor)
        braces = isinstance(body, Group) and not body.apart
        return Function(name, body.body if isinstance(body, Group) and braces else (body,))
    return Function(name, ())


def _compound(cursor: Cursor, keyword: str, line: int) -> Node:
    if keyword == "if":
        return _if(cursor)
    if keyword == "case":
        return _case(cursor)
    if keyword == "select":
        _for(cursor, line)
        return Select(line)
    if keyword == "for":
        return _for(cursor, line)
    if keyword == "function":
        cursor.skip_blanks()
        name = cursor.word().literal or ""
        cursor.skip_blanks()
        if cursor.looking_at("()"):
            cursor.at += 2
        return _function(cursor, name)
    if keyword == "time":
        return _command(cursor)
    condition = tuple(_list(cursor, ("do",)))
    _take(cursor, "do")
    body = tuple(_list(cursor, ("done",)))
    _take(cursor, "done")
    return While(condition, body, line, keyword == "until")


def _if(cursor: Cursor) -> Node:
    branches = []
    otherwise: tuple[Node, ...] = ()
    while True:
        condition = tuple(_list(cursor, ("then",)))
        _take(cursor, "then")
        body = tuple(_list(cursor, ("elif", "else", "fi")))
        branches.append((condition, body))
        if _take(cursor, "elif"):
            continue
        if _take(cursor, "else"):
            otherwise = tuple(_list(cursor, ("fi",)))
        _take(cursor, "fi")
        return If(tuple(branches), otherwise)


def _case(cursor: Cursor) -> Node:
    cursor.skip_blanks()
    subject = cursor.word()
    _skip_newlines(cursor)
    _take(cursor, "in")
    branches = []
    while True:
        _skip_separators(cursor)
        if not cursor.here or _take(cursor, "esac"):
            break
        _take(cursor, "(")
        patterns = []
        while cursor.here and cursor.here not in ")\n":
            cursor.skip_blanks()
            patterns.append(cursor.word())
            cursor.skip_blanks()
            if not _take(cursor, "|"):
                break
        if not _take(cursor, ")"):
            cursor.at += 1
        body = tuple(_list(cursor, ("esac",)))
        ends = next((end for end in (";;&", ";;", ";&") if _take(cursor, end)), ";;")
        branches.append((tuple(patterns), body, ends))
    return Case(subject, tuple(branches))


def _for(cursor: Cursor, line: int) -> Node:
    cursor.skip_blanks()
    head: list[str] | None = None
    name, words = "", tuple[Word, ...]()
    if cursor.looking_at("(("):
        head = (cursor.balanced("((", "))") or "").split(";")
    else:
        name = cursor.word().literal or ""
        _skip_newlines(cursor)
        found: list[Word] = []
        if _take(cursor, "in"):
            cursor.skip_blanks()
            while cursor.here and cursor.here not in ";\n&|()<>":
                found.append(cursor.word())
                cursor.skip_blanks()
        else:  # the script's own arguments, or the function's
            found.append(Word((Part("var", "@", True),), line))
        words = tuple(found)
    _skip_separators(cursor)
    _take(cursor, "do")
    body = tuple(_list(cursor, ("done",)))
    _take(cursor, "done")
    if head is not None:
        start, test, step = (*head, "", "", "")[:3]
        return ForArithmetic(start, test, step, body, line)
    return For(name, words, body)


def _take(cursor: Cursor, token: str) -> bool:
    """Past the token, if it stands here."""
    cursor.skip_blanks()
    if not cursor.looking_at(token):
        return False
    if token.isalpha() and re.match(
        r"[\w-]", cursor.text[cursor.at + len(token) : cursor.at + len(token) + 1]
    ):
        return False
    cursor.at += len(token)
    return True


def _simple(cursor: Cursor) -> Simple:
    words: list[Word] = []
    assignments: list[Assignment] = []
    found = Redirects([])
    line, in_test = cursor.line, False
    while True:
        cursor.skip_blanks()
        here = cursor.here
        if in_test and words[-1].literal == "=~" and here not in ("", "\n"):
            words.append(_pattern(cursor))
            continue
        if in_test and here in ("&", "|", "(", ")", "<", ">"):
            token = cursor.text[cursor.at : cursor.at + 2] if here in "&|" else here
            words.append(_literal(token, cursor.line))
            cursor.at += len(token)
            continue
        if not here or here in "\n;|()":
            if in_test and here == "\n":
                cursor.newline()
                continue
            break
        redirect = _REDIRECT.match(cursor.text, cursor.at)
        if redirect:
            cursor.at = redirect.end()
            _redirect(cursor, redirect.group(1), redirect.group(2), found)
            continue
        if here == "&":
            break
        first = words[0].literal if words else None
        assign = _ASSIGN.match(cursor.text, cursor.at)
        if assign and (not words or first in _DECLARE):
            cursor.at = assign.end()
            assignments.append(_assignment(cursor, assign))
            continue
        before = cursor.at
        word = cursor.word()
        if cursor.at == before:
            cursor.at += 1
            continue
        words.append(word)
        in_test = (in_test or (len(words) == 1 and word.literal == "[[")) and word.literal != "]]"
    return Simple(
        tuple(words), tuple(assignments), line, found.documents, found.output, found.aside
    )


def _pattern(cursor: Cursor) -> Word:
    """A regular expression after ``=~``: brackets and bars are its own, up to a blank."""
    parts: list[Part] = []
    line = cursor.line
    while cursor.here and cursor.here not in " \t\n":
        if cursor.here in "()|<>&;":
            parts.append(Part("text", cursor.here))
            cursor.at += 1
        else:
            parts += cursor.word().parts
    return Word(tuple(parts), line)


def _literal(text: str, line: int) -> Word:
    return Word((Part("text", text, True),), line)


def _assignment(cursor: Cursor, match: re.Match[str]) -> Assignment:
    name, index, append = match.group(1), (match.group(2) or "")[1:-1], bool(match.group(3))
    line = cursor.line
    if cursor.here != "(":
        return Assignment(name, cursor.word(), line, append, index)
    cursor.at += 1
    elements: list[Word] = []
    while cursor.here and cursor.here != ")":
        cursor.skip_blanks()
        if cursor.here == "\n":
            cursor.newline()
        elif cursor.here and cursor.here != ")":
            before = cursor.at
            elements.append(cursor.word())
            if cursor.at == before:  # a stray metacharacter
                elements.pop()
                cursor.at += 1
    cursor.at += 1
    return Assignment(name, tuple(elements), line, append, index)


@dataclass
class Redirects:
    """Where a command reads, and where what it prints goes."""

    documents: list[HereDoc]
    output: Word | None = None
    aside: bool = False


def _redirect(cursor: Cursor, stream: str, op: str, found: Redirects) -> None:
    """One redirection, past its ``op``; only what is read and what is printed is kept."""
    cursor.skip_blanks()
    line = cursor.line
    if op in "<>" and cursor.looking_at(f"{op}("):
        cursor.at += 1
    if cursor.here == "(":  # process substitution
        inner = cursor.balanced("(", ")") or ""
        if op == "<" and stream in ("", "0"):
            found.documents.append(HereDoc(inner, line, False, None, "commands"))
        return
    target = cursor.word()
    if op in ("<<", "<<-"):
        expands = not any(part.quoted for part in target.parts)
        cursor.pending.append((target.literal or "", expands, op == "<<-", found.documents))
    elif op == "<<<":
        found.documents.append(HereDoc(target.literal or "", line, False, target, "word"))
    elif op == "<" and stream in ("", "0"):
        found.documents.append(HereDoc("", line, False, target, "file"))
    elif op in (">", ">>", ">|", ">&") and stream in ("", "1", "&"):
        found.aside = True
        if op != ">&":
            found.output = found.output or target
