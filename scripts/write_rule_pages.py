"""Write docs/rules/ from the texts of the rules: ``python scripts/write_rule_pages.py``."""

from __future__ import annotations

from pathlib import Path

from chipshift.audit.pages import all_pages

PAGES = Path(__file__).parents[1] / "docs" / "rules"


def main() -> None:
    """Write every page, and take away those of rules that are gone."""
    PAGES.mkdir(parents=True, exist_ok=True)
    pages = all_pages()
    for file in PAGES.glob("*.md"):
        if file.name not in pages:
            file.unlink()
    for name, text in pages.items():
        (PAGES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
