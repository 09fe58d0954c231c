"""What a config says of a decoder's values that changes no shape and no cost: rotary frequencies,
norms' epsilon, scales, caps, how experts are chosen. Only the compiled step reads it.

Keys and defaults as transformers 5.24 has them, rotary scalings as its ``modeling_rope_utils.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chipshift.models.fields import Fields
from chipshift.models.rope import UNSCALED, Rope

PLAIN = ("", "default", "mrope", "dynamic")
"""Kinds of rotary scaling that are none; ``dynamic`` begins beyond the trained length only."""

THETAS = {"mixtral": 1e6, "gemma3_text": 1e6, "qwen2_5_vl": 1e6, "llama4_text": 5e5}
EPSILONS = {"mixtral": 1e-5, "llama4_text": 1e-5}
"""Defaults of families whose own they are; of others 10,000 and 1e-6."""

GEMMA_SCALAR = 256.0
"""Gemma 2's and 3's ``query_pre_attn_scalar`` where the config has none."""

_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
}  # fmt: skip


@dataclass(frozen=True)
class Numerics:
    """Values of a decoder; None where the family's own hold.

    Attributes:
        rope, local_rope: of layers that see all keys, and of those with a window.
        query_scale: scores are multiplied by this.
        router: ``scoring_func`` of the routed experts.
        assumed: keys that the config lacks, for which transformers' defaults stand.
    """

    norm_eps: float = 1e-6
    rope: Rope = UNSCALED
    local_rope: Rope = UNSCALED
    activation: str | None = None
    query_scale: float | None = None
    attention_cap: float | None = None
    logit_cap: float | None = None
    router: str | None = None
    renormalise: bool | None = None
    router_scale: float | None = None
    expert_groups: int | None = None
    top_groups: int | None = None
    assumed: tuple[str, ...] = ()


def numerics(c: Fields, width: int) -> Numerics:
    """What a decoder's config says of its values.

    Args:
        width: channels of a head that rotate.
    """
    kind = c.text("model_type", default="") if c.has("model_type") else ""
    assumed: list[str] = []
    rope, local = _ropes(c, kind, width, assumed)
    eps = _number(
        c,
        "rms_norm_eps",
        "layer_norm_eps",
        "layer_norm_epsilon",
        "norm_epsilon",
        "layernorm_epsilon",
    )
    if eps is None:
        assumed.append("rms_norm_eps")
    gemma = kind.startswith("gemma")
    scalar = _number(c, "query_pre_attn_scalar")
    if scalar is None and kind in ("gemma2", "gemma3_text"):
        scalar = GEMMA_SCALAR
        assumed.append("query_pre_attn_scalar")
    groups = _groups(c, kind, assumed)
    act = _word(c, "hidden_activation") or (None if gemma else _word(c, "hidden_act"))
    return Numerics(
        norm_eps=eps if eps is not None else EPSILONS.get(kind, 1e-6),
        rope=rope,
        local_rope=local,
        activation=_ACTIVATIONS.get(act, act) if act else None,
        query_scale=scalar**-0.5 if scalar else _latent_scale(c),
        attention_cap=_number(c, "attn_logit_softcapping"),
        logit_cap=_number(c, "final_logit_softcapping"),
        router=_word(c, "scoring_func"),
        renormalise=_flag(c, "norm_topk_prob"),
        router_scale=_number(c, "routed_scaling_factor"),
        expert_groups=groups[0],
        top_groups=groups[1],
        assumed=tuple(assumed),
    )


def _groups(c: Fields, kind: str, assumed: list[str]) -> tuple[int | None, int | None]:
    """Groups that experts are chosen by, and how many are open to a token; DeepSeek-V2's ``greedy``
    ignores them."""
    if _word(c, "topk_method") == "greedy":
        return None, None
    groups, top = _whole(c, "n_group"), _whole(c, "topk_group")
    if kind != "deepseek_v3" or (groups and top):
        return groups, top
    assumed.append("n_group")
    return groups or 8, top or 4


def _ropes(c: Fields, kind: str, width: int, assumed: list[str]) -> tuple[Rope, Rope]:
    """Of layers that see everything, and of those with a window: transformers 5 has both under
    ``rope_parameters``, older configs a base and a scaling, Gemma 3's with a local base beside."""
    given = _table(c, "rope_parameters") or {}
    full, near = given.get("full_attention"), given.get("sliding_attention")
    if isinstance(full, Mapping) and isinstance(near, Mapping):
        return _rope(c, full, width, _theta(full, 1e6)), _rope(c, near, width, _theta(near, 1e4))
    scaling = given or _table(c, "rope_scaling") or {}
    theta = _number(c, "rope_theta", "rotary_emb_base")
    if theta is None and "rope_theta" not in given:
        assumed.append("rope_theta")
    theta = theta if theta is not None else _theta(given, THETAS.get(kind, 1e4))
    rope = _rope(c, scaling, width, theta)
    local = _number(c, "rope_local_base_freq")
    if local is None and kind != "gemma3_text":
        return rope, rope
    return rope, Rope(local if local is not None else 1e4)


def _rope(c: Fields, table: Mapping[str, Any], width: int, theta: float) -> Rope:
    kind = str(table.get("rope_type") or table.get("type") or "")
    if kind in PLAIN:
        return Rope(theta)
    positions = _whole(c, "max_position_embeddings") or 1
    length = int(_of(table, "original_max_position_embeddings", positions))
    factor = _of(table, "factor", max(positions / length, 1.0))
    if kind == "linear":
        return Rope(theta, kind, factor)
    if kind == "llama3":
        turns = (_of(table, "low_freq_factor", 1.0), _of(table, "high_freq_factor", 4.0))
        return Rope(theta, kind, factor, *turns, length)
    if kind != "yarn":
        return Rope(theta, kind)

    def pair(turns: float) -> float:
        """The pair that makes so many turns over the trained length."""
        base = math.log(max(theta, 2.0))
        return width * math.log(length / (turns * 2 * math.pi)) / (2 * base)

    low, high = pair(_of(table, "beta_fast", 32.0)), pair(_of(table, "beta_slow", 1.0))
    if table.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0.0), min(high, width - 1.0)
    high = high if high != low else high + 0.001
    gain = _of(table, "attention_factor", _yarn_gain(table, factor))
    return Rope(theta, kind, factor, float(low), float(high), length, gain)


def _yarn_gain(table: Mapping[str, Any], factor: float) -> float:
    each, all_of = _of(table, "mscale", 0.0), _of(table, "mscale_all_dim", 0.0)
    return mscale(factor, each) / mscale(factor, all_of) if each and all_of else mscale(factor)


def mscale(factor: float, share: float = 1.0) -> float:
    """YaRN's growth of the scores with the context: 0.1 x share x ln(factor) + 1."""
    return 0.1 * share * math.log(factor) + 1.0 if factor > 1 else 1.0


def _latent_scale(c: Fields) -> float | None:
    """DeepSeek's: (1 / sqrt of a head's width) times YaRN's growth squared, where it has one."""
    table = _table(c, "rope_parameters") or _table(c, "rope_scaling") or {}
    share = _of(table, "mscale_all_dim", 0.0)
    nope, rope = _whole(c, "qk_nope_head_dim"), _whole(c, "qk_rope_head_dim")
    if not share or nope is None or rope is None:
        return None
    return float((nope + rope) ** -0.5 * mscale(_of(table, "factor", 1.0), share) ** 2)


def _theta(table: Mapping[str, Any], otherwise: float) -> float:
    return _of(table, "rope_theta", otherwise)


def _of(table: Mapping[str, Any], key: str, otherwise: float) -> float:
    """A positive number of a table, or what stands where it has none that can be used."""
    value = table.get(key)
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e12
    return float(value) if usable and value is not None else otherwise


def _number(c: Fields, *keys: str) -> float | None:
    return c.number(*keys) if c.has(*keys) else None


def _whole(c: Fields, key: str) -> int | None:
    return c.maybe(key) if c.has(key) else None


def _flag(c: Fields, key: str) -> bool | None:
    return c.flag(key, default=False) if c.has(key) else None


def _word(c: Fields, key: str) -> str | None:
    value = c.values.get(key)
    return value if isinstance(value, str) else None


def _table(c: Fields, key: str) -> Mapping[str, Any] | None:
    value = c.values.get(key)
    return value if isinstance(value, Mapping) else None
