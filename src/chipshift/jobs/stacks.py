"""Frameworks that the estimates know, by the names that a job's ``stack`` has."""

from __future__ import annotations

import re

from chipshift.errors import InputError, nearest

STACKS = (
    "megatron", "torchtitan", "nanotron", "llm-foundry", "automodel", "fms-fsdp", "deepspeed",
    "maxtext", "paxml", "levanter", "torch_xla", "torchax", "torchtpu", "neuron", "jax", "other",
)  # fmt: skip
"""Frameworks with a table of constants in estimate/stacks."""

_RELEASE = re.compile(r"\d{1,4}(\.\d{1,4}){0,3}")


def checked_stack(text: str, said: str) -> str:
    """A framework, and ``@`` a release of it.

    Raises:
        InputError: neither of ``STACKS``, or no release.
    """
    base, at, release = text.partition("@")
    if base.lower() not in STACKS:
        raise InputError(
            f"{said} is '{text}'; expected one of {', '.join(STACKS)}, and @YY.MM for a release "
            f"of it{nearest(base.lower(), STACKS)}"
        )
    if at and not _RELEASE.fullmatch(release):
        raise InputError(
            f"{said} is '{text}'; expected a release such as {base.lower()}@26.04 after the @"
        )
    return base.lower() + at + release
