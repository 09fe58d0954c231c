"""A model: architecture numbers, layer by layer, and what they add up to.

Shape letters used across the package: B sequences, S query length, T key length, D model width,
H query heads, K key/value heads, F feed-forward width, E experts, V vocabulary, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Attention:
    """Softmax attention with grouped queries; with ``kv_lora_rank`` set, DeepSeek's MLA.

    Attributes:
        head_dim: width of a query/key head (MLA: qk_nope_head_dim + qk_rope_head_dim).
        v_head_dim: width of a value head (equal to head_dim but for MLA).
        window: keys a query sees, counting its own (sliding window), or None for all of them.
        causal: a query sees only what came before.
        bias_params, norm_params: number of bias and norm parameters of this layer's attention
            (q/k/v/o biases; q and k norms, MLA's latent norms, sinks).
        q_lora_rank, kv_lora_rank, qk_rope_head_dim: MLA's; None otherwise.
        kv_from: ``self``; ``encoder`` for cross-attention.
    """

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    window: int | None = None
    causal: bool = True
    bias_params: int = 0
    norm_params: int = 0
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_rope_head_dim: int | None = None
    kv_from: str = "self"


@dataclass(frozen=True)
class DenseMlp:
    """Feed-forward of ``width``; ``matrices`` is 3 when gated (SwiGLU, GeGLU), 2 when plain."""

    width: int
    matrices: int = 3
    bias_params: int = 0


@dataclass(frozen=True)
class MoeMlp:
    """Routed experts, each a feed-forward of ``width``.

    Attributes:
        shared_width: total width of the experts that every token visits (0 = none).
        router_params: parameters of the gate, its bias included.
        shared_gate_params: parameters of a gate on the shared expert (qwen2_moe has one).
        expert_bias_params: bias parameters of **one** routed expert.
    """

    experts: int
    top_k: int
    width: int
    matrices: int = 3
    shared_width: int = 0
    router_params: int = 0
    shared_gate_params: int = 0
    expert_bias_params: int = 0


@dataclass(frozen=True)
class Layer:
    """One block: a token mixer, a feed-forward and their norms."""

    attention: Attention | None
    mlp: DenseMlp | MoeMlp | None
    norm_params: int


@dataclass(frozen=True)
class Model:
    """Architecture numbers of a decoder.

    Attributes:
        layers: ``(layer, count)`` runs in order of first appearance, their counts adding up to
            the model's layers; layers that alternate are two runs.
        layer_order: index into ``layers`` for each layer of the network, bottom to top.
        tied: the LM head is the embedding's transpose.
        head_bias_params, embedding_extra_params: LM-head bias; learned positions and the like.
        final_norm_params: parameters of the last norm.
        mtp_layers: multi-token-prediction blocks that a training run may add (not in ``layers``).
        vocab: rows of the embedding as the checkpoint has them.
        defaults: ``(key, value)`` of what the config left to the reference implementation.
    """

    name: str
    architecture: str
    d_model: int
    vocab: int
    layers: tuple[tuple[Layer, int], ...]
    layer_order: tuple[int, ...]
    tied: bool = False
    final_norm_params: int = 0
    head_bias_params: int = 0
    embedding_extra_params: int = 0
    mtp_layers: int = 0
    max_positions: int | None = None
    defaults: tuple[tuple[str, object], ...] = ()

    @property
    def n_layers(self) -> int:
        return len(self.layer_order)
