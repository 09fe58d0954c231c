"""Collectives that the sharding arithmetic expects of the built-in step: bytes a device sends.

The arithmetic of facts anyone can redo: each weight is gathered over fsdp twice a microbatch (for
the forward and for the backward pass) and its gradient reduced and scattered once; tensor
parallelism gathers activations before and scatters them after each half of a layer; and so on.
What a compiled program sends beyond this was put in by the compiler.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from chipshift.compiled.attention_matrices import into_heads, into_latents, out_of_heads
from chipshift.compiled.stages import Over, Sums, gathered, over, scattered, summed, vector_summed
from chipshift.compiled.step.config import Block, Config, table_rows
from chipshift.compiled.step.remat_names import choice
from chipshift.fabric.lowering import Laid, Slice, in_whole_tiles, rows_padded

WIDTH = {"float32": 4, "bfloat16": 2, "float16": 2}


def expected(cfg: Config, on: Slice | None = None) -> Sums:
    """(kind, axis) -> bytes one device sends in a step; axes of size 1 left out.

    ``on``: a slice whose compiler's own ways (lowering.py) are followed: what it sends, instead of
    what the sharding asks for.
    """
    sums: Sums = defaultdict(float)
    for unit, repeats in cfg.segments:
        for block in unit:
            for key, sent in _layer(cfg, block, on).items():
                sums[key] += sent * repeats * cfg.accumulation
    for key, sent in _outside(cfg, on).items():
        sums[key] += sent * cfg.accumulation
    return {key: sent for key, sent in sums.items() if sent > 0 and key[1]}


def weight_axes(cfg: Config, expert: bool) -> tuple[str, ...]:
    """As sharding.weight_axes, without jax."""
    _, fsdp, ep, _, _ = cfg.mesh
    if fsdp * (ep if cfg.ep_from == "fsdp" else 1) == 1:
        return ()
    return ("fsdp", "cp") if expert or cfg.ep_from != "fsdp" else ("fsdp", "ep", "cp")


def _weights(
    cfg: Config,
    elements: float,
    gathers: int,
    on: Slice | None,
    *,
    expert: bool = False,
    in_matmul: bool = True,
    apart: bool = False,
    laid: Laid | None = None,
    used: float = 1.0,
    outside: bool = False,
    heads: float = 0.0,
) -> Sums:
    """A weight of ``elements`` a device (after tp and ep): its gathers, and its gradient's sum.

    ``in_matmul``: the gradient is scattered where the partitioner sees the matmul that makes it.
    ``apart``: tp devices multiply different tokens with the same weight, so that they sum it too.
    ``laid``: what of the layout decides how it is scattered.
    ``used``: share of it that a device uses and has a gradient of.
    ``outside``: it is used once a microbatch, outside the loop over layers.
    ``heads``: of an array of these, which it has as rows.
    """
    sums: Sums = defaultdict(float)
    where = over(cfg, weight_axes(cfg, expert))
    held = elements * WIDTH[cfg.compute_dtype]
    reduced = elements * used * WIDTH[cfg.reduce_dtype]
    n, k = where.devices, over(cfg, _replicas(cfg, expert, apart)).devices
    if n > 1:
        at_once = outside and _gathered_at_once(cfg, on)
        if at_once:
            _add(sums, gathered(over(cfg, ("dp", *where.axis.split("+"))), held, on))
        for key, sent in gathered(where, held, on, rows_padded(heads)).items():
            sums[key] += (gathers - at_once) * sent
        if on is not None and in_matmul and not apart:  # else written out, each move by itself
            moved = _in_one_move(cfg, where, k, reduced, on, laid)
            if moved:
                _add(sums, moved)
                if cfg.zero and not at_once:
                    _add(sums, _gathered_once(cfg, over(cfg, ("dp",)), elements / n, on))
                return sums
        meanwhile = (on is not None and in_matmul and on.multiplies_meanwhile(n, k)) and not (
            outside and on.pads_no_head(n, cfg.d_model)
        )
        by_sum = on is not None and (
            on.scatters_by_sum(n, in_matmul and k == 1)
            or (laid is not None and on.parts_are_ragged(n, laid.heads))
            or (laid is not None and not meanwhile and on.scatters_layout_by_sum(n, laid))
        )
        if on is not None and where.in_stages:
            _add(sums, summed(where, reduced, on, laid))
        else:
            _add(sums, scattered(where, reduced, by_sum))
    more = _replicated(
        cfg, elements, on, expert=expert, apart=apart, laid=laid, used=used, outside=outside
    )
    _add(sums, more)
    return sums


def _in_one_move(
    cfg: Config, where: Over, summed_over: int, reduced: float, on: Slice, laid: Laid | None
) -> Sums:
    """A gradient that is scattered over fsdp and, in the same move, summed over ``summed_over``
    replicas or scattered to their parts of the optimizer; empty where it is not."""
    n, k = where.devices, summed_over
    if not cfg.zero:
        both = over(cfg, ("dp", "fsdp", "ep", "cp"))
        return summed(both, reduced) if both.slices == 1 and on.sums_once(n, k) else {}
    both = over(cfg, ("dp", *where.axis.split("+")))
    if k == 1 or both.slices > 1 or not on.scatters_at_once():
        return {}
    by_sum = laid is not None and (
        on.parts_are_ragged(both.devices, laid.heads)
        or (
            not on.multiplies_meanwhile(both.devices, 1)
            and on.scatters_layout_by_sum(both.devices, laid)
        )
    )
    return scattered(both, reduced, by_sum)


def _once_a_step(cfg: Config) -> float:
    """A microbatch's share of a sum over replicas that XLA takes out of the loop over microbatches:
    of a weight outside the layers, whose gradients are added up before, in ``gradient_dtype``. Not
    where one table is embedding and head: its two gradients meet before they are added up."""
    if cfg.accumulation == 1 or cfg.tied:
        return 1.0
    return WIDTH[cfg.gradient_dtype] / WIDTH[cfg.reduce_dtype] / cfg.accumulation


def _replicas(cfg: Config, expert: bool, apart: bool) -> tuple[str, ...]:
    """Axes whose devices hold the same part of a weight and see other tokens."""
    others = (*weight_axes(cfg, expert), *(("ep",) if expert else ()))
    tokens_on = ("dp", "fsdp", "ep", "cp", *(("tp",) if apart else ()))
    return tuple(axis for axis in tokens_on if axis not in others)


def _replicated(
    cfg: Config,
    elements: float,
    on: Slice | None,
    *,
    expert: bool = False,
    apart: bool = False,
    laid: Laid | None = None,
    used: float = 1.0,
    outside: bool = False,
    looked_up: bool = False,
) -> Sums:
    """What is done over the devices that hold the same part of a weight: its gradient summed, or
    with a sharded optimizer scattered, and the weight gathered once a step. ``looked_up``: the
    gradient is of a table's rows."""
    n = over(cfg, weight_axes(cfg, expert)).devices
    over_tp = apart and not cfg.zero  # a sharded optimizer's parts are not cut over tp
    where = over(cfg, _replicas(cfg, expert, over_tp))
    k, part = where.devices, elements / n
    sums: Sums = defaultdict(float)
    if apart and cfg.zero:
        _add(sums, _summed(cfg, ("tp",), part / k * WIDTH[cfg.reduce_dtype]))
    if k == 1:
        return sums
    reduced = part * used * WIDTH[cfg.reduce_dtype]
    laid = Laid() if laid is None else replace(laid, along=laid.along / n, heads=laid.heads / n)
    if looked_up and not (cfg.zero and not in_whole_tiles(laid.along)):
        laid = replace(laid, across=0.0)  # it lies by the model's width, not by its rows
    if not cfg.zero:
        _add(sums, summed(where, reduced * (_once_a_step(cfg) if outside else 1.0), on, laid))
        return sums
    if looked_up or not (outside and _gathered_at_once(cfg, on)):
        _add(sums, _gathered_once(cfg, where, part, on))
    if used < 1 or (on is not None and where.in_stages):  # a part is summed before it is put back
        _add(sums, summed(where, reduced, on, laid, cut=True))
        return sums
    # dp's parts are cut last, out of those over the other axes, which in the mesh come after it.
    out_of_order = where.axis.startswith("dp+")
    # a gradient that only this scatters is part of its running matmul where fsdp's is with dp's
    alone = n == 1 and not (expert or looked_up or apart)
    meanwhile = alone and on is not None and on.scatters_at_once() and on.multiplies_meanwhile(k, 1)
    by_sum = (on is not None and where.slices == 1) and (
        (out_of_order and on.scatters_in_mesh_order(looked_up))
        or on.scatters_by_sum(k, in_matmul=False)
        or (on.scatters_layout_by_sum(k, laid) and not meanwhile)
        or (n > 1 and on.cuts_tiles(k, laid.along))
    )
    _add(sums, scattered(where, reduced, by_sum))
    return sums


def _gathered_at_once(cfg: Config, on: Slice | None) -> bool:
    """Whether the head is gathered over dp and fsdp in one move."""
    once = cfg.zero and cfg.accumulation == 1 and not cfg.tied and cfg.slices == 1
    sharded = over(cfg, weight_axes(cfg, expert=False)).devices > 1
    return once and sharded and cfg.mesh[0] > 1 and on is not None and on.gathers_at_once()


def _gathered_once(cfg: Config, where: Over, part: float, on: Slice | None) -> Sums:
    """A microbatch's share of the gather with which a step of a sharded optimizer begins."""
    sent = gathered(where, part * WIDTH[cfg.compute_dtype], on)
    return {key: each / cfg.accumulation for key, each in sent.items()}


def _layer(cfg: Config, block: Block, on: Slice | None) -> Sums:
    sums: Sums = defaultdict(float)
    tp, ep = cfg.mesh[4], cfg.mesh[2]
    matrices = 3 if block.gated else 2
    _add(sums, _attention(cfg, block, on))
    for width in [width / tp for width in (block.mlp_width, block.shared_width) if width]:
        up = Laid(across=width, cut=cfg.d_model, rows=cfg.d_model)
        down = replace(up, along=cfg.d_model)
        for laid in (*[up] * (matrices - 1), down):
            _add(sums, _weights(cfg, cfg.d_model * width, 2, on, laid=laid))
    if block.experts:
        one = cfg.d_model * block.expert_width * block.experts / (tp * ep)
        alone = block.experts == ep
        down = Laid(along=cfg.d_model, behind_one="expert" if alone else "")
        by_width = alone or not in_whole_tiles(block.expert_width / tp)
        for of in (*[Laid(along=cfg.d_model) if by_width else None] * (matrices - 1), down):
            _add(sums, _weights(cfg, one, 2, on, expert=True, in_matmul=False, laid=of))
    _add(sums, _whole_weights(cfg, block, on))
    _add(sums, _tensor_parallel(cfg, block, on))
    _add(sums, _context_parallel(cfg, block))
    _add(sums, _expert_parallel(cfg, block))
    return sums


def _attention(cfg: Config, block: Block, on: Slice | None) -> Sums:
    """The weights of attention."""
    sums: Sums = defaultdict(float)
    apart = cfg.mesh[4] > 1 and cfg.sequence_parallel
    for one in into_latents(cfg, block):
        more = _weights(cfg, one.elements, 2, on, in_matmul=not apart, apart=apart, laid=one.laid)
        _add(sums, more)
    n = over(cfg, weight_axes(cfg, expert=False)).devices
    for one in (*into_heads(cfg, block), out_of_heads(cfg, block)):
        more = _weights(cfg, one.elements, 2, on, used=one.used, laid=one.laid, heads=one.heads)
        _add(sums, more)
        if one.used < 1:
            _add(sums, _summed(cfg, ("tp",), one.elements / n * WIDTH[cfg.reduce_dtype]))
    return sums


def _whole_weights(cfg: Config, block: Block, on: Slice | None) -> Sums:
    """Weights that every device has whole (norms, the router): fp32 gradients summed over all that
    hold other tokens, over tp too where it cuts the sequence; biases likewise, in compute dtype."""
    norms = (4 if cfg.variant.post_norms else 2) * cfg.d_model
    router = cfg.d_model * block.experts
    tokens_on = ("dp", "fsdp", "ep", "cp", *(("tp",) if cfg.sequence_parallel else ()))
    sums: Sums = defaultdict(float)
    _add(sums, summed(over(cfg, tokens_on), router * WIDTH["float32"], on))
    _add(sums, _summed(cfg, tokens_on, norms * WIDTH["float32"], vector=True))
    if block.qk_norm:
        on_heads = ("dp", "fsdp", "ep", "cp", "tp")
        _add(sums, _summed(cfg, on_heads, 2 * block.head_dim * WIDTH["float32"], vector=True))
    if block.qkv_bias:
        width = block.heads * block.head_dim + block.kv_heads * (block.head_dim + block.v_head_dim)
        held = width / cfg.mesh[4] * WIDTH[cfg.compute_dtype]
        _add(sums, _summed(cfg, ("dp", "fsdp", "ep", "cp"), held, vector=True))
    return sums


def _summed(cfg: Config, axes: tuple[str, ...], held: float, *, vector: bool = False) -> Sums:
    """An all-reduce of ``held`` bytes over ``axes``."""
    return (vector_summed if vector else summed)(over(cfg, axes), held)


def _tokens(cfg: Config) -> float:
    """Tokens of one device's part of the batch and the sequence, before tp."""
    dp, fsdp, ep, cp, _ = cfg.mesh
    return cfg.batch * cfg.seq_len / (dp * fsdp * ep * cp)


def _scattered_activations(cfg: Config, sent: float, on: Slice | None, lookup: bool) -> Sums:
    """Activations of ``sent`` bytes scattered along the sequence over tp."""
    dp, fsdp, ep, _, _ = cfg.mesh
    alone = cfg.batch == dp * fsdp * ep  # one sequence a device
    by_sum = on is not None and on.scatters_behind_one("lookup" if lookup else "sequence")
    return (
        {("all_reduce", "tp"): 2 * sent} if alone and by_sum else {("reduce_scatter", "tp"): sent}
    )


def _tensor_parallel(cfg: Config, block: Block, on: Slice | None) -> Sums:
    """Activations gathered and scattered around attention and feed-forward."""
    tp = cfg.mesh[4]
    whole = _tokens(cfg) * cfg.d_model * WIDTH[cfg.compute_dtype] * (tp - 1) / tp
    saved = {name for names in choice(cfg.remat) for name in names}
    # What is gathered is never kept, so that the weights' gradients gather it again, whatever is.
    # The first half's sum is wanted again for the second half's input; the last half's is not.
    gathers, scatters = 6.0, 4.0 + (0 if "out_proj" in saved else 1)
    if cfg.variant.post_norms:  # both halves' sums are wanted again by their norms, kept or not
        scatters = 6.0
    if block.experts and block.shared_width:
        # Its input is the routed experts', with a gradient of its own. Its sum is added to theirs
        # before both are scattered, but where a gate multiplies it, who wants it again. The
        # gradient of both sums is one array, gathered once, but where a gate multiplies it or where
        # cp has the partitioner write its gather in another form than the experts' own.
        twice = block.shared_gate or cfg.mesh[3] > 1
        gathers += 1 if twice else 0
        scatters += 3 if block.shared_gate else 1
    elif block.experts and "mlp_norm" in saved:  # what the experts take is kept as they take it
        gathers -= 1
    more = _latents(cfg, block)
    gathers, scatters = gathers + more[0], scatters + more[1]
    # The router's logits in fp32: forward and recomputed, their gradient once.
    logits = _tokens(cfg) * block.experts * WIDTH["float32"] * (tp - 1) / tp
    if cfg.sequence_parallel:
        sent = whole * scatters + logits
        scattered = _scattered_activations(cfg, sent, on, lookup=False)
        return {("all_gather", "tp"): whole * gathers + 2 * logits, **scattered}
    return {("all_reduce", "tp"): 2 * whole * scatters}


def _latents(cfg: Config, block: Block) -> tuple[float, float]:
    """Gathers and scatters over tp that latent attention has more than another, in units of the
    hidden state: what its down projections make of each device's part of the sequence is gathered,
    there and recomputed, and its gradient scattered; queries' latent in place of the hidden
    state."""
    if block.kv_rank is None:
        return 0.0, 0.0
    latents = (block.kv_rank + block.rope_dim + (block.q_rank or 0)) / cfg.d_model
    instead = 1 if block.q_rank else 0
    return 2 * latents - 2 * instead, latents - instead


def _context_parallel(cfg: Config, block: Block) -> Sums:
    """Keys and values of the whole sequence: gathered, their gradients scattered."""
    cp, tp = cfg.mesh[3], cfg.mesh[4]
    heads = max(block.kv_heads / tp, 1)
    width = heads * (block.head_dim + block.v_head_dim) * WIDTH[cfg.compute_dtype]
    sent = _tokens(cfg) * cp * width * (cp - 1) / cp
    return {("all_gather", "cp"): 2 * sent, ("reduce_scatter", "cp"): sent}


def _expert_parallel(cfg: Config, block: Block) -> Sums:
    """Two all-to-alls forward, two backward, and those run again whose result is not kept: the
    experts' input is where ``mlp_norm`` is kept, their output never is."""
    if not block.experts:
        return {}
    ep = cfg.mesh[2]
    slots = _tokens(cfg) * block.top_k * cfg.capacity
    sent = slots * cfg.d_model * WIDTH[cfg.compute_dtype] * (ep - 1) / ep
    again = 1 if "mlp_norm" in {name for names in choice(cfg.remat) for name in names} else 2
    return {("all_to_all", "ep"): (4 + again) * sent}


def _outside(cfg: Config, on: Slice | None) -> Sums:
    """Embedding and LM head of one microbatch."""
    sums: Sums = defaultdict(float)
    tp = cfg.mesh[4]
    vocab = table_rows(cfg) / tp
    table, in_matmul = vocab * cfg.d_model, cfg.loss_chunks == 1
    laid = Laid(across=vocab, cut=cfg.d_model, along=cfg.d_model if cfg.tied else 0)
    _add(sums, _weights(cfg, table, 1, on, in_matmul=in_matmul, laid=laid, outside=True))
    # The lookup's own gradient is in parts already, so that dp alone sums it, in compute dtype.
    narrow = replace(cfg, reduce_dtype=cfg.compute_dtype)
    rows = Laid(across=vocab, along=cfg.d_model)
    if not (cfg.zero and cfg.tied):  # one table where tied
        _add(sums, _replicated(narrow, table, on, laid=rows, outside=True, looked_up=True))
    tokens_on = ("dp", "fsdp", "ep", "cp", *(("tp",) if cfg.sequence_parallel else ()))
    last_norm = cfg.d_model * WIDTH["float32"]
    _add(sums, _summed(cfg, tokens_on, last_norm, vector=True))
    row = cfg.d_model * WIDTH[cfg.compute_dtype]
    for axes in (("fsdp", "ep"), ("cp",)):  # rows exchanged for parts of rows, there and back
        where = over(cfg, tuple(a for a in weight_axes(cfg, False) if a in axes))
        n = where.devices
        if n > 1:
            sums["all_to_all", where.axis] += 2 * _tokens(cfg) * row * (n - 1) / n
    if tp > 1:
        whole = _tokens(cfg) * row * (tp - 1) / tp
        if cfg.sequence_parallel:  # in and out of the layers, forward and backward
            sums["all_gather", "tp"] += 2 * whole
            for lookup in (True, False):
                _add(sums, _scattered_activations(cfg, whole, on, lookup))
        else:
            sums["all_reduce", "tp"] += 4 * whole
    return sums


def _add(sums: Sums, more: Sums) -> None:
    for key, sent in more.items():
        sums[key] += sent
