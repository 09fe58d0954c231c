"""The page in a real headless browser: no message, nothing wider than the window, charts seen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chipshift.report.page import page as page_of
from tests.report.answers import answer, explained
from tests.report.test_page import text

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="no chromium on the path: the report was not opened"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        found = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    place: Path = tmp_path_factory.mktemp("report") / "report.html"
    place.write_text(text(), "utf8")
    return place.as_uri()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_message_and_nothing_wider_than_the_window(
    browser: Browser, address: str, width: int, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("document.querySelectorAll('details:not(.fig)').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert said == []
    assert asked == [address]
    page.close()


def test_without_a_script_every_chart_is_seen_and_a_figure_opens(
    browser: Browser, address: str
) -> None:
    page = browser.new_page(java_script_enabled=False, viewport={"width": 1280, "height": 900})
    page.goto(address)
    seen = [svg for svg in page.locator("svg.chart").all() if svg.is_visible()]
    assert len(seen) >= 8  # two rulers, roofline, breakdown, memory, three fabrics
    for svg in seen:
        box = svg.bounding_box()
        assert box is not None
        assert box["width"] > 200
        assert box["height"] > 50
    figure = page.locator("#figures details.fig").first
    work = figure.locator(".work").first
    assert not work.is_visible()
    figure.locator("summary").first.click()
    assert work.is_visible()
    page.close()


def test_a_deeper_step_of_a_figure_is_one_link_away_without_a_script(
    browser: Browser, address: str
) -> None:
    page = browser.new_page(java_script_enabled=False, viewport={"width": 1280, "height": 900})
    page.goto(address)
    figure = page.locator("#figures details.fig:has(.work a[href^='#w'])").first
    figure.locator("summary").first.click()
    link = figure.locator('.work a[href^="#w"]').first
    place = (link.get_attribute("href") or "").removeprefix("#")
    step = page.locator(f"[id='{place}']")
    assert not step.is_visible()
    link.click()
    assert step.is_visible()
    page.close()


@pytest.mark.parametrize("width", [1280, 900, 390])
def test_eight_columns_of_figures_stay_within_the_window(
    browser: Browser, width: int, tmp_path: Path
) -> None:
    found, worked = answer(), explained()
    target = found["targets"][0]
    targets = [{**target, "machine": {**target["machine"], "name": name}}
               for name in ("v6e:16x16", "v5p:4x8x8", "v7x:4x4x8")]  # fmt: skip
    made = page_of({**found, "targets": targets},
                   {**worked, "targets": [worked["targets"][0]] * 3})  # fmt: skip
    assert 'class="units labels dense"' in made
    place = tmp_path / "page.html"
    place.write_text(made, "utf8")
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(place.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_it_prints_to_pages_of_paper(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(address)
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    assert 4 <= pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") <= 25
    page.close()
