"""MaxText's ``global_parameter_scale``, which multiplies a shape, and its older word for heads.

Source: AI-Hypercomputer, MaxText, src/maxtext/configs/types.py (get_individual_scales) and
MaxText/configs/base.yml of 2023 (``base_num_heads``, ``scale``), 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from chipshift.jobs.job import restated
from chipshift.jobs.settings import Setting, Sheet, as_integer, wrong
from chipshift.models.model import DenseMlp

HEADS = ("base_num_query_heads", "base_num_kv_heads")
SIZES = {
    "base_emb_dim": "hidden_size",
    "base_num_query_heads": "num_attention_heads",
    "base_num_kv_heads": "num_key_value_heads",
    "base_mlp_dim": "intermediate_size",
    "base_num_decoder_layers": "num_hidden_layers",
}


def doublings(scale: int) -> dict[str, int]:
    """How often each size doubles: heads and feed-forward first, then width, then layers."""
    cycles, rest = divmod(scale.bit_length() - 1, 3)
    wide = cycles + (rest > 0)
    return {
        "base_emb_dim": cycles + (rest > 1),
        "base_num_query_heads": wide,
        "base_num_kv_heads": wide,
        "base_mlp_dim": wide,
        "base_num_decoder_layers": cycles,
    }


OF_2023: Mapping[str, object] = {
    "hidden_size": 2560,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "head_dim": 256,
    "vocab_size": 32768,
    "tie_word_embeddings": True,
}
"""Defaults while the key was ``base_num_heads``: until 2023-12-22, with a feed-forward of two
matrices (``mlp_activations`` relu)."""


def put_scale(sheet: Sheet, defaults: Mapping[str, object]) -> None:
    """The sizes that the scale makes of those that the file states, or of the defaults.

    Raises:
        InputError: the scale is no power of two, which MaxText refuses too.
    """
    settings = sheet.settings
    old = sheet.raw("base_num_heads")
    if old is not None:
        sheet.record(*old, "attention heads")
        for key in HEADS:
            settings.setdefault(key, old[1])
    found = sheet.raw("global_parameter_scale", "scale")
    if found is None or found[1].value is None:
        return
    key, setting = found
    scale = as_integer(setting.value)
    if scale is None or scale < 1 or scale & (scale - 1):
        raise wrong(key, setting, "a power of two")
    sheet.record(key, setting, "what the shape's sizes are multiplied by")
    for name, times in doublings(scale).items():
        stated = settings.get(name)
        size = as_integer(stated.value) if stated is not None else None
        if stated is not None and size is None:
            continue  # said where it is read
        base = size if size is not None else as_integer(defaults[SIZES[name]])
        if base is not None and times:
            settings[name] = Setting(base << times, setting.file, setting.line)


def is_of_2023(sheet: Sheet) -> bool:
    """Whether the file is of a MaxText that had one number of heads."""
    return "base_num_heads" in sheet.settings


def put_activations(sheet: Sheet, of_2023: bool) -> None:
    """``mlp_activations``: two of them make a gated feed-forward, one a plain one."""
    draft = sheet.draft
    found = sheet.raw("mlp_activations")
    if found is not None:
        key, setting = found
        sheet.record(key, setting, "feed-forward of two or three matrices")
        text = str(setting.value)
        names = [part for part in text.strip("[]() ").split(",") if part.strip(" '\"")]
        plain = len(names) == 1
    else:
        plain = of_2023
        if of_2023:
            draft.note("feed-forward", "2 matrices", "MaxText's default while base_num_heads was")
    stated = draft.values.get("model")
    if not plain or stated is None:
        return
    layers = tuple(
        (replace(layer, mlp=replace(layer.mlp, matrices=2)), count)
        if isinstance(layer.mlp, DenseMlp)
        else (layer, count)
        for layer, count in stated.value.layers
    )
    draft.put("model", restated(stated, replace(stated.value, layers=layers)))
