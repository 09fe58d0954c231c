"""The shape of a rule's text and the reader of the texts, kept as one TOML file a topic.

A text's dotted names of real interfaces stand in lists beside it, so that a test can import the
JAX ones and look the TorchTPU, torch_xla and Neuron ones up in the committed manifest.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources

from chipshift.audit.finding import TOPICS, Severity, Target, Topic


@dataclass(frozen=True, slots=True)
class Names:
    """Dotted names that a rule's replacement texts use, by the package they live in.

    ``jax`` covers jax, optax, tokamax, grain, orbax, flax and qwix; ``neuron`` names are checked
    against their documentation only.
    """

    jax: tuple[str, ...] = ()
    torch: tuple[str, ...] = ()
    torchtpu: tuple[str, ...] = ()
    torch_xla: tuple[str, ...] = ()
    neuron: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """Where a statement comes from: who published it, which page, and the date it was seen."""

    publisher: str
    page: str
    date: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One hazard: ``summary`` what is looked for and why, then the way out for each target.

    ``severity`` is the catalogue's inside the training step. ``before`` and ``after`` are short
    code. ``cost`` is the formula to print where no job is given. ``not_a_finding`` lists
    look-alikes that are fine.
    """

    slug: str
    topic: Topic
    severity: Severity
    title: str
    summary: str
    on_device: str
    jax: str
    torchtpu: str
    torch_xla: str
    trainium: str
    before: str
    after: str
    cost: str
    not_a_finding: str
    applies_to: tuple[Target, ...]
    names: Names
    source: tuple[Source, ...]


def _names(table: dict[str, list[str]]) -> Names:
    return Names(**{package: tuple(names) for package, names in table.items()})


@functools.cache
def rules() -> dict[str, Rule]:
    """Every rule by its slug, in the order of the catalogue."""
    found: dict[str, Rule] = {}
    for topic in TOPICS:
        text = resources.files("chipshift.audit.rules").joinpath(f"{topic}.toml").read_text("utf-8")
        for slug, row in tomllib.loads(text).items():
            row = dict(row)
            row["names"] = _names(row.get("names", {}))
            row["source"] = tuple(Source(**source) for source in row.get("source", []))
            row["applies_to"] = tuple(row["applies_to"])
            found[slug] = Rule(slug=slug, topic=topic, **row)
    return found
