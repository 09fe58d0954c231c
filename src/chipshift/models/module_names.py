"""What families call the linear maps of their blocks, as transformers 5.24 gives the names.

They are what an adapter's ``target_modules`` selects from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Naming:
    """Where a family keeps its maps; ``qkv`` or ``gate_up`` set means that they are fused.

    Attributes:
        layers: path of a block, its number still to come.
        mlp: paths of the feed-forward's maps, the last one leading back.
        shared, shared_gate_up, shared_down: path of the experts that every token visits, and the
            names of their maps where those are not the feed-forward's.
        router: path of the router; of a parameter, which no module name selects, ``.weight``.
        experts: path of the stacked experts.
        mixer: path of a recurrent mixer.
        renamed: what a projection of models/families is called, or the several maps that it is
            here; one that is a parameter and no module is none.
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
    shared_gate_up: str = ""
    shared_down: str = ""
    router: str = "mlp.gate.weight"
    experts: str = "mlp.experts"
    mixer: str = "mixer"
    renamed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    embedding: str = "model.embed_tokens"
    head: str = "lm_head"


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

_MINIMAX = Naming(mixer="self_attn")
_SCORED = (  # DeepSeek-V3.2's scorer of keys
    ("indexer.wq_b", ("self_attn.indexer.wq_b",)),
    ("indexer.wk", ("self_attn.indexer.wk",)),
    ("indexer.weights_proj", ("self_attn.indexer.weights_proj",)),
)
_DELTA = (  # Qwen3.5 has four maps where Qwen3-Next has two
    ("in_proj_qkvz", ("in_proj_qkv", "in_proj_z")),
    ("in_proj_ba", ("in_proj_b", "in_proj_a")),
)
_KIMI = (
    ("qkv_proj", ("q_proj", "k_proj", "v_proj")),
    ("f_a_proj", ("forget_gate.f_a_proj",)),
    ("f_b_proj", ("forget_gate.f_b_proj",)),
)
_V4 = (
    ("compressor.kv_proj", ("self_attn.compressor.kv_proj",)),
    ("compressor.gate_proj", ("self_attn.compressor.gate_proj",)),
    ("indexer.kv_proj", ("self_attn.compressor.indexer.kv_proj",)),
    ("indexer.gate_proj", ("self_attn.compressor.indexer.gate_proj",)),
    ("indexer.q_b_proj", ("self_attn.compressor.indexer.q_b_proj",)),
    ("indexer.weights_proj", ("self_attn.compressor.indexer.scorer.weights_proj",)),
    ("attn_hc.fn", ()),
    ("ffn_hc.fn", ()),
    ("hc_head.fn", ()),
)
_M3 = (
    ("indexer.q_proj", ("self_attn.indexer.q_proj",)),
    ("indexer.k_proj", ("self_attn.indexer.k_proj",)),
)
_FORWARD = ("feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj")
_GRANITE = Naming(
    shared="shared_mlp",
    shared_gate_up="input_linear",
    shared_down="output_linear",
    gate_up="shared_mlp.input_linear",
    mlp=("shared_mlp.input_linear", "shared_mlp.output_linear"),
    router="block_sparse_moe.router.weight",
    experts="block_sparse_moe.experts",
    mixer="mamba",
)
_JAMBA = Naming(
    mixer="mamba",
    mlp=_FORWARD,
    router="feed_forward.router.weight",
    experts="feed_forward.experts",
)
_MAMBA = Naming(layers="backbone.layers", embedding="backbone.embeddings")
_LFM2 = Naming(
    o="out_proj",
    mlp=("feed_forward.w1", "feed_forward.w3", "feed_forward.w2"),
    mixer="conv",
)
_TEXT = "model.text_model"  # where SmolVLM keeps its language model
_QWEN_NEXT = Naming(shared="mlp.shared_expert", mixer="linear_attn")
_QWEN_35 = replace(_QWEN_NEXT, renamed=_DELTA)
_LLAMA_4 = Naming(
    mlp=_FORWARD,
    router="feed_forward.router",
    experts="feed_forward.experts",
    shared="feed_forward.shared_expert",
)


def _seeing(names: Naming) -> Naming:
    """The same within a model that sees, whose tower has modules of its own beside it."""
    inside = "model.language_model"
    return replace(names, layers=f"{inside}.layers", embedding=f"{inside}.embed_tokens")


NAMINGS: dict[str, Naming] = {
    **dict.fromkeys(
        (
            "cohere",
            "cohere2",
            "ernie4_5",
            "ernie4_5_moe",
            "exaone_moe",
            "dots1",
            "hunyuan_v1_dense",
            "internlm3",
            "mimo",
            "mimo_v2_flash",
            "minimax_m2",
            "deci",
            "deepseek",
            "deepseek_v2",
            "deepseek_v3",
            "exaone4",
            "gemma",
            "gemma2",
            "gemma3_text",
            "gemma3n_text",
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
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), Naming(renamed=_SCORED)),
    **dict.fromkeys(("granitemoe", "granitemoeshared", "granitemoehybrid"), _GRANITE),
    **dict.fromkeys(("jamba", "bamba", "falcon_h1"), _JAMBA),
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba"), _MAMBA),
    **dict.fromkeys(("qwen3_5_text", "qwen3_5_moe_text"), _QWEN_35),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe"), _seeing(_QWEN_35)),
    **dict.fromkeys(
        (
            "aya_vision",
            "cohere2_vision",
            "gemma3",
            "gemma3n",
            "glm4v_moe",
            "internvl",
            "kimi_k25",
            "kimi_vl",
            "llava",
            "llava_next",
            "llava_onevision",
            "mistral3",
            "paligemma",
            "qwen2_audio",
            "qwen3_asr",
            "voxtral",
            "qwen2_vl",
            "qwen2_5_vl",
            "qwen3_vl",
            "qwen3_vl_moe",
        ),
        _seeing(_LLAMA),
    ),
    "apertus": _PLAIN,
    "arcee": _PLAIN,
    "baichuan": Naming(qkv="W_pack"),
    "bloom": _BLOOM,
    "chatglm": _CHATGLM,
    "codegen": replace(_GPTJ, qkv="qkv_proj"),
    "deepseek_v4": Naming(renamed=_V4),
    "falcon": _BLOOM,
    "glm": _GLM,
    "glm4": _GLM,
    **dict.fromkeys(("glm46v", "glm4v"), _seeing(_GLM)),
    **dict.fromkeys(
        ("idefics3", "smolvlm"),
        replace(_LLAMA, layers=f"{_TEXT}.layers", embedding=f"{_TEXT}.embed_tokens"),
    ),
    "gemma4_text": Naming(shared="mlp", router="router.proj"),
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
    "gpt_neo": replace(_GPT2, attention="attn.attention", qkv="", o="out_proj"),
    "gptj": _GPTJ,
    "hunyuan_v1_moe": Naming(shared="mlp.shared_mlp", router="mlp.gate.wg"),
    "internlm2": _INTERNLM2,
    "kimi_linear": Naming(mixer="self_attn", renamed=_KIMI),
    "lfm2": _LFM2,
    "lfm2_vl": _seeing(_LFM2),
    "llama4": _seeing(_LLAMA_4),
    "llama4_text": _LLAMA_4,
    "minimax": _MINIMAX,
    "minimax_m3_vl_text": Naming(
        gate_up="mlp.gate_up_proj", shared_gate_up="gate_up_proj", renamed=_M3
    ),
    "mpt": Naming(
        layers="transformer.blocks",
        attention="attn",
        qkv="Wqkv",
        o="out_proj",
        mlp=("ffn.gate", "ffn.up_proj", "ffn.down_proj"),
        embedding="transformer.wte",
    ),
    "nemotron": _PLAIN,
    "nemotron_h": Naming(
        attention="mixer",
        mlp=("mixer.up_proj", "mixer.down_proj"),
        shared="mixer.shared_experts",
        router="mixer.gate.weight",
        experts="mixer.experts",
        embedding="model.embeddings",
        renamed=(
            ("fc1_latent_proj", ("mixer.fc1_latent_proj",)),
            ("fc2_latent_proj", ("mixer.fc2_latent_proj",)),
        ),
    ),
    "opt": Naming(
        layers="model.decoder.layers",
        o="out_proj",
        mlp=("fc1", "fc2"),
        embedding="model.decoder.embed_tokens",
    ),
    "phi": Naming(o="dense", mlp=("mlp.fc1", "mlp.fc2")),
    "phi3": _PHI3,
    "phi4_multimodal": _PHI3,
    "phimoe": Naming(router="mlp.router"),
    "qwen": _QWEN,
    "qwen2_moe": Naming(shared="mlp.shared_expert"),
    "qwen3_next": _QWEN_NEXT,
    "recurrent_gemma": Naming(
        attention="temporal_block",
        mixer="temporal_block",
        mlp=("mlp_block.gate_proj", "mlp_block.up_proj", "mlp_block.down_proj"),
        renamed=(("input_gate", ()), ("recurrent_gate", ())),
    ),
    "starcoder2": Naming(mlp=("mlp.c_fc", "mlp.c_proj")),
}
