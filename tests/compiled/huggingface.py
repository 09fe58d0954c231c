"""Hugging Face checkpoints as parameters of the compiled step."""

from __future__ import annotations

from typing import Any

import numpy as np

from chipshift.compiled.step.config import Block, Config


def params_of(cfg: Config, state: dict[str, Any]) -> dict[str, Any]:
    """``state`` (names to NumPy arrays, torch's (out, in) matrices) as the step's parameters."""
    out: dict[str, Any] = {
        "embed": state["model.embed_tokens.weight"],
        "final_norm": state["model.norm.weight"],
    }
    if not cfg.tied:
        out["head"] = state["lm_head.weight"].T
    segments, first = [], 0
    for unit, repeats in cfg.segments:
        blocks = []
        for place, block in enumerate(unit):
            layers = [
                layer_of(cfg, block, state, first + place + repeat * len(unit))
                for repeat in range(repeats)
            ]
            blocks.append({name: np.stack([one[name] for one in layers]) for name in layers[0]})
        segments.append(blocks)
        first += len(unit) * repeats
    return out | {"segments": segments}


def layer_of(cfg: Config, block: Block, state: dict[str, Any], index: int) -> dict[str, Any]:
    """One layer's weights under the step's names and shapes."""
    at = f"model.layers.{index}."
    M = cfg.d_model

    def get(name: str) -> Any:
        return state[at + name]

    w = {"attention_norm": get("input_layernorm.weight")}
    if cfg.variant.post_norms:
        w["attention_post_norm"] = get("post_attention_layernorm.weight")
        w["mlp_norm"] = get("pre_feedforward_layernorm.weight")
        w["mlp_post_norm"] = get("post_feedforward_layernorm.weight")
    else:
        w["mlp_norm"] = get("post_attention_layernorm.weight")
    w["o"] = get("self_attn.o_proj.weight").T.reshape(block.heads, block.v_head_dim, M)
    w |= _latent(block, get, M) if block.kv_rank else _grouped(block, get, M)
    if block.experts:
        w |= _experts(block, state, at)
    else:
        for name in ("gate", "up", "down"):
            w[name] = get(f"mlp.{name}_proj.weight").T
    return w


def _grouped(block: Block, get: Any, M: int) -> dict[str, Any]:
    w = {}
    for name, heads in (("q", block.heads), ("k", block.kv_heads), ("v", block.kv_heads)):
        w[name] = get(f"self_attn.{name}_proj.weight").T.reshape(M, heads, block.head_dim)
        if block.qkv_bias:
            w[name + "_bias"] = get(f"self_attn.{name}_proj.bias").reshape(heads, block.head_dim)
        if block.qk_norm and name != "v":
            w[name + "_norm"] = get(f"self_attn.{name}_norm.weight")
    return w


def _latent(block: Block, get: Any, M: int) -> dict[str, Any]:
    wide = block.head_dim - block.rope_dim + block.v_head_dim
    rank = block.q_rank or M
    name = "q_b_proj" if block.q_rank else "q_proj"
    w = {
        "q": get(f"self_attn.{name}.weight").T.reshape(rank, block.heads, block.head_dim),
        "kv_down": get("self_attn.kv_a_proj_with_mqa.weight").T,
        "kv_down_norm": get("self_attn.kv_a_layernorm.weight"),
        "kv": get("self_attn.kv_b_proj.weight").T.reshape(block.kv_rank, block.heads, wide),
    }
    if block.q_rank:
        w["q_down"] = get("self_attn.q_a_proj.weight").T
        w["q_down_norm"] = get("self_attn.q_a_layernorm.weight")
    return w


def _experts(block: Block, state: dict[str, Any], at: str) -> dict[str, Any]:
    """Experts stored fused, (experts, 2 x width, model) and (experts, model, width)."""
    both = state[at + "mlp.experts.gate_up_proj"]
    gate, up = both[:, : block.expert_width], both[:, block.expert_width :]
    bias = state.get(at + "mlp.gate.e_score_correction_bias", np.zeros(block.experts, np.float32))
    w = {
        "router": state[at + "mlp.gate.weight"].T,
        "router_bias": bias,
        "expert_gate": gate.transpose(0, 2, 1),
        "expert_up": up.transpose(0, 2, 1),
        "expert_down": state[at + "mlp.experts.down_proj"].transpose(0, 2, 1),
    }
    if block.shared_width:
        shared = "mlp.shared_experts" if at + "mlp.shared_experts.gate_proj.weight" in state else (
            "mlp.shared_expert"
        )  # fmt: skip
        for name in ("gate", "up", "down"):
            w[f"shared_{name}"] = state[f"{at}{shared}.{name}_proj.weight"].T
    if block.shared_gate:
        w["shared_router"] = state[at + "mlp.shared_expert_gate.weight"].T
    return w
