"""FLOPs of a preference step equal what PyTorch's counter counts while it runs as TRL runs it.

The counter sees attention over all pairs of positions, so the model is compared without causality
(tests/models/test_reference_flops.py works the convention).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chipshift.estimate import estimate
from chipshift.jobs.loss import LOSSES, with_scalar_head
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from chipshift.models.hf import read_config
from tests.estimate.conftest import job_of
from tests.models.reference import built_config
from tests.models.test_reference_flops import seeing_all

pytestmark = [
    pytest.mark.reference,
    # raised by the reference's own imports and builders, not by anything here
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 160, "vocab_size": 1000,
}  # fmt: skip
TOKENS, PAIRS = 32, 2


@pytest.fixture
def fake() -> Iterator[None]:
    """Tensors without values."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


def log_probabilities(model: Any, tokens: Any) -> Any:
    """Of each sequence, the sum over its tokens."""
    logits = model(tokens, use_cache=False).logits[:, :-1]
    return logits.log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1).sum(-1)


def dpo(policy: Any, reference: Any, tokens: Any, torch: Any) -> Any:
    """Chosen and rejected answers side by side, under the policy and under the reference."""
    chosen, rejected = log_probabilities(policy, tokens).chunk(2)
    with torch.no_grad():
        fixed = log_probabilities(reference, tokens).chunk(2)
    return -((chosen - rejected) - (fixed[0] - fixed[1])).sigmoid().log().mean()


def kto(policy: Any, reference: Any, tokens: Any, torch: Any) -> Any:
    """Answers under both models, and mismatched ones under both without gradient."""
    own = log_probabilities(policy, tokens)
    with torch.no_grad():
        fixed = log_probabilities(reference, tokens)
        divergence = log_probabilities(policy, tokens) - log_probabilities(reference, tokens)
    return (1 - (own - fixed - divergence.mean()).sigmoid()).mean()


def orpo(policy: Any, reference: Any, tokens: Any, torch: Any) -> Any:
    """The odds of the chosen answer over the rejected one's, and its likelihood."""
    chosen, rejected = (log_probabilities(policy, tokens) / TOKENS).chunk(2)
    return (-chosen - (chosen - rejected).sigmoid().log()).mean()


def reward(policy: Any, reference: Any, tokens: Any, torch: Any) -> Any:
    """A scalar a token, of which the last one's is the answer's."""
    score = torch.nn.Linear(64, 1, bias=False)
    chosen, rejected = score(policy.model(tokens).last_hidden_state)[:, -1].chunk(2)
    return -(chosen - rejected).sigmoid().log().mean()


@pytest.mark.parametrize(
    ("loss", "step", "reference"),
    [
        ("dpo", dpo, "fp32"),
        ("kto", kto, "fp32"),
        ("orpo", orpo, "none"),
        ("reward", reward, "none"),
    ],
)
def test_a_step_counts_as_pytorch_does(fake: None, loss: str, step: Any, reference: str) -> None:
    import torch
    import transformers
    from torch.utils.flop_counter import FlopCounterMode

    transformers.logging.set_verbosity_error()
    built = built_config(CONFIG)
    built._attn_implementation = "eager"  # so that attention is matmuls, and counted as such
    policy = transformers.AutoModelForCausalLM.from_config(built)
    frozen = transformers.AutoModelForCausalLM.from_config(built)
    rows = PAIRS * LOSSES[loss].answers
    tokens = torch.randint(5, 900, (rows, TOKENS))
    with FlopCounterMode(display=False) as counter:
        step(policy, frozen, tokens, torch).backward()

    model = seeing_all(read_config(CONFIG))
    made = job_of(
        "llama-3.1-8b", rows, TOKENS, loss=loss, reference=reference,
        model=with_scalar_head(model) if LOSSES[loss].scalar else model,
    )  # fmt: skip
    one = estimate(made, Plan(microbatch=float(rows)), parse_machine("h100*1"), "other")
    ours = float(one.model_flops_per_token) * rows * TOKENS
    assert ours == pytest.approx(counter.get_total_flops(), rel=5e-3)
