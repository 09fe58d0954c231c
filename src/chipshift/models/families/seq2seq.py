"""Encoder-decoders: T5 and its kin, BART, Whisper. The decoder is the model, the encoder a tower.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.blocks import attention, feed_forward, heads_of
from chipshift.models.families.decoder import MOST_LAYERS, assemble, runs
from chipshift.models.fields import Fields
from chipshift.models.model import Attention, Conv, DenseMlp, Layer, Model, Tower


def _crossed(own: Attention) -> Attention:
    """The same attention over the encoder's output: all of it, whatever its order."""
    return replace(own, causal=False, window=None, kv_from="encoder")


def t5(c: Fields) -> Model:
    """T5: position biases in the first layer of each stack."""
    return _t5(c, "relu", biases_everywhere=False)


def mt5(c: Fields) -> Model:
    """mT5: T5 with gated feed-forwards unless told otherwise."""
    return _t5(c, "gated-gelu", biases_everywhere=False)


def umt5(c: Fields) -> Model:
    """UMT5: position biases in every layer, gated feed-forwards unless told otherwise."""
    return _t5(c, "gated-gelu", biases_everywhere=True)


def _t5(c: Fields, activation: str, biases_everywhere: bool) -> Model:
    """Two stacks of blocks without biases that share one embedding, the LM head among them.

    The reference ties the head whatever ``tie_word_embeddings`` says, which it reads as whether
    to scale the output; a checkpoint with a head of its own is counted from its tensors.
    """
    width = c.count("d_model", default=512)
    heads = c.count("num_heads", default=8, most=100_000)
    count = c.count("num_layers", "num_hidden_layers", default=6, most=MOST_LAYERS)
    decoders = c.count("num_decoder_layers", default=count, most=MOST_LAYERS)
    gated = c.text("feed_forward_proj", default=activation).startswith("gated")
    mlp = DenseMlp(c.count("d_ff", default=2048), 3 if gated else 2)
    own = attention(width, heads, head_dim=c.count("d_kv", default=64), bias="")
    table = c.count("relative_attention_num_buckets", default=32) * heads
    up = Layer(own, mlp, 2 * width)
    kinds, order = runs([up] * count)
    tower = Tower(
        "encoder",
        width,
        kinds,
        order,
        embedding_params=table * (count if biases_everywhere else 1),
        other_params=width,
    )
    causal = replace(own, causal=True)
    down = Layer(causal, mlp, 3 * width, cross=_crossed(own))
    model = assemble(
        c.replaced(hidden_size=width),
        [down] * decoders,
        tied=True,
        final_norm_params=width,
        embedding_extra_params=table * (decoders if biases_everywhere else 1),
    )
    return replace(model, towers=(tower,))


def _stack(c: Fields, side: str, width: int, bias: str) -> tuple[int, Attention, DenseMlp]:
    """(layers, attention, feed-forward) of one side by the keys that BART and Whisper share."""
    heads = heads_of(c, width, f"{side}_attention_heads")
    own = attention(width, heads, bias=bias, causal=side == "decoder")
    mlp = feed_forward(width, c.count(f"{side}_ffn_dim"))
    return c.count(f"{side}_layers", most=MOST_LAYERS), own, mlp


def bart(c: Fields) -> Model:
    """BART: learned positions on both sides (two more than it says), norms over embeddings."""
    width = c.count("d_model", "hidden_size")
    positions = (c.count("max_position_embeddings", default=1024) + 2) * width
    count, own, mlp = _stack(c, "encoder", width, "qkvo")
    kinds, order = runs([Layer(own, mlp, 4 * width)] * count)
    tower = Tower(
        "encoder", width, kinds, order, embedding_params=positions, other_params=2 * width
    )
    count, own, mlp = _stack(c, "decoder", width, "qkvo")
    down = Layer(own, mlp, 6 * width, cross=_crossed(own))
    model = assemble(
        c.replaced(hidden_size=width),
        [down] * count,
        tied=c.flag("tie_word_embeddings", default=True),
        final_norm_params=0,
        embedding_extra_params=positions,
        other_params=2 * width,
    )
    return replace(model, towers=(tower,))


def whisper(c: Fields) -> Model:
    """Whisper: two convolutions over mel frames, the second of stride 2; no bias on keys."""
    width = c.count("d_model", "hidden_size")
    frames = c.count("max_source_positions", default=1500)
    mels = c.count("num_mel_bins", default=80)
    count, own, mlp = _stack(c, "encoder", width, "qvo")
    kinds, order = runs([Layer(own, mlp, 4 * width)] * count)
    tower = Tower(
        "encoder",
        width,
        kinds,
        order,
        tokens=frames,
        convs=(
            Conv("conv1", mels, width, 3, 2 * frames, bias_params=width),
            Conv("conv2", width, width, 3, frames, bias_params=width),
        ),
        embedding_params=frames * width,
        other_params=2 * width,
    )
    count, own, mlp = _stack(c, "decoder", width, "qvo")
    down = Layer(own, mlp, 6 * width, cross=_crossed(own))
    model = assemble(
        c.replaced(hidden_size=width),
        [down] * count,
        tied=c.flag("tie_word_embeddings", default=True),
        final_norm_params=2 * width,
        embedding_extra_params=c.count("max_target_positions", default=448) * width,
    )
    return replace(model, towers=(tower,))
