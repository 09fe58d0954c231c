"""Keys that no reader knows: whether one is a known key misspelt, or bears on the numbers."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

MOST_KEYS = 20_000
"""Keys that are compared with known ones for a slip; no file written by hand has a tenth of it."""

BEARING = re.compile(
    r"parallel|shard|recompute|remat(?!ch)|checkpointing|fp8|fp4|quanti[sz]|precision|dtype|offload|"
    r"muon|galore|zero_stage|micro_?batch|batch_size|sequence_len|seq_len|max_length|vocab_size|"
    r"expert|lora|freeze|frozen|num_layers|n_layers?$|hidden_(?:size|dim)|num_heads|n_heads?$|"
    r"ulysses|ring_attn|(?:^|[_.])(?:tp|pp|cp|sp|ep)_(?:size|degree)|head_type|sparse|prun|distill|_kt$|memory_efficient|accumulat|"
    r"optimizer$|outer_(?:opt|sync|step)|diloco|shared_attn|attn_sharing|head_sharing"
)
"""Words in the name of a key that bears on time or memory, whatever framework made it up."""

PASSING = re.compile(
    r"eval|valid|val_|test|infer|generat|sampl|rollout|vllm|save|saving|log|data|tokeniz|export|"
    r"init|_lr|lr_|learning|reward|aux_loss|dropout|alpha|path|dir$|name$|checkpoints?\."
)
"""Words of keys that bear on evaluation, data, checkpoints and the like instead."""

BASES = ("_base_", "base_config", "_base_config", "inherit_from")
"""Keys that name a file which a file is laid over."""

SWITCH = re.compile(r"(?:^|\.)(?:use|enable)_\w+$")
"""A switch of a fork's own (``use_mfsgd``): what it turns on is not known, and so not harmless."""

HARMLESS = re.compile(
    r"wandb|tensorboard|swanlab|comet|mlflow|tracker|report|progress|tqdm|colou?r|rich|print|debug|"
    r"profil|snapshot|trace|monitor|metric|timer|auth|token|safetensors|seed|cache|resume|hub|"
    r"template|prompt|shuffle|stream|signal|affinity|fast_|slow_|legacy|numa|nccl|heartbeat|mock|"
    r"storage|keep_last|epoch|master_|rank$|port$|host|addr|dist_url|world_size|nproc|nnodes|decay"
)
"""Words of switches that turn on reports, data or a start, in any framework."""


def bears(key: str, value: Any) -> bool:
    """Whether an unknown key's name says that it bears on time or memory, and it is on.

    A fork's own ``use_muon`` or ``sequence_parallel_size`` must not pass for a key of logging.
    """
    name = key.replace("-", "_")
    if name in BASES and re.search(r"\.(?:ya?ml|json|py)\b", str(value)[:1_000]):
        return True
    if _off(value) or PASSING.search(name):
        return False
    switch = str(value).lower() == "true" and SWITCH.search(name) and not HARMLESS.search(name)
    return bool(BEARING.search(name) or switch)


def may_bear(key: str, value: Any) -> bool:
    """Whether a key that is none of its framework's own may bear on time or memory, and is on."""
    name = key.replace("-", "_").lower()
    return not (_off(value) or PASSING.search(name) or HARMLESS.search(name))


def _off(value: Any) -> bool:
    return str(value).lower() in ("false", "none", "off", "no", "", "0", "1", "[]", "{}")


def misspelt(key: str, known: Iterable[str]) -> str:
    """The known key that this one is a likely misspelling of, or "".

    Close to nine letters in ten, and with as many words or the same ones run together
    (``micro_batchsize``): ``lr_decay_style`` is not a misspelt ``lr_decay``.
    """
    words, letters = len(re.split(r"[_.-]", key)), re.sub("[_-]", "", key)
    alike = [k for k in known if abs(len(k) - len(key)) <= 2]
    alike = [k for k in alike if len(re.split(r"[_.-]", k)) == words
             or re.sub("[_-]", "", k) == letters]  # fmt: skip
    close = difflib.get_close_matches(key, alike, n=1, cutoff=0.9)
    return close[0] if close else ""
