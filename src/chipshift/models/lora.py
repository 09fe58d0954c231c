"""Low-rank adapters from a PEFT config: which parameters are trained, and how many.

Matching and shapes as PEFT 0.21 has them (peft/tuners/lora). Whether the frozen weights are
quantised (QLoRA) is not in this file and changes no count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chipshift.errors import InputError, nearest
from chipshift.models.count import layer_params, params
from chipshift.models.fields import Fields, lines_in
from chipshift.models.hf import load_keys
from chipshift.models.model import Model, MoeMlp
from chipshift.models.modules import LinearModule, linear_modules, naming
from chipshift.models.saved import saved_params, token_rows
from chipshift.worked import formula

ALL_LINEAR = "all-linear"
USUAL = {
    "bloom": ("query_key_value",),
    "codegen": ("qkv_proj",),
    "falcon": ("query_key_value",),
    "gpt2": ("c_attn",),
    "gpt_bigcode": ("c_attn",),
    "gpt_neox": ("query_key_value",),
    "mpt": ("Wqkv",),
    "nemotron_h": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "phi": ("q_proj", "v_proj", "fc1", "fc2"),
}
"""Targets where the config names none; q and v elsewhere."""

_EXPERTS = {
    "gate": "gate.weight",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
    "down_proj": "down_proj",
}
_MIXTRAL = {"gate": "gate.weight", "w1": "gate_up_proj", "w3": "gate_up_proj", "w2": "down_proj"}
RENAMED: dict[str, dict[str, str]] = {
    **dict.fromkeys(("minimax", "minimax_m2", "mixtral"), _MIXTRAL),
    **dict.fromkeys(
        (
            "deepseek_v2",
            "deepseek_v3",
            "deepseek_v32",
            "dots1",
            "ernie4_5_moe",
            "exaone_moe",
            "glm4_moe",
            "glm4_moe_lite",
            "glm_moe_dsa",
            "hunyuan_v1_moe",
            "olmoe",
            "qwen3_moe",
            "qwen3_next",
        ),
        _EXPERTS,
    ),
}
"""Names of experts' maps as checkpoints have them, and the stacked parameters they are in now.

PEFT moves such a target over to the parameter, and so off the dense maps of the same name.
"""
BIASED_NORMS = frozenset(
    {"bloom", "codegen", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj"}
    | {"nemotron", "opt", "phi", "phimoe", "stablelm", "starcoder2"}
)
"""Families whose norms have a bias, half of their parameters."""


@dataclass(frozen=True)
class Lora:
    """A low-rank adapter.

    Attributes:
        targets: module names (the end of a path), or a regular expression for whole paths as the
            only item with ``pattern`` true, or ``all-linear``; empty for the family's usual.
        parameters: stacked parameters (experts) that get one too.
        saved: modules trained in full beside it.
        token_rows: ``(table, rows)`` of tables of which some rows are trained, the table "" for
            the embedding.
        layers: the only layers that get one, empty for all.
        exclusion: pattern of the paths that are left out, where it is one string.
        ranks: ``(pattern, rank)`` for paths whose rank is another.
        bias: ``none``, ``all``, ``lora_only``.
        dora: magnitudes are trained apart.
        own_bias: adapters have a bias of their own, on the way up.
    """

    rank: int = 8
    targets: tuple[str, ...] = ()
    pattern: bool = False
    excluded: tuple[str, ...] = ()
    exclusion: str = ""
    parameters: tuple[str, ...] = ()
    saved: tuple[str, ...] = ()
    layers: tuple[int, ...] = ()
    ranks: tuple[tuple[str, int], ...] = ()
    bias: str = "none"
    dora: bool = False
    own_bias: bool = False
    token_rows: tuple[tuple[str, tuple[int, ...]], ...] = ()


@formula(unit="parameter", source="Hu et al. 2021, LoRA: A is r × inputs and B outputs × r")
def lora_params(rank: int, inputs: int, outputs: int, copies: int) -> int:
    """r·(inputs + outputs) for each of the stacked maps."""
    return rank * (inputs + outputs) * copies


def read_lora(
    source: str | Path | Mapping[str, Any],
    name: str = "adapter_config",
    lines: Mapping[str, int] | None = None,
) -> Lora:
    """The adapter of an ``adapter_config.json`` (file, folder or keys, then called ``name``).

    Raises:
        InputError: it cannot be read, is of another kind than LoRA, or a key is wrong.
    """
    if isinstance(source, Mapping):
        c = Fields(name, source, line_of=(lines or {}).get)
    else:
        path = Path(source)
        path = path / "adapter_config.json" if path.is_dir() else path
        keys = load_keys(path, "a PEFT adapter_config.json")
        c = Fields(str(path), keys, line_of=lines_in(path))
    kind = c.text("peft_type", default="LORA")
    if kind.upper() != "LORA":
        raise c.wrong("peft_type", "LORA; other adapters are not counted")
    targets, pattern = _names(c, "target_modules")
    if pattern and targets == (ALL_LINEAR,):
        pattern = False
    if pattern:
        _compiled(c, "target_modules", targets[0])
    excluded, one_string = _names(c, "exclude_modules")
    if one_string:
        _compiled(c, "exclude_modules", excluded[0])
    ranks = c.values.get("rank_pattern") or {}
    if not isinstance(ranks, Mapping):
        raise c.wrong("rank_pattern", "an object of patterns and ranks")
    for key in ranks:
        _compiled(c, "rank_pattern", str(key))
    inner = c.part("rank_pattern") if ranks else c
    layers = c.values.get("layers_to_transform")
    if layers is not None and isinstance(c.values.get("target_modules"), str):
        raise c.wrong("layers_to_transform", "null: target_modules is one string, which has none")
    if c.has("layer_replication"):
        raise c.wrong("layer_replication", "null: a model of repeated layers is not counted")
    one = isinstance(layers, int) and not isinstance(layers, bool)
    numbers = [c.count("layers_to_transform", least=0)] if one else c.counts("layers_to_transform")
    saved = _names(c, "modules_to_save")[0]
    if "" in saved:
        raise c.wrong("modules_to_save", "names of modules, none of them empty")
    read = Lora(
        rank=c.count("r", default=8, most=1_000_000),
        targets=targets,
        pattern=pattern,
        excluded=() if one_string else excluded,
        exclusion=excluded[0] if one_string else "",
        parameters=_names(c, "target_parameters")[0],
        saved=saved,
        layers=tuple(numbers),
        ranks=tuple((str(key), inner.count(str(key), most=1_000_000)) for key in ranks),
        bias=c.text("bias", default="none", choices=("none", "all", "lora_only")),
        dora=c.flag("use_dora", default=False),
        own_bias=c.flag("lora_bias", default=False),
        token_rows=_token_rows(c),
    )
    c.asked.update(LISTS)
    c.refuse_slips()
    return read


LISTS = ("target_modules", "exclude_modules", "target_parameters", "modules_to_save")


def _names(c: Fields, key: str) -> tuple[tuple[str, ...], bool]:
    """(names, whether it was one string)."""
    value = c.values.get(key)
    if value is None:
        return (), False
    if isinstance(value, str):
        return (value,), True
    if isinstance(value, (list, tuple, set)) and all(isinstance(v, str) for v in value):
        return tuple(value), False
    raise c.wrong(key, "names of modules")


def _token_rows(c: Fields) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Tables of which some rows are trained, by name; a list is of the embedding's."""
    key, value = "trainable_token_indices", c.values.get("trainable_token_indices")
    c.asked.add(key)
    if value is None:
        return ()
    tables = value if isinstance(value, Mapping) else {"": value}
    if not all(isinstance(rows, (list, tuple)) for rows in tables.values()):
        raise c.wrong(key, "a list of tokens, or one for each table")
    for rows in tables.values():
        whole = all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in rows)
        if not whole or len(set(rows)) < len(rows):
            raise c.wrong(key, "distinct whole numbers from 0")
    if isinstance(value, Mapping) and "" in value:
        raise c.wrong(key, "names of tables, none of them empty")
    return tuple((str(name), tuple(rows)) for name, rows in tables.items())


def _compiled(c: Fields, key: str, pattern: str) -> None:
    if len(pattern) > 1000:
        raise c.wrong(key, "a pattern of at most 1,000 characters")
    try:
        re.compile(pattern)
    except re.error:
        raise c.wrong(key, "a regular expression") from None


def _named(path: str, names: tuple[str, ...]) -> bool:
    """Whether a path is one of the names or ends in one."""
    return any(path == name or path.endswith(f".{name}") for name in names)


def _within(path: str, names: tuple[str, ...]) -> bool:
    """Whether a module is one of the names or inside one."""
    return any(f".{name}." in f".{path}." for name in names)


def _rank(model: Model, lora: Lora, path: str) -> int:
    """The rank at a path; a fused pair of experts' maps has the rank of both."""
    if path.endswith("gate_up_proj") and "experts" in path and model.architecture in RENAMED:
        named = {target.rsplit(".", 1)[-1] for target in lora.targets}
        if lora.targets == (ALL_LINEAR,) or named & set(RENAMED[model.architecture]):
            return 2 * lora.rank
    for pattern, rank in lora.ranks:
        if re.match(rf"(.*\.)?({pattern})$", path):
            return rank
    return lora.rank


def adapted(model: Model, lora: Lora) -> list[LinearModule]:
    """The maps that get an adapter, stacked ones (experts) among them; the ends at the end.

    Raises:
        InputError: a target names no module of the model.
    """
    names = naming(model)
    width = model.embedding_width or model.d_model
    ends = [
        LinearModule(names.embedding, -1, model.vocab, width),
        LinearModule(names.head, -1, width, model.logits, bias=model.head_bias_params),
    ]
    inside = linear_modules(model)
    modules = [m for m in inside if not m.stacked]
    # stacked parameters named alone are all that is adapted
    targets = lora.targets or (() if lora.parameters else _usual(model, modules))
    if targets == (ALL_LINEAR,):
        targets = tuple(_ends(modules)) + tuple(RENAMED.get(model.architecture, ()))
    elif not lora.pattern and not lora.parameters:
        _refuse_unknown(model, targets, [*modules, *ends])
    targets, parameters = _moved(model, lora, targets)
    if lora.pattern:
        chosen = [m for m in [*modules, *ends] if re.fullmatch(targets[0], m.name)]
    else:
        chosen = [m for m in [*modules, *ends] if _named(m.name, targets)]
    if lora.layers:
        whole = set(targets)  # a whole path is a target whatever its layer
        chosen = [m for m in chosen if m.layer in lora.layers or m.name in whole]
    chosen = [m for m in chosen if not _named(m.name, lora.excluded)]
    chosen = [m for m in chosen if not _within(m.name, lora.saved)]
    if lora.exclusion:
        chosen = [m for m in chosen if not re.fullmatch(lora.exclusion, m.name)]
    chosen += [m for m in inside if m.stacked and _named(m.name, parameters)]
    if not chosen:
        raise InputError(
            f"no module of {model.name or model.architecture} is a target of the adapter;"
            f" its modules end in {', '.join(_ends([*modules, *ends]))}"
        )
    return chosen


def _usual(model: Model, modules: list[LinearModule]) -> tuple[str, ...]:
    """What is adapted where the config names nothing.

    Raises:
        InputError: the family has no such targets.
    """
    targets = USUAL.get(model.architecture, ("q_proj", "v_proj"))
    if not any(_named(m.name, targets) for m in modules):
        raise InputError(
            f"no target_modules are named, and {model.architecture} has none by default;"
            f" its modules end in {', '.join(_ends(modules))}"
        )
    return targets


def _moved(
    model: Model, lora: Lora, targets: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(targets that stay modules, stacked parameters), experts' maps moved from one to the other.

    Raises:
        InputError: one half of a fused map is a target and the other is not.
    """
    renamed = RENAMED.get(model.architecture, {})
    if lora.pattern or not renamed:
        return targets, lora.parameters
    last = [target.rsplit(".", 1)[-1] for target in targets]
    moved = [name for name in last if name in renamed]
    halves = [name for name, into in renamed.items() if into == "gate_up_proj"]
    if 0 < sum(half in moved for half in halves) < len(halves):
        raise InputError(
            f"target_modules names one of {' and '.join(halves)}, which are one parameter in"
            f" {model.name or model.architecture}; expected both or neither"
        )
    stay = tuple(t for t, name in zip(targets, last, strict=True) if name not in renamed)
    return stay, (*lora.parameters, *dict.fromkeys(renamed[name] for name in moved))


def _ends(modules: list[LinearModule]) -> list[str]:
    return list(dict.fromkeys(m.name.rsplit(".", 1)[-1] for m in modules))


def _refuse_unknown(model: Model, targets: tuple[str, ...], modules: list[LinearModule]) -> None:
    renamed = RENAMED.get(model.architecture, {})
    known = [*_ends(modules), *renamed]
    if not any(target.rsplit(".", 1)[-1] in renamed for target in targets) and not any(
        _named(m.name, targets) for m in modules
    ):
        raise InputError(
            f"target_modules names {', '.join(targets)}, of which {model.name or 'the model'} has"
            f" none{nearest(targets[0], known)}; its modules end in {', '.join(known)}"
        )


def trainable_params(model: Model, lora: Lora) -> int:
    """Parameters that are trained: the adapters', biases where asked, modules saved in full."""
    modules = adapted(model, lora)
    total = sum(
        lora_params(_rank(model, lora, m.name), m.inputs, m.outputs, m.copies) for m in modules
    )
    total += sum(m.outputs * m.copies for m in modules) * (lora.dora + lora.own_bias)
    total += saved_params(model, lora.saved) + token_rows(model, lora.token_rows, lora.saved)
    names = naming(model)
    width = model.embedding_width or model.d_model
    head_saved = _head_saved(model, lora)
    total += model.vocab * width * names.embedding.endswith(lora.saved)
    total += (model.logits * width + model.head_bias_params) * head_saved
    if lora.bias == "all":
        total += _biases(model) - model.head_bias_params * head_saved
    if lora.bias == "lora_only":
        total += sum(m.bias for m in modules)
    return total


def _head_saved(model: Model, lora: Lora) -> bool:
    """Whether the head is trained in full: where it is asked for, and always a scalar one."""
    return model.head_outputs is not None or naming(model).head.endswith(lora.saved)


def _biases(model: Model) -> int:
    """All biases: of maps, of routers, of norms, of the head."""
    total = model.head_bias_params
    for layer, n in model.layers:
        total += layer_params(layer, model.d_model).biases * n
        if model.architecture in BIASED_NORMS:
            total += layer.norm_params // 2 * n
            if layer.attention is not None and model.architecture == "phi":
                total += layer.attention.norm_params // 2 * n
        if isinstance(layer.mlp, MoeMlp):
            # the experts' own are parameters of another name, which PEFT passes over
            total += (layer.mlp.router_params - layer.mlp.experts * model.d_model) * n
    if model.architecture in BIASED_NORMS:
        total += model.final_norm_params // 2
    return total


@dataclass(frozen=True)
class Share:
    """Trained parameters, all of them (the adapter's included), and the one over the other."""

    trainable: int
    total: int

    @property
    def fraction(self) -> float:
        return self.trainable / self.total


def share(model: Model, lora: Lora) -> Share:
    """What part of an adapted model is trained."""
    trained = trainable_params(model, lora)
    return Share(trained, params(model) + trained)


def matmul_share(model: Model, lora: Lora) -> Share:
    """What part of the model's matmul parameters is trained: adapters, and a head saved in full.

    ``total`` is every linear map and the head. An embedding saved in full, biases and magnitudes
    are trained too and multiply nothing: they are in ``trainable_params``.
    """
    adapters = sum(
        lora_params(_rank(model, lora, m.name), m.inputs, m.outputs, m.copies)
        for m in adapted(model, lora)
    )
    head = model.logits * (model.embedding_width or model.d_model) * model.has_head
    saved = head * _head_saved(model, lora)
    maps = sum(m.inputs * m.outputs * m.copies for m in linear_modules(model))
    return Share(adapters + saved, maps + head)
