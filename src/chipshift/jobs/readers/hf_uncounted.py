"""Keys of the Trainer and of TRL that change a step, and are said where they are not counted.

Source: Hugging Face, Transformers, TrainingArguments and AcceleratorConfig; TRL, SFTConfig,
DPOConfig, GKDConfig and ModelConfig; Accelerate, dataclasses.py, 2026.
"""

from __future__ import annotations

from chipshift.jobs.context import Context
from chipshift.jobs.job import Given, Ignored
from chipshift.jobs.readers.teacher import put_teacher
from chipshift.jobs.settings import Sheet, as_boolean

_QUANTISED = ("load_in_4bit", "load_in_8bit")


def model_init(sheet: Sheet) -> None:
    """``model_init_kwargs``: what TRL loads the model with, where nothing else says it."""
    for key in list(sheet.settings):
        table, _, last = key.rpartition(".")
        known = last in ("torch_dtype", "dtype", "attn_implementation", *_QUANTISED)
        if table == "model_init_kwargs" and known:
            sheet.settings.setdefault(last, sheet.settings.pop(key))


def say_uncounted(sheet: Sheet, context: Context) -> None:
    """What is read too late or not at all: a split batch, a teacher, weights that stay whole."""
    _split_batches(sheet)
    _compiled(sheet)
    _teacher(sheet, context)
    _in_place(sheet)
    if sheet.draft.get("lora") is None:
        why = "no adapters are named, and Transformers trains no quantised weights alone: left out"
        for key in (key for key in _QUANTISED if _on(sheet, key)):
            at = sheet.settings[key]
            sheet.draft.ignored.append(Ignored(key, at.file, at.line, True, why))
    why = "logits of the answer's tokens alone are made: those of every token are counted"
    names = ("use_logits_to_keep", "use_num_logits_to_keep")
    sheet.ignore([key for key in names if _on(sheet, key)], True, why)


def _on(sheet: Sheet, key: str) -> bool:
    setting = sheet.settings.get(key)
    return setting is not None and as_boolean(setting.value) is True


def _split_batches(sheet: Sheet) -> None:
    key = "accelerator_config.split_batches"
    if _on(sheet, key):
        why = "a batch of the loader is then split over the devices: per_device_train_batch_size "
        why += "was taken as a device's; --set microbatch=N"
        sheet.ignore((key,), True, why)


def _compiled(sheet: Sheet) -> None:
    """A backend or mode turns ``torch_compile`` on."""
    if "torch_compile" not in sheet.settings:
        sheet.flag("compile", "torch_compile_mode", "torch_compile_backend")


def _in_place(sheet: Sheet) -> None:
    """LOMO updates each weight as its gradient comes, without a copy of the weights.

    Source: OpenLMLab, LOMO, README and lomo_optim, 2023.
    """
    draft = sheet.draft
    used = draft.values.get("optimizer")
    if isinstance(used, Given) and used.value in ("lomo", "adalomo"):
        draft.put("master", Given("none", used.file, used.line))
        draft.note("gradients", "counted whole", "LOMO frees each as its weight is updated")


def _teacher(sheet: Sheet, context: Context) -> None:
    """TRL's distillation (GKD): a teacher beside the student, and answers that are sampled."""
    found = sheet.raw("teacher_model_name_or_path")
    if found is None or not found[1].value:
        return
    key, setting = found
    put_teacher(sheet.draft, context, key, str(setting.value), setting.file, setting.line)
    why = "GKD trains on answers that the student samples, or the teacher: not in the numbers"
    sheet.draft.ignored.append(Ignored(key, setting.file, setting.line, True, why))
