"""Activations that wait on the host, and axolotl's selective checkpointing.

PyTorch's saved tensors go to the host as each layer's forward pass makes them. With gradient
checkpointing those are the layers' inputs alone, without it all that the backward pass reads.

Sources: axolotl, "Gradient Checkpointing, Activation Offloading, and Layer Offloading",
loaders/model.py and utils/schemas/validation.py, 2026-07; TRL, SFTConfig and
get_act_offloading_ctx_manager, 2026; torchtune, "Memory Optimization Overview", 2025.
"""

from __future__ import annotations

from typing import Any

from chipshift.errors import InputError, nearest
from chipshift.jobs.job import Given
from chipshift.jobs.remats import TENSORS
from chipshift.jobs.settings import Setting, Sheet, as_boolean, wrong

INPUTS = "offload:block_input"
EVERYTHING = "custom:offload=" + "+".join(sorted(("block_input", *TENSORS)))
MODES = ("legacy", "disk", "hidden_states", "offload_disk")
"""axolotl's words beside true and false."""
MATMULS = ("aten::mm", "aten::addmm", "aten::matmul", "aten::bmm")
"""Names of ops that an entry of ``save`` may be a part of; ``attention`` is a word of its own."""


def put_offloading(
    sheet: Sheet,
    key: str = "activation_offloading",
    *,
    needs: str = "",
    adapters_keep: bool = False,
) -> None:
    """Where activations wait, once rematerialisation and adapters are read.

    Args:
        needs: the key without which the framework refuses this one (axolotl, torchtune).
        adapters_keep: with adapters nothing is recomputed (axolotl): all that is saved moves.

    Raises:
        InputError: not a mode, or alone where the framework refuses it so.
    """
    mode = _mode(sheet, key, MODES if adapters_keep else ())
    if mode is None:
        return
    draft = sheet.draft
    recomputed = draft.get("remat") not in (None, "none")
    if needs and not recomputed:
        raise wrong(
            key, sheet.settings[key], f"{needs}: true beside it, which the framework asks for"
        )
    inputs = recomputed and (
        not adapters_keep or mode.value == "hidden_states" or draft.get("lora") is None
    )
    draft.put("remat", Given(INPUTS if inputs else EVERYTHING, mode.file, mode.line))
    if adapters_keep and not inputs:
        draft.note("recomputed", "nothing", "with adapters axolotl moves activations in its place")
    _say_how(sheet, mode.value)


def _mode(sheet: Sheet, key: str, words: tuple[str, ...]) -> Given[str] | None:
    """What the switch says where it is on: ``true`` or one of the words."""
    found = sheet.raw(key)
    if found is None or found[1].value in (None, ""):
        return None
    setting = found[1]
    text, on = str(setting.value).strip().lower(), as_boolean(setting.value)
    if on is None and text not in words:
        choices = ("true", "false", *words[:3])
        raise wrong(key, setting, f"one of {', '.join(choices)}", nearest(text, choices))
    sheet.record(key, setting, "activations on the host" if text in words or on else "off")
    if on is False:
        return None
    sheet.draft.flag("activation_offload", key, text, setting.line)
    return Given("true" if on else text, setting.file, setting.line)


def _say_how(sheet: Sheet, mode: str) -> None:
    """What the estimate takes otherwise than it is."""
    if mode in ("disk", "offload_disk"):
        sheet.draft.note(
            "activations on a disk", "as on the host", "a disk's own rate is not known"
        )
    if mode == "legacy":
        why = "legacy copies wait for each other: what compute hides of them here it does not"
        sheet.draft.note("copies to the host", "overlapped", why)


def put_checkpointing_offload(sheet: Sheet) -> None:
    """``gradient_checkpointing: offload`` and ``offload_disk``: older spellings of a switch."""
    setting = sheet.settings.get("gradient_checkpointing")
    words = {"offload": True, "offload_disk": "disk"}
    moved = words.get(str(setting.value).strip().lower()) if setting is not None else None
    if setting is not None and moved is not None:
        # whatever activation_offloading says beside it, axolotl overwrites it by this
        sheet.settings["activation_offloading"] = Setting(moved, setting.file, setting.line)


def put_selective(sheet: Sheet) -> None:
    """axolotl's ``selective_checkpointing``: ops of a recomputed layer whose results stay."""
    whole = "selective_checkpointing"
    on = sheet.boolean(whole, into="attention kept in recomputed layers")
    told = {k: v for k, v in sheet.settings.items() if k.startswith(whole + ".")}
    if (on is None or not on.value) and not told:
        return
    stated = sheet.settings[whole] if on is not None else next(iter(told.values()))
    draft = sheet.draft
    if draft.get("remat") in (None, "none"):
        needed = "gradient_checkpointing: true beside it, which the framework asks for"
        raise wrong(whole, stated, needed)
    if draft.get("remat") not in ("full", INPUTS) or _moves_all(sheet):
        raise InputError(
            f"{stated.file}:{stated.line}: {whole} stands beside activation_offloading "
            f"{sheet.settings['activation_offloading'].value}; expected hidden_states or false, "
            "which axolotl alone runs with it"
        )
    kept = _kept(sheet, f"{whole}.save")
    away = sheet.boolean(f"{whole}.offload", into="what is kept waits on the host")
    _say_windows(sheet, whole)
    moved = {"block_input"} if draft.get("remat") == INPUTS else set()
    if away is not None and away.value:
        moved, kept = moved | kept, set()
    parts = [f"saved={'+'.join(sorted(kept))}"] if kept else []
    parts += [f"offload={'+'.join(sorted(moved))}"] if moved else []
    if parts:
        draft.put("remat", Given("custom:" + ",".join(parts), stated.file, stated.line))


def _moves_all(sheet: Sheet) -> bool:
    setting = sheet.settings.get("activation_offloading")
    said = "" if setting is None or not setting.value else str(setting.value).lower()
    return said not in ("", "false", "hidden_states")


def _kept(sheet: Sheet, key: str) -> set[str]:
    """The tensors that ``save`` names: attention's, or what linear maps give."""
    named: Given[Any] | None = sheet.strings(key, into="kept in recomputed layers")
    if named is None or not named.value:
        return {"attention"}
    kept: set[str] = set()
    for entry in named.value:
        if entry == "attention":
            kept.add("attention")
        elif any(entry in op for op in MATMULS):
            kept |= {"qkv", "out_proj", "up"}
        else:
            why = "neither attention nor a matmul: taken as recomputed"
            sheet.draft.note(f"{key} {entry[:40]}", "recomputed", why)
    return kept


def _say_windows(sheet: Sheet, whole: str) -> None:
    """Layers that see a window recompute their attention unless told to keep it."""
    windows = sheet.boolean(f"{whole}.save_sliding_window", into="windows' attention kept too")
    sheet.raw(f"{whole}.recompute_layer_types")
    model = sheet.draft.get("model")
    seen = model is not None and any(
        kind.attention is not None and kind.attention.window is not None for kind, _ in model.layers
    )
    if seen and not (windows is not None and windows.value):
        why = "axolotl recomputes attention within a window: here all layers' stays"
        sheet.draft.note("attention within a window", "kept", why)
