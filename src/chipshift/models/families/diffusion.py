"""Diffusion transformers by their diffusers config: DiT, PixArt, Stable Diffusion 3, Flux.

Shapes and defaults as diffusers 0.42 builds them. The image's tokens are the model; where text
keeps a stream of its own (SD 3, Flux) that stream is a tower. Modulations are maps applied once an
image.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.blocks import attention, feed_forward, linear
from chipshift.models.families.decoder import MOST_LAYERS, runs
from chipshift.models.fields import Fields
from chipshift.models.model import Conv, Layer, Model, Projection, Tower

SINUSOID = 256
"""Channels of the sinusoid that timesteps are turned into."""


def embedder(name: str, inputs: int, width: int) -> tuple[Projection, ...]:
    """The two maps that turn a timestep or a pooled text into the model's width."""
    return (
        linear(f"{name}.linear_1", inputs, width, once=True),
        linear(f"{name}.linear_2", width, width, once=True),
    )


def width_of(c: Fields, heads: int, head_dim: int) -> tuple[int, int, int]:
    """(heads, width of one, width of the model)."""
    heads = c.count("num_attention_heads", default=heads, most=100_000)
    head_dim = c.count("attention_head_dim", default=head_dim, most=1_000_000)
    return heads, head_dim, heads * head_dim


def _stem(c: Fields, width: int, channels: int, sample: int) -> tuple[Conv, int, int]:
    """(the convolution over patches, pixels of a patch, patches of an image)."""
    patch = c.count("patch_size", default=2, most=10_000)
    count = (c.count("sample_size", default=sample, least=patch) // patch) ** 2
    return (
        Conv("patch_embed", channels, width, patch * patch, count, bias_params=width),
        patch * patch,
        count,
    )


def image_model(
    name: str,
    width: int,
    layers: list[Layer],
    maps: tuple[Projection, ...],
    convs: tuple[Conv, ...] = (),
    tokens: int | None = None,
) -> Model:
    """A stack over an image's tokens, without a vocabulary."""
    kinds, order = runs(layers)
    return Model(
        name="",
        architecture=name,
        d_model=width,
        vocab=0,
        layers=kinds,
        layer_order=order,
        tied=True,
        has_head=False,
        tokens=tokens,
        projections=maps,
        convs=convs,
    )


def transformer_2d(c: Fields) -> Model:
    """DiT or PixArt under the name that both had before they had classes of their own."""
    kinds = ("ada_norm_zero", "ada_norm_single")
    kind = c.text("norm_type", default=kinds[0], choices=kinds)
    return pixart(c) if kind == kinds[1] else dit(c)


def dit(c: Fields) -> Model:
    """DiT: each block embeds time and class itself and modulates by them."""
    c.text("norm_type", default="ada_norm_zero", choices=("ada_norm_zero",))
    heads, head_dim, width = width_of(c, 16, 72)
    channels = c.count("in_channels", default=4)
    outputs = c.count("out_channels", default=channels)
    stem, pixels, count = _stem(c, width, channels, 32)
    bias = "qkvo" if c.flag("attention_bias", default=True) else "o"
    depth = c.count("num_layers", default=28, most=MOST_LAYERS)
    classes = c.count("num_embeds_ada_norm", default=1000)
    block = Layer(
        attention(width, heads, head_dim=head_dim, bias=bias),
        feed_forward(width, 4 * width),
        2 * width if c.flag("norm_elementwise_affine", default=False) else 0,
        projections=(
            *embedder("timestep", SINUSOID, width),
            linear("modulation", width, 6 * width, once=True),
        ),
    )
    maps = (
        linear("proj_out_1", width, 2 * width, once=True),
        linear("proj_out_2", width, pixels * outputs),
    )
    model = image_model("dit", width, [block] * depth, maps, (stem,), count)
    return replace(model, embedding_extra_params=depth * (classes + 1) * width)


def pixart(c: Fields) -> Model:
    """PixArt: one modulation for all blocks, shifted by a table in each; attention to the text."""
    heads, head_dim, width = width_of(c, 16, 72)
    channels = c.count("in_channels", default=4)
    stem, pixels, count = _stem(c, width, channels, 128)
    bias = "qkvo" if c.flag("attention_bias", default=True) else "o"
    own = attention(width, heads, head_dim=head_dim, bias=bias)
    reads = c.count("cross_attention_dim", default=1152)
    block = Layer(
        own,
        feed_forward(width, 4 * width),
        4 * width if c.flag("norm_elementwise_affine", default=False) else 0,
        cross=replace(own, kv_from="encoder", kv_input=reads),
        other_params=6 * width,
    )
    maps = embedder("timestep", SINUSOID, width)
    conditioned = c.count("sample_size", default=128) == 128
    if c.flag("use_additional_conditions", default=conditioned):
        maps += embedder("resolution", SINUSOID, width // 3)
        maps += embedder("aspect_ratio", SINUSOID, width // 3)
    maps += (linear("modulation", width, 6 * width, once=True),)
    caption = c.maybe("caption_channels")
    text: tuple[Projection, ...] = ()
    if caption is not None:
        text = (
            linear("caption.linear_1", caption, width),
            linear("caption.linear_2", width, width),
        )
    maps += (linear("proj_out", width, pixels * c.count("out_channels", default=8)),)
    depth = c.count("num_layers", default=28, most=MOST_LAYERS)
    model = image_model("pixart", width, [block] * depth, maps, (stem,), count)
    towers = (Tower("text", width, (), (), projections=text),) if text else ()
    return replace(model, other_params=2 * width, towers=towers)


def sd3(c: Fields) -> Model:
    """Stable Diffusion 3 and 3.5: image and text in two streams that attend to each other."""
    heads, head_dim, width = width_of(c, 18, 64)
    channels = c.count("in_channels", default=16)
    stem, pixels, count = _stem(c, width, channels, 128)
    depth = c.count("num_layers", default=18, most=MOST_LAYERS)
    normed = 2 * head_dim if c.has("qk_norm") else 0
    apart = attention(width, heads, head_dim=head_dim, norm_params=normed)
    own = replace(apart, kv_from="joint")
    mlp = feed_forward(width, 4 * width)
    six = linear("modulation", width, 6 * width, once=True)
    plain = Layer(own, mlp, 0, projections=(six,))
    nine = linear("modulation", width, 9 * width, once=True)
    twice = Layer(own, mlp, 0, cross=apart, projections=(nine,))
    dual = set(c.counts("dual_attention_layers"))
    text = Layer(own, mlp, 0, projections=(six,))
    # the last block's text is only read: no way out, no feed-forward, a smaller modulation
    read = Layer(
        None,
        None,
        own.norm_params,
        projections=(
            linear("add_qkv_proj", width, 3 * width),
            linear("modulation", width, 2 * width, once=True),
        ),
    )
    kinds, order = runs([text] * (depth - 1) + [read])
    reads = c.count("caption_projection_dim", default=1152)
    context = (linear("context_embedder", c.count("joint_attention_dim", default=4096), reads),)
    maps = (
        *embedder("timestep", SINUSOID, width),
        *embedder("pooled_text", c.count("pooled_projection_dim", default=2048), width),
        linear("norm_out", width, 2 * width, once=True),
        linear("proj_out", width, pixels * c.count("out_channels", default=16)),
    )
    layers = [twice if i in dual else plain for i in range(depth)]
    model = image_model("sd3", width, layers, maps, (stem,), count)
    return replace(model, towers=(Tower("text", width, kinds, order, projections=context),))


def flux(c: Fields) -> Model:
    """Flux: blocks of two streams, then blocks of one over both, its halves side by side."""
    heads, head_dim, width = width_of(c, 24, 128)
    channels = c.count("in_channels", default=64)
    own = attention(width, heads, head_dim=head_dim, norm_params=2 * head_dim)
    own = replace(own, kv_from="joint")
    mlp = feed_forward(width, 4 * width)
    double = Layer(own, mlp, 0, projections=(linear("modulation", width, 6 * width, once=True),))
    # attention and feed-forward share one way out, and so one bias of it
    single = Layer(
        replace(own, bias_params=own.bias_params - width, kv_from="both"),
        mlp,
        0,
        projections=(linear("modulation", width, 3 * width, once=True),),
    )
    doubles = c.count("num_layers", default=19, least=0, most=MOST_LAYERS)
    singles = c.count("num_single_layers", default=38, least=0, most=MOST_LAYERS)
    maps = embedder("timestep", SINUSOID, width)
    if c.flag("guidance_embeds", default=False):
        maps += embedder("guidance", SINUSOID, width)
    maps += (
        *embedder("pooled_text", c.count("pooled_projection_dim", default=768), width),
        linear("x_embedder", channels, width),
        linear("norm_out", width, 2 * width, once=True),
        linear(
            "proj_out",
            width,
            c.count("patch_size", default=1, most=10_000) ** 2
            * c.count("out_channels", default=channels),
        ),
    )
    kinds, order = runs([double] * doubles)
    context = (linear("context_embedder", c.count("joint_attention_dim", default=4096), width),)
    model = image_model("flux", width, [double] * doubles + [single] * singles, maps)
    return replace(model, towers=(Tower("text", width, kinds, order, projections=context),))
