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


@pytest.mark.parametrize("slug", list(rules()))
def test_a_rule_is_documented_whole(slug: str) -> None:
    rule = rules()[slug]
    ways = {"jax": rule.jax, "torchax": rule.jax, "torchtpu": rule.torchtpu}
    ways |= {"torch_xla": rule.torch_xla, "neuron": rule.trainium}
    assert all(ways[target] for target in rule.applies_to), "a way out for each of its targets"
    assert rule.summary and rule.on_device and rule.not_a_finding
    assert rule.before and rule.after and rule.before != rule.after
    assert rule.source and all(s.publisher and s.page and s.date for s in rule.source)


def test_the_hook_for_pre_commit_calls_the_command_with_options_it_has() -> None:
    yaml = pytest.importorskip("yaml", reason="reads the hook's definition")
    from chipshift.cli.app import run

    (hook,) = yaml.safe_load((PAGES.parents[1] / ".pre-commit-hooks.yaml").read_text())
    program, command, *options = hook["entry"].split()
    assert (program, command, hook["pass_filenames"]) == ("chipshift", "audit", False)
    assert run([command, "--rules", *options[1:]]) == 0  # the options are understood
