"""DeepSpeed-Chat's arguments, in the Trainer's words.

Source: DeepSpeed, DeepSpeedExamples, applications/DeepSpeed-Chat/training/*/main.py and
dschat/utils/{ds_utils,module/lora}.py, 2025: ``--dtype`` is fp16 unless it says bf16, adapters sit
on the linear maps whose name holds ``--lora_module_name``, and the rest of the model is trained
beside them unless ``--only_optimize_lora`` is given.
"""

from __future__ import annotations

from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Ignored
from chipshift.jobs.settings import Setting, as_integer


def translate(settings: dict[str, Setting], draft: Draft) -> None:
    """Rewrite the arguments in place; nothing happens where they are not DeepSpeed-Chat's."""
    if not {"zero_stage", "data_split"} <= settings.keys():
        return
    first = settings["zero_stage"]
    dtype = settings.pop("dtype", None)
    if dtype is None:
        draft.assume("mixed", "fp16", "DeepSpeed-Chat's default --dtype")
    else:
        half = "bf16" if dtype.value == "bf16" else "fp16"
        settings.setdefault(half, Setting(True, dtype.file, dtype.line))
    if "offload" in settings:
        draft.flag("cpu_offload", "offload", "true", settings["offload"].line)
    rank = settings.pop("lora_dim", None)
    if rank is None or not as_integer(rank.value):
        return
    if "only_optimize_lora" in settings:
        settings.setdefault("lora_r", rank)
        settings.setdefault("use_peft", Setting(True, rank.file, rank.line))
        settings.setdefault("lora_target_modules", Setting("all-linear", first.file, rank.line))
        return
    why = "without --only_optimize_lora the whole model is trained; the adapters are not counted"
    draft.ignored.append(Ignored("lora_dim", rank.file, rank.line, True, why))
