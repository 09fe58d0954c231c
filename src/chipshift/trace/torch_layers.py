"""A block's matmuls and attention, as they were met, turned into a layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chipshift.errors import InputError
from chipshift.models.count import layer_params
from chipshift.models.model import Attention, DenseMlp, Layer, MoeMlp, Projection
from chipshift.trace.torch_experts import Experts
from chipshift.trace.torch_watch import Attended, Convolved, Map, Seen


def layer_of(where: str, block: Any, seen: Seen, number: int) -> Layer:
    """A block's maps as attention, feed-forward or experts and others, and what they leave.

    Raises:
        InputError: the block is not one of attention and a feed-forward.
    """
    events, width = seen.events[number], seen.width
    maps = [e for e in events if isinstance(e, Map)]
    attended = [e for e in events if isinstance(e, Attended)]
    routed = [e for e in events if isinstance(e, Experts)]
    if any(isinstance(e, Convolved) for e in events):
        raise InputError(f"{where} convolves; expected matmuls and one attention")
    if len(attended) > 1 or len(routed) > 1:
        raise InputError(
            f"{where} attends {len(attended)} times and routes {len(routed)} times; expected one"
        )
    if any(e.rows not in (seen.rows, seen.batch) for e in maps):
        raise InputError(f"{where} has maps along another axis than the width")
    attention = None
    if attended:
        at = events.index(attended[0])
        before = [e for e in events[:at] if isinstance(e, Map)]
        after = [e for e in events[at:] if isinstance(e, Map)]
        attention, used = _attention(where, attended[0], before, after, width)
        maps = _without(maps, used)
    mlp: DenseMlp | MoeMlp | None
    if routed:
        mlp, maps = _experts(where, routed[0], maps, width)
    else:
        mlp, maps = _feed_forward(maps, width)
    projections = tuple(
        Projection(f"map {n}", e.inputs, e.outputs, once=e.rows == seen.batch != seen.rows)
        for n, e in enumerate(maps)
    )
    bare = Layer(attention, mlp, norm_params(block), projections=projections)
    rest = size_of(block) - layer_params(bare, width).total
    if rest < 0:
        raise InputError(
            f"{where}: its matmuls use {-rest:,} parameters more than it has, so that a map runs "
            "more than once"
        )
    return replace(bare, other_params=rest)


def _without(maps: list[Map], used: list[Map]) -> list[Map]:
    return [e for e in maps if not any(e is one for one in used)]


def _attention(
    where: str, seen: Attended, before: list[Map], after: list[Map], width: int
) -> tuple[Attention, list[Map]]:
    """Attention with its maps: those before that make queries, keys and values, the one after."""
    h, v, heads = seen.head_dim, seen.v_head_dim, seen.heads
    back = [e for e in after if (e.inputs, e.outputs) == (heads * v, width)][:1]
    spans = [before[i:j] for i in range(len(before)) for j in range(i + 1, len(before) + 1)]
    spans = [s for s in spans if all(e.inputs == width for e in s)]
    for kv_heads in (k for k in range(seen.kv_heads, 0, -1) if heads % k == 0):
        wanted = heads * h + kv_heads * (h + v)
        span = next((s for s in spans if sum(e.outputs for e in s) == wanted), None)
        if span is not None and back:
            return Attention(heads, kv_heads, h, v, causal=seen.causal), span + back
    latent = _latent(seen, before, width) if back else None
    if latent is not None:
        attention, used = latent
        return attention, used + back
    raise InputError(
        f"{where}: the maps around its attention of {heads} heads of {h} are no query, key, value "
        "and output projections, plain or latent; expected those"
    )


def _latent(seen: Attended, before: list[Map], width: int) -> tuple[Attention, list[Map]] | None:
    """Multi-head latent attention: keys and values come through one narrow map.

    Down to r + rope channels, then up from r to a key part without positions and a value for each
    head; queries come straight or through a latent of their own.
    """
    h, heads, v = seen.head_dim, seen.heads, seen.v_head_dim
    for down in (e for e in reversed(before) if e.inputs == width):
        for up in (e for e in before if e.inputs < down.outputs and e is not down):
            rope = down.outputs - up.inputs
            # values may be padded to the keys' width before they are attended
            own = up.outputs // heads - (h - rope)
            if up.outputs % heads or not 0 < rope < h or not 0 < own <= v:
                continue
            straight = next(
                (e for e in before if (e.inputs, e.outputs) == (width, heads * h)), None
            )
            if straight is not None:
                used, rank = [straight, down, up], None
            else:
                wide = next((e for e in before if e.outputs == heads * h and e is not up), None)
                if wide is None:
                    continue
                narrow = next(
                    (
                        e
                        for e in before
                        if (e.inputs, e.outputs) == (width, wide.inputs) and e is not down
                    ),
                    None,
                )
                if narrow is None:
                    continue
                used, rank = [narrow, wide, down, up], wide.inputs
            made = Attention(
                heads,
                heads,
                h,
                own,
                causal=seen.causal,
                q_lora_rank=rank,
                kv_lora_rank=up.inputs,
                qk_rope_head_dim=rope,
            )
            return made, used
    return None


def _feed_forward(maps: list[Map], width: int) -> tuple[DenseMlp | None, list[Map]]:
    """The feed-forward among a block's maps, and the maps that remain."""
    down = next((e for e in reversed(maps) if e.outputs == width), None)
    if down is None:
        return None, maps
    f = down.inputs
    up = [e for e in maps if e.inputs == width and e.outputs == f and e is not down]
    fused = [e for e in maps if e.inputs == width and e.outputs == 2 * f]
    chosen = fused[:1] if fused else up[:2]
    if not chosen:
        return None, maps
    used = [*chosen, down]
    matrices = 3 if fused or len(up) >= 2 else 2
    return DenseMlp(f, matrices), _without(maps, used)


def _experts(where: str, routed: Experts, maps: list[Map], width: int) -> tuple[MoeMlp, list[Map]]:
    """Routed experts with their router, and the experts that every token visits beside them."""
    widths = routed.widths(width)
    if widths is None or not routed.top_k:
        lacks = "how many experts a token visits" if widths is not None else "their inner width"
        raise InputError(f"{where}: of its {routed.count} experts {lacks} cannot be told")
    outer, inner, matrices = widths
    router = next((e for e in maps if (e.inputs, e.outputs) == (width, routed.count)), None)
    maps = _without(maps, [router] if router is not None else [])
    shared, rest = _feed_forward(maps, width)
    if shared is not None and shared.matrices != matrices:
        shared, rest = None, maps
    gate = next((e for e in rest if (e.inputs, e.outputs) == (width, 1)), None)
    gate = gate if shared is not None else None
    moe = MoeMlp(
        experts=routed.count,
        top_k=routed.top_k,
        width=inner,
        matrices=matrices,
        shared_width=shared.width if shared is not None else 0,
        router_params=routed.count * width,
        shared_gate_params=width if gate is not None else 0,
        expert_bias_params=routed.params - matrices * outer * inner,
        latent_width=None if outer == width else outer,
    )
    return moe, _without(rest, [gate] if gate is not None else [])


def size_of(module: Any) -> int:
    """Parameters of a module, shared ones once."""
    return sum(p.numel() for p in module.parameters())


def norm_params(module: Any) -> int:
    """Parameters of the norms in a module, told by their class's name."""
    return sum(
        p.numel()
        for m in module.modules()
        if "norm" in type(m).__name__.lower()
        for p in m.parameters(recurse=False)
    )
