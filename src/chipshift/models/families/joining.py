"""What stands before a language model and how it is joined to it: the texts and towers by their
names, the projector between.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from chipshift.errors import nearest
from chipshift.models.families import (
    deepseek,
    gemma,
    hybrid,
    kin,
    llama,
    moe,
    own_code,
    vision,
)
from chipshift.models.fields import Default, Fields
from chipshift.models.model import Model, Projection, Tower

TEXTS: dict[str, Callable[[Fields], Model]] = {
    "cohere": kin.cohere,
    "cohere2": kin.cohere2,
    "deepseek_v3": deepseek.deepseek_v3,
    "gemma": gemma.gemma,
    "gemma2": gemma.gemma2,
    "gemma3_text": gemma.gemma3_text,
    "glm4": kin.glm4,
    "glm4v_text": kin.glm4v_text,
    "glm4v_moe_text": moe.glm4v_text,
    "internlm2": own_code.internlm2,
    "kimi_k2": deepseek.deepseek_v3,
    "lfm2": hybrid.lfm2,
    "llama": llama.llama,
    "llama4_text": moe.llama4_text,
    "ministral3": llama.ministral3,
    "mistral": llama.mistral,
    "phi3": llama.phi3,
    "qwen2": llama.qwen2,
    "qwen2_5_omni_text": llama.qwen2,
    "qwen2_vl_text": llama.qwen2,
    "qwen2_5_vl_text": llama.qwen2,
    "qwen3": llama.qwen3,
    "qwen3_asr_text": llama.qwen3,
    "qwen3_vl_text": llama.qwen3,
    "qwen3_vl_moe_text": moe.qwen3_vl_moe_text,
    "qwen3_omni_moe_text": moe.qwen3_moe,
    "qwen3_5_text": hybrid.qwen3_5,
    "qwen3_5_moe_text": hybrid.qwen3_5_moe,
}
VISIONS: dict[str, Callable[[Fields], Tower]] = {
    "clip_vision_model": vision.clip_tower,
    "pixtral": vision.pixtral_tower,
    "siglip_vision_model": vision.siglip_tower,
}
LLAMA_7B = {
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32_000,
}
"""What published configs of LLaVA and Qwen2-Audio leave to the class of their language model."""


def text_of(c: Fields, default: str) -> Model:
    """The language model under ``text_config``, or at the top where there is none (Qwen2-VL).

    Raises:
        InputError: its model type is not one that is known here.
    """
    text = c.part("text_config") if c.has("text_config") else c
    kind = text.text("model_type", default=default) if text is not c else default
    if kind not in TEXTS:
        choices = tuple(TEXTS)
        raise text.wrong("model_type", f"one of {', '.join(choices)}{nearest(kind, choices)}")
    if kind == "llama":
        text = text.having(**LLAMA_7B)
    if kind == "qwen2":
        text = text.having(**{**LLAMA_7B, "intermediate_size": 22_016, "vocab_size": 151_936})
    if kind == "mistral":
        text = text.having(**{**LLAMA_7B, "intermediate_size": 14_336})
    return TEXTS[kind](text)


def tower_of(c: Fields, default: str) -> Tower:
    """The vision tower under ``vision_config``."""
    part = c.part("vision_config")
    kind = part.text("model_type", default=default, choices=tuple(VISIONS))
    return VISIONS[kind](part)


def joined(
    c: Fields,
    text: Model,
    tower: Tower,
    maps: tuple[Projection, ...],
    *,
    tied: bool,
    loose: int = 0,
) -> Model:
    """The language model with its tower and the projector between them."""
    tower = replace(
        tower,
        projections=(*tower.projections, *maps),
        other_params=tower.other_params + loose,
    )
    return replace(
        text,
        architecture=c.text("model_type", default=text.architecture),
        tied=_tied(c, tied),
        towers=(tower,),
    )


TEXT_TIES_TOO = ("glm4v", "llava", "llava_onevision", "qwen2_5_vl", "qwen2_vl")
TEXT_TIES = ("llama4",)
NEVER_TIED = ("qwen2_audio", "voxtral")
"""Whether the head is the table's transpose, where the reference does not read it at the top."""


def _tied(c: Fields, usual: bool) -> bool:
    """Whether a model's head is tied: by the key at the top, or by that of its language model."""
    kind, top = c.values.get("model_type"), c.flag("tie_word_embeddings", default=usual)
    if kind in NEVER_TIED:
        return False
    if not c.has("text_config") or kind not in (*TEXT_TIES_TOO, *TEXT_TIES):
        return top
    own = c.part("text_config").flag("tie_word_embeddings", default=False)
    return own if kind in TEXT_TIES else top or own


def alone(c: Fields, text: Model) -> Model:
    """The language model of a config that tells no tower; that none is counted is said."""
    c.defaults.append(Default("vision_config", "none, the language model alone"))
    return replace(text, architecture=c.text("model_type", default=text.architecture))
