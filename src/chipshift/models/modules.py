"""The linear maps of a model under the names that its family's modules have.

Names as transformers 5.24 gives them; they are what an adapter's ``target_modules`` selects from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chipshift.errors import InputError, nearest
from chipshift.models.model import Attention, DenseMlp, Layer, Model, MoeMlp


@dataclass(frozen=True)
class Naming:
    """Where a family keeps its maps; ``qkv`` or ``gate_up`` set means that they are fused.

    Attributes:
        layers: path of a block, its number still to come.
        mlp: paths of the feed-forward's maps, the last one leading back.
    """

    layers: str = "model.layers"
    attention: str = "self_attn"
    qkv: str = ""
    q: str = "q_proj"
    k: str = "k_proj"
    v: str = "v_proj"
    o: str = "o_proj"
    gate_up: str = ""
    mlp: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    shared: str = "mlp.shared_experts"
    embedding: str = "model.embed_tokens"
    head: str = "lm_head"


@dataclass(frozen=True)
class LinearModule:
    """One linear map: its path, its layer (-1 outside the layers), its widths.

    Attributes:
        copies: equal maps stacked in one parameter (experts).
        stacked: it is a parameter and no module (experts, a router), which only
            ``target_parameters`` selects.
        bias: parameters of a bias of its own; 0 of a stacked one, whose is another parameter.
    """

    name: str
    layer: int
    inputs: int
    outputs: int
    copies: int = 1
    stacked: bool = False
    bias: int = 0


_LLAMA = Naming()
_PLAIN = Naming(mlp=("mlp.up_proj", "mlp.down_proj"))
_GPT2 = Naming(
    layers="transformer.h",
    attention="attn",
    qkv="c_attn",
    o="c_proj",
    mlp=("mlp.c_fc", "mlp.c_proj"),
    embedding="transformer.wte",
)
_GPTJ = Naming(
    layers="transformer.h",
    attention="attn",
    o="out_proj",
    mlp=("mlp.fc_in", "mlp.fc_out"),
    embedding="transformer.wte",
)
_BLOOM = Naming(
    layers="transformer.h",
    attention="self_attention",
    qkv="query_key_value",
    o="dense",
    mlp=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    embedding="transformer.word_embeddings",
)
_PHI3 = Naming(qkv="qkv_proj", gate_up="mlp.gate_up_proj")
_GLM = Naming(gate_up="mlp.gate_up_proj")
_CHATGLM = Naming(
    layers="transformer.encoder.layers",
    attention="self_attention",
    qkv="query_key_value",
    o="dense",
    gate_up="mlp.dense_h_to_4h",
    mlp=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    embedding="transformer.embedding.word_embeddings",
    head="transformer.output_layer",
)
_QWEN = Naming(
    layers="transformer.h",
    attention="attn",
    qkv="c_attn",
    o="c_proj",
    mlp=("mlp.w2", "mlp.w1", "mlp.c_proj"),
    embedding="transformer.wte",
)
_INTERNLM2 = Naming(
    attention="attention",
    qkv="wqkv",
    o="wo",
    mlp=("feed_forward.w1", "feed_forward.w3", "feed_forward.w2"),
    embedding="model.tok_embeddings",
    head="output",
)

NAMINGS: dict[str, Naming] = {
    **dict.fromkeys(
        (
            "cohere",
            "cohere2",
            "deci",
            "deepseek",
            "deepseek_v2",
            "deepseek_v3",
            "exaone4",
            "gemma",
            "gemma2",
            "gemma3_text",
            "glm4_moe",
            "glm4_moe_lite",
            "gpt_oss",
            "granite",
            "internlm",
            "llama",
            "ministral",
            "ministral3",
            "mistral",
            "mixtral",
            "nemotron-nas",
            "olmo",
            "olmo2",
            "olmo3",
            "olmoe",
            "qwen2",
            "qwen3",
            "qwen3_moe",
            "seed_oss",
            "smollm3",
            "stablelm",
        ),
        _LLAMA,
    ),
    "arcee": _PLAIN,
    "baichuan": Naming(qkv="W_pack"),
    "bloom": _BLOOM,
    "chatglm": _CHATGLM,
    "falcon": _BLOOM,
    "glm": _GLM,
    "glm4": _GLM,
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "gpt_neox": Naming(
        layers="gpt_neox.layers",
        attention="attention",
        qkv="query_key_value",
        o="dense",
        mlp=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        embedding="gpt_neox.embed_in",
    ),
    "gptj": _GPTJ,
    "internlm2": _INTERNLM2,
    "nemotron": _PLAIN,
    "opt": Naming(
        layers="model.decoder.layers",
        o="out_proj",
        mlp=("fc1", "fc2"),
        embedding="model.decoder.embed_tokens",
    ),
    "phi": Naming(o="dense", mlp=("mlp.fc1", "mlp.fc2")),
    "phi3": _PHI3,
    "qwen": _QWEN,
    "qwen2_moe": Naming(shared="mlp.shared_expert"),
    "starcoder2": Naming(mlp=("mlp.c_fc", "mlp.c_proj")),
}


def naming(model: Model) -> Naming:
    """How the model's family names its modules.

    Raises:
        InputError: it is not known here.
    """
    if model.architecture not in NAMINGS:
        choices = list(NAMINGS)
        raise InputError(
            f"the module names of {model.architecture or model.name!r} are not known"
            f"{nearest(model.architecture, choices)}; adapters are counted for {', '.join(choices)}"
        )
    return NAMINGS[model.architecture]


def linear_modules(model: Model) -> list[LinearModule]:
    """Every linear map of the model but its head: those beside the layers, then bottom to top."""
    names = naming(model)
    beside = names.layers.rsplit(".", 1)[0]
    found = [
        LinearModule(f"{beside}.{p.name}", -1, p.inputs, p.outputs, bias=p.bias_params)
        for p in model.projections
    ]
    for number, kind in enumerate(model.layer_order):
        path = f"{names.layers}.{number}"
        layer = model.layers[kind][0]
        biased = _biased(names, layer, model.d_model)
        for name, inputs, outputs, copies in _block(names, layer, model.d_model):
            stacked = ".experts." in name or name.endswith(".weight")
            bias = outputs if name in biased else 0
            found.append(
                LinearModule(f"{path}.{name}", number, inputs, outputs, copies, stacked, bias)
            )
    return found


def _biased(n: Naming, layer: Layer, d_model: int) -> set[str]:
    """Paths of a block's maps that have a bias, which the counts of a mixer's parameters tell.

    Attention has biases on all of its maps, on all but the one that leads back, or on that alone
    (of MLA on those into a latent and back); a feed-forward on all of its maps or on none.
    """
    found: set[str] = set()
    a = layer.attention
    if a is not None and a.bias_params:
        each = {name: outputs for name, _, outputs in _attention(n, a, d_model)}
        into = set(each) - {n.o}
        latent = {"q_a_proj", "kv_a_proj_with_mqa", n.o} & set(each)
        sets = [latent] if a.kv_lora_rank is not None else [set(each), into, {n.o}]
        fitting = [s for s in sets if sum(each[name] for name in s) == a.bias_params]
        found |= {f"{n.attention}.{name}" for name in (fitting[0] if fitting else ())}
    if isinstance(layer.mlp, DenseMlp) and layer.mlp.bias_params:
        found |= {name for name, *_ in _feed_forward(n, 1, layer.mlp.matrices, d_model)}
    if isinstance(layer.mlp, MoeMlp) and layer.mlp.shared_bias_params:
        maps = _feed_forward(n, 1, layer.mlp.matrices, d_model)
        found |= {name.replace("mlp", n.shared, 1) for name, *_ in maps}
    return found


def _block(n: Naming, layer: Layer, d_model: int) -> Iterator[tuple[str, int, int, int]]:
    """(path within the block, inputs, outputs, copies) of each map."""
    if layer.attention is not None:
        for name, inputs, outputs in _attention(n, layer.attention, d_model):
            yield f"{n.attention}.{name}", inputs, outputs, 1
    if isinstance(layer.mlp, DenseMlp):
        yield from _feed_forward(n, layer.mlp.width, layer.mlp.matrices, d_model)
    if isinstance(layer.mlp, MoeMlp):
        moe = layer.mlp
        if moe.shared_width:
            for name, *numbers in _feed_forward(n, moe.shared_width, moe.matrices, d_model):
                yield (name.replace("mlp", n.shared, 1), *numbers)  # type: ignore[misc]
        if moe.shared_gate_params:
            yield "mlp.shared_expert_gate", d_model, 1, 1
        yield "mlp.gate.weight", d_model, moe.experts, 1
        d_expert = moe.latent_width or d_model
        up = moe.width * (moe.matrices - 1)
        yield "mlp.experts.gate_up_proj", d_expert, up, moe.experts
        yield "mlp.experts.down_proj", moe.width, d_expert, moe.experts


def _feed_forward(
    n: Naming, width: int, matrices: int, d_model: int
) -> Iterator[tuple[str, int, int, int]]:
    *up, down = n.mlp
    if n.gate_up:
        yield n.gate_up, d_model, (matrices - 1) * width, 1
    else:
        for name in up[-(matrices - 1) :]:
            yield name, d_model, width, 1
    yield down, width, d_model, 1


def _attention(n: Naming, a: Attention, d_model: int) -> Iterator[tuple[str, int, int]]:
    back = (n.o, a.heads * a.v_head_dim, d_model)
    if a.kv_lora_rank is not None and a.qk_rope_head_dim is not None:
        queries = a.heads * a.head_dim
        if a.q_lora_rank is None:
            yield n.q, d_model, queries
        else:
            yield "q_a_proj", d_model, a.q_lora_rank
            yield "q_b_proj", a.q_lora_rank, queries
        yield "kv_a_proj_with_mqa", d_model, a.kv_lora_rank + a.qk_rope_head_dim
        wide = a.head_dim - a.qk_rope_head_dim + a.v_head_dim
        yield "kv_b_proj", a.kv_lora_rank, a.heads * wide
        yield back
        return
    q, k, v = a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.v_head_dim
    if n.qkv:
        yield n.qkv, d_model, q + k + v
    else:
        yield n.q, d_model, q
        yield n.k, d_model, k
        yield n.v, d_model, v
    yield back
