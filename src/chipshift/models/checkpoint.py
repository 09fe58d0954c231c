"""Tensor names and shapes of a safetensors checkpoint: the truth about a model's size.

Only headers are read: a shard begins with the length of a JSON header (8 bytes, little-endian) and
the header (Hugging Face, safetensors README, format). No weight is loaded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from chipshift.errors import InputError
from chipshift.models.count import params
from chipshift.models.model import Model

LARGEST_INDEX_BYTES = 64 * 1024 * 1024
LARGEST_HEADER_BYTES = 100_000_000
"""The format's own limit on a header."""
STEMS = (
    "model.safetensors",
    "diffusion_pytorch_model.safetensors",
    "consolidated.safetensors",
)
"""What transformers, diffusers and Mistral call a checkpoint; its index has ``INDEX`` behind."""
INDEX = ".index.json"
VARIANT = re.compile(
    r"^(model|diffusion_pytorch_model)"
    r"(\.[a-z]\w*\.safetensors|\.safetensors\.index\.[a-z]\w*\.json)$"
)
"""The same of a variant, such as ``fp16``."""
UNOPENED = re.compile(r"\.(bin|pth?|ckpt|gguf|h5|msgpack)(\.index\.json)?$")
"""Weights that are pickled, or of formats that are not read here."""
SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.safetensors$")

EMBEDDING = re.compile(
    r"(^|\.)(embed_tokens|wte|word_embeddings|tok_embeddings|embed_in|embeddings|shared)\.weight$"
)
HEAD = re.compile(r"(^|\.)(lm_head|embed_out|output)\.weight$")
NOT_PARAMETERS = re.compile(
    r"(inv_freq|rotary_emb\.\w+|e_score_correction_bias|(weight|input|k|v)_scale(_inv)?"
    r"|masked_bias|position_ids|num_batches_tracked|running_(mean|var)|final_logits_bias)$"
    r"|(^|\.)attn\.bias$"
)
"""Buffers and quantisation scales, which checkpoints carry and nobody trains."""
OF_TENSORS = "checkpoint"
"""The entry of a model's ``defaults`` that says what its tensors have and its config has not."""
UNREAD = "checkpoint, not opened"
"""The entry that names weights beside a config that were not looked into."""
PACKED = {"U8", "I8", "I16", "I32", "I64", "U16", "U32", "U64", "BOOL"}


@dataclass(frozen=True)
class Checkpoint:
    """What the headers say.

    Attributes:
        shapes: tensor name → shape; empty where only an index without its shards was given.
        names: all tensor names.
        packed: some weights are stored as integers, whose shapes are not those of the model.
        absent: files that the index names and the folder has not.
    """

    folder: str
    shapes: Mapping[str, tuple[int, ...]]
    names: frozenset[str]
    packed: bool = False
    absent: tuple[str, ...] = ()

    @property
    def params(self) -> int:
        """Parameters: elements of all tensors but buffers and scales."""
        return sum(prod(s) for n, s in self.shapes.items() if not NOT_PARAMETERS.search(n))


def has_checkpoint(folder: Path) -> bool:
    """Whether the folder holds a safetensors index or file, or shards by themselves."""
    return bool(_whole(folder) or _shards(folder))


def unopened(folder: Path) -> str:
    """The first of the folder's weights that are not read here; "" where it has none."""
    named = sorted(path.name for path in folder.iterdir() if UNOPENED.search(path.name))
    weights = [n for n in named if n.startswith(WEIGHTS) or n.endswith((".gguf", ".index.json"))]
    return next(iter(weights), "")


WEIGHTS = ("pytorch_model", "diffusion_pytorch_model", "consolidated", "tf_model", "flax_model")


def _whole(folder: Path) -> list[str]:
    """Indices and files of a whole checkpoint: the usual index, the usual file, then variants'."""
    usual = [f"{stem}{end}" for end in (INDEX, "") for stem in STEMS]
    named = sorted(path.name for path in folder.iterdir() if VARIANT.match(path.name))
    variants = sorted(named, key=lambda name: not name.endswith(".json"))
    return [name for name in usual + variants if (folder / name).is_file()]


def _shards(folder: Path) -> list[str]:
    """Names of shards that stand without an index; [] unless all of one set are there."""
    found = sorted(path.name for path in folder.glob("model-*.safetensors"))
    ends = [match for name in found if (match := SHARD.search(name))]
    whole = len(ends) == len(found) and len({end[2] for end in ends}) == 1
    return found if whole and len(found) == int(ends[0][2]) else []


def read_checkpoint(folder: Path) -> Checkpoint:
    """The tensors of a checkpoint's folder.

    Raises:
        InputError: an index or a header cannot be read, is not of the format, is above its
            limit, or names a file outside the folder.
    """
    first = _whole(folder)[:1]
    if not first or not first[0].endswith(".json"):
        return _together(folder, first or _shards(folder))
    index = folder / first[0]
    weight_map = _object(index, _read(index, LARGEST_INDEX_BYTES)).get("weight_map")
    if not isinstance(weight_map, dict) or not all(
        isinstance(k, str) and isinstance(v, str) for k, v in weight_map.items()
    ):
        raise InputError(f"{index}: weight_map is not an object of tensor names and files")
    names = sorted(set(weight_map.values()))
    for name in names:
        if Path(name).name != name or name in ("", ".", ".."):
            raise InputError(f"{index}: {name!r} is not the name of a file in that folder")
    absent = tuple(name for name in names if not (folder / name).is_file())
    if absent:  # an index by itself tells names, not shapes
        return Checkpoint(str(folder), {}, frozenset(weight_map), absent=absent)
    return replace(_together(folder, names), names=frozenset(weight_map))


def _together(folder: Path, names: Sequence[str]) -> Checkpoint:
    """The tensors of several files."""
    shapes: dict[str, tuple[int, ...]] = {}
    packed = False
    for name in names:
        found, odd = _header(folder / name)
        shapes.update(found)
        packed = packed or odd
    return Checkpoint(str(folder), shapes, frozenset(shapes), packed)


def corrected(model: Model, checkpoint: Checkpoint) -> Model:
    """The model with vocabulary, tied head and total as the checkpoint's tensors have them.

    What the config does not explain (an added head, a padded table) goes to ``other_params``, so
    that the total is the checkpoint's; blocks above the config's layers (multi-token prediction)
    stay out, as everywhere. Of a packed checkpoint the table of words and the head count, of one
    with a shard missing whether it has a head; that the rest is the config's is said.
    What differs from the config stands among the model's ``defaults``, as ``OF_TENSORS``.
    """
    found = _corrected(model, checkpoint)
    changes = []
    if found.vocab != model.vocab:
        changes.append(f"a vocabulary of {found.vocab:,} for {model.vocab:,}")
    if found.tied != model.tied:
        changes.append("a tied head" if found.tied else "a head that is not tied")
    if found.other_params != model.other_params:
        more = found.other_params - model.other_params
        changes.append(f"{more:+,} parameters that its layers do not explain")
    if checkpoint.packed:
        changes.append("its layers by the config: their weights are packed")
    if checkpoint.absent:
        changes.append(f"all else by the config: {checkpoint.absent[0]} is missing")
    if not changes:
        return found
    return replace(found, defaults=(*model.defaults, (OF_TENSORS, "; ".join(changes))))


LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks?|block)\.(\d+)\.(.+)$")


def unexplained(model: Model) -> bool:
    """Whether the checkpoint holds other parameters than the layers of its config have."""
    said = dict(model.defaults).get(OF_TENSORS, "")
    return "do not explain" in str(said)


def keys_of_tensors(checkpoint: Checkpoint, heads: int) -> dict[str, int]:
    """The numbers of a decoder of equal blocks as its tensors have them; {} where they differ.

    Args:
        heads: query heads, which no shape tells.
    """
    blocks: dict[int, dict[str, tuple[int, ...]]] = {}
    for name, shape in checkpoint.shapes.items():
        if (at := LAYER.search(name)) is not None:
            blocks.setdefault(int(at[1]), {})[at[2]] = shape
    if checkpoint.packed or sorted(blocks) != list(range(len(blocks))) or not blocks:
        return {}
    first = blocks[0]
    maps = [first.get(f"{at}.weight", ()) for at in BLOCK_MAPS]
    if any(one != first for one in blocks.values()) or any(len(shape) != 2 for shape in maps):
        return {}
    query, key, down = maps
    if not heads or query[0] % heads or key[0] % (query[0] // heads):
        return {}
    return {
        "num_hidden_layers": len(blocks),
        "hidden_size": query[1],
        "intermediate_size": down[1],
        "head_dim": query[0] // heads,
        "num_key_value_heads": key[0] * heads // query[0],
    }


BLOCK_MAPS = ("self_attn.q_proj", "self_attn.k_proj", "mlp.down_proj")
"""Maps of a block that tell its numbers, under the names that most decoders have."""


def _corrected(model: Model, checkpoint: Checkpoint) -> Model:
    kept: dict[str, tuple[int, ...]] = {}
    for name, shape in checkpoint.shapes.items():
        at = LAYER.search(name)
        if at is None or int(at[1]) < model.n_layers or model.towers or not model.layers:
            kept[name] = shape
    if model.has_head and not model.towers and model.vocab and model.head_outputs is None:
        model = replace(model, tied=not any(HEAD.search(name) for name in checkpoint.names))
    if not kept:
        return model
    tables = [s for n, s in kept.items() if EMBEDDING.search(n) and len(s) == 2]
    if tables and model.vocab and not model.towers:
        rows = {rows for rows, width in tables if width in (model.d_model, model.embedding_width)}
        model = replace(model, vocab=rows.pop()) if len(rows) == 1 else model
    if checkpoint.packed:
        return model
    total = Checkpoint(checkpoint.folder, kept, checkpoint.names).params
    return replace(model, other_params=model.other_params + total - params(model))


def _read(path: Path, most: int) -> bytes:
    try:
        size = path.stat().st_size
        if size > most:
            raise InputError(f"{path}: {size:,} bytes; an index above {most:,} is refused")
        return path.read_bytes()
    except OSError as error:
        raise _unread(path, error) from None


def _unread(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: cannot be read ({error.strerror})")


def _object(path: Path, content: bytes) -> dict[str, Any]:
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        raise InputError(
            f"{path}: its header is not JSON; expected the safetensors format"
        ) from None
    if not isinstance(values, dict):
        raise InputError(f"{path}: its header is not an object; expected the safetensors format")
    return values


def _header(path: Path) -> tuple[dict[str, tuple[int, ...]], bool]:
    """(tensor name → shape, whether a tensor of two or more axes holds integers)."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            size = path.stat().st_size
            if not 2 <= length <= min(LARGEST_HEADER_BYTES, max(size - 8, 0)):
                raise InputError(
                    f"{path}: gives a header of {length:,} bytes in {size:,};"
                    " expected the safetensors format"
                )
            values = _object(path, file.read(length))
    except OSError as error:
        raise _unread(path, error) from None
    shapes: dict[str, tuple[int, ...]] = {}
    packed = False
    for name, entry in values.items():
        if name == "__metadata__":
            continue
        shape = entry.get("shape") if isinstance(entry, dict) else None
        if not isinstance(shape, list) or not all(
            isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**48 for n in shape
        ):
            raise InputError(f"{path}: the shape of {name[:80]!r} is not a list of whole numbers")
        shapes[name] = tuple(shape)
        packed = packed or (len(shape) > 1 and entry.get("dtype") in PACKED)
    return shapes, packed
