"""A hub's model whose numbers a script alters: ``cfg.model.num_layers = 4`` after a recipe.

Fields of Megatron Core's configs and the keys of a Hugging Face config that they equal: NVIDIA,
Megatron-Bridge, src/megatron/bridge/models/conversion/model_bridge.py (CONFIG_MAPPING), 2026-08.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Ignored, Understood
from chipshift.jobs.readers.megatron_core import RENAMED
from chipshift.jobs.settings import Setting, as_boolean, as_integer, wrong
from chipshift.models.model import Model

EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")

KEYS: Mapping[str, tuple[str, ...]] = {
    "num-layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden-size": ("hidden_size", "n_embd", "d_model"),
    "ffn-hidden-size": ("intermediate_size", "n_inner", "ffn_dim"),
    "num-attention-heads": ("num_attention_heads", "n_head"),
    "num-query-groups": ("num_key_value_heads", "num_kv_heads"),
    "kv-channels": ("head_dim",),
    "vocab-size": ("vocab_size",),
    "num-experts": EXPERTS,
    "moe-router-topk": ("num_experts_per_tok", "moe_topk"),
    "moe-ffn-hidden-size": ("moe_intermediate_size", "intermediate_size"),
    "moe-shared-expert-intermediate-size": ("shared_expert_intermediate_size",),
    "q-lora-rank": ("q_lora_rank",),
    "kv-lora-rank": ("kv_lora_rank",),
    "qk-head-dim": ("qk_nope_head_dim",),
    "qk-pos-emb-head-dim": ("qk_rope_head_dim",),
    "v-head-dim": ("v_head_dim",),
    "window-size": ("sliding_window",),
    "share-embeddings-and-output-weights": ("tie_word_embeddings",),
    "mtp-num-layers": (),
    "moe-layer-freq": (),
    "hybrid-layer-pattern": ("hybrid_override_pattern",),
    "hybrid-override-pattern": ("hybrid_override_pattern",),
    "mamba-num-heads": ("mamba_num_heads",),
    "mamba-head-dim": ("mamba_head_dim",),
    "mamba-state-dim": ("ssm_state_size",),
    "mamba-num-groups": ("n_groups", "mamba_n_groups"),
}
"""A field's argument → the keys of a config, the first that the config has being meant."""

OPTIONAL = frozenset({"head_dim", "tie_word_embeddings", "sliding_window", "num_key_value_heads"})
"""Keys that a config may leave out and that may be added to it."""

FIELDS = frozenset(name.replace("-", "_") for name in KEYS)
OTHER = frozenset(
    {
        *("qk_layernorm", "add_qkv_bias", "qkv_bias", "add_bias_linear", "gated_linear_unit"),
        *("normalization", "multi_latent_attention", "position_embedding_type"),
    }
)
"""Fields that alter a model in ways no number of its config says."""

ODD = (
    *("qk-layernorm", "add-qkv-bias", "add-bias-linear", "gated-linear-unit"),
    *("normalization", "multi-latent-attention", "position-embedding-type"),
)
"""The arguments of those."""

SHAPE = FIELDS | OTHER
"""Every field that is of the model and not of how it is trained."""

ELSEWHERE = re.compile(r"tokenizer|data|optim|sched|valid|eval|teacher|generat|infer", re.I)


def is_shape(path: str, key: str) -> bool:
    """Whether an assignment is to a field of the model, and not one of the same name elsewhere."""
    return key in SHAPE and ELSEWHERE.search(path.rpartition(".")[0]) is None


def put_shape(settings: dict[str, Setting], key: str, setting: Setting) -> None:
    """A field of the model as an argument; None takes back what was set before it."""
    argument = RENAMED.get(key, key.replace("_", "-"))
    off = setting.value is None or setting.value is False
    if key == "mtp_num_layers" and off:
        settings[argument] = Setting(0, setting.file, setting.line)
    elif setting.value is None:
        settings.pop(argument, None)
    else:
        settings[argument] = setting


def as_arguments(settings: dict[str, Setting]) -> None:
    """The fields of a model that no hub names, as Megatron-LM's arguments say them."""
    for field, argument, said in SWITCHES:
        setting = settings.pop(field, None)
        if setting is not None and as_boolean(setting.value) is said:
            settings[argument] = Setting(True, setting.file, setting.line)
    groups = settings.get("num-query-groups")
    if groups is not None:
        settings["group-query-attention"] = Setting(True, groups.file, groups.line)
    if settings.get("mtp-num-layers", Setting(1, "")).value == 0:
        settings.pop("mtp-num-layers")


SWITCHES = (
    ("gated-linear-unit", "swiglu", True),
    ("add-bias-linear", "disable-bias-linear", False),
    ("share-embeddings-and-output-weights", "untie-embeddings-and-output-weights", False),
    ("add-qkv-bias", "add-qkv-bias", True),
    ("qk-layernorm", "qk-layernorm", True),
    ("multi-latent-attention", "multi-latent-attention", True),
)
"""A field, the argument that stands for it, and the value at which that is given."""


def altered_model(
    draft: Draft, context: Context, name: str, settings: dict[str, Setting]
) -> Model | None:
    """The model of that name with the script's own numbers; None where the name is not known.

    A ``config.json`` beside the script stands in for the hub's. What is taken leaves ``settings``.

    Raises:
        InputError: a number that a model cannot have.
    """
    mine = {key: settings.pop(key) for key in [*KEYS, *ODD] if key in settings}
    base = _config(context, name, altered=bool(mine))
    if base is None:
        settings.update(mine)
        return None
    keys, called = base
    inner = keys.get("text_config")
    text: Mapping[str, Any] = inner if isinstance(inner, Mapping) else keys
    changes: dict[str, Any] = {}
    mtp: int | None = None
    for argument, setting in mine.items():
        if argument == "mtp-num-layers":
            mtp = _integer(argument, setting, low=0)
        elif not _change(draft, changes, text, argument, setting):
            continue
        understood = Understood(
            argument.replace("-", "_"), _shown(setting), setting.file, setting.line, "the model"
        )
        draft.understood.append(understood)
    _resize(changes, text)
    return _built(keys, changes, called, mtp, mine)


def _built(
    keys: Mapping[str, Any],
    changes: dict[str, Any],
    called: str,
    mtp: int | None,
    mine: Mapping[str, Setting],
) -> Model:
    from chipshift.models.hf import read_config

    whole = {**keys, **changes}
    if isinstance(keys.get("text_config"), Mapping):
        whole = {**keys, "text_config": {**keys["text_config"], **changes}}
    same = all(keys.get(key) == value for key, value in changes.items())
    try:
        model = read_config(whole, name=called if same else f"{called}-altered")
    except InputError as error:
        where = next(iter(mine.values())).where if mine else called
        raise InputError(f"{where}: the model's keys: {error}") from None
    model = replace(model, defaults=())
    return model if mtp is None else replace(model, mtp_layers=mtp)


def _config(context: Context, name: str, altered: bool) -> tuple[Mapping[str, Any], str] | None:
    """Keys of the config beside, or of the shipped model of that name, and what to call it."""
    from chipshift.jobs.json_lines import parse
    from chipshift.jobs.recognise import recognise
    from chipshift.models.preset import keys_of

    for base, source in context.beside.items() if altered else ():
        if base.endswith(".json") and recognise(source) == "hf_config":
            tree = parse(source)[0]
            if isinstance(tree, Mapping):
                context.consumed.add(base)
                return tree, name.rsplit("/", 1)[-1] or "model"
    try:
        return keys_of(name)
    except InputError:
        return None


def _change(
    draft: Draft,
    changes: dict[str, Any],
    text: Mapping[str, Any],
    argument: str,
    setting: Setting,
) -> bool:
    """Note one changed key; False, with the reason said, where the config cannot say it."""
    if argument in ODD:
        return _odd(draft, text, argument, setting)
    if argument == "moe-layer-freq":
        dense = _leading_dense(setting.value)
        if dense is not None and "first_k_dense_replace" in text:
            changes["first_k_dense_replace"] = dense
            return True
        return _unsaid(draft, argument, setting, "which layers have experts is the config's own")
    key = next((one for one in KEYS[argument] if one in text), "")
    if not key and KEYS[argument][0] in OPTIONAL:
        key = KEYS[argument][0]
    if not key:
        return _unsaid(draft, argument, setting, f"{text.get('model_type', 'the model')} has none")
    if argument == "share-embeddings-and-output-weights":
        changes[key] = as_boolean(setting.value)
    elif argument.startswith("hybrid"):
        changes[key] = str(setting.value)
        changes["num_hidden_layers"] = len(str(setting.value))
    elif argument == "window-size" and isinstance(setting.value, list):
        changes[key] = as_integer(setting.value[0]) if setting.value else None
    else:
        changes[key] = _integer(argument, setting)
    return True


def _odd(draft: Draft, text: Mapping[str, Any], argument: str, setting: Setting) -> bool:
    """A field that no key of a config says; the model's own value may be the same."""
    alike = {
        "normalization": ("RMSNorm",) if "rms_norm_eps" in text else ("LayerNorm",),
        "position-embedding-type": ("rope", "yarn"),
        "gated-linear-unit": (True,),
        "multi-latent-attention": ("kv_lora_rank" in text,),
        "qk-layernorm": (text.get("model_type") in NORMED,),
        "add-bias-linear": (False,),
        "add-qkv-bias": (text.get("model_type") in ("qwen2", "qwen2_moe", "glm4_moe"),),
    }[argument]
    if setting.value in alike:
        return True
    return _unsaid(draft, argument, setting, "no key of the model's config says it")


NORMED = ("qwen3", "qwen3_moe", "qwen3_next", "gemma3", "gemma3_text", "olmoe", "deepseek_v3")
"""Models that normalise queries and keys."""


def _unsaid(draft: Draft, argument: str, setting: Setting, why: str) -> bool:
    key = argument.replace("-", "_")
    whole = f"{why}; a config.json of the model as it is trained settles it (--model)"
    draft.ignored.append(Ignored(key, setting.file, setting.line, True, whole))
    return False


def _leading_dense(value: Any) -> int | None:
    """``[0, 0, 0, 1, 1 ...]`` and ``1`` as the number of dense layers before the sparse."""
    if as_integer(value) == 1:
        return 0
    if not isinstance(value, list) or any(one not in (0, 1) for one in value) or 1 not in value:
        return None
    dense = value.index(1)
    return dense if all(value[dense:]) else None


def _integer(argument: str, setting: Setting, low: int = 1) -> int:
    value = as_integer(setting.value)
    if value is None or not low <= value <= 10**8:
        raise wrong(argument.replace("-", "_"), setting, f"a whole number from {low}")
    return value


def _resize(changes: dict[str, Any], text: Mapping[str, Any]) -> None:
    """Lists with an entry a layer take the new number of layers, their pattern going on."""
    layers = changes.get("num_hidden_layers")
    old = as_integer(text.get("num_hidden_layers"))
    if not isinstance(layers, int) or old is None or layers == old:
        return
    for key, value in text.items():
        if isinstance(value, list) and len(value) == old and key not in changes:
            changes[key] = [value[at % old] for at in range(layers)]
        elif isinstance(value, list) and key == "mlp_only_layers":
            changes[key] = [at for at in value if isinstance(at, int) and at < layers]


def _shown(setting: Setting) -> str:
    text = str(setting.value)
    return text if len(text) <= 60 else text[:57] + "..."
