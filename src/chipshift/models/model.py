"""A model: architecture numbers, layer by layer, and what they add up to.

Shape letters used across the package: B sequences, S query length, T key length, D model width,
H query heads, K key/value heads, F feed-forward width, E experts, V vocabulary, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from chipshift.models.numerics import Numerics


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
        kv_from: ``self``; ``encoder``, or a tower's name, for cross-attention; ``joint`` where two
            streams attend together, ``both`` where the layer runs over both side by side.
        gate_params: matrix parameters of an output gate (qwen3_next has D × H·head_dim).
        chunked: ``window`` is a chunk that starts afresh, as Llama 4's, and does not slide.
        kv_shared: keys and values are an earlier layer's and not projected here (gemma3n).
        latent_keys: queries meet the latents themselves, which are one head of keys and of values
            (MLA absorbed, as sparse attention picks its keys).
        kv_input: width of what keys and values are projected from, None for the model's own.
        values_are_keys: one map makes both (Gemma 4's wide layers, DeepSeek-V4).
        o_rank, o_groups: the way back goes through ``o_groups`` latents of ``o_rank`` each, each of
            its share of the heads (DeepSeek-V4); None: one map.
        compressed_every, compressed_top: beside its window a query sees one key for each so many
            tokens before, at most so many of them (None: all); no such keys where None.
        table_keys: rows of a table that queries meet as they meet keys, and keys likewise
            (DeBERTa's distances).
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
    gate_params: int = 0
    chunked: bool = False
    kv_shared: bool = False
    kv_input: int | None = None
    latent_keys: bool = False
    values_are_keys: bool = False
    o_rank: int | None = None
    o_groups: int = 1
    compressed_every: int | None = None
    compressed_top: int | None = None
    table_keys: int = 0


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
        shared_bias_params: bias parameters of the experts that every token visits.
        latent_width: width that routed experts read and write, None for the model's own.
        capacity_factor: above 0 tokens are dealt out by masks and einsums (MaxText without
            ``sparse_matmul``): each expert has room for so many times its mean share of a
            sequence, computes on all of it, and what does not fit is dropped. 0 = dropless.
    """

    experts: int
    top_k: int
    width: int
    matrices: int = 3
    shared_width: int = 0
    router_params: int = 0
    shared_gate_params: int = 0
    expert_bias_params: int = 0
    shared_bias_params: int = 0
    latent_width: int | None = None
    capacity_factor: float = 0.0


@dataclass(frozen=True)
class Projection:
    """A linear map from ``inputs`` to ``outputs`` channels.

    Attributes:
        once: it is applied once an item (a class head, a time embedding), not at every token.
        every: tokens of its stack for one row of it (patches merged by squares before it).
    """

    name: str
    inputs: int
    outputs: int
    bias_params: int = 0
    once: bool = False
    every: int = 1


@dataclass(frozen=True)
class Recurrent:
    """A token mixer that carries a state along: linear in the sequence, no keys kept.

    Attributes:
        kind: ``mamba``, ``mamba2``, ``gated_delta``, ``lightning`` (linear attention with decay),
            ``rg_lru`` or ``short_conv`` (no state beyond its window).
        heads, key_dim, value_dim: the state is heads × key_dim × value_dim (Mamba: channels ×
            state size × 1).
        projections: its linear maps, per token.
        conv_channels, conv_width: the depthwise causal convolution before the scan (0 = none).
        bias_params, norm_params: of its projections, its convolution, its norms.
        other_params: decays, skips, step sizes.
    """

    kind: str
    heads: int
    key_dim: int
    value_dim: int
    projections: tuple[Projection, ...]
    conv_channels: int = 0
    conv_width: int = 0
    bias_params: int = 0
    norm_params: int = 0
    other_params: int = 0


@dataclass(frozen=True)
class Layer:
    """One block: token mixers, a feed-forward and their norms.

    Attributes:
        mixer: a recurrent token mixer, beside or instead of attention.
        cross: attention to another stack's output (encoder-decoder, text to image).
        projections: linear maps of the block that are none of the above.
        other_params: parameters that multiply nothing: scales, position biases.
        convs: convolutions, of a network whose item is one token.
        mixing_flops: forward FLOPs an item of matmuls of activations with each other, likewise.
        side_by_side: attention and feed-forward read the same norm's output and their results are
            added in one sum (GPT-J, MaxText's own block), where else one follows the other.
    """

    attention: Attention | None
    mlp: DenseMlp | MoeMlp | None
    norm_params: int
    mixer: Recurrent | None = None
    cross: Attention | None = None
    projections: tuple[Projection, ...] = ()
    other_params: int = 0
    convs: tuple[Conv, ...] = ()
    mixing_flops: int = 0
    side_by_side: bool = False


@dataclass(frozen=True)
class Conv:
    """A convolution (or ``count`` equal ones): inputs / groups × outputs × kernel weights.

    Attributes:
        kernel: taps, the product over its axes.
        positions: outputs along its axes for one item (image, clip); 0 where the config does not
            fix the input's size.
        per_token: outputs for each token of its stack, where ``positions`` is 0.
    """

    name: str
    inputs: int
    outputs: int
    kernel: int
    positions: int = 0
    groups: int = 1
    bias_params: int = 0
    count: int = 1
    per_token: int = 1


@dataclass(frozen=True)
class Tower:
    """A stack beside the decoder, with a width of its own: an encoder, a vision tower.

    Attributes:
        tokens: positions that it sees for one item, None where the input decides.
        embedding_params: tables: tokens of its own, learned positions.
        other_params: class tokens, final norms and the like.
    """

    name: str
    d_model: int
    layers: tuple[tuple[Layer, int], ...]
    layer_order: tuple[int, ...]
    tokens: int | None = None
    convs: tuple[Conv, ...] = ()
    projections: tuple[Projection, ...] = ()
    embedding_params: int = 0
    other_params: int = 0


@dataclass(frozen=True)
class Model:
    """Architecture numbers of a decoder, or of another network by its main stack.

    A decoder uses the fields down to ``max_positions``; the rest holds what others have besides.

    Attributes:
        layers: ``(layer, count)`` runs in order of first appearance, their counts adding up to
            the model's layers; layers that alternate are two runs.
        layer_order: index into ``layers`` for each layer of the network, bottom to top.
        tied: the LM head is the embedding's transpose.
        head_bias_params, embedding_extra_params: LM-head bias; learned positions and the like.
        final_norm_params: parameters of the last norm.
        mtp_layers: multi-token-prediction blocks that a training run may add (not in ``layers``).
        vocab: rows of the embedding as the checkpoint has them.
        has_head: logits over the vocabulary are computed (not so in encoders without one).
        head_outputs: outputs of a head that stands in place of the vocabulary's (a reward's: 1).
        tokens: positions of one item where its size is fixed (an image's patches), else None.
        embedding_width: width of the embedding where it is not d_model (OPT-350m, ALBERT).
        projections: linear maps of every token outside the layers.
        towers: stacks beside the main one, whose output it reads.
        convs: convolutions of the main stack (patch embeddings, whole convolutional networks).
        other_params: parameters outside the layers that multiply nothing.
        defaults: ``(key, value)`` of what the config left to the reference implementation.
        numerics: of a decoder: what changes its values, but no shape and no cost, and so is no part
            of what makes two models equal; None where nothing says it.
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
    has_head: bool = True
    head_outputs: int | None = None
    tokens: int | None = None
    embedding_width: int | None = None
    projections: tuple[Projection, ...] = ()
    towers: tuple[Tower, ...] = ()
    convs: tuple[Conv, ...] = ()
    other_params: int = 0
    defaults: tuple[tuple[str, object], ...] = ()
    numerics: Numerics | None = field(default=None, compare=False)

    @property
    def n_layers(self) -> int:
        return len(self.layer_order)

    @property
    def routed(self) -> bool:
        """Whether any layer has routed experts."""
        return any(isinstance(layer.mlp, MoeMlp) for layer, _ in self.layers)

    @property
    def logits(self) -> int:
        """Outputs of the head for a token."""
        return self.vocab if self.head_outputs is None else self.head_outputs

    @property
    def kind_prefixes(self) -> tuple[str, ...]:
        """What tells the kinds of layers apart in the names of a derivation; "" for a single one.

        ``dense_`` and ``moe_`` by their feed-forward, ``local_`` and ``recurrent_`` by their
        mixer, numbered where that is not enough.
        """
        if len(self.layers) == 1:
            return ("",)
        names = [_kind(layer) for layer, _ in self.layers]
        return tuple(
            f"{name}_" if names.count(name) == 1 else f"{name}_{names[:i].count(name) + 1}_"
            for i, name in enumerate(names)
        )


def _kind(layer: Layer) -> str:
    """A layer's feed-forward, and its mixer where that is not plain attention."""
    feed = "moe" if isinstance(layer.mlp, MoeMlp) else "dense" if layer.mlp is not None else ""
    attention = layer.attention
    mixer = "recurrent" if layer.mixer is not None else ""
    if attention is not None and attention.window is not None:
        mixer = "local"
    return "_".join(filter(None, (mixer, feed))) or "layer"
