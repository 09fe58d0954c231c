"""Take docs/images/report.png anew: the report of the README's job, its first parts side by side.

    python scripts/take_picture.py [--out docs/images/report.png]

Chromium has to be on the path. The page is opened as a reader's light desktop shows it, cut at the
verdict and at part three, and the two cuts are set beside each other.
"""

from __future__ import annotations

import argparse
import base64
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[1]
JOB = ("assess", "examples/llama3-8b-torchtitan.toml", "--on", "h100*128", "--to", "v6e",
       "--to", "v7x", "--tokens", "15e12")  # fmt: skip
PAGE, COLUMN, HEIGHT = 1000, 740, 1550
"""Pixels: the window, the width that a cut is scaled to, and the height of the picture."""


def main() -> int:
    """Write the picture; 0 when it is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "report.png")
    out = parser.parse_args().out.resolve()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("take_picture: no chromium on the path", file=sys.stderr)
        return 2
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as p:
        report = Path(folder) / "report.html"
        write_report(report)
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        cuts = [cut(browser, report, part) for part in ("verdict", "figures")]
        beside(browser, cuts, out)
        browser.close()
    print(out)
    return 0


def write_report(report: Path) -> None:
    """The report, from the repository's root so that its files are named as in the README."""
    import contextlib
    import io
    import os

    from chipshift.cli.app import run

    os.chdir(ROOT)
    with contextlib.redirect_stdout(io.StringIO()):
        code = run([*JOB, "--html", str(report)])
    if code:
        raise SystemExit(code)


def cut(browser: Browser, report: Path, part: str) -> bytes:
    """The page from one part on, as high as its column in the picture."""
    page = browser.new_page(viewport={"width": PAGE, "height": 1000}, color_scheme="light")
    page.goto(report.as_uri())
    top = page.evaluate(f"document.getElementById('{part}').getBoundingClientRect().top")
    shot = page.screenshot(
        full_page=True,
        clip={"x": 0, "y": max(top - 12, 0), "width": PAGE, "height": HEIGHT * PAGE / COLUMN},
    )
    page.close()
    return shot


def beside(browser: Browser, cuts: list[bytes], out: Path) -> None:
    """The cuts side by side in one picture."""
    images = "".join(
        f'<img width={COLUMN} src="data:image/png;base64,{base64.b64encode(one).decode()}">'
        for one in cuts
    )
    width = COLUMN * len(cuts) + 20
    page = browser.new_page(viewport={"width": width, "height": HEIGHT})
    page.set_content(f"<body style='margin:0;display:flex;gap:20px;background:#fff'>{images}")
    page.screenshot(path=str(out), clip={"x": 0, "y": 0, "width": width, "height": HEIGHT})
    page.close()


if __name__ == "__main__":
    sys.exit(main())
