"""Qwen3-Omni: the thinker, which sees and hears, before a talker that speaks.

Shapes and defaults as transformers 5.24 builds Qwen3OmniMoeThinkerForConditionalGeneration. The
talker and its vocoder are trained apart and are not counted.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.ears import qwen3_ear
from chipshift.models.families.joining import text_of
from chipshift.models.families.multimodal import qwen3_vl_tower
from chipshift.models.fields import Default, Fields
from chipshift.models.model import Model

TALKS = "not counted: the thinker alone, with its towers"


def qwen3_omni(c: Fields) -> Model:
    """The thinker under ``thinker_config``, or a thinker's own config."""
    thinker = c.part("thinker_config") if c.has("thinker_config") else c
    text = text_of(thinker, "qwen3_omni_moe_text")
    tower = qwen3_vl_tower(thinker.part("vision_config"), deep=True)
    ear = qwen3_ear(thinker.part("audio_config"))
    for part in ("talker_config", "code2wav_config"):
        if c.has(part):
            c.defaults.append(Default(part, TALKS))
    return replace(
        text,
        architecture=c.text("model_type", default="qwen3_omni_moe"),
        tied=thinker.flag("tie_word_embeddings", default=False),
        towers=(tower, ear),
    )
