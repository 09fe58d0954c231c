"""The pages of the rules: one a rule, of the same text as ``--explain``, up to date."""

from pathlib import Path

import pytest

from chipshift.audit.pages import all_pages, rule_page
from chipshift.audit.rules import rules

PAGES = Path(__file__).parents[2] / "docs" / "rules"


def test_the_pages_in_the_documentation_are_up_to_date() -> None:
    """``python scripts/write_rule_pages.py`` writes them."""
    on_disk = {file.name: file.read_text(encoding="utf-8") for file in PAGES.glob("*.md")}
    assert on_disk == all_pages()


@pytest.mark.parametrize("slug", list(rules()))
def test_a_page_stands_by_itself(slug: str) -> None:
    page = rule_page(rules()[slug])
    assert page.startswith(f"# `{slug}`: ")
    assert "](" not in page and "://" not in page  # no links
