"""Diffusion transformers in which text and image attend together: Chroma, Qwen-Image,
HunyuanVideo, Flux 2, AuraFlow, CogVideoX, CogView 4, Lumina 2 and Z-Image.

Shapes and defaults as diffusers 0.42 builds them. Text with weights of its own is a tower that
attends jointly; a layer that runs over text and image side by side has the rows of both. How many
tokens an image or a clip has is the caller's where the config does not fix it.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.blocks import attention, feed_forward, heads_of, linear
from chipshift.models.families.decoder import MOST_LAYERS, runs
from chipshift.models.families.diffusion import SINUSOID, embedder, image_model, width_of
from chipshift.models.fields import Fields
from chipshift.models.model import Attention, Conv, DenseMlp, Layer, Model, Projection, Tower


def _depths(c: Fields, doubles: int, singles: int) -> tuple[int, int]:
    return (
        c.count("num_layers", default=doubles, least=0, most=MOST_LAYERS),
        c.count("num_single_layers", default=singles, least=0, most=MOST_LAYERS),
    )


def _single(own: Attention, mlp: DenseMlp, width: int, maps: tuple[Projection, ...]) -> Layer:
    """A layer over both streams whose halves share one way out, and so one bias of it."""
    both = replace(own, bias_params=own.bias_params - width, kv_from="both")
    return Layer(both, mlp, 0, projections=maps)


def _text(width: int, layers: list[Layer], maps: tuple[Projection, ...], others: int = 0) -> Tower:
    kinds, order = runs(layers)
    return Tower("text", width, kinds, order, projections=maps, other_params=others)


def chroma(c: Fields) -> Model:
    """Chroma: Flux whose modulations all come out of one small network, a row for each."""
    heads, head_dim, width = width_of(c, 24, 128)
    doubles, singles = _depths(c, 19, 38)
    channels = c.count("in_channels", default=64)
    own = attention(width, heads, head_dim=head_dim, norm_params=2 * head_dim)
    joint, mlp = replace(own, kv_from="joint"), feed_forward(width, 4 * width)
    inner = c.count("approximator_hidden_dim", default=5120)
    depth = c.count("approximator_layers", default=5, most=MOST_LAYERS)
    guide = Tower(
        "guidance",
        inner,
        (),
        (),
        tokens=3 * singles + 12 * doubles + 2,
        projections=(
            linear("in_proj", c.count("approximator_num_channels", default=64), inner),
            *(linear("linear", inner, inner),) * (2 * depth),
            linear("out_proj", inner, width),
        ),
        other_params=depth * inner,
    )
    maps = (
        linear("x_embedder", channels, width),
        linear("proj_out", width, _pixels(c, 1) * c.count("out_channels", default=channels)),
    )
    context = (linear("context_embedder", c.count("joint_attention_dim", default=4096), width),)
    block = Layer(joint, mlp, 0)
    layers = [block] * doubles + [_single(joint, mlp, width, ())] * singles
    model = image_model("chroma", width, layers, maps)
    return replace(model, towers=(_text(width, [block] * doubles, context), guide))


def _pixels(c: Fields, patch: int) -> int:
    return c.count("patch_size", default=patch, most=10_000) ** 2


def qwen_image(c: Fields) -> Model:
    """Qwen-Image: two streams throughout."""
    heads, head_dim, width = width_of(c, 24, 128)
    own = attention(width, heads, head_dim=head_dim, norm_params=2 * head_dim)
    six = linear("modulation", width, 6 * width, once=True)
    mlp = feed_forward(width, 4 * width)
    block = Layer(replace(own, kv_from="joint"), mlp, 0, projections=(six,))
    depth = c.count("num_layers", default=60, most=MOST_LAYERS)
    reads = c.count("joint_attention_dim", default=3584)
    maps = (
        *embedder("timestep", SINUSOID, width),
        linear("x_embedder", c.count("in_channels", default=64), width),
        linear("norm_out", width, 2 * width, once=True),
        linear("proj_out", width, _pixels(c, 2) * c.count("out_channels", default=16)),
    )
    model = image_model("qwen_image", width, [block] * depth, maps)
    text = _text(width, [block] * depth, (linear("context_embedder", reads, width),), reads)
    further = 2 * width if c.flag("use_additional_t_cond", default=False) else 0
    return replace(model, towers=(text,), embedding_extra_params=further)


def hunyuan_video(c: Fields) -> Model:
    """HunyuanVideo: Flux's blocks over a clip; the text goes through blocks of its own first."""
    heads, head_dim, width = width_of(c, 24, 128)
    doubles, singles = _depths(c, 20, 40)
    c.text("qk_norm", default="rms_norm", choices=("rms_norm",))
    own = attention(width, heads, head_dim=head_dim, norm_params=2 * head_dim)
    joint = replace(own, kv_from="joint")
    inner = int(width * c.number("mlp_ratio", default=4.0))
    mlp = feed_forward(width, inner)
    six = linear("modulation", width, 6 * width, once=True)
    three = linear("modulation", width, 3 * width, once=True)
    block = Layer(joint, mlp, 0, projections=(six,))
    reads = c.count("text_embed_dim", default=4096)
    refined = Layer(
        attention(width, heads, head_dim=head_dim),
        feed_forward(width, 4 * width),
        4 * width,
        projections=(linear("norm_out", width, 2 * width, once=True),),
    )
    refiners = c.count("num_refiner_layers", default=2, least=0, most=MOST_LAYERS)
    context = (
        *embedder("timestep", SINUSOID, width),
        *embedder("pooled_text", reads, width),
        linear("context_embedder", reads, width),
    )
    maps = embedder("timestep", SINUSOID, width)
    if c.flag("guidance_embeds", default=True):
        maps += embedder("guidance", SINUSOID, width)
    frames = c.count("patch_size_t", default=1, most=10_000)
    taps = _pixels(c, 2) * frames
    channels = c.count("in_channels", default=16)
    maps += (
        *embedder("pooled_text", c.count("pooled_projection_dim", default=768), width),
        linear("norm_out", width, 2 * width, once=True),
        linear("proj_out", width, taps * c.count("out_channels", default=16)),
    )
    stem = Conv("patch_embed", channels, width, taps, bias_params=width)
    layers = [block] * doubles + [_single(joint, mlp, width, (three,))] * singles
    model = image_model("hunyuan_video", width, layers, maps, (stem,))
    text = _text(width, [refined] * refiners + [block] * doubles, context)
    return replace(model, towers=(text,))


def flux2(c: Fields) -> Model:
    """Flux 2: no biases, gated feed-forwards, one modulation for all blocks of a kind."""
    heads, head_dim, width = width_of(c, 48, 128)
    doubles, singles = _depths(c, 8, 48)
    channels = c.count("in_channels", default=128)
    own = attention(width, heads, head_dim=head_dim, bias="", norm_params=2 * head_dim)
    joint = replace(own, kv_from="joint")
    mlp = DenseMlp(int(width * c.number("mlp_ratio", default=3.0)), 3)
    sinusoid = c.count("timestep_guidance_channels", default=SINUSOID)
    maps = _bare(embedder("timestep", sinusoid, width))
    if c.flag("guidance_embeds", default=True):
        maps += _bare(embedder("guidance", sinusoid, width))
    out = _pixels(c, 1) * c.count("out_channels", default=channels)
    maps += _bare((
        linear("modulation of the image", width, 6 * width, once=True),
        linear("modulation of the text", width, 6 * width, once=True),
        linear("modulation of both", width, 3 * width, once=True),
        linear("x_embedder", channels, width),
        linear("norm_out", width, 2 * width, once=True),
        linear("proj_out", width, out),
    ))  # fmt: skip
    reads = c.count("joint_attention_dim", default=15_360)
    context = (linear("context_embedder", reads, width, bias=False),)
    block = Layer(joint, mlp, 0)
    over_both = Layer(replace(own, kv_from="both"), mlp, 0)
    model = image_model("flux2", width, [block] * doubles + [over_both] * singles, maps)
    return replace(model, towers=(_text(width, [block] * doubles, context),))


def _bare(maps: tuple[Projection, ...]) -> tuple[Projection, ...]:
    """The maps without their biases."""
    return tuple(replace(one, bias_params=0) for one in maps)


def auraflow(c: Fields) -> Model:
    """AuraFlow: few blocks of two streams, then many over both; 8 tokens of its own in the text."""
    heads, head_dim, width = width_of(c, 12, 256)
    channels, pixels = c.count("in_channels", default=4), _pixels(c, 2)
    own = attention(width, heads, head_dim=head_dim, bias="")
    inner = -(-int(2 * 4 * width / 3) // 256) * 256
    mlp = DenseMlp(inner, 3)
    six = linear("modulation", width, 6 * width, bias=False, once=True)
    block = Layer(replace(own, kv_from="joint"), mlp, 0, projections=(six,))
    over_both = Layer(replace(own, kv_from="both"), mlp, 0, projections=(six,))
    doubles = c.count("num_mmdit_layers", default=4, least=0, most=MOST_LAYERS)
    singles = c.count("num_single_dit_layers", default=32, least=0, most=MOST_LAYERS)
    maps = (
        *embedder("timestep", SINUSOID, width),
        linear("x_embedder", channels * pixels, width),
        linear("norm_out", width, 2 * width, bias=False, once=True),
        linear("proj_out", width, pixels * c.count("out_channels", default=4), bias=False),
    )
    reads = c.count("joint_attention_dim", default=2048)
    into = c.count("caption_projection_dim", default=3072)
    text = _text(
        width,
        [block] * doubles,
        (linear("context_embedder", reads, into, bias=False),),
        8 * width,
    )
    patch = c.count("patch_size", default=2, most=10_000)
    count = (c.count("sample_size", default=64, least=patch) // patch) ** 2
    layers = [block] * doubles + [over_both] * singles
    model = image_model("auraflow", width, layers, maps, (), count)
    positions = c.count("pos_embed_max_size", default=1024) * width
    return replace(model, towers=(text,), other_params=positions)


def cogvideox(c: Fields) -> Model:
    """CogVideoX: text and clip in one stream of shared weights, modulated apart."""
    heads, head_dim, width = width_of(c, 30, 64)
    time = c.count("time_embed_dim", default=512)
    bias = "qkvo" if c.flag("attention_bias", default=True) else "o"
    affine = 2 if c.flag("norm_elementwise_affine", default=True) else 0
    own = attention(width, heads, head_dim=head_dim, bias=bias, norm_params=4 * head_dim)
    six = linear("modulation", time, 6 * width, once=True)
    block = Layer(
        replace(own, kv_from="both"),
        feed_forward(width, 4 * width),
        2 * affine * width,
        projections=(six, six),
    )
    patch = c.count("patch_size", default=2, most=10_000)
    frames = c.maybe("patch_size_t")
    channels, taps = c.count("in_channels", default=16), patch * patch * (frames or 1)
    stem_bias = c.flag("patch_bias", default=True)
    every = c.count("temporal_compression_ratio", default=4)
    length = (c.count("sample_frames", default=49) - 1) // every + 1
    high = c.count("sample_height", default=60, least=patch) // patch
    wide = c.count("sample_width", default=90, least=patch) // patch
    count = high * wide * -(-length // (frames or 1))
    maps = embedder("timestep", width, time)
    maps = (maps[0], linear("timestep.linear_2", time, time, once=True))
    ofs = c.maybe("ofs_embed_dim")
    maps += embedder("ofs", ofs, ofs) if ofs is not None else ()
    maps += (
        linear("norm_out", time, 2 * width, once=True),
        linear("proj_out", width, taps * c.count("out_channels", default=16)),
    )
    stem: tuple[Conv, ...] = ()
    if frames is None:
        stem = (Conv("patch_embed", channels, width, taps, count, bias_params=stem_bias * width),)
    else:
        maps += (linear("x_embedder", channels * taps, width),)
    depth = c.count("num_layers", default=30, most=MOST_LAYERS)
    model = image_model("cogvideox", width, [block] * depth, maps, stem, count)
    context = (linear("context_embedder", c.count("text_embed_dim", default=4096), width),)
    text = _text(width, [], context)
    return replace(model, towers=(text,), other_params=2 * affine * width)


def cogview4(c: Fields) -> Model:
    """CogView 4: text and image in one stream of shared weights, one modulation for each."""
    heads, head_dim, width = width_of(c, 64, 40)
    time = c.count("time_embed_dim", default=512)
    own = attention(width, heads, head_dim=head_dim)
    twelve = linear("modulation", time, 12 * width, once=True)
    mlp = feed_forward(width, 4 * width)
    block = Layer(replace(own, kv_from="both"), mlp, 0, projections=(twelve,))
    pixels, channels = _pixels(c, 2), c.count("in_channels", default=16)
    sizes = 6 * c.count("condition_dim", default=256)
    maps = (
        *embedder("timestep", width, time),
        *embedder("sizes", sizes, time),
        linear("x_embedder", channels * pixels, width),
        linear("norm_out", time, 2 * width, once=True),
        linear("proj_out", width, pixels * c.count("out_channels", default=16)),
    )
    patch = c.count("patch_size", default=2, most=10_000)
    count = (c.count("sample_size", default=128, least=patch) // patch) ** 2
    depth = c.count("num_layers", default=30, most=MOST_LAYERS)
    model = image_model("cogview4", width, [block] * depth, maps, (), count)
    context = (linear("context_embedder", c.count("text_embed_dim", default=4096), width),)
    return replace(model, towers=(_text(width, [], context),))


def _refined(
    name: str,
    width: int,
    own: Attention,
    mlp: DenseMlp,
    modulation: Projection,
    depths: tuple[int, int],
    end: tuple[Projection, ...],
    context: tuple[Projection, ...],
    maps: tuple[Projection, ...],
    count: int | None,
) -> Model:
    """Lumina 2 and Z-Image: text and image are refined apart, then run side by side."""
    depth, refiners = depths
    text = Layer(own, mlp, 4 * width)
    image = Layer(own, mlp, 4 * width, projections=(modulation,))
    both = replace(image, attention=replace(own, kv_from="both"))
    last = replace(both, projections=(*both.projections, *end))
    kinds, order = runs([image] * refiners)
    noise = Tower("noise_refiner", width, kinds, order, tokens=count)
    model = image_model(name, width, [both] * (depth - 1) + [last], maps, (), count)
    # the text's norm before its map
    words = _text(width, [text] * refiners, context, context[0].inputs)
    return replace(model, towers=(words, noise))


def lumina2(c: Fields) -> Model:
    """Lumina 2: grouped queries, sandwich norms, modulation from a narrow embedding of the time."""
    width = c.count("hidden_size", default=2304)
    heads = heads_of(c, width, default=24)
    kv_heads = c.count("num_kv_heads", default=8, most=100_000)
    if heads % kv_heads:
        raise c.wrong("num_kv_heads", f"a divisor of the {heads} attention heads", kv_heads)
    head_dim = width // heads
    own = replace(attention(width, heads, bias="", norm_params=2 * head_dim), kv_heads=kv_heads)
    multiple = c.count("multiple_of", default=256)
    inner = 4 * width
    if c.has("ffn_dim_multiplier"):
        inner = int(c.number("ffn_dim_multiplier") * inner)
    mlp, time = DenseMlp(-(-inner // multiple) * multiple, 3), min(width, 1024)
    patch, channels = (
        c.count("patch_size", default=2, most=10_000),
        c.count("in_channels", default=16),
    )
    pixels = patch * patch
    end = (linear("proj_out", width, pixels * c.count("out_channels", default=channels)),)
    return _refined(
        "lumina2",
        width,
        own,
        mlp,
        linear("modulation", time, 4 * width, once=True),
        (
            c.count("num_layers", default=26, most=MOST_LAYERS),
            c.count("num_refiner_layers", default=2, least=0, most=MOST_LAYERS),
        ),
        end,
        (linear("context_embedder", c.count("cap_feat_dim", default=1024), width),),
        (
            *embedder("timestep", SINUSOID, time),
            linear("x_embedder", channels * pixels, width),
            linear("norm_out", time, width, once=True),
        ),
        (c.count("sample_size", default=128, least=patch) // patch) ** 2,
    )


def z_image(c: Fields) -> Model:
    """Z-Image: as Lumina 2, with embeddings of several sizes of patch and tokens to pad with."""
    width = c.count("dim", default=3840)
    heads = heads_of(c, width, "n_heads", default=30)
    kv_heads = c.count("n_kv_heads", default=heads, most=100_000)
    if kv_heads != heads:
        raise c.wrong("n_kv_heads", f"{heads}, as n_heads: the reference builds no fewer")
    if c.has("siglip_feat_dim"):
        raise c.wrong("siglip_feat_dim", "null: the variant that sees images is not counted here")
    normed = 2 * (width // heads) if c.flag("qk_norm", default=True) else 0
    own = attention(width, heads, bias="", norm_params=normed)
    time = min(width, SINUSOID)
    sides = c.counts("all_patch_size", least=1) or [2]
    frames = c.counts("all_f_patch_size", least=1) or [1]
    if len(sides) != len(frames):
        raise c.wrong("all_f_patch_size", f"a list of {len(sides)}, as all_patch_size has")
    channels = c.count("in_channels", default=16)
    taps = [channels * side * side * f for side, f in zip(sides, frames, strict=True)]
    # one of these runs at a time; the others are counted as parameters that multiply nothing
    unused = sum(2 * width * n + width + n + (time + 1) * width for n in taps[1:])
    model = _refined(
        "z_image",
        width,
        own,
        DenseMlp(int(width / 3 * 8), 3),
        linear("modulation", time, 4 * width, once=True),
        (
            c.count("n_layers", default=30, most=MOST_LAYERS),
            c.count("n_refiner_layers", default=2, least=0, most=MOST_LAYERS),
        ),
        (linear("proj_out", width, taps[0]),),
        (linear("context_embedder", c.count("cap_feat_dim", default=2560), width),),
        (
            linear("timestep.linear_1", SINUSOID, 1024, once=True),
            linear("timestep.linear_2", 1024, time, once=True),
            linear("x_embedder", taps[0], width),
            linear("norm_out", time, width, once=True),
        ),
        None,
    )
    return replace(model, other_params=2 * width + unused)
