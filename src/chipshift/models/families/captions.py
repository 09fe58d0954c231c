"""An encoder of images before a decoder of text, each by a config of its own: TrOCR, Donut.

Shapes and defaults as transformers 5.24 builds VisionEncoderDecoderModel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from chipshift.models.families import encoder, gpt, seq2seq, vision, vision_kin
from chipshift.models.families.blocks import linear
from chipshift.models.fields import Fields
from chipshift.models.model import Model, Tower

EYES: dict[str, Callable[[Fields], Model]] = {
    "beit": vision_kin.beit,
    "deit": vision_kin.deit,
    "dinov2": vision.dinov2,
    "donut-swin": vision_kin.donut_swin,
    "swin": vision_kin.swin,
    "vit": vision.vit,
}
TEXTS: dict[str, Callable[[Fields], Model]] = {
    "bert": encoder.bert,
    "gpt2": gpt.gpt2,
    "mbart": seq2seq.mbart_decoder,
    "roberta": encoder.roberta,
    "trocr": seq2seq.trocr,
    "xlm-roberta": encoder.roberta,
}


def vision_encoder_decoder(c: Fields) -> Model:
    """The decoder is the model, the encoder a tower; a map between where their widths differ."""
    e, d = c.part("encoder"), c.part("decoder")
    eyes, texts = tuple(EYES), tuple(TEXTS)
    eye = EYES[e.text("model_type", choices=eyes)](e.replaced(architectures=["Model"]))
    own = {"is_decoder": True, "add_cross_attention": True, "architectures": ["ForCausalLM"]}
    text = TEXTS[d.text("model_type", choices=texts)](d.replaced(**own))
    tower = Tower(
        "encoder",
        eye.d_model,
        eye.layers,
        eye.layer_order,
        tokens=eye.tokens,
        convs=eye.convs,
        projections=eye.projections,
        embedding_params=eye.embedding_extra_params,
        other_params=eye.other_params,
    )
    given = d.maybe("cross_attention_hidden_size")
    if eye.d_model != text.d_model and given is None:
        joint = linear("enc_to_dec_proj", eye.d_model, text.d_model)
        tower = replace(tower, projections=(*tower.projections, joint))
    architecture = c.text("model_type", default="vision-encoder-decoder")
    return replace(text, architecture=architecture, towers=(*eye.towers, tower))
