"""A measured TPU run as programs of one device: the smallest that keep its matmuls' shapes.

A program is one device's part of one microbatch, cut to 4,096 tokens or one sequence (of 8,192
positions at most), with two layers of one kind, no other device and no optimizer. A model whose
layers differ (local and global attention, dense and routed feed-forwards) has a program for each
kind. Experts are cut in the same proportion as the tokens, so that each multiplies as many rows as
in the run; where fewer than the top-k would be left, they are k, and each multiplies every token.

Experts that drop no token (MaxText's megablox: rows sorted by expert, a grouped matmul over parts
of unequal length) are another program than the step's even slots. Such runs are reduced all the
same, to be compared, and marked: a cycle's length does not rest on them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from chipshift.compiled import describe
from chipshift.compiled.step.config import Block, Config
from chipshift.compiled.step.remat_names import choice
from chipshift.errors import InputError
from chipshift.jobs.plan import Plan
from chipshift.validate.case import Case
from chipshift.validate.records import read_records
from chipshift.validate.run import carried

CHIPS = ("v6e", "v5p", "v5e", "v7x")
TOKENS, POSITIONS, LAYERS = 4096, 8192, 2
MEASURED = "measured_training.jsonl"

_CAPACITY = re.compile(r"\bcapacity_factor=([\d.]+)")
_DROPLESS = re.compile(r"\bmegablox=True\b")


@dataclass(frozen=True)
class Reduced:
    """A measured run as programs of one device, and what turns their cycles into the run's.

    Attributes:
        programs: each kind of layer, the most frequent first, with how many the model has.
        times: the run's tokens on a device over a program's.
        same: whether the run's experts, if it has any, are computed as the program's are.
    """

    chip: str
    programs: tuple[tuple[Config, int], ...]
    times: float
    same: bool = True


def reduced(case: Case, notes: str = "") -> Reduced | str:
    """The run's reduction, or why it has none.

    Args:
        notes: of its record, where the sources' flags stand: slots an expert keeps, as a multiple
            of an even routing, or that none is dropped.
    """
    job, plan = case.job, case.plan
    slots = _CAPACITY.search(notes)
    if case.precision != "bf16" or len(case.remats) != 1:
        return "not bf16, or its rematerialisation is not stated"
    if plan.pp > 1:
        return "a pipeline"
    if job.optimizer.value == "muon":
        return "an optimizer with matmuls of its own"
    seq_len = int(job.seq_len.value)
    try:
        config, _ = describe.config(
            job.model, Plan(remat=kept(case.remats[0])), seq_len=seq_len // plan.cp
        )
    except InputError as error:
        return str(error)
    length = min(config.seq_len, POSITIONS)
    part = replace(
        config,
        vocab=-(-config.vocab // plan.tp),
        seq_len=length,
        batch=max(1, TOKENS // length),
        capacity=float(slots.group(1)) if slots else 1.0,
        master_dtype="bfloat16",
        gradient_dtype="bfloat16",
    )
    share = part.batch * length / (plan.microbatch * config.seq_len)
    kinds: Counter[Block] = Counter()
    for unit, repeats in config.segments:
        for block in unit:
            kinds[cut(block, plan, share)] += repeats
    return Reduced(
        case.chip,
        tuple(
            (replace(part, segments=(((block,), LAYERS),)), layers)
            for block, layers in kinds.most_common()
        ),
        plan.accumulation / share,
        same="moe" not in case.groups or not _DROPLESS.search(notes),
    )


def kept(remat: str) -> str:
    """A policy with its offloaded tensors kept: the same matmuls run."""
    saved, moved = choice(remat)
    names = [name for name in (*saved, *moved) if name != "block_input"]
    return f"custom:saved={'+'.join(names)}" if names else "full"


def cut(block: Block, plan: Plan, share: float) -> Block:
    """One device's part of a layer, for this share of the run's tokens."""
    held = block.experts / plan.ep * share
    return replace(
        block,
        heads=block.heads // plan.tp,
        kv_heads=max(1, block.kv_heads // plan.tp),
        mlp_width=block.mlp_width // plan.tp,
        experts=max(block.top_k, round(held)),
        expert_width=block.expert_width // plan.tp,
        shared_width=block.shared_width // plan.tp,
    )


def runs() -> Iterator[tuple[Case, Reduced]]:
    """Measured pretraining runs on TPU that can be reduced."""
    rows = [json.loads(line) for line in carried(MEASURED).read_text("utf8").splitlines() if line]
    notes = {row["id"]: row.get("notes") or "" for row in rows}
    for row in read_records(carried(MEASURED)):
        if not isinstance(row, Case) or row.chip not in CHIPS or row.task != "pretrain":
            continue
        found = reduced(row, notes.get(row.id, ""))
        if row.measured.step_time_s and isinstance(found, Reduced):
            yield row, found


def key(chip: str, config: Config) -> str:
    """A program's name among the results."""
    return json.dumps([chip, json.loads(json.dumps(asdict(config)))], sort_keys=True)
