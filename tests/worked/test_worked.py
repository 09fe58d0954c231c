"""One formula explains one plan and scores many: the same function, three kinds of operand."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipshift.worked import Worked, formula, leaf, plain, rename, with_sources
from chipshift.worked.tree import as_json, lines, together

finite = st.floats(min_value=1e-6, max_value=1e6)


@formula(unit="s", source="somebody 2020")
def gather_time(v: float, n: float, w: float) -> float:
    return np.maximum((n - 1) / n * v / w, 1e-6) + np.where(n > 4, 2.0, 3.0)


@given(finite, finite, finite)
def test_a_worked_call_has_the_value_of_the_plain_call(v: float, n: float, w: float) -> None:
    worked = gather_time(leaf(v, "B", "v", "x"), leaf(n, "", "n", "x"), leaf(w, "B/s", "w", "x"))
    assert plain(worked) == gather_time(v, n, w)


def test_an_array_call_equals_the_scalar_calls() -> None:
    n = np.array([2.0, 4.0, 8.0])
    assert gather_time(1e9, n, 1e9).tolist() == [gather_time(1e9, x, 1e9) for x in n.tolist()]


def test_the_text_is_printed_from_what_was_executed() -> None:
    worked = gather_time(leaf(8, "B", "v", "x"), leaf(2, "", "n", "x"), 4.0)
    assert worked.expression == "max((n - 1) / n × v / 4, 1e-06) + (2 if n > 4 else 3)"
    assert worked.name == "gather_time"
    assert worked.unit == "s"
    assert [i.name for i in worked.inputs] == ["n", "v"]


def test_parentheses_stand_only_where_the_order_needs_them() -> None:
    a, b, c = (leaf(x, "", n, "x") for x, n in ((7.0, "a"), (3.0, "b"), (2.0, "c")))
    assert (a - (b - c)).expression == "a - (b - c)"
    assert (a - b - c).expression == "a - b - c"
    assert (a / (b * c)).expression == "a / (b × c)"
    assert (a * b / c).expression == "a × b / c"
    assert (-(a + b) * c).expression == "(-(a + b)) × c"


def test_a_formula_may_not_branch_on_a_value() -> None:
    with pytest.raises(TypeError, match=r"np\.where"):
        bool(leaf(1, "", "x", "y") > 0)


def test_renaming_keeps_the_working_and_passes_numbers_through() -> None:
    assert rename(3.0, "x") == 3.0
    worked = rename(gather_time(leaf(8, "B", "v", "x"), 2.0, 4.0), "step_s")
    assert worked.name == "step_s"
    assert worked.expression


def test_leaves_name_their_source_and_absent_parts_stay_plain_zero() -> None:
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Numbers:
        width: int = 4
        bias: int = 0
        name: str = "n"

    turned = with_sources(Numbers(), {"width": "file:3", "": "default"})
    assert isinstance(turned.width, Worked)
    assert turned.width.source == "file:3"
    assert turned.bias == 0
    assert not isinstance(turned.bias, Worked)


def test_a_derivation_prints_its_leaves_with_their_sources() -> None:
    text = lines(gather_time(leaf(8, "B", "v", "data sheet"), 2.0, 4.0))
    # (2 − 1)/2 × 8/4 = 1, above 1e-6, plus 3 because n is not above 4
    assert text[0].startswith("gather_time = 4 s = ")
    assert text[1].strip() == "after somebody 2020"
    assert text[2].strip() == "v = 8 B    [data sheet]"


def test_json_holds_the_whole_tree() -> None:
    tree = as_json(gather_time(leaf(8, "B", "v", "data sheet"), 2.0, 4.0))
    assert tree["inputs"] == [
        {"value": 8.0, "unit": "B", "name": "v", "expression": "", "inputs": [],
         "source": "data sheet"}
    ]  # fmt: skip


@formula(unit="B", source="sum")
def twice(one: float, other: float) -> float:
    """Two sizes added."""
    return one + other


def test_what_is_read_twice_is_worked_out_once_and_pointed_at() -> None:
    """8 B doubled to 16, that again to 32: each level reads the one below twice."""
    made = twice(leaf(8, "B", "v", "data sheet"), leaf(8, "B", "v", "data sheet"))
    made = twice(rename(made, "a"), rename(made, "b"))
    tree = as_json(made)
    assert tree["value"] == 32
    first, second = tree["inputs"]
    assert (first["name"], second["name"]) == ("a", "b")  # another name is another step
    assert [one["value"] for one in first["inputs"]] == [8, 8]
    whole, again = first["inputs"]
    assert whole["source"] == "data sheet"
    assert again["same_as"] == whole["id"]
    assert (again["value"], again["unit"], again["name"]) == (8.0, "B", "v")
    assert (again["expression"], again["inputs"]) == ("", [])
    assert [one["same_as"] for one in second["inputs"]] == [whole["id"]] * 2


def test_a_derivation_of_a_million_million_paths_stays_short() -> None:
    """Forty levels, each reading the one below twice: 2^40 paths, 40 distinct steps."""
    made = leaf(1.0, "B", "v", "data sheet")
    for level in range(40):
        made = rename(twice(made, made * 1), f"level_{level}")
    assert made.value == 2.0**40
    assert len(json.dumps(as_json(made))) < 20_000


def test_several_derivations_share_what_is_equal_among_them() -> None:
    shared = rename(twice(leaf(1, "B", "v", "data sheet"), 2.0), "shared")
    one, other = together([rename(twice(shared, 1.0), "one"), rename(twice(shared, 5.0), "other")])
    assert one["inputs"][0]["expression"] == "v + 2"
    assert other["inputs"][0]["same_as"] == one["inputs"][0]["id"]
