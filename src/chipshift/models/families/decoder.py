"""What the decoder families share: grouped-query attention, feed-forwards and assembly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from chipshift.models.fields import Fields
from chipshift.models.model import Attention, DenseMlp, Layer, Model, MoeMlp, Projection
from chipshift.models.numerics import numerics

MOST_LAYERS = 10_000
FULL, SLIDING = "full_attention", "sliding_attention"


def n_layers(c: Fields) -> int:
    """Number of blocks, under any of its spellings."""
    return c.count("num_hidden_layers", "n_layer", "num_layers", "n_layers", most=MOST_LAYERS)


def d_model(c: Fields) -> int:
    """Width of the residual stream, under any of its spellings."""
    return c.count("hidden_size", "n_embd", "n_embed", "d_model")


def head_counts(c: Fields, kv_default: int | None = None) -> tuple[int, int, int]:
    """(query heads, key/value heads, width of a head).

    Raises:
        InputError: the key/value heads do not divide the query heads, or no head width is given
            and the heads do not divide the model's width.
    """
    heads = c.count("num_attention_heads", "n_head", "n_heads", "num_heads", most=100_000)
    kv_heads = c.count(
        "num_key_value_heads", "num_kv_heads", default=kv_default or heads, most=100_000
    )
    if heads % kv_heads:
        raise c.conflict(
            f"num_attention_heads is {heads} and num_key_value_heads is {kv_heads};"
            " expected the second to divide the first"
        )
    head_dim = c.maybe("head_dim", most=1_000_000)
    if head_dim is None:
        if d_model(c) < heads:
            raise c.conflict(
                f"hidden_size is {d_model(c)} and num_attention_heads is {heads};"
                " expected at least one channel a head"
            )
        head_dim = d_model(c) // heads
    return heads, kv_heads, head_dim


def gqa(
    c: Fields,
    *,
    bias: str = "",
    norm: str = "",
    window: int | None = None,
    kv_default: int | None = None,
) -> Attention:
    """Grouped-query attention from the usual keys.

    Args:
        bias: which of the projections q, k, v, o carry a bias, as letters.
        norm: ``head``: one norm of head_dim for queries and one for keys, shared by the heads;
            ``flat``: norms over all query channels and all key channels; "" for none.
        window: keys a query sees, None for all.
    """
    heads, kv_heads, head_dim = head_counts(c, kv_default)
    widths = {
        "q": heads * head_dim,
        "k": kv_heads * head_dim,
        "v": kv_heads * head_dim,
        "o": d_model(c),
    }
    norms = {"": 0, "head": 2 * head_dim, "flat": (heads + kv_heads) * head_dim}
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=head_dim,
        window=window,
        bias_params=sum(widths[letter] for letter in bias),
        norm_params=norms[norm],
    )


def mlp(c: Fields, *keys: str, matrices: int = 3, bias: bool = False) -> DenseMlp:
    """A feed-forward whose width stands under ``keys`` (``intermediate_size`` by default)."""
    width = c.count(*(keys or ("intermediate_size",)))
    bias_params = bias * ((matrices - 1) * width + d_model(c))
    return DenseMlp(width, matrices, bias_params)


def windows(c: Fields, pattern: Sequence[bool]) -> list[int | None]:
    """The window of each layer: ``layer_types`` where given, else ``pattern`` (True = sliding).

    Raises:
        InputError: a layer slides and ``sliding_window`` is missing, or ``layer_types`` does not
            name one known kind a layer.
    """
    kinds = c.names("layer_types", (FULL, SLIDING), len(pattern))
    slides = [kind == SLIDING for kind in kinds] if kinds else list(pattern)
    if not any(slides):
        return [None] * len(slides)
    window = c.count("sliding_window", "attention_window_size")
    return [window if slide else None for slide in slides]


def runs(layers: Sequence[Layer]) -> tuple[tuple[tuple[Layer, int], ...], tuple[int, ...]]:
    """Equal blocks counted together, and the index of each block's kind, bottom to top."""
    counts = Counter(layers)  # in order of first appearance
    index = {kind: i for i, kind in enumerate(counts)}
    return tuple(counts.items()), tuple(index[layer] for layer in layers)


def stack(
    c: Fields,
    attention: Attention | Sequence[Attention],
    feed_forward: DenseMlp | MoeMlp | Sequence[DenseMlp | MoeMlp],
    *,
    norms: int = 2,
    final: int = 1,
    tied: bool = False,
    head_bias_params: int = 0,
    embedding_extra_params: int = 0,
    mtp_layers: int = 0,
) -> Model:
    """A decoder of blocks that each have attention and a feed-forward.

    Args:
        attention, feed_forward: one for all layers, or one a layer.
        norms: parameters of a block's norms in units of the model's width (a norm with a bias
            counts 2); ``final`` likewise for the last norm.
        tied: whether the family ties its LM head where the config does not say.
    """
    count = n_layers(c)
    mixers = [attention] * count if isinstance(attention, Attention) else attention
    mlps = [feed_forward] * count if isinstance(feed_forward, (DenseMlp, MoeMlp)) else feed_forward
    layers = [Layer(a, f, norms * d_model(c)) for a, f in zip(mixers, mlps, strict=True)]
    return assemble(
        c,
        layers,
        tied=c.flag("tie_word_embeddings", default=tied),
        final_norm_params=final * d_model(c),
        head_bias_params=head_bias_params,
        embedding_extra_params=embedding_extra_params,
        mtp_layers=mtp_layers,
    )


def assemble(
    c: Fields,
    layers: Sequence[Layer],
    *,
    tied: bool,
    final_norm_params: int,
    vocab: int | None = None,
    head_bias_params: int = 0,
    embedding_extra_params: int = 0,
    embedding_width: int | None = None,
    mtp_layers: int = 0,
    projections: tuple[Projection, ...] = (),
    other_params: int = 0,
) -> Model:
    """A model out of its blocks, bottom to top."""
    kinds, order = runs(layers)
    return Model(
        name="",
        architecture=c.text("model_type", default="") if c.has("model_type") else "",
        d_model=d_model(c),
        vocab=vocab if vocab is not None else c.count("vocab_size"),
        layers=kinds,
        layer_order=order,
        tied=tied,
        final_norm_params=final_norm_params,
        head_bias_params=head_bias_params,
        embedding_extra_params=embedding_extra_params,
        mtp_layers=mtp_layers,
        max_positions=c.maybe("max_position_embeddings", "n_positions", "max_seq_len"),
        embedding_width=embedding_width,
        projections=projections,
        other_params=other_params,
        numerics=numerics(c, _rotating(layers)),
    )


def _rotating(layers: Sequence[Layer]) -> int:
    """Channels of a head that rotary positions turn."""
    found = next((layer.attention for layer in layers if layer.attention is not None), None)
    return (found.qk_rope_head_dim or found.head_dim) if found is not None else 0
