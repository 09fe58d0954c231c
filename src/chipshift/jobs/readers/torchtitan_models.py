"""torchtitan's names of models (``model.name`` and ``model.flavor``) and the presets they are.

Source: PyTorch, torchtitan, torchtitan/models/*/__init__.py, 2024-06 to 2026-02.
"""

from __future__ import annotations

from chipshift.errors import InputError, nearest
from chipshift.models.model import Model

FAMILIES = ("llama2", "llama3", "llama4", "deepseek_v3", "qwen3", "gpt_oss")


def flavour(family: str, flavor: str, file: str, line: int | None) -> Model:
    """The model of a torchtitan flavour.

    Raises:
        InputError: the flavour has no preset here, naming ``--model``.
    """
    from chipshift.models.presets import preset, preset_names

    names = list(preset_names())
    plain = _plain(flavor)
    wanted = [_plain(f"{family}-{plain}")]
    wanted += [f"{alias}{plain}" for alias in ALIASES.get(_plain(family), ())]
    for name in names:
        if _plain(name) in wanted:
            return preset(name)
    where = file if line is None else f"{file}:{line}"
    raise InputError(
        f"{where}: model.flavor is '{flavor}' of '{family}', which has no preset here; expected "
        f"--model with a preset or a config.json{nearest(f'{family}-{flavor}', names)}"
    )


ALIASES = {
    "llama": ("llama3", "llama31"),
    "llama3": ("llama31", "llama3"),
    "llama3ft": ("llama31", "llama3"),
    "llama3simplefsdp": ("llama31", "llama3"),
    "deepseekv3": ("deepseekv3",),
    "gptoss": ("gptoss",),
}


def _plain(name: str) -> str:
    """``Llama-3.1_8B`` and ``llama31 8b`` are one name; attention variants are not models."""
    lowered = name.lower()
    for suffix in ("_flex_attn", "_flex", "_varlen_attn", "_varlen", "_irope"):
        lowered = lowered.removesuffix(suffix)
    return "".join(c for c in lowered if c.isalnum())
