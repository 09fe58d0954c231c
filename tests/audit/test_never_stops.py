"""No source text stops the audit: it is read, or skipped with a reason."""

from __future__ import annotations

import ast
import random
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from chipshift.audit.facts import FileFacts
from chipshift.audit.judge import findings_of
from chipshift.audit.link import link
from chipshift.audit.read import read_source

from .cases import CASES, LOOKALIKES

WORDS = [
    "import",
    "torch",
    "jax",
    "def",
    "class",
    "for",
    "in",
    "if",
    "else",
    "while",
    ":",
    "(",
    ")",
    "[",
    "]",
    "=",
    "==",
    ".",
    ",",
    "\n",
    "\n\n",
    "",
    "",
    "",
    "\t",
    "x",
    "y",
    "loss\n.item()",
    ".cuda()",
    '"cuda"',
    "model",
    "self",
    "return",
    "lambda",
    "with",
    "as",
    "try",
    "except",
    "None",
    "True",
    "128",
    "8",
    "*",
    "//",
    "%",
    "+",
    "-",
    "@",
    'f"cuda:{x}"\ntorch.cuda.Stream()',
    "from",
    "torch",
    "import",
    "nn",
    "yield",
    "await",
    "async",
    "match",
    "case",
    ":",
    ":=",
    "**",
    "~",
    "not",
    "and",
    "or",
    "is",
]


def read_and_judge(source: str) -> None:
    facts = FileFacts("a.py", "a", lines=source.count("\n"))
    read_source(source, facts)
    if not facts.skipped:
        for one in findings_of(facts, link([facts]), None, None):
            assert 1 <= one.line <= one.end_line
            assert one.message and one.targets


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=40))
def test_any_words(words: list[str]) -> None:
    read_and_judge("import torch\n" + " ".join(words))


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    read_and_judge("import torch\n" + text)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_statements_of_the_cases_in_any_order_and_depth(seed: int) -> None:
    pick = random.Random(seed)
    statements: list[ast.stmt] = []
    for code in pick.sample([c[2] for c in (*CASES, *LOOKALIKES)], 4):
        import textwrap

        statements += ast.parse(textwrap.dedent(code).lstrip("\n")).body
    pick.shuffle(statements)
    inner = ast.unparse(ast.Module(statements, []))
    body = "\n".join("        " + line for line in inner.splitlines())
    read_and_judge(f"import torch\nfor x in loader:\n    if rank == 0:\n{body}\n")


def test_this_package_itself_is_read(tmp_path: Path) -> None:
    from chipshift.audit.run import audit

    root = Path(__file__).parents[2] / "src" / "chipshift" / "audit"
    result = audit(root, jobs=1)
    assert result.files > 30 and not result.skipped


def test_a_file_read_leaves_nothing_behind() -> None:
    # Workers read with the collector off: a cycle that holds a tree would grow with the files.
    import gc
    import weakref

    facts = FileFacts("a.py", "a", lines=2)
    seen: list[weakref.ref[ast.Module]] = []
    parse = ast.parse

    def watched(source: str) -> ast.Module:
        tree = parse(source)
        seen.append(weakref.ref(tree))
        return tree

    gc.disable()
    try:
        ast.parse = watched  # type: ignore[assignment]
        read_source("import torch\nclass A:\n    def f(self, x):\n        x.cuda()\n", facts)
    finally:
        ast.parse = parse
        gc.enable()
    assert facts.hazards and seen[0]() is None
