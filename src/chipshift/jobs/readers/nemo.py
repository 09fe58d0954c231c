"""NeMo: version 1's YAML, and Megatron-Bridge and NeMo 2 recipes through their syntax tree.

All of them set Megatron Core's fields; they are read as the Megatron-LM arguments they equal.
Keys: NVIDIA, NeMo, "megatron_gpt_config.yaml" and "NeMo 2.0 recipes", 2025; Megatron-Bridge,
src/megatron/bridge/recipes and perf_recipes, 2026.
"""

from __future__ import annotations

import re

from chipshift.errors import InputError, nearest
from chipshift.jobs import python_tree
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.dtypes import dtype_of
from chipshift.jobs.job import Given
from chipshift.jobs.launch import CHIPS
from chipshift.jobs.readers import megatron
from chipshift.jobs.readers.hf_args import put_model_named
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Setting, Sheet, as_boolean
from chipshift.jobs.source import Source

RENAMED = {
    "encoder_seq_length": "seq-length",
    "seq_length": "seq-length",
    "sequence_length": "seq-length",
    "virtual_pipeline_model_parallel_size": "num-virtual-stages-per-pipeline-rank",
    "activations_checkpoint_granularity": "recompute-granularity",
    "activations_checkpoint_method": "recompute-method",
    "activations_checkpoint_num_layers": "recompute-num-layers",
    "num_moe_experts": "num-experts",
    "moe_router_topk": "moe-router-topk",
    "use_megatron_fsdp": "use-megatron-fsdp",
    "tp_comm_overlap": "tp-comm-overlap",
    "ub_tp_comm_overlap": "tp-comm-overlap",
    "data_parallel_sharding_strategy": "data-parallel-sharding-strategy",
    "mtp_num_layers": "mtp-num-layers",
    "mbs": "micro-batch-size",
    "gbs": "global-batch-size",
    "tp_size": "tensor-model-parallel-size",
    "pp_size": "pipeline-model-parallel-size",
    "cp_size": "context-parallel-size",
    "vp_size": "num-virtual-stages-per-pipeline-rank",
    "ep_size": "expert-model-parallel-size",
    "etp_size": "expert-tensor-parallel-size",
}
"""Fields whose Megatron-LM argument has another name."""

PASSED = frozenset(
    {
        *("micro_batch_size", "global_batch_size", "tensor_model_parallel_size", "num_layers"),
        *("pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size"),
        *("expert_tensor_parallel_size", "sequence_parallel", "hidden_size", "ffn_hidden_size"),
        *("num_attention_heads", "num_query_groups", "kv_channels", "recompute_granularity"),
        *("recompute_method", "recompute_num_layers", "recompute_modules", "vocab_size"),
        *("use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather"),
        *("moe_ffn_hidden_size", "grad_reduce_in_bf16", "max_position_embeddings"),
        *("cuda_graph_impl", "attention_backend", "moe_grouped_gemm", "moe_permute_fusion"),
        *("bf16", "fp16", "swiglu"),
        *("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "transformer_impl"),
        *("moe_flex_dispatcher_backend", "use_precision_aware_optimizer", "use_nccl_ub"),
    }
)
YAML_WORDS = frozenset(
    {
        *("model.activation", "model.bias", "model.share_embeddings_and_output_weights"),
        *("model.position_embedding_type", "model.fp8", "model.optim.name", "model.normalization"),
        *("trainer.precision", "model.tokenizer.model", "model.tokenizer.type", "name"),
    }
)
"""Keys of version 1's YAML whose values are read here rather than passed on."""

_MODEL = re.compile(r"(llama|mixtral|mistral|qwen|deepseek|gemma|gpt_oss|nemotron|kimi|phi)[\w.]*")
_OTHER = re.compile(r"bert|mt5|t5|clip|vit|neva|diffusion|imagen|dreambooth|retro|controlnet|nerf")
_PRECISION = re.compile(r"bf16|fp16|fp8|nvfp4|mxfp8|32")


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    if re.search(r"^\s*(?:import|from)\s+\w", source.text, re.M):
        return _recipe(source, context)
    draft = Draft(source.path, "nemo", uneven_pp=False)
    found = yaml_sheet(source, context, draft).settings
    settings: dict[str, Setting] = {}
    draft.known |= {f"model.{name}" for name in PASSED | RENAMED.keys()} | YAML_WORDS
    for key, setting in found.items():
        name = key.rsplit(".", 1)[-1]
        _pass(settings, name, setting)
        if setting.file == "--set" and (name in RENAMED or name in PASSED or key in YAML_WORDS):
            draft.reached.add(key)
    _yaml_words(settings, found)
    _other_kinds(draft, found)
    nodes, devices = found.get("trainer.num_nodes"), found.get("trainer.devices")
    sheet = Sheet(found, draft)
    if nodes is not None:
        draft.put("nodes", sheet.integer("trainer.num_nodes", into="nodes"))
    if devices is not None and str(devices.value) not in ("-1", "auto"):
        draft.put("devices_per_node", sheet.integer("trainer.devices", into="devices a node"))
    _fill(settings, draft, context)
    return draft


def _yaml_words(settings: dict[str, Setting], found: dict[str, Setting]) -> None:
    """Words of NeMo 1 that are values in YAML and switches in Megatron-LM."""

    def on(key: str, argument: str, wanted: str) -> None:
        setting = found.get(key)
        if setting is not None and re.search(wanted, str(setting.value).lower()):
            settings[argument] = Setting(True, setting.file, setting.line)

    on("model.activation", "swiglu", r"swiglu|geglu|silu")
    on("model.bias", "disable-bias-linear", r"false")
    on("model.share_embeddings_and_output_weights", "untie-embeddings-and-output-weights", r"false")
    on("model.position_embedding_type", "use-rotary-position-embeddings", r"rope")
    on("model.fp8", "fp8-format", r"true")
    on("model.optim.name", "use-distributed-optimizer", r"distributed")
    norm = found.get("model.normalization")
    if norm is not None:
        name = "RMSNorm" if "rms" in str(norm.value).lower() else "LayerNorm"
        settings["normalization"] = Setting(name, norm.file, norm.line)
    if "num-query-groups" in settings:
        groups = settings["num-query-groups"]
        settings["group-query-attention"] = Setting(True, groups.file, groups.line)
    precision = found.get("trainer.precision")
    if precision is not None:
        _precision(settings, str(precision.value), precision)
    for key in ("model.tokenizer.model", "model.tokenizer.type"):
        tokenizer = found.get(key)
        if tokenizer is not None and isinstance(tokenizer.value, str):
            named = "/" in tokenizer.value
            settings["tokenizer-model" if named else "tokenizer-type"] = tokenizer


def _other_kinds(draft: Draft, found: dict[str, Setting]) -> None:
    """NeMo trains much besides decoders under the same keys: those are named, not misread."""
    words = [str(found[key].value) for key in ("name", "run.name") if key in found]
    for word in words:
        if match := _OTHER.search(word.lower()):
            draft.wanted_model = f"a {match.group()} of NeMo's"
    other = ("model.vision.", "model.unet", "model.first_stage", "model.decoder.", "model.mm_cfg.")
    if any(key.startswith(other) for key in found):
        draft.wanted_model = "a model of NeMo's that is not a decoder alone"


def _pass(settings: dict[str, Setting], name: str, setting: Setting) -> None:
    """A field as the argument it equals; off and unset ones are left out."""
    argument = RENAMED.get(name) or (name.replace("_", "-") if name in PASSED else None)
    value = setting.value
    if argument is None or value is None or value is False or isinstance(value, dict):
        return
    if isinstance(value, str) and as_boolean(value) is False and not value.isdecimal():
        return
    if argument == "num-virtual-stages-per-pipeline-rank" and str(value) == "1":
        return
    if isinstance(value, str) and argument.endswith("-dtype"):
        setting = Setting(dtype_of(value) or value, setting.file, setting.line)
    settings[argument] = setting


def _precision(settings: dict[str, Setting], words: str, setting: Setting) -> None:
    lowered = words.lower()
    if "16" in lowered or "fp8" in lowered or "fp4" in lowered:
        half = "fp16" if re.fullmatch(r"(?:fp)?16(?:-mixed)?", lowered) else "bf16"
        settings[half] = Setting(True, setting.file, setting.line)
    if "nvfp4" in lowered:
        settings["fp4-format"] = Setting("e2m1", setting.file, setting.line)
    elif "fp8" in lowered:
        settings["fp8-format"] = Setting("hybrid", setting.file, setting.line)
        settings["fp8-recipe"] = Setting(lowered, setting.file, setting.line)


def _recipe(source: Source, context: Context) -> Draft:
    draft = Draft(source.path, "megatron-bridge", uneven_pp=False)
    draft.pads_vocab = "megatron.bridge" not in source.text  # Bridge keeps the checkpoint's rows
    module = python_tree.parse(source)
    name, scope = _scope(module, context, source.path)
    settings: dict[str, Setting] = {}
    nodes: dict[str, Setting] = {}
    model = ""
    for call in scope.calls:
        last = call.name.rsplit(".", 1)[-1]
        if last in ("pretrain_recipe", "finetune_recipe"):
            nodes.update(call.keywords)
            model = model or call.name.split(".")[-2]
        elif last == "set_primary_perf_configs":
            tensor = call.keywords.get("tp_size")
            if tensor is not None and tensor.value not in (None, 1):
                settings["sequence-parallel"] = Setting(True, source.path, tensor.line)
        elif last == "from_hf_pretrained" and call.arguments:
            model = str(call.arguments[0])
        elif _MODEL.match(last) and ("config" in last or "recipe" in last):
            model = model or last
        elif last == "_perf_precision" or last.endswith(("mixed_precision", "bf16_mixed")):
            words = str(call.arguments[0]) if call.arguments else last
            _precision(settings, words, Setting(words, source.path, call.line))
        for key, setting in call.keywords.items():
            _keep(settings, nodes, key, setting)
    for path, setting in scope.attributes.items():
        _keep(settings, nodes, path.rsplit(".", 1)[-1], setting)
    draft.put("name", Given(name, source.path))
    sheet = Sheet(nodes, draft)
    draft.put("nodes", sheet.integer("num_nodes", into="nodes"))
    draft.put(
        "devices_per_node", sheet.integer("num_gpus_per_node", "devices", into="devices a node")
    )
    _named_machine(draft, name)
    _recipe_model(draft, context, model or name)
    settings.setdefault("bf16", Setting(True, source.path))
    if "use-distributed-optimizer" not in settings:
        settings["use-distributed-optimizer"] = Setting(True, source.path)
        draft.note("optimizer sharding", "zero1", "NeMo's recipes use the distributed optimizer")
    _fill(settings, draft, context)
    return draft


def _named_machine(draft: Draft, name: str) -> None:
    """``llama3_8b_pretrain_16gpu_h100_bf16_config`` says devices and chip in its name."""
    match = re.search(r"_(\d{1,6})gpu_([a-z0-9]+)_", name)
    if match is None:
        return
    why = f"the recipe's name, {name}"
    if "devices" not in draft.values and not draft.given("nodes"):
        draft.assume("devices", int(match.group(1)), why)
    if match.group(2) in CHIPS:
        draft.assume("chip", CHIPS[match.group(2)], why)


def _keep(
    settings: dict[str, Setting], nodes: dict[str, Setting], key: str, setting: Setting
) -> None:
    value = setting.value
    if key in ("num_nodes", "num_gpus_per_node", "devices"):
        nodes[key] = setting
    elif isinstance(value, python_tree.Unknown):
        if key in ("mixed_precision", "precision_config", "plugins") and _PRECISION.search(value):
            _precision(settings, str(value), setting)
    elif key == "use_mcore_fsdp" and value is True:
        settings["use-megatron-fsdp"] = setting
        settings["data-parallel-sharding-strategy"] = Setting(
            "optim_grads_params", setting.file, setting.line
        )
    elif key in ("mixed_precision", "precision_config", "compute_dtype") and isinstance(value, str):
        _precision(settings, value, setting)
    else:
        _pass(settings, key, setting)


def _scope(
    module: python_tree.Module, context: Context, file: str
) -> tuple[str, python_tree.Module]:
    """One recipe of the file: the only one, the one ``--set recipe=`` names, or the first."""
    recipes = {
        name: scope
        for name, scope in module.functions.items()
        if any(path.rsplit(".", 1)[-1] in PASSED for path in scope.attributes)
        or any(set(call.keywords) & PASSED for call in scope.calls)
    }
    wanted = context.overrides.variable("recipe")
    if wanted is not None:
        if wanted not in recipes:
            raise InputError(
                f"{file} has no recipe '{wanted}'{nearest(wanted, list(recipes))} "
                f"({len(recipes)} there)"
            )
        return wanted, recipes[wanted]
    if len(recipes) > 1:
        names = ", ".join(list(recipes)[:4])
        raise InputError(
            f"{file} holds {len(recipes)} recipes ({names} ...); expected --set recipe=NAME"
        )
    if recipes:
        return next(iter(recipes.items()))
    return file.rsplit("/", 1)[-1].removesuffix(".py"), module


def _recipe_model(draft: Draft, context: Context, words: str) -> None:
    """``llama3_8b_pretrain_config`` names a model; NeMo 2's ``llm.llama31_70b`` too."""
    if context.model_named:
        return
    if "/" in words:
        put_model_named(draft, words, Setting(words, draft.file))
        return
    match = _MODEL.search(words)
    if match is None:
        return
    name = re.split(r"_(?:pretrain|finetune|sft|peft|config|recipe|\d+gpu|lora)", match.group())[0]
    spelled = re.sub(r"^llama3(\d)_", r"llama-3.\1-", name).replace("_", "-")
    put_model_named(draft, spelled, Setting(name, draft.file))


def _fill(settings: dict[str, Setting], draft: Draft, context: Context) -> None:
    settings.setdefault("use-mcore-models", Setting(True, draft.file))
    megatron.lay_over(settings, context.overrides)
    known = draft.get("model") is not None or bool(draft.wanted_model)
    megatron.fill(Sheet(settings, draft), context.model_named or known)
