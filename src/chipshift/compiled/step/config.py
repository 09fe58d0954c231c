"""What the step is built from: the decoder's shapes, the mesh and the settings, as data."""

from __future__ import annotations

from dataclasses import dataclass

from chipshift.models.rope import UNSCALED, Rope


@dataclass(frozen=True)
class Block:
    """Shapes and variants of one decoder layer.

    Attributes:
        heads, kv_heads, head_dim, v_head_dim: of attention; kv_heads divides heads.
        window: keys a query sees, counting its own, or None for all before it.
        qkv_bias, out_bias: whether the attention projections carry biases.
        qk_norm: RMS norm over each query and key head.
        q_rank, kv_rank, rope_dim: DeepSeek's latent attention when kv_rank is set; q_rank None
            means that queries come straight from the hidden state.
        mlp_width, gated: the dense feed-forward; 0 = none.
        experts, top_k, expert_width, shared_width: routed experts; experts 0 = none.
        shared_gate: a sigmoid gate on the shared expert.
    """

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    window: int | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    q_rank: int | None = None
    kv_rank: int | None = None
    rope_dim: int = 0
    mlp_width: int = 0
    gated: bool = True
    experts: int = 0
    top_k: int = 0
    expert_width: int = 0
    shared_width: int = 0
    shared_gate: bool = False
    rope: Rope = UNSCALED


@dataclass(frozen=True)
class Variant:
    """What tells one family's arithmetic from another's at the same shapes.

    Attributes:
        eps: of the RMS norms.
        activation: ``silu``, ``gelu_tanh`` or ``gelu``.
        unit_offset: norms multiply by (1 + weight), Gemma's way.
        post_norms: norms after attention and feed-forward too.
        embed_scale: the embedding is multiplied by this.
        query_scale: scores are multiplied by this; None = head_dim ** -0.5.
        attention_cap, logit_cap: tanh soft caps, 0 = none.
        router: ``softmax`` over all experts before top-k, ``topk_softmax`` over the chosen ones,
            or ``sigmoid`` (DeepSeek-V3).
        renormalise: chosen router weights are scaled to add up to one.
        router_scale, expert_groups, top_groups: DeepSeek's: of so many groups of experts so many
            are open to a token.
        interleaved_rope: rotary pairs are neighbours, as in DeepSeek's checkpoints.
    """

    eps: float = 1e-6
    activation: str = "silu"
    unit_offset: bool = False
    post_norms: bool = False
    embed_scale: float = 1.0
    query_scale: float | None = None
    attention_cap: float = 0.0
    logit_cap: float = 0.0
    router: str = "softmax"
    renormalise: bool = True
    router_scale: float = 1.0
    expert_groups: int = 1
    top_groups: int = 1
    interleaved_rope: bool = False


@dataclass(frozen=True)
class Config:
    """One training step.

    Attributes:
        segments: ``(unit, repeats)``: each segment scans ``repeats`` times over the blocks of
            ``unit``, so that a block compiles once however deep the network is.
        mesh: sizes of the axes of ``MESH_AXES``.
        slices: slices joined by the data-center network.
        ep_from: the plan's axis that the expert axis was taken out of, ``fsdp`` or ``dp``.
        batch: sequences of one microbatch over all devices.
        capacity: slots an expert keeps for tokens, as a multiple of a perfectly even routing.
        remat: a policy of ``remat_names.py``.
        zero: optimizer state also sharded over dp.
        attention: ``splash`` (Pallas kernel, TPU) or ``blockwise`` (plain JAX, anywhere).
    """

    d_model: int
    vocab: int
    segments: tuple[tuple[tuple[Block, ...], int], ...]
    mesh: tuple[int, int, int, int, int]
    seq_len: int
    batch: int
    variant: Variant = Variant()
    tied: bool = False
    slices: int = 1
    ep_from: str = "fsdp"
    accumulation: int = 1
    loss_chunks: int = 1
    capacity: float = 1.0
    remat: str = "full"
    zero: bool = False
    sequence_parallel: bool = True
    attention: str = "splash"
    compute_dtype: str = "bfloat16"
    master_dtype: str = "float32"
    moment_dtype: str = "float32"
    gradient_dtype: str = "float32"
    reduce_dtype: str = "bfloat16"
    learning_rate: float = 3e-4
    beta1: float = 0.9
    beta2: float = 0.95
    adam_eps: float = 1e-8
    weight_decay: float = 0.1
    clip: float = 1.0


PADDED_TO = 128


def table_rows(cfg: Config) -> int:
    """Rows of the embedding and columns of the head: the vocabulary, and where tp does not divide
    it, enough more for a multiple of ``PADDED_TO`` on each tp device, Megatron-LM's own padding
    (--make-vocab-size-divisible-by). No token is looked up there, and the loss leaves them out."""
    each = PADDED_TO * cfg.mesh[4]
    return cfg.vocab if cfg.vocab % cfg.mesh[4] == 0 else -(-cfg.vocab // each) * each
