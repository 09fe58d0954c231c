"""The pages of the rules: one a rule, of the same text as ``--explain``, up to date."""

import pytest

from chipshift.audit.pages import rule_page
from chipshift.audit.rules import rules


@pytest.mark.parametrize("slug", list(rules()))
def test_a_page_stands_by_itself(slug: str) -> None:
    page = rule_page(rules()[slug])
    assert page.startswith(f"# `{slug}`: ")
    assert "](" not in page and "://" not in page  # no links
