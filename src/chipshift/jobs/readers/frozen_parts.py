"""Parts of a model that a job freezes: towers, layers, or all but the parameters it names.

Keys and defaults: LLaMA-Factory, hparams/finetuning_args.py and model/adapter.py, 2026-08;
ms-swift, arguments/tuner_args.py, 2026-08; axolotl, "Config Reference" (unfrozen_parameters),
2026-07.
"""

from __future__ import annotations

from chipshift.jobs.job import Given
from chipshift.jobs.settings import Setting, Sheet
from chipshift.models.trained import LANGUAGE, PROJECTOR, TOWERS, Trained

FACTORY = {
    "freeze_vision_tower": (TOWERS, True),
    "freeze_multi_modal_projector": (PROJECTOR, True),
    "freeze_language_model": (LANGUAGE, False),
}
SWIFT = {
    "freeze_vit": (TOWERS, True),
    "freeze_aligner": (PROJECTOR, True),
    "freeze_llm": (LANGUAGE, False),
}
"""Switches of each part, and whether it is frozen where the file says nothing."""


def put_factory_frozen(sheet: Sheet) -> None:
    """LLaMA-Factory: parts of a model with towers; ``finetuning_type freeze`` trains few layers."""
    draft = sheet.draft
    frozen, stated = _parts(sheet, FACTORY)
    kind = sheet.settings.get("finetuning_type")
    layers = 0
    if kind is not None and str(kind.value).lower() == "freeze":
        count = sheet.integer("freeze_trainable_layers", into="layers that are trained", low=-999)
        if count is None:
            draft.note("freeze_trainable_layers", 2, "LLaMA-Factory's default: the last two layers")
        layers, stated = (count.value if count else 2) or 2, kind
        why = "parts of the layers or beside them: the layers were taken whole, and alone"
        some = [k for k in ("freeze_trainable_modules", "freeze_extra_modules") if _names(sheet, k)]
        sheet.ignore(some, True, why)
    _put(sheet, Trained(frozen=frozen, layers=layers), stated)


def put_swift_frozen(sheet: Sheet, by_default: bool = True) -> None:
    """ms-swift's full training: towers and aligner are frozen by default, more by its names.

    Args:
        by_default: False of version 2, which freezes a tower only where ``freeze_vit`` asks for it.
    """
    switches = SWIFT if by_default else {key: (part, False) for key, (part, _) in SWIFT.items()}
    frozen, stated = _parts(sheet, switches)
    ratio = sheet.number("freeze_parameters_ratio", into="share that is frozen", high=1)
    named = sheet.settings.get("trainable_parameters_regex")
    names: tuple[str, ...] = (str(named.value),) if named is not None and named.value else ()
    listed = sheet.strings("trainable_parameters", into="parameters that are trained")
    names += tuple(f"^{_escaped(one)}" for one in listed.value) if listed else ()
    if names and ratio is not None and ratio.value >= 1:
        sheet.raw("trainable_parameters_regex")
        stated = named or (listed and Setting(listed.value, listed.file, listed.line)) or stated
        _put(sheet, Trained(names=names), stated)
        return
    why = "which parameters are frozen is told by their names: all of the part were taken"
    told = [key for key in ("freeze_parameters", "freeze_parameters_regex") if _names(sheet, key)]
    sheet.ignore(told, True, why)
    if ratio is not None and ratio.value > 0:
        stated = Setting(ratio.value, ratio.file, ratio.line)
    _put(sheet, Trained(frozen=frozen, ratio=ratio.value if ratio else 0.0), stated)


def put_unfrozen(sheet: Sheet) -> None:
    """axolotl's ``unfrozen_parameters``: the names that are trained alone (Spectrum's lists)."""
    listed = sheet.strings("unfrozen_parameters", into="parameters that are trained")
    if listed is not None and listed.value:
        # a range of rows behind a name (``embed_tokens.weight[:32000]``) trains a part of it
        names = tuple(one.split("[:")[0] for one in listed.value)
        _put(sheet, Trained(names=names), Setting(listed.value, listed.file, listed.line))


def _parts(
    sheet: Sheet, switches: dict[str, tuple[str, bool]]
) -> tuple[tuple[str, ...], Setting | None]:
    frozen: list[str] = []
    stated = None
    for key, (part, default) in switches.items():
        setting = sheet.settings.get(key)
        on = sheet.boolean(key, into=f"{part} frozen")
        if on.value if on is not None else default:
            frozen.append(part)
        stated = stated or (setting if on is not None else None)
    return tuple(frozen), stated


def _names(sheet: Sheet, key: str) -> bool:
    setting = sheet.settings.get(key)
    return setting is not None and str(setting.value).lower() not in ("", "none", "all", "[]")


def _escaped(prefix: str) -> str:
    return prefix.replace(".", r"\.")


def _put(sheet: Sheet, trained: Trained, stated: Setting | None) -> None:
    if trained == Trained():
        return
    draft = sheet.draft
    if stated is None:
        draft.assume("trained", trained, f"{draft.format} freezes towers unless told not to")
    else:
        draft.put("trained", Given(trained, stated.file, stated.line))
