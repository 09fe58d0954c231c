"""Seeds: which ranks draw the same numbers, and which must not."""

from __future__ import annotations

import ast
import re

from chipshift.audit.kinds import RANK
from chipshift.audit.names import tail, text, walk
from chipshift.audit.reader import Reader
from chipshift.audit.registry import Detectors

RANK_NAME = re.compile(
    r"(^|_|\.)(rank|ddp_rank|local_rank|global_rank|seed_offset|worker_id_rank"
    r"|process_index|RANK)$"
)


def seeds(reader: Reader, node: ast.Call, full: str) -> None:
    """manual_seed(seed + rank) and its relatives."""
    known = full in (
        "torch.manual_seed",
        "numpy.random.seed",
        "random.seed",
        "torch.cuda.manual_seed",
        "torch.cuda.manual_seed_all",
        "lightning.seed_everything",
        "transformers.set_seed",
    ) or re.search(r"(^|_)(init_|set_)?(random_)?seeds?(_everything)?$", tail(node.func))
    if not known or not node.args:
        return
    argument = node.args[0]
    places: list[int] = []
    if _ranked(reader, argument, places, 0):
        reader.hit(
            "rng-per-rank",
            node,
            "the seed differs by rank",
            cause=f"seed {reader.func.name}",
            places=places,
            targets=(),
        )


def _ranked(reader: Reader, node: ast.expr, places: list[int], depth: int) -> bool:
    if depth > 3:
        return False
    for one in walk(node):
        if (
            isinstance(one, ast.Call)
            and reader.kind(one) == RANK
            and tail(one.func) not in ("get_world_size", "process_count")
        ):
            return True
        if isinstance(one, ast.Name | ast.Attribute):
            written = text(one)
            if RANK_NAME.search(written) and written != "seed_offset":
                return True
            if isinstance(one, ast.Name):
                bindings = reader.func.scope.find(one.id)
                while bindings is not None:
                    bound = bindings.node
                    if (
                        bindings.how == "value"
                        and isinstance(bound, ast.expr)
                        and (
                            not any(
                                isinstance(part, ast.Name) and part.id == one.id
                                for part in walk(bound)
                            )
                            and _ranked(reader, bound, places, depth + 1)
                        )
                    ):
                        places.append(bound.lineno)
                        return True
                    bindings = bindings.previous
    return False


def script_seed(reader: Reader) -> None:
    """A script with one literal seed for every process: equal sample orders and noise."""
    if not reader.mentions("manual_seed"):
        return
    calls = {
        id(one): one
        for statement in reader.tree.body
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef)
        for one in walk(statement)
        if isinstance(one, ast.Call)
    }
    seeded = [
        one
        for one in calls.values()
        if reader.full(one.func) == "torch.manual_seed"
        and one.args
        and isinstance(one.args[0], ast.Constant)
    ]
    if not seeded or re.search(r"\brank\b|__main__", reader.source):
        return
    if re.search(r"DistributedSampler|fold_in|argparse", reader.source):
        return
    loops = [one for one in reader.tree.body if isinstance(one, ast.For)]
    shuffled = any(
        tail(one.func) == "DataLoader"
        and any(
            k.arg == "shuffle" and isinstance(k.value, ast.Constant) and k.value.value is True
            for k in one.keywords
        )
        for one in calls.values()
    )
    noise = any(
        isinstance(one, ast.Call) and tail(one.func) in ("randn", "rand", "randn_like")
        for loop in loops
        for one in walk(loop)
    )
    if loops and (shuffled or noise):
        reader.hit(
            "rng-per-rank",
            seeded[0],
            "every process draws the same order or noise",
            confidence="possible",
        )


def register(found: Detectors) -> None:
    found.on_call(
        "manual_seed seed manual_seed_all set_seed seed_everything set_random_seed init_seeds "
        "set_seeds seed_all random_seed init_seed setup_seed"
    )(seeds)
    found.finish.append(script_seed)
