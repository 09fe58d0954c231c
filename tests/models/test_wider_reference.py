"""Families beyond the common ones: counts and FLOPs equal the reference's."""

from typing import Any

import pytest

from chipshift.models.count import params, params_active, params_embedding
from chipshift.models.hf import read_config

from .reference import count
from .wider_configs import WIDER

pytestmark = [
    pytest.mark.reference,
    # raised by the reference's own imports and builders, not by anything here
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.mark.parametrize(
    ("config", "auto"), [(c, auto) for _, c, auto in WIDER], ids=[name for name, _, _ in WIDER]
)
def test_counts(config: dict[str, Any], auto: str) -> None:
    expected = count(config, auto)
    model = read_config(config)
    assert (params(model), params_embedding(model)) == (expected.total, expected.embedding)
    assert params_active(model) == expected.active
