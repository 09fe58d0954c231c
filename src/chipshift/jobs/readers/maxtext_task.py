"""MaxText's own files of its tasks (fine-tuning, preferences, distillation), by name.

A command names a YAML of MaxText's (``configs/post_train/dpo.yml``) that is rarely given beside it.
What those files set of a job is held here: Google, MaxText, src/maxtext/configs/post_train/*.yml,
2026-08-22, and src/MaxText/configs/{sft,dpo}.yml, 2025, where they stood before.
"""

from __future__ import annotations

import re
from typing import Any

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Ignored
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Setting
from chipshift.jobs.shell.lex import CLOSE, OPEN

TASK = re.compile(r"(base|sft|dpo|grpo|rl|distill)[\w-]*\.ya?ml$")
"""MaxText's own files of a task, whose model the command names."""
TUNES = {"sft": "use_sft", "dpo": "use_dpo"}
"""What files of these tasks set whatever else they say."""

_DPO = {"use_dpo": True, "per_device_batch_size": 2.0, "max_target_length": 512}
_DISTILLS = {
    "student_overrides.model_name": "llama3.1-8b",
    "teacher_overrides.model_name": "llama3.1-8b",
    "per_device_batch_size": 2,
    "max_target_length": 2048,
}
_SEES = {"use_sft": True, "use_multimodal": True, "packing": False}
OWN: dict[str, dict[str, Any]] = {
    "post_train/dpo": {**_DPO, "packing": False, "model_name": "qwen3-0.6b"},
    "post_train/sft": {"use_sft": True},
    "post_train/distillation": _DISTILLS,
    "post_train/distillation-sft": {**_DISTILLS, "use_sft": True},
    "post_train/sft-vision-chartqa": _SEES,
    "post_train/sft-vision-coco-captions": _SEES,
    "post_train/sft-vision-slidevqa": _SEES,
    "dpo": _DPO,
    "sft": {"use_sft": True},
}
"""By the path under ``configs/``, what the file sets that matters and base.yml does not."""

OLDER = {
    "dpo": "; before 2025-07 it set no batch or length, or 4 and mistral-7b in bf16",
    "sft": "; in early 2025 it set per_device_batch_size 1 and max_target_length 1024",
}


_UNRESOLVED = re.compile(f"{OPEN}[^{CLOSE}]*{CLOSE}")


def task_file(
    draft: Draft, context: Context, words: list[str], line: int, named: bool
) -> dict[str, Setting]:
    """The settings of the command's own YAML: as it is given beside, else as MaxText has it.

    Args:
        words: the command's; line: where it starts; named: it names a model itself.
    """
    path = next((word for word in words if word.endswith((".yml", ".yaml"))), "")
    if not path:
        return {}
    if (beside := context.neighbour(path)) is not None:
        return yaml_sheet(beside, context, draft).settings
    name = _UNRESOLVED.sub("...", path).rsplit("/", 1)[-1]
    task = TASK.match(name)
    if task and task[1] == "base":
        return {}
    own = re.search(r"configs/(?P<file>(?:post_train/)?[\w-]+)\.ya?ml$", path)
    known = OWN.get(own["file"]) if own else None
    if known is not None and own is not None:
        shown = ", ".join(f"{key}={value}" for key, value in known.items())
        why = f"not among the files given: what MaxText's own sets is taken ({shown})"
        why += OLDER.get(own["file"], "") + "; give the file where yours differs"
        draft.ignored.append(Ignored(name, draft.file, line or None, True, why))
        return {key: Setting(value, path, None) for key, value in known.items()}
    tunes = TUNES.get(task[1]) if task else None
    why = "not among the files given: base.yml's values stand for what the command leaves out"
    why += f", but for {tunes}=true, which MaxText's file of that name sets" if tunes else ""
    draft.ignored.append(Ignored(name, draft.file, line or None, True, why))
    if not task and not named and not context.model_named:
        draft.wanted_model = f"the model of {path}, a file not given here"
    return {tunes: Setting(True, draft.file, line or None)} if tunes else {}
