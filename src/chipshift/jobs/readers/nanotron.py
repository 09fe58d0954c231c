"""nanotron's YAML.

Keys and defaults: Hugging Face, nanotron, src/nanotron/config and examples/*.yaml, 2025.
"""

from __future__ import annotations

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.dtypes import dtype_of
from chipshift.jobs.job import Given, Ignored
from chipshift.jobs.readers.config_model import model_of_config
from chipshift.jobs.readers.nanotron_layers import windowed, with_experts
from chipshift.jobs.readers.optimizer_name import put_optimizer_named
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Sheet, as_boolean, as_integer
from chipshift.jobs.source import Source

FAMILIES = {
    "is_llama_config": "llama",
    "is_qwen2_config": "qwen2",
    "is_mistral_config": "mistral",
    "is_starcoder2_config": "starcoder2",
}
STARCODER2 = {
    "num_kv_heads": "num_key_value_heads",
    "n_inner": "intermediate_size",
    "activation_function": "hidden_act",
    "layer_norm_epsilon": "norm_epsilon",
    "sliding_window_size": "sliding_window",
}
"""nanotron's keys of StarCoder2 (src/nanotron/config/models_config.py) and its config's."""
LLAMA_KEYS = frozenset(
    {
        *("bos_token_id", "eos_token_id", "pad_token_id", "hidden_act", "hidden_size"),
        *("initializer_range", "intermediate_size", "max_position_embeddings", "use_cache"),
        *("num_attention_heads", "num_hidden_layers", "num_key_value_heads", "head_dim"),
        *("pretraining_tp", "rms_norm_eps", "rope_scaling", "rope_theta", "rope_interleaved"),
        *("rope_seq_len_interpolation_factor", "tie_word_embeddings", "vocab_size"),
        *("attention_bias", "z_loss_enabled", "z_loss_coefficient", "lm_head_normalization_factor"),
        *("no_rope_layer", "sliding_window_size", "flex_attention_mask", "moe_config"),
        *("is_llama_config", "is_qwen2_config", "is_mistral_config", "is_starcoder2_config"),
    }
)
"""Keys of nanotron's LlamaConfig and of what has the same blocks (models_config.py, 2024 to 2025).
A kind is taken only where it has every key that the file gives (config.py, ``strict=True``)."""

QUIET = (
    *(
        "general.*",
        "checkpoints.*",
        "logging.*",
        "data.*",
        "data_stages*",
        "dataset*",
        "brrr_data*",
    ),
    *("tokenizer.*", "profiler*", "profile*", "lighteval*", "s3_upload*", "metrics_logging*"),
    *(
        "learning_rate_scheduler*",
        "experiment_logger*",
        "kill_switch_path",
        "slurm*",
        "optimizer.*",
    ),
    *("model.*", "tokens.*", "parallelism.tp_recompute_allgather"),
)


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "nanotron", uneven_pp=True, kv_replicated=False)
    sheet = yaml_sheet(source, context, draft)
    draft.put("stack", Given("nanotron", source.path))
    if not context.model_named:
        _model(sheet)
    for field, key in (
        ("dp", "dp"),
        ("tp", "tp"),
        ("pp", "pp"),
        ("cp", "context_parallel_size"),
        ("ep", "expert_parallel_size"),
    ):
        draft.put(field, sheet.integer(f"parallelism.{key}", into=field, high=10**6))
    mode = sheet.text("parallelism.tp_mode", into="sequence parallelism")
    if mode is not None and (draft.get("tp") or 1) > 1:
        on = "REDUCE_SCATTER" in mode.value.upper()
        draft.put("sequence_parallel", Given(on, mode.file, mode.line))
    engine = sheet.text("parallelism.pp_engine", into="pipeline schedule")
    if engine is not None:
        kind = "gpipe" if "afab" in engine.value.lower() else "1f1b"
        draft.put("schedule", Given(kind, engine.file, engine.line))
    draft.put("microbatch", sheet.integer("tokens.micro_batch_size", into="microbatch"))
    draft.put(
        "accumulation", sheet.integer("tokens.batch_accumulation_per_replica", into="accumulation")
    )
    draft.put("seq_len", sheet.integer("tokens.sequence_length", into="sequence length"))
    _optimizer(sheet)
    _stages(sheet)
    _remat(sheet)
    sheet.flag("tp_overlap", "parallelism.tp_linear_async_communication")
    sheet.flag("attention_kernel", "model.model_config._attn_implementation")
    if sheet.flag("packed_documents", "model.model_config._use_doc_masking"):
        why = "attention stays within documents, whose length is not said: --set document_len=N"
        draft.note("attention", "over the whole sequence", why)
    sheet.flag("fused_ops", "model.model_config._fused_rms_norm")
    sheet.flag("fused_ops", "model.model_config._fused_rotary_emb")
    if (draft.get("tp") or 1) == 8:
        found = draft.values["tp"]
        draft.flag("node_of_8", "parallelism.tp", 8, getattr(found, "line", None))
    off = [key for key, one in sheet.settings.items() if one.value in (False, None)]
    gathered = sheet.boolean("parallelism.tp_recompute_allgather", into="gathered inputs again")
    if gathered is not None and not gathered.value and (draft.get("tp") or 1) > 1:
        key = "parallelism.tp_recompute_allgather"
        why = "the gathered inputs of linear maps stay for the backward pass; not in the estimate"
        draft.ignored.append(Ignored(key, gathered.file, gathered.line, True, why))
    sheet.ignore([k for k in off if k.startswith("parallelism.")], False, "off")
    sheet.ignore(QUIET, False, "does not change the time or memory of a step")
    sheet.close("nanotron", unknown_matters=True)
    return draft


def _stages(sheet: Sheet) -> None:
    """A stage of the data may have a length of its own; the first stage's is the job's."""
    stages = sheet.settings.get("data_stages")
    length = sheet.draft.get("seq_len")
    if stages is None or not isinstance(stages.value, list):
        return
    own = [stage.get("sequence_length") for stage in stages.value if isinstance(stage, dict)]
    if other := [n for n in own if n is not None and n != length]:
        why = f"a stage of the data has {other[0]} tokens a sequence: --set seq_len={other[0]}"
        sheet.draft.note("sequence length", length, why)


def _remat(sheet: Sheet) -> None:
    """A layer whole, or (in versions of 2023) attention alone or a layer by its granularity."""
    draft = sheet.draft
    again = sheet.boolean("parallelism.recompute_layer", into="rematerialisation")
    if again is not None:
        draft.put("remat", Given("full" if again.value else "none", again.file, again.line))
    words = ("full", "selective", "none")
    old = sheet.text("parallelism.recompute_granularity", into="rematerialisation", choices=words)
    if old is not None and again is None:
        draft.put("remat", old)
    draft.assume("remat", "none", "nanotron's default recompute_layer")


def _model(sheet: Sheet) -> None:
    draft = sheet.draft
    base = "model.model_config."
    keys = {k: s for k, s in sheet.settings.items() if k.startswith(base)}
    if not keys:
        raise InputError(f"{draft.file} gives no model.model_config; expected it, or --model")
    config = {k.removeprefix(base): s.value for k, s in keys.items() if "." not in k[len(base) :]}
    family = next((f for flag, f in FAMILIES.items() if as_boolean(config.get(flag)) is True), "")
    first = next(iter(keys.values()))
    told = [k for k, v in config.items() if k.startswith("is_") and k.endswith("_config") and v]
    other = next((k for k in config if k not in LLAMA_KEYS and not k.startswith("_")), "")
    if not family and not told and {"hidden_size", "num_hidden_layers"} <= config.keys():
        family = "" if other else "llama"
        if family:
            why = "no is_..._config key: nanotron takes its first kind that has these, Llama's"
            draft.note("model", family, why)
    experts = {k: s for k, s in keys.items() if k.startswith(f"{base}moe_config.")}
    if not family or (experts and family != "qwen2"):
        unlike = f"{other}, which its Llama has not" if other else "no is_llama_config"
        kind = told[0] if told and not family else "experts" if family else unlike
        draft.wanted_model = f"an architecture that nanotron alone defines ({kind})"
        return
    config = {k: v for k, v in config.items() if not k.startswith("is_")}
    if family == "starcoder2":
        config = {STARCODER2.get(k, k): v for k, v in config.items() if v is not None}
        width = as_integer(config.get("hidden_size"))
        if "intermediate_size" not in config and width is not None:
            config["intermediate_size"] = 4 * width
    window_key = f"{base}sliding_window_size"
    window, whole = config.pop("sliding_window_size", None), config.get("no_rope_layer")
    model = model_of_config({**config, "model_type": family}, "nanotron", first.where)
    if family == "qwen2":
        near = sheet.integer(window_key, into="window of attention")
        model = windowed(model, near.value if near is not None else None, as_integer(whole))
        model = with_experts(sheet, model, f"{base}moe_config.") if experts else model
    elif window is not None:
        why = "a window is of nanotron's Qwen 2 and StarCoder 2 alone"
        sheet.ignore((window_key,), False, why)
    draft.put("model", Given(model, first.file, first.line))
    for key, setting in keys.items():
        if key not in sheet.taken:
            sheet.raw(key)
            sheet.record(key, setting, "model")
    step = sheet.integer("model.make_vocab_size_divisible_by", into="step of the vocabulary")
    draft.put("vocab_step", step)
    draft.assume("vocab_step", 1, "nanotron's default make_vocab_size_divisible_by")


def _optimizer(sheet: Sheet) -> None:
    draft = sheet.draft
    stage = sheet.integer("optimizer.zero_stage", into="optimizer sharding", low=0, high=3)
    if stage is not None:
        kind = ("none", "zero1", "zero2", "zero2")[stage.value]
        draft.put("optimizer_sharding", Given(kind, stage.file, stage.line))
    kept = sheet.text("model.dtype", into="dtype of weights and matmuls")
    dtype = (dtype_of(kept.value) if kept is not None else None) or "bf16"
    wide = sheet.boolean("optimizer.accumulate_grad_in_fp32", into="fp32 gradients")
    gradients = "fp32" if wide is not None and wide.value else dtype
    why = "nanotron keeps an fp32 copy of the weights where it accumulates gradients in fp32"
    for field in ("compute", "weights"):
        if kept is not None:
            draft.put(field, Given(dtype, kept.file, kept.line))
        draft.assume(field, dtype, "nanotron's usual dtype")
    draft.assume("gradients", gradients, why)
    draft.assume("reduce", gradients, why)
    draft.assume("master", "fp32" if gradients == "fp32" and dtype != "fp32" else "none", why)
    draft.assume("moments", gradients, why)
    name = sheet.text("optimizer.optimizer_factory.name", into="optimizer")
    if name is not None:
        put_optimizer_named(draft, name, "optimizer.optimizer_factory.name")
    sheet.flag("fused_optimizer", "optimizer.optimizer_factory.torch_adam_is_fused")
