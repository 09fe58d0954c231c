"""What of a model the estimate times, and what it leaves out."""

from __future__ import annotations

from chipshift.errors import InputError
from chipshift.models.count import conv_params, projection_params, tower_params
from chipshift.models.model import Model


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
