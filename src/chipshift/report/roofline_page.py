"""The roofline as a self-contained page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chipshift.report.pictures import rooflines
from chipshift.units import duration, si


def roofline_page(answer: Mapping[str, Any]) -> str:
    """The page of ``roofline --html``: the plot, the ridges, and every op with its reason."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("chipshift.report"), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.globals.update(duration=duration, si=si)
    return environment.get_template("roofline.html").render(
        job=answer["job"], r=rooflines(answer["machines"])
    )
