"""Matmul and attention FLOPs equal what PyTorch's counter counts while the reference runs.

The counter sees attention over all pairs of positions, so it is compared with the same model
without causality and windows: the convention (causal counted half) is worked in the test below.
"""

from dataclasses import replace
from typing import Any

import pytest

from chipshift.models.hf import read_config
from chipshift.models.model import Attention, Model
from chipshift.models.ops import Cut, forward_flops_per_token, layer_ops, scan_flops

from .reference import built_config
from .reference_configs import DECODERS, HYBRIDS

pytestmark = [
    pytest.mark.reference,
    # raised by the reference's own imports and builders, not by anything here
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

TOKENS = 32
# Llama 4's reference runs every expert on every token and masks the rest.
COUNTED = [(name, c) for name, c in DECODERS if c["model_type"] != "llama4_text"]
# Gemma 3n mixes its four streams by small matmuls of activations, which are not counted here.
LINEAR = [(name, c) for name, c in HYBRIDS if c["model_type"] != "gemma3n_text"]


def counted(config: dict[str, Any], backward: bool) -> dict[str, int]:
    """FLOPs by kind of op of one sequence of ``TOKENS``, forward or forward and backward."""
    import torch
    import transformers
    from torch.utils.flop_counter import FlopCounterMode

    transformers.logging.set_verbosity_error()
    built = built_config(config)
    built._attn_implementation = "eager"  # so that attention is matmuls, and counted as such
    built._experts_implementation = "eager"  # so that only the experts visited run
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(built)
    tokens = torch.randint(5, 900, (1, TOKENS))
    with FlopCounterMode(display=False) as counter:
        logits = model(tokens, use_cache=False).logits
        if backward:
            logits.sum().backward()
    return {str(op): n for op, n in counter.get_flop_counts()["Global"].items()}


def seeing_all(model: Model) -> Model:
    """The model with attention over all pairs of positions, as eager attention computes it."""

    def whole(a: Attention | None) -> Attention | None:
        return None if a is None else replace(a, causal=False, window=None)

    layers = tuple((replace(ly, attention=whole(ly.attention)), n) for ly, n in model.layers)
    return replace(model, layers=layers)


@pytest.mark.parametrize("config", [c for _, c in COUNTED], ids=[name for name, _ in COUNTED])
def test_forward_and_backward(config: dict[str, Any]) -> None:
    forward = TOKENS * float(forward_flops_per_token(seeing_all(read_config(config)), TOKENS))
    found = sum(counted(config, backward=True).values())
    assert 3 * forward == pytest.approx(found, rel=5e-3)


@pytest.mark.parametrize("config", [c for _, c in LINEAR], ids=[name for name, _ in LINEAR])
def test_linear_maps_of_recurrent_models(config: dict[str, Any]) -> None:
    # how a scan is cut into matmuls is the kernel's choice; its linear maps are not
    model = read_config(config)
    cut = Cut(tokens=float(TOKENS), seq_len=float(TOKENS))
    ops = [(op, n) for ly, n in model.layers for op in layer_ops(ly, model.d_model, cut)]
    maps = sum(op.flops * n for op, n in ops if op.name != "attention")
    maps += 2 * TOKENS * model.vocab * model.d_model  # the LM head
    found = counted(config, backward=False)
    linear = sum(n for op, n in found.items() if "mm" in op and op != "aten.bmm")
    assert maps == pytest.approx(linear, rel=5e-3)


def test_causal_attention_is_counted_half() -> None:
    # 4 heads of 16 over 64 positions: 2 matmuls × 2 FLOP × 64² × 64 channels, halved when causal
    keys = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "vocab_size": 10}
    model = read_config({**keys, "num_attention_heads": 4, "intermediate_size": 128})
    whole = seeing_all(model)
    half = forward_flops_per_token(whole, 64) - forward_flops_per_token(model, 64)
    assert 64 * half == 2 * 2 * 64 * 64 * 64 / 2


def test_a_scan_is_its_recurrence() -> None:
    # 3 tokens, 2 heads with a state of 4 × 5: 40 multiply-adds to write it and 40 to read it
    assert scan_flops(3, 2, 4, 5) == 3 * 2 * (40 + 40)
