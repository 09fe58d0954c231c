"""The page of ``validate --html``: charts, groupings, and the worst runs with their bars."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from chipshift.validate.case import Prediction
from chipshift.validate.page import KINDS, write_page
from chipshift.validate.run import Report, run
from tests.validate.test_records import case

PARTS = {"matmul": 1.0, "tp collectives": 0.5, "dp collectives": 0.3, "other": 0.2}


def report() -> Report:
    """Thirty runs, predicted at 2 s part by part, measured at 1 to 4 s."""
    rows = [case(id=f"run-{i}", scored_step_time_s=1.0 + i / 10) for i in range(31)]
    return run(rows, lambda *_: Prediction(2.0, 1e9, 2e9, True, PARTS))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("page") / "out" / "runs.html"
    write_page(report(), place)
    return place.read_text("utf8")


def test_every_run_is_a_dot_and_the_worst_twenty_have_bars(text: str) -> None:
    assert text.count("<circle") == 31
    assert text.count('class="bar"') == 20
    # the worst is measured at 1 s and predicted at 2 s
    assert "+100.0\u00a0%" in text
    assert re.search(r"<b>run-0</b>", text)


def test_a_bar_stands_beside_the_measured_time(text: str) -> None:
    # run-0, measured at half of the 2 s predicted: matmul 50 %, other 10 %, the collectives
    # together 40 %, the mark in the middle
    first = text[text.index("<b>run-0</b>") :]
    widths = re.findall(r'class="k(\d)" x="([\d.]+)" y="0" width="([\d.]+)"', first)[:3]
    found = [(KINDS[int(k)], float(x), float(w)) for k, x, w in widths]
    assert found == [("matmul", 0, 50), ("other", 50, 10), ("collectives", 60, 40)]
    assert 'class="mark" x1="50.0"' in first


def test_every_grouping_is_there_and_what_no_source_states(text: str) -> None:
    for head in ("chip", "framework", "task", "source", "group"):
        assert f"<tr><th>{head}</th>" in text
    assert "not stated by its source: vpp, precision of weights, gradients and moments" in text


def test_a_page_of_nothing_scored(tmp_path: Path) -> None:
    write_page(run([]), tmp_path / "runs.html")
    assert "0 of 0 rows scored" in (tmp_path / "runs.html").read_text("utf8")


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""


@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM, reason="no chromium on the path: the page was not opened")
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(tmp_path: Path, width: int) -> None:
    from playwright.sync_api import sync_playwright

    write_page(report(), tmp_path / "runs.html")
    said: list[str] = []
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.on("console", lambda message: said.append(message.text))
        page.goto((tmp_path / "runs.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()
    assert said == []
