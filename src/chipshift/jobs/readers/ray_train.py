"""Ray Train's ``ScalingConfig(...)`` around a training script: how many workers, on what.

Source: Ray, "ray.train.ScalingConfig" and "Configuring Scale and Accelerators", 2026: a worker has
one GPU where ``use_gpu`` is on, unless ``resources_per_worker`` says another number; a pair of
numbers of workers is an elastic run's least and most.
"""

from __future__ import annotations

import re

from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given, Ignored
from chipshift.jobs.launch import CHIPS
from chipshift.jobs.python_tree import Module, Unknown
from chipshift.jobs.settings import Setting, Sheet, as_boolean, as_integer, wrong


def take_workers(settings: dict[str, Setting], module: Module) -> None:
    """Add the keywords of the file's last ``ScalingConfig(...)`` as ``ray.KEY``."""
    for call in module.calls:
        if call.name.rsplit(".", 1)[-1] == "ScalingConfig":
            for key, setting in call.keywords.items():
                value = setting.value
                if isinstance(value, dict):
                    for name, part in value.items():
                        settings[f"ray.{key}.{name}"] = Setting(part, setting.file, setting.line)
                else:
                    settings[f"ray.{key}"] = setting
            settings.setdefault("ray.num_workers", Setting(1, _file(call.keywords), call.line))


def _file(keywords: dict[str, Setting]) -> str:
    return next((setting.file for setting in keywords.values()), "")


def put_workers(sheet: Sheet) -> bool:
    """Devices and chip, as ``ScalingConfig`` says them; whether there is one."""
    draft = sheet.draft
    found = sheet.raw("ray.num_workers")
    if found is None:
        return False
    setting = found[1]
    if isinstance(setting.value, list) and setting.value:  # elastic: at least, at most
        setting = Setting(setting.value[-1], setting.file, setting.line)
    if isinstance(setting.value, Unknown):
        _unknown(draft, setting)
        return True
    workers = as_integer(setting.value)
    if workers is None or workers < 0:
        raise wrong("num_workers", setting, "a whole number of workers")
    sheet.record("num_workers", setting, "Ray Train's workers")
    use = sheet.raw("ray.use_gpu")
    on = use is not None and (isinstance(use[1].value, Unknown) or as_boolean(use[1].value))
    each = sheet.number("ray.resources_per_worker.GPU", into="GPUs a worker", high=1e4)
    if use is not None:
        sheet.record("use_gpu", use[1], "a GPU a worker" if on else "no GPU")
    if not on and (each is None or not each.value):
        why = "use_gpu is off: the workers have no GPU; a worker was taken to be a device"
        draft.ignored.append(Ignored("use_gpu", setting.file, setting.line, True, why))
    count = max(1, round(max(1, workers) * (each.value if on and each and each.value else 1)))
    draft.put("devices", Given(count, setting.file, setting.line))
    kind = sheet.raw("ray.accelerator_type")
    if kind is not None:
        sheet.record(*kind, "chip")
        words = re.split(r"[^a-z0-9]+", str(kind[1].value).lower())
        chip = next((CHIPS[word] for word in words if word in CHIPS), None)
        if chip is not None:
            draft.put("chip", Given(chip, kind[1].file, kind[1].line))
    return True


def _unknown(draft: Draft, setting: Setting) -> None:
    why = f"{setting.value}: only a run could tell; --set devices=N says how many"
    draft.ignored.append(Ignored("num_workers", setting.file, setting.line, True, why))
