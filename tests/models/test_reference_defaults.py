"""No key is passed over: one that is left out, or turned about, counts as the reference has it.

Of each kind of model one small config: every key in turn is dropped, and every true or false of the
reference's own config turned about. The counts equal the reference's, or the config is refused.
"""

from typing import Any

import pytest

from chipshift.errors import InputError
from chipshift.models.count import params, params_active, params_embedding
from chipshift.models.hf import read_config

from .diffusion_configs import COUNTED
from .reference import built_config, count, count_diffusers
from .reference_configs import DECODERS, DIFFUSION, HEARING, HYBRIDS, MULTIMODAL, OTHERS
from .wider_configs import DENSE, ENCODERS, HEADS, PAIRS, SIGHT, WIDER

pytestmark = [
    pytest.mark.reference,
    # raised by the reference's own imports and builders, not by anything here
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
LM = "AutoModelForCausalLM"
ROWS = [(c, LM) for _, c in [*DECODERS, *HYBRIDS]]
ROWS += [
    (c, auto)
    for _, c, auto in [
        *OTHERS, *MULTIMODAL, *HEARING, *DENSE, *ENCODERS, *HEADS, *PAIRS, *SIGHT, *WIDER,
    ]
]  # fmt: skip
ROWS += [(c, "") for _, c in [*DIFFUSION, *COUNTED] if len(c) > 2]


def _kind(config: dict[str, Any]) -> str:
    return str(config.get("model_type") or config["_class_name"])


ONE = {_kind(c): (c, auto) for c, auto in reversed(ROWS)}
SAID = {
    ("gemma3", "vision_config"), ("llama4", "vision_config"),  # the language model alone, listed
}  # fmt: skip
ELSEWHERE = {
    # of the reference alone, or keys in two spellings that contradict each other
    ("mistral3", "text_config"), ("voxtral", "text_config"), ("helium", "head_dim"),
    ("gemma3n_text", "num_kv_shared_layers"), ("nemotron_h", "tie_word_embeddings"),
    ("deepseek_v2", "mlp_bias"), ("hy_v3", "mlp_bias"), ("t5", "is_gated_act"),
    ("mt5", "is_gated_act"), ("umt5", "is_gated_act"),
}  # fmt: skip
NOT_SHAPES = {
    "use_cache", "return_dict", "output_hidden_states", "output_attentions", "is_encoder_decoder",
    "is_decoder", "add_cross_attention", "tie_encoder_decoder", "torchscript",
}  # fmt: skip
"""Switches of a run, or of what stands around a model."""


def _reference(config: dict[str, Any], auto: str) -> tuple[int, int, int] | None:
    """Total, embedding and active parameters, None where the reference cannot be built."""
    try:
        made = count(config, auto) if auto else count_diffusers(config)
    except Exception:  # whatever it refuses by
        return None
    return made.total, made.embedding, made.active


def _equal(config: dict[str, Any], auto: str) -> bool:
    """Whether both count alike, or one of them refuses the config."""
    expected = _reference(config, auto)
    if expected is None:
        return True
    try:
        model = read_config(config)
    except InputError:
        return True
    return (params(model), params_embedding(model), params_active(model)) == expected


@pytest.mark.parametrize("kind", ONE)
def test_a_key_that_is_left_out(kind: str) -> None:
    config, auto = ONE[kind]
    wrong = [
        key
        for key in config
        if key not in ("model_type", "_class_name", "architectures")
        and (kind, key) not in SAID | ELSEWHERE
        and not _equal({k: v for k, v in config.items() if k != key}, auto)
    ]
    assert wrong == []


@pytest.mark.parametrize("kind", [kind for kind, (_, auto) in ONE.items() if auto])
def test_a_switch_that_is_turned_about(kind: str) -> None:
    config, auto = ONE[kind]
    switches = {k: v for k, v in built_config(config).to_dict().items() if isinstance(v, bool)}
    wrong = [
        key
        for key, value in switches.items()
        if key not in NOT_SHAPES
        and (kind, key) not in ELSEWHERE
        and not _equal({**config, key: not value}, auto)
    ]
    assert wrong == []


# (at the top, in the language model's section) as published configs have them
TIES = [(top, own) for top in (None, False, True) for own in (None, False, True)]
SECTIONED = [kind for kind, (config, _) in ONE.items() if "text_config" in config]


@pytest.mark.parametrize("kind", SECTIONED)
def test_a_head_is_tied_by_the_key_that_the_reference_reads(kind: str) -> None:
    config, auto = ONE[kind]
    key, wrong = "tie_word_embeddings", []
    for top, own in TIES:
        text = {k: v for k, v in config["text_config"].items() if k != key}
        text |= {} if own is None else {key: own}
        whole = {k: v for k, v in config.items() if k != key} | {"text_config": text}
        whole |= {} if top is None else {key: top}
        if not _equal(whole, auto):
            wrong.append((top, own))
    assert wrong == []
