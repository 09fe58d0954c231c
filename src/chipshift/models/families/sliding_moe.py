"""Mixtures whose sliding layers have heads of their own number: MiMo-V2, Step-3.5 and 3.7.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.blocks import attention, feed_forward, heads_of, linear
from chipshift.models.families.decoder import (
    FULL,
    SLIDING,
    d_model,
    gqa,
    n_layers,
    runs,
    stack,
)
from chipshift.models.families.joining import alone
from chipshift.models.families.llama import attention_bias, qwen2
from chipshift.models.families.moe import mixed, routed
from chipshift.models.families.vision import patches, stem
from chipshift.models.fields import Fields
from chipshift.models.model import Attention, Conv, Layer, Model, Tower


def mimo(c: Fields) -> Model:
    """MiMo-7B: Qwen2's block, with blocks that predict further tokens."""
    mtp = c.count("num_nextn_predict_layers", default=0, least=0)
    return replace(qwen2(c), mtp_layers=mtp)


def mimo_v2(c: Fields) -> Model:
    """MiMo-V2-Flash: values narrower than keys; sliding layers have more key heads, and sinks."""
    c = c.having(
        vocab_size=152_576,
        hidden_size=4096,
        intermediate_size=16_384,
        num_hidden_layers=48,
        num_attention_heads=64,
        num_key_value_heads=4,
        head_dim=192,
        moe_intermediate_size=2048,
    )
    count = n_layers(c)
    value = c.count("v_head_dim", default=128)
    own = _narrow(gqa(c, bias=attention_bias(c, "qkv")), value)
    more = c.count("swa_num_key_value_heads", default=2 * own.kv_heads, most=100_000)
    wider = gqa(c.replaced(num_key_value_heads=more), bias=attention_bias(c, "qkv"))
    before = c.maybe("sliding_window_size")  # less the query's own
    window = c.count("sliding_window", default=129) if before is None else before + 1
    sinks = own.heads * c.flag("add_swa_attention_sink_bias", default=True)
    local = replace(_narrow(wider, value), window=window, norm_params=sinks)
    kinds = c.names("layer_types", (FULL, SLIDING), count)
    pattern = c.counts("hybrid_layer_pattern", length=count)
    slides = [kind == SLIDING for kind in kinds] or [one == 1 for one in pattern]
    slides = slides or [i > 0 and (i + 1) % 6 != 0 for i in range(count)]
    experts = routed(
        c,
        c.count("n_routed_experts", "num_local_experts", default=256, most=100_000),
        c.count("num_experts_per_tok", default=8),
        c.count("moe_intermediate_size"),
    )
    return stack(
        c,
        [local if slide else own for slide in slides],
        mixed(c, _sparse(c, "moe_layer_freq", 1), experts),
        mtp_layers=c.count("num_nextn_predict_layers", default=0, least=0),
    )


def _narrow(a: Attention, value: int) -> Attention:
    """Values of another width than the keys'."""
    bias = a.bias_params - a.kv_heads * (a.head_dim - value) if a.bias_params else 0
    return replace(a, v_head_dim=value, bias_params=bias)


def _sparse(c: Fields, key: str, dense: int) -> list[bool]:
    """Which layers have experts: by kind, by 0 and 1 under ``key``, else all but the first."""
    count = n_layers(c)
    kinds = _kinds(c, "mlp_layer_types", ("dense", "sparse"))
    listed = c.counts(key, length=count) if isinstance(c.values.get(key), (list, tuple)) else []
    found = [kind == "sparse" for kind in kinds] or [one == 1 for one in listed]
    return found or [i >= dense for i in range(count)]


def _kinds(c: Fields, key: str, choices: tuple[str, ...]) -> list[str]:
    """One kind a layer; those of the blocks that predict further tokens may follow."""
    extra = c.count("num_nextn_predict_layers", "num_mtp_layers", default=0, least=0)
    listed = c.values.get(key)
    longer = isinstance(listed, (list, tuple)) and len(listed) == n_layers(c) + extra
    return c.names(key, choices, n_layers(c) + extra * longer)[: n_layers(c)]


EXPERTS = ("moe_num_experts", "n_routed_experts", "num_local_experts", "num_experts")


def step3p5(c: Fields) -> Model:
    """Step-3.5: a gate a head on attention's output; sliding layers may have more heads."""
    c = c.having(
        vocab_size=128_815,
        hidden_size=4096,
        intermediate_size=11_264,
        num_hidden_layers=45,
        num_attention_heads=64,
        head_dim=128,
    )
    count = n_layers(c)
    c = c.replaced(
        num_key_value_heads=c.count(
            "num_key_value_heads", "num_attention_groups", default=8, most=100_000
        )
    )
    experts = routed(
        c,
        c.count(
            "moe_num_experts", "n_routed_experts", "num_local_experts", "num_experts", default=288
        ),
        c.count("moe_top_k", "num_experts_per_tok", default=8),
        c.count("moe_intermediate_size", default=1280),
        shared_width=c.count("share_expert_dim", "share_expert_dims", default=1280),
    )
    kinds = _kinds(c, "layer_types", (FULL, SLIDING))
    slides = [kind == SLIDING for kind in kinds] or [False] * count
    other = c.part("attention_other_setting") if c.has("attention_other_setting") else None
    heads = c.maybe("num_sliding_attention_heads", most=100_000)
    if heads is None and other is not None:
        heads = other.maybe("num_attention_heads", most=100_000)
    own = _gated(c)
    local = _gated(c if heads is None else c.replaced(num_attention_heads=heads))
    local = replace(local, window=c.count("sliding_window")) if any(slides) else local
    biased = c.flag("mlp_bias", default=False)
    if biased:
        raise c.wrong("mlp_bias", "false")
    return stack(
        c,
        [local if slide else own for slide in slides],
        mixed(c, _step_sparse(c), experts),
        mtp_layers=c.count("num_nextn_predict_layers", "num_mtp_layers", default=0, least=0),
    )


def _gated(c: Fields) -> Attention:
    """Attention with one gate a head."""
    made = gqa(c, bias=attention_bias(c), norm="head")
    return replace(made, gate_params=d_model(c) * made.heads)


def _step_sparse(c: Fields) -> list[bool]:
    """Which layers have experts: by kind, by ``moe_layers_enum``, else all from the fourth."""
    kinds = _kinds(c, "mlp_layer_types", ("dense", "sparse"))
    if kinds:
        return [kind == "sparse" for kind in kinds]
    told = c.values.get("moe_layers_enum")
    if told is None:
        first = c.count("first_k_dense_replace", default=3, least=0)
        return [i >= first for i in range(n_layers(c))]
    numbers = c.text("moe_layers_enum").split(",") if isinstance(told, str) else told
    try:
        listed = {int(one) for one in numbers if str(one).strip()}
    except (TypeError, ValueError):
        raise c.wrong("moe_layers_enum", 'numbers of layers, such as "3,4,5"') from None
    return [i in listed for i in range(n_layers(c))]


def step3p7(c: Fields) -> Model:
    """Step-3.7: Step-3.5 behind a tower with scaled residuals and two convolutions that thin it."""
    if not c.has("text_config", "vision_config"):
        return alone(c, step3p5(c))
    text, v = step3p5(c.part("text_config")), c.part("vision_config")
    v = v.having(hidden_size=1536, num_hidden_layers=47, num_attention_heads=16)
    width = v.count("width", "hidden_size")
    inner = int(width * v.number("mlp_ratio", default=8960 / 1536))
    depth = v.count("layers", "num_hidden_layers", most=10_000)
    block = Layer(
        attention(width, heads_of(v, width, "heads", "num_attention_heads")),
        feed_forward(width, inner),
        4 * width,
        other_params=2 * width,
    )
    kinds, order = runs([block] * depth)
    count, pixels = patches(v, 728, 14)
    thinned = max(count // 4, 1), max(count // 16, 1)
    convs = (
        stem(v, width, count, pixels, bias=False),
        Conv("downsampler1", width, 2 * width, 9, thinned[0], bias_params=2 * width),
        Conv("downsampler2", 2 * width, 4 * width, 9, thinned[1], bias_params=4 * width),
    )
    bias = c.flag("projector_bias", default=False)
    tower = Tower(
        "vision",
        width,
        kinds,
        order,
        tokens=count,
        convs=convs,
        projections=(linear("projector", 4 * width, text.d_model, bias, every=16),),
        embedding_params=count * width,
        other_params=2 * width,
    )
    return replace(text, architecture="step3p7", towers=(tower,))
