"""Language models that see and hear: Phi-4-multimodal and Gemma 3n.

Both hear through a conformer: convolutions that thin out the frames, then blocks of attention
between two halves of a feed-forward, with a convolution along time. Shapes and defaults as
transformers 5.24 builds them.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families import gemma, vision
from chipshift.models.families.blocks import attention, feed_forward, heads_of, linear
from chipshift.models.families.decoder import MOST_LAYERS, runs
from chipshift.models.families.ears import conformer_block
from chipshift.models.families.llama import phi3
from chipshift.models.families.mobilenet import mobilenet_v5
from chipshift.models.fields import Fields
from chipshift.models.model import Conv, Layer, Model, Projection, Tower


def phi4_multimodal(c: Fields) -> Model:
    """Phi-4-multimodal: Phi-4-mini with SigLIP's tower and a conformer, each with two maps."""
    c = c.having(
        vocab_size=200_064,
        hidden_size=3072,
        intermediate_size=8192,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
    )
    text = replace(phi3(c), architecture="phi4_multimodal")
    eye = _part(c, "vision_config").having(
        hidden_size=1152,
        intermediate_size=4304,
        num_hidden_layers=27,
        num_attention_heads=16,
        image_size=448,
        patch_size=14,
    )
    tower = vision.siglip_tower(eye.having(vision_use_head=True))
    maps = (
        linear("projector.up", tower.d_model, text.d_model, every=4),
        linear("projector.down", text.d_model, text.d_model, every=4),
    )
    tower = replace(
        tower,
        projections=(*tower.projections, *maps),
        other_params=tower.other_params + 2 * tower.d_model,  # an image's end, and a row's
    )
    a = _part(c, "audio_config")
    ear = _phi4_ear(a)
    inputs = ear.d_model * a.count("downsample_rate", default=1, most=1000)
    pairs: tuple[Projection, ...] = ()
    for mode in ("speech", "vision_speech"):
        pairs += (
            linear(f"projector.up_{mode}", inputs, text.d_model),
            linear(f"projector.down_{mode}", text.d_model, text.d_model),
        )
    return replace(text, towers=(tower, replace(ear, projections=ear.projections + pairs)))


def _part(c: Fields, key: str) -> Fields:
    return c.part(key) if c.has(key) else replace(c, values={})


def _phi4_ear(a: Fields) -> Tower:
    """Phi-4's conformer: gated halves, separable convolution, a bias by distance."""
    a = a.having(num_attention_heads=16)
    width = a.count("hidden_size", default=1024)
    inner = a.count("intermediate_size", default=1536)
    out = a.count("ext_pw_out_channel", default=1024)
    deep = width * a.count("depthwise_multiplier", default=1, most=1000)
    apart = a.count("depthwise_separable_out_channel", default=1024)
    taps = a.count("kernel_size", default=3, most=10_000)
    heads = heads_of(a, width)
    block = Layer(
        attention(width, heads),
        feed_forward(width, inner, 3),
        10 * width,  # five norms with biases
        projections=(
            linear("second.gate_up", width, 2 * inner),
            linear("second.down", inner, width),
            linear("conv.gate", width, 2 * out),
            linear("conv.pointwise", deep, apart),
            linear("conv.out", width, out),
        ),
        other_params=2 * out,
        convs=(Conv("conv.depthwise", width, deep, taps, groups=width, bias_params=deep),),
    )
    kinds, order = runs([block] * a.count("num_blocks", default=24, most=MOST_LAYERS))
    buckets = a.count("bias_max_distance", default=1000)
    buckets *= 1 if a.flag("bias_symmetric", default=False) else 2
    convs, final = _phi4_thinning(a)
    channels = convs[-1].outputs
    return Tower(
        "audio",
        width,
        kinds,
        order,
        convs=convs,
        projections=(linear("subsampling.out", channels * final, width),),
        embedding_params=buckets * heads,
    )


def _phi4_thinning(a: Fields) -> tuple[tuple[Conv, ...], int]:
    """(3 × 3 convolutions by steps of two, frequencies that are left)."""
    steps = a.count("time_reduction", default=8, least=2, most=1 << 20).bit_length() - 1
    channels = a.count("nemo_conv_channels", default=1024)
    frequencies = a.count("input_size", default=80)
    convs: list[Conv] = []
    for step in range(steps):
        frequencies = (frequencies + 1) // 2
        rows = frequencies << (steps - 1 - step)
        if step == 0:
            convs.append(Conv("stem", 1, channels, 9, bias_params=channels, per_token=rows))
            continue
        for name, taps, groups in (("depthwise", 9, channels), ("pointwise", 1, 1)):
            convs.append(Conv(name, channels, channels, taps, 0, groups, channels, per_token=rows))
    return tuple(convs), frequencies


MOST_TAPS = 10_000


def gemma3n(c: Fields) -> Model:
    """Gemma 3n: the language model under ``text_config``, a conformer, MobileNet V5."""
    text = gemma.gemma3n_text(c.part("text_config"))
    towers: tuple[Tower, ...] = ()
    if c.has("vision_config"):
        v = c.part("vision_config")
        v.text("architecture", default="mobilenetv5_300m_enc", choices=("mobilenetv5_300m_enc",))
        width = v.count("hidden_size", default=2048)
        eye = replace(mobilenet_v5(), d_model=width)
        towers += (_embedded(v, eye, text.d_model, 1),)
    if c.has("audio_config"):
        a = c.part("audio_config")
        every = a.count("conf_reduction_factor", default=4, most=1000)
        towers += (_embedded(a, _gemma_ear(a), text.d_model, every),)
    tied = c.flag("tie_word_embeddings", default=True)
    return replace(text, architecture="gemma3n", tied=tied, towers=towers)


def _embedded(c: Fields, tower: Tower, outputs: int, every: int) -> Tower:
    """A tower with Gemma 3n's embedder: a table of its own, two norms, one map."""
    width = tower.d_model
    return replace(
        tower,
        projections=(
            *tower.projections,
            linear("embedding_projection", width, outputs, bias=False, every=every),
        ),
        embedding_params=tower.embedding_params + c.count("vocab_size", default=128) * width,
        other_params=tower.other_params + 2 * width,
    )


def _gemma_ear(a: Fields) -> Tower:
    """Gemma 3n's conformer: no biases, attention to a few frames back by relative positions."""
    a = a.having(conf_num_attention_heads=8)
    width = a.count("hidden_size", default=1536)
    heads = heads_of(a, width, "conf_num_attention_heads")
    reach = a.count("conf_attention_context_left", default=13)
    reach += a.count("conf_attention_context_right", default=0, least=0)
    taps = a.count("conf_conv_kernel_size", default=5, most=10_000)
    block = conformer_block(width, heads, reach, taps)
    depth = a.count("conf_num_hidden_layers", default=12, most=MOST_LAYERS)
    kinds, order = runs([block] * depth)
    channels = a.counts("sscp_conv_channel_size", least=1, length=2) or [128, 32]
    kernels, strides = _pairs(a, "sscp_conv_kernel_size", 3), _pairs(a, "sscp_conv_stride_size", 2)
    frequencies, inputs = a.count("input_feat_size", default=128), 1
    convs = []
    for step, (outputs, (high, wide)) in enumerate(zip(channels, kernels, strict=True)):
        frequencies = (frequencies + 2 - wide) // strides[step][1] + 1
        frames = strides[1][0] if step == 0 else 1
        name = "stem" if step == 0 else "subsampling"
        convs.append(Conv(name, inputs, outputs, high * wide, per_token=frames * frequencies))
        inputs = outputs
    return Tower(
        "audio",
        width,
        kinds,
        order,
        convs=tuple(convs),
        projections=(linear("input_proj", inputs * frequencies, width, bias=False),),
        other_params=sum(channels),
    )


def _pairs(a: Fields, key: str, default: int) -> list[tuple[int, int]]:
    """Two pairs of numbers, (time, frequency) of each convolution."""
    found = a.values.get(key, [[default] * 2] * 2)
    try:
        (one, two), (three, four) = found
        pairs = [(int(one), int(two)), (int(three), int(four))]
    except (TypeError, ValueError, OverflowError):
        raise a.wrong(key, "two pairs of whole numbers, such as [[3, 3], [3, 3]]") from None
    if not all(1 <= number <= MOST_TAPS for pair in pairs for number in pair):
        raise a.wrong(key, f"two pairs of whole numbers from 1 to {MOST_TAPS:,}")
    return pairs
