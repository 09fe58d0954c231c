"""Words expanded: variables, arithmetic, defaults, patterns; what is not known stays marked."""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs.shell.arith import Unsure, evaluate
from chipshift.jobs.shell.formats import formatted
from chipshift.jobs.shell.lex import CONTINUED, OPEN, Cursor
from chipshift.jobs.shell.nodes import Part, Word
from chipshift.jobs.shell.outputs import CHOSEN, COUNTED, HOSTS, braces, host_lines, hosts, printed
from chipshift.jobs.shell.patterns import literally, replaced, trimmed
from chipshift.jobs.shell.queries import QUERY, queried
from chipshift.jobs.shell.values import (
    MOST_TEXT,
    Environment,
    Field,
    Keyed,
    Value,
    split,
    unresolved,
)

DEEPEST = 40


def expand(word: Word, env: Environment, depth: int = 0) -> list[Field]:
    """The fields a word becomes: unquoted expansions split, ``"${A[@]}"`` one an element."""
    if (spread := braces(word)) is not None:
        return [Field(text, word.line) for text in spread]
    fields: list[Field] = []
    open_field: Field | None = None

    def glue(piece: Field, quoted: bool) -> None:
        nonlocal open_field
        if open_field is None:
            open_field = piece
        else:
            line = piece.line if not open_field.text.strip(CONTINUED) else open_field.line
            text = open_field.text + piece.text
            open_field = Field(text, line, open_field.soft or piece.soft)
        if len(open_field.text) > MOST_TEXT:
            raise InputError(f"{env.file}:{word.line}: a value grows past {MOST_TEXT} characters")

    def close() -> None:
        nonlocal open_field
        if open_field is not None:
            env.spend(open_field.text, word.line)
            fields.append(open_field)
            open_field = None

    line = word.line
    for part in word.parts:
        if part.kind == "text":
            if part.text == CONTINUED:
                line += 1
            if part.text or part.quoted:
                glue(Field(part.text, line), part.quoted)
            line += part.text.count("\n")
            continue
        value = part_value(part, env, line, depth)
        if isinstance(value, Field):
            pieces = [value] if part.quoted else split(value, env.between)
            whole = not part.quoted
        else:
            whole = not part.quoted
            pieces = value if part.quoted else [p for v in value for p in split(v, env.between)]
        pieces = [_unprotected(piece) for piece in pieces]
        for count, piece in enumerate(pieces):
            if count:
                close()
            glue(piece, part.quoted)
        if whole and not pieces:
            continue
    close()
    return [f for f in fields if f.text or _quoted_empty(word)]


def _quoted_empty(word: Word) -> bool:
    return any(part.quoted for part in word.parts)


def expand_text(word: Word, env: Environment, depth: int = 0) -> Field:
    """A word as one text, as an assignment or a condition takes it: nothing is split."""
    text, soft, line, first = "", False, word.line, word.line
    for part in word.parts:
        if part.kind == "text":
            text += part.text
            line += part.text.count("\n") + part.text.count(CONTINUED)
            continue
        value = part_value(part, env, line, depth)
        pieces = [_unprotected(v) for v in ([value] if isinstance(value, Field) else value)]
        if not text.strip(CONTINUED + " \n") and pieces:
            first = pieces[0].line or first
        text += " ".join(piece.text for piece in pieces)
        soft = soft or any(piece.soft for piece in pieces)
        if len(text) > MOST_TEXT:
            raise InputError(f"{env.file}:{word.line}: a value grows past {MOST_TEXT} characters")
    first = word.line if "\n" in text or CONTINUED in text else first
    return Field(env.spend(text, word.line), first, soft)


def expand_pattern(word: Word, env: Environment, depth: int = 0) -> Field:
    """A word as a pattern: what stands in quotes stands for itself."""
    text = ""
    for part in word.parts:
        piece = part.text
        if part.kind != "text":
            value = part_value(part, env, word.line, depth)
            piece = " ".join(f.text for f in ([value] if isinstance(value, Field) else value))
        text += literally(piece) if part.quoted else piece
    return Field(env.spend(text, word.line), word.line)


_PROTECTED = str.maketrans(" \t\n", "\ue003\ue004\ue005")
_BARE = str.maketrans("\ue003\ue004\ue005", " \t\n")


def _unprotected(piece: Field) -> Field:
    """Blanks that stood in quotes inside an expansion, as blanks again."""
    if not re.search("[\ue003-\ue005]", piece.text):
        return piece
    return Field(piece.text.translate(_BARE), piece.line, piece.soft)


def part_value(part: Part, env: Environment, line: int, depth: int) -> Value:
    """What one ``$`` form stands for."""
    if depth > DEEPEST:
        raise InputError(f"{env.file}:{line}: expansions nest more than {DEEPEST} deep")
    if part.kind == "arith":
        return arithmetic(part.text, env, line, depth)
    if part.kind == "command":
        return _substitution(part.text, env, line, depth)
    return _variable(part, env, line, depth)


_ASSIGNING = re.compile(
    r"\s*(?:(?P<before>\+\+|--)\s*(?P<pre>[A-Za-z_]\w*)|(?P<name>[A-Za-z_]\w*)\s*"
    r"(?:(?P<after>\+\+|--)|(?P<op>[-+*/%]|<<|>>)?=(?!=)(?P<value>.+)))\s*",
    re.S,
)


def arithmetic(text: str, env: Environment, line: int, depth: int = 0) -> Field:
    """``$(( text ))``, assignments too; soft when it rests on a soft variable, marked when it
    cannot be done."""
    made = Field("0", line)
    for part in _by_commas(text):
        found = _ASSIGNING.fullmatch(part)
        if found is None:
            made = _computed(part, env, line, depth)
            continue
        name = found["name"] or found["pre"]
        counting = found["before"] or found["after"]
        value = f"({found['value']})" if found["value"] else "1"
        op = counting[0] if counting else found["op"] or ""
        old = _computed(name, env, line, depth) if op else made
        new = _computed(f"{name} {op} {value}" if op else value, env, line, depth)
        env.set(name, new)
        made = old if found["after"] else new
    return made


def _by_commas(text: str) -> list[str]:
    """``i=0, j=1`` as two; commas inside brackets do not part."""
    if "," not in text or "(" in text:
        return [text]
    return text.split(",")


_ELEMENT = re.compile(r"(?<![\w{$#!])([A-Za-z_]\w*)\[([^\[\]]+)\]")


def _computed(text: str, env: Environment, line: int, depth: int) -> Field:
    soft = False
    if "[" in text and _ELEMENT.search(text):  # ``A[i] * 2``
        text = _ELEMENT.sub(lambda match: f"${{{match.group()}}}", text)

    def look_up(name: str) -> int:
        nonlocal soft
        value = env.get(name)
        if isinstance(value, list):
            value = value[0] if value else None
        if value is None:
            raise Unsure(name)
        soft = soft or value.soft
        if value.unknown:
            raise Unsure(value.unknown[0])
        plain = value.plain.strip()
        whole = re.fullmatch(r"-?(0|[1-9]\d{0,17})", plain)
        return int(plain) if whole else evaluate(plain, look_once)

    def look_once(name: str) -> int:
        raise Unsure(name)

    simple = re.fullmatch(r"(?:[^$#]|\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*\})*", text)
    if ("$" in text or "#" in text) and not simple:
        inner = expand_text(Cursor(text, line, file=env.file).whole(True), env, depth + 1)
        if inner.unknown:
            return unresolved(inner.unknown[0], line)
        text, soft = inner.plain, inner.soft
    try:
        return Field(str(evaluate(text, look_up)), line, soft)
    except Unsure as missing:
        return unresolved(str(missing), line)


_WRITTEN = re.compile(
    r"cat[ \t]*<<[ \t]*(?P<quote>[\"']?)(?P<end>\w+)(?P=quote)[ \t]*\n"
    r"(?P<text>.*?)\n?(?P=end)",
    re.S,
)
"""``$(cat <<EOF ...)``: a here-document's text."""


def _substitution(text: str, env: Environment, line: int, depth: int) -> Field:
    """``$(echo X)``, ``$(seq 3)`` and their like are known; other commands' output is not."""
    stripped = text.strip()

    def inner(part: str) -> Field:
        cursor = Cursor(part, line, file=env.file)
        return expand_text(cursor.whole(False), env, depth + 1)

    if match := re.fullmatch(r"printf[ \t]+([^|;&<>\n]+)", stripped):
        made = formatted(_words_of(match.group(1), env, line, depth), line)
        return Field(made.text.rstrip("\n"), line, made.soft)
    if match := re.fullmatch(r"echo[ \t]+(?:-n[ \t]+)?([^|;&<>\n]+)", stripped):
        return inner(match.group(1))
    if match := _WRITTEN.fullmatch(stripped):
        if match["quote"]:
            return Field(match["text"], line)
        return expand_text(Cursor(match["text"], line, file=env.file).document(), env, depth + 1)
    if match := COUNTED.fullmatch(stripped):
        listed = inner(match["text"])
        count = str(listed.plain.count(",") + 1 if listed.plain or "wc" in stripped else 0)
        return unresolved(listed.unknown[0], line) if listed.unknown else Field(count, line)
    if match := re.fullmatch(r"expr[ \t]+([^|;&<>\n]+)", stripped):
        return arithmetic(match.group(1).replace("\\", ""), env, line, depth + 1)
    if match := re.fullmatch(r"(seq|basename|dirname)[ \t]+([^|;&<>\n]+)", stripped):
        words = _words_of(match.group(2), env, line, depth)
        if not any(word.unknown for word in words):
            shown = printed(match.group(1), [word.plain for word in words])
            if shown is not None:
                return Field(shown, line)
    if match := CHOSEN.fullmatch(stripped):
        value = env.get(match["name"])
        empty = value is None or (isinstance(value, Field) and not value.empty_unknown)
        taken = inner(match["yes" if empty == (match["test"] == "-z") else "no"])
        return Field(taken.text, taken.line, soft=taken.soft or value is None)
    if match := QUERY.fullmatch(stripped):
        words = _words_of(match.group(1), env, line, depth)
        told = queried([word.plain for word in words], env)
        if told is not None:
            return Field(told, line)
    if re.match(r"scontrol[ \t]+show[ \t]+hostnames?\b", stripped):
        return hosts(stripped, env, line)
    known = host_lines(stripped, env, line) or env.capture(text, line)
    return known if known is not None else unresolved(f"({stripped[:78]})", line)


def _words_of(text: str, env: Environment, line: int, depth: int) -> list[Field]:
    cursor = Cursor(text, line, file=env.file)
    found: list[Field] = []
    cursor.skip_blanks()
    while cursor.here and cursor.here not in "\n;&|()<>":
        before = cursor.at
        found += expand(cursor.word(), env, depth + 1)
        cursor.skip_blanks()
        if cursor.at == before:
            break
    return found


def _variable(part: Part, env: Environment, line: int, depth: int) -> Value:
    name, op = part.text, part.op
    if op == "!" and part.index in ("@", "*"):
        listed = env.get(name)
        names = listed.names if isinstance(listed, Keyed) else []
        if isinstance(listed, list) and not isinstance(listed, Keyed):
            names = [str(at) for at in range(len(listed))]
        return [Field(each, line) for each in names]
    if op == "!" and not part.argument:
        pointed = env.get(name)
        name = pointed.plain if isinstance(pointed, Field) else name
        op = ""
    value = env.get(name)
    if isinstance(value, list):
        return _array(value, part, env, line, depth)
    empty = value is None or not value.plain or _only_unset(value)
    if (op.startswith(":") and op[1:2] in ("-", "=", "+", "?")) or op in ("-", "=", "+", "?"):
        missing = empty if op.startswith(":") else value is None
        return _defaulted(part, op[-1], None if missing else value, name, env, line, depth)
    if value is None:
        if name in ("@", "*") or part.index in ("@", "*"):
            return []
        if name == "?":
            return Field("1" if env.status is False else "0", line)
        if name in ("$", "-", "#"):
            return Field("0", line)
        return Field("", line) if name in env.passed else unresolved(name, line)
    if op == "#" and part.argument is None:
        return Field(str(len(value.plain)), line, value.soft)
    if op and part.argument is not None:
        return _edited(value, part, env, depth)
    return value


def _only_unset(value: Field) -> bool:
    """``X=$4`` with no fourth argument: empty in a shell, so that ``${X:-1}`` is the default."""
    names = value.unknown
    variables = all(re.fullmatch(r"[A-Za-z_]\w*|\d+", name) for name in names)
    return bool(names) and variables and not value.empty_unknown


def _array(value: list[Field], part: Part, env: Environment, line: int, depth: int) -> Value:
    whole = part.index in ("@", "*") or part.text in ("@", "*")
    if part.op == "#" and part.argument is None and (whole or not part.index):
        told = next((u for each in value for u in each.unknown if not HOSTS.search(u)), "")
        return unresolved(f"#{part.text}: {told}", line) if told else Field(str(len(value)), line)
    if whole:
        if part.op == ":" and part.argument is not None:
            value = _sliced(value, expand_text(part.argument, env, depth + 1).plain, part.text)
        elif part.op and part.argument is not None and part.op[:1] in "/%#^,":
            value = [_edited(each, part, env, depth) for each in value]
        elif part.op.lstrip(":") in ("-", "=", "+") and part.argument is not None:
            if bool(value) is (part.op[-1] == "+"):
                return expand_text(part.argument, env, depth + 1)
            value = [] if part.op[-1] == "+" else value
        if part.quoted and (part.index == "*" or part.text == "*"):
            between = env.between
            joint = " " if between is None else between[:1]
            return Field(joint.join(f.text for f in value), line)
        return value
    one = _element(value, part, env, line)
    if part.op.lstrip(":") in ("-", "=", "+", "?") and part.argument is not None:
        missing = not one.plain if part.op.startswith(":") or one.line == NOWHERE else False
        return _defaulted(part, part.op[-1], None if missing else one, part.text, env, line, depth)
    if part.op and part.argument is not None and part.op[:1] in "/%#^,:":
        return _edited(one, part, env, depth)
    return one


def _sliced(value: list[Field], bounds: str, name: str) -> list[Field]:
    """``${A[@]:1:2}``; of ``$@`` the first is number 1."""
    numbers = re.fullmatch(r"\s*(-?\d{1,6})(?::\s*(\d{1,6}))?\s*", bounds)
    if numbers is None:
        return value
    start = int(numbers.group(1)) - (name in ("@", "*") and int(numbers.group(1)) > 0)
    rest = value[start:]
    return rest[: int(numbers.group(2))] if numbers.group(2) else rest


def _element(value: list[Field], part: Part, env: Environment, line: int) -> Field:
    if isinstance(value, Keyed):
        name = expand_text(Cursor(part.index, line, file=env.file).whole(True), env).plain
        name = name.strip("'\"")
        return value[value.names.index(name)] if name in value.names else Field("", NOWHERE)
    at = arithmetic(part.index or "0", env, line).plain
    index = int(at) if re.fullmatch(r"-?\d{1,6}", at) else 0
    return value[index] if -len(value) <= index < len(value) else Field("", NOWHERE)


NOWHERE = -1
"""The line of an element that an array does not have."""


def _defaulted(
    part: Part, op: str, value: Field | None, name: str, env: Environment, line: int, depth: int
) -> Field:
    argument = part.argument or Word((), line)
    if op == "+":
        return Field("", line) if value is None else expand_text(argument, env, depth + 1)
    if value is not None:
        return value
    if op == "?":
        return unresolved(name, line)
    default = expand_text(argument, env, depth + 1)
    if op == "=":
        env.set(name, Field(default.text, default.line, True))
    elif not part.quoted and any(one.quoted and one.text for one in argument.parts):
        default = _apart(argument, env, depth)
    return Field(default.text, default.line, True)


def _apart(argument: Word, env: Environment, depth: int) -> Field:
    """``${X:-"a b" c}`` unquoted: the blanks in its quotes do not split it."""
    text = ""
    for one in argument.parts:
        piece = expand_text(Word((one,), argument.line), env, depth + 1).text
        text += piece.translate(_PROTECTED) if one.quoted else piece
    return Field(text, argument.line)


def _edited(value: Field, part: Part, env: Environment, depth: int) -> Field:
    """``${X%pattern}`` and its relatives."""
    text, op = value.plain, part.op
    argument = part.argument or Word((), value.line)
    pattern = expand_pattern(argument, env, depth + 1).plain
    if OPEN in pattern or OPEN in text:
        return value
    if op in ("%", "%%", "#", "##"):
        return Field(trimmed(text, op, pattern), value.line, value.soft)
    if op in ("/", "//", "/#", "/%"):
        put = expand_text(part.second, env, depth + 1).text if part.second else ""
        made = replaced(text, op, pattern, put, MOST_TEXT)
        if made is None:
            raise InputError(
                f"{env.file}:{argument.line}: a value grows past {MOST_TEXT} characters"
            )
        return Field(made, value.line, value.soft)
    pattern = expand_text(argument, env, depth + 1).plain
    if op in ("^^", ",,"):
        return Field(text.upper() if op == "^^" else text.lower(), value.line, value.soft)
    if op in ("^", ","):
        first = text[:1].upper() if op == "^" else text[:1].lower()
        return Field(first + text[1:], value.line, value.soft)
    if op == ":":
        bounds = [arithmetic(one, env, value.line, depth + 1).plain for one in pattern.split(":")]
        if 1 <= len(bounds) <= 2 and all(re.fullmatch(r"-?\d{1,6}", one) for one in bounds):
            piece = text[int(bounds[0]) :]
            if len(bounds) == 2:
                piece = piece[: int(bounds[1])]
            return Field(piece, value.line, value.soft)
    return value
