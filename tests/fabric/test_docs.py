"""docs/fabric.md: its examples run and say what they say."""

import doctest
from pathlib import Path

DOC = Path(__file__).parents[2] / "docs" / "fabric.md"


def test_the_examples_in_the_documentation_hold():
    runner = doctest.DocTestRunner(verbose=False)
    text = DOC.read_text(encoding="utf-8").replace("```", "")
    example = doctest.DocTestParser().get_doctest(text, {}, "fabric.md", str(DOC), 0)
    runner.run(example)
    assert example.examples
    assert runner.summarize(verbose=False).failed == 0
