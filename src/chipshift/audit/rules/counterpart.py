"""What takes the place of a GPU library, by the library's name."""

from __future__ import annotations

import functools
import re
import tomllib
from importlib import resources

from chipshift.audit.finding import Target

WORDS: dict[Target, tuple[str, ...]] = {
    "jax": ("jax", "none"),
    "torchax": ("jax", "none"),
    "torchtpu": ("torchtpu", "torch", "none"),
    "torch_xla": ("torch_xla", "torch", "none"),
    "neuron": ("trainium", "torch", "none"),
}
"""The keys of a counterpart's table that serve a target, the closest first."""


@functools.cache
def counterparts() -> dict[str, dict[str, str]]:
    """By package, the texts of its counterpart."""
    file = resources.files("chipshift.audit.rules").joinpath("counterparts.toml")
    found: dict[str, dict[str, str]] = {}
    for row in tomllib.loads(file.read_text("utf-8"))["counterpart"]:
        texts = {key: text for key, text in row.items() if key != "packages"}
        found |= dict.fromkeys(row["packages"], texts)
    return found


def counterpart(what: str, target: Target) -> str:
    """The counterpart of the first known package named in ``what``; "" for none of them."""
    known = {package.lower(): texts for package, texts in counterparts().items()}
    for word in re.findall(r"[a-z]\w*", what.lower().replace("-", "_")):
        texts = known.get(word) or known.get(re.sub(r"_?(cuda|cu)\d*x?$", "", word))
        if texts is not None:
            return next((texts[key] for key in WORDS[target] if key in texts), "")
    return ""
