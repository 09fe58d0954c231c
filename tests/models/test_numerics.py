"""What a config says of a decoder's values: hand-worked, from both ways in which configs say it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from chipshift.models.hf import read_config
from chipshift.models.numerics import Numerics
from chipshift.models.preset import preset
from chipshift.models.rope import Rope

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 512, "vocab_size": 1024, "max_position_embeddings": 4096,
}  # fmt: skip


def values(**keys: Any) -> Numerics:
    found = read_config({**LLAMA, **keys}).numerics
    assert found is not None
    return found


def test_a_config_that_says_nothing_has_the_familys_defaults_and_names_them() -> None:
    found = values()
    assert (found.rope, found.norm_eps) == (Rope(10000.0), 1e-6)
    assert found.assumed == ("rope_theta", "rms_norm_eps")


def test_base_and_epsilon() -> None:
    found = values(rope_theta=500000, rms_norm_eps=1e-5)
    assert (found.rope, found.norm_eps, found.assumed) == (Rope(500000.0), 1e-5, ())
    newer = values(rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    assert newer.rope == Rope(500000.0)


def test_llama3_scaling_keeps_its_turns() -> None:
    scaling = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }  # fmt: skip
    wanted = Rope(5e5, "llama3", 8.0, 1.0, 4.0, 8192)
    assert values(rope_theta=5e5, rope_scaling=scaling).rope == wanted
    assert values(rope_parameters={**scaling, "rope_theta": 5e5}).rope == wanted


def test_yarn_is_worked_out_in_pairs() -> None:
    """Head 64 wide, base 10,000, 4,096 positions. The pair that makes r turns over them is
    64 ln(4096 / 2 pi r) / (2 ln 10000): r = 32: 64 x 3.0142 / 18.4207 = 10.47, down 10; r = 1:
    64 x 6.4799 / 18.4207 = 22.51, up 23. With mscale alone not given the gain is 0.1 ln 40 + 1."""
    scaling = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}
    found = values(rope_theta=10000.0, rope_scaling=scaling).rope
    assert (found.low, found.high, found.length) == (10.0, 23.0, 4096)
    assert found.gain == pytest.approx(0.1 * math.log(40) + 1)


def test_deepseek_grows_its_scores_instead_of_its_cosines() -> None:
    """mscale over mscale_all_dim: 1. Scores: (128 + 64)^-0.5 x (0.1 ln 40 + 1)^2 = 0.07217 x
    1.8739 = 0.13523."""
    found = preset("deepseek-v3").numerics
    assert found is not None
    assert (found.rope.scaling, found.rope.gain) == ("yarn", 1.0)
    assert found.query_scale == pytest.approx(0.13523, rel=1e-4)
    assert (found.expert_groups, found.top_groups, found.router_scale) == (8, 4, 2.5)


def test_gemma_3_has_a_base_of_its_own_in_windows() -> None:
    found = preset("gemma-3-27b").numerics
    assert found is not None
    assert (found.rope, found.local_rope) == (Rope(1e6, "linear", 8.0), Rope(1e4))
    assert found.query_scale == pytest.approx(168**-0.5)
    newer = values(
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        }
    )
    assert (newer.rope, newer.local_rope) == (found.rope, found.local_rope)


@pytest.mark.parametrize(
    "scaling",
    [None, {}, {"type": "longrope", "factor": "x"}, {"type": 7}, {"type": "yarn", "factor": -1}],
)
def test_a_scaling_that_is_not_known_stops_nothing(scaling: Any) -> None:
    assert values(rope_scaling=scaling, rope_theta=1.0).rope.theta == 1.0


def test_values_make_no_two_models_of_one_shape_different() -> None:
    """What a plan costs does not depend on them."""
    assert read_config(LLAMA) == read_config({**LLAMA, "rope_theta": 5e5})
