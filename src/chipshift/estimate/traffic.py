"""Time of every collective of a step, whole and exposed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chipshift.estimate.columns import Columns
from chipshift.estimate.context import Context, context_of
from chipshift.estimate.cuts import weight_cuts
from chipshift.estimate.parts import absent
from chipshift.estimate.sent_whole import scattered_along_sequence, scatters_one_sequence_whole
from chipshift.estimate.setting import Setting
from chipshift.estimate.stage import device_params
from chipshift.fabric import Links, collective_time, inside_time
from chipshift.models.model import Layer, MoeMlp
from chipshift.parallel import traffic
from chipshift.worked import Worked, formula, leaf, plain, rename

Number = Any


@formula(unit="s", source="what compute running beside it cannot hide, and what it slows down")
def exposed_behind(comm_s: Number, compute_s: Number, overlap: Number, tax: Number) -> Number:
    """Exposed seconds of a collective that overlaps with ``overlap`` × compute."""
    hidden = np.minimum(comm_s, compute_s * overlap)
    return comm_s - hidden + tax * hidden


@formula(unit="s", source="the share that the stack does not overlap")
def exposed_share(comm_s: Number, overlap: Number) -> Number:
    """Exposed seconds of a collective of which the stack hides a fixed share."""
    return comm_s * (1 - overlap)


@formula(unit="s", source="the share that is not overlapped, less the compute that need not wait")
def exposed_beyond(comm_s: Number, overlap: Number, beside_s: Number) -> Number:
    """Exposed seconds of a collective beside work that does not wait for it."""
    return np.maximum(comm_s * (1 - overlap) - beside_s, 0)


@formula(unit="s", source="the share that the stack overlaps, no more than the compute beside it")
def exposed_beside(comm_s: Number, overlap: Number, beside_s: Number) -> Number:
    """Exposed seconds of a collective of which a share is hidden, beside so much compute."""
    return comm_s - np.minimum(comm_s * overlap, beside_s)


@formula(unit="s", source="a collective beside compute runs at a share of its own speed")
def in_place(alone_s: Number, scale: Number) -> Number:
    """Seconds of a collective in a step that takes ``alone_s`` by itself."""
    return alone_s / scale


@formula(unit="s", source="the steps of a ring, each as slow as its hop between nodes")
def ring_latency(latency_s: Number, ranks: Number, nodes: Number) -> Number:
    """Seconds that a collective over several nodes takes beside its transfer; 0 inside one."""
    return latency_s * ranks * np.where(nodes > 1, 1.0, 0.0)


@formula(unit="1", source="PyTorch DDP: gradients are summed bucket by bucket as they are made")
def gradient_buckets(gradient_bytes: Number, bucket_bytes: Number) -> Number:
    """Messages that the sum of gradients is cut into."""
    return np.maximum(np.ceil(gradient_bytes / bucket_bytes), 1.0)


@dataclass(frozen=True)
class LayerTraffic:
    """Collectives of one layer, seconds.

    Attributes:
        tp_forward, tp_backward, tp_recompute: all-gathers and reduce-scatters of activations.
        cp_forward, cp_backward: exchanges of keys and values.
        heads_in, heads_out: all-to-alls of heads on the way into attention and out of it, one way;
            the plain 0.0 where heads stay.
        ep_each: one all-to-all (dispatch or combine); 0 for a dense layer.
        gather: one all-gather of the layer's weights; reduce: one reduce-scatter of its gradients.
    """

    tp_forward: Number
    tp_backward: Number
    tp_recompute: Number
    cp_forward: Number
    cp_backward: Number
    ep_each: Number
    gather: Number
    reduce: Number
    heads_in: Number = 0.0
    heads_out: Number = 0.0


def layer_traffic(s: Setting, c: Columns, sequence_parallel: bool, cp_kind: str, kind: int,
                  tokens: Number, sp: Number) -> LayerTraffic:  # fmt: skip
    """Collectives of one layer of a kind for one microbatch."""
    layer = s.model.layers[kind][0]
    pair = tensor_pair_s(s, tokens, c.links["tp"], sequence_parallel, c.microbatch)
    context = context_of(s, layer, tokens, c, cp_kind)
    ep_each = expert_exchange_s(s, layer, tokens, c.ep, sp, c.links["ep"])
    gather, reduce = _weights(s, c, kind)
    beside = feed_forward_pair_s(s, layer, tokens, c.etp, c.links["tp"], sequence_parallel, pair)
    return layer_collectives(layer, pair, context, ep_each, gather, reduce, beside)


def layer_collectives(layer: Layer, pair: Number, context: Context, ep_each: Number,
                      gather: Number, reduce: Number, experts: Number | None = None
                      ) -> LayerTraffic:  # fmt: skip
    """A layer's collectives from the time of each.

    Attention and feed-forward have a pair of tensor parallelism's each, or one between them where
    they stand side by side; that of routed experts may differ (``experts``).
    """
    pair = rename(pair, "tp_pair_s")
    alike = pair * (1.0 if layer.side_by_side else 2.0)
    both, of = (alike, "") if experts is None else (pair + experts, "routed_")
    return LayerTraffic(
        tp_forward=rename(both, f"{of}tp_forward_s"),
        tp_backward=rename(both, f"{of}tp_backward_s"),
        tp_recompute=pair / 2 if layer.side_by_side else pair,
        cp_forward=rename(context.forward, "cp_forward_s"),
        cp_backward=rename(context.backward, "cp_backward_s"),
        ep_each=rename(ep_each, "expert_all_to_all_s"),
        gather=gather,
        reduce=reduce,
        heads_in=rename(context.heads_in, "heads_in_s"),
        heads_out=rename(context.heads_out, "heads_out_s"),
    )


def feed_forward_pair_s(s: Setting, layer: Layer, tokens: Number, etp: Number, tp: Links,
                        sequence_parallel: bool, pair: Number) -> Number | None:  # fmt: skip
    """The pair of a layer with routed experts where it differs from attention's; None: it does not.

    Megatron-Core's dispatcher (transformer/moe/token_dispatcher.py, core 0.15) gathers the rows
    that the all-to-all brought over the devices that share an expert (etp), top-k for each token,
    and scatters their results; with whole experts it gathers nothing. A shared expert is cut by tp
    as a dense layer is.

    Args:
        pair: seconds of the pair of whole activations.
    """
    if absent(s.stack.gathers_expert_rows) or not isinstance(layer.mlp, MoeMlp):
        return None
    rows = rename(tokens * layer.mlp.top_k, "expert_rows")
    cut = np.where(etp > 1, 1.0, 0.0)
    routed = rename(tensor_pair_s(s, rows, tp, sequence_parallel) * cut, "experts_tp_pair_s")
    return pair + routed if plain(layer.mlp.shared_width) else routed


def tensor_pair_s(s: Setting, tokens: Number, tp: Links, sequence_parallel: bool,
                  sequences: Number | None = None) -> Number:  # fmt: skip
    """Seconds to gather activations over tp and scatter them again (or to sum them).

    ``sequences``: of which these are, a device; None where they are rows of experts.
    """
    v_tp = traffic.tensor_parallel_bytes(tokens, s.model.d_model, s.bytes.activations)
    if sequence_parallel:
        gathered = rename(collective_time("all_gather", v_tp, tp), "tp_all_gather_s")
        scattered = rename(collective_time("reduce_scatter", v_tp, tp), "tp_reduce_scatter_s")
        if sequences is not None and scatters_one_sequence_whole(s):
            whole = rename(collective_time("all_reduce", v_tp, tp), "tp_all_reduce_s")
            scattered = scattered_along_sequence(scattered, whole, sequences)
        pair = gathered + scattered
    else:
        pair = rename(collective_time("all_reduce", v_tp, tp), "tp_all_reduce_s")
    pair = in_place(pair, np.where(tp.n_out > 1, s.stack.tp_across_scale, 1.0))
    if absent(s.stack.rank_latency_s):
        return pair
    each = ring_latency(
        s.stack.rank_latency_s, _placed(tp.size, "devices", v_tp), _placed(tp.n_out, "nodes", v_tp)
    )
    return pair + each * (2 if sequence_parallel else 1)


def expert_exchange_s(s: Setting, layer: Layer, tokens: Number, ep: Number, sp: Number,
                      links: Links) -> Number:  # fmt: skip
    """Seconds of one all-to-all of a layer's tokens; 0 for a dense layer."""
    if not isinstance(layer.mlp, MoeMlp):
        return 0.0
    top_k: Number = layer.mlp.top_k
    if plain(layer.mlp.capacity_factor):  # empty places travel too
        top_k = top_k * layer.mlp.capacity_factor
    v_ep = traffic.expert_bytes(tokens, top_k, s.model.d_model, s.bytes.activations, ep, sp)
    nodes = _placed(links.n_out, "nodes", v_ep)
    once = traffic.once_per_place(top_k, nodes, ep, s.stack.ep_once_per_place)
    return collective_time("all_to_all", v_ep * once, links)


def _placed(count: Number, what: str, beside: Number) -> Number:
    """Nodes or devices of a group: a leaf where the figures beside it are worked."""
    if not isinstance(beside, Worked):
        return count
    return leaf(count, what, what, "placement of the mesh axis")


def _weights(s: Setting, c: Columns, kind: int) -> tuple[Number, Number]:
    """One gather of a layer's weights and one reduction of its gradients over the shards."""
    dense, experts = device_params(s, c, kind)
    name = s.model.kind_prefixes[kind]
    parts = weight_parts_s(s, dense, c.links["weights"])
    routed = isinstance(s.model.layers[kind][0].mlp, MoeMlp)
    of_experts = weight_parts_s(s, experts, c.links["expert_weights"]) if routed else None
    out: list[Number] = []
    for i, operation in enumerate(("all_gather", "reduce_scatter")):
        time = rename(parts[i], f"{operation}_s")
        if of_experts is not None:
            time = time + rename(of_experts[i], f"experts_{operation}_s")
        out.append(rename(time, f"{name}layer_{operation}_s"))
    return out[0], out[1]


def weight_parts_s(s: Setting, params: Number, links: Links) -> tuple[Number, Number]:
    """Seconds in a step of one gather of so many weights, and of one scatter of their gradients."""
    gather = traffic.weight_gather_bytes(params, s.bytes.gathered)
    reduce = traffic.weight_gather_bytes(params, reduced_bytes(s))
    return (
        in_a_step(s, "all_gather", gather, links),
        in_a_step(s, "reduce_scatter", reduce, links),
    )


def in_a_step(s: Setting, kind: str, v: Number, links: Links) -> Number:
    """Seconds in a step of a collective of weights or gradients.

    TPU slices are joined by their hosts: what arrives over the network goes round the slice
    afterwards. Each level takes what steps are seen to reach of its rate. NCCL pipelines the two.
    """
    if absent(s.stack.dcn_scale) or not links.two_level:
        return in_place(collective_time(kind, v, links), s.stack.collective_scale)
    pace = links.paths[kind].outside_s_per_byte
    if s.machine.chip.family != "tpu":
        both = in_place(collective_time(kind, v, links), s.stack.collective_scale)
        return over_network(both, v, pace, s.stack.dcn_scale)
    inside = in_place(inside_time(kind, v, links), s.stack.collective_scale)
    return between_slices(rename(inside, "inside_slices_s"), v, pace, s.stack.dcn_scale)


@formula(unit="s", source="the slower of two pipelined levels, each at its speed in a step")
def over_network(both_s: Number, v: Number, s_per_byte: Number, scale: Number) -> Number:
    """Seconds of a collective over domains: max(both, v·pace/scale)."""
    return np.maximum(both_s, v * s_per_byte / scale)


@formula(unit="s", source="one level after the other, each at its speed in a step")
def between_slices(inside_s: Number, v: Number, s_per_byte: Number, scale: Number) -> Number:
    """Seconds of a collective over slices: inside + v·pace/scale."""
    return inside_s + v * s_per_byte / scale


def gradient_sum_s(s: Setting, c: Columns, dense: Number, experts: Number) -> Number:
    """Sum of gradients over what sharding leaves (dp), once a step; all-reduce.

    Args:
        dense, experts: parameters of the stage on a device before sharding.
    """
    w, we = weight_cuts(c)
    time = rename(gradient_part_s(s, dense / w, c.links["dp"]), "all_reduce_s")
    if s.model.routed:
        own = gradient_part_s(s, experts / we, c.links["expert_dp"])
        time = time + rename(own, "experts_all_reduce_s")
    return rename(time, "gradient_sum_s")


def gradient_part_s(s: Setting, params: Number, links: Links) -> Number:
    """Seconds in a step of the all-reduce of so many parameters' gradients."""
    v = traffic.gradient_reduce_bytes(params, reduced_bytes(s))
    if absent(s.stack.bucket_bytes):
        return in_a_step(s, "all_reduce", v, links)
    buckets = gradient_buckets(v, s.stack.bucket_bytes)
    return buckets * in_a_step(s, "all_reduce", v / buckets, links)


def reduced_bytes(s: Setting) -> Number:
    """Bytes that the gradient of one parameter takes in a reduction: frozen weights have none."""
    everything = s.job.trainable_fraction == 1
    return s.bytes.reduce if everything else s.bytes.reduce * s.trainable
