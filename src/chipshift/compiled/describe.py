"""A model and a plan turned into the compiled step's configuration, with what it leaves out."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from math import gcd
from typing import Any

from chipshift.compiled.step.config import Block, Config, Variant, table_rows
from chipshift.errors import InputError
from chipshift.jobs.job import Precision
from chipshift.jobs.plan import Plan, of_all
from chipshift.models.model import DenseMlp, Layer, Model, MoeMlp
from chipshift.models.numerics import Numerics
from chipshift.models.rope import SCALINGS

LONGEST_UNIT = 12
"""Layers whose alternation is looked for: Gemma 3 repeats after 6, Jamba-like models after 8."""

DTYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}

ACTIVATIONS = ("silu", "gelu", "gelu_tanh")

_GEMMA = Variant(activation="gelu_tanh", unit_offset=True)
VARIANTS: dict[str, Variant] = {
    "gemma": _GEMMA,
    "gemma2": replace(_GEMMA, post_norms=True, attention_cap=50.0, logit_cap=30.0),
    "gemma3": replace(_GEMMA, post_norms=True),
    "gemma3_text": replace(_GEMMA, post_norms=True),
    "deepseek_v2": Variant(interleaved_rope=True, renormalise=False),
    "deepseek_v3": Variant(router="sigmoid", router_scale=2.5, interleaved_rope=True),
    "qwen2_moe": Variant(renormalise=False),
}
"""By Hugging Face ``model_type``, where it is no Llama's; the config's own values go before."""


OWN = (
    "llama", "mistral", "ministral", "qwen2", "qwen3", "qwen3_moe", "mixtral",
    "qwen2_moe", "gemma", "gemma2", "gemma3_text", "deepseek_v2", "deepseek_v3", "kimi_k2",
)  # fmt: skip
"""Architectures whose arithmetic the step has; any other is a Llama at its own shapes."""


def segments(order: tuple[int, ...]) -> list[tuple[tuple[int, ...], int]]:
    """Runs of a repeating unit, bottom to top: what is scanned over, so that it compiles once.

    ``(0, 0, 0, 1, 1)`` gives ``[((0,), 3), ((1,), 2)]``; ``(0, 1, 0, 1, 0)`` gives
    ``[((0, 1), 2), ((0,), 1)]``.
    """
    found: list[tuple[tuple[int, ...], int]] = []
    at = 0
    while at < len(order):
        best, repeats = order[at : at + 1], 1
        for length in range(1, LONGEST_UNIT + 1):
            unit, times = order[at : at + length], 1
            while order[at + times * length : at + (times + 1) * length] == unit:
                times += 1
            if times > 1 and times * length > repeats * len(best):
                best, repeats = unit, times
        found.append((best, repeats))
        at += len(best) * repeats
    return found


def block(model: Model, layer: Layer) -> Block:
    """Shapes of one layer.

    Raises:
        InputError: the layer has no causal self-attention.
    """
    a = layer.attention
    own = a is not None and not (a.kv_shared or a.values_are_keys or a.o_rank is not None)
    if a is None or not own or not a.causal or a.kv_from != "self":
        raise InputError(
            f"model {model.name}: the compiled step is a causal decoder and cannot build a layer "
            "with other than causal self-attention over keys and values of its own"
        )
    latent = a.kv_lora_rank is not None
    values = model.numerics or Numerics()
    rope = values.rope if a.window is None else values.local_rope
    qkv_bias = a.heads * a.head_dim + a.kv_heads * (a.head_dim + a.v_head_dim)
    shape = Block(
        heads=a.heads,
        kv_heads=a.heads if latent else a.kv_heads,
        head_dim=a.head_dim,
        v_head_dim=a.v_head_dim,
        window=a.window,
        qkv_bias=not latent and a.bias_params >= qkv_bias,
        out_bias=not latent and a.bias_params in (model.d_model, qkv_bias + model.d_model),
        qk_norm=not latent and a.norm_params == 2 * a.head_dim,
        q_rank=a.q_lora_rank,
        kv_rank=a.kv_lora_rank,
        rope_dim=a.qk_rope_head_dim or 0,
        rope=rope if rope.scaling in SCALINGS else replace(rope, scaling=""),
    )
    if isinstance(layer.mlp, DenseMlp):
        return replace(shape, mlp_width=layer.mlp.width, gated=layer.mlp.matrices == 3)
    if isinstance(layer.mlp, MoeMlp):
        m = layer.mlp
        return replace(
            shape,
            experts=m.experts,
            top_k=m.top_k,
            expert_width=m.width,
            gated=m.matrices == 3,
            shared_width=m.shared_width,
            shared_gate=m.shared_gate_params > 0,
        )
    return shape


def variant_of(model: Model) -> Variant:
    """The arithmetic of a model's family, with what its config says of it."""
    variant = VARIANTS.get(model.architecture, Variant())
    if model.architecture.startswith("gemma"):
        variant = replace(variant, embed_scale=model.d_model**0.5)
    values = model.numerics
    if values is None:
        return variant
    grouped = all(
        not isinstance(layer.mlp, MoeMlp) or layer.mlp.experts % (values.expert_groups or 1) == 0
        for layer, _ in model.layers
    )
    given: dict[str, Any] = {
        "eps": values.norm_eps,
        "activation": values.activation if values.activation in ACTIVATIONS else None,
        "query_scale": values.query_scale,
        "attention_cap": values.attention_cap,
        "logit_cap": values.logit_cap,
        "router": values.router if values.router in ("softmax", "sigmoid") else None,
        "renormalise": values.renormalise,
        "router_scale": values.router_scale,
        "expert_groups": values.expert_groups if grouped else None,
        "top_groups": values.top_groups if grouped else None,
    }
    return replace(variant, **{key: value for key, value in given.items() if value is not None})


def values_said(model: Model) -> tuple[str, ...]:
    """What the step's values are that change no shape, and which of them are not the model's own;
    for whoever trains with the written step."""
    values = model.numerics
    if values is None:
        return (
            "the job gives no rotary base, no scaling of it and no epsilon of the norms: "
            f"{Numerics().rope.theta:g}, none and {Numerics().norm_eps:g} stand for them",
        )
    said = []
    if values.assumed:
        said.append(f"the config lacks {', '.join(values.assumed)}: transformers' defaults stand")
    if values.rope.scaling and values.rope.scaling not in SCALINGS:
        said.append(f"rotary scaling '{values.rope.scaling}' is left out")
    if values.activation is not None and values.activation not in ACTIVATIONS:
        said.append(f"{variant_of(model).activation} in place of {values.activation}")
    plain = model.architecture == "megatron" and model.final_norm_params == model.d_model
    if model.architecture not in OWN and not plain:  # of Megatron's, those with RMS norms
        said.append(
            f"a Llama at the shapes of {model.architecture}: what else of that family changes no "
            "shape (kind of norm, order of additions, scales, share of a head that rotates, "
            "attention sinks) is left out"
        )
    return tuple(said)


def expert_axis(plan: Plan) -> str:
    """The axis that expert parallelism is taken out of.

    Raises:
        InputError: neither fsdp nor dp alone holds it.
    """
    if plan.fsdp % plan.ep == 0:
        return "fsdp"
    if plan.fsdp == 1 and plan.dp % plan.ep == 0:
        return "dp"
    raise InputError(
        f"plan: ep={plan.ep} divides neither fsdp={plan.fsdp} nor, with fsdp=1, dp={plan.dp}; "
        "the compiled step takes the expert axis out of one of them; the nearest plan that it has: "
        f"{plan_text(expressible(plan))}"
    )


def mesh_of(plan: Plan) -> tuple[int, int, int, int, int]:
    """Sizes of the step's mesh axes (dp, fsdp, ep, cp, tp)."""
    source = expert_axis(plan)
    dp = plan.dp // (plan.ep if source == "dp" else 1)
    fsdp = plan.fsdp // (plan.ep if source == "fsdp" else 1)
    return dp, fsdp, plan.ep, plan.cp, plan.tp


def config(
    model: Model,
    plan: Plan,
    *,
    seq_len: int,
    precision: Precision | None = None,
    slices: int = 1,
    splash: bool = True,
    loss_chunks: int = 1,
) -> tuple[Config, tuple[str, ...]]:
    """The step's configuration, and notes on where it departs from the job.

    Args:
        splash: the Pallas attention kernel (TPU) instead of blocks in plain JAX.

    Raises:
        InputError: the plan has a pipeline or splits that the step cannot make.
    """
    precision = precision or Precision()
    _check(model, plan, seq_len)
    variant = variant_of(model)
    blocks = [block(model, layer) for layer, _ in model.layers]
    dims = {b.head_dim for b in blocks} | {b.v_head_dim for b in blocks}
    notes = _notes(model, plan, precision)
    part = seq_len // plan.cp
    if not splash:
        notes.append("attention in plain JAX blocks, masked scores too: the kernel is the TPU's")
    if splash and part % 128:
        notes.append(f"attention in plain JAX blocks: {part} positions are no multiple of 128")
        splash = False
    if splash and min(dims) < 64 and max(dims) % 128:
        notes.append("heads narrower than 64: the attention kernel pads them to 128 lanes")
    experts = max((b.experts for b in blocks), default=0)
    if experts and experts % plan.ep:
        raise InputError(f"plan: ep={plan.ep} must divide the {experts} experts of {model.name}")
    cfg = Config(
        d_model=model.d_model,
        vocab=model.vocab,
        segments=tuple(
            (tuple(blocks[i] for i in unit), repeats)
            for unit, repeats in segments(model.layer_order)
        ),
        mesh=mesh_of(plan),
        seq_len=seq_len,
        batch=round(plan.microbatch * plan.dp * plan.fsdp),
        variant=variant,
        tied=model.tied,
        slices=slices,
        ep_from=expert_axis(plan),
        accumulation=plan.accumulation,
        loss_chunks=loss_chunks,
        remat=plan.remat,
        zero=plan.optimizer_sharding != "none" and plan.dp > 1,
        sequence_parallel=plan.sequence_parallel and plan.tp > 1,
        attention="splash" if splash else "blockwise",
        compute_dtype=_dtype(precision.compute, "bfloat16"),
        master_dtype=_dtype(
            precision.weights if precision.master == "none" else precision.master, "float32"
        ),
        moment_dtype=_dtype(precision.moments, "float32"),
        gradient_dtype=_dtype(precision.gradients, "float32"),
        reduce_dtype=_dtype(precision.reduce, "float32"),
    )
    if table_rows(cfg) != cfg.vocab:
        notes.append(
            f"vocabulary of {cfg.vocab:,} padded to {table_rows(cfg):,} rows, so that tp={plan.tp} "
            "divides it, as Megatron-LM does"
        )
    return cfg, tuple(notes)


def _dtype(name: str, otherwise: str) -> str:
    return DTYPES.get(name, otherwise)


def expressible(plan: Plan) -> Plan:
    """The nearest plan to one that the step cannot be cut by, of the same devices and, where whole
    sequences come to that, the same sequences a step.

    The pipeline's devices become fsdp, the experts are cut by tp as the rest is, and where replicas
    would share a sequence, context parallelism does instead. Experts that are cut across dp and
    fsdp have dp's devices in fsdp, or fewer devices (those that divide it).
    """
    dp, fsdp, cp = plan.dp, plan.fsdp * plan.pp, plan.cp
    while plan.global_batch % (dp * fsdp) and (dp * fsdp) % 2 == 0:
        dp, fsdp = (dp, fsdp // 2) if fsdp % 2 == 0 else (dp // 2, fsdp)
        cp *= 2
    if fsdp % plan.ep and (fsdp > 1 or dp % plan.ep):
        dp, fsdp = 1, dp * fsdp
    ep = gcd(plan.ep, fsdp if fsdp > 1 else dp)
    share = max(int(plan.global_batch // (dp * fsdp)), 1)
    microbatch = gcd(share, max(int(plan.microbatch), 1))
    return replace(
        plan, dp=dp, fsdp=fsdp, cp=cp, ep=ep, pp=1, vpp=1, etp=0, stage_layers=(), order=(),
        cp_shards=False, rings=0,
        remat=of_all(plan.remat),
        schedule=Plan().schedule, microbatch=float(microbatch), accumulation=share // microbatch,
    )  # fmt: skip


def _check(model: Model, plan: Plan, seq_len: int) -> None:
    cannot = ""
    if plan.pp > 1:
        cannot = f"pp={plan.pp}: the compiled step has no pipeline stages"
    elif plan.remat != of_all(plan.remat):
        cannot = f"remat={plan.remat}: the compiled step recomputes in all layers alike"
    elif plan.cp_shards:
        cannot = "cp_shards: the compiled step shards weights over fsdp"
    elif plan.rings:
        cannot = f"rings={plan.rings}: the compiled step's mesh is JAX's own"
    elif plan.etp not in (0, plan.tp):
        cannot = f"etp={plan.etp}: the compiled step cuts experts by tp as it does the rest"
    elif plan.microbatch != int(plan.microbatch):
        cannot = (
            f"microbatch={plan.microbatch:g}: the compiled step needs whole sequences on each "
            "dp × fsdp replica"
        )
    if cannot:
        raise InputError(
            f"plan: {cannot}; the nearest plan that it has: {plan_text(expressible(plan))}"
        )
    pieces = plan.cp * (plan.tp if plan.sequence_parallel else 1)
    if seq_len % pieces:
        raise InputError(
            f"plan: cp={plan.cp}, tp={plan.tp} cut the sequence into {pieces} parts, which do not "
            f"divide its {seq_len} positions"
        )
    for layer, _ in model.layers:
        a = layer.attention
        if a is not None and a.heads % plan.tp:
            raise InputError(
                f"plan: tp={plan.tp} does not divide the {a.heads} heads of {model.name} "
                f"(its divisors up to there: {gcd(a.heads, plan.tp)})"
            )
        if a is not None and a.kv_heads % plan.tp and plan.tp % a.kv_heads:
            raise InputError(
                f"plan: tp={plan.tp} neither divides nor is divided by the {a.kv_heads} key/value "
                f"heads of {model.name}"
            )


def _notes(model: Model, plan: Plan, precision: Precision) -> list[str]:
    notes: list[str] = []
    if precision.compute not in DTYPES:
        notes.append(f"matmuls compiled in bf16, not {precision.compute}")
    if plan.cp > 1 and plan.cp_kind == "ring":
        notes.append("keys and values all-gathered over cp; a ring would send the same bytes")
    if plan.ulysses > 1:
        notes.append(
            "keys and values all-gathered over cp: the compiled step has no all-to-all of heads, "
            "which the job's plan deals out over "
            f"{'cp' if plan.ulysses == plan.cp else f'{plan.ulysses} devices of cp'}; other bytes "
            "over cp, and queries of a part of the sequence"
        )
    if model.mtp_layers:
        notes.append("multi-token prediction blocks left out")
    if model.embedding_extra_params:
        notes.append("learned positions left out; rotary positions instead")
    if model.routed:
        notes.append("experts keep even shares of the tokens (capacity factor 1)")
    return notes


def plan_text(plan: Plan) -> str:
    """A plan as ``--plan`` takes it, defaults left out."""
    default = vars(Plan())
    given = {key: value for key, value in vars(plan).items() if value != default[key]}
    # --plan does not take them, nor the step ask for them
    for key in ("order", "cp_kind", "ulysses_degree"):
        given.pop(key, None)
    return ",".join(
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in given.items()
    )


def require_compilers(platform: str) -> None:
    """Raise InputError saying what to install when the extra is missing."""
    packages = ("jax", "libtpu") if platform == "tpu" else ("jax", "jax_cuda12_plugin")
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise InputError(
            f"compiling needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'}"
            " not installed: pip install 'chipshift[compile]'"
        )
