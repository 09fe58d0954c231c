"""A last batch that is smaller than the others."""

from __future__ import annotations

import ast
import re

from chipshift.audit.names import tail
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors


def loader(reader: Reader, node: ast.Call, full: str) -> None:
    """DataLoader without drop_last=True."""
    if full != "torch.utils.data.DataLoader":
        return
    keywords = {one.arg: one.value for one in node.keywords}
    if None in keywords or "batch_sampler" in keywords:
        return
    last = keywords.get("drop_last")
    if last is not None and not (isinstance(last, ast.Constant) and last.value is False):
        return
    size = keywords.get("batch_size", node.args[1] if len(node.args) > 1 else None)
    if size is None or (isinstance(size, ast.Constant) and size.value in (1, None)):
        return
    sampler = keywords.get("sampler")
    if isinstance(sampler, ast.Name):
        sampler = reader.value(sampler)
    if isinstance(sampler, ast.Call) and tail(sampler.func) not in (
        "DistributedSampler",
        "SequentialSampler",
    ):
        return
    if re.search(r"iterable|infinite|stream", ast.unparse(node), re.I):
        return
    reader.hit("last-batch-partial", node, "the last batch is smaller than the others")


def remainder(reader: Reader, node: ast.Call, full: str) -> None:
    for keyword in node.keywords:
        if (
            keyword.arg == "drop_remainder"
            and isinstance(keyword.value, ast.Constant)
            and keyword.value.value is False
        ):
            reader.hit("last-batch-partial", keyword, "the last batch keeps its own size")


def skipping(reader: Reader, node: ast.If) -> None:
    """``if b.size(0) != expected: continue`` before a collective."""
    if len(node.body) != 1 or not isinstance(node.body[0], ast.Continue) or not reader.loops:
        return
    test = node.test
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq | ast.Lt):
        written = ast.unparse(test.left)
        if re.search(r"\.size\(0\)|\.shape\[0\]|^len\(", written):
            reader.hit("last-batch-partial", test, "this rank alone skips the short batch")


def register(found: Detectors) -> None:
    found.on_call("DataLoader")(loader)
    found.on_call("batch iter")(remainder)
    found.on_statement(ast.If)(skipping)
