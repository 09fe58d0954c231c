"""The shipped model that a described architecture is, so that it goes by its known name."""

from __future__ import annotations

from chipshift.models.model import Model
from chipshift.models.preset import FOLDER, names, preset


def twin(model: Model, vocab: int | None) -> Model | None:
    """The first shipped model with the same layers and head, and this vocabulary if given.

    Only configs whose text holds the width are built: there are hundreds, and each takes a
    millisecond.
    """
    width = str(model.d_model)
    for name in names():
        if width not in (FOLDER / f"{name}.json").read_text(encoding="utf-8"):
            continue
        other = preset(name)
        if (
            other.d_model == model.d_model
            and other.layers == model.layers
            and other.layer_order == model.layer_order
            and other.tied == model.tied
            and vocab in (None, other.vocab)
        ):
            return other
    return None
