"""MaxText's own keys: which there are, so that a fork's are told from them, and which go unread.

``maxtext_keys.txt`` has the names in configs/*.yml and configs/types.py of AI-Hypercomputer's
MaxText from 2023-03 to 2026-08. Source of what the unread ones do: configs/base.yml and
configs/types.py, 2026-08.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from chipshift.jobs.job import Ignored
from chipshift.jobs.settings import Sheet

SHAPE = "part of the model's shape, which is not read: --model with a config.json settles it"
LAYOUT = "not read; the estimate takes MaxText's default"
UNREAD = {
    "mtp_num_layers": "layers that foretell more tokens are not in the numbers",
    "activations_in_float32": "activations in fp32 are not in the numbers",
    "enable_rampup_batch_size": "the batch after the ramp is taken",
    "enable_diloco": "the outer optimizer's state and its steps are not in the numbers",
    "enable_streaming_diloco": "the outer optimizer's state and its steps are not in the numbers",
    "weight_sparsity_n": "sparse weights are not in the numbers",
    "trainable_parameters_mask": "weights that stay as they are count as trained",
    "matmul_precision": "matmuls of several passes are counted as one",
    "training_objective": "another objective than the next token's is not in the numbers",
    "use_indexer": "attention that picks its keys is counted as attention to all",
    "moba": "attention that picks its keys is counted as attention to all",
    "use_batch_split_schedule": LAYOUT,
    "use_ring_of_experts": LAYOUT,
    "shard_exp_on_fsdp": LAYOUT,
    "use_2d_fsdp_sharding": LAYOUT,
    "use_double_wide_mlp": SHAPE,
    "moe_expert_input_dim": SHAPE,
    "padded_base_moe_mlp_dim": SHAPE,
    "mhc_expansion_rate": SHAPE,
    "logits_dot_in_fp32": "the head's matmul in fp32 is not in the numbers",
    "experimental_sa_quant_q_fp8": "attention in fp8 is not in the numbers",
    "experimental_sa_quant_k_fp8": "attention in fp8 is not in the numbers",
    "fsdp_shard_on_exp": LAYOUT,
    "expert_shard_attention_option": LAYOUT,
    "override_logical_axis_rules": LAYOUT,
    "model_fsdp_ag_once": LAYOUT,
    "pipeline_fsdp_ag_once": LAYOUT,
    "pipeline_fsdp_ag_per_repeat": LAYOUT,
    "ici_autoregressive_parallelism": LAYOUT,
    "dcn_autoregressive_parallelism": LAYOUT,
    "num_moe_token_chunks": LAYOUT,
    "num_moe_emb_chunks": LAYOUT,
}
"""Keys that bear on a step's time or memory and are not read, with what that means."""

SHAPES = (
    *("sliding_window_size", "chunk_attn_window_size", "num_kv_shared_layers", "shared_experts"),
    *("hidden_size_per_layer_input", "share_kv_projections", "engram_layers", "o_lora_rank"),
    *("first_num_dense_layers", "q_lora_rank", "global_head_dim", "global_num_kv_heads"),
    *("interleave_moe_layer_step", "trainable_position_size"),
)
"""Keys of a shape of the file's own that are not read; of a named model they change nothing."""

OFF = ("false", "none", "", "0", "-1", "[]", "default", "causal_lm")
ONE = (
    *("mhc_expansion_rate", "num_moe_token_chunks", "interleave_moe_layer_step"),
    *("ici_autoregressive_parallelism", "dcn_autoregressive_parallelism"),
)
"""Keys that are off at 1."""


@cache
def own() -> frozenset[str]:
    """Names of MaxText's own keys, of the years that the module's text gives."""
    text = (Path(__file__).parent / "maxtext_keys.txt").read_text(encoding="utf-8")
    return frozenset(text.split())


def put_unread(sheet: Sheet, named: bool) -> None:
    """Say the keys that bear on a step and are not read, and pass over the others.

    Args:
        named: the model is one by its name, whose shape a file does not change.
    """
    reasons = dict(UNREAD) if named else {**UNREAD, **dict.fromkeys(SHAPES, SHAPE)}
    if "attention_type" in sheet.settings and not named:
        told = str(sheet.settings["attention_type"].value).lower()
        if told not in ("global", "mla"):
            reasons["attention_type"] = SHAPE
    for key, setting in sheet.settings.items():
        top = key.split(".", 1)[0]
        if key in sheet.taken or setting.file == "--set" or top not in own():
            continue
        sheet.taken.add(key)
        why = reasons.get(top, "")
        off = (*OFF, "1", "1.0") if top in ONE else OFF
        off = (*off, "fsdp") if top == "expert_shard_attention_option" else off
        matters = bool(why) and str(setting.value).lower() not in off
        why = why if matters else "does not change the time or memory of a step here"
        sheet.draft.ignored.append(Ignored(key, setting.file, setting.line, matters, why))
    sheet.close("MaxText", own=own())
