"""Which ops of a layer have adapters, and what these move through memory."""

from __future__ import annotations

import pytest

from chipshift.models.adapters import (
    Adapters,
    adapter_backward_bytes,
    adapter_forward_bytes,
    adapters_of,
    op_of,
)
from chipshift.models.hf import read_config
from chipshift.models.lora import ALL_LINEAR, Lora
from chipshift.models.preset import preset


def test_every_linear_map_of_llama() -> None:
    found = adapters_of(preset("llama-3.1-8b"), Lora(targets=(ALL_LINEAR,)))
    # q, k, v; o; gate, up; down: modules of their own in every layer
    assert dict(found.maps) == {"qkv_proj": 3, "out_proj": 1, "mlp_up": 2, "mlp_down": 1}
    assert found.each_layer == 7


def test_fused_maps_have_one_adapter_each() -> None:
    found = adapters_of(preset("phi-3-mini"), Lora(targets=("qkv_proj", "gate_up_proj")))
    assert dict(found.maps) == {"qkv_proj": 1, "mlp_up": 1}


def test_adapters_on_half_the_layers_are_half_an_adapter_a_layer() -> None:
    lora = Lora(targets=("o_proj",), layers=tuple(range(16)))
    assert dict(adapters_of(preset("llama-3.1-8b"), lora).maps) == {"out_proj": 0.5}


def test_experts_adapters_are_stacked_into_one() -> None:
    lora = Lora(targets=("q_proj", "w1", "w2", "w3"))
    found = adapters_of(preset("mixtral-8x7b"), lora)
    assert dict(found.maps) == {"qkv_proj": 1, "experts_up": 1, "experts_down": 1}


def test_granites_shared_map_is_a_feed_forward_where_no_expert_is_routed() -> None:
    keys = {"model_type": "granitemoehybrid", "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 99,
            "shared_intermediate_size": 96, "layer_types": ["attention", "attention"],
            "num_local_experts": 0, "position_embedding_type": "rope"}  # fmt: skip
    lora = Lora(targets=("input_linear", "output_linear"))
    dense = {"mlp_up": 1, "mlp_down": 1}
    assert dict(adapters_of(read_config(keys), lora).maps) == dense
    routed = {**keys, "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 32}
    shared = {"shared_up": 1, "shared_down": 1}
    assert dict(adapters_of(read_config(routed), lora).maps) == shared


@pytest.mark.parametrize(
    ("module", "op"),
    [
        ("model.layers.0.self_attn.q_proj", "qkv_proj"),
        ("transformer.h.0.attn.c_attn", "qkv_proj"),
        ("transformer.h.0.attn.c_proj", "out_proj"),
        ("transformer.h.0.mlp.c_proj", "mlp_down"),
        ("model.layers.3.mlp.gate_up_proj", "mlp_up"),
        ("model.layers.3.mlp.experts.down_proj", "experts_down"),
        ("model.layers.3.mlp.shared_experts.up_proj", "shared_up"),
        ("model.layers.3.mlp.gate.weight", ""),
        ("model.layers.3.self_attn.kv_b_proj", "kv_up"),
        ("gpt_neox.layers.3.attention.dense", "out_proj"),
        ("gpt_neox.layers.3.mlp.dense_h_to_4h", "mlp_up"),
        ("gpt_neox.layers.3.mlp.dense_4h_to_h", "mlp_down"),
        ("model.layers.0.attention.wo", "out_proj"),
        ("model.layers.0.feed_forward.w2", "mlp_down"),
        ("transformer.h.0.mlp.w2", "mlp_up"),
        ("model.layers.0.linear_attn.in_proj_qkvz", "qkv_proj"),
        ("model.layers.0.linear_attn.in_proj_ba", ""),
        ("model.layers.0.self_attn.compressor.indexer.q_b_proj", ""),
    ],
)
def test_the_op_of_a_module(module: str, op: str) -> None:
    assert op_of(module) == op


def test_what_two_maps_move() -> None:
    # 10 rows of 100 inputs and 50 outputs, bf16, two maps on the same input.
    # Forward: 2 × (read 100 inputs); 50 outputs written, added (2 read, 1 written) = 4 × 50.
    assert adapter_forward_bytes(10, 100, 50, 2) == 2 * 10 * (200 + 200)
    # Backward: the output's gradient read for both factors, 2 × 50; of each map the input's
    # gradient written, added (2 read, 1 written), and the input read for its weights: 5 × 100.
    assert adapter_backward_bytes(10, 100, 50, 2) == 2 * 10 * (1000 + 100)


def test_an_op_without_adapters() -> None:
    assert Adapters((("qkv_proj", 1.0),)).on("mlp_up") == 0
    assert Adapters().each_layer == 0
