"""The parts of a published record, one by one: its model, precision, remat and machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.job import Precision
from chipshift.jobs.readers.maxtext_remat import custom_policy
from chipshift.machines.names import parse_machine
from chipshift.models.model import Attention, DenseMlp, Layer, Model, MoeMlp
from chipshift.models.preset import preset

Row = Mapping[str, Any]
NEEDED = ("layers", "d_model", "heads", "d_ff", "vocab", "seq_len")

WINDOW_EVERY = {"gemma3": 6, "gemma4": 6, "gpt-oss": 2, "llama4": 4}
"""One layer in so many attends to the whole sequence (the last of each group); their cards."""


OWN_BLOCK = "maxtext-"
"""Models of MaxText's own block, which has attention and feed-forward side by side behind one norm
(MaxText/layers/models.py, DecoderLayer, 2023-12-15)."""


def missing(model: Row) -> list[str]:
    """Architecture numbers without which nothing can be predicted; a public name has them all."""
    needed = ("seq_len",) if model.get("preset") else NEEDED
    return [key for key in needed if not model.get(key)]


def model_of(row: Row) -> Model:
    """The model of a record (see the data's notes for what its nulls mean).

    Gated feed-forward unless ``mlp_matrices`` says otherwise, head width d_model / heads unless
    stated, experts in every layer unless ``moe_every`` or ``first_dense_layers`` say otherwise. A
    model whose sizes are not stated is its public config (``gaps.completed`` says so).
    """
    m: Row = row["model"]
    if m.get("preset"):
        return preset(str(m["preset"]))
    n, d = int(m["layers"]), int(m["d_model"])
    first, every = int(m.get("first_dense_layers") or 0), int(m.get("moe_every") or 1)
    layers: list[Layer] = []
    capacity = _capacity_factor(row)
    beside = str(m["name"]).startswith(OWN_BLOCK)
    for i in range(n):
        routed = bool(m.get("experts")) and i >= first and (i - first) % every == every - 1
        feed_forward = _experts(m, capacity) if routed else _dense(m)
        norms = d if beside else 2 * d
        layers.append(Layer(_attention(m, i), feed_forward, norms, side_by_side=beside))
    kinds = list(dict.fromkeys(layers))
    order = tuple(kinds.index(layer) for layer in layers)
    return Model(
        name=str(m["name"]),
        architecture="",
        d_model=d,
        vocab=int(m["vocab"]),
        layers=tuple((kind, order.count(i)) for i, kind in enumerate(kinds)),
        layer_order=order,
        tied=bool(m.get("tied")),
        final_norm_params=d,
        max_positions=int(m["seq_len"]),
    )


def _dense(m: Row) -> DenseMlp:
    return DenseMlp(int(m["d_ff"]), int(m.get("mlp_matrices") or 3))


def _capacity_factor(row: Row) -> float:
    """MaxText's capacity factor where its flags put the experts' tokens into masks, else 0."""
    notes = str(row.get("notes") or "")
    found = re.search(r"\bcapacity_factor=([\d.]+)", notes)
    return float(found[1]) if found and "megablox=False" in notes else 0.0


def _experts(m: Row, capacity_factor: float) -> MoeMlp:
    width = int(m.get("moe_d_ff") or m["d_ff"])
    experts = int(m["experts"])
    return MoeMlp(
        experts=experts,
        top_k=int(m.get("topk") or 1),
        width=width,
        matrices=int(m.get("mlp_matrices") or 3),
        shared_width=int(m.get("shared_experts") or 0) * width,
        router_params=int(m["d_model"]) * experts,
        expert_bias_params=_expert_biases(str(m["name"])),
        capacity_factor=capacity_factor,
    )


def _expert_biases(name: str) -> int:
    """Bias parameters of one routed expert: records state sizes, the public config of that name
    has them."""
    try:
        known = preset(name)
    except InputError:
        return 0
    routed = [ly.mlp for ly, _ in known.layers if isinstance(ly.mlp, MoeMlp)]
    return routed[0].expert_bias_params if routed else 0


def _attention(m: Row, layer: int) -> Attention:
    """Attention of one layer; families that mix windows see all keys every few layers."""
    heads = int(m["heads"])
    latent = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    if m.get("attention") == "MLA" and all(m.get(key) for key in latent):
        rope, rank = int(m["qk_rope_head_dim"]), m.get("q_lora_rank")
        return Attention(
            heads=heads,
            kv_heads=heads,
            head_dim=int(m["qk_nope_head_dim"]) + rope,
            v_head_dim=int(m["v_head_dim"]),
            q_lora_rank=int(rank) if rank else None,
            kv_lora_rank=int(m["kv_lora_rank"]),
            qk_rope_head_dim=rope,
        )
    head_dim = int(m.get("head_dim") or m["d_model"] // heads)
    kv_heads = int(m.get("kv_heads") or heads)
    window = m.get("sliding_window") or m.get("chunk_attn_window")
    every = next((k for name, k in WINDOW_EVERY.items() if str(m["name"]).startswith(name)), 2)
    if window and layer % every == every - 1:
        window = None
        head_dim = int(m.get("global_head_dim") or head_dim)
        kv_heads = int(m.get("global_kv_heads") or kv_heads)
    return Attention(heads, kv_heads, head_dim, head_dim, window=int(window) if window else None)


PRECISIONS: dict[str, tuple[Precision, str]] = {
    "megatron": (
        Precision(gradients="fp32", reduce="bf16"),
        "Megatron distributed optimizer: bf16 weights, fp32 main gradients, master and moments,"
        " bf16 reduction (NVIDIA's recipes)",
    ),
    "torchtitan": (
        Precision(weights="fp32", master="none", gather="bf16"),
        "torchtitan mixed precision: bf16 gather, fp32 shards and reduction (its defaults)",
    ),
    "llm-foundry": (
        Precision(weights="fp32", reduce="bf16", master="none", gather="bf16"),
        "llm-foundry FSDP mixed_precision PURE: bf16 gather and reduction, fp32 shards",
    ),
    "fms-fsdp": (
        Precision(weights="fp32", reduce="bf16", master="none", gather="bf16"),
        "fms-fsdp mixed_precision: bf16 gather and reduction, fp32 shards",
    ),
    "automodel": (
        Precision(gradients="bf16", reduce="bf16", master="none", moments="bf16"),
        "AutoModel recipes: bf16 weights and moments",
    ),
    "nanotron": (
        Precision(gradients="fp32", reduce="fp32"),
        "nanotron: bf16 weights, gradients accumulated in fp32",
    ),
    "maxtext": (
        Precision(weights="fp32", gradients="bf16", reduce="bf16", master="none", gather="bf16"),
        "MaxText: weight_dtype float32 cast to bfloat16 as it is read, no further copy (its base"
        " config)",
    ),
}
"""Precision of each stack where a record does not say, and the document that says so."""
PRECISIONS["torch_xla"] = (
    Precision(gradients="bf16", reduce="bf16", master="none", moments="bf16"),
    "torchprime: bf16 weights (its default config)",
)
_DEFAULT_PRECISION = (Precision(gradients="fp32", reduce="bf16"), "mixed precision, fp32 shards")
_COMPUTE = {"fp8": "fp8", "bf16": "bf16", "nvfp4": "nvfp4", "int8": "int8"}


def precision_of(row: Row) -> tuple[Precision, str]:
    """Compute precision as stated; the rest as the stack's documented default or the notes."""
    base, why = PRECISIONS.get(str(row["stack"]), _DEFAULT_PRECISION)
    stated = f"{row.get('optimizer') or ''} {row.get('notes') or ''}"
    moments = "bf16" if "mu_dtype=bfloat16" in stated else base.moments
    grads = re.search(r"grad_dtype=(bfloat16|float32)", stated)
    gradients = {"bfloat16": "bf16", "float32": "fp32"}[grads[1]] if grads else base.gradients
    weights, master = base.weights, base.master
    if (
        "weight_dtype=bfloat16" in stated
        or "bf16 weights" in stated
        or "weight_dtype bf16" in stated
    ):
        weights, master = "bf16", "none"
        if row["stack"] == "maxtext":  # optax makes moments like the weights (mu_dtype unset)
            moments = "bf16"
    chosen = replace(
        base,
        compute=compute_of(row),
        weights=weights,
        gradients=gradients,
        master=master,
        moments=moments,
    )
    return chosen, why


def compute_of(row: Row) -> str:
    """The matmuls' dtype: the record's class, and which 8-bit format where it says MXFP8."""
    blocks = str(row.get("dtype") or "").lower().startswith("mxfp8")
    return "mxfp8" if blocks else _COMPUTE[str(row["dtype_class"])]


def optimizer_of(row: Row) -> tuple[str, bool]:
    """The optimizer's name, and whether the record states it."""
    text = str(row.get("optimizer") or "").lower()
    for name in ("adafactor", "muon", "sgd"):
        if name in text:
            return name, True
    return "adamw", bool(text)


_NAMED = {
    "minimal_flash": "minimal_with_context",
    "minimal_with_context": "minimal_with_context",
    "minimal": "minimal",
    "save_dot_except_logits_ffn1": "save_dot_except_mlpwi",
    "save_dot_except_mlpwi": "save_dot_except_mlpwi",
    "save_dot_except_logits": "minimal",
}


def remat_of(row: Row) -> str | None:
    """The policy in the words of parallel/remat.py, or None where the record does not state it."""
    kind, text = row.get("remat_class"), str(row.get("remat") or "")
    if kind is None:
        return None
    if kind == "none" or (kind == "full" and "offload" not in text):
        return str(kind)
    if kind == "selective":
        return "selective_op" if row["stack"] in ("torchtitan", "fms-fsdp") else "selective"
    if "scan" in text:  # torch_xla, torchax: layer inputs go to the host, the rest runs again
        return "offload:block_input"
    places = dict(re.findall(r"(\w+)=(device|offload)\b", text))
    if places or "custom" in text:
        return custom_policy(places, all_projections="all projections" in text)
    return next((ours for name, ours in _NAMED.items() if name in text), "full")


LARGEST_SLICE = {"v4": 4096, "v5e": 256, "v6e": 256, "v5p": 6144, "v7x": 9216}
"""Chips of the largest slice; more than that are several slices over DCN (Google's pages)."""


def machine_of(row: Row) -> str:
    """The machine's name: chips, and for TPUs the slices, read from the topology's free text.

    Where no slice is what the text says, several of the largest slices that make the chips.
    """
    chip, n = str(row["chip_key"]), int(row["n_chips"])
    if chip not in LARGEST_SLICE:
        return f"{chip}*{n}"
    said = _said_machine(chip, n, str(row.get("slice_topology") or ""))
    if _rented(said):
        return said
    least = -(-n // LARGEST_SLICE[chip])
    counts = (k for k in range(least, n + 1) if n % k == 0)
    names = ((f"{chip}:{_even(chip, n // k)}", k) for k in counts)
    return next((f"{name}*{k}" for name, k in names if _rented(name)), said)


def _said_machine(chip: str, n: int, text: str) -> str:
    """Slices of a TPU by a topology's text: its shape where that makes the chips, else even."""
    shape = re.search(r"(\d+x\d+(?:x\d+)?)", text.split("as written")[0].replace(" x ", " "))
    stated = re.match(r"(\d+) (?:x |slice)", text)
    slices = int(stated[1]) if stated else -(-n // LARGEST_SLICE[chip])
    each = n // slices
    if shape and _size(shape[1]) == each:
        return f"{chip}:{shape[1]}" + (f"*{slices}" if slices > 1 else "")
    return f"{chip}*{n}" if slices == 1 else f"{chip}:{_even(chip, each)}*{slices}"


def _rented(name: str) -> bool:
    """Whether there is such a machine."""
    try:
        parse_machine(name)
    except InputError:
        return False
    return True


def _size(shape: str) -> int:
    total = 1
    for side in shape.split("x"):
        total *= int(side)
    return total


def _even(chip: str, chips: int) -> str:
    """The most even slice of so many chips, 2-D on v5e and v6e, else 3-D."""
    sides = [1, 1] if chip in ("v5e", "v6e") else [1, 1, 1]
    for factor in (2,) * (chips.bit_length() - 1):
        if chips % (_size("x".join(map(str, sides))) * factor) == 0:
            sides[sides.index(min(sides))] *= factor
    rest = chips // _size("x".join(map(str, sides)))
    sides[sides.index(min(sides))] *= rest
    return "x".join(map(str, sorted(sides)))


def release_of(row: Row) -> str:
    """``YY.MM`` of a NeMo container or recipe tag, of a MaxText table's date, or '' where the
    source states none."""
    text = f"{row.get('framework') or ''} {row.get('notes') or ''}"
    if row["stack"] == "maxtext":
        dated = re.search(
            r"(?:table dated 20|log line dated 20|at (?:commit )?\w+ \(20|tag v)(\d\d)[-.](\d\d)",
            text,
        )
        return f"{dated[1]}.{dated[2]}" if dated else ""
    if row["stack"] not in ("megatron", "other"):  # others take Megatron's constants
        return ""
    found = re.search(r"(?:NeMo|Release|container|tag v?) ?(\d\d\.\d\d(?:\.\d\d)?)", text)
    if found:
        return found[1]
    for pattern, known in (
        (r"MLPerf Training (v\d\.\d)", ROUNDS),
        (r"Megatron-Core (r[\d.]+)", CORES),
    ):
        found = re.search(pattern, text)
        if found:
            return known.get(found[1], "")
    paper = re.match(r"arXiv:(\d\d)(\d\d)\.", str(row["source"]))
    return f"{paper[1]}.{paper[2]}" if paper else ""


ROUNDS = {"v3.0": "23.04", "v3.1": "23.09", "v4.0": "24.04", "v4.1": "24.09", "v5.0": "25.04"}
"""Release of NVIDIA's framework that each MLPerf Training round ran (from its submissions)."""


CORES = {"r0.8.0": "24.07"}
"""Container that each release of Megatron-Core came in (NeMo's changelog)."""
