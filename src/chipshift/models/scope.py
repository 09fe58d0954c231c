"""What of a model the estimate times, and what it leaves out."""

from __future__ import annotations

from dataclasses import dataclass

from chipshift.errors import InputError
from chipshift.models.count import conv_params, layer_params, projection_params, tower_params
from chipshift.models.model import Model
from chipshift.models.ops import Cut, end_ops, flops_of, forward_flops_per_token, layer_ops
from chipshift.worked import plain


def left_out(model: Model) -> list[tuple[str, int]]:
    """Parts that no op of a token stands for, and their parameters.

    They are counted in ``params`` and take no time in an estimate: how often a tower runs depends
    on how many images or source tokens a batch holds, which a job's token count does not say.
    """
    parts = [(f"{tower.name} tower", tower_params(tower)) for tower in model.towers]
    parts.append(("convolutions", conv_params(model.convs)))
    once = tuple(p for p in model.projections if p.once)
    once += tuple(
        p for layer, n in model.layers for p in layer.projections if p.once for _ in range(n)
    )
    parts.append(("maps applied once an item", projection_params(once)))
    return [(name, size) for name, size in parts if size]


@dataclass(frozen=True)
class FurtherTokens:
    """Blocks that a run may train to predict tokens after the next: ``Model.mtp_layers``.

    Attributes:
        blocks: how many.
        params: of one, less the embedding and the head that it shares.
        share: FLOPs of all of them over the rest of the model's.
    """

    blocks: int
    params: int
    share: float


def further_tokens(model: Model, seq_len: float) -> FurtherTokens | None:
    """What the blocks that predict further tokens would add, which nothing here counts.

    Each is the top layer again behind one map of two inputs and two norms, under a norm and the
    shared head (DeepSeek-V3 report 2024, section 2.2).
    """
    if not model.mtp_layers or not model.layer_order:
        return None
    layer, width = model.layers[model.layer_order[-1]][0], model.d_model
    size = layer_params(layer, width).total + 2 * width * width + 3 * width
    cut = Cut(tokens=1.0, seq_len=seq_len)
    ops = layer_ops(layer, width, cut) + end_ops(model, cut)[1]
    one = float(plain(flops_of(ops))) + 2 * 2 * width * width
    whole = float(plain(forward_flops_per_token(model, seq_len)))
    return FurtherTokens(model.mtp_layers, size, model.mtp_layers * one / whole)


def refuse_untimed(model: Model) -> None:
    """Refuse a model whose main work no op stands for.

    Raises:
        InputError: it has no transformer layers or no head over a vocabulary.
    """
    if model.layers and model.has_head:
        return
    lacks = "no transformer layers" if not model.layers else "no head over a vocabulary"
    raise InputError(
        f"{model.name} ({model.architecture}) has {lacks}: its parameters are counted, but its"
        " time is not estimated; expected a language model"
    )
