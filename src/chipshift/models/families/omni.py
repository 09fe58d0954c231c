"""Qwen3-Omni: the thinker, which sees and hears, before a talker that speaks.

Shapes and defaults as transformers 5.24 builds Qwen3OmniMoeThinkerForConditionalGeneration. The
talker and its vocoder are trained apart and are not counted.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.blocks import classic, heads_of, linear
from chipshift.models.families.decoder import MOST_LAYERS, runs
from chipshift.models.families.multimodal import qwen3_vl_tower, text_of
from chipshift.models.fields import Default, Fields
from chipshift.models.model import Conv, Model, Tower

TALKS = "not counted: the thinker alone, with its towers"


def qwen3_omni(c: Fields) -> Model:
    """The thinker under ``thinker_config``, or a thinker's own config."""
    thinker = c.part("thinker_config") if c.has("thinker_config") else c
    text = text_of(thinker, "qwen3_omni_moe_text")
    tower = qwen3_vl_tower(thinker.part("vision_config"), deep=True)
    ear = _ear(thinker.part("audio_config"))
    for part in ("talker_config", "code2wav_config"):
        if c.has(part):
            c.defaults.append(Default(part, TALKS))
    return replace(
        text,
        architecture=c.text("model_type", default="qwen3_omni_moe"),
        tied=thinker.flag("tie_word_embeddings", default=False),
        towers=(tower, ear),
    )


def _ear(a: Fields) -> Tower:
    """Whisper's blocks behind three 3 × 3 convolutions by steps of two, and two maps."""
    width = a.count("d_model", default=1280)
    heads = heads_of(a.having(encoder_attention_heads=20), width, "encoder_attention_heads")
    block = classic(width, heads, a.count("encoder_ffn_dim", default=5120))
    kinds, order = runs([block] * a.count("encoder_layers", default=32, most=MOST_LAYERS))
    channels = a.count("downsample_hidden_size", default=480)
    frequencies, inputs = a.count("num_mel_bins", default=128), 1
    convs = []
    for step in range(3):
        frequencies = (frequencies + 1) // 2
        rows = frequencies << (2 - step)
        name = "subsampling" if step else "stem"
        convs.append(Conv(name, inputs, channels, 9, bias_params=channels, per_token=rows))
        inputs = channels
    return Tower(
        "audio",
        width,
        kinds,
        order,
        convs=tuple(convs),
        projections=(
            linear("conv_out", channels * frequencies, width, bias=False),
            linear("proj1", width, width),
            linear("proj2", width, a.count("output_dim", default=3584)),
        ),
        other_params=2 * width,  # the norm behind the blocks
    )
