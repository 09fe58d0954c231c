"""What follows from several files together: the open axis, the dtypes, the share trained.

A training script says ``bf16``, the launcher's file says FSDP, DeepSpeed's says ZeRO-2: only all
of them together say in which dtype weights, gradients and moments are held.

Sources: Hugging Face, Accelerate, "Fully Sharded Data Parallel" (mixed precision and upcasting)
and "DeepSpeed" pages, 2026; DeepSpeed, "DeepSpeed Configuration JSON", 2026; PyTorch, "FullyShard"
and "Automatic Mixed Precision" pages, 2026.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Assumed, Given, Ignored, Stated, restated
from chipshift.models.adapters import Adapters, adapters_of
from chipshift.models.count import params
from chipshift.models.lora import RENAMED, Lora, matmul_share, trainable_params
from chipshift.models.model import Attention, DenseMlp, Model, MoeMlp
from chipshift.models.module_names import NAMINGS
from chipshift.models.modules import linear_modules, naming
from chipshift.models.saved import saved_beside
from chipshift.models.trained import trained_share
from chipshift.units import GIB


def settle(draft: Draft) -> None:
    """Turn the words that several files share into degrees, dtypes and shares."""
    _sharding(draft)
    if draft.get("engine") in ("fsdp", "deepspeed") or draft.get("sharding") == "ddp":
        draft.assume("mixed", "no", "neither the launcher nor the Trainer names a mixed precision")
    if "mixed" in draft.values or "loaded" in draft.values:
        _dtypes(draft)
    _adapters(draft)
    _frozen(draft)
    _say_offload(draft)
    _pad(draft)
    _second_copy(draft)
    _ring_of_rest(draft)
    for name in ("mixed", "loaded", "engine", "sharding", "shard_group", "lora"):
        draft.values.pop(name, None)
    for name in ("quantised", "vocab_step", "second_copy", "ring_of_rest"):
        draft.values.pop(name, None)


def _ring_of_rest(draft: Draft) -> None:
    """ms-swift deals heads over as many devices as also divide the key/value heads, and passes
    keys and values round a ring of the rest.

    Source: ModelScope, ms-swift, trainers/sequence_parallel/ulysses.py, 2026.
    """
    stated, model = draft.values.get("ring_of_rest"), draft.get("model")
    if stated is None or model is None:
        return
    kv_heads = [layer.attention.kv_heads for layer, _ in model.layers if layer.attention]
    degree = math.gcd(stated.value, *kv_heads)
    if degree == 1:
        draft.put("cp_kind", restated(stated, "ring"))
    elif degree < stated.value:
        draft.put("ulysses_degree", restated(stated, degree))
    if degree < stated.value:
        why = f"the key/value heads can be dealt over {degree} of {stated.value} devices"
        draft.note("ring of cp", stated.value // degree, why)


def _second_copy(draft: Draft) -> None:
    """ZeRO++'s hpZ: what it adds to memory and spares in traffic, which the estimate leaves out.

    Source: DeepSpeed, "ZeRO++" tutorial, 2026: a secondary bf16 partition in each group, from
    which the backward pass gathers.
    """
    group, model = draft.get("second_copy"), draft.get("model")
    if group is None or model is None:
        return
    extra = params(model) * 2 / group / GIB
    why = (
        f"a second bf16 copy over each {group} devices adds {extra:.1f} GiB a device and keeps the "
        "backward gather, a third of ZeRO-3's traffic, inside them; not in the estimate"
    )
    draft.note("hpZ", group, why)


def _pad(draft: Draft) -> None:
    """Rows that the framework adds to the vocabulary: they are parameters, and work."""
    step, stated = draft.get("vocab_step"), draft.values.get("model")
    if step is None or stated is None:
        return
    model: Model = stated.value
    unit = step * (draft.get("tp") or 1)
    if rows := -model.vocab % unit:
        padded = replace(model, vocab=model.vocab + rows)
        draft.put("model", replace(stated, value=padded))
        why = f"{model.vocab:,} and {rows} rows added to make it a multiple of {unit}"
        draft.note("vocabulary with its padding", f"{padded.vocab:,}", why)


def _sharding(draft: Draft) -> None:
    """The axis that takes the rest of the devices, and what is sharded over it."""
    stated = draft.values.get("sharding")
    if stated is None or draft.open_axis:
        return
    kind = stated.value
    if kind in ("fsdp", "zero3"):
        _open(draft, "fsdp", stated)
    elif kind == "hybrid":
        group = draft.values.get("shard_group") or draft.values.get("devices_per_node")
        if group is None:
            draft.note("devices a shard group", 8, "hybrid sharding stays in a node of 8")
        draft.put("fsdp", restated(stated, group.value if group is not None else 8))
        _open(draft, "dp", stated)
    else:
        _open(draft, "dp", stated)
        if kind in ("zero1", "zero2"):
            draft.put("optimizer_sharding", restated(stated, kind))
    if isinstance(stated, Assumed):
        draft.note("data parallelism", kind, stated.why)


def _open(draft: Draft, axis: str, stated: Stated[Any]) -> None:
    if draft.given(axis):
        return
    draft.put(axis, restated(stated, 1))
    draft.open_axis = axis


def _dtypes(draft: Draft) -> None:
    """Dtypes of every copy, from mixed precision, how weights are held, and what shards them."""
    mixed, loaded = draft.values.get("mixed"), draft.values.get("loaded")
    sharding = draft.get("sharding") or "ddp"
    engine = draft.get("engine") or ""
    narrow = mixed.value if mixed is not None and mixed.value != "no" else ""
    held = loaded.value if loaded is not None else "fp32"
    compute = narrow or held
    half = "bf16" if compute in ("fp8", "bf16") else compute
    if engine == "deepspeed" and narrow:
        why = f"DeepSpeed keeps {half} weights and gradients, fp32 master weights and moments"
        made = _copies(half, half, half, "fp32", "fp32")
    elif engine == "megatron" and narrow:
        sums = "fp16" if half == "fp16" else "fp32"
        why = (
            f"Megatron keeps {half} weights, {sums} main gradients, fp32 master weights and moments"
        )
        made = _copies(half, sums, sums, "fp32", "fp32")
    elif sharding in ("fsdp", "hybrid") and narrow:
        why = f"FSDP's mixed precision keeps fp32 shards and gathers and reduces in {half}"
        made = _copies("fp32", "fp32", half, "none", "fp32") | {"gather": half}
    elif engine == "fsdp" and sharding == "zero2" and narrow:
        why = f"FSDP that keeps gathered {half} weights shards their fp32 originals as the master"
        made = _copies(half, "fp32", half, "fp32", "fp32")
    elif narrow:
        why = f"autocast runs matmuls in {half} on {held} weights, which the optimizer updates"
        made = _copies(held, held, held, "none", held)
        made |= _upcast(draft, held)
    else:
        why = f"everything is held in {held}"
        made = _copies(held, held, held, "none", held)
        made |= _upcast(draft, held)
    frozen = draft.values.get("quantised")
    if frozen is not None:
        made |= {"weights": frozen.value, "gather": ""}
    made["compute"] = "bf16" if compute in ("int4", "int8") else compute
    source = next((s for s in (mixed, loaded) if isinstance(s, Given)), None)
    for name, value in made.items():
        if name == "compute" and source is not None and name not in draft.values:
            draft.put(name, Given(value, source.file, source.line))
        draft.assume(name, value, why)


def _upcast(draft: Draft, held: str) -> dict[str, str]:
    """What is trained beside half-precision weights in another dtype than theirs: PEFT's adapters.

    DeepSpeed and FSDP cast or flatten them with the rest, so that this is of neither.
    """
    own = draft.values.get("adapter_dtype")
    if own is None or draft.get("lora") is None or held not in ("bf16", "fp16"):
        return {}
    draft.note("dtype of the adapters", own.value, own.why if isinstance(own, Assumed) else "")
    return dict.fromkeys(("gradients", "reduce", "moments"), str(own.value))


def _copies(weights: str, gradients: str, reduce: str, master: str, moments: str) -> dict[str, str]:
    return {
        "weights": weights,
        "gradients": gradients,
        "reduce": reduce,
        "master": master,
        "moments": moments,
    }


def _say_offload(draft: Draft) -> None:
    """What waits on the host is counted on the device, whatever format says so."""
    if any(flag.kind == "cpu_offload" for flag in draft.flags) and not any(
        what == "offload" for what, _, _ in draft.assumed
    ):
        draft.note("offload", "on the device", "the host's part is not modelled")


def _frozen(draft: Draft) -> None:
    """The share of the parameters that is trained, where parts of the model are frozen."""
    stated, model = draft.values.pop("trained", None), draft.get("model")
    if stated is None or model is None or draft.get("lora") is not None:
        return
    try:
        share = trained_share(model, stated.value)
    except InputError as error:
        draft.note("trained parameters", "all", str(error))
        why = "a part of the weights is trained; all of them were taken"
        line = stated.line if isinstance(stated, Given) else None
        draft.ignored.append(Ignored("frozen parts", draft.file, line, True, why))
        return
    if share >= 1 or "trainable_fraction" in draft.values:
        return
    draft.put("trainable_fraction", restated(stated, max(round(share, 6), 1e-9)))
    shown = f"{share * params(model):,.0f}"
    why = "the rest is frozen; its activations and input gradients are counted as if it were not"
    draft.note("trained parameters", shown, why)


def _adapters(draft: Draft) -> None:
    """LoRA: the share of matmul parameters whose gradients are computed, as PEFT counts them.

    Raises:
        InputError: the adapters' targets are no modules of the model.
    """
    stated, model = draft.values.get("lora"), draft.get("model")
    if stated is None:
        return
    asked = draft.values.get("task")
    if isinstance(asked, Given) and asked.file == "--set" and asked.value != "lora":
        at = f"{stated.file}:{stated.line}" if isinstance(stated, Given) else draft.file
        raise InputError(
            f"--set task={asked.value}: {at} adds adapters beside frozen weights, a job whose task "
            "is lora; expected no --set task, or the adapters' key emptied (--set KEY=)"
        )
    draft.put("task", restated(stated, "lora"))
    if model is None:
        return
    if model.architecture not in NAMINGS:
        share = _by_kind(model, stated.value)
        why = f"module names of {model.architecture} are not known: adapters counted by kind"
        draft.note("trainable_fraction", f"{share:.3g}", why)
        beside = _kinds_adapted(model, stated.value)
    else:
        literal = draft.format in ("transformers", "openrlhf")
        lora = _matching(draft, model, stated.value) if literal else stated.value
        lora = _translated(model, lora)
        try:
            share = matmul_share(model, lora).fraction
            trained = trainable_params(model, lora)
            beside = adapters_of(model, lora)
        except InputError as error:
            file = stated.file if isinstance(stated, Given) else draft.file
            raise InputError(f"{file}: {error}") from None
        for name in saved_beside(model, lora.saved):
            draft.note("modules_to_save", name, "it names no module that is counted here")
        draft.note("trained parameters", f"{trained:,}", "adapters and modules saved in full")
        if model.towers:
            why = "the language model's alone, as where the towers are frozen"
            draft.note("adapters on towers", "not counted", why)
    shown = stated if isinstance(stated, Given) else Given(stated.value, draft.file)
    draft.put("trainable_fraction", restated(shown, min(1.0, max(share, 1e-9))))
    if share < 1:
        draft.put("adapters", restated(shown, beside))


ALL = "q k v o gate up down"
GROUPS = {
    "all-linear": ALL,
    "mlp": "gate up down",
    "qkv_proj": "q k v",
    "wqkv": "q k v",
    "query_key_value": "q k v",
    "c_attn": "q k v",
    "out_proj": "o",
    "gate_up_proj": "gate up",
    "output_proj": "o",
    "w1": "gate",
    "w2": "down",
    "w3": "up",
}
"""Names of other frameworks for a block's maps."""


def _words(target: str) -> list[str]:
    """``model.layers.*.self_attn.q_proj`` → ``["q"]``; ``all-linear`` → every matrix."""
    last = str(target).lower().rsplit(".", 1)[-1]
    return GROUPS.get(last, last.removesuffix("_proj")).split()


_TABLE = re.compile(r"embed|wte|wpe|head|^output$")
"""Embeddings and heads, which are no linear maps of a layer."""


def _matching(draft: Draft, model: Model, lora: Lora) -> Lora:
    """PEFT adapts the targets that are a module's name and passes over the others."""
    ends = {m.name.rsplit(".", 1)[-1] for m in linear_modules(model)}
    ends |= {"all-linear", *RENAMED.get(model.architecture, ())}
    kept = tuple(
        one for one in lora.targets if one.rsplit(".", 1)[-1] in ends or _TABLE.search(one)
    )
    if lora.pattern or not kept or kept == lora.targets:
        return lora
    for name in lora.targets:
        if name not in kept:
            draft.note("adapters' target", name, f"no module of {model.name} has that name")
    return replace(lora, targets=kept)


def _translated(model: Model, lora: Lora) -> Lora:
    """Targets that another framework names (torchtune's ``output_proj``), as the family does."""
    if lora.pattern:
        return lora
    n = naming(model)
    up = (n.gate_up, n.gate_up) if n.gate_up else (n.mlp[0], n.mlp[-2])
    own = {"q": n.qkv or n.q, "k": n.qkv or n.k, "v": n.qkv or n.v, "o": n.o}
    own |= {"gate": up[0], "up": up[1], "down": n.mlp[-1]}
    ends = {m.name.rsplit(".", 1)[-1] for m in linear_modules(model)}
    ends |= {"all-linear", *RENAMED.get(model.architecture, ())}
    targets: list[str] = []
    for target in lora.targets:
        words = [own[word] for word in _words(target) if word in own]
        if target == "output":
            targets.append(n.head)
        elif target.rsplit(".", 1)[-1] in ends or not words:
            targets.append(target)
        else:
            targets += words
    return replace(lora, targets=tuple(dict.fromkeys(targets)))


def _by_kind(model: Model, lora: Lora) -> float:
    """The share where the family's module names are not known: by the kind of each matrix."""
    total, adapters = 0, 0
    for layer, count in model.layers:
        for name, rows, columns, copies in _matrices(model, layer.attention, layer.mlp):
            total += count * copies * rows * columns
            if not lora.targets or any(name in _words(target) for target in lora.targets):
                adapters += count * copies * lora.rank * (rows + columns)
    return adapters / total if total else 1.0


def _kinds_adapted(model: Model, lora: Lora) -> Adapters:
    """Adapters of a layer by the kind of each matrix, as ``_by_kind`` counts them."""
    routed = model.routed
    up, down = ("experts_up", "experts_down") if routed else ("mlp_up", "mlp_down")
    ops = {"q": "qkv_proj", "k": "qkv_proj", "v": "qkv_proj", "o": "out_proj",
           "gate": up, "up": up, "down": down}  # fmt: skip
    words = {word for target in lora.targets for word in _words(target)} or set(ops)
    found = Counter(op for word, op in ops.items() if word in words)
    return Adapters(tuple((op, float(n)) for op, n in sorted(found.items())), lora.dora)


def _matrices(
    model: Model, attention: Attention | None, mlp: DenseMlp | MoeMlp | None
) -> list[tuple[str, int, int, int]]:
    """(name, rows, columns, copies) of a layer's matrices that adapters may sit on."""
    d = model.d_model
    found: list[tuple[str, int, int, int]] = []
    if attention is not None:
        q, kv = attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim
        found += [("q", d, q, 1), ("k", d, kv, 1), ("v", d, kv, 1), ("o", q, d, 1)]
    if mlp is not None:
        copies = mlp.experts if isinstance(mlp, MoeMlp) else 1
        names = ("gate", "up", "down")[3 - mlp.matrices :]
        found += [(name, d, mlp.width, copies) for name in names]
    return found
