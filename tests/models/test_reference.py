"""Counts from the config equal those of the reference implementation, to the last parameter."""

import json
from typing import Any

import pytest

from chipshift.models.count import params, params_embedding
from chipshift.models.hf import read_config
from chipshift.models.preset import FOLDER, names, preset

from .reference import built_config, count, count_diffusers
from .reference_configs import DECODERS, DIFFUSION, HYBRIDS, MULTIMODAL, OTHERS

pytestmark = [
    pytest.mark.reference,
    # raised by the reference's own imports and builders, not by anything here
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


CAUSAL = [*DECODERS, *HYBRIDS]


@pytest.mark.parametrize("config", [c for _, c in CAUSAL], ids=[name for name, _ in CAUSAL])
def test_small_and_odd_decoders(config: dict[str, Any]) -> None:
    expected = count(config)
    model = read_config(config)
    assert (params(model), params_embedding(model)) == (expected.total, expected.embedding)


SEEING = [*OTHERS, *MULTIMODAL]


@pytest.mark.parametrize(
    ("config", "auto"), [(c, auto) for _, c, auto in SEEING], ids=[name for name, _, _ in SEEING]
)
def test_encoders_pairs_and_vision(config: dict[str, Any], auto: str) -> None:
    expected = count(config, auto)
    model = read_config(config)
    assert (params(model), params_embedding(model)) == (expected.total, expected.embedding)


@pytest.mark.parametrize("config", [c for _, c in DIFFUSION], ids=[name for name, _ in DIFFUSION])
def test_diffusion_transformers_and_unets(config: dict[str, Any]) -> None:
    expected = count_diffusers(config)
    model = read_config(config)
    assert (params(model), params_embedding(model)) == (expected.total, expected.embedding)


@pytest.mark.parametrize("name", names())
def test_every_preset(name: str) -> None:
    config = json.loads((FOLDER / f"{name}.json").read_text())
    masked = config["architectures"][0].endswith("ForMaskedLM")
    expected = count(config, "AutoModelForMaskedLM" if masked else "AutoModelForCausalLM")
    model = preset(name)
    assert (params(model), params_embedding(model)) == (expected.total, expected.embedding)


@pytest.mark.parametrize("config", [c for _, c in DECODERS], ids=[name for name, _ in DECODERS])
def test_the_same_layers_slide(config: dict[str, Any]) -> None:
    built = built_config(config)
    kinds = getattr(built, "layer_types", None)
    if kinds is None or not set(kinds) <= {"full_attention", "sliding_attention"}:
        return
    model = read_config(config)
    attention = [model.layers[i][0].attention for i in model.layer_order]
    expected = [built.sliding_window if kind == "sliding_attention" else None for kind in kinds]
    assert [a.window for a in attention if a] == expected
