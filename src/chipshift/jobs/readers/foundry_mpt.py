"""llm-foundry's MPT, parameter by parameter: grouped heads, gated feed-forwards, experts.

It has biases unless ``no_bias``, which transformers' MPT never has. Keys, defaults and parameters:
Databricks Mosaic, llm-foundry, llmfoundry/models/mpt and models/layers, 2025-07-21; of experts
MegaBlocks, megablocks/layers (arguments.py, moe.py, mlp.py), 2025.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from chipshift.errors import InputError
from chipshift.jobs.job import Assumed, Given
from chipshift.jobs.settings import Sheet, wrong
from chipshift.jobs.twin import twin
from chipshift.models.model import Attention, DenseMlp, Layer, Model, MoeMlp

DENSE = {"mptmlp": 2, "mptglu": 3, "te_ln_mlp": 2}
"""Matrices of each feed-forward."""

SPARSE = ("mb_moe", "mb_dmoe", "torch_dmoe")
BASE = "model."
ATTENTION = BASE + "attn_config."
FFN = BASE + "ffn_config."


@dataclass(frozen=True)
class _Shape:
    """What every part of a layer needs.

    Attributes:
        norm_bias: norms have a bias besides their weight.
    """

    d_model: int
    heads: int
    bias: bool
    norm_bias: bool

    def norm(self, width: int) -> int:
        return width * (2 if self.norm_bias else 1)


def put_mpt(sheet: Sheet) -> None:
    """Build the model; where a key is absent, llm-foundry's default.

    Raises:
        InputError: sizes that do not fit each other, or a feed-forward that is not known.
    """
    draft = sheet.draft
    first = next((s for key, s in sheet.settings.items() if key == BASE + "d_model"), None)
    shape = _shape(sheet)
    layers = _count(sheet, "n_layers", "layers", 24)
    tied = _switch(sheet, "tie_word_embeddings", "tied head", True)
    learned = _switch(sheet, "learned_pos_emb", "learned positions", True)
    for kind in ("alibi", "rope"):
        learned = learned and not _switch(sheet, f"attn_config.{kind}", "positions", False)
    length = _count(sheet, "max_seq_len", "longest sequence", 2048)
    mlp, norms = _feed_forward(sheet, shape)
    layer = Layer(_attention(sheet, shape), mlp, norms * shape.norm(shape.d_model))
    model = Model(
        name="mpt",
        architecture="mpt",
        d_model=shape.d_model,
        vocab=_count(sheet, "vocab_size", "vocabulary", 50368),
        layers=((layer, layers),),
        layer_order=(0,) * layers,
        tied=tied,
        final_norm_params=shape.norm(shape.d_model),
        embedding_extra_params=length * shape.d_model if learned else 0,
    )
    known = twin(model, model.vocab)
    model = replace(model, name=known.name) if known else model
    if first is None:
        draft.put("model", Assumed(model, "llm-foundry's default shape; the file gives none"))
    else:
        draft.put("model", Given(model, first.file, first.line))
    why = "layers that differ from the others are not read; all are taken alike"
    sheet.ignore((BASE + "block_overrides.*",), True, why)


def _count(sheet: Sheet, key: str, into: str, default: int) -> int:
    value = sheet.integer(BASE + key, into=into, high=10**8)
    return default if value is None else value.value


def _switch(sheet: Sheet, key: str, into: str, default: bool) -> bool:
    value = sheet.boolean(BASE + key, into=into)
    return default if value is None else value.value


def _shape(sheet: Sheet) -> _Shape:
    width = _count(sheet, "d_model", "model width", 2048)
    heads = _count(sheet, "n_heads", "attention heads", 16)
    if width % heads:
        raise InputError(
            f"{sheet.draft.file}: model.d_model {width} is not a multiple of model.n_heads "
            f"{heads}; expected a multiple"
        )
    bias = not _switch(sheet, "no_bias", "no biases", False)
    norm = sheet.text(BASE + "norm_type", into="norm")
    plain = norm is not None and "rms" in norm.value.lower()
    return _Shape(width, heads, bias, bias and not plain)


def _attention(sheet: Sheet, shape: _Shape) -> Attention:
    kinds = ("multihead_attention", "multiquery_attention", "grouped_query_attention")
    kind = sheet.text(ATTENTION + "attn_type", into="kind of attention", choices=kinds)
    grouped = sheet.integer(ATTENTION + "kv_n_heads", into="key/value heads", high=10**6)
    kv_heads = shape.heads
    if kind is not None and kind.value == kinds[1]:
        kv_heads = 1
    elif kind is not None and kind.value == kinds[2]:
        if grouped is None:
            raise InputError(
                f"{kind.file}:{kind.line}: {ATTENTION}attn_type is {kind.value}, but no "
                f"kv_n_heads is given; expected {ATTENTION}kv_n_heads"
            )
        kv_heads = grouped.value
    if shape.heads % kv_heads:
        raise wrong(
            ATTENTION + "kv_n_heads",
            sheet.settings[ATTENTION + "kv_n_heads"],
            f"a number that divides model.n_heads {shape.heads}",
        )
    head = _count(sheet, "head_dim", "head width", shape.d_model // shape.heads)
    biased = _switch(sheet, "attention_bias", "biases on q, k, v", shape.bias)
    whole = _switch(sheet, "attn_config.qk_ln", "norms over all of q and k", False)
    each = _switch(sheet, "attn_config.qk_gn", "norms of heads of q and k", False)
    normed = (shape.heads + kv_heads) * head if whole else 2 * head if each else 0
    window = sheet.integer(
        ATTENTION + "sliding_window_size", into="sliding window", low=-1, none=(-1,)
    )
    return Attention(
        heads=shape.heads,
        kv_heads=kv_heads,
        head_dim=head,
        v_head_dim=head,
        window=window.value + 1 if window is not None else None,
        bias_params=biased * (shape.heads + 2 * kv_heads) * head + shape.bias * shape.d_model,
        norm_params=shape.norm(normed),
    )


def _feed_forward(sheet: Sheet, shape: _Shape) -> tuple[DenseMlp | MoeMlp, int]:
    """The feed-forward and the norms of a layer (one of them is inside ``te_ln_mlp``)."""
    kind = sheet.text(FFN + "ffn_type", into="feed-forward", choices=(*DENSE, *SPARSE))
    ratio = sheet.number(BASE + "expansion_ratio", into="feed-forward width", low=1e-3)
    stated = sheet.integer(FFN + "ffn_hidden_size", into="feed-forward width", high=10**8)
    width = int(shape.d_model * (ratio.value if ratio else 4))
    width = stated.value if stated else width
    if kind is None or kind.value in DENSE:
        matrices = DENSE[kind.value if kind else "mptmlp"]
        bias = (matrices - 1) * width + shape.d_model
        return DenseMlp(width, matrices, shape.bias * bias), 2
    return _experts(sheet, shape, kind, width), 2


def _experts(sheet: Sheet, shape: _Shape, kind: Given[str], width: int) -> MoeMlp:
    """Routed experts have no biases; MegaBlocks adds one to what they give together."""
    draft = sheet.draft
    experts = sheet.integer(FFN + "moe_num_experts", into="experts", high=10**6)
    top_k = sheet.integer(FFN + "moe_top_k", into="experts a token", high=10**6)
    gated = sheet.text(FFN + "mlp_type", into="feed-forward of an expert", choices=("mlp", "glu"))
    matrices = 3 if gated is not None and gated.value == "glu" else 2
    count = experts.value if experts else 1
    chosen = top_k.value if top_k else 1
    if chosen > count:
        raise wrong(
            FFN + "moe_top_k", sheet.settings[FFN + "moe_top_k"], f"at most {count} experts"
        )
    cut = sheet.integer(FFN + "moe_world_size", into="ep", high=10**6)
    if cut is not None and cut.value > 1:
        draft.put("ep", cut)
    mega = kind.value != "torch_dmoe"
    shared = mega and _switch(sheet, "ffn_config.shared_expert", "a shared expert", False)
    wide = sheet.integer(FFN + "shared_expert_hidden_size", into="its width", high=10**8)
    common = (wide.value if wide else width) if shared else 0
    if kind.value == "mb_moe":
        draft.note("experts", "evenly loaded", "mb_moe drops what exceeds moe_capacity_factor")
    sheet.flag("grouped_gemm", FFN + "mlp_impl")
    draft.flag("expert_kernels", FFN + "ffn_type", kind.value, kind.line)
    return MoeMlp(
        experts=count,
        top_k=chosen,
        width=width,
        matrices=matrices,
        shared_width=common,
        router_params=count * shape.d_model,
        shared_bias_params=(
            shape.bias
            * (
                (shape.d_model if mega else 0)
                + (((matrices - 1) * common + shape.d_model) if shared else 0)
            )
        ),
    )
