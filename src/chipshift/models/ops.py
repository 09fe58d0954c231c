"""What one layer computes on one device: its ops, with shapes cut by the plan.

Every number may be a float, an equal-length array (a table of plans) or a ``Worked``.
FLOPs are of the forward pass, a multiply-add being 2; causal attention is counted half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chipshift.models.model import Attention, DenseMlp, Layer, Model, MoeMlp, Recurrent
from chipshift.worked import formula, plain, rename

Number = Any
"""A float, an array of floats or a Worked."""


@dataclass(frozen=True)
class Cut:
    """How one forward pass of one microbatch is cut for one device.

    Attributes:
        tokens: rows of activations on the device, microbatch × seq_len / cp.
        seq_len: what attention reaches over: a whole sequence, or a document packed into one.
        tp: tensor parallel degree.
        ep: expert parallel degree.
        sp: degree by which the activations outside the matmuls are cut (tp, or 1).
        etp: tensor parallel degree inside an expert.
        imbalance: rows of the busiest expert group over the mean (1 = balanced).
        ulysses: devices that attention's heads are dealt over by an all-to-all, each of which then
            has the rows of all of them; 1 where keys and values travel instead.
    """

    tokens: Number
    seq_len: Number
    tp: Number = 1.0
    ep: Number = 1.0
    sp: Number = 1.0
    imbalance: Number = 1.0
    etp: Number = 1.0
    ulysses: Number = 1.0

    @property
    def deals_heads(self) -> bool:
        """Whether an all-to-all deals heads out; False for the plain 1 that stands for none."""
        return not (isinstance(self.ulysses, float) and self.ulysses == 1.0)


@dataclass(frozen=True)
class Op:
    """One op of the forward pass on one device.

    Attributes:
        kind: ``matmul``, ``grouped_matmul``, ``attention``, or a memory-bound ``norm``,
            ``residual``, ``rope``, ``activation``, ``permute``, ``mask``, ``embedding``, ``loss``.
        m, n, k: rows, outputs and reduction of a matmul (of one group when grouped); ``m`` also
            the rows that a ``permute`` moves.
        groups: experts on the device (grouped matmul), else 1.
        elements: for memory-bound kinds, size of the tensor that is passed over.
        flops: forward model FLOPs; 0 for memory-bound kinds.
        heads, kv_heads, head_dim, v_head_dim, keys, kv_len, q_tokens: attention only; ``keys`` is
            the mean number of keys a query really meets, ``kv_len`` the most.
        span: attention only: the tokens along which a window moves, a sequence or one chunk of it.
        has_weights: its weights need a gradient (attention's matmuls have none).
    """

    name: str
    kind: str
    m: Number = 0.0
    n: Number = 0.0
    k: Number = 0.0
    groups: Number = 1.0
    elements: Number = 0.0
    flops: Number = 0.0
    heads: Number = 0.0
    kv_heads: Number = 0.0
    head_dim: Number = 0.0
    v_head_dim: Number = 0.0
    keys: Number = 0.0
    kv_len: Number = 0.0
    q_tokens: Number = 0.0
    span: Number = 0.0


@formula(unit="FLOP", source="a multiply-add is 2 FLOP")
def matmul_flops(m: Number, n: Number, k: Number, groups: Number = 1.0) -> Number:
    """Forward FLOPs of ``groups`` matmuls (m, k) × (k, n)."""
    return 2 * m * n * k * groups


@formula(unit="keys", source="causal attention counted half; a window W of S keys: W − W²/(2S)")
def mean_keys(seq_len: Number, window: Number, causal: Number) -> Number:
    """Mean number of keys a query meets: S/2 causal, W − W²/(2S) with a window, S otherwise."""
    reach = np.minimum(window, seq_len)
    return np.where(causal > 0, reach - reach * reach / (2 * seq_len), reach)


@formula(unit="FLOP", source="2 FLOP a multiply-add, QKᵀ over head_dim and PV over v_head_dim")
def attention_flops(
    q_tokens: Number, keys: Number, heads: Number, head_dim: Number, v_head_dim: Number
) -> Number:
    """Forward FLOPs of attention: each query meets ``keys`` keys and as many values."""
    return 2 * q_tokens * keys * heads * (head_dim + v_head_dim)


@formula(unit="rows", source="tokens × top-k spread over the experts of the expert-parallel group")
def rows_per_expert(
    tokens: Number, top_k: Number, ep: Number, experts: Number, imbalance: Number
) -> Number:
    """Rows that one expert on the device multiplies: tokens·k·ep/E × imbalance."""
    return tokens * top_k * ep / experts * imbalance


def _matmul(name: str, m: Number, n: Number, k: Number) -> Op:
    return Op(name, "matmul", m=m, n=n, k=k, flops=matmul_flops(m, n, k))


def attention_ops(a: Attention, d_model: Number, cut: Cut) -> list[Op]:
    """Projections, rotary embedding and attention of one layer on one device."""
    heads = a.heads / cut.tp
    latent = a.kv_lora_rank is not None
    # fewer kv heads than tp: they are copied; latent attention makes as many as there are queries
    kv_heads = heads if latent else np.maximum(a.kv_heads / cut.tp, 1.0)
    ops = _into_attention(a, d_model, cut, heads, kv_heads)
    ops.append(Op("rope", "rope", elements=cut.tokens * (heads + kv_heads) * a.head_dim))
    ops.append(_attention_core(a, cut, heads, kv_heads))
    made = a.heads / cut.tp * a.v_head_dim
    if a.o_rank is None:
        ops.append(_matmul("out_proj", cut.tokens, d_model, made))
        return ops
    ops.append(_matmul("out_proj", cut.tokens, a.o_rank, made))
    ops.append(_matmul("out_proj", cut.tokens, d_model, a.o_groups / cut.tp * a.o_rank))
    return ops


def _into_attention(a: Attention, d_model: Number, cut: Cut, heads: Number, kv_heads: Number
                    ) -> list[Op]:  # fmt: skip
    """The projections in front of attention, which differ by where its keys and values lie."""
    t = cut.tokens
    if a.kv_lora_rank is not None:
        rope = 0 if a.qk_rope_head_dim is None else a.qk_rope_head_dim
        if a.q_lora_rank is not None:
            queries = _low_rank_queries(a, d_model, a.q_lora_rank, t, heads)
        else:
            queries = [_matmul("q_proj", t, heads * a.head_dim, d_model)]
        kv_width = a.head_dim - rope + a.v_head_dim
        return [
            *queries,
            _matmul("kv_down", t, a.kv_lora_rank + rope, d_model),
            _matmul("kv_up", t, heads * kv_width, a.kv_lora_rank),
        ]
    if a.o_rank is not None and a.q_lora_rank is not None:
        queries = _low_rank_queries(a, d_model, a.q_lora_rank, t, heads)
        return [*queries, _matmul("kv_down", t, a.kv_heads * a.head_dim, d_model)]
    width = heads * a.head_dim
    if not a.kv_shared:
        width = width + kv_heads * (a.head_dim if a.values_are_keys else a.head_dim + a.v_head_dim)
    if plain(a.gate_params):
        width = width + a.gate_params / d_model / cut.tp
    return [_matmul("qkv_proj", t, width, d_model)]


def _low_rank_queries(a: Attention, d_model: Number, rank: Number, t: Number, heads: Number
                      ) -> list[Op]:  # fmt: skip
    return [_matmul("q_down", t, rank, d_model), _matmul("q_up", t, heads * a.head_dim, rank)]


def _attention_core(a: Attention, cut: Cut, heads: Number, kv_heads: Number) -> Op:
    """Queries on keys and scores on values: the keys that a query meets, and those ever held."""
    t = cut.tokens
    if cut.deals_heads:
        t = rename(t * cut.ulysses, "attention_rows")
        heads = rename(heads / cut.ulysses, "attention_heads")
        kv_heads = rename(np.maximum(kv_heads / cut.ulysses, 1.0), "attention_kv_heads")
    window = cut.seq_len if a.window is None else a.window
    # a chunk starts afresh: within it a query meets half of it, as in a sequence of that length
    length = np.minimum(cut.seq_len, window) if a.chunked else cut.seq_len
    causal = 1.0 if a.causal else 0.0
    keys, kv_len = mean_keys(length, window, causal), np.minimum(cut.seq_len, window)
    if a.compressed_every is not None:
        all_of_them = cut.seq_len / a.compressed_every
        top = all_of_them if a.compressed_top is None else a.compressed_top
        keys = keys + mean_keys(all_of_them, top, causal)
        kv_len = kv_len + np.minimum(all_of_them, top)
    if a.table_keys:
        keys = keys + a.table_keys
    return Op(
        "attention",
        "attention",
        flops=attention_flops(t, keys, heads, a.head_dim, a.v_head_dim),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=a.head_dim,
        v_head_dim=a.v_head_dim,
        keys=keys,
        kv_len=kv_len,
        q_tokens=t,
        span=length,
    )


@formula(unit="FLOP", source="a state H × k × v written and read once a token, 2 FLOP each")
def scan_flops(tokens: Number, heads: Number, key_dim: Number, value_dim: Number) -> Number:
    """Forward FLOPs of a recurrence: t·H·k·v multiply-adds to write its state and to read it."""
    return 4 * tokens * heads * key_dim * value_dim


def recurrent_ops(mixer: Recurrent, cut: Cut) -> list[Op]:
    """Projections, short convolution and scan of a recurrent mixer on one device.

    Its parts bear the names of attention's, which say what rematerialisation does with them. A
    short convolution keeps no state, so that it has no scan.
    """
    t = cut.tokens
    *into, out = mixer.projections
    ops = [_matmul("qkv_proj", t, p.outputs / cut.tp, p.inputs) for p in into]
    if plain(mixer.conv_channels):
        ops.append(Op("rope", "rope", elements=t * mixer.conv_channels / cut.tp))
    if mixer.kind != "short_conv":
        flops = scan_flops(t, mixer.heads / cut.tp, mixer.key_dim, mixer.value_dim)
        width = mixer.heads * mixer.value_dim / cut.tp
        ops.append(Op("attention", "matmul", m=t, n=width, k=2 * mixer.key_dim, flops=flops))
    ops.append(_matmul("out_proj", t, out.outputs, out.inputs / cut.tp))
    return ops


def _dense_ops(prefix: str, width: Number, matrices: Number, d_model: Number, cut: Cut) -> list[Op]:
    t, f = cut.tokens, width / cut.tp
    return [
        _matmul(f"{prefix}_up", t, (matrices - 1) * f, d_model),
        Op(f"{prefix}_activation", "activation", elements=t * f * matrices),
        _matmul(f"{prefix}_down", t, d_model, f),
    ]


def mlp_ops(mlp: DenseMlp | MoeMlp, d_model: Number, cut: Cut) -> list[Op]:
    """Feed-forward of one layer on one device: dense, or router, experts and shared experts."""
    if isinstance(mlp, DenseMlp):
        return _dense_ops("mlp", mlp.width, mlp.matrices, d_model, cut)
    t, f = cut.tokens, mlp.width / cut.etp
    # with etp < tp the tokens of the tp group are spread over its devices before they are sent
    sent = t * cut.etp / cut.tp
    held = mlp.experts / cut.ep
    d_expert = d_model if mlp.latent_width is None else mlp.latent_width
    if plain(mlp.capacity_factor):
        ops = _dealt_by_masks(mlp, sent, f, held, d_expert, d_model, cut)
        if plain(mlp.shared_width):
            ops += _dense_ops("shared", mlp.shared_width, mlp.matrices, d_model, cut)
        return ops
    rows = rows_per_expert(sent, mlp.top_k, cut.ep, mlp.experts, cut.imbalance)
    up, routed = (mlp.matrices - 1) * f, t * mlp.top_k
    ops = [
        _matmul("router", t / cut.sp, mlp.experts, d_model),
        Op("permute", "permute", m=routed / cut.sp, elements=routed * d_expert / cut.sp),
        Op("experts_up", "grouped_matmul", m=rows, n=up, k=d_expert, groups=held,
           flops=matmul_flops(rows, up, d_expert, held)),
        Op("experts_activation", "activation", elements=rows * held * f * mlp.matrices),
        Op("experts_down", "grouped_matmul", m=rows, n=d_expert, k=f, groups=held,
           flops=matmul_flops(rows, d_expert, f, held)),
        Op("unpermute", "permute", m=routed / cut.sp, elements=routed * d_expert / cut.sp),
    ]  # fmt: skip
    if plain(mlp.expert_bias_params):
        ops.insert(-1, Op("experts_bias", "bias", elements=rows * held * d_expert))
    if plain(mlp.shared_width):
        ops += _dense_ops("shared", mlp.shared_width, mlp.matrices, d_model, cut)
    return ops


@formula(unit="rows", source="room for the mean share of a sequence × the capacity factor")
def capacity_rows(tokens: Number, top_k: Number, capacity_factor: Number) -> Number:
    """Places for the rows of all experts: tokens·k·capacity_factor, taken or not."""
    return tokens * top_k * capacity_factor


def _dealt_by_masks(mlp: MoeMlp, sent: Number, f: Number, held: Number, d_expert: Number,
                    d_model: Number, cut: Cut) -> list[Op]:  # fmt: skip
    """Routed experts with a capacity: a mask (sequence × places) deals a sequence's tokens out by
    one einsum and gathers results by another (MaxText layers/moe.py, ``dense_matmul``).

    Every place is computed. The einsums are no model FLOPs; the experts' are the tokens' own.
    """
    t = cut.tokens
    places = capacity_rows(cut.seq_len, mlp.top_k, mlp.capacity_factor)
    rows = rows_per_expert(sent, mlp.top_k * mlp.capacity_factor, cut.ep, mlp.experts, 1.0)
    own = rows_per_expert(sent, mlp.top_k, cut.ep, mlp.experts, 1.0)
    sequences, up = t / cut.seq_len, (mlp.matrices - 1) * f
    return [
        _matmul("router", t / cut.sp, mlp.experts, d_model),
        Op("masks", "mask", elements=t * places),
        Op("dispatch", "matmul", m=places, n=d_expert, k=cut.seq_len, groups=sequences),
        Op("experts_up", "matmul", m=rows, n=up, k=d_expert, groups=held,
           flops=matmul_flops(own, up, d_expert, held)),
        Op("experts_activation", "activation", elements=rows * held * f * mlp.matrices),
        Op("experts_down", "matmul", m=rows, n=d_expert, k=f, groups=held,
           flops=matmul_flops(own, d_expert, f, held)),
        Op("combine", "matmul", m=cut.seq_len, n=d_expert, k=places, groups=sequences),
    ]  # fmt: skip


def layer_ops(layer: Layer, d_model: Number, cut: Cut) -> list[Op]:
    """All ops of one layer on one device, in order of execution."""
    stream = cut.tokens * d_model / cut.sp
    ops: list[Op] = []
    if layer.mixer is not None:
        ops.append(Op("attention_norm", "norm", elements=stream))
        ops += recurrent_ops(layer.mixer, cut)
        ops.append(Op("attention_residual", "residual", elements=stream))
    for attention in (layer.cross, layer.attention):
        if attention is not None:
            ops.append(Op("attention_norm", "norm", elements=stream))
            ops += attention_ops(attention, d_model, cut)
            ops.append(Op("attention_residual", "residual", elements=stream))
    ops += [
        _matmul("out_proj", cut.tokens, p.outputs / cut.tp, p.inputs)
        for p in layer.projections
        if not p.once
    ]
    if layer.mlp is not None:
        if not layer.side_by_side:
            ops.append(Op("mlp_norm", "norm", elements=stream))
        ops += mlp_ops(layer.mlp, d_model, cut)
        ops.append(Op("mlp_residual", "residual", elements=stream))
    return ops


def end_ops(model: Model, cut: Cut) -> tuple[list[Op], list[Op]]:
    """Ops before the first layer and after the last one: embedding; final norm, head and loss."""
    t, d = cut.tokens, model.d_model
    first = [Op("embedding", "embedding", elements=t * d)]
    last = [Op("final_norm", "norm", elements=t * d / cut.sp)]
    last += [
        _matmul("projection", t, p.outputs / cut.tp, p.inputs)
        for p in model.projections
        if not p.once
    ]
    if model.has_head:
        width = d if model.embedding_width is None else model.embedding_width
        outputs = model.logits / cut.tp
        last.append(_matmul("lm_head", t, outputs, width))
        last.append(Op("loss", "loss", elements=t * outputs))
    return first, last


def forward_flops_per_token(model: Model, seq_len: Number) -> Number:
    """Model FLOPs of one token's forward pass: every matmul, attention half, head included."""
    cut = Cut(tokens=1.0, seq_len=seq_len)
    total: Number = 0.0
    for (layer, count), kind in zip(model.layers, model.kind_prefixes, strict=True):
        ops = layer_ops(layer, model.d_model, cut)
        total = total + rename(flops_of(ops), f"{kind}layer_flops_per_token") * count
    return total + flops_of(end_ops(model, cut)[1])


def flops_of(ops: list[Op]) -> Number:
    """Forward FLOPs of some ops, each under its own name in a derivation."""
    total: Number = 0.0
    seen: dict[str, int] = {}
    for op in ops:
        seen[op.name] = seen.get(op.name, 0) + 1
        again = f"_{seen[op.name]}" if seen[op.name] > 1 else ""
        total = total + rename(op.flops, f"{op.name}{again}_flops")
    return total
