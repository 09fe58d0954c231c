"""The commands and examples of the documentation: found, run, and their output written anew.

``python docs/blocks.py`` rewrites, in README.md and docs/*.md, what stands under each command of a
``console`` block and under each ``>>>`` of a ``pycon`` block by what the program prints now;
``--check`` only says whether anything would change (figures of time and date aside it should not).
A line that holds only ``...`` ends the output that is kept: the rest of it is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LIMIT_S = 120
RUN = ("chipshift", "python")
"""A block's commands are run when they start with one of these; others (make, git) are shown."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language and its text."""

    page: str
    language: str
    text: str


def pages() -> list[Path]:
    """The pages whose commands are run."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """Every fenced block of a page."""
    for found in FENCE.finditer(page.read_text("utf8")):
        yield Block(page.name, found[1], found[2])


def commands(block: Block) -> list[str]:
    """The commands of a sh or console block, lines that end with a backslash joined."""
    text = block.text.replace("\\\n", " ")
    if block.language == "console":
        lines = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    elif block.language == "sh":
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    else:
        lines = []
    return [" ".join(line.split()) for line in lines if line.startswith(RUN)]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one command in a folder with this interpreter's own chipshift and python."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100", "NO_COLOR": "1"}
    start = f'chipshift() {{ "{sys.executable}" -m chipshift "$@"; }}; '
    start += f'python() {{ "{sys.executable}" "$@"; }}; '
    return subprocess.run(["bash", "-c", start + command], cwd=folder, env=env, text=True,
                          capture_output=True, timeout=LIMIT_S, check=False)  # fmt: skip


def printed(source: str, names: dict[str, object]) -> str:
    """A pycon block with what each of its statements prints now."""
    out: list[str] = []
    for one in doctest.DocTestParser().get_examples(source):
        first, *rest = one.source.rstrip("\n").splitlines()
        out += [f">>> {first}", *(f"... {line}".rstrip() for line in rest)]
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(one.source, "<documentation>", "single"), names)
        out += said.getvalue().rstrip("\n").splitlines()
    return "\n".join(out) + "\n"


def console(source: str, folder: Path) -> str:
    """A console block with what each of its commands prints now."""
    out: list[str] = []
    for part in re.split(r"^(?=\$ )", source, flags=re.MULTILINE)[1:]:
        lines = part.rstrip("\n").split("\n")
        head = 1
        while lines[head - 1].endswith("\\"):
            head += 1
        command = "\n".join(lines[:head])[2:].replace("\\\n", " ")
        if not command.startswith(RUN):
            out += lines
            continue
        fresh = run(command, folder)
        text = (fresh.stdout + fresh.stderr).rstrip("\n").split("\n")
        if lines[-1] == "...":
            text = [*text[: len(lines) - head - 1], "..."]
        out += [*lines[:head], *(line.rstrip() for line in text)]
    return "\n".join(out) + "\n"


def regenerated(page: Path) -> str:
    """The page's text with every output written anew."""
    names: dict[str, object] = {}

    def anew(found: re.Match[str]) -> str:
        language, text = found[1], found[2]
        if language == "pycon":
            text = printed(text, names)
        elif language == "console":
            text = console(text, ROOT)
        return f"```{language}\n{text}```"

    return FENCE.sub(anew, page.read_text("utf8"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    only_check = parser.parse_args().check
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT / "src"))
    from formulas import write

    if not only_check:
        write()
    changed = []
    for page in pages():
        text = regenerated(page)
        if text != page.read_text("utf8"):
            changed.append(page.name)
            if not only_check:
                page.write_text(text, "utf8")
    print(f"{len(changed)} pages {'differ' if only_check else 'written anew'}: {changed}")
    return 1 if only_check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
