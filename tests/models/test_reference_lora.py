"""Trained parameters of adapted models equal what PEFT trains."""

from typing import Any

import pytest

from chipshift.models.adapters import DORA_KEPT
from chipshift.models.hf import read_config
from chipshift.models.lora import read_lora, trainable_params
from chipshift.models.module_names import NAMINGS

from .newer_configs import TEXTS
from .reference import built_config
from .reference_configs import DECODERS, HYBRIDS, MULTIMODAL
from .test_reference import SPARSE
from .wider_configs import WIDER

pytestmark = [
    pytest.mark.reference,
    # raised by the reference's own imports and builders, not by anything here
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

ADAPTED = [(name, config) for name, config in DECODERS if config["model_type"] in NAMINGS]
ROUTED = {"num_experts_per_tok", "num_experts", "moe_num_experts"}
DENSE = [(n, c) for n, c in ADAPTED if not ROUTED & set(c)]
GROUPED = [
    c for n, c in ADAPTED if n in ("llama", "qwen2", "gemma2", "deepseek_v3, no query latent")
]


FURTHER = [
    (name, config)
    for name, config in [*HYBRIDS, *TEXTS, ("glm_moe_dsa", SPARSE)]
    if config["model_type"] in NAMINGS
]
SEEING = [
    case
    for case in [*MULTIMODAL, *WIDER]
    if case[1]["model_type"] in NAMINGS and "text_config" in case[1]
]
TEXT_MODELS = ("idefics3", "smolvlm")
MAMBAS = ("mamba", "mamba2", "falcon_mamba", "falcon_h1", "nemotron_h")
"""Whose way back PEFT refuses to adapt: the scan's kernel reads its weight by itself."""


def trained(
    config: dict[str, Any],
    keys: dict[str, Any],
    auto: str = "AutoModelForCausalLM",
    inside: str = "",
) -> int:
    """What PEFT leaves trainable in the reference's model, built without memory.

    Args:
        inside: count parameters whose path has this in it.
    """
    import peft
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    with torch.device("meta"):
        model = getattr(transformers, auto).from_config(built_config(config))
        model.tie_weights()
        adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **keys))
    own = (p.numel() for n, p in adapted.named_parameters() if p.requires_grad and inside in n)
    return sum(own) if inside else int(adapted.get_nb_trainable_parameters()[0])


@pytest.mark.parametrize("config", [c for _, c in ADAPTED], ids=[name for name, _ in ADAPTED])
def test_all_linear(config: dict[str, Any]) -> None:
    keys = {"target_modules": "all-linear", "r": 4}
    assert trainable_params(read_config(config), read_lora(keys)) == trained(config, keys)


@pytest.mark.parametrize("config", [c for _, c in FURTHER], ids=[name for name, _ in FURTHER])
def test_all_linear_of_hybrids_and_newer_families(config: dict[str, Any]) -> None:
    keys: dict[str, Any] = {"target_modules": "all-linear", "r": 4}
    if config["model_type"] in MAMBAS:
        keys["exclude_modules"] = ["out_proj"]
    assert trainable_params(read_config(config), read_lora(keys)) == trained(config, keys)


def test_the_families_that_are_compared() -> None:
    # Mixtures, latent attention, fused maps and recurrent layers among them.
    compared = {config["model_type"] for _, config in ADAPTED + FURTHER}
    compared |= {config["model_type"] for _, config, _ in SEEING}
    assert len(compared) >= 75
    assert {
        "qwen3_next",
        "glm_moe_dsa",
        "deepseek_v4",
        "kimi_linear",
        "granitemoehybrid",
    } < compared


@pytest.mark.parametrize(("config", "auto"), [c[1:] for c in SEEING], ids=[c[0] for c in SEEING])
def test_all_linear_of_the_language_model_beside_a_tower(config: dict[str, Any], auto: str) -> None:
    keys = {"target_modules": "all-linear", "r": 4}
    inside = "text_model" if config["model_type"] in TEXT_MODELS else "language_model"
    expected = trained(config, keys, auto, inside=inside)
    assert trainable_params(read_config(config), read_lora(keys)) == expected


@pytest.mark.parametrize(
    "name", ["codegen", "mpt", "gpt_neox", "bloom", "nemotron_h", "gemma2", "qwen3", "gpt_neo"]
)
def test_targets_where_none_are_named(name: str) -> None:
    """PEFT's own for the family (utils/constants.py)."""
    config = next(c for _, c in ADAPTED + FURTHER if c["model_type"] == name)
    assert trainable_params(read_config(config), read_lora({"r": 4})) == trained(config, {"r": 4})


@pytest.mark.parametrize("config", [c for _, c in DENSE], ids=[name for name, _ in DENSE])
def test_magnitudes_and_all_biases(config: dict[str, Any]) -> None:
    keys = {"target_modules": "all-linear", "use_dora": True, "bias": "all"}
    assert trainable_params(read_config(config), read_lora(keys)) == trained(config, keys)


@pytest.mark.parametrize("config", GROUPED)
@pytest.mark.parametrize(
    "keys",
    [
        {"target_modules": ["q_proj", "o_proj"], "layers_to_transform": [0, 2]},
        {"target_modules": ["q_proj", "embed_tokens"], "modules_to_save": ["lm_head"]},
        {"target_modules": r".*\.(q_proj|o_proj)", "rank_pattern": {"o_proj": 3}},
        {"target_modules": ["gate_proj", "up_proj", "down_proj"], "r": 2},
        {"target_modules": "all-linear", "exclude_modules": ["o_proj"], "use_rslora": True},
        {"target_modules": "all-linear", "exclude_modules": r".*\.1\..*"},
        {"target_modules": ["o_proj"], "rank_pattern": {r"layers\.[01]\..*o_proj": 5}, "r": 3},
        {"target_modules": ["o_proj"], "modules_to_save": ["embed_tokens"], "use_dora": True},
        {"target_modules": ["o_proj"], "layers_to_transform": 1},
    ],
)
def test_targets_spelt_out(config: dict[str, Any], keys: dict[str, Any]) -> None:
    assert trainable_params(read_config(config), read_lora(keys)) == trained(config, keys)


ODD = [
    {"target_modules": ["q_proj"], "modules_to_save": ["norm"]},
    {"target_modules": ["q_proj"], "modules_to_save": ["input_layernorm", "lm_head"]},
    {"target_modules": "all-linear", "modules_to_save": ["mlp", "v_proj"]},
    {"target_modules": ["q_proj", "lm_head"], "layers_to_transform": [0]},
    {"target_modules": ["q_proj"], "layers_to_transform": [1], "layers_pattern": "layers"},
    {"target_modules": ["q_proj"], "trainable_token_indices": [1, 2, 3]},
    {"target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [1, 2]}},
    {"target_modules": ["q_proj", "v_proj"], "lora_bias": True},
    {"target_modules": "all-linear", "alpha_pattern": {"q_proj": 32},
     "rank_pattern": {"q_proj": 16, r"^model\.layers\.0\.self_attn\.k_proj": 5}},
    {"target_modules": ["q_proj"], "rank_pattern": {"k_proj": 4}},
]  # fmt: skip
SMALL = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 200,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96}  # fmt: skip


@pytest.mark.parametrize("keys", ODD)
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("tied", [False, True])
def test_odd_keys(keys: dict[str, Any], kind: str, tied: bool) -> None:
    config = {**SMALL, "model_type": kind, "tie_word_embeddings": tied}
    if "lm_head" in keys["target_modules"] and tied:
        pytest.skip("PEFT ties such an adapter to the embedding's")
    assert trainable_params(read_config(config), read_lora(keys)) == trained(config, keys)


def test_stacked_experts_named_alone() -> None:
    (config,) = [c for n, c in ADAPTED if n == "qwen3_moe"][:1]
    keys = {"target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}
    assert trainable_params(read_config(config), read_lora(keys)) == trained(config, keys)


BIASED = [
    c for n, c in ADAPTED if any(k in c for k in ("attention_bias", "mlp_bias", "use_bias", "bias"))
]
BIASED += [c for n, c in DENSE if c["model_type"] in ("gpt2", "qwen2", "phi", "opt", "starcoder2")]


@pytest.mark.parametrize("config", BIASED, ids=[c["model_type"] for c in BIASED])
@pytest.mark.parametrize("dora", [False, True])
def test_biases_of_adapted_modules_alone(config: dict[str, Any], dora: bool) -> None:
    keys = {"target_modules": "all-linear", "bias": "lora_only", "use_dora": dora}
    if dora and ROUTED & set(config):
        keys["use_dora"] = False  # PEFT trains no magnitudes of stacked parameters
    assert trainable_params(read_config(config), read_lora(keys)) == trained(config, keys)


@pytest.mark.parametrize("target", ["q_proj", "o_proj", "down_proj"])
def test_a_biased_map_of_gemma_2(target: str) -> None:
    (config,) = [c for n, c in ADAPTED if n == "gemma2"]
    config = {**config, "attention_bias": True}
    keys = {"target_modules": [target], "bias": "lora_only", "use_dora": True}
    assert trainable_params(read_config(config), read_lora(keys)) == trained(config, keys)


def test_magnitudes_of_an_embedding() -> None:
    (config,) = [c for n, c in ADAPTED if n == "llama"]
    keys = {"target_modules": ["q_proj", "embed_tokens"], "use_dora": True}
    assert trainable_params(read_config(config), read_lora(keys)) == trained(config, keys)


@pytest.mark.parametrize(("dora", "kept"), [(False, 0.0), (True, DORA_KEPT)])
def test_outputs_that_magnitudes_keep(dora: bool, kept: float) -> None:
    import peft
    import torch

    net = torch.nn.ModuleDict({"up": torch.nn.Linear(48, 80, bias=False)})
    keys = {"target_modules": ["up"], "r": 4, "use_dora": dora, "init_lora_weights": False}
    adapted = peft.inject_adapter_in_model(peft.LoraConfig(**keys), net)["up"]
    outputs: set[int] = set()

    def keep(tensor: Any) -> Any:
        if tuple(tensor.shape) == (3, 80):  # of 3 rows; no weight has that shape
            outputs.add(tensor.data_ptr())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        adapted(torch.randn(3, 48, requires_grad=True)).sum().backward()
    assert len(outputs) == kept
