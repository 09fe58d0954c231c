"""Mixtures of experts over ordinary attention: Mixtral, Qwen, OLMoE, gpt-oss, GLM, Llama 4.

Shapes and defaults as transformers 5.24 builds them. Correction biases of routers are buffers
there, not parameters, but for ERNIE's.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.decoder import d_model, gqa, mlp, n_layers, stack, windows
from chipshift.models.families.llama import attention_bias
from chipshift.models.fields import Fields
from chipshift.models.model import DenseMlp, Model, MoeMlp


def routed(
    c: Fields,
    experts: int,
    top_k: int,
    width: int,
    *,
    matrices: int = 3,
    shared_width: int = 0,
    shared_gate: bool = False,
    router_bias: bool = False,
    expert_bias: bool = False,
) -> MoeMlp:
    """Routed experts behind a linear router over the residual stream.

    Raises:
        InputError: a token visits more experts than there are.
    """
    if top_k > experts:
        raise c.conflict(f"a token visits {top_k} experts and there are {experts}")
    return MoeMlp(
        experts=experts,
        top_k=top_k,
        width=width,
        matrices=matrices,
        shared_width=shared_width,
        router_params=experts * (d_model(c) + router_bias),
        shared_gate_params=d_model(c) * shared_gate,
        expert_bias_params=expert_bias * ((matrices - 1) * width + d_model(c)),
    )


def local_experts(c: Fields, experts: int, top_k: int) -> tuple[int, int, int]:
    """(experts, experts a token visits, width of one), the first two with the family's usual."""
    return (
        c.count("num_local_experts", "num_experts", default=experts, most=100_000),
        c.count("num_experts_per_tok", default=top_k),
        c.count("intermediate_size"),
    )


def mixed(c: Fields, sparse: list[bool], experts: MoeMlp) -> list[DenseMlp | MoeMlp]:
    """Experts in the sparse layers, a feed-forward of ``intermediate_size`` in the others."""
    dense = experts if all(sparse) else mlp(c)
    return [experts if one else dense for one in sparse]


def mixtral(c: Fields) -> Model:
    """Mixtral: every feed-forward is routed; slides only if ``sliding_window`` is set."""
    attention = gqa(c, kv_default=8, window=c.maybe("sliding_window"))
    return stack(c, attention, routed(c, *local_experts(c, 8, 2)))


def sparse_layers(c: Fields) -> list[bool]:
    """Which Qwen layers are routed: each ``decoder_sparse_step``-th not in ``mlp_only_layers``."""
    step = c.count("decoder_sparse_step", default=1)
    dense = set(c.counts("mlp_only_layers"))
    return [i not in dense and (i + 1) % step == 0 for i in range(n_layers(c))]


def qwen2_moe(c: Fields) -> Model:
    """Qwen1.5-MoE and Qwen2-MoE: a gated shared expert beside the routed ones."""
    experts = routed(
        c,
        c.count("num_experts", default=60, most=100_000),
        c.count("num_experts_per_tok", default=4),
        c.count("moe_intermediate_size", default=1408),
        shared_width=c.count("shared_expert_intermediate_size", default=5632),
        shared_gate=True,
    )
    bias = "qkv" if c.flag("qkv_bias", default=True) else ""
    attention = [gqa(c, bias=bias, window=w, kv_default=16) for w in _qwen2_moe_windows(c)]
    return stack(c, attention, mixed(c, sparse_layers(c), experts))


def _qwen2_moe_windows(c: Fields) -> list[int | None]:
    """With ``use_sliding_window``, every other layer below ``max_window_layers`` slides."""
    if not c.flag("use_sliding_window", default=False):
        return [None] * n_layers(c)
    last = c.count("max_window_layers", default=28, least=0)
    c = c.having(sliding_window=4096)
    return windows(c, [i % 2 == 0 and i < last for i in range(n_layers(c))])


def qwen3_moe(c: Fields) -> Model:
    """Qwen3-MoE: routed experts only, norms over query and key heads."""
    experts = routed(
        c,
        c.count("num_experts", "num_local_experts", default=128, most=100_000),
        c.count("num_experts_per_tok", default=8),
        c.count("moe_intermediate_size", default=768),
    )
    window = c.maybe("sliding_window") if c.flag("use_sliding_window", default=False) else None
    attention = gqa(c, bias=attention_bias(c), norm="head", window=window, kv_default=4)
    return stack(c, attention, mixed(c, sparse_layers(c), experts))


def qwen3_vl_moe_text(c: Fields) -> Model:
    """The language model of Qwen3-VL's mixtures: Qwen3-MoE with defaults of its own."""
    if not c.has("num_experts", "num_local_experts"):
        c = c.having(num_experts=60)
    return qwen3_moe(c.having(num_experts_per_tok=4, moe_intermediate_size=1408))


def olmoe(c: Fields) -> Model:
    """OLMoE: norms over all query and all key channels."""
    return stack(
        c, gqa(c, bias=attention_bias(c), norm="flat"), routed(c, *local_experts(c, 64, 8))
    )


def granitemoe(c: Fields) -> Model:
    """Granite 3 MoE, with a shared expert where ``shared_intermediate_size`` is set."""
    shared = c.count("shared_intermediate_size", default=0, least=0)
    experts = routed(c, *local_experts(c, 8, 2), shared_width=shared)
    return stack(c, gqa(c, bias=attention_bias(c)), experts)


def phimoe(c: Fields) -> Model:
    """Phi-3.5-MoE: norms with biases, a bias on the LM head by ``lm_head_bias``."""
    attention = gqa(c, bias=attention_bias(c), kv_default=8, window=c.maybe("sliding_window"))
    head_bias = c.count("vocab_size") if c.flag("lm_head_bias", default=False) else 0
    experts = routed(c, *local_experts(c, 16, 2))
    return stack(c, attention, experts, norms=4, final=2, head_bias_params=head_bias)


def minimax_m2(c: Fields) -> Model:
    """MiniMax-M2: full attention, norms over all query and all key channels."""
    c = c.having(head_dim=128)
    attention = gqa(c, norm="flat" if c.flag("use_qk_norm", default=True) else "", kv_default=8)
    further = c.count("num_mtp_modules", default=0, least=0, most=100)
    return stack(c, attention, routed(c, *local_experts(c, 256, 8)), mtp_layers=further)


def gpt_oss(c: Fields) -> Model:
    """gpt-oss: biases everywhere, a learned sink a head, every other layer slides."""
    c = c.having(head_dim=64, sliding_window=128)
    experts = routed(c, *local_experts(c, 128, 4), router_bias=True, expert_bias=True)
    bias = attention_bias(c, default=True)
    kinds = windows(c, [i % 2 == 0 for i in range(n_layers(c))])
    attention = [gqa(c, bias=bias, window=w, kv_default=8) for w in kinds]
    return stack(c, [replace(a, norm_params=a.heads) for a in attention], experts)


def glm4_moe(c: Fields) -> Model:
    """GLM-4.5: dense first layers, then routed and shared experts."""
    c = c.having(moe_intermediate_size=1408)
    width = c.count("moe_intermediate_size")
    experts = routed(
        c,
        c.count("n_routed_experts", default=128, most=100_000),
        c.count("num_experts_per_tok", default=8),
        width,
        shared_width=width * c.count("n_shared_experts", default=1, least=0, most=100_000),
    )
    norm = "head" if c.flag("use_qk_norm", default=False) else ""
    dense = c.count("first_k_dense_replace", default=1, least=0)
    return stack(
        c,
        gqa(c, bias=attention_bias(c, "qkv"), norm=norm, kv_default=8),
        mixed(c, [i >= dense for i in range(n_layers(c))], experts),
        mtp_layers=c.count("num_nextn_predict_layers", default=0, least=0),
    )


def glm4v_text(c: Fields) -> Model:
    """GLM-4.5V's language model: GLM-4.5 with biases on queries, keys and values."""
    return glm4_moe(c.having(attention_bias=True))


def exaone_moe(c: Fields) -> Model:
    """K-EXAONE: norms over heads, three layers in four sliding, one dense, then experts."""
    c = c.having(moe_intermediate_size=1024, sliding_window=4096)
    count, width = n_layers(c), c.count("moe_intermediate_size")
    experts = routed(
        c,
        c.count("num_experts", default=64, most=100_000),
        c.count("num_experts_per_tok", default=8),
        width,
        shared_width=width * c.count("num_shared_experts", default=1, least=0, most=100_000),
    )
    listed = c.names("mlp_layer_types", ("dense", "sparse"), count)
    first = c.count("first_k_dense_replace", default=1, least=0)
    sparse = [kind == "sparse" for kind in listed] or [i >= first for i in range(count)]
    every = 4 if isinstance(c.values.get("sliding_window_pattern"), str) else 0
    every = every or c.count("sliding_window_pattern", default=4)
    kinds = windows(c, [(i + 1) % every != 0 for i in range(count)])
    attention = [gqa(c, norm="head", window=w, kv_default=32) for w in kinds]
    further = c.count("num_nextn_predict_layers", default=0, least=0, most=100)
    return stack(c, attention, mixed(c, sparse, experts), mtp_layers=further)


def ernie4_5_moe(c: Fields) -> Model:
    """ERNIE 4.5: experts between two layers at an interval; the router's correction is learned."""
    width = c.count("moe_intermediate_size", default=1536)
    shared = c.count("moe_num_shared_experts", default=2, least=0, most=100_000)
    experts = routed(
        c,
        c.count("moe_num_experts", default=64, most=100_000),
        c.count("moe_k", default=6),
        width,
        shared_width=width * shared,
        router_bias=True,
    )
    count = n_layers(c)
    first = c.count("moe_layer_start_index", default=1, least=0)
    last = c.count("moe_layer_end_index", default=count - 1, least=-1)
    last = count - 1 if last < 0 else last
    step = c.count("moe_layer_interval", default=1)
    bias = c.flag("use_bias", default=False)
    if bias:
        experts = replace(experts, shared_bias_params=2 * shared * width + d_model(c))
    sparse = [(i + 1) % step == 0 and first <= i <= last for i in range(count)]
    dense = experts if all(sparse) else mlp(c, bias=bias)
    feed_forward = [experts if one else dense for one in sparse]
    return stack(
        c,
        gqa(c, bias="qkvo" * bias, kv_default=4),
        feed_forward,
        tied=True,
        head_bias_params=c.count("vocab_size") * bias,
    )


def llama4_text(c: Fields) -> Model:
    """Llama 4: one expert a token beside a shared one, chunked attention where heads rotate."""
    c = c.having(head_dim=128, num_key_value_heads=8)
    count = n_layers(c)
    width = c.count("intermediate_size")
    experts = c.count("num_local_experts", default=16, most=100_000)
    top_k = c.count("num_experts_per_tok", default=1)
    moe = routed(c, experts, top_k, width, shared_width=width)
    step = c.count("interleave_moe_layer_step", default=1)
    listed = set(c.counts("moe_layers")) or set(range(step - 1, count, step))
    sparse = [i in listed for i in range(count)]
    dense = moe if all(sparse) else mlp(c, "intermediate_size_mlp")
    chunk = c.maybe("attention_chunk_size")
    every = c.count("no_rope_layer_interval", default=4)
    rotates = c.counts("no_rope_layers", length=count) if c.values.get("no_rope_layers") else []
    rotates = rotates or [(i + 1) % every for i in range(count)]
    base = gqa(c, bias=attention_bias(c))
    chunked = replace(base, window=chunk, chunked=True)
    return stack(
        c,
        [chunked if chunk and rotated else base for rotated in rotates],
        [moe if one else dense for one in sparse],
    )


def dots1(c: Fields) -> Model:
    """dots.llm1: normed heads, dense first layers, routed and shared experts."""
    count = n_layers(c)
    if not c.has("n_routed_experts"):
        return stack(c, gqa(c, bias=attention_bias(c), norm="head"), mlp(c))
    width = c.count("moe_intermediate_size", default=1408)
    experts = routed(
        c,
        c.count("n_routed_experts", most=100_000),
        c.count("num_experts_per_tok"),
        width,
        shared_width=width * c.count("n_shared_experts", default=0, least=0, most=100_000),
    )
    first = c.count("first_k_dense_replace", default=0, least=0)
    slides = c.has("sliding_window") or "sliding_window" not in c.values
    c = c.having(sliding_window=4096) if slides else c
    above = c.count("max_window_layers", default=62, least=0)
    kinds = windows(c, [slides and i >= above for i in range(count)])
    attention = [gqa(c, bias=attention_bias(c), norm="head", window=w) for w in kinds]
    return stack(c, attention, mixed(c, [i >= first for i in range(count)], experts))


def hunyuan_moe(c: Fields) -> Model:
    """Hunyuan's mixtures: experts of ``intermediate_size`` beside one that every token visits."""
    width = c.count("intermediate_size")
    listed = c.values.get("moe_topk")
    if isinstance(listed, (list, tuple)):
        if len(set(c.counts("moe_topk", least=1, length=n_layers(c)))) > 1:
            raise c.wrong("moe_topk", "one number for all layers")
        c = c.replaced(moe_topk=listed[0])
    experts = routed(
        c,
        c.count("num_experts", "num_local_experts", default=1, most=100_000),
        c.count("moe_topk", "num_experts_per_tok", default=1),
        width,
        shared_width=width,
    )
    return stack(c, gqa(c, bias=attention_bias(c), norm="head"), experts)
