"""What small programs would print, and what braces spread to."""

from __future__ import annotations

import re

from chipshift.jobs.shell.nodes import Word
from chipshift.jobs.shell.values import Environment, Field, unresolved

HOSTS = re.compile(r"^\(scontrol\Wshow\Whostnames?\b")
"""What the scheduler prints one line a node of; their number is known where the job's is."""

COUNTED = re.compile(
    r"echo\s+(?P<text>[^|;&<>\n]+?)\s*\|\s*(?:tr\s+(?:-s\s+)?[\"']?,[\"']?\s+[\"']?(?:\\n| )[\"']?"
    r"\s*\|\s*wc\s+-[lw]|awk\s+-F\s*[\"']?,[\"']?\s+'\{\s*print\s+NF;?\s*\}')"
)


CHOSEN = re.compile(
    r"\[\[?\s+(?P<test>-[zn])\s+[\"']?\$\{?(?P<name>[A-Za-z_]\w*)(?::?-)?\}?[\"']?\s+\]\]?\s*&&\s*"
    r"echo\s+(?:-n\s+)?(?P<yes>[^|;&<>\n]+?)\s*\|\|\s*echo\s+(?:-n\s+)?(?P<no>[^|;&<>\n]+?)\s*"
)
"""``[ -z "$X" ] && echo -n 1 || echo -n $X``: one of two, by whether a variable is set."""


def printed(program: str, words: list[str]) -> str | None:
    """What ``seq``, ``basename`` and ``dirname`` print; None where only they could tell."""
    if program == "seq":
        return _counted(words)
    path = words[0].rstrip("/") if words else ""
    if program == "dirname":
        return path.rpartition("/")[0] or "."
    base = path.rpartition("/")[2]
    return base.removesuffix(words[1]) if len(words) > 1 and words[1] != base else base


def _counted(words: list[str]) -> str | None:
    """The numbers of ``seq FIRST STEP LAST``, apart by what ``-s`` says."""
    between = " "
    if words and (option := re.fullmatch(r"-s(.*)", words[0], re.S)):
        between, words = option[1], words[1:]
        if not between and words:
            between, words = words[0], words[1:]
    numbers = [int(w) for w in words if re.fullmatch(r"-?\d{1,6}", w)]
    if len(numbers) != len(words) or not 1 <= len(words) <= 3:
        return None
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) == 3 else 1
    last = numbers[-1] + (1 if step > 0 else -1)
    return between.join(map(str, [*range(first, last, step or 1)][:MOST_LISTED]))


MOST_LISTED = 1000
"""Words that ``seq`` and ``{1..n}`` make at most."""


def hosts(text: str, env: Environment, line: int) -> Field:
    """A job's hosts: as many words as the scheduler gives it nodes, none of them known."""
    nodes = env.get("SLURM_NNODES")
    count = nodes.plain if isinstance(nodes, Field) else ""
    one = unresolved(f"({text[:78]})", line)
    if re.search(r"\|\s*wc\s+-[lw]\s*$", text):
        return nodes if isinstance(nodes, Field) else one
    if "|" in text or not re.fullmatch(r"\d{1,4}", count):
        return one
    return Field(" ".join([one.text] * int(count)), line)


NODEFILE = re.compile(
    r"(?:(?P<first>sort[ \t]+-u|sort|uniq|cat)[ \t]+|wc[ \t]+-l[ \t]*<[ \t]*)"
    r"[\"']?\$\{?(?P<name>[A-Za-z_]\w*)\}?[\"']?"
    r"(?P<then>(?:\s*\|\s*(?:sort(?:[ \t]+-u)?|uniq))*)(?:\s*\|\s*wc[ \t]+-l)?"
)
"""``sort -u $PBS_NODEFILE | wc -l`` and its like: lines of the file that PBS writes."""


def host_lines(text: str, env: Environment, line: int) -> Field | None:
    """How many hosts PBS's file lists; None where the text counts something else.

    A host stands in it once for each process (``mpiprocs``, TORQUE's ``ppn``), so that only its
    different lines are as many as the nodes.
    Source: Altair, PBS Professional, "PBS_NODEFILE", 2024.
    """
    match = NODEFILE.fullmatch(text)
    if match is None or "wc" not in text:
        return None
    value = env.get(match["name"])
    named = value.unknown if isinstance(value, Field) else (match["name"],)
    nodes = env.get("PBS_NUM_NODES")
    once = re.search(r"-u\b|\buniq\b", (match["first"] or "") + match["then"])
    if named != ("PBS_NODEFILE",) or not once or not isinstance(nodes, Field):
        return None
    return Field(nodes.text, line)


_RANGE = re.compile(r"(.*?)\{(-?\d{1,6})\.\.(-?\d{1,6})(?:\.\.(-?\d{1,6}))?\}(.*)", re.S)
_LETTERS = re.compile(r"(.*?)\{([A-Za-z])\.\.([A-Za-z])\}(.*)", re.S)
_CHOICES = re.compile(r"(.*?)\{([^{},\s]*(?:,[^{},\s]*)+)\}(.*)", re.S)


def braces(word: Word) -> list[str] | None:
    """``{0..3}`` and ``{a,b}`` outside of quotes; None where the word has neither."""
    text = word.literal
    if text is None or "{" not in text or any(part.quoted for part in word.parts):
        return None
    if found := _RANGE.fullmatch(text):
        head, first, last, stride, tail = found.groups()
        way = 1 if int(last) >= int(first) else -1
        step = way * max(abs(int(stride or 1)), 1)
        padded = any(re.match(r"-?0\d", end) for end in (first, last))
        width = max(len(first), len(last)) if padded else 0
        steps = range(int(first), int(last) + way, step)[:MOST_LISTED]
        listed = [str(at).zfill(width) for at in steps]
    elif found := _LETTERS.fullmatch(text):
        head, first, last, tail = found.groups()
        way = 1 if last >= first else -1
        listed = [chr(at) for at in range(ord(first), ord(last) + way, way)]
    elif found := _CHOICES.fullmatch(text):
        head, choices, tail = found.groups()
        listed = choices.split(",")
    else:
        return None
    return [head + one + tail for one in listed]
