"""Prices: sourced or absent, compared under one commitment, or given by the user."""

from __future__ import annotations

import pytest

from chipshift.errors import InputError
from chipshift.machines.load import chip
from chipshift.machines.prices import common_commits, given_prices, like_with_like, price


def usd(key: str, commit: str = "od") -> float | None:
    figure = price(chip(key), commit)
    return None if figure is None else figure.value


def test_list_prices() -> None:
    on_demand = {"a100": 4.00, "h100": 6.88, "h200": 7.91, "b200": 14.00, "b300": 15.00,
                 "gb200": 16.00, "gb300": 18.00, "mi300x": 6.00, "mi355x": 8.60, "v5e": 1.20,
                 "v5p": 4.20, "v6e": 2.70, "v7x": 12.00, "trn1": 1.344}  # fmt: skip
    assert {key: usd(key) for key in on_demand} == on_demand
    one_year = {"v5e": 0.84, "v5p": 2.94, "v6e": 1.89, "v7x": 8.40, "h100": 2.97}
    assert {key: usd(key, "1y") for key in one_year} == one_year
    three_years = {"v5e": 0.54, "v5p": 1.89, "v6e": 1.22, "v7x": 5.40}
    assert {key: usd(key, "3y") for key in three_years} == three_years


def test_a_price_that_no_source_gives_is_none() -> None:
    for key in ("v4", "mi325x", "mi350x", "trn2", "trn3"):
        assert usd(key) is None
    assert usd("h100", "3y") is None


def test_only_commitments_sourced_for_all_are_shared() -> None:
    assert common_commits([chip("h100"), chip("v6e")]) == ("od", "1y")
    assert common_commits([chip("v6e"), chip("v7x")]) == ("od", "1y", "3y")
    assert common_commits([chip("h100"), chip("trn2")]) == ()


def test_like_with_like_says_what_it_compares() -> None:
    said, found = like_with_like([chip("h100"), chip("v6e")])
    assert said == "list prices, on demand, host included"
    assert {key: figure and figure.value for key, figure in found.items()} == {
        "h100": 6.88,
        "v6e": 2.70,
    }
    said, found = like_with_like([chip("h100"), chip("v6e")], "3y")
    assert found["h100"] is None and found["v6e"] is not None
    assert said.endswith("no sourced price for h100 (all are sourced under --commit od or 1y)")
    said, _ = like_with_like([chip("h100"), chip("trn2")])
    assert said.endswith("no sourced price for trn2")


def test_prices_given_by_the_user() -> None:
    given = given_prices(["h100=2.20", "Trillium=1.22"])
    assert {key: figure.value for key, figure in given.items()} == {"h100": 2.20, "v6e": 1.22}
    assert given["h100"].source == "given: --price h100=2.20"


@pytest.mark.parametrize("option", ["h100", "h100=", "h100=free", "h100=-1", "h100=0", "h100=nan"])
def test_a_price_that_is_none(option: str) -> None:
    with pytest.raises(InputError, match=f"--price '{option}': expected"):
        given_prices([option])


def test_an_unknown_commitment() -> None:
    with pytest.raises(InputError, match="no commitment is called '2y'"):
        price(chip("h100"), "2y")
