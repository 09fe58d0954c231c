"""Trained parameters of adapted models equal what PEFT trains."""

from typing import Any

import pytest

from chipshift.models.adapters import DORA_KEPT
from chipshift.models.hf import read_config
from chipshift.models.lora import read_lora, trainable_params
from chipshift.models.modules import NAMINGS

from .reference import built_config
from .reference_configs import DECODERS

pytestmark = [
    pytest.mark.reference,
    # raised by the reference's own imports and builders, not by anything here
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

ADAPTED = [(name, config) for name, config in DECODERS if config["model_type"] in NAMINGS]
DENSE = [(n, c) for n, c in ADAPTED if not {"num_experts_per_tok", "num_experts"} & set(c)]
GROUPED = [
    c for n, c in ADAPTED if n in ("llama", "qwen2", "gemma2", "deepseek_v3, no query latent")
]


def trained(config: dict[str, Any], keys: dict[str, Any]) -> int:
    """What PEFT leaves trainable in the reference's model, built without memory."""
    import peft
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(built_config(config))
        model.tie_weights()
        adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **keys))
    return int(adapted.get_nb_trainable_parameters()[0])


@pytest.mark.parametrize("config", [c for _, c in ADAPTED], ids=[name for name, _ in ADAPTED])
def test_all_linear(config: dict[str, Any]) -> None:
    keys = {"target_modules": "all-linear", "r": 4}
    assert trainable_params(read_config(config), read_lora(keys)) == trained(config, keys)


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


BIASED = [
    c for n, c in ADAPTED if any(k in c for k in ("attention_bias", "mlp_bias", "use_bias", "bias"))
]
BIASED += [c for n, c in DENSE if c["model_type"] in ("gpt2", "qwen2", "phi", "opt", "starcoder2")]


@pytest.mark.parametrize("config", BIASED, ids=[c["model_type"] for c in BIASED])
@pytest.mark.parametrize("dora", [False, True])
def test_biases_of_adapted_modules_alone(config: dict[str, Any], dora: bool) -> None:
    keys = {"target_modules": "all-linear", "bias": "lora_only", "use_dora": dora}
    if dora and {"num_experts_per_tok", "num_experts"} & set(config):
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
