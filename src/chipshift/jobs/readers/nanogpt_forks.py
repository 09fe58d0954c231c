"""Shapes that forks of nanoGPT add to its config files: grouped heads, feed-forwards, experts.

A fork's model is not in the file, so each key is taken by what its name means elsewhere (Hugging
Face's configs, Karpathy's nanochat, Mistral's reference code), which the reading says.
"""

from __future__ import annotations

from dataclasses import dataclass

from chipshift.errors import InputError
from chipshift.jobs.job import Given, Ignored
from chipshift.jobs.settings import Sheet
from chipshift.models.model import Attention, DenseMlp, MoeMlp

KV_HEADS = ("n_kv_head", "n_kv_heads", "n_head_kv", "num_kv_heads", "num_key_value_heads")
WIDTHS = (
    *("n_inner", "intermediate_size", "n_mlp", "ffn_dim", "d_ff", "mlp_dim", "mlp_hidden_dim"),
    *("ffn_hidden_size", "ffn_hidden_dim"),
)
EXPERT_WIDTHS = ("moe_ffn_hidden_size", "moe_intermediate_size", "expert_dim", "moe_hidden_dim")
SHARED_WIDTHS = ("moe_shared_expert_hidden_size", "moe_shared_expert_intermediate_size")
HEAD_DIMS = ("head_dim", "d_head", "kv_channels")
EXPERTS = ("num_experts", "n_experts", "n_expert", "n_exp", "num_local_experts", "moe_num_experts")
CHOSEN = (
    *("num_experts_per_tok", "n_experts_per_tok", "experts_per_token", "moe_top_k"),
    *("moe_router_topk", "moe_topk", "router_topk", "top_k"),
)
SWITCHES = ("use_moe", "moe", "enable_moe")
GATED = ("use_swiglu", "swiglu", "use_glu", "use_geglu")
ROTARY = ("use_rope", "rope", "use_rotary", "use_rotary_embeddings", "rotary")
TIED = ("tie_weights", "weight_tying", "tie_word_embeddings", "tie_embeddings")


@dataclass(frozen=True)
class Shape:
    """What a fork's keys say beyond nanoGPT's own.

    Attributes:
        kv_heads: heads of keys and values.
        head_dim: of a head.
        width: of the feed-forward; matrices: 3 where it is gated.
        experts, top_k: 0 experts: a plain feed-forward.
        expert_width, shared_width: of one expert, and of those that every token visits.
        learned: a table of positions is learned.
        tied: the head is the embedding's transpose.
    """

    kv_heads: int
    head_dim: int
    width: int
    matrices: int
    experts: int
    top_k: int
    expert_width: int
    shared_width: int
    learned: bool
    tied: bool

    def attention(self, d: int, heads: int, bias: bool) -> Attention:
        """Queries, keys, values and output in one layer."""
        out = (heads + 2 * self.kv_heads) * self.head_dim + d
        return Attention(
            heads, self.kv_heads, self.head_dim, self.head_dim, bias_params=out if bias else 0
        )

    def mlp(self, d: int, bias: bool) -> DenseMlp | MoeMlp:
        """One feed-forward, or as many experts of it with a router."""
        biases = ((self.matrices - 1) * self.width + d) if bias else 0
        if not self.experts:
            return DenseMlp(self.width, self.matrices, biases)
        return MoeMlp(
            self.experts, self.top_k, self.expert_width, self.matrices, self.shared_width,
            router_params=d * self.experts, expert_bias_params=biases,
        )  # fmt: skip


def fork_shape(sheet: Sheet, d: int, heads: int) -> Shape:
    """The shape by a fork's keys; nanoGPT's where there are none.

    Args:
        d: width of the model.

    Raises:
        InputError: key/value heads that do not divide the heads, or more experts a token than
            there are.
    """
    kv = _count(sheet, KV_HEADS, "key/value heads")
    head_dim = _count(sheet, HEAD_DIMS, "width of a head")
    gated = _on(sheet, GATED, "gated feed-forward")
    width = _count(sheet, WIDTHS, "width of the feed-forward")
    ratio = sheet.number("mlp_ratio", "ffn_mult", "mlp_mult", into="width of the feed-forward")
    rotary = _on(sheet, ROTARY, "rotary positions, none learned")
    tied = sheet.boolean(*TIED, into="tied head")
    switch = sheet.boolean(*SWITCHES, into="experts")
    asked = switch is None or switch.value
    experts = _count(sheet, EXPERTS, "experts") if asked else None
    if switch is not None and switch.value and experts is None:
        key = next(one for one in SWITCHES if one in sheet.settings)
        why = "experts of a number that the file does not give; --torch reads the module as it is"
        sheet.draft.ignored.append(Ignored(key, switch.file, switch.line, True, why))
    narrow = _count(sheet, EXPERT_WIDTHS, "width of an expert") if experts else None
    shared = _count(sheet, SHARED_WIDTHS, "width of the shared experts") if experts else None
    names = CHOSEN if switch is not None else CHOSEN[:-1]  # top_k alone is how sample.py draws
    chosen = _count(sheet, names, "experts a token") if experts else None
    if kv and heads % kv.value:
        raise InputError(
            f"{kv.file}:{kv.line}: {kv.value} key/value heads do not divide n_head {heads}; "
            "expected a divisor"
        )
    if experts and chosen and chosen.value > experts.value:
        raise InputError(
            f"{chosen.file}:{chosen.line}: {chosen.value} experts a token of {experts.value}; "
            "expected at most as many"
        )
    if experts and experts.value > 1:
        why = "experts in every layer, none dropped: a fork's own choice is not in its config"
        sheet.draft.note("experts", experts.value, why)
        if chosen is None:
            sheet.draft.note("experts a token", min(2, experts.value), "the usual number")
    read = any((kv, head_dim, gated, width, ratio, rotary, tied, experts))
    if read:
        why = "keys of a fork's own, by what their names mean elsewhere; --torch reads the module"
        sheet.draft.note("model's shape", "with the fork's keys", why)
    many = experts.value if experts and experts.value > 1 else 0
    whole = width.value if width else int((ratio.value if ratio else 4) * d)
    return Shape(
        kv_heads=kv.value if kv else heads,
        head_dim=head_dim.value if head_dim else d // heads,
        width=whole,
        matrices=3 if gated else 2,
        experts=many,
        top_k=chosen.value if chosen else min(2, many),
        expert_width=narrow.value if narrow else whole,
        shared_width=shared.value if shared else 0,
        learned=not rotary,
        tied=tied is None or tied.value,
    )


def _count(sheet: Sheet, keys: tuple[str, ...], into: str) -> Given[int] | None:
    return sheet.integer(*keys, into=into, high=10**7, none=(None, 0))


def _on(sheet: Sheet, keys: tuple[str, ...], into: str) -> bool:
    found = sheet.boolean(*keys, into=into)
    return found is not None and found.value
