"""Each rule fires on the hazard and not on its correction or on what only looks like it."""

from __future__ import annotations

import pytest

from .cases import CASES, LOOKALIKES
from .snippets import rules_in


@pytest.mark.parametrize(("name", "rule", "hazard", "mended"), CASES, ids=[c[0] for c in CASES])
def test_fires_on_the_hazard_and_not_on_its_correction(
    name: str, rule: str, hazard: str, mended: str
) -> None:
    assert rule in rules_in(hazard)
    assert rule not in rules_in(mended)


@pytest.mark.parametrize(("name", "rule", "code"), LOOKALIKES, ids=[c[0] for c in LOOKALIKES])
def test_lookalikes_raise_nothing(name: str, rule: str, code: str) -> None:
    assert rule not in rules_in(code)
