"""The head that a config's class names, of language models: classes in place of words, or none.

Encoders, towers and encoders of sound know their own classes (``families/``).
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.models.families.blocks import built_as, labels
from chipshift.models.fields import Default, Fields
from chipshift.models.model import Model

WORDS = (
    "ForCausalLM",
    "LMHeadModel",
    "ForConditionalGeneration",
    "ForMaskedLM",
    "ForPreTraining",
    "ForImageTextToText",
)
"""What ends the names of classes whose head is over a vocabulary."""


def headed(model: Model, c: Fields, decoder: bool) -> Model:
    """The model with the head of its class; where that is another's, what is counted is said.

    Args:
        decoder: it is a decoder by itself, whose classes have one map on top as transformers 5.24
            builds them (``score`` without a bias, the others with one).
    """
    kind = built_as(c)
    if not model.has_head or not kind or kind in WORDS:
        return model
    if decoder and kind == "ForSequenceClassification":
        return replace(model, tied=False, head_outputs=labels(c), head_bias_params=0)
    if decoder and kind in ("ForTokenClassification", "ForQuestionAnswering"):
        outputs = labels(c) if kind == "ForTokenClassification" else 2
        return replace(model, tied=False, head_outputs=outputs, head_bias_params=outputs)
    name = c.values["architectures"][0]
    if kind == "Model" and model.tied and not model.head_bias_params:
        return model
    said = f"{name}: counted with a language model's head"
    c.defaults.append(Default("architectures", said))
    return model
