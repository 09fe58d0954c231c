"""Blocks that encoders, vision towers and diffusion transformers are put together from."""

from __future__ import annotations

from chipshift.models.fields import Fields
from chipshift.models.model import Attention, DenseMlp, Layer, Projection


def attention(
    d_model: int,
    heads: int,
    *,
    head_dim: int | None = None,
    bias: str = "qkvo",
    causal: bool = False,
    window: int | None = None,
    norm_params: int = 0,
) -> Attention:
    """Attention with as many key as query heads; ``bias`` names the projections that have one."""
    width = head_dim or d_model // heads
    sizes = {"q": heads * width, "k": heads * width, "v": heads * width, "o": d_model}
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=width,
        v_head_dim=width,
        window=window,
        causal=causal,
        bias_params=sum(sizes[letter] for letter in bias),
        norm_params=norm_params,
    )


def feed_forward(d_model: int, width: int, matrices: int = 2, bias: bool = True) -> DenseMlp:
    """A feed-forward, plain and with biases unless told otherwise."""
    return DenseMlp(width, matrices, bias * ((matrices - 1) * width + d_model))


def classic(d_model: int, heads: int, width: int, *, causal: bool = False) -> Layer:
    """The block of BERT, ViT and CLIP: biases everywhere, two norms with biases."""
    return Layer(
        attention(d_model, heads, causal=causal), feed_forward(d_model, width), 4 * d_model
    )


def linear(
    name: str, inputs: int, outputs: int, bias: bool = True, once: bool = False, every: int = 1
) -> Projection:
    """A linear map, with a bias unless told otherwise."""
    return Projection(name, inputs, outputs, bias * outputs, once, every)


def heads_of(c: Fields, d_model: int, *keys: str, default: int | None = None) -> int:
    """Number of heads under the first of ``keys`` that is given, else ``default``.

    Raises:
        InputError: they do not divide the width.
    """
    heads = c.count(*(keys or ("num_attention_heads",)), default=default, most=100_000)
    if d_model % heads:
        raise c.conflict(
            f"{heads} attention heads do not divide the width {d_model}; expected that they do"
        )
    return heads


def labels(c: Fields) -> int:
    """Classes of a classification head: ``id2label``'s, else ``num_labels``, else two."""
    names = c.values.get("id2label")
    if isinstance(names, dict) and names:
        return len(names)
    return c.count("num_labels", default=2)


def built_as(c: Fields) -> str:
    """What follows the family's name in the class: ``ForMaskedLM``, ``LMHeadModel``, or ""."""
    classes = c.values.get("architectures")
    name = classes[0] if isinstance(classes, (list, tuple)) and classes else ""
    if not isinstance(name, str):
        return ""
    at = name.find("For")
    if at >= 0:
        return name[at:]
    if name.endswith("LMHeadModel"):
        return "LMHeadModel"
    return "Model" if name.endswith("Model") else ""
