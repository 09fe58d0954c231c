"""What a loss asks of a step besides one forward and one backward pass a sequence.

Sources: Rafailov et al. 2023 (DPO: a pair's two answers under the policy and under a frozen
reference); Azar et al. 2023 (IPO: another loss on the same four log-probabilities); Ethayarajh et
al. 2024 (KTO: answers one by one, and a mismatched one for each to estimate a KL divergence); Jung
et al. 2024 (BCO: answers one by one, without it, as an unpaired APO has them); Hong
et al. 2024 and Meng et al. 2024 (ORPO, SimPO: pairs without a reference); Ouyang et al. 2022 (a
reward model: pairs under one scalar head). Which passes run without gradient, and how often:
Hugging Face, TRL, dpo_trainer.py, kto_trainer.py, bco_trainer.py, orpo_trainer.py, cpo_trainer.py
and reward_trainer.py, 2026.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from chipshift.models.model import Model


@dataclass(frozen=True)
class Loss:
    """The passes of a loss.

    Attributes:
        answers: sequences of one example that are trained on together; a microbatch holds whole
            examples.
        scored: forward passes of the policy without gradient, for each sequence trained on.
        referred: forward passes of the reference, likewise, where it runs at all.
        scalar: a head of one output stands in place of the vocabulary's.
    """

    answers: int = 1
    scored: int = 0
    referred: int = 0
    scalar: bool = False


LM = "lm"
LOSSES = {
    LM: Loss(),
    "dpo": Loss(answers=2, referred=1),
    "kto": Loss(scored=1, referred=2),
    "bco": Loss(referred=1),
    "orpo": Loss(answers=2),
    "simpo": Loss(answers=2),
    "reward": Loss(answers=2, scalar=True),
}
"""By name; other losses over the same log-probabilities are the same work (``ALIKE``)."""

ALIKE = {
    **dict.fromkeys(("ipo", "hinge", "rso", "sigmoid", "robust", "apo_zero", "apo_down"), "dpo"),
    **dict.fromkeys(("exo_pair", "nca_pair", "bco_pair", "sppo_hard", "aot", "aot_pair"), "dpo"),
    **dict.fromkeys(("aot_unpaired", "discopop", "kto_pair", "sigmoid_norm"), "dpo"),
    "apo_zero_unpaired": "bco",
    "cpo": "simpo",
    "rm": "reward",
    "reward_modeling": "reward",
}
"""Names of losses and of stages, and the one of ours whose passes they run."""

GENERATES = ("ppo", "grpo", "rloo", "online_dpo", "xpo", "nash_md", "gdpo", "dr_grpo")
"""Training that samples its own sequences: that part is not modelled."""

NO_REFERENCE = "none"
BASE = "base"
"""A reference that is the policy with its adapters off: no weights of its own."""
HOST = "host"
"""A reference whose weights wait in the host's memory and replace the policy's for its passes."""


def loss(name: str) -> Loss:
    """The passes of a loss by the name of a job's ``loss``."""
    return LOSSES[name]


def reference_forwards(name: str, reference: str) -> int:
    """Forward passes of the reference for each sequence trained on."""
    return 0 if reference == NO_REFERENCE else LOSSES[name].referred


def with_scalar_head(model: Model) -> Model:
    """The model with one output in place of the vocabulary's, untied, without bias.

    As Transformers' ``ForSequenceClassification`` with one label has it (``score``).
    """
    return replace(model, tied=False, head_outputs=1, head_bias_params=0)
