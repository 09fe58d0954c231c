"""Diffusion transformers that attend to their text: Sana, HunyuanDiT, LTX Video and Wan.

Shapes and defaults as diffusers 0.42 builds them. How many tokens a clip has is the caller's.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.blocks import attention, feed_forward, linear
from chipshift.models.families.decoder import MOST_LAYERS
from chipshift.models.families.diffusion import SINUSOID, embedder, image_model, width_of
from chipshift.models.fields import Fields
from chipshift.models.model import Attention, Conv, Layer, Model, Projection, Tower


def _caption(c: Fields, width: int, channels: int) -> Tower:
    """A text's embeddings on their way to the width, by two maps."""
    reads = c.count("caption_channels", "text_dim", default=channels)
    maps = (linear("caption.linear_1", reads, width), linear("caption.linear_2", width, width))
    return Tower("text", width, (), (), projections=maps)


def _timed(width: int) -> tuple[Projection, ...]:
    """The time's embedding, and one modulation of it that tables shift in each block."""
    six = linear("modulation", width, 6 * width, once=True)
    return (*embedder("timestep", SINUSOID, width), six)


def wan(c: Fields) -> Model:
    """Wan 2.1 and 2.2: attention within the clip, to the text, and to an image's 257 patches.

    The matmuls of queries with the image's keys (image to video, Wan 2.1) are not counted: they
    are below half a percent of a clip's.
    """
    heads, head_dim, width = width_of(c, 40, 128)
    c.text("qk_norm", default="rms_norm_across_heads", choices=("rms_norm_across_heads",))
    if c.has("pos_embed_seq_len"):
        raise c.wrong("pos_embed_seq_len", "null: first and last frames are not counted here")
    own = attention(width, heads, head_dim=head_dim, norm_params=2 * width)
    depth = c.count("num_layers", default=40, most=MOST_LAYERS)
    normed = 2 * width if c.flag("cross_attn_norm", default=True) else 0
    mlp = feed_forward(width, c.count("ffn_dim", default=13_824))
    cross = replace(own, kv_from="encoder")
    block = Layer(own, mlp, normed, cross=cross, other_params=6 * width)
    sizes = c.counts("patch_size", least=1, length=3) or [1, 2, 2]
    taps = sizes[0] * sizes[1] * sizes[2]
    channels = c.count("in_channels", default=16)
    stem = Conv("patch_embed", channels, width, taps, bias_params=width)
    sinusoid = c.count("freq_dim", default=256)
    maps = (
        *embedder("timestep", sinusoid, width),
        linear("modulation", width, 6 * width, once=True),
        linear("proj_out", width, taps * c.count("out_channels", default=16)),
    )
    towers = [_caption(c, width, 4096)]
    added = c.maybe("added_kv_proj_dim")
    seen = c.maybe("image_dim")
    if seen is not None or added is not None:
        towers.append(_pictured(width, depth, seen, added))
    model = image_model("wan", width, [block] * depth, maps, (stem,))
    return replace(model, other_params=2 * width, towers=tuple(towers))


def _pictured(width: int, depth: int, seen: int | None, added: int | None) -> Tower:
    """An image's patches (CLIP's 256 and one for the whole), and each block's keys of them."""
    maps: tuple[Projection, ...] = ()
    if seen is not None:
        maps = (linear("caption.linear_1", seen, seen), linear("image.linear_2", seen, width))
    norms = 2 * (seen + width) if seen is not None else 0
    if added is not None:
        maps += (linear("add_kv_proj", added, 2 * width),) * depth
        norms += depth * width
    return Tower("image", width, (), (), tokens=257, projections=maps, other_params=norms)


def ltx(c: Fields) -> Model:
    """LTX Video: PixArt's blocks over a clip of which each token is a pixel of its latents."""
    heads, head_dim, width = width_of(c, 32, 64)
    c.text("qk_norm", default="rms_norm_across_heads", choices=("rms_norm_across_heads",))
    bias = "qkv" if c.flag("attention_bias", default=True) else ""
    bias += "o" if c.flag("attention_out_bias", default=True) else ""
    own = attention(width, heads, head_dim=head_dim, bias=bias, norm_params=2 * width)
    affine = 2 * width if c.flag("norm_elementwise_affine", default=False) else 0
    reads = c.count("cross_attention_dim", default=2048)
    block = Layer(
        own,
        feed_forward(width, 4 * width),
        affine,
        cross=_reading(own, width, reads),
        other_params=6 * width,
    )
    channels = c.count("in_channels", default=128)
    maps = (
        *_timed(width),
        linear("x_embedder", channels, width),
        linear("proj_out", width, c.count("out_channels", default=128)),
    )
    depth = c.count("num_layers", default=28, most=MOST_LAYERS)
    model = image_model("ltx", width, [block] * depth, maps)
    return replace(model, other_params=2 * width, towers=(_caption(c, width, 4096),))


def _reading(own: Attention, width: int, reads: int) -> Attention:
    """Attention to a text of its own width."""
    return replace(own, kv_from="encoder", kv_input=None if reads == width else reads)


def sana(c: Fields) -> Model:
    """Sana: linear attention, attention to the text, a feed-forward that convolves."""
    heads, head_dim, width = width_of(c, 70, 32)
    channels = c.count("in_channels", default=32)
    patch = c.count("patch_size", default=1, most=10_000)
    count = (c.count("sample_size", default=32, least=patch) // patch) ** 2
    normed = 0
    if c.has("qk_norm"):
        c.text("qk_norm", choices=("rms_norm_across_heads",))
        normed = 2
    biased = c.flag("attention_bias", default=False)
    inner = int(c.number("mlp_ratio", default=2.5) * width)
    far = c.count("num_cross_attention_heads", default=20, most=100_000)
    far_dim = c.count("cross_attention_head_dim", default=112, most=1_000_000)
    reads = c.count("cross_attention_dim", default=2240)
    cross = attention(width, far, head_dim=far_dim, norm_params=normed * far * far_dim)
    # keys with values and a row of ones, then queries with what they made: linear in the tokens
    mixing = 4 * count * heads * head_dim * (head_dim + 1)
    block = Layer(
        None,
        None,
        normed * heads * head_dim
        + (2 * width if c.flag("norm_elementwise_affine", default=False) else 0),
        cross=_reading(cross, width, reads),
        projections=(
            *(linear("qkv", width, width, bias=biased),) * 3,
            linear("out", width, width),
        ),
        convs=(
            Conv("inverted", width, 2 * inner, 1, bias_params=2 * inner),
            Conv("depth", 2 * inner, 2 * inner, 9, groups=2 * inner, bias_params=2 * inner),
            Conv("point", inner, width, 1),
        ),
        mixing_flops=mixing,
        other_params=6 * width,
    )
    stem = Conv("patch_embed", channels, width, patch * patch, count, bias_params=width)
    maps = _timed(width)
    if c.flag("guidance_embeds", default=False):
        maps += embedder("guidance", SINUSOID, width)
    out = c.count("out_channels", default=32)
    maps += (linear("proj_out", width, patch * patch * out),)
    depth = c.count("num_layers", default=20, most=MOST_LAYERS)
    model = image_model("sana", width, [block] * depth, maps, (stem,), count)
    # a table that shifts the last modulation, the text's norm
    return replace(model, other_params=3 * width, towers=(_caption(c, width, 2304),))


def hunyuan_dit(c: Fields) -> Model:
    """HunyuanDiT: blocks that attend to two texts at once, the upper half reading the lower's."""
    heads, head_dim, width = width_of(c, 16, 88)
    hidden = c.count("hidden_size", default=1152)
    if hidden != width:
        raise c.wrong("hidden_size", f"{width}, heads times their width: others cannot run")
    c.text("norm_type", default="layer_norm", choices=("layer_norm",))
    own = attention(width, heads, head_dim=head_dim, norm_params=4 * head_dim)
    reads = c.count("cross_attention_dim", default=1024)
    block = Layer(
        own,
        feed_forward(width, int(width * c.number("mlp_ratio", default=4.0))),
        6 * width,
        cross=_reading(own, width, reads),
        projections=(linear("modulation", width, width, once=True),),
    )
    skip = (*block.projections, linear("skip", 2 * width, width))
    upper = replace(block, norm_params=10 * width, projections=skip)
    depth = c.count("num_layers", default=28, most=MOST_LAYERS)
    patch, channels = c.count("patch_size", most=10_000), c.count("in_channels")
    count = (c.count("sample_size", default=32, least=patch) // patch) ** 2
    stem = Conv("patch_embed", channels, width, patch * patch, count, bias_params=width)
    out = 2 * channels if c.flag("learn_sigma", default=True) else channels
    far = c.count("cross_attention_dim_t5", default=2048)
    pooled = c.count("pooled_projection_dim", default=1024)
    styled = c.flag("use_style_cond_and_image_meta_size", default=True)
    extra = pooled + (6 * SINUSOID + width if styled else 0)
    length = c.count("text_len_t5", default=256)
    maps = (
        *embedder("timestep", SINUSOID, width),
        linear("pooler.q", far, far, once=True),
        linear("pooler.out", far, pooled, once=True),
        linear("extra.linear_1", extra, 4 * width, once=True),
        linear("extra.linear_2", 4 * width, width, once=True),
        linear("norm_out", width, 2 * width, once=True),
        linear("proj_out", width, patch * patch * out),
    )
    layers = [block] * (depth // 2 + 1) + [upper] * (depth - depth // 2 - 1)
    model = image_model("hunyuan_dit", width, layers, maps, (stem,), count)
    both = c.count("text_len", default=77) + length
    # what stands where a text ends: a row for each of both texts' positions
    texts = Tower("text", reads, (), (), tokens=both, other_params=both * reads)
    second = Tower(
        "t5",
        far,
        (),
        (),
        tokens=length,
        projections=(
            linear("caption.linear_1", far, 4 * far),
            linear("caption.linear_2", 4 * far, reads),
            # the pooler's keys and values, of its mean too
            *(linear("pooler.kv", far, far),) * 2,
        ),
        other_params=(length + 1) * far,
    )
    return replace(
        model,
        towers=(texts, second),
        embedding_extra_params=width if styled else 0,
    )
