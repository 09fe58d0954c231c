"""torchtune's YAML recipes.

Keys: PyTorch, torchtune, recipes/configs/*.yaml and "All About Configs", 2025.
"""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.dtypes import dtype_of
from chipshift.jobs.job import Given
from chipshift.jobs.loss import GENERATES
from chipshift.jobs.readers.hf_args import put_model_named
from chipshift.jobs.readers.offloading import put_offloading
from chipshift.jobs.readers.optimizer_name import put_optimizer_named
from chipshift.jobs.readers.preference_keys import known_loss, say_sampled
from chipshift.jobs.readers.teacher import put_teacher
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Sheet
from chipshift.jobs.source import Source
from chipshift.models.lora import Lora

_BUILDER = re.compile(r"torchtune\.models\.(\w+)\.(?:(lora|qlora)_)?(\w+)$")
FAMILIES = {
    "llama2": "llama-2",
    "llama3": "llama-3",
    "llama3_1": "llama-3.1",
    "llama3_2": "llama-3.2",
    "llama3_3": "llama-3.3",
    "qwen2": "qwen2",
    "qwen2_5": "qwen2.5",
    "qwen3": "qwen3",
    "mistral": "mistral",
    "gemma": "gemma",
    "gemma2": "gemma-2",
    "phi3": "phi-3",
    "phi4": "phi-4",
}


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "torchtune")
    sheet = yaml_sheet(source, context, draft)
    _model(sheet, context)
    _teacher(sheet, context)
    micro = sheet.integer("batch_size", into="sequences a device")
    draft.put("microbatch", micro)
    draft.counts_examples = True
    draft.put("accumulation", sheet.integer("gradient_accumulation_steps", into="accumulation"))
    draft.assume("accumulation", 1, "torchtune's default of no accumulation")
    length = sheet.integer("tokenizer.max_seq_len", "max_seq_len", into="sequence length")
    draft.put("seq_len", length)
    _precision(sheet)
    for key, remat in (("enable_activation_checkpointing", "full"),):
        on = sheet.boolean(key, into="rematerialisation")
        if on is not None:
            draft.put("remat", Given(remat if on.value else "none", on.file, on.line))
    put_offloading(sheet, "enable_activation_offloading", needs="enable_activation_checkpointing")
    name = sheet.text("optimizer._component_", into="optimizer")
    if name is not None:
        put_optimizer_named(draft, name, "optimizer._component_")
    sheet.flag("fused_optimizer", "optimizer.fused")
    _parallel(sheet)
    loss = sheet.text("loss._component_", into="loss")
    if loss is not None and "chunked" in loss.value.lower():
        draft.put("loss_chunks", Given(8, loss.file, loss.line))
        draft.note("loss_chunks", 8, "torchtune's default number of chunks")
    sheet.flag("compile", "compile")
    packed = sheet.boolean("dataset.packed", into="packing")
    if packed is None or not packed.value:
        draft.note("sequences", "full length", "rows are not packed: real batches are shorter")
    _loss(draft, loss)
    draft.assume("task", "sft", "torchtune fine-tunes")
    draft.assume("stack", "other", "torchtune has no calibration of its own")
    sheet.ignore(
        ("teacher_*", "*reward*", "policy_*", "forward_batch_size", "ppo_*", "ref_*"),
        True,
        "a second model's part is not counted",
    )
    why = "each prompt is answered so many times, and the step trains on every answer"
    sheet.ignore(("grpo_samples",), True, why)
    sheet.ignore(("*",), False, "does not change the time or memory of a step")
    sheet.close("torchtune")
    return draft


def _model(sheet: Sheet, context: Context) -> None:
    draft = sheet.draft
    component = sheet.text("model._component_", into="model")
    rank = sheet.integer("model.lora_rank", into="rank of the adapters")
    modules = sheet.strings("model.lora_attn_modules", into="adapted matrices")
    mlp = sheet.boolean("model.apply_lora_to_mlp", into="adapters on the feed-forward")
    head = sheet.boolean("model.apply_lora_to_output", into="an adapter on the head")
    dora = sheet.boolean("model.use_dora", into="magnitudes trained apart (DoRA)")
    if component is None:
        raise InputError(f"{draft.file} gives no model._component_; expected a torchtune recipe")
    match = _BUILDER.match(component.value)
    if match is None:
        draft.wanted_model = component.value[:120]
        return
    adapter, name = match.group(2), _named(match)
    if not context.model_named:
        put_model_named(draft, name, sheet.settings["model._component_"])
    if adapter:
        targets = list(modules.value) if modules else ["q_proj", "v_proj"]
        targets += ["mlp"] if mlp and mlp.value else []
        targets += ["output"] if head and head.value else []
        lora = Lora(rank.value if rank else 8, tuple(targets), dora=bool(dora and dora.value))
        draft.put("lora", Given(lora, component.file, component.line))
        if adapter == "qlora":
            draft.put("quantised", Given("int4", component.file, component.line))


def _named(match: re.Match[str]) -> str:
    """The published name of a builder: ``llama3_2.lora_llama3_2_1b`` is llama-3.2-1b."""
    family, _, size = match.groups()
    size = size.removeprefix(family).strip("_").replace("_instruct", "").replace("_base", "")
    return f"{FAMILIES.get(family, family)}-{size.replace('_', '.')}"


def _teacher(sheet: Sheet, context: Context) -> None:
    """The frozen teacher of torchtune's knowledge_distillation recipes."""
    component = sheet.settings.get("teacher_model._component_")
    match = _BUILDER.match(str(component.value)) if component is not None else None
    if component is not None:
        key = "teacher_model._component_"
        sheet.raw(key)
        name = _named(match) if match else ""
        put_teacher(sheet.draft, context, key, name, component.file, component.line)
        sheet.ignore(("teacher_checkpointer*",), False, "where the teacher's weights lie")
        between = ("output_hidden_states*", "layer_mapping")
        sheet.ignore(between, True, "losses between layers are not counted")


def _loss(draft: Draft, loss: Given[str] | None) -> None:
    """Preferences by the loss's class: ``torchtune.rlhf.loss.DPOLoss`` and its kin."""
    if loss is None or "Loss" not in loss.value:
        return
    name = loss.value.rsplit(".", 1)[-1].removesuffix("Loss").lower()
    if known_loss(name):
        draft.put("loss", Given(known_loss(name), loss.file, loss.line))
    elif sampled := next((word for word in GENERATES if word in name), ""):
        say_sampled(draft, sampled)


def _precision(sheet: Sheet) -> None:
    """torchtune holds weights, gradients and moments in its one ``dtype``."""
    draft = sheet.draft
    kept = sheet.text("dtype", into="dtype of everything")
    if kept is not None and (dtype := dtype_of(kept.value)):
        draft.put("loaded", Given(dtype, kept.file, kept.line))
        draft.put("mixed", Given("no", kept.file, kept.line))
    draft.assume("loaded", "bf16", "torchtune's recipes are bf16 throughout")
    on = sheet.boolean("enable_fp8_training", into="fp8 matmuls")
    if on is not None and on.value:
        draft.put("compute", Given("fp8", on.file, on.line))
        draft.flag("fp8_recipe", "enable_fp8_training", "true", on.line)


def _parallel(sheet: Sheet) -> None:
    draft = sheet.draft
    draft.put("tp", sheet.integer("tensor_parallel_dim", into="tp"))
    draft.put("cp", sheet.integer("context_parallel_dim", into="cp"))
    draft.put("dp", sheet.integer("data_parallel_replicate_dim", into="dp", none=(-1,)))
    shard = sheet.integer("data_parallel_shard_dim", into="fsdp", none=(-1,))
    if shard is not None:
        draft.put("fsdp", shard)
    single = "single_device" in draft.file or "single_device" in str(
        getattr(sheet.settings.get("output_dir"), "value", "")
    )
    if single:
        draft.assume("devices", 1, "a single-device recipe")
        draft.assume("sharding", "ddp", "a single-device recipe")
    else:
        draft.assume("sharding", "fsdp", "torchtune's distributed recipes shard with FSDP")
    sheet.flag("cpu_offload", "fsdp_cpu_offload")
