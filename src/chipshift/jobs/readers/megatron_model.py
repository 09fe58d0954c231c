"""The model that Megatron-LM arguments describe, parameter by parameter.

Arguments and defaults: NVIDIA, Megatron-LM, megatron/training/arguments.py and
megatron/core/transformer/transformer_config.py, 2026-08.
"""

from __future__ import annotations

import re
from dataclasses import replace

from chipshift.errors import InputError
from chipshift.jobs.job import Given
from chipshift.jobs.near_value import near_text
from chipshift.jobs.readers.megatron_stages import noop_layers
from chipshift.jobs.readers.megatron_values import values
from chipshift.jobs.settings import Sheet, wrong
from chipshift.jobs.twin import twin
from chipshift.models.model import Attention, DenseMlp, Layer, Model, MoeMlp
from chipshift.models.preset import preset

TOKENIZERS = {
    "gpt2bpetokenizer": 50257,
    "llama2tokenizer": 32000,
    "llama3tokenizer": 128256,
}
"""Rows of the vocabulary by --tokenizer-type, where the type has only one."""

NULL = "NullTokenizer"
"""Megatron-LM's (training/tokenizer): --vocab-size rows, and one for the end of document."""
PATCHED = {
    **dict.fromkeys(("Qwen2Tokenizer", "Qwen3Tokenizer", "Qwen2VLTokenizer"), 151643),
    **dict.fromkeys(("LLamaTokenizer", "LLama2Tokenizer", "MistralTokenizer"), 32000),
    "MixtralTokenizer": 32000,
    "LLama3Tokenizer": 128000,
    "OPTTokenizer": 50265,
    "FalconTokenizer": 65024,
}
"""Entries of the tokenizers of --patch-tokenizer-type, to which --extra-vocab-size is added.

Source: Alibaba, Pai-Megatron-Patch, megatron_patch/tokenizer/__init__.py, 2025; each tokenizer's
own vocabulary on Hugging Face, without the tokens added to it.
"""


def build(sheet: Sheet) -> Given[Model]:
    """The model; its vocabulary unpadded (padding depends on tp and comes later).

    Raises:
        InputError: a size is missing, or the vocabulary cannot be told.
    """
    if "num-layers" not in sheet.settings:
        _refuse_hybrid(sheet)
    layers = _size(sheet, "num-layers", "layers", alias="decoder-num-layers")
    hidden = _size(sheet, "hidden-size", "model width")
    heads = _size(sheet, "num-attention-heads", "attention heads")
    gated = bool(sheet.boolean("swiglu", "quick-geglu", "geglu", into="gated feed-forward"))
    ffn = sheet.integer("ffn-hidden-size", into="feed-forward width")
    width = ffn.value if ffn else (hidden.value * 8 // 3 // 64 * 64 if gated else 4 * hidden.value)
    if ffn is None:
        rule = "8/3 of the width in steps of 64" if gated else "4 × the width"
        sheet.draft.note("feed-forward width", width, f"Megatron's default, {rule}")
    norm = sheet.text("normalization", into="norm", choices=("LayerNorm", "RMSNorm"))
    norm_params = hidden.value * (1 if norm and norm.value == "RMSNorm" else 2)
    bias = sheet.boolean("disable-bias-linear", into="no biases") is None
    attention = _attention(sheet, hidden.value, heads.value, bias, norm_params == hidden.value)
    dense = DenseMlp(width, 3 if gated else 2, _mlp_bias(width, hidden.value, gated) if bias else 0)
    sparse = _experts(sheet, hidden.value, width, gated, bias)
    kinds = _kinds(sheet, layers.value, sparse is not None)
    each = [*zip(kinds, _windowed(sheet, attention, layers.value), strict=True)]
    empty = noop_layers(sheet)
    order, runs = _order([one for at, one in enumerate(each) if at not in empty] or each)
    whole = replace(attention, window=None)
    made = tuple(
        (Layer(attention if near else whole, sparse if moe and sparse else dense, 2 * norm_params),
         count)
        for (moe, near), count in runs
    )  # fmt: skip
    learned = _positions(sheet)
    model = Model(
        name="megatron",
        architecture="megatron",
        d_model=hidden.value,
        vocab=1,
        layers=made,
        layer_order=order,
        tied=sheet.boolean("untie-embeddings-and-output-weights", into="untied head") is None,
        final_norm_params=norm_params,
        embedding_extra_params=learned * hidden.value,
        mtp_layers=_or(sheet.integer("mtp-num-layers", into="multi-token layers", low=0), 0),
        numerics=values(sheet, attention.kv_lora_rank is not None),
    )
    return Given(_with_vocabulary(sheet, model), hidden.file, hidden.line)


def _refuse_hybrid(sheet: Sheet) -> None:
    for key in ("hybrid-layer-pattern", "hybrid-override-pattern"):
        if key in sheet.settings:
            raise InputError(
                f"{sheet.settings[key].where}: --{key} lays out state-space layers, which are not "
                "read from Megatron arguments; expected --model with the model's config.json"
            )


def _size(sheet: Sheet, key: str, into: str, alias: str = "") -> Given[int]:
    keys = (key, alias) if alias else (key,)
    value = sheet.integer(*keys, into=into, high=10**7)
    if value is None:
        sheet.refuse_slip(key)
        kept = sheet.settings.get("use-checkpoint-args")
        if kept is not None:
            raise InputError(
                f"{kept.where}: --use-checkpoint-args takes --{key} from the checkpoint, which is "
                f"not read; expected --set {key}=N, or --model"
            )
        raise InputError(
            f"{sheet.draft.file} gives no {_spelt(sheet, key)}; expected it, --set {key}=N, or "
            "--model"
        )
    return value


def _or(value: Given[int] | None, default: int) -> int:
    return default if value is None else value.value


def _attention(sheet: Sheet, hidden: int, heads: int, bias: bool, rms: bool) -> Attention:
    if hidden % heads and "kv-channels" not in sheet.settings:
        raise InputError(
            f"{sheet.draft.file}: --hidden-size {hidden} is not a multiple of "
            f"--num-attention-heads {heads}; expected a multiple, or --kv-channels"
        )
    channels = _or(sheet.integer("kv-channels", into="head width", high=10**6), hidden // heads)
    qk_norm = sheet.boolean("qk-layernorm", into="norms on queries and keys") is not None
    window = _window(sheet)
    sinks = sheet.text("softmax-type", into="a learned sink a head")
    learned = heads if sinks is not None and sinks.value == "learnable" else 0
    if sheet.boolean("multi-latent-attention", into="multi-latent attention"):
        return _latent(sheet, heads, qk_norm)
    grouped = sheet.boolean("group-query-attention", into="grouped queries")
    groups = sheet.integer("num-query-groups", into="key/value heads", high=10**6)
    kv_heads = groups.value if grouped and groups else heads
    heads_known = ("multihead", "multiquery")  # BigCode's fork
    kind = near_text(sheet, "attention-head-type", into="key/value heads", known=heads_known)
    if kind is not None and kind.value.lower() == "multiquery":
        kv_heads = 1
    if groups and not grouped:
        sheet.draft.note(
            "key/value heads", heads, "--num-query-groups needs --group-query-attention"
        )
    if heads % kv_heads:
        raise InputError(
            f"{sheet.draft.file}: --num-attention-heads {heads} is not a multiple of "
            f"--num-query-groups {kv_heads}; expected a multiple"
        )
    qkv_bias = sheet.boolean("add-qkv-bias", into="biases on q, k, v") is not None
    biases = (heads + 2 * kv_heads) * channels if bias or qkv_bias else 0
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=channels,
        v_head_dim=channels,
        window=window,
        bias_params=biases + (hidden if bias else 0),
        norm_params=learned + ((2 if rms else 4) * channels if qk_norm else 0),
    )


def _window(sheet: Sheet) -> int | None:
    found = sheet.text("window-size", into="sliding window")
    if found is None:
        return None
    match = re.fullmatch(r"\(?\s*(\d{1,9})\s*(?:,.*)?", found.value)
    return int(match.group(1)) + 1 if match else None


def _windowed(sheet: Sheet, attention: Attention, layers: int) -> list[bool]:
    """For each layer whether its window is used: all but every n-th, or by a list of 0 and 1."""
    skip = sheet.text("window-attn-skip-freq", into="layers without a window")
    if attention.window is None or skip is None:
        return [True] * layers
    text = skip.value.strip("'\" ")
    if text.isdecimal() and int(text[:9]) > 0:
        return [number % int(text[:9]) != 0 for number in range(1, layers + 1)]
    listed = _pattern(text, layers)
    if listed is None or len(listed) != layers:
        setting = sheet.settings["window-attn-skip-freq"]
        expected = f"a number, or a list of {layers} zeros and ones"
        raise wrong("window-attn-skip-freq", setting, expected)
    return listed


def _latent(sheet: Sheet, heads: int, qk_norm: bool) -> Attention:
    queries = sheet.integer("q-lora-rank", into="rank of the queries", high=10**6)
    keys = _or(sheet.integer("kv-lora-rank", into="rank of keys and values", high=10**6), 32)
    own = ("qk-head-dim", "qk-nope-head-dim")  # the second ones are Pai's and MindSpeed's
    plain = _or(sheet.integer(*own, into="width without position", high=10**6), 128)
    own = ("qk-pos-emb-head-dim", "qk-rope-head-dim")
    rope = _or(sheet.integer(*own, into="rotary width", high=10**6), 64)
    value = _or(sheet.integer("v-head-dim", into="value width", high=10**6), 128)
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=plain + rope,
        v_head_dim=value,
        norm_params=(keys + (queries.value if queries else 0)) if qk_norm else 0,
        q_lora_rank=queries.value if queries else None,
        kv_lora_rank=keys,
        qk_rope_head_dim=rope,
    )


def _mlp_bias(width: int, hidden: int, gated: bool) -> int:
    return (2 if gated else 1) * width + hidden


def _experts(sheet: Sheet, hidden: int, width: int, gated: bool, bias: bool) -> MoeMlp | None:
    experts = sheet.integer("num-experts", into="experts", high=10**6)
    if experts is None:
        return None
    top_k = _or(sheet.integer("moe-router-topk", into="experts a token"), 2)
    if top_k > experts.value:
        raise InputError(
            f"{sheet.draft.file}: --moe-router-topk {top_k} exceeds --num-experts {experts.value}; "
            "expected at most that"
        )
    each = _or(sheet.integer("moe-ffn-hidden-size", into="width of an expert"), width)
    shared = sheet.integer("moe-shared-expert-intermediate-size", into="width of shared experts")
    # MindSpeed's count of shared experts, each as wide as a routed one.
    count = sheet.integer("n-shared-experts", into="shared experts", low=0, high=10**4)
    gate = sheet.boolean("moe-shared-expert-gate", into="a gate on the shared experts")
    return MoeMlp(
        experts=experts.value,
        top_k=top_k,
        width=each,
        matrices=3 if gated else 2,
        shared_width=_or(shared, _or(count, 0) * each),
        router_params=experts.value * hidden,
        shared_gate_params=hidden if gate else 0,
        expert_bias_params=_mlp_bias(each, hidden, gated) if bias else 0,
    )


def _kinds(sheet: Sheet, layers: int, moe: bool) -> list[bool]:
    """For each layer whether it has experts: ``--moe-layer-freq`` is a number or a list.

    MindSpeed's ``--first-k-dense-replace`` leaves the first layers dense, and its frequency of -1
    is every layer (Huawei, MindSpeed-LLM, tasks/models/transformer and its Qwen3 scripts, 2025).
    """
    frequency = sheet.text("moe-layer-freq", into="which layers have experts")
    first = sheet.integer("first-k-dense-replace", into="dense layers first", low=-1)
    dense = max(0, first.value) if first is not None else 0
    if layers > 100_000:
        raise InputError(f"{sheet.draft.file}: {layers} layers; expected at most 100000")
    if not moe:
        return [False] * layers
    text = frequency.value.strip("'\" ") if frequency is not None else "1"
    if text == "-1":
        text = "1"
    if text.isdecimal() and 0 < int(text[:9]) <= 10**6:
        return [at >= dense and at % int(text) == 0 for at in range(layers)]
    kinds = _pattern(text, layers)
    if kinds is None or len(kinds) != layers:
        key, setting = "moe-layer-freq", sheet.settings["moe-layer-freq"]
        raise wrong(key, setting, f"a number from 1, or a list of {layers} zeros and ones")
    return kinds


def _pattern(text: str, layers: int) -> list[bool] | None:
    """``([0]*3+[1]*58)`` and ``[0,1]*12`` without evaluating anything."""
    kinds: list[bool] = []
    for term in re.sub(r"[()\s]", "", text).split("+"):
        match = re.fullmatch(r"(?:(\d{1,6})\*)?\[([01](?:,[01])*),?\](?:\*(\d{1,6}))?", term)
        if match is None:
            return None
        times = int(match.group(1) or match.group(3) or 1)
        unit = [bit == "1" for bit in match.group(2).split(",")]
        if times * len(unit) > layers:
            return None
        kinds += unit * times
    return kinds


Kind = tuple[bool, bool]


def _order(kinds: list[Kind]) -> tuple[tuple[int, ...], list[tuple[Kind, int]]]:
    """(layer_order, [((has experts, uses its window), count)]) in order of first appearance."""
    seen = list(dict.fromkeys(kinds))
    order = tuple(seen.index(kind) for kind in kinds)
    return order, [(kind, kinds.count(kind)) for kind in seen]


POSITIONS = ("learned_absolute", "rope", "mrope", "yarn", "relative", "none", "alibi")
"""NVIDIA, Megatron-LM, arguments.py, ``--position-embedding-type``; ALiBi is of its forks."""


def _positions(sheet: Sheet) -> int:
    """Rows of a learned position embedding."""
    kind = near_text(sheet, "position-embedding-type", into="positions", known=POSITIONS)
    limit = sheet.integer("max-position-embeddings", into="longest sequence", high=10**9)
    rotary = sheet.boolean("use-rotary-position-embeddings", into="rotary positions")
    absent = sheet.boolean("no-position-embedding", into="no learned positions")
    learned = kind is None or kind.value == "learned_absolute"
    return limit.value if limit and learned and not rotary and not absent else 0


def _with_vocabulary(sheet: Sheet, model: Model) -> Model:
    """The vocabulary from --vocab-size, the tokenizer, or the preset of this shape."""
    stated = sheet.integer("vocab-size", "padded-vocab-size", into="vocabulary", high=10**8)
    tokenizer = sheet.raw("tokenizer-model") or sheet.raw("tokenizer-name-or-path")
    kind = sheet.raw("tokenizer-type")
    for found in (tokenizer, kind):
        if found is not None:
            sheet.record(found[0], found[1], "vocabulary")
    alike = twin(model, stated.value if stated else None)
    if stated:
        vocab = stated.value
        if kind and kind[1].value == NULL and "padded-vocab-size" not in sheet.settings:
            vocab += 1
            sheet.draft.note("vocabulary", vocab, f"{NULL} adds an end of document")
    elif (size := _patched(sheet)) is not None:
        vocab = size
        sheet.draft.note("vocabulary", size, "--patch-tokenizer-type's, and --extra-vocab-size")
    elif tokenizer and (size := _vocabulary_of(str(tokenizer[1].value))):
        vocab = size
        sheet.draft.note("vocabulary", size, f"that of the tokenizer {tokenizer[1].value}")
    elif _of_gpt2(sheet):
        vocab = TOKENIZERS["gpt2bpetokenizer"]
        sheet.draft.note("vocabulary", vocab, "GPT-2's, --vocab-file being given")
    elif alike is not None:
        vocab = alike.vocab
        why = f"that of {alike.name}, the model of this shape"
        if tokenizer is not None and isinstance(tokenizer[1].value, str):
            why += f"; {tokenizer[1].value} may have another (--set vocab-size=N)"
        sheet.draft.note("vocabulary", vocab, why)
    elif kind and str(kind[1].value).lower() in TOKENIZERS:
        vocab = TOKENIZERS[str(kind[1].value).lower()]
        sheet.draft.note("vocabulary", vocab, f"that of {kind[1].value}")
    elif "vocab-file" in sheet.settings and kind is None:
        vocab = TOKENIZERS["gpt2bpetokenizer"]
        sheet.draft.note("vocabulary", vocab, "GPT-2's, --vocab-file being given")
    else:
        named = tokenizer or kind
        value = "without a value" if named and named[1].value is True else named and named[1].value
        said = f" ({named[0]} is {value})" if named is not None else ""
        raise InputError(
            f"{sheet.draft.file} does not tell the vocabulary{said}; expected "
            f"{_spelt(sheet, 'vocab-size')} in it or --set vocab-size=N"
        )
    alike = twin(model, stated.value if stated else vocab)
    if alike is not None:
        return replace(model, name=alike.name, vocab=vocab)
    return replace(model, name=f"megatron-{model.n_layers}x{model.d_model}", vocab=vocab)


def _spelt(sheet: Sheet, key: str) -> str:
    """A key as the file's own format spells it."""
    return key.replace("-", "_") if sheet.draft.format == "nemo" else f"--{key}"


def _patched(sheet: Sheet) -> int | None:
    """Pai-Megatron-Patch's way of saying a vocabulary; None where it is not used."""
    kind = sheet.raw("patch-tokenizer-type")
    more = sheet.integer("extra-vocab-size", into="rows added to the vocabulary", low=0)
    if kind is None or more is None or str(kind[1].value) not in PATCHED:
        return None
    sheet.record(*kind, "vocabulary")
    return PATCHED[str(kind[1].value)] + more.value


def _of_gpt2(sheet: Sheet) -> bool:
    """``--vocab-file gpt2-vocab.json``, with its own tokenizer or with none named."""
    file, kind = sheet.settings.get("vocab-file"), sheet.settings.get("tokenizer-type")
    own = kind is None or str(kind.value).lower() == "gpt2bpetokenizer"
    return own and file is not None and "gpt2" in str(file.value).rsplit("/", 1)[-1].lower()


def _vocabulary_of(tokenizer: str) -> int | None:
    # a hub's cache: .../models--Qwen--Qwen2.5-7B-Instruct/snapshots/a09a354
    kept = re.search(r"models--([\w.-]+?)--([\w.-]+)", tokenizer)
    try:
        return preset(f"{kept[1]}/{kept[2]}" if kept else tokenizer).vocab
    except InputError:
        return None
