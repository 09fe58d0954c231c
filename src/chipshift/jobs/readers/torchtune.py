"""torchtune's YAML recipes.

Keys: PyTorch, torchtune, recipes/configs/*.yaml and "All About Configs", 2025.
"""

from __future__ import annotations

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.dtypes import dtype_of
from chipshift.jobs.job import Given
from chipshift.jobs.loss import GENERATES
from chipshift.jobs.readers.offloading import put_offloading
from chipshift.jobs.readers.optimizer_name import put_optimizer_named
from chipshift.jobs.readers.preference_keys import known_loss, say_sampled
from chipshift.jobs.readers.teacher import put_teacher
from chipshift.jobs.readers.torchtune_model import BUILDER, named, put_torchtune_model
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Sheet
from chipshift.jobs.source import Source

LENGTHS = ("tokenizer.max_seq_len", "max_seq_len", "dataset.max_seq_len")
"""The tokenizer's, of which a data set of the first versions had its own."""
QUIET = (
    *("tokenizer.*", "dataset*", "checkpointer.*", "metric_logger.*", "profiler.*", "optimizer.*"),
    *("lr_scheduler.*", "loss.*", "kd_loss*", "kd_ratio", "seed", "shuffle", "epochs", "device"),
    *("max_steps_per_epoch", "clip_grad_norm", "log_*", "output_dir", "resume_from_checkpoint"),
    *(
        "custom_sharded_layers",
        "memory_efficient_fsdp_wrap",
        "save_*",
        "run_val_*",
        "*_val",
        "quantizer*",
    ),
    *("fake_quant_*", "collate_fn", "compile.*", "cudnn_*", "enable_async_*", "low_cpu_ram"),
    *("tensor_parallel_plan*", "use_distributed_state_dict", "enable_expandable_segments", "name"),
    *("model.lora_*", "model.*dropout", "model.norm_*", "model.rope_*", "model.image_size", "ac_*"),
    *("model.scale_factor", "model.use_*", "generation*", "prompt*", "chat_*", "inference.*"),
    *(
        "orchestration.*",
        "postprocessing.*",
        "dataloader*",
        "safe_serialization",
        "fsdp.cpu_offload",
    ),
    "metadata*",
)
"""torchtune's keys that change neither time nor memory, or that are read here."""
UNCOUNTED = {
    "optimizer_in_bwd": "gradients are freed as each layer is updated: they are counted whole",
    "layer_dropout.prob": "layers that a step leaves out are counted",
    "early_exit_loss.scale": "losses of layers between are not counted",
    "resize_token_embeddings": "rows that the tokenizer adds to the vocabulary are not counted",
}
"""What changes a step's time or memory and is not in the numbers, where it is on."""


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "torchtune")
    sheet = yaml_sheet(source, context, draft)
    put_torchtune_model(sheet, context)
    _teacher(sheet, context)
    micro = sheet.integer("batch_size", into="sequences a device")
    draft.put("microbatch", micro)
    draft.counts_examples = True
    draft.put("accumulation", sheet.integer("gradient_accumulation_steps", into="accumulation"))
    draft.assume("accumulation", 1, "torchtune's default of no accumulation")
    draft.put("seq_len", sheet.integer(*LENGTHS, into="sequence length"))
    _precision(sheet)
    _remat(sheet)
    put_offloading(sheet, "enable_activation_offloading", needs="enable_activation_checkpointing")
    name = sheet.text("optimizer._component_", into="optimizer")
    if name is not None:
        put_optimizer_named(draft, name, "optimizer._component_")
    sheet.flag("fused_optimizer", "optimizer.fused")
    _parallel(sheet)
    loss = sheet.text("loss._component_", into="loss")
    _pieces(sheet, loss)
    sheet.flag("compile", "compile")
    packed = sheet.boolean("dataset.packed", into="packing")
    if packed is None or not packed.value:
        draft.note("sequences", "full length", "rows are not packed: real batches are shorter")
    _loss(draft, loss)
    _quantised_training(sheet)
    draft.assume("task", "sft", "torchtune fine-tunes")
    draft.assume("stack", "other", "torchtune has no calibration of its own")
    if draft.get("loss") == "dpo":
        sheet.ignore(("ref_checkpointer*",), False, "the reference is read by the loss")
    sheet.ignore(
        ("teacher_*", "*reward*", "policy_*", "forward_batch_size", "ppo_*", "ref_*"),
        True,
        "a second model's part is not counted",
    )
    for key, why in UNCOUNTED.items():
        found = sheet.settings.get(key)
        if found is not None and str(found.value).lower() not in ("false", "none", "0"):
            sheet.ignore((key,), True, why)
    why = "each prompt is answered so many times, and the step trains on every answer"
    sheet.ignore(("grpo_samples",), True, why)
    sheet.ignore(QUIET, False, "does not change the time or memory of a step")
    sheet.close("torchtune")
    return draft


def _remat(sheet: Sheet) -> None:
    """Each layer whole, or one of every ``ac_option`` layers."""
    draft = sheet.draft
    on = sheet.boolean("enable_activation_checkpointing", into="rematerialisation")
    if on is not None:
        draft.put("remat", Given("full" if on.value else "none", on.file, on.line))
    mode = sheet.text("ac_mode", into="which layers are recomputed")
    if mode is None or mode.value.lower() not in ("full", "selective"):
        return
    every = sheet.integer("ac_option", into="one of so many layers is recomputed")
    share = every.value if mode.value.lower() == "selective" and every else 1
    draft.put("remat", Given("full" if share == 1 else f"full:1/{share}", mode.file, mode.line))


def _pieces(sheet: Sheet, loss: Given[str] | None) -> None:
    """Losses that make the logits of a part of the tokens at a time.

    Source: PyTorch, torchtune, modules/loss/cross_entropy_loss.py (LinearCrossEntropyLoss) and
    ce_chunked_output_loss.py: eight parts by default.
    """
    if loss is None or not any(word in loss.value.lower() for word in ("chunked", "linearcross")):
        return
    draft = sheet.draft
    told = sheet.integer("loss.num_output_chunks", into="pieces of the loss")
    draft.put("loss_chunks", told or Given(8, loss.file, loss.line))
    if told is None:
        draft.note("loss_chunks", 8, "torchtune's default number of chunks")


def _quantised_training(sheet: Sheet) -> None:
    """A quantizer beside a recipe that trains with it (``Int8DynActInt4WeightQATQuantizer``)."""
    named = sheet.settings.get("quantizer._component_")
    if named is not None and "qat" in str(named.value).lower():
        why = "quantisation-aware training rounds weights and activations in each step: its passes "
        sheet.ignore(("quantizer._component_",), True, why + "over them are not counted")


def _teacher(sheet: Sheet, context: Context) -> None:
    """The frozen teacher of torchtune's knowledge_distillation recipes."""
    component = sheet.settings.get("teacher_model._component_")
    match = BUILDER.match(str(component.value)) if component is not None else None
    if component is not None:
        key = "teacher_model._component_"
        sheet.raw(key)
        name = named(match) if match else ""
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
    again = sheet.settings.get("fsdp_reshard_after_forward")
    if again is not None and str(again.value).lower() == "false":
        sheet.boolean("fsdp_reshard_after_forward", into="gathered weights stay (ZeRO-2)")
        draft.put("sharding", Given("zero2", again.file, again.line))
    single = "single_device" in draft.file or "single_device" in str(
        getattr(sheet.settings.get("output_dir"), "value", "")
    )
    if single:
        draft.assume("devices", 1, "a single-device recipe")
        draft.assume("sharding", "ddp", "a single-device recipe")
    else:
        draft.assume("sharding", "fsdp", "torchtune's distributed recipes shard with FSDP")
    sheet.flag("cpu_offload", "fsdp_cpu_offload")
