"""Newer and rarer decoders against the reference: every parameter, every linear map's FLOPs."""

from typing import Any

import pytest

from chipshift.errors import InputError
from chipshift.models.count import params, params_active, params_embedding
from chipshift.models.hf import read_config
from chipshift.models.items import item_flops
from chipshift.models.ops import Cut, end_ops, forward_flops_per_token, layer_ops

from .newer_configs import CROSSED, DEEPSEEK_4, EXAONE_EYE, KIMI_LINEAR, SEEING, TEXTS, TILES
from .reference import built_config, count
from .reference_configs import small
from .test_item_flops import counted as item_counted
from .test_reference_flops import TOKENS, counted, seeing_all

reference = [
    pytest.mark.reference,
    # raised by the reference's own imports and builders, not by anything here
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def marked(test: Any) -> Any:
    """The test under the marks of those that build the reference."""
    for mark in reference:
        test = mark(test)
    return test


ALL = [*((name, c, "AutoModelForCausalLM") for name, c in TEXTS), *SEEING]


@marked
@pytest.mark.parametrize(("config", "auto"), [one[1:] for one in ALL], ids=[one[0] for one in ALL])
def test_every_parameter(config: dict[str, Any], auto: str) -> None:
    expected, model = count(config, auto), read_config(config)
    assert (params(model), params_embedding(model)) == (expected.total, expected.embedding)
    assert params_active(model) == expected.active


@marked
@pytest.mark.parametrize("config", [c for _, c in TEXTS], ids=[name for name, _ in TEXTS])
def test_every_linear_map(config: dict[str, Any]) -> None:
    # forward: what sparse attention's scorers multiply is trained apart, without a backward pass
    model, cut = read_config(config), Cut(tokens=float(TOKENS), seq_len=float(TOKENS))
    ops = [(op, n) for ly, n in model.layers for op in layer_ops(ly, model.d_model, cut)]
    ops += [(op, 1) for op in end_ops(model, cut)[1]]
    maps = sum(op.flops * n for op, n in ops if op.name != "attention")
    for layer, n in model.layers:
        a = layer.attention
        if a is not None and a.o_rank is not None:  # the reference batches it by group
            maps -= 2 * TOKENS * a.o_rank * a.heads * a.v_head_dim * n
    found = counted(config, backward=False)
    assert maps == sum(n for op, n in found.items() if "mm" in op and op != "aten.bmm")


SLIDE = [(name, c) for name, c in TEXTS if c["model_type"] in ("gemma4_text", "mimo_v2_flash")]
SPARSE = ("deepseek_v4", "kimi_linear", "minimax_m3_vl_text")
PLAIN = [(name, c) for name, c in TEXTS if c["model_type"] not in SPARSE]
WHOLE = [*PLAIN, *((name, c) for name, c in TEXTS if name == "minimax_m3_vl_text")]


@marked
@pytest.mark.parametrize("config", [c for _, c in WHOLE], ids=[name for name, _ in WHOLE])
def test_forward_and_backward_with_attention(config: dict[str, Any]) -> None:
    forward = TOKENS * float(forward_flops_per_token(seeing_all(read_config(config)), TOKENS))
    found = sum(counted(config, backward=True).values())
    assert 3 * forward == pytest.approx(found, rel=5e-3)


@marked
@pytest.mark.parametrize("config", [c for _, c in SLIDE], ids=[name for name, _ in SLIDE])
def test_the_same_layers_slide(config: dict[str, Any]) -> None:
    built, model = built_config(config), read_config(config)
    windows = [layer.attention and layer.attention.window for layer, _ in model.layers]
    found = [windows[i] for i in model.layer_order]
    kinds = built.layer_types
    expected = [built.sliding_window if kind == "sliding_attention" else None for kind in kinds]
    assert found == expected


@marked
def test_llama_with_an_image_of_one_tile() -> None:
    import torch
    import transformers

    eye = {**TILES, "image_size": 280, "max_num_tiles": 1, "supported_aspect_ratios": [[1, 1]]}
    config = {"model_type": "mllama", "text_config": CROSSED, "vision_config": eye}
    built = built_config({**config, "image_token_index": 900})
    built._attn_implementation = "eager"
    module = transformers.MllamaForConditionalGeneration(built)
    inputs = {
        "input_ids": torch.randint(5, 900, (1, TOKENS)),
        "pixel_values": torch.randn(1, 1, 1, 3, 280, 280),
        "aspect_ratio_ids": torch.ones(1, 1, dtype=torch.long),
        "aspect_ratio_mask": torch.ones(1, 1, 1, dtype=torch.long),
        "cross_attention_mask": torch.ones(1, TOKENS, 1, 1, dtype=torch.long),
    }
    model = seeing_all(read_config(config))
    # 1,601 patches are filled up to 1,608, which attend and are dropped before the text sees them
    forward, _ = item_counted(module, inputs)
    assert item_flops(model, {"tokens": TOKENS}) == pytest.approx(forward, rel=5e-3)


def test_a_query_sees_compressed_keys_beside_its_window() -> None:
    # of 64 tokens: a window of 8 is 8 − 8²/128 = 7.5 keys; one key for each 4 tokens is 16 of them,
    # of which at most 8: 8 − 8²/32 = 6; one for each 16 is 4, half of them on average
    keys = {**DEEPSEEK_4, "num_hidden_layers": 3, "compress_ratios": [0, 4, 128]}
    rates = {"compress_rate_csa": 4, "compress_rate_hca": 16}
    model = read_config(small("deepseek_v4", **keys, **rates))
    cut = Cut(tokens=1.0, seq_len=64.0)
    ops = [
        op
        for i in model.layer_order
        for op in layer_ops(model.layers[i][0], model.d_model, cut)
        if op.name == "attention"
    ]
    assert [float(op.keys) for op in ops] == [7.5, 7.5 + 6, 7.5 + 2]
    assert [float(op.kv_len) for op in ops] == [8, 8 + 8, 8 + 4]
    # 6 heads of 32 query those keys, each with its value
    assert [float(op.flops) for op in ops] == [4 * 6 * 32 * float(op.keys) for op in ops]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            small("deepseek_v4", **DEEPSEEK_4, compress_ratios=[0, 4, 8, 4, 4]),
            "compress_ratios is .* expected 5 numbers out of 0, 4 and 128",
        ),
        (
            small("hunyuan_v1_moe", num_experts=6, moe_topk=[1, 1, 2, 2, 2]),
            "moe_topk is .* expected one number for all layers",
        ),
        (small("deepseek_v4", **{**DEEPSEEK_4, "o_groups": 5}), "o_groups is 5; .* a divisor of"),
        (
            small(
                "kimi_linear",
                **KIMI_LINEAR,
                linear_attn_config={"full_attn_layers": [1], "kda_layers": [2, 3]},
            ),
            r"linear_attn_config.full_attn_layers is \[1\]; expected .* from 1 to 5 once",
        ),
        (
            {
                "model_type": "exaone4_5",
                "text_config": small("exaone4"),
                "vision_config": {**EXAONE_EYE, "num_key_value_heads": 3},
            },
            "vision_config.num_key_value_heads is 3; expected a divisor of num_heads",
        ),
        (
            {
                "model_type": "step3p7",
                "text_config": small("step3p5", moe_layers_enum="four"),
                "vision_config": {},
            },
            "text_config.moe_layers_enum is 'four'; expected numbers of layers",
        ),
    ],
)
def test_what_cannot_be_read(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_config(config)


def test_hunyuan_may_list_one_number_for_each_layer() -> None:
    keys = small("hunyuan_v1_moe", num_experts=6, moe_topk=2, head_dim=16)
    listed = read_config({**keys, "moe_topk": [2] * 5})
    assert params_active(listed) == params_active(read_config(keys))


def test_mimo_is_qwen_with_blocks_that_predict_further() -> None:
    mimo = read_config(small("mimo", num_nextn_predict_layers=1))
    assert params(mimo) == params(read_config(small("qwen2")))
    assert mimo.mtp_layers == 1


def bmm_flops(config: dict[str, Any]) -> int:
    """What the counter sees of matmuls between activations in a forward pass."""
    return counted(config, backward=False)["aten.bmm"]


@marked
def test_every_matmul_of_activations_in_deepseek_4() -> None:
    # 32 tokens through five layers of 6 heads of 32: two matmuls on all 32 keys, in the one layer
    # of keys of 4 tokens on 8 more; the others' keys of 128 tokens are not full once
    config = small("deepseek_v4", **DEEPSEEK_4)
    attention = 2 * 2 * 6 * 32 * 32 * (5 * 32 + 8)
    back = 5 * 2 * 32 * 24 * 6 * 32  # the way back by groups, which counts as a linear map here
    # not counted here: 4 heads of 16 score those 8 keys; each half of a layer mixes three streams
    scores, mixing = 2 * 32 * 4 * 16 * 8, 5 * 2 * 2 * 32 * 3 * 3 * 96
    assert bmm_flops(config) == attention + back + scores + mixing
    found = counted(config, backward=False)
    ours = TOKENS * float(forward_flops_per_token(seeing_all(read_config(config)), TOKENS))
    assert ours == pytest.approx(sum(found.values()) - scores - mixing, rel=5e-3)


@marked
def test_every_matmul_of_activations_in_minimax_m3() -> None:
    config = next(c for name, c in TEXTS if name == "minimax_m3_vl_text, picked blocks")
    found = counted(config, backward=False)
    scores = 4 * 2 * 32 * 32 * 2 * 24  # not counted here: in 4 layers 2 heads of 24 score all keys
    ours = TOKENS * float(forward_flops_per_token(seeing_all(read_config(config)), TOKENS))
    assert ours == sum(found.values()) - scores


@marked
def test_every_matmul_of_activations_in_kimi_linear() -> None:
    # one layer of latent attention: 6 heads, keys of 24, values of 20. Of four layers of the delta
    # rule each head (3, a state of 16 × 16) takes a chunk of 64 tokens by three products within it
    # and three with the state, of which the recurrence here counts two: written, read for output
    config = next(c for name, c in TEXTS if name == "kimi_linear")
    attention = 2 * 6 * (24 + 20) * 32 * 32
    chunk = 3 * 2 * 64 * 64 * 16 + 3 * 2 * 64 * 16 * 16
    assert bmm_flops(config) == attention + 4 * 3 * chunk
    model, cut = read_config(config), Cut(tokens=float(TOKENS), seq_len=float(TOKENS))
    ops = [
        (op, n) for ly, n in seeing_all(model).layers for op in layer_ops(ly, model.d_model, cut)
    ]
    counts = sum(float(op.flops) * n for op, n in ops if op.name == "attention")
    assert counts == attention + 4 * 3 * 2 * 2 * 32 * 16 * 16
