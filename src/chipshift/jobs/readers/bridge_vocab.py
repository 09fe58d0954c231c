"""The vocabulary that a Megatron-Bridge pretraining recipe takes from its tokenizer.

``use_tokenizer_vocab_size`` of recipes that train from scratch sets the model's vocabulary to the
tokenizer's, padded to a multiple of 128 × tp; the null tokenizer's is a number that the recipe
states (32000), whatever the checkpoint's. A ``TokenizerConfig`` of the script's own leaves the
model's. Source: NVIDIA, Megatron-Bridge, src/megatron/bridge/training/setup.py and
training/tokenizers/config.py, recipes/common.py and recipes/utils/tokenizer_utils.py, 2026-08.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.python_tree import Unknown
from chipshift.jobs.readers.bridge_library import LibraryRecipe
from chipshift.jobs.readers.bridge_walk import Assigned, Event
from chipshift.jobs.settings import Setting, as_boolean, as_integer

NULL = "NullTokenizer"
BENCHMARK = "benchmark_common"
"""The library's helpers of its benchmarks, which keep the model's own vocabulary."""
FIELDS = ("tokenizer_type", "vocab_size", "use_tokenizer_vocab_size")


@dataclass
class _Tokenizer:
    """Its kind, the vocabulary it states and whether the model takes it."""

    null: bool = False
    vocab: Setting | None = None
    used: bool = False


def put_vocabulary(
    draft: Draft,
    context: Context,
    settings: dict[str, Setting],
    recipe: LibraryRecipe | None,
    events: Iterable[Event],
    line: int | None = None,
) -> None:
    """The null tokenizer's vocabulary as the model's, where the recipe or the script says so."""
    found = _Tokenizer()
    if recipe is not None and recipe.tokenizer_vocab:
        found.used = True
        found.null = recipe.tokenizer_vocab.isdecimal()
        if found.null:
            found.vocab = Setting(recipe.tokenizer_vocab, draft.file, line)
    for event in events:
        if isinstance(event, Assigned):
            path, _, key = event.path.rpartition(".")
            if path.rsplit(".", 1)[-1] == "tokenizer" and key in FIELDS:
                _set(found, {key: event.setting})
        elif event.call.name.endswith(BENCHMARK):
            found.used = False
        elif event.call.name.rsplit(".", 1)[-1] == "TokenizerConfig" and _into(event.into):
            found = _Tokenizer()
            _set(found, event.call.keywords)
    size = as_integer(found.vocab.value) if found.vocab is not None else None
    if context.model_named or not (found.null and found.used) or found.vocab is None or not size:
        return
    settings["vocab-size"] = found.vocab
    draft.pads_vocab = True
    why = "the null tokenizer's, which pretraining from scratch takes in place of the checkpoint's"
    draft.note("vocabulary", size, why)


def _into(path: str) -> bool:
    return path.rsplit(".", 1)[-1] == "tokenizer"


def _set(found: _Tokenizer, keywords: Mapping[str, Setting]) -> None:
    for key, setting in keywords.items():
        if isinstance(setting.value, Unknown):
            continue
        if key == "tokenizer_type":
            found.null = setting.value == NULL
        elif key == "vocab_size":
            found.vocab = setting
        elif key == "use_tokenizer_vocab_size":
            found.used = as_boolean(setting.value) is True
