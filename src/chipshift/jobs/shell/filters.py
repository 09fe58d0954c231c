"""What small programs print of a text that is known: ``tr``, ``cut``, ``awk '{print $2}'`` ...

Only the forms that launch scripts use; any other is None, and so is its output. Sources:
POSIX.1-2017, Shell and Utilities; GNU coreutils, grep and sed manuals, 2024.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from chipshift.jobs.shell.arith import Unsure, evaluate
from chipshift.jobs.shell.patterns import compiled, extended, searched

Printed = tuple[str, bool] | None
"""What is printed and whether it succeeds; None where only a run could tell."""


def filtered(name: str, words: Sequence[str], text: str) -> Printed:
    """What the program prints of its input."""
    known = _KNOWN.get(name)
    return known(list(words), text) if known is not None else None


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _options(words: list[str], valued: str) -> tuple[dict[str, str], list[str]]:
    """``-d, -f 2`` by letter, and what is no option."""
    found: dict[str, str] = {}
    rest: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        if not word.startswith("-") or word == "-":
            rest.append(word)
        elif word[1:2] in valued and word[1:2]:
            taken = word[2:]
            if not taken and at + 1 < len(words):
                at += 1
                taken = words[at]
            found[word[1]] = taken
        else:
            found |= dict.fromkeys(word.lstrip("-"), "")
        at += 1
    return found, rest


def _cat(words: list[str], text: str) -> Printed:
    return (text, True) if not words or words == ["-"] else None


def _wc(words: list[str], text: str) -> Printed:
    counts = {"l": text.count("\n"), "w": len(text.split()), "c": len(text), "m": len(text)}
    told = [counts[word[1]] for word in words if re.fullmatch("-[lwcm]", word)]
    return (f"{told[0]}\n", True) if len(told) == len(words) == 1 else None


def _head(words: list[str], text: str) -> Printed:
    return _some(words, lambda lines, count: lines[:count], text)


def _tail(words: list[str], text: str) -> Printed:
    if any(word.startswith("+") for word in words):
        return None
    return _some(words, lambda lines, count: lines[-count:] if count else [], text)


def _some(words: list[str], take: Callable[[list[str], int], list[str]], text: str) -> Printed:
    told = "".join(words).removeprefix("-").removeprefix("n").removeprefix("=") or "10"
    return (_joined(take(_lines(text), int(told))), True) if told.isdecimal() else None


def _tr(words: list[str], text: str) -> Printed:
    options, sets = _options(words, "")
    if not sets or set(options) - set("ds") or any("[" in one and len(one) > 1 for one in sets):
        return _cased(sets, text) if not options else None
    first, second = (_spread(one) for one in (*sets, "")[:2])
    if "d" in options:
        return "".join(c for c in text if c not in first), True
    if len(sets) == 2 and second:
        second += second[-1] * (len(first) - len(second))
        text = text.translate({ord(a): b for a, b in zip(first, second, strict=False)})
    if "s" in options:
        squeezed = second if len(sets) == 2 else first
        text = re.sub(rf"([{re.escape(squeezed)}])\1+", r"\1", text) if squeezed else text
    return text, True


def _cased(sets: list[str], text: str) -> Printed:
    if sets == ["[:upper:]", "[:lower:]"]:
        return text.lower(), True
    return (text.upper(), True) if sets == ["[:lower:]", "[:upper:]"] else None


def _spread(text: str) -> str:
    """``a-z`` and ``\\n`` in a set of ``tr``."""
    plain = text.replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\")

    def between(match: re.Match[str]) -> str:
        return "".join(map(chr, range(ord(match.group(1)), ord(match.group(2)) + 1)))

    return re.sub(r"([0-9A-Za-z])-([0-9A-Za-z])", between, plain)


def _cut(words: list[str], text: str) -> Printed:
    options, rest = _options(words, "dfc")
    asked = re.fullmatch(r"(\d*)(-?)(\d*)", options.get("f", options.get("c", "")))
    if rest or not asked or not asked.group(1) + asked.group(3) or set(options) - set("dfcs"):
        return None
    first = int(asked.group(1) or 1)
    last = int(asked.group(3)) if asked.group(3) else None if asked.group(2) else first
    if first < 1:
        return None
    if "c" in options:
        return _joined([line[first - 1 : last] for line in _lines(text)]), True
    by = options.get("d", "\t")
    if len(by) != 1:
        return None
    return _joined(
        [by.join(line.split(by)[first - 1 : last]) if by in line else line for line in _lines(text)]
    ), True


_PRINT = re.compile(r"\s*\{\s*print\s+(\$\d+|\$NF|NF|\$0)\s*;?\s*\}\s*")
_BEGIN = re.compile(
    r"\s*BEGIN\s*\{\s*print(?:f\s*\"%(?:d|i|\.0f)\"\s*,)?\s*\(?([\d\s+*/()-]+?)\)?\s*;?\s*\}\s*"
)


def _awk(words: list[str], text: str) -> Printed:
    options, rest = _options(words, "F")
    if set(options) - {"F"} or len(rest) != 1:
        return None
    if begun := _BEGIN.fullmatch(rest[0]):
        value = _whole(begun.group(1), divides="printf" in rest[0])
        return (value, True) if value is not None else None
    found = _PRINT.fullmatch(rest[0])
    by = options.get("F")
    if found is None or (by is not None and (len(by) != 1 or by in "\\|")):
        return None
    printed = []
    for line in _lines(text):
        fields = line.split(by) if by and by != " " else line.split()
        told = found.group(1)
        if told == "NF":
            printed.append(str(len(fields)))
        elif told == "$0":
            printed.append(line)
        else:
            at = len(fields) if told == "$NF" else int(told[1:])
            printed.append(fields[at - 1] if 1 <= at <= len(fields) else "")
    return _joined(printed), True


def _whole(text: str, divides: bool = False) -> str | None:
    """A sum in whole numbers; a division that leaves a rest only where it is cut off."""

    def unknown(name: str) -> int:
        raise Unsure(name)

    if "/" in text and not divides:
        return None
    try:
        return f"{evaluate(text, unknown)}\n"
    except Unsure:
        return None


def _bc(words: list[str], text: str) -> Printed:
    if [word for word in words if word not in ("-q", "-lq")]:
        return None
    lines = [line for line in re.split("[;\n]", text) if line.strip()]
    if len(lines) != 1 or not re.fullmatch(r"[\d\s+*/()%-]+", lines[0]):
        return None
    value = _whole(lines[0], divides=True)
    return (value, True) if value is not None else None


_REPLACE = re.compile(r"s([/|#,@:])((?:\\.|(?!\1).)*)\1((?:\\.|(?!\1).)*)\1(g?)")
_ONE_LINE = re.compile(r"(\d+|\$)(p|q;d)")


def _sed(words: list[str], text: str) -> Printed:
    options, rest = _options(words, "e")
    if set(options) - set("enErs"):
        return None
    script = options.get("e") or (rest.pop(0) if rest else "")
    if rest:
        return None
    chosen = _ONE_LINE.fullmatch(script)
    lines = _lines(text)
    if chosen and ("n" in options) == (chosen.group(2) == "p"):
        at = len(lines) if chosen.group(1) == "$" else int(chosen.group(1))
        return _joined(lines[at - 1 : at] if at else []), True
    for one in script.split(";"):
        found = _REPLACE.fullmatch(one.strip())
        if found is None or "n" in options:
            return None
        pattern, put = found.group(2), found.group(3)
        if not {"E", "r"} & set(options):  # basic: brackets and + stand for themselves
            if re.search(r"\\[(){}+?|]|\\\d", pattern + put):
                return None
            pattern = re.sub(r"[(){}+?|]", lambda match: "\\" + match.group(), pattern)
        made = [_put(extended(pattern), put, line, found.group(4) == "g") for line in lines]
        lines = [line for line in made if line is not None]
        if len(lines) != len(made):
            return None
    return _joined(lines), True


def _put(pattern: str, put: str, line: str, everywhere: bool) -> str | None:
    made = compiled(pattern)
    if searched(pattern, line) is False or made is None or "\n" in put:
        return None
    whole = re.sub(r"(?<!\\)&", lambda match: "\\g<0>", put)
    try:
        return made.sub(whole, line, count=0 if everywhere else 1)
    except (re.error, IndexError):
        return None


def _grep(words: list[str], text: str) -> Printed:
    options, rest = _options(words, "e")
    pattern = options.get("e") or (rest.pop(0) if rest else "")
    if rest or set(options) - set("eqowEPicvF") or not pattern:
        return None
    if "F" in options:
        pattern = re.escape(pattern)
    elif not {"E", "P"} & set(options):
        if re.search(r"\\[(){}+?|]", pattern):
            return None
        pattern = re.sub(r"[(){}+?|]", lambda match: "\\" + match.group(), pattern)
    kept = pattern.partition("\\K") if "P" in options else ("", "", pattern)
    pattern = f"(?:{kept[0]})(?P<kept>{kept[2]})" if kept[1] else f"(?P<kept>{pattern})"
    pattern = ("(?i)" if "i" in options else "") + extended(pattern)
    pattern = rf"\b{pattern}\b" if "w" in options and "i" not in options else pattern
    lines = []
    for line in _lines(text):
        found = searched(pattern, line)
        if found is False:
            return None
        if bool(found) is ("v" in options):
            continue
        if "o" in options and "v" not in options:
            made = compiled(pattern)
            lines += [one["kept"] for one in made.finditer(line) if one["kept"]] if made else []
        else:
            lines.append(line)
    if "q" in options:
        return "", bool(lines)
    return (f"{len(lines)}\n" if "c" in options else _joined(lines)), bool(lines)


def _sort(words: list[str], text: str) -> Printed:
    if any(word not in ("-u", "-n", "-r", "-V", "-nr", "-rn") for word in words) or "-V" in words:
        return None
    lines = _lines(text)
    numbers = any("n" in word for word in words)
    if numbers and not all(re.fullmatch(r"-?\d{1,18}", line) for line in lines):
        return None
    lines.sort(key=int if numbers else None, reverse=any("r" in word for word in words))
    return _joined(list(dict.fromkeys(lines)) if "-u" in words else lines), True


def _uniq(words: list[str], text: str) -> Printed:
    lines = _lines(text)
    return (
        None
        if words
        else (
            _joined([one for at, one in enumerate(lines) if not at or one != lines[at - 1]]),
            True,
        )
    )


def _xargs(words: list[str], text: str) -> Printed:
    return (f"{' '.join(text.split())}\n", True) if not words or words == ["echo"] else None


_KNOWN: dict[str, Callable[[list[str], str], Printed]] = {
    "cat": _cat, "wc": _wc, "head": _head, "tail": _tail, "tr": _tr, "cut": _cut, "awk": _awk,
    "gawk": _awk, "bc": _bc, "sed": _sed, "grep": _grep, "sort": _sort,
    "uniq": _uniq, "xargs": _xargs,
}  # fmt: skip

PROGRAMS = frozenset({*_KNOWN, "tee"})
"""Programs that print what they read otherwise."""
