"""Encoders of raw sound: wav2vec 2.0, HuBERT, WavLM. Convolutions thin out the samples, a wide
convolution gives positions, BERT's blocks follow.

Shapes and defaults as transformers 5.24 builds them.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from chipshift.models.families.blocks import built_as, classic, heads_of, labels, linear
from chipshift.models.families.decoder import d_model, n_layers, runs
from chipshift.models.fields import Fields
from chipshift.models.model import Conv, Model, Projection


def wav2vec2(c: Fields) -> Model:
    """wav2vec 2.0: what it predicts while pretraining is quantised by a table of its own."""
    return _listener(c, quantised=built_as(c) == "ForPreTraining")


def hubert(c: Fields) -> Model:
    """HuBERT: wav2vec 2.0's network with targets from outside."""
    if c.flag("conv_pos_batch_norm", default=False):
        raise c.wrong("conv_pos_batch_norm", "false: a batch norm there is not counted here")
    return _listener(c, normed=c.flag("feat_proj_layer_norm", default=True))


def wavlm(c: Fields) -> Model:
    """WavLM: a bias by distance, gated head by head; the first layer holds its table."""
    heads = c.count("num_attention_heads", default=12, most=100_000)
    gate = heads + 8 * (d_model(c.having(hidden_size=768)) // heads + 1)
    return _listener(c, table=c.count("num_buckets", default=320) * heads, gate=gate)


def _listener(
    c: Fields, quantised: bool = False, normed: bool = True, table: int = 0, gate: int = 0
) -> Model:
    """The network and the head that its class names.

    Args:
        normed: a norm stands before the map out of the convolutions.
        table, gate: parameters of a bias by distance, of the model and of a layer.

    Raises:
        InputError: it has adapters behind its blocks, or a class that is not known here.
    """
    c = c.having(
        hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072
    )
    if c.flag("add_adapter", default=False):
        raise c.wrong("add_adapter", "false: adapters of convolutions are not counted here")
    width = d_model(c)
    block = classic(width, heads_of(c, width), c.count("intermediate_size"))
    kinds, order = runs([replace(block, other_params=gate)] * n_layers(c))
    convs, channels = _thinning(c)
    taps = c.count("num_conv_pos_embeddings", default=128, most=100_000)
    groups = c.count("num_conv_pos_embedding_groups", default=16, most=100_000)
    convs += (Conv("positions", width, width, taps, groups=groups, bias_params=width),)
    masked = c.values.get("mask_time_prob", 0.05) or c.values.get("mask_feature_prob", 0.0)
    # the convolution of positions has a length a tap, apart from its direction
    loose = taps + 2 * channels * normed + 2 * width + width * bool(masked)
    maps, more = _head(c, width, channels, quantised)
    return Model(
        name="",
        architecture=c.text("model_type", default=""),
        d_model=width,
        vocab=0,
        layers=kinds,
        layer_order=order,
        tied=True,
        embedding_extra_params=table,
        has_head=False,
        projections=(linear("feature_projection", channels, width), *maps),
        convs=convs,
        other_params=loose + more,
    )


def _thinning(c: Fields) -> tuple[tuple[Conv, ...], int]:
    """(convolutions over samples, channels of the last).

    Raises:
        InputError: widths, taps and steps are not as many.
    """
    widths = c.counts("conv_dim", least=1) or [512] * 7
    taps = c.counts("conv_kernel", least=1) or [10, 3, 3, 3, 3, 2, 2]
    steps = c.counts("conv_stride", least=1) or [5, 2, 2, 2, 2, 2, 2]
    if not len(widths) == len(taps) == len(steps):
        raise c.conflict(
            f"conv_dim has {len(widths)}, conv_kernel {len(taps)} and conv_stride {len(steps)}"
            " numbers; expected as many"
        )
    bias = c.flag("conv_bias", default=False)
    every = c.text("feat_extract_norm", default="group", choices=("group", "layer")) == "layer"
    convs, inputs = [], 1
    for i, (outputs, kernel) in enumerate(zip(widths, taps, strict=True)):
        extra = outputs * bias + 2 * outputs * (every or i == 0)
        name, rows = "subsampling" if i else "stem", prod(steps[i + 1 :])
        convs.append(Conv(name, inputs, outputs, kernel, bias_params=extra, per_token=rows))
        inputs = outputs
    return tuple(convs), inputs


def _head(
    c: Fields, width: int, channels: int, quantised: bool
) -> tuple[tuple[Projection, ...], int]:
    """(maps on top, parameters that multiply nothing)."""
    kind = built_as(c)
    mix = c.flag("use_weighted_layer_sum", default=False) * (n_layers(c) + 1)
    if quantised:
        groups = c.count("num_codevector_groups", default=2)
        entries = groups * c.count("num_codevectors_per_group", default=320)
        code, shared = (c.count(f"{key}codevector_dim", default=256) for key in ("", "proj_"))
        maps = (
            linear("quantizer.weight_proj", channels, entries),
            linear("project_hid", width, shared),
            linear("project_q", code, shared),
        )
        return maps, entries * (code // groups)
    if kind == "ForCTC":
        return (linear("lm_head", width, c.count("vocab_size", default=32)),), 0
    if kind == "ForSequenceClassification":
        inner = c.count("classifier_proj_size", default=256)
        once = linear("classifier", inner, labels(c), once=True)
        return (linear("projector", width, inner), once), mix
    if kind == "ForAudioFrameClassification":
        return (linear("classifier", width, labels(c)),), mix
    if kind in ("", "Model"):
        return (), 0
    raise c.wrong("architectures", "ForCTC, ForPreTraining, ForSequenceClassification or the model")
