"""What the written step has no use for in how its functions are called."""

from __future__ import annotations

import re

import pytest

from chipshift.compiled.writing.calls import plain
from chipshift.compiled.writing.text import refitted


def left(text: str) -> str:
    """The text after the pass, blank lines apart."""
    return re.sub(r"\n{2,}", "\n", plain(text, ("Weight",))).strip()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # every call gives zero=False, by its default or in words: it goes, its value stays
        (
            "def f(x, *, zero=False):\n    return g(x, zero)\na = f(1)\nb = f(2, zero=False)",
            "def f(x):\n    return g(x, False)\na = f(1)\nb = f(2)",
        ),
        # another call gives True: it stays
        (
            "def f(x, zero=False):\n    return g(x + 1, zero)\na = f(1)\nb = f(2, True)",
            "def f(x, zero=False):\n    return g(x + 1, zero)\na = f(1)\nb = f(2, True)",
        ),
        # what the function does not read goes from its calls, whatever they give
        (
            "def f(cfg, x):\n    return x + 1\na = f(f(c, d), e)",
            "def f(x):\n    return x + 1\na = f(e)",
        ),
        # somebody else calls it, who may give more
        (
            "def f(x, zero=False):\n    return x if zero else -x\na = f(1)\nb = partial(f, 2)",
            "def f(x, zero=False):\n    return x if zero else -x\na = f(1)\nb = partial(f, 2)",
        ),
        # a function inside has a parameter of that name
        (
            "def f(x, k=1):\n    return map(lambda k: k + x, y)\na = f(b)",
            "def f(x, k=1):\n    return map(lambda k: k + x, y)\na = f(b)",
        ),
    ],
)
def test_a_parameter_that_all_calls_give_alike_goes(before: str, after: str) -> None:
    assert left(before) == after


def test_a_call_that_only_gives_back_or_hands_on_goes() -> None:
    """``words`` returns what it is given; ``all_of`` calls ``one`` with it; ``out`` a method."""
    text = (
        "def words(x):\n    return x\n"
        "def all_of(a, b):\n    return one(a, b)\n"
        "class W:\n"
        "    def out(self, n):\n        return self.project(n)\n"
        "def main():\n    x = make()\n    x = words(x)\n    y = words(x + 1)\n"
        "    return all_of(x, y), w[0].out(y)"
    )
    assert left(text).endswith(
        "def main():\n    x = make()\n    y = x + 1\n    return one(x, y), w[0].project(y)"
    )


def test_a_name_for_a_literal_is_the_literal_where_it_is_read() -> None:
    """Not where it is bound anew, and no long tuple."""
    text = (
        "def f(x):\n    name, rows = 'head', ()\n    axes = ('dp', 'ep', 'cp')\n    n = 1\n"
        "    n = n + 1\n    return x[name], rows, axes, n"
    )
    assert left(text).endswith("return x['head'], (), axes, n")


def test_fields_that_nothing_reads_or_that_no_call_gives_go() -> None:
    text = (
        "class Weight:\n    shape: int\n    tp: int = None\n    ep: int = None\n"
        "    def spec(self):\n        return self.shape, self.ep\n"
        "a = Weight(1, tp=2)\nb = a.spec()"
    )
    found = left(text)
    assert "a = Weight(1)" in found
    assert "return self.shape, None" in found


def test_what_is_short_enough_for_a_line_is_on_one() -> None:
    """A comma at the end keeps it open, and so does a comment."""
    kept = "a = f(\n    1,\n)\nb = f(\n    2  # two\n)\n"
    assert refitted(kept) == kept
    assert refitted("def f(\n    x, y\n) -> None:\n    return g(\n        x\n    )\n") == (
        "def f(x, y) -> None:\n    return g(x)\n"
    )
