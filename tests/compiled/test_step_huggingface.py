"""The step's loss and gradients equal Hugging Face's PyTorch models with the same weights.

Tolerance: two fp32 implementations, 2e-5 of the loss and 2e-4 of a gradient's largest element.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.compiled.huggingface import params_of

jax = pytest.importorskip("jax")
pytest.importorskip("transformers")
pytestmark = pytest.mark.reference

COMMON: dict[str, Any] = {
    "hidden_size": 64, "vocab_size": 128, "num_hidden_layers": 3, "intermediate_size": 96,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 64, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "pad_token_id": 0,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {},
    "gemma2": {
        "tie_word_embeddings": True, "sliding_window": 8, "query_pre_attn_scalar": 16,
        "num_hidden_layers": 4, "hidden_activation": "gelu_pytorch_tanh",
    },
    "gemma3_text": {
        "tie_word_embeddings": True, "sliding_window": 8, "query_pre_attn_scalar": 16,
        "num_hidden_layers": 4, "sliding_window_pattern": 2, "rope_local_base_freq": 10000.0,
        "hidden_activation": "gelu_pytorch_tanh",
    },
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "deepseek_v3": {
        "q_lora_rank": 20, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
        "v_head_dim": 16, "num_key_value_heads": 4, "n_routed_experts": 8, "n_group": 2,
        "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "n_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5,
    },
    # The same families with values of their own that no shape shows: at 32 positions each of these
    # scalings turns queries and keys otherwise than the plain base does.
    "llama3.1": {
        "model_type": "llama", "rope_theta": 500.0, "rms_norm_eps": 1e-2,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    },
    "llama, linear": {
        "model_type": "llama", "rope_scaling": {"type": "linear", "factor": 4.0},
    },
    "qwen2, yarn": {
        "model_type": "qwen2", "rope_theta": 1e6, "rms_norm_eps": 1e-2,
        "rope_scaling": {
            "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
        },
    },
    "qwen3_moe": {
        "rope_theta": 1e6, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
    },
    "gemma2, 27b": {
        "model_type": "gemma2", "tie_word_embeddings": True, "sliding_window": 8,
        "query_pre_attn_scalar": 144, "num_hidden_layers": 4, "attn_logit_softcapping": 0.5,
        "final_logit_softcapping": 2.0, "hidden_activation": "gelu_pytorch_tanh",
    },
    "gemma3_text, 27b": {
        "model_type": "gemma3_text", "tie_word_embeddings": True, "sliding_window": 8,
        "query_pre_attn_scalar": 168, "num_hidden_layers": 4, "sliding_window_pattern": 2,
        "rope_theta": 1e6, "rope_local_base_freq": 100.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "hidden_activation": "gelu_pytorch_tanh",
    },
    "deepseek_v3, yarn": {
        "model_type": "deepseek_v3", "q_lora_rank": 20, "kv_lora_rank": 24, "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8, "v_head_dim": 16, "num_key_value_heads": 4, "n_routed_experts": 8,
        "n_group": 4, "topk_group": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "n_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5,
        "rope_scaling": {
            "type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
            "mscale_all_dim": 0.707, "original_max_position_embeddings": 16,
        },
    },
    "deepseek_v2": {
        "q_lora_rank": 20, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
        "v_head_dim": 16, "num_key_value_heads": 4, "n_routed_experts": 8, "n_group": 4,
        "topk_group": 2, "topk_method": "group_limited_greedy", "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "n_shared_experts": 1, "first_k_dense_replace": 1,
        "routed_scaling_factor": 4.0,
    },
}  # fmt: skip
ROUTED = ("mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3")


def reference(kind: str) -> tuple[Any, dict[str, Any]]:
    """A Hugging Face model with random fp32 weights, and the config it was built from."""
    import torch
    import transformers

    values = COMMON | {"model_type": kind} | FAMILIES[kind]
    kind = values.pop("model_type")
    if kind.startswith("deepseek"):
        values = {k: v for k, v in values.items() if k != "head_dim"}
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **values)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    for name, tensor in model.named_parameters():  # norms and biases off their initial 0 and 1
        if tensor.ndim == 1:
            torch.nn.init.normal_(tensor, 0.2 if "norm" in name else 0.0, 0.1)
        else:
            torch.nn.init.normal_(tensor, 0.0, 0.05)
    return model, values | {"model_type": kind}


@pytest.mark.parametrize("kind", FAMILIES)
def test_values_are_read_alike_from_the_config_that_transformers_saves(kind: str) -> None:
    """Older configs have a rotary base and a scaling, those of transformers 5 one table of both."""
    from chipshift.models.hf import read_config

    model, values = reference(kind)
    saved = read_config(model.config.to_dict()).numerics
    given = read_config(values).numerics
    assert saved is not None
    assert given is not None
    assert (saved.rope, saved.local_rope) == (given.rope, given.local_rope)
    assert saved.norm_eps == given.norm_eps
    assert saved.query_scale == given.query_scale


@pytest.mark.parametrize("kind", FAMILIES)
def test_equals_hugging_face(kind: str) -> None:
    import torch
    from jax.sharding import NamedSharding

    from chipshift.compiled import describe
    from chipshift.compiled.step.sharding import make_mesh
    from chipshift.compiled.step.train_step import gradients, param_specs
    from chipshift.jobs.job import Precision
    from chipshift.jobs.plan import Plan
    from chipshift.models.hf import read_config

    model, values = reference(kind)
    shape = (1, 2, 2, 1, 1) if values["model_type"] in ROUTED else (1, 2, 1, 1, 2)
    plan = Plan(
        fsdp=shape[1] * shape[2], ep=shape[2], tp=shape[4], microbatch=4 // shape[1] // shape[2]
    )
    cfg, _ = describe.config(
        read_config(values), plan, seq_len=32, splash=False,
        precision=Precision("fp32", "fp32", "fp32", "fp32", "fp32", "fp32"),
    )  # fmt: skip
    cfg = replace(cfg, capacity=8.0)  # room for every token: none is dropped
    assert cfg.mesh == shape

    rng = np.random.default_rng(0)
    ids = rng.integers(1, 128, (4, 33))
    logits = model(torch.tensor(ids[:, :-1])).logits
    expected = torch.nn.functional.cross_entropy(
        logits.reshape(-1, 128), torch.tensor(ids[:, 1:].reshape(-1))
    )
    expected.backward()
    weights = {name: t.detach().numpy() for name, t in model.state_dict().items()}
    wanted = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}

    mesh = make_mesh(cfg, jax.devices()[: int(np.prod(shape))])
    put = jax.tree.map(lambda s: NamedSharding(mesh, s), param_specs(cfg))
    params = jax.device_put(params_of(cfg, weights), put)
    inputs, targets = ids[None, :, :-1].astype("int32"), ids[None, :, 1:].astype("int32")
    value, grads = jax.jit(lambda p: gradients(mesh, cfg, p, inputs, targets))(params)

    assert float(value) == pytest.approx(expected.item(), rel=2e-5)
    filled = {name: wanted.get(name, np.zeros_like(weights[name])) for name in weights}
    mapped = params_of(cfg, filled)
    paths = jax.tree_util.tree_flatten_with_path(mapped)[0]
    for (path, want), got in zip(paths, jax.tree.leaves(jax.device_get(grads)), strict=True):
        name = jax.tree_util.keystr(path)
        assert np.max(np.abs(want - got)) <= 2e-4 * max(np.max(np.abs(want)), 1e-6), name
