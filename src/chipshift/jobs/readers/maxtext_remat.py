"""MaxText's ``remat_policy=custom``: tensors by their checkpoint names, kept, moved or run again.

Source: Google, MaxText, src/maxtext/configs/base.yml (remat_policy and the names below it), 2026.
"""

from __future__ import annotations

from collections.abc import Mapping

POLICIES = (
    *("full", "minimal", "minimal_with_context", "minimal_flash", "save_dot_except_mlp"),
    *("save_dot_except_mlpwi", "save_dot_with_context_except_mlp", "save_qkv_proj"),
    *("save_out_proj", "qkv_proj_offloaded", "minimal_offloaded", "custom", "none"),
)
"""Names that base.yml lists."""

TENSOR = {
    "decoder_layer_input": "block_input",
    "context": "attention",
    "query_proj": "qkv",
    "key_proj": "qkv",
    "value_proj": "qkv",
    "qkv_proj": "qkv",
    "out_proj": "out_proj",
    "mlpwi": "up",
    "mlpwi_0": "up",
    "mlpwi_1": "up",
    "mlpwo": "down",
    "moe_mlpwi_0": "up",
    "moe_mlpwi_1": "up",
    "moe_mlpwo": "down",
    "kv_proj": "qkv",
    "mla_q": "qkv",
    "mla_kv": "qkv",
}
"""MaxText's checkpoint names in the words of parallel/remat.py (``down``: the layer's output)."""


UNREAD = ("query_wa_proj", "kv_wa_proj", "attention_out", "indexer_cutoff_threshold", "engram")
"""Checkpoint names of tensors that are none of ours: taken as run again."""


def custom_policy(places: Mapping[str, str], all_projections: bool = False) -> str:
    """``{"decoder_layer_input": "offload"}`` as a policy; the layer's own input is kept anyway."""
    saved = {TENSOR[k] for k, v in places.items() if v == "device" and k in TENSOR}
    away = {TENSOR[k] for k, v in places.items() if v == "offload" and k in TENSOR}
    saved -= {"down", "block_input"}
    away -= {"down"}
    if all_projections:
        saved |= {"qkv", "out_proj", "up"}
    parts = [f"saved={'+'.join(sorted(saved))}"] if saved else []
    parts += [f"offload={'+'.join(sorted(away))}"] if away else []
    return "custom:" + ",".join(parts) if parts else "full"
