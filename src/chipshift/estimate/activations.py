"""Bytes of activations: what the layers of a stage store, what one layer's backward pass holds."""

from __future__ import annotations

from typing import Any

from chipshift.estimate.setting import Setting
from chipshift.estimate.stage import heaviest_kind
from chipshift.parallel import memory
from chipshift.parallel.remat import Policy
from chipshift.worked import rename

Number = Any


def layer_working_bytes(s: Setting, policy: Policy, w: Any) -> Number:
    """What one layer's backward pass holds beyond the stored activations."""
    heavy = w.layers[heaviest_kind(s)].stored_elements
    whole, kept = kept_elements(heavy, policy)
    again = rename(whole - kept, "recomputed_elements")
    widest = heavy.get("up", heavy["block_input"])
    return memory.working_bytes(again, widest, s.stack.working_layers)


def kept_elements(sizes: dict[str, Number], policy: Policy) -> tuple[Number, Number]:
    """Elements of all of a layer's tensors, and of those that a policy keeps on the device."""
    whole: Number = 0.0
    kept: Number = 0.0
    for tensor, size in sizes.items():
        whole = whole + size
        stays = tensor in policy.saved or tensor == "block_input"
        if stays and tensor not in policy.offloaded:
            kept = kept + size
    return whole, kept


def stored_bytes(s: Setting, policy: Policy, counts: list[Number], layers: Any, flying: Number
                 ) -> Number:  # fmt: skip
    """Activations kept from forward to backward by the layers of a stage."""
    stored: Number = 0.0
    kinds = s.model.kind_prefixes  # name derivations only: the search asks for one kind at a time
    for one, count, kind in zip(layers, counts, kinds, strict=False):
        whole, kept = kept_elements(one.stored_elements, policy)
        mixed = rename(kept * policy.every + whole * (1 - policy.every), "stored_elements")
        held = memory.stored_activation_bytes(mixed, count, flying, activation_scale(s))
        stored = stored + rename(held, f"{kind}layers_stored_bytes")
    return stored


def activation_scale(s: Setting) -> Number:
    """Stored activations over the bf16 tensors that parallel/remat.py names."""
    narrow = s.stack.narrow_activations if float(s.bytes.compute) < 2 else 1.0
    return s.stack.activation_memory_scale * narrow
