"""Dimensions: heads, hidden sizes, vocabularies and batches that do not fill the tiles."""

from __future__ import annotations

import ast
import re

from chipshift.audit.names import tail, text, walk
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors
from chipshift.audit.syntax import DEFS, defaults

HEADS = re.compile(
    r"^(n_heads?|num_heads|num_attention_heads|nheads?|heads|decoder_attention_heads"
    r"|encoder_attention_heads|n_head|num_query_heads|NUM_HEADS|n_audio_head"
    r"|n_text_head|attention_heads)$"
)
WIDTH = re.compile(
    r"^(n_embd|d_model|embed_dim|hidden_size|dim|emb_dim|hidden_dim|model_dim"
    r"|MODEL_DIMS|n_embed|d_embed|width|n_audio_state|n_text_state|embedding_dim)$"
)
HEAD_DIM = re.compile(
    r"^(head_dim|dim_head|d_head|head_size|DIMS_PER_HEAD|dims_per_head|kv_channels"
    r"|d_kv|attention_head_dim|qk_head_dim|key_size)$"
)
VOCAB = re.compile(r"^(vocab_size|n_vocab|vocab|padded_vocab_size|VOCAB_SIZE|num_tokens_vocab)$")


class Number:
    """A configuration number with the node that gives it."""

    __slots__ = ("name", "node", "value")

    def __init__(self, name: str, value: int, node: ast.AST) -> None:
        self.name, self.value, self.node = name, value, node


def _integer(node: ast.expr | None) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    return None


def _judge(reader: Reader, numbers: list[Number], preset: bool) -> None:
    """Rules over the numbers of one configuration: dataclass, module constants, call, defaults."""
    if not (reader.facts.uses_torch or reader.facts.uses_jax):
        return
    heads = next((one for one in numbers if HEADS.match(one.name) and one.value > 1), None)
    width = next((one for one in numbers if WIDTH.match(one.name)), None)
    each = next((one for one in numbers if HEAD_DIM.match(one.name) and one.value > 1), None)
    if each is not None and each.value < 128 and each.value >= 16:
        _head(reader, each.node, each.value, [], reader.func.name)
    elif heads and width and width.value % heads.value == 0 and width.value >= 256 and not preset:
        size = width.value // heads.value
        if 16 <= size < 128:
            first, second = sorted((heads, width), key=lambda one: getattr(one.node, "lineno", 0))
            _head(reader, first.node, size, [second.node], reader.func.name)
    if (heads and heads.value % 2 and heads.value > 1) or (
        heads and heads.value % 4 and reader.notes.get("mesh8")
    ):
        assert heads is not None
        reader.hit(
            "heads-not-divisible",
            heads.node,
            f"{heads.value} heads divide no power-of-two axis of the mesh",
        )
    known = width is not None and (heads is not None or width.name not in ("width", "dim"))
    if width and known and width.value >= 256 and width.value % 128:
        reader.hit(
            "dim-not-128-multiple", width.node, _padding(width.value), figures={"dim": width.value}
        )
    for one in numbers:
        if VOCAB.match(one.name) and one.value >= 1000 and one.value % 128:
            _vocabulary(reader, one.node, one.value)


def _padding(value: int) -> str:
    padded = -(-value // 128) * 128
    return f"{value} is padded to {padded} in a matmul ({padded / value - 1:.0%} more)"


def _vocabulary(reader: Reader, node: ast.AST, value: int) -> None:
    reader.hit(
        "vocab-not-128-multiple",
        node,
        f"a vocabulary of {value} is no multiple of 128",
        figures={"vocab": value},
    )


def _head(reader: Reader, node: ast.AST, size: int, more: list[ast.AST], where: str) -> None:
    reader.hit(
        "head-dim-lt-128",
        node,
        f"a head of {size} fills {size / 128:.0%} of a 128-wide matrix unit",
        cause="head dim",
        places=[getattr(one, "lineno", 0) for one in more],
        figures={"head_dim": size},
    )


def fields(reader: Reader, node: ast.ClassDef) -> None:
    """Defaults of a dataclass or configuration class."""
    numbers = []
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            value = _integer(one.value)
            if value is not None and one.value is not None:
                numbers.append(Number(one.target.id, value, one.value))
        elif isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            value = _integer(one.value)
            if value is not None:
                numbers.append(Number(one.targets[0].id, value, one.value))
    if numbers:
        _judge(reader, numbers, preset=False)


def parameters(reader: Reader, node: ast.FunctionDef) -> None:
    """Defaults of a constructor or function."""
    numbers = [
        Number(name, value, default)
        for name, default in defaults(node).items()
        if (value := _integer(default)) is not None
    ]
    if numbers:
        _judge(reader, numbers, preset=False)


def module_numbers(reader: Reader) -> None:
    """Numbers assigned at module level and defaults of options, then places of the head size."""
    numbers = []
    for one in reader.tree.body:
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            value = _integer(one.value)
            if value is not None:
                numbers.append(Number(one.targets[0].id, value, one.value))
    for name, option in reader.outline.options.items():
        where = reader.outline.option_lines.get(name)
        value = _integer(option)
        if value is not None and where is not None and not isinstance(where, ast.AnnAssign):
            numbers.append(Number(name, value, where))
    if numbers:
        _judge(reader, numbers, preset=False)
    _views(reader)


def _views(reader: Reader) -> None:
    """Views by ``C // n_head`` in a file whose configuration has a small head."""
    if not any(one.rule == "head-dim-lt-128" for one in reader.facts.hazards):
        return
    for one in reader.notes.get("head views", []):
        reader.hit("head-dim-lt-128", one, "splits by that head size", cause="head dim")


def view(reader: Reader, node: ast.Call, full: str) -> None:
    for argument in node.args:
        if (
            isinstance(argument, ast.BinOp)
            and isinstance(argument.op, ast.FloorDiv)
            and HEADS.match(tail(argument.right))
        ):
            reader.notes.setdefault("head views", []).append(node)
            return


def configuration(reader: Reader, node: ast.Assign) -> None:
    """``cfg = dict(d_model=..., n_heads=...)`` and ``config["vocab_size"] = 50257``."""
    value = node.value
    target = node.targets[0]
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        number = _integer(value)
        if number and VOCAB.match(str(target.slice.value)) and number >= 1000 and number % 128:
            _vocabulary(reader, value, number)
        return
    if isinstance(value, ast.Call) and tail(value.func) == "dict":
        _judge(reader, _keywords(value), preset=False)
    elif isinstance(value, ast.Dict):
        _table(reader, value)
    elif isinstance(value, ast.Subscript) and isinstance(value.value, ast.Dict):
        _table(reader, value.value)
    elif isinstance(target, ast.Attribute | ast.Name):
        number = _integer(value)
        if (
            number
            and VOCAB.match(tail(target))
            and number >= 1000
            and number % 128
            and (reader.func.node is not None or isinstance(target, ast.Attribute))
        ):
            _vocabulary(reader, value, number)


def _keywords(node: ast.Call) -> list[Number]:
    return [
        Number(keyword.arg, value, keyword)
        for keyword in node.keywords
        if keyword.arg and (value := _integer(keyword.value)) is not None
    ]


def _table(reader: Reader, node: ast.Dict) -> None:
    """A table of named presets: each entry a configuration; only what no mesh axis divides."""
    for value in node.values:
        if isinstance(value, ast.Call) and tail(value.func) == "dict":
            _judge(reader, _keywords(value), preset=True)
        elif isinstance(value, ast.Dict):
            numbers = [
                Number(str(key.value), number, item)
                for key, item in zip(value.keys, value.values, strict=True)
                if isinstance(key, ast.Constant) and (number := _integer(item)) is not None
            ]
            _judge(reader, numbers, preset=True)


def built(reader: Reader, node: ast.Call, full: str) -> None:
    """A configuration or attention built with numbers: GPTConfig(n_embd=..., n_head=...)."""
    name = tail(node.func)
    if re.search(r"Config$|Args$|Transformer|Attention", name):
        _judge(reader, _keywords(node), preset=True)


def layer(reader: Reader, node: ast.Call, full: str) -> None:
    """A layer with literal sizes off the tile; layers of a class are one finding."""
    if full and not full.startswith(("torch.nn.", "flax.")):
        return
    arguments = list(node.args[:2]) or [
        one.value
        for one in node.keywords
        if one.arg in ("in_features", "out_features", "in_channels", "out_channels")
    ]
    sizes = [_folded(one) for one in arguments]
    name = tail(node.func)
    if name == "Dense":
        sizes = sizes[:1]
    known = [one for one in sizes if one is not None]
    if not known or reader.within(ast.Compare):
        if any(
            "rank" in text(part)
            for one in arguments
            for part in walk(one)
            if isinstance(part, ast.Attribute | ast.Name)
        ):
            places = _rank_lines(reader, arguments)
            reader.hit(
                "dim-not-128-multiple",
                node,
                "a low-rank size, padded to 128",
                cause=f"rank {reader.func.name}",
                places=places,
            )
        return
    if len(known) < len(sizes):
        return
    first = known[0]
    small_in = (name.startswith("Conv") and first in (1, 3, 4)) or first <= 4
    checked = known[1:] if small_in and len(known) > 1 else known
    classes = len(known) > 1 and known[-1] in (1, 2, 10, 100, 1000) and known[0] % 128 == 0
    bad = [one for one in checked if one % 128 and one not in (1, 2, 3)]
    if bad and not classes:
        # Half tiles (64, 192, 320) are the usual widths of vision models: report the rest.
        if all(one % 32 == 0 for one in bad):
            return
        reader.hit(
            "dim-not-128-multiple",
            node,
            _padding(max(bad)),
            cause=f"narrow {reader.func.name.rsplit('.', 1)[0]}",
            severity="medium",
            figures={"dim": max(bad)},
        )


def _rank_lines(reader: Reader, arguments: list[ast.expr]) -> list[int]:
    places: list[int] = []
    for one in arguments:
        for part in walk(one):
            if isinstance(part, ast.Attribute) and "rank" in part.attr:
                binding = reader.func.attributes.get(part.attr)
                if binding is not None and binding.node is not None and binding.node.lineno:
                    places.append(binding.node.lineno)
    return places


def _folded(node: ast.expr) -> int | None:
    """A literal or a product of literals."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add):
        left, right = _folded(node.left), _folded(node.right)
        if left is None or right is None:
            return None
        return left * right if isinstance(node.op, ast.Mult) else left + right
    return _integer(node)


def resized(reader: Reader, node: ast.Call, full: str) -> None:
    if any(keyword.arg == "pad_to_multiple_of" for keyword in node.keywords):
        return
    if node.args and "len(" in ast.unparse(node.args[0]):
        reader.hit(
            "vocab-not-128-multiple", node, "the vocabulary becomes whatever the tokenizer has"
        )


def tiny(reader: Reader, node: ast.Assign | ast.Return) -> None:
    """train_batch_size of a DeepSpeed configuration: a global batch."""
    value = node.value
    if not isinstance(value, ast.Dict):
        return
    names = {key.value for key in value.keys if isinstance(key, ast.Constant)}
    for key, item in zip(value.keys, value.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == "train_batch_size":
            number = _integer(item)
            if number is not None and number <= 16 and len(names) > 2:
                reader.hit(
                    "tiny-batch",
                    key,
                    f"a global batch of {number}: little work a chip",
                    figures={"batch": number},
                )


def minor(reader: Reader, node: ast.Call, full: str) -> None:
    """zeros(..., k) with three or more axes and a last one of 2 to 16."""
    if full not in ("torch.zeros", "jax.numpy.zeros", "torch.empty"):
        return
    sizes: list[ast.expr] = list(node.args)
    if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple):
        sizes = list(sizes[0].elts)
    if len(sizes) < 3 or reader.func.role == "startup":
        return
    last = sizes[-1]
    number = _integer(last)
    if number is None and isinstance(last, ast.Attribute) and text(last).startswith("self."):
        binding = reader.func.attributes.get(last.attr)
        owner = reader.func.owner
        if binding is not None and isinstance(binding.node, ast.Name) and owner is not None:
            for one in owner.body:
                if isinstance(one, DEFS) and one.name == "__init__":
                    number = _integer(defaults(one).get(binding.node.id))
    small = sum(1 for one in sizes if (_integer(one) or 999) <= 16)
    if number is not None and 2 <= number <= 16 and small < 2:
        reader.hit(
            "tiny-minor-dim",
            node,
            f"the last axis has {number} elements",
            confidence="possible",
            severity="low",
        )


def padded_cache(reader: Reader, node: ast.BinOp) -> None:
    """``-(-head_size // 128) * 128``: a cache whose heads are padded to the lanes."""
    if _integer(node.right) != 128:
        return
    if isinstance(node.left, ast.UnaryOp) and HEAD_DIM.match(tail(node.left.operand)):
        reader.hit("head-dim-lt-128", node, "the cache pads its heads to 128", cause="head dim")


def register(found: Detectors) -> None:
    found.operators.setdefault(ast.FloorDiv, []).append(padded_cache)
    found.on_statement(ast.ClassDef)(fields)
    found.on_statement(ast.FunctionDef)(parameters)
    found.finish.append(module_numbers)
    found.on_call("view reshape")(view)
    found.on_statement(ast.Assign)(configuration)
    found.any_call.append(lambda reader, node, callee: built(reader, node, callee))
    found.on_call("Linear Conv1d Conv2d Conv3d ConvTranspose2d ConvTranspose1d Dense MoE")(layer)
    found.on_call("resize_token_embeddings")(resized)
    found.on_statement(ast.Assign, ast.Return)(tiny)
    found.on_call("zeros empty")(minor)
