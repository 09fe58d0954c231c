"""Primus on Megatron-LM: its modules' arguments, and the keys that only Primus has.

Keys and what they do: AMD, Primus, docs/03-configuration-reference/megatron-parameters.md,
primus/configs/modules/megatron/*.yaml and primus/backends/megatron/patches/args (mock_data, hsdp),
at commit fd1eeab, 2026-08-22.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.plan import of_some
from chipshift.jobs.readers import megatron, primus
from chipshift.jobs.readers.hf_args import put_model_named
from chipshift.jobs.readers.megatron_yaml import SHAPE, arguments, is_off
from chipshift.jobs.readers.nemo_library import MAPS
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Setting, Sheet, as_boolean, as_integer
from chipshift.jobs.source import Source
from chipshift.models.lora import Lora
from chipshift.models.preset import preset

MOCK_ROWS = 131_073
"""Rows of the tokenizer that stands in where data are mock and no vocab_size is told: 131,072 and
the end of document (Megatron-LM's NullTokenizer at the commit that Primus runs)."""

CHUNK = 4096
"""Tokens of a sequence that the fused linear loss takes at once (FUSED_CE_CHUNK's default)."""

SCHEDULES = {
    "1f1b": "1f1b",
    "1f1b-interleaved": "interleaved",
    "zero-bubble": "zero_bubble",
    "zero-bubble-heuristic": "zero_bubble",
    "zbv-formatted": "zero_bubble",
    "v-half": "zero_bubble",
    "v-min": "zero_bubble",
}
"""``pp_algorithm`` in the words of parallel/schedule."""

TURBO = (
    ("attention_kernel", ("use_turbo_attention", "use_sink_attention")),
    ("grouped_gemm", ("use_turbo_grouped_gemm", "use_turbo_grouped_mlp")),
    ("expert_kernels", ("use_turbo_deepep", "use_turbo_mega_moe")),
    ("fused_ops", ("use_turbo_gemm", "use_turbo_rms_norm", "use_turbo_fused_act_with_probs")),
    ("fp8_recipe", ("enable_turbo_attention_float8",)),
)
"""What Primus-Turbo's switches are to a port; all of them need ``enable_primus_turbo``."""

OTHER_LAYERS = ("is_hybrid_model", "experimental_attention_variant", "lfm_layer_types")
"""Keys that, when on, say that not every layer is attention and feed-forward; ``model_type`` says
so where it is none of ``PLAIN``."""

LATENT = ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")
"""Sizes that only multi-latent attention has; Primus's presets give some to other models too."""

PLAIN = ("gpt", "", "None")

DEFAULTS = frozenset(
    {
        *("micro_batch_size", "global_batch_size", "seq_length", "bf16"),
        "use_distributed_optimizer",
    }
)
"""Keys of the trainers' presets that are listed as assumed where a file leaves them out."""

MATTERS = {
    "decoder_pipeline_manual_split_list": "this way of cutting is not read; even stages are taken",
    "offload*": "offload to the host is not in the estimate",
    "cpu_offload": "offload to the host is not in the estimate",
    "enable_odc": "its own exchange of gradients is estimated as a reduce-scatter",
    "turbo_mega_moe_precision": "the experts' own precision is not read",
    "fused_ce_*": "how the loss is cut is not read; it is taken whole",
    "expert_model_parallel_layout": "this way of cutting is not read",
}
"""Primus's own keys that change time or memory and are not estimated."""

QUIET = (
    *("sink_level", "file_sink_level", "stderr_sink_level", "master_sink_level", "trainable"),
    *("disable_*", "mlflow_*", "generate_tracelens_report", "use_rocm_mem_info*", "log_*"),
    *("torch_profiler_*", "pytorch_profiler_*", "use_pytorch_profiler", "use_nsys_profiler"),
    *("record_*", "nvtx_ranges", "auto_continue_train", "no_fp8_weight_transpose_cache"),
    *("patch_moe_overlap", "pp_warmup", "dump_pp_data", "dataloader_*", "eval_*", "hf_path"),
    *("moe_router_force_load_balancing_*", "moe_use_*", "use_turbo_*", "turbo_*", "odc_*"),
    *("debug_*", "enable_zb_runtime", "zero_bubble_*", "pre_communication_optimization"),
    *("enable_zero_bubble", "enable_1f1b_v", "pp_*", "communication_method", "lb_mini_*"),
    *("enable_odc_lb_mini", "sft_*", "stage", "pretrained_checkpoint", "weight_deosc*"),
    *("check_for_*", "barrier_with_L1_time", "init_method*", "norm_epsilon", "layernorm_epsilon"),
    *("original_max_position_embeddings", "use_packed_attention", "torch_compile.*"),
    *("empty_cache_interval", "attention_softmax_in_fp32", "mmap_bin_files"),
    *("masked_softmax_fusion", "bias_*_fusion", "gradient_accumulation_fusion", "activation_func"),
    *("enable_primus_turbo", "gradient_reduce_div_fusion", "exit_on_missing_checkpoint"),
    *("use_fla_*", "fla_*", "model_type", "HSA_*", "NVTE_*", "GPU_MAX_*", "CLEAN_DOCKER_*"),
    *("deprecated_*", "mxfp4_*", "moe_per_layer_logging", "moe_extended_tp", "lora.*"),
    *("moe_deepep_num_sms", "moe_hybridep_num_sms", "final_logit_softcapping", "mock_dataset.*"),
    *("attn_logit_softcapping", "router_logit_softcapping", "no_bias_*", "swiglu_limit"),
    *("kda_backend", "USING_AIC", "PRIMUS_*", "LEGACY_GG", "TURBO_*", "use_*_attention_backend"),
    *("conv_bias", "conv_L_cache", "dist_ckpt_strictness", "fully_parallel_save"),
    *("full_validation", "multiple_validation_sets", "use_packed_sequences"),
)
"""Primus's keys that change neither the time nor the memory of a step here."""


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "megatron", uneven_pp=False, kv_replicated=True)
    found = yaml_sheet(source, context, draft).settings
    module = primus.the_module(found, "megatron", source.path, context)
    stated = {
        key: one
        for key, one in module.settings.items()
        if key == "add_bias_linear"  # off is what must be said of it
        or not (one.file.startswith(primus.OWN) and (one.value is None or is_off(one.value)))
    }
    other = _other_layers(stated)
    if "multi_latent_attention" not in stated or is_off(stated["multi_latent_attention"].value):
        stated = {key: one for key, one in stated.items() if key not in LATENT}
    known = _model(draft, module, other, context)
    if other and draft.get("model") is not None:
        stated = {key: one for key, one in stated.items() if key not in OTHER_LAYERS}
    _training(draft, module, stated)
    _packed(draft, stated)
    _replicas(stated)
    _turbo(draft, stated)
    _sinks(stated)
    _balance(draft, stated)
    own = _own(draft, stated)
    settings = arguments(stated, draft)
    _vocabulary(settings, draft)
    megatron.lay_over(settings, context.overrides)
    primus.note_absent(module, draft)
    primus.note_defaults(module, draft, DEFAULTS)
    megatron.fill(Sheet(settings, draft), known, "Primus")
    _after(draft, own)
    _name(draft, module)
    return draft


def _other_layers(stated: dict[str, Setting]) -> bool:
    """Whether layers are something else than attention and feed-forward."""
    kind = stated.get("model_type")
    if kind is not None and str(kind.value) not in PLAIN:
        return True
    return any(key in stated and not is_off(stated[key].value) for key in OTHER_LAYERS)


def _model(draft: Draft, module: primus.Module, other: bool, context: Context) -> bool:
    """Whether the model is known without its shape, by ``--model`` or by its name."""
    if context.model_named:
        return True
    if module.model is None or ("num_layers" in module.settings and not other):
        return False
    name = str(module.model.value)
    version = re.sub(r"(?<=\d)_(?=\d)", ".", name)  # qwen3_5_35B_A3B
    for spelling in (name, version, version.replace(".", "_").replace("_", ".", 1)):
        if draft.get("model") is None:
            put_model_named(draft, spelling.replace("_", "-"), module.model)
    draft.wanted_model = "" if draft.get("model") else name
    if draft.get("model") is not None:
        changed = sorted(k for k in module.overrides if k.replace("_", "-") in SHAPE)
        why = "the published shape"
        if changed:
            why += f", without the overrides' {', '.join(changed)}"
        draft.note("model", name, f"{why}; {name}.yaml beside settles it" if not other else why)
    return True


def _training(draft: Draft, module: primus.Module, stated: dict[str, Setting]) -> None:
    """Fine-tuning, and its adapters: rank 32 on every linear map where a file leaves it out."""
    stage = stated.get("stage")
    if module.name.startswith(("post", "sft")) or (stage and str(stage.value) == "sft"):
        draft.put("task", Given("sft", draft.file, stage.line if stage else None))
    on = stated.get("lora.enabled")
    if on is None or not as_boolean(on.value):
        return
    rank, targets = stated.get("lora.dim"), stated.get("lora.target_modules")
    listed = targets.value if targets is not None and isinstance(targets.value, list) else []
    names = [str(one) for one in listed] or [*MAPS][:4]
    maps = tuple(dict.fromkeys(own for one in names for own in MAPS.get(one, (one,))))
    width = as_integer(rank.value) if rank is not None else 32
    draft.put("lora", Given(Lora(rank=width or 32, targets=maps), on.file, on.line))
    draft.put("task", Given("lora", on.file, on.line))


def _packed(draft: Draft, stated: dict[str, Setting]) -> None:
    """Packed samples, whether they see one another or not."""
    packed = stated.pop("enable_packed_sequences", None)
    if packed is not None and as_boolean(packed.value):
        draft.flag("packed_documents", "enable_packed_sequences", "true", packed.line)


def _replicas(stated: dict[str, Setting]) -> None:
    """Replicas of groups that PyTorch's FSDP shards over, by Primus's own key."""
    groups = stated.pop("data_parallel_replicate_degree", None)
    if groups is not None and groups.value is not None:
        stated["num_distributed_optimizer_instances"] = groups


def _sinks(stated: dict[str, Setting]) -> None:
    """GPT-OSS's sinks, one learned number a head, and its window on every second layer."""
    names = ("use_sink_attention", "sink_sliding_window", "sink_window_even_layers_only")
    on, window, alternate = (stated.pop(name, None) for name in names)
    if on is None or not as_boolean(on.value):
        return
    stated["softmax_type"] = Setting("learnable", on.file, on.line)
    width = as_integer(window.value) if window is not None else 0
    if window is None or not width:
        return
    stated["window_size"] = Setting(f"({width}, 0)", window.file, window.line)
    if alternate is None or as_boolean(alternate.value) is not False:
        place = alternate or window  # the first layer has it, the second has not
        stated["window_attn_skip_freq"] = Setting(2, place.file, place.line)


def _balance(draft: Draft, stated: dict[str, Setting]) -> None:
    """A router that deals tokens out evenly whatever its scores: no rank has more than another."""
    forced = stated.pop("moe_router_force_load_balancing", None)
    if forced is not None and as_boolean(forced.value):
        draft.flag("balanced_experts", "moe_router_force_load_balancing", "true", forced.line)
        draft.note("expert load", "even", "moe_router_force_load_balancing deals tokens out evenly")


def _turbo(draft: Draft, stated: dict[str, Setting]) -> None:
    """Primus-Turbo's kernels as flags, where they are on."""
    switch = stated.get("enable_primus_turbo")
    if switch is None or not as_boolean(switch.value):
        return
    for kind, keys in TURBO:
        for key in keys:
            if key in stated and as_boolean(stated[key].value):
                draft.flag(kind, key, "true", stated[key].line)


def _own(draft: Draft, stated: dict[str, Setting]) -> dict[str, Setting]:
    """What Primus alone reads, taken out of ``stated`` and listed."""
    names = ("recompute_layer_ids", "enable_fused_linear_ce")
    taken = {name: stated.pop(name) for name in names if name in stated}
    own = {name: one for name, one in taken.items() if one.value not in (None, "", [])}
    pipeline = (("patch_primus_pipeline", "pp_algorithm"), ("patch_zero_bubble", ""))
    for switch, algorithm in pipeline:
        on = stated.pop(switch, None)
        if on is not None and as_boolean(on.value):
            named = stated.get(algorithm)
            own["schedule"] = named or Setting(
                "zero-bubble" if not algorithm else "1f1b-interleaved", on.file, on.line
            )
    sheet = Sheet(stated, draft)
    for pattern, why in MATTERS.items():
        sheet.ignore((pattern,), True, why)
    sheet.ignore(QUIET, False, "does not change the time or memory of a step")
    for key in sheet.taken:
        del stated[key]
    return own


def _vocabulary(settings: dict[str, Setting], draft: Draft) -> None:
    """Mock data take a tokenizer of their own, whatever the model's."""
    mock = settings.get("mock-data")
    if mock is None or "vocab-size" in settings or "padded-vocab-size" in settings:
        return
    settings["vocab-size"] = Setting(MOCK_ROWS, mock.file, mock.line)
    why = "mock_data: Primus then trains 131,072 rows and an end of document, no tokenizer's"
    draft.note("vocabulary", MOCK_ROWS, f"{why}; --set vocab-size=N settles it")


def _after(draft: Draft, own: dict[str, Setting]) -> None:
    """The schedule, the layers run again and the pieces of the loss, over what was read."""
    schedule = own.get("schedule")
    if schedule is not None and (draft.get("pp") or 1) > 1:
        name = str(schedule.value)
        draft.put("schedule", Given(SCHEDULES.get(name, "1f1b"), schedule.file, schedule.line))
        if name.startswith("v-"):
            draft.note("schedule", "zero_bubble", f"{name} holds less memory than is estimated")
    ids = own.get("recompute_layer_ids")
    model = draft.get("model")
    if ids is not None and model is not None:
        again = set(re.findall(r"\d+", str(ids.value)))
        remat = of_some("full", len(again), model.n_layers)
        draft.put("remat", Given(remat, ids.file, ids.line))
    fused = own.get("enable_fused_linear_ce")
    if fused is not None and as_boolean(fused.value) and draft.get("seq_len"):
        pieces = math.ceil(draft.get("seq_len") / CHUNK)
        draft.put("loss_chunks", Given(pieces, fused.file, fused.line))
    for key, one in own.items():
        if key != "schedule":
            taken = "which layers are recomputed" if key == "recompute_layer_ids" else "the loss"
            Sheet({}, draft).record(key, one, taken)


def _name(draft: Draft, module: primus.Module) -> None:
    """The shipped model of the file's name, where it is that; a shape of its own is named so."""
    stated = draft.values.get("model")
    if not isinstance(stated, Given) or module.model is None:
        return
    own, name = stated.value, str(module.model.value)
    try:
        known = preset(name.replace("_", "-"))
    except InputError:
        known = None
    if known and (known.layers, known.vocab, known.tied) == (own.layers, own.vocab, own.tied):
        name = known.name
    elif not own.name.startswith("megatron-"):
        return
    draft.put("model", replace(stated, value=replace(own, name=name)))
