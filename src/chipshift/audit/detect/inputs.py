"""The input pipeline and the clock: host work on the critical path, shards, timing, constants."""

from __future__ import annotations

import ast

from chipshift.audit.kinds import ON_DEVICE
from chipshift.audit.names import tail, walk, words
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors
from chipshift.audit.roles import LoopRole

PIPE = "sync-input-pipeline"


def workers(reader: Reader, node: ast.Call, full: str) -> None:
    """num_workers=0, and many workers in each of several processes."""
    if full != "torch.utils.data.DataLoader":
        return
    for keyword in node.keywords:
        if keyword.arg != "num_workers":
            continue
        if isinstance(keyword.value, ast.Attribute):
            option = reader.outline.options.get(keyword.value.attr)
            where = reader.outline.option_lines.get(keyword.value.attr)
            if isinstance(option, ast.Constant) and option.value == 0 and where is not None:
                reader.hit(
                    PIPE,
                    where,
                    "by default the loader works in the training process",
                    places=[keyword.lineno],
                    cause=f"workers {keyword.value.attr}",
                )
            continue
        if not isinstance(keyword.value, ast.Constant):
            continue
        number = keyword.value.value
        if number == 0:
            reader.hit(PIPE, keyword, "the loader works in the training process")
        elif isinstance(number, int) and number >= 8 and _one_of_many(reader):
            reader.hit(PIPE, keyword, f"{number} workers in each process of a host")


def _one_of_many(reader: Reader) -> bool:
    node = reader.func.node
    if node is None:
        return False
    names = [one.arg for one in node.args.args]
    return (
        bool(names) and names[0] in ("index", "rank", "local_rank", "i")
    ) or node.name == "_mp_fn"


def tf_data(reader: Reader, node: ast.FunctionDef) -> None:
    """A tf.data pipeline without parallel reads, parallel maps or prefetch."""
    if "tensorflow" not in reader.aliases.values():
        return
    calls = [one for one in walk(node) if isinstance(one, ast.Call)]
    if not any(tail(one.func) in ("TFRecordDataset", "from_tensor_slices") for one in calls):
        return
    if any(tail(one.func) == "prefetch" for one in calls):
        return
    batched = next((one for one in calls if tail(one.func) == "batch"), None)
    if batched is None:
        return
    places = [
        one.lineno
        for one in calls
        if tail(one.func) in ("TFRecordDataset", "map")
        and not any((k.arg or "").startswith("num_parallel") for k in one.keywords)
    ]
    reader.hit(
        PIPE,
        batched,
        "no prefetch: the chip waits for each batch",
        places=[one for one in places if one != batched.lineno],
    )


def sampler(reader: Reader, node: ast.Call, full: str) -> None:
    """DistributedSampler with fixed replicas, or never told the epoch."""
    if not full.endswith("DistributedSampler"):
        return
    keywords = {one.arg: one.value for one in node.keywords}
    replicas = keywords.get("num_replicas")
    if isinstance(replicas, ast.Constant) and replicas.value == 1:
        reader.hit("data-shard-by-rank", node, "every host reads all rows", severity="high")
        return
    if isinstance(replicas, ast.Call) and tail(replicas.func) == "device_count":
        reader.hit("data-shard-by-rank", node, "the sampler is given devices, not processes")
        return
    shuffled = keywords.get("shuffle")
    if isinstance(shuffled, ast.Constant) and shuffled.value is False:
        return
    if (
        "set_epoch" not in reader.source
        and "epoch" in reader.source
        and reader.outline.has_backward
    ):
        reader.hit(
            "data-shard-by-rank", node, "set_epoch is never called: each epoch has one order"
        )


CLOCKS = words("time.time time.perf_counter time.monotonic timeit.default_timer")
WAITS = words(
    """item tolist cpu numpy synchronize block_until_ready sync mark_step device_get
    effects_barrier wait_device_ops"""
)


def timing(reader: Reader, node: ast.For | ast.While) -> None:
    """A clock read in the step loop without anything that waits for the device."""
    if reader.upcoming(node) is not LoopRole.STEP:
        return
    clocks: list[ast.Call] = []
    blocked: list[ast.Call] = []
    waits = False
    for one in walk(node):
        if not isinstance(one, ast.Call):
            continue
        if reader.full(one.func) in CLOCKS:
            clocks.append(one)
        name = tail(one.func)
        if name == "block_until_ready":
            blocked.append(one)
        if name in WAITS or (name == "float" and one.args):
            waits = True
    if not clocks:
        return
    every = [one for one in blocked if _every_step(node, one)]
    if every:
        reader.hit(
            "timing-without-block",
            every[0],
            "blocking every step stops the host running ahead",
            severity="medium",
        )
        return
    if waits:
        return
    uses = [one for one in walk(node) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub)]
    names = {
        target.id
        for one in walk(node)
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call) and one.value in clocks
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    places = [one.lineno for one in uses if isinstance(one.left, ast.Name) and one.left.id in names]
    differs = places or any(isinstance(one.left, ast.Call) and one.left in clocks for one in uses)
    if differs:
        reader.hit(
            "timing-without-block",
            clocks[0],
            "times the dispatch, not the work",
            places=[one for one in places[:1] if one != clocks[0].lineno],
            anyway=False,
        )


def _every_step(loop: ast.For | ast.While, call: ast.Call) -> bool:
    return any(
        isinstance(one, ast.Expr | ast.Assign) and any(part is call for part in walk(one))
        for one in loop.body
    )


MAKERS = words("tensor arange ones zeros eye linspace full tril triu as_tensor")


def constant(reader: Reader, node: ast.Call, full: str) -> None:
    """A host constant moved to the device in the step."""
    if reader.func.role != "step" or not reader.func.fact.sure:
        return
    name = tail(node.func)
    if not full.startswith("torch.") or full.count(".") > 1:
        return
    devices = [k for k in node.keywords if k.arg == "device"]
    parent = reader.parent()
    moved = (
        isinstance(parent, ast.Attribute)
        and parent.attr in ("to", "cuda", "type_as")
        and isinstance(reader.parent(2), ast.Call)
    )
    if name == "from_numpy" and moved:
        reader.hit(
            "host-constant-transfer", node, "a host array is moved at every step", needs_step=True
        )
    elif name in ("tensor", "as_tensor") and (devices or moved) and node.args:
        if reader.kind(node.args[0]) not in ON_DEVICE:
            reader.hit(
                "host-constant-transfer",
                node,
                "a host value is moved at every step",
                needs_step=True,
            )
    elif name in MAKERS and moved and not devices:
        reader.hit(
            "host-constant-transfer",
            node,
            f"torch.{name} is made on the host, then moved",
            needs_step=True,
        )


def register(found: Detectors) -> None:
    found.on_call("DataLoader")(workers)
    found.on_statement(ast.FunctionDef)(tf_data)
    found.on_call("DistributedSampler")(sampler)
    found.on_statement(ast.For, ast.While)(timing)
    found.on_call("tensor arange ones zeros eye linspace full tril triu as_tensor from_numpy")(
        constant
    )
