"""Encoder-decoders: T5, BART and their kin, Whisper. The decoder is the model, the encoder a tower.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.blocks import attention, feed_forward, heads_of
from chipshift.models.families.decoder import MOST_LAYERS, assemble, runs
from chipshift.models.families.ears import whisper_ear
from chipshift.models.fields import Fields
from chipshift.models.model import Attention, DenseMlp, Layer, Model, Tower


def _crossed(own: Attention) -> Attention:
    """The same attention over the encoder's output: all of it, whatever its order."""
    return replace(own, causal=False, window=None, kv_from="encoder")


def t5(c: Fields) -> Model:
    """T5: position biases in the first layer of each stack."""
    return _t5(c, "relu", biases_everywhere=False)


def mt5(c: Fields) -> Model:
    """mT5: T5 with gated feed-forwards unless told otherwise."""
    return _t5(_as_mt5(c), "gated-gelu", biases_everywhere=False)


def umt5(c: Fields) -> Model:
    """UMT5: position biases in every layer, gated feed-forwards unless told otherwise."""
    return _t5(_as_mt5(c), "gated-gelu", biases_everywhere=True)


def _as_mt5(c: Fields) -> Fields:
    """Numbers that mT5 leaves out are not T5's."""
    layers = {} if c.has("num_layers", "num_hidden_layers") else {"num_layers": 8}
    return c.having(d_ff=1024, num_heads=6, **layers)


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
    if encodes(c):
        return _encoder_alone(c, tower)
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


def encodes(c: Fields) -> bool:
    """Whether the class is the encoder by itself, as diffusion pipelines use it."""
    classes = c.values.get("architectures")
    return isinstance(classes, list) and str(classes[:1]).find("EncoderModel") >= 0


def _encoder_alone(c: Fields, tower: Tower) -> Model:
    """An encoder under the table of words, no head."""
    return Model(
        name="",
        architecture=c.text("model_type", default="t5"),
        d_model=tower.d_model,
        vocab=c.count("vocab_size"),
        layers=tower.layers,
        layer_order=tower.layer_order,
        tied=True,
        embedding_extra_params=tower.embedding_params,
        has_head=False,
        other_params=tower.other_params,
    )


def _stack(c: Fields, side: str, width: int, bias: str) -> tuple[int, Attention, DenseMlp]:
    """(layers, attention, feed-forward) of one side by the keys that BART and Whisper share."""
    heads = heads_of(c, width, f"{side}_attention_heads")
    own = attention(width, heads, bias=bias, causal=side == "decoder")
    mlp = feed_forward(width, c.count(f"{side}_ffn_dim"))
    return c.count(f"{side}_layers", most=MOST_LAYERS), own, mlp


def bart(c: Fields) -> Model:
    """BART: learned positions on both sides (two more than it says), norms over embeddings."""
    return _bart(c, positions=2, embedding_norms=True, final_norms=False)


def mbart(c: Fields) -> Model:
    """mBART: BART with a norm at the end of each side."""
    return _bart(c, positions=2, embedding_norms=True, final_norms=True)


def marian(c: Fields) -> Model:
    """Marian: positions by a formula, held in a table that is not trained; no norms but blocks'.

    Raises:
        InputError: its two sides have vocabularies of their own.
    """
    if not c.flag("share_encoder_decoder_embeddings", default=True):
        raise c.wrong("share_encoder_decoder_embeddings", "true: two tables are not read here")
    return _bart(c, positions=0, embedding_norms=False, final_norms=False)


def pegasus(c: Fields) -> Model:
    """Pegasus: Marian's stacks with a norm at the end of each."""
    return _bart(c, positions=0, embedding_norms=False, final_norms=True)


def blenderbot(c: Fields) -> Model:
    """Blenderbot: Pegasus's stacks, few layers below and many above."""
    c = c.having(encoder_layers=2, encoder_ffn_dim=10_240, encoder_attention_heads=32)
    c = c.having(decoder_layers=24, decoder_ffn_dim=10_240, decoder_attention_heads=32)
    width = {} if c.has("d_model", "hidden_size") else {"d_model": 2560}
    return pegasus(c.having(max_position_embeddings=128, **width))


def m2m_100(c: Fields) -> Model:
    """M2M-100 and NLLB's dense models: positions that no table holds."""
    return _bart(c, positions=None, embedding_norms=False, final_norms=True)


def _bart(c: Fields, positions: int | None, embedding_norms: bool, final_norms: bool) -> Model:
    """Two stacks by BART's keys over one table.

    Args:
        positions: rows of each side's table of positions beyond ``max_position_embeddings``;
            None where there is no such table.
    """
    width = c.count("d_model", "hidden_size", default=1024)
    c = c.having(encoder_layers=12, encoder_ffn_dim=4096, encoder_attention_heads=16)
    c = c.having(decoder_layers=12, decoder_ffn_dim=4096, decoder_attention_heads=16)
    table = 0
    if positions is not None:
        table = (c.count("max_position_embeddings", default=1024) + positions) * width
    norms = 2 * width * (embedding_norms + final_norms)
    count, own, mlp = _stack(c, "encoder", width, "qkvo")
    kinds, order = runs([Layer(own, mlp, 4 * width)] * count)
    tied = c.flag("tie_word_embeddings", default=True)
    # untied, each side has a table of words beside the one that both would share
    apart = 0 if tied else c.count("vocab_size") * width
    tower = Tower(
        "encoder", width, kinds, order, embedding_params=table + apart, other_params=norms
    )
    count, own, mlp = _stack(c, "decoder", width, "qkvo")
    down = Layer(own, mlp, 6 * width, cross=_crossed(own))
    model = assemble(
        c.replaced(hidden_size=width),
        [down] * count,
        tied=tied,
        final_norm_params=2 * width * final_norms,
        embedding_extra_params=table + apart,
        other_params=2 * width * embedding_norms,
    )
    return replace(model, towers=(tower,))


def mbart_decoder(c: Fields) -> Model:
    """mBART's decoder by itself, reading another network's output (Donut)."""
    return _decoder(c, final_norm=True, learned=True, embedding_norm=True)


def trocr(c: Fields) -> Model:
    """TrOCR's decoder: BART's, its keys and values as wide as what it reads."""
    learned = c.flag("use_learned_position_embeddings", default=True)
    normed = c.flag("layernorm_embedding", default=True)
    return _decoder(c, final_norm=False, learned=learned, embedding_norm=normed)


def _decoder(c: Fields, final_norm: bool, learned: bool, embedding_norm: bool) -> Model:
    """BART's decoder without an encoder of its own."""
    width = c.count("d_model", "hidden_size", default=1024)
    c = c.having(decoder_layers=12, decoder_ffn_dim=4096, decoder_attention_heads=16)
    count, own, mlp = _stack(c, "decoder", width, "qkvo")
    cross = _crossed(own)
    if not final_norm:
        cross = replace(cross, kv_input=c.maybe("cross_attention_hidden_size"))
    positions = c.count("max_position_embeddings", default=1024 if final_norm else 512) + 2
    return assemble(
        c.replaced(hidden_size=width),
        [Layer(own, mlp, 6 * width, cross=cross)] * count,
        tied=c.flag("tie_word_embeddings", default=True),
        final_norm_params=2 * width * final_norm,
        embedding_extra_params=positions * width * learned,
        other_params=2 * width * embedding_norm,
    )


def whisper(c: Fields) -> Model:
    """Whisper: an encoder of mel frames, its decoder's positions learned; no bias on keys."""
    width = c.count("d_model", "hidden_size", default=384)
    c = c.having(encoder_layers=4, encoder_ffn_dim=1536, encoder_attention_heads=6)
    c = c.having(decoder_layers=4, decoder_ffn_dim=1536, decoder_attention_heads=6)
    tower = whisper_ear(c.replaced(d_model=width), "encoder")
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
