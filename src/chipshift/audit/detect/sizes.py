"""Shapes that change from batch to batch or grow: packing, padding, growing, indices, loops."""

from __future__ import annotations

import ast
import re

from chipshift.audit.facts import STEP
from chipshift.audit.kinds import NUMBER, TENSOR, UNKNOWN
from chipshift.audit.names import tail, text, walk
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors

VARLEN, RAGGED = "varlen-packing", "variable-length-input"


def unpad(reader: Reader, node: ast.Call, full: str) -> None:
    """Unpadding, packing, nested tensors: as many rows as there are tokens."""
    name = tail(node.func)
    if name == "pack_padded_sequence":
        reader.hit(RAGGED, node, "the packed length follows the batch", cause="packed rnn")
    elif name == "pad_packed_sequence":
        if any(keyword.arg == "total_length" for keyword in node.keywords):
            return
        reader.hit(
            RAGGED, node, "the padded length follows the batch's longest sample", cause="packed rnn"
        )
    elif name.startswith("flash_attn_varlen") and full.startswith("flash_attn"):
        return
    elif name in ("nested_tensor", "as_nested_tensor", "nested_tensor_from_jagged"):
        if full.startswith("torch.nested"):
            reader.hit(VARLEN, node, "nested tensors have ragged sizes")
    else:
        reader.hit(VARLEN, node, f"{name}() packs tokens; the total changes with every batch")


def lengths(reader: Reader, node: ast.Assign) -> None:
    """``cu_seqlens = ...cumsum...``: the offsets are built here."""
    for target in node.targets:
        for one in target.elts if isinstance(target, ast.Tuple) else [target]:
            if re.search(r"(^|_)(cu_seqlens?|cu_seq_lens|cu_lens)(_|$)", tail(one)) and isinstance(
                node.value, ast.Call
            ):
                built = ast.unparse(node.value)
                if re.search(r"cumsum|arange\(|\bpad\(|tensor\(|\bcat\(", built):
                    reader.hit(
                        VARLEN,
                        node.value,
                        "builds the offsets of a packed batch",
                        cause="cu_seqlens",
                    )
                return


def padded(reader: Reader, node: ast.Call, full: str) -> None:
    """padding="longest"/True in a tokenizer or collator call."""
    name = tail(node.func)
    keywords = {one.arg: one for one in node.keywords}
    padding = keywords.get("padding")
    if "pad_to_multiple_of" in keywords:
        return
    if padding is not None and isinstance(padding.value, ast.Constant):
        # Not ``in``: a convolution's padding=1 equals True.
        if padding.value.value == "longest" or padding.value.value is True:
            if name.startswith(("Conv", "nn.Conv")) or "max_length" in name:
                return
            reader.hit(RAGGED, padding, "each batch is padded to its own longest sample")
    elif name.startswith("DataCollator") and name in (
        "DataCollatorWithPadding",
        "DataCollatorForSeq2Seq",
        "DataCollatorForTokenClassification",
        "DataCollatorForLanguageModeling_",
    ):
        reader.hit(RAGGED, node, f"{name} pads each batch to its own longest sample")
    for keyword in node.keywords:
        if keyword.arg == "rect" and ast.unparse(keyword.value) == "True":
            reader.hit(RAGGED, keyword, "rectangular batches: each has its own image size")
        if (
            keyword.arg == "group_by_length"
            and isinstance(keyword.value, ast.Constant)
            and keyword.value.value is True
        ):
            reader.hit(RAGGED, keyword, "batches are grouped by length, so their shapes differ")


def sequences(reader: Reader, node: ast.Call, full: str) -> None:
    name = tail(node.func)
    if name == "pad_across_processes":
        reader.hit(RAGGED, node, "pads to the longest of the processes, a length that varies")
        return
    if name == "pad_sequence":
        reader.hit(RAGGED, node, "pad_sequence() pads to the longest of the batch")


def scaled(reader: Reader, node: ast.Call, full: str) -> None:
    """A random image size drawn in the step (multi-scale training)."""
    if not full.startswith("random.") or not reader.loops or reader.local != STEP:
        return
    for one in reversed(reader.parents):
        if isinstance(one, ast.Assign):
            if re.match(
                r"(sz|size|imgsz|img_size|new_size|scale|resolution)$", tail(one.targets[0])
            ):
                reader.hit(RAGGED, node, "the image size changes from step to step")
            return


def by_tokens(reader: Reader, node: ast.Call, full: str) -> None:
    """Batches filled up to a number of tokens: rows and lengths both vary."""
    if any(keyword.arg == "max_tokens" for keyword in node.keywords):
        name = tail(node.func)
        if re.search(r"batch|group", name):
            reader.hit(RAGGED, node, "batches are filled by tokens: rows and length vary")


def longest(reader: Reader, node: ast.Call, full: str) -> None:
    """max(len(x) for x in batch) where a batch is put together."""
    if not isinstance(node.func, ast.Name) or not node.args:
        return
    first = node.args[0]
    if not isinstance(first, ast.GeneratorExp | ast.ListComp):
        return
    element = first.elt
    sized = isinstance(element, ast.Call) and tail(element.func) in ("len", "numel", "size")
    if isinstance(element, ast.Subscript):
        sized = isinstance(element.value, ast.Attribute) and element.value.attr == "shape"
    if not sized or not _collating(reader):
        return
    reader.hit(RAGGED, node, "the longest sample of the batch decides the shape")


def _collating(reader: Reader) -> bool:
    func = reader.func
    if re.search(
        r"collat|pad|batch|__call__|get_batch|prepare", func.name.lower()
    ) and not re.search(r"__init__|token_ids_to_str|vocab|table|print", func.name.lower()):
        return (
            reader.facts.uses_torch
            or reader.facts.uses_jax
            or bool(re.search(r"collat", func.name.lower()))
        )
    return False


def grows(reader: Reader, node: ast.Assign) -> None:
    """x = cat([x, new]) in a loop, or a cache attribute that is concatenated to."""
    value = node.value
    if not isinstance(value, ast.Call) or tail(value.func) not in (
        "cat",
        "concat",
        "concatenate",
        "hstack",
        "vstack",
        "append",
    ):
        return
    full = reader.full(value.func)
    if not full.startswith(("torch.", "jax.numpy.")) or not value.args:
        return
    given = value.args[0]
    parts = given.elts if isinstance(given, ast.List | ast.Tuple) else [given, *value.args[1:2]]
    targets = {ast.unparse(one) for one in node.targets}
    shown = [ast.unparse(part) for part in parts]
    again = any(part in targets for part in shown) and len(set(shown)) > 1
    again = again and not any("zeros_like" in part for part in shown)
    # Items of a list are samples being put together, not one tensor that grows.
    again = again and not isinstance(node.targets[0], ast.Subscript)
    if again and reader.loops and not _attribute(node.targets[0]):
        again = not _renewed(reader.loops[-1].node, targets)
    if again and (reader.loops or _attribute(node.targets[0])) and not _gathers(reader):
        reader.hit(
            "growing-concat",
            value,
            "the tensor grows at every turn, a new shape each time",
            needs_step=True,
        )
        return
    past = any(
        re.search(r"(^|_|\.)(past|cache|cached|prev|layer_past)(_|\.|$|\[)", ast.unparse(part))
        for part in parts
    )
    keys = any(re.search(r"key|value|k|v", one) for one in targets)
    if past and keys and len(parts) == 2 and reader.func.role != "startup":
        reader.hit(
            "growing-concat",
            value,
            "a key-value cache that grows with every token",
            needs_step=True,
            cause=f"cache {reader.func.name}",
        )


def _renewed(loop: ast.AST, names: set[str]) -> bool:
    """Whether a turn of the loop also gives the name a value that does not come from itself."""
    for one in walk(loop):
        if isinstance(one, ast.Assign | ast.For):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            value = one.value if isinstance(one, ast.Assign) else one.iter
            bound = {
                ast.unparse(part)
                for t in targets
                for part in walk(t)
                if isinstance(part, ast.Name | ast.Attribute)
            }
            if bound & names and not names & {
                ast.unparse(part)
                for part in walk(value)
                if isinstance(part, ast.Name | ast.Attribute)
            }:
                return True
    return False


def _attribute(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and text(node).startswith("self.")


def _gathers(reader: Reader) -> bool:
    """A loop over a fixed list of parts (layers, scales) is unrolled and static."""
    if not reader.loops:
        return False
    loop = reader.loops[-1].node
    if not isinstance(loop, ast.For):
        return False
    written = ast.unparse(loop.iter)
    if reader.func.role == STEP and reader.func.fact.sure and not written.startswith("range("):
        return True
    if reader.local in (STEP,):
        return False
    return bool(
        re.search(r"self\.\w*(layers|blocks|convs|stages|heads|modules|levels|experts)", written)
    )


def tied_index(reader: Reader, node: ast.Subscript) -> None:
    """A loop counter as an index in a loop whose turns are graphs of their own."""
    if not reader.loops or isinstance(node.slice, ast.Constant):
        return
    loop = reader.loops[-1]
    names = {one.id for one in walk(node.slice) if isinstance(one, ast.Name)}
    counters = {
        one for one in loop.names & names if reader.kind(ast.Name(one, ast.Load())) == NUMBER
    }
    if not counters or not _decodes(reader, loop.node):
        return
    kind = reader.kind(node.value)
    if kind not in (TENSOR, UNKNOWN) or (kind == UNKNOWN and not _bufferish(node.value)):
        return
    if isinstance(node.ctx, ast.Store):
        sampled = isinstance(reader.parent(), ast.Assign) and _sampled(reader)
        rule = "growing-concat" if sampled else "python-int-index"
        reader.hit(
            rule,
            node,
            "written at a Python counter: every position is a new graph",
            needs_step=True,
        )
    else:
        reader.hit(
            "python-int-index",
            node,
            "read at a Python counter: every value is a new graph",
            needs_step=True,
            confidence="likely",
        )


def _bufferish(node: ast.expr) -> bool:
    return bool(
        re.search(r"(^|_)(buf|buffer|cache|tokens|ids|seq|generated|out|mel|frames|x)", tail(node))
    )


def _sampled(reader: Reader) -> bool:
    parent = reader.parent()
    value = getattr(parent, "value", None)
    if isinstance(value, ast.Name):
        value = reader.value(value)
    return isinstance(value, ast.Call) and bool(
        re.search(r"sample|argmax|multinomial|topk|next", ast.unparse(value.func))
    )


def _decodes(reader: Reader, loop: ast.AST) -> bool:
    """A generation loop: its body calls a model and feeds what it made back in."""
    if reader.func.role == STEP and reader.func.fact.sure:
        return False
    known = reader.decoding.get(id(loop))
    if known is not None:
        return known
    calls = samples = False
    for one in walk(loop):
        if isinstance(one, ast.Call):
            name = tail(one.func)
            calls = calls or name in ("model", "decoder", "net", "forward", "generator", "self")
            samples = samples or bool(re.search(r"argmax|multinomial|sample|topk|next_tok", name))
    reader.decoding[id(loop)] = calls and samples
    return calls and samples


def register(found: Detectors) -> None:
    found.on_call(
        "unpad_input pad_input index_first_axis pack_padded_sequence pad_packed_sequence "
        "flash_attn_varlen_func flash_attn_varlen_qkvpacked_func nested_tensor as_nested_tensor "
        "flash_attn_varlen_kvpacked_func DataCollatorWithFlattening nested_tensor_from_jagged "
        "_upad_input _get_unpad_data"
    )(unpad)
    found.on_statement(ast.Assign)(lengths)
    found.any_call.append(lambda reader, node, callee: padded(reader, node, callee))
    found.on_call("pad_sequence pad_across_processes")(sequences)
    found.any_call.append(lambda reader, node, callee: by_tokens(reader, node, callee))
    found.on_call("randrange randint choice uniform")(scaled)
    found.on_call("max")(longest)
    found.on_statement(ast.Assign)(grows)
    found.subscripts.append(tied_index)
