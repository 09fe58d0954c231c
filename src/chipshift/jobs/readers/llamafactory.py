"""LLaMA-Factory's YAML.

Keys and defaults: LLaMA-Factory, examples/README and src/llamafactory/hparams, 2026.
"""

from __future__ import annotations

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.readers.hf_args import fill, put_ignored, stack_of
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import as_boolean
from chipshift.jobs.source import Source


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "llamafactory")
    sheet = yaml_sheet(source, context, draft)
    off = sheet.boolean("disable_gradient_checkpointing", into="rematerialisation")
    if off is not None:
        draft.put("remat", Given("none" if off.value else "full", off.file, off.line))
    draft.assume("remat", "full", "LLaMA-Factory recomputes each layer unless told not to")
    kind = str(getattr(sheet.settings.get("finetuning_type"), "value", "lora"))
    if kind != "full" and as_boolean(getattr(sheet.settings.get("bf16"), "value", False)):
        draft.assume("loaded", "bf16", "LLaMA-Factory holds frozen weights in the compute dtype")
    for field in ("tensor", "pipeline", "context", "expert"):
        size = sheet.integer(f"{field}_model_parallel_size", f"{field}_parallel_size", into=field)
        if size is not None and size.value > 1:
            draft.put(
                {"tensor": "tp", "pipeline": "pp", "context": "cp", "expert": "ep"}[field], size
            )
    fill(sheet, context)
    draft.assume("seq_len", 2048, "LLaMA-Factory's default cutoff_len")
    if (kept := sheet.settings.get("infer_dtype")) is not None:
        sheet.raw("infer_dtype")
        sheet.record("infer_dtype", kept, "of inference only")
    draft.assume("stack", stack_of(draft), "LLaMA-Factory has no calibration of its own")
    more = (
        *("image_*", "video_*", "audio_*", "pref_*", "freeze_*", "dpo_*", "simpo_*", "ppo_*"),
        *("adapter_name*", "export_*", "infer_*", "upcast_*", "double_*", "quantization_*"),
        *("reward_*", "ray_*", "mix_*", "swanlab*", "cutoff*", "mask_history", "visual*"),
    )
    put_ignored(sheet, more)
    sheet.close("LLaMA-Factory")
    return draft
