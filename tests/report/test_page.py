"""The page: self-contained, whole without a script, every figure with its derivation."""

from __future__ import annotations

import functools
import re
from html.parser import HTMLParser

import pytest

from chipshift.compiled import topology
from chipshift.compiled.report import report
from chipshift.compiled.request import Request
from chipshift.flows.roofline import of_estimate
from chipshift.machines.names import parse_machine
from chipshift.report.derivation import Book, figures_of, panel, written
from chipshift.report.page import Detail, breakable, broken, count, page, shown_at
from chipshift.report.words import headline
from chipshift.units import duration
from chipshift.worked import formula, leaf, rename
from tests.report.answers import answer, assessment, explained, refused

VOID = {"meta", "link", "br", "line", "rect", "circle", "path"}


@functools.cache
def text() -> str:
    found = assessment()
    runs = [found.present, *(t.estimate for t in found.targets if t.estimate is not None)]
    return page(answer(), explained(), [of_estimate(e) for e in runs])


class Outline(HTMLParser):
    """Ids, links, external references and the order of the parts."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.outside: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids += [v for k, v in attrs if k == "id" and v]
        href = found.get("href") or ""
        if href.startswith("#"):
            self.links.append(href[1:])
        self.outside += [
            v for k, v in attrs
            if k in ("src", "href", "data", "action") and v and not v.startswith(("#", "data:,"))
        ]  # fmt: skip
        self.scripts += tag == "script"


def outline() -> Outline:
    found = Outline()
    found.feed(text())
    return found


def test_it_is_one_file_without_script_or_outside_resource() -> None:
    found = outline()
    assert found.scripts == 0
    assert found.outside == []
    assert "url(" not in text()
    assert "@import" not in text()


def test_it_is_smaller_than_two_megabytes() -> None:
    assert len(text().encode()) < 2_000_000


def test_ids_are_unique_and_every_link_leads_somewhere() -> None:
    found = outline()
    assert len(found.ids) == len(set(found.ids))
    assert set(found.links) <= set(found.ids)


def test_the_parts_stand_in_the_fixed_order() -> None:
    parts = ["verdict", "transfers", "relearn", "figures", "proof", "assumptions", "errors",
             "sources", "working"]  # fmt: skip
    assert [i for i in outline().ids if i in parts] == parts


def test_every_chart_has_a_title_and_a_description() -> None:
    charts = re.findall(r"<svg.*?</svg>", text(), re.S)
    assert len(charts) >= 12
    assert all("<title>" in c and "<desc>" in c and 'role="img"' in c for c in charts)


def test_step_time_opens_its_derivation_with_formula_and_source() -> None:
    shown = re.escape(duration(answer()["from"]["step_time_s"]))
    found = re.search(rf"<summary[^>]*>{shown}</summary>(.*?)</details></span></td>", text(), re.S)
    assert found is not None
    assert "matmul_s + attention_s" in found.group(1)


def test_a_target_that_does_not_fit_is_said_not_drawn() -> None:
    refusal = refused()
    worked = {"from": explained()["from"], "targets": [{}, explained()["targets"][0]]}
    made = page(refusal, worked)
    assert "does not fit" in made


@formula(unit="m²", source="geometry")
def area(a: float, b: float) -> float:
    """Sides multiplied."""
    return a * b


@formula(unit="m³", source="geometry")
def volume(base: float, height: float) -> float:
    """Base times height."""
    return base * height


def brick() -> Book:
    """2 m × 3 m × 4 m: an area of 6 m² and a volume of 24 m³."""
    side = leaf(2.0, "m", "side", "measured")
    base = rename(area(side, leaf(3.0, "m", "depth", "measured")), "base")
    book = Book()
    book.add("brick", figures_of("", {"volume": volume(base, leaf(4.0, "m", "height", "given"))}))
    return book


def test_equal_steps_and_equal_sources_are_entered_once() -> None:
    book = brick()
    assert [s.name for s in book.steps] == ["side", "depth", "base", "height", "volume"]
    assert book.sources == {"measured": 1, "geometry": 2, "given": 3}
    twice = len(book.steps)
    side, depth = leaf(2.0, "m", "side", "measured"), leaf(3.0, "m", "depth", "measured")
    book.add("again", [("base", rename(area(side, depth), "base"))])
    assert len(book.steps) == twice


def test_a_panel_shows_formula_values_and_source_numbers() -> None:
    html = str(panel(brick(), "volume", 16))
    assert "<b>volume</b> = 24 m³" in html
    assert "= base × height" in html
    assert "side = 2 m" in html
    assert "#s1" in html


def test_a_figure_without_working_has_no_panel() -> None:
    assert str(panel(brick(), "weight", 16)) == ""


def test_a_panel_opens_as_many_inner_steps_as_it_has_lines_for() -> None:
    # volume reads 2 inputs (3 lines); the area inside it reads 2 more (5 lines)
    assert "<details>" in str(panel(brick(), "volume", 5))
    assert "<details>" not in str(panel(brick(), "volume", 4))


def test_the_list_of_steps_says_each_once_with_links_to_its_inputs() -> None:
    html = str(written(brick()))
    assert html.count("<dt") == 2
    assert "href=#w2>base = 6 m²" in html


def test_a_formula_stands_once_with_what_its_evaluations_share_taken_out() -> None:
    """Two bricks of the same height, 5 m, on bases of 6 m² and 12 m²: 30 m³ and 60 m³."""
    height = leaf(5.0, "m", "height", "given")
    book = Book()
    for name, side in (("first", 2.0), ("second", 4.0)):
        base = rename(area(leaf(side, "m", "side", name), leaf(3.0, "m", "depth", "rule")), "base")
        book.add(name, [(name, volume(base, height))])
    html = str(written(book))
    assert html.count("base × height") == html.count("side × depth") == 1
    volumes = html[html.index("base × height") :]
    assert volumes.count("height = 5 m") == 1
    assert "volume from base:" in volumes
    assert re.findall(r"class=from(\d)>(\d+ m³): <a href=#w\d+>(\d+ m²)</a>", volumes) == [
        ("0", "30 m³", "6 m²"), ("1", "60 m³", "12 m²")
    ]  # fmt: skip


def test_an_input_equal_to_the_row_above_is_a_ditto_mark() -> None:
    """Areas 2 × 3, 2 × 4 and 5 × 4: the second repeats the side, the third the depth."""
    book = Book()
    for i, (side, depth) in enumerate(((2.0, 3.0), (2.0, 4.0), (5.0, 4.0))):
        made = area(leaf(side, "m", "side", ""), leaf(depth, "m", "depth", ""))
        book.add("", [(str(i), made)])
    rows = re.findall(r"m²: ([^<]*)", str(written(book)))
    assert rows == ["2 m, 3 m", "″, 4 m", "5 m, ″"]


def test_names_from_a_job_file_cannot_become_markup() -> None:
    found = {**answer(), "job": {**answer()["job"], "name": "<script>x</script>"}}
    made = page(found, explained())
    assert "<script>" not in made


@pytest.mark.parametrize("path", ["from.step_time_s", "targets.0.memory_bytes.total"])
def test_headline_figures_have_panels(path: str) -> None:
    book = Book()
    book.add("all", figures_of("", explained()))
    assert panel(book, path, 10)


def test_verdicts_of_the_same_word_share_a_clause_and_the_best_comes_first() -> None:
    def target(name: str, word: str, cost: float | None = 1.0) -> dict[str, object]:
        return {"machine": {"name": name}, "verdict": word, "ratio": {"cost_per_token": cost}}

    even = "within_the_error"
    unpriced = target("d", "neither", None)
    targets = [target("a", even), target("b", "both"), target("c", even), unpriced]
    assert headline({"targets": targets}) == (
        "Faster and cheaper on b; no difference beyond the error on a and c; "
        "not faster, cost unknown on d"
    )


@pytest.mark.parametrize(
    ("value", "shown"), [(15e12, "15e12"), (1e12, "1e12"), (1.5e12, "1.5e12"), (4e11, "400e9"),
                         (512.0, "512")]
)  # fmt: skip
def test_a_run_has_its_tokens_as_people_write_them(value: float, shown: str) -> None:
    assert count(value) == shown


def test_a_long_word_may_be_broken_at_its_signs_and_stays_text() -> None:
    assert breakable("remat a_b<c") == "remat a_<wbr>b&lt;c"


def test_a_command_is_broken_as_a_shell_joins_it() -> None:
    command = " ".join(f"--option-{i}=value" for i in range(20))
    made = broken(command)
    assert max(map(len, made.split("\n"))) <= 102
    assert " ".join(made.replace("\\\n", "").split()) == command


def test_many_targets_stay_below_two_megabytes_and_within_the_columns() -> None:
    found, worked = answer(), explained()
    target = found["targets"][0]
    # machines of 256 devices each, as the plan's degrees need
    names = ["v6e:16x16", "v5p:4x8x8", "v7x:4x4x8", "h100:8x32", "h200:8x32", "b200:8x32"]
    many = [{**target, "machine": {**target["machine"], "name": name}} for name in names]
    made = page(
        {**found, "targets": many}, {**worked, "targets": [worked["targets"][0]] * len(many)}
    )
    assert len(made.encode()) < 2_000_000
    assert "stacked" in made


def test_a_page_of_forty_eight_targets_stays_below_two_megabytes() -> None:
    found, worked = answer(), explained()
    targets, trees = [found["targets"][0]] * 48, [worked["targets"][0]] * 48
    made = page({**found, "targets": targets}, {**worked, "targets": trees})
    assert len(made.encode()) < 2_000_000


def test_where_panels_would_be_too_much_every_figure_leads_to_its_working(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chipshift.report.page.MOST_BYTES", 1)
    made = page(answer(), explained())
    assert '<details class="fig"' not in made
    seen = Outline()
    seen.feed(made)
    assert set(seen.links) <= set(seen.ids)
    shown = re.escape(duration(answer()["from"]["step_time_s"]))
    link = re.search(rf'<a href="#(w\d+)">{shown}</a>', made)
    assert link is not None
    at = made.index(f"id={link.group(1)}")
    # alone under its formula, or in the list of all that the formula evaluates
    assert "step_time_s" in made[made.rindex("<dt", 0, at) : at + 60]


def test_a_ratio_in_the_working_is_the_ratio_of_the_answer() -> None:
    for target, worked in zip(answer()["targets"], explained()["targets"], strict=True):
        for key in ("step_time", "tokens_per_s_per_chip", "cost_per_token", "memory_headroom"):
            assert worked["ratio"][key].value == pytest.approx(target["ratio"][key], rel=1e-9)
        for key in ("days", "chip_hours", "usd"):
            assert worked["long_run"][key].value == pytest.approx(target["long_run"][key], rel=1e-9)


def test_a_proof_is_shown_with_memory_collectives_and_what_is_too_large() -> None:
    gib = 2**30
    sent = {"kind": "all_gather", "mesh_axis": "fsdp", "count_per_step": 64,
            "bytes_per_device_per_step": 3e9, "algorithm": "",
            "overlapped_fraction": 0.5}  # fmt: skip
    logits = {"name": "dot", "shape": "f32[4,4096,128256]", "logical_bytes": 8 * gib,
              "physical_bytes": 8 * gib, "argument": False, "count": 2,
              "source": ["/home/me/model.py", 317]}  # fmt: skip
    outcome = {"compiled": False, "reason": "out of memory", "largest": [logits],
               "wanted_bytes": 33 * gib, "available_bytes": 31 * gib,
               "collectives": [sent]}  # fmt: skip
    machine = parse_machine("v6e:16x16")
    asked = Request("job", "llama, fsdp=256", topology.target(machine), plan="fsdp=256")
    proof = report(asked, machine, outcome, cached=False)
    made = page({**answer(), "proof": proof, "proofs": [proof]}, explained())
    section = made[made.index('id="proof"') :]
    for words in ("does not fit", "33.0 GiB of 31.0 GiB", "2.0 GiB too much", "2 × 8.00 GiB",
                  "model.py:317", "all_gather over fsdp", "3.00 GB", "50%"):  # fmt: skip
        assert words in section, words


def test_where_nothing_fits_the_list_says_that_nothing_was_looked_at() -> None:
    targets = [t for t in refused()["targets"] if t["plan"] is None]
    made = page({**refused(), "targets": targets, "relearn": []},
                {"from": explained()["from"], "targets": [{}]})  # fmt: skip
    assert "Not looked at: the job fits on none" in made
    assert made.index("Does not fit on v6e:1x1") < made.index('id="transfers"')


def test_every_figure_that_the_page_asks_for_opens_its_derivation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missed: list[str] = []

    def shown(book: Book, path: str, detail: Detail) -> int | None:
        at = shown_at(book, path, detail)
        if at is None:
            missed.append(path)
        return at

    monkeypatch.setattr("chipshift.report.page.shown_at", shown)
    made = page(answer(), explained())
    assert missed == []
    # a cost of what must be relearned, another plan, a limit, the user's own run
    for name in ("seconds_per_step", "step_time_without_s", "measured_step_time_s"):
        assert f"<b>{name}</b>" in made or f"{name} = " in made


def test_no_paragraph_holds_a_panel() -> None:
    """HTML ends a paragraph where a panel begins: the words after it would start a line anew."""
    assert re.search(r"<p\b[^>]*>(?:(?!</p>).)*<details", text(), re.S) is None
