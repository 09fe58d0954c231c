"""Low-rank adapters beside frozen maps: which ops have them, and what they move through memory.

Two thin matmuls, far below the ridge at any usual rank, so that they cost what their inputs and
outputs take to stream; each is a kernel of its own, and its result is added to the frozen map's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from chipshift.models.lora import Lora, adapted
from chipshift.models.model import Model
from chipshift.worked import formula

Number = Any

LAUNCHES = 4
"""Kernels that an adapter adds to a forward pass: down, up, scale, add."""

_OPS = (
    (("experts.gate_up_proj",), "experts_up"),
    (("experts.down_proj",), "experts_down"),
    (("shared_expert.down_proj", "shared_experts.down_proj"), "shared_down"),
    (("shared_expert.", "shared_experts."), "shared_up"),
    (("q_a_proj",), "q_down"),
    (("q_b_proj",), "q_up"),
    (("kv_a_proj_with_mqa",), "kv_down"),
    (("kv_b_proj",), "kv_up"),
    (("mlp.c_proj", "down_proj", "dense_4h_to_h", "fc_out", "fc2"), "mlp_down"),
    (("gate_proj", "up_proj", "gate_up_proj", "dense_h_to_4h", "c_fc", "fc_in", "fc1"), "mlp_up"),
    (("o_proj", "c_proj", "out_proj", "dense"), "out_proj"),
    (("q_proj", "k_proj", "v_proj", "qkv_proj", "c_attn", "query_key_value"), "qkv_proj"),
)
"""Parts of a module's path, the more special first, and the op that the map is part of."""


@dataclass(frozen=True)
class Adapters:
    """Adapters of one layer: ``(op, maps)`` pairs, the maps that have one in that op.

    Queries, keys and values are one op: three maps where they are modules of their own, one where
    they are fused. A fraction says that not every layer has them.
    """

    maps: tuple[tuple[str, float], ...] = ()

    def on(self, op: str) -> float:
        """Adapters in an op; 0 where it has none."""
        return next((maps for name, maps in self.maps if name == op), 0.0)

    @property
    def each_layer(self) -> float:
        return sum(maps for _, maps in self.maps)


def adapters_of(model: Model, lora: Lora) -> Adapters:
    """The adapters of a mean layer.

    Raises:
        InputError: a target names no module of the model, or its modules are not known.
    """
    found = Counter(op for m in adapted(model, lora) if m.layer >= 0 if (op := op_of(m.name)))
    return Adapters(tuple((op, count / model.n_layers) for op, count in sorted(found.items())))


def op_of(module: str) -> str:
    """The op of models/ops.py that a module's map is part of; '' for a router and the like."""
    ends = (op for parts, op in _OPS if any(f".{p}" in f".{module}" for p in parts))
    return next(ends, "")


@formula(unit="B", source="input read for each map; output written, then added: 2 read, 1 written")
def adapter_forward_bytes(rows: Number, inputs: Number, outputs: Number, maps: Number) -> Number:
    """HBM bytes of an op's adapters in a forward pass, bf16."""
    return 2 * rows * (maps * inputs + 4 * outputs)


@formula(unit="B", source="output's gradient read twice; input's written, added, input read again")
def adapter_backward_bytes(rows: Number, inputs: Number, outputs: Number, maps: Number) -> Number:
    """HBM bytes of an op's adapters in a backward pass, bf16."""
    return 2 * rows * (5 * maps * inputs + 2 * outputs)
