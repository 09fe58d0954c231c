"""Published training records (one JSON object a line) as jobs, plans and machines."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.job import Assumed, Flag, Given, Stated, TrainJob
from chipshift.jobs.plan import Plan
from chipshift.validate.case import Case, Measured, Skip, fill
from chipshift.validate.rows import (
    Row,
    machine_of,
    missing,
    model_of,
    optimizer_of,
    precision_of,
    remat_of,
)

CHIPS = frozenset(
    ("a100", "h100", "h200", "b200", "b300", "gb200", "gb300", "mi300x", "mi325x", "mi350x",
     "mi355x", "v4", "v5e", "v5p", "v6e", "v7x", "trn1", "trn2", "trn3")
)  # fmt: skip
PLANNERS_ORDER = (
    "none",
    "custom:saved=attention+out_proj+qkv+up",  # norms and activations again
    "custom:saved=attention+out_proj+qkv",  # the whole feed-forward again
    "full",
)
"""What a planner tries where the source does not state the rematerialisation: the least first, in
the steps that Megatron's selective recompute offers."""
STATED = ("id", "source", "stack", "task", "quality")
"""Keys that every record must hold, as text."""
DEVICES = {"v7x": 2, "trn1": 2}
"""Devices a chip in the records' degrees: v7x TensorCores, Trainium1 NeuronCores."""
SHARDED = frozenset({"paxml", "levanter", "torch_xla", "torchax", "maxtext", "torchtitan"})
"""Stacks whose unstated data axis shards the weights (FSDP); the others replicate them."""
PER_DEVICE = frozenset({"maxtext", "paxml"})
"""Stacks that state sequences a device, not a replica."""


def read_records(path: Path) -> list[Case | Skip]:
    """Every row of a records file, usable or skipped.

    Raises:
        InputError: a line that is not JSON or not a record.
    """
    out: list[Case | Skip] = []
    for number, line in enumerate(path.read_text("utf8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}:{number}: not a JSON object ({error})") from None
        if not isinstance(row, dict) or not isinstance(row.get("model"), dict):
            raise InputError(f"{path}:{number}: expected a record, an object with a 'model' object")
        absent = [key for key in STATED if not isinstance(row.get(key), str)]
        if absent:
            raise InputError(f"{path}:{number}: expected a text under '{absent[0]}'")
        out.append(to_case(row, str(path), number))
    return out


def to_case(row: Row, file: str = "", line: int | None = None) -> Case | Skip:
    """One record as a case, or the reason why it cannot be one."""
    id_ = str(row.get("id") or f"line {line}")
    why = _unusable(row)
    if why:
        return Skip(id_, why)
    inferred: list[tuple[str, str, str]] = []
    plan = plan_of(row, inferred)
    if isinstance(plan, str):
        return Skip(id_, plan)
    remat = remat_of(row)
    if remat is None:
        fill(inferred, "remat", "the least that fits", "not stated")
    job = _job(row, plan, file, line, inferred)
    source = str(row["source"])
    return Case(
        id=id_,
        chip=str(row["chip_key"]),
        machine=machine_of(row),
        stack=str(row["stack"]),
        framework=str(row.get("framework") or row["stack"]),
        task=str(row["task"]),
        quality=str(row["quality"]),
        source=source,
        publisher=re.sub(r"[/@:#].*", "", source),
        model=str(row["model"]["name"]).lower(),
        precision=str(row["dtype_class"]),
        job=job,
        plan=plan,
        remats=(remat,) if remat else PLANNERS_ORDER,
        measured=_measured(row),
        groups=_groups(row),
        inferred=tuple(inferred),
        release=release_of(row),
    )


def release_of(row: Row) -> str:
    """``YY.MM`` of a NeMo container or recipe tag, of a MaxText table's date, or '' where the
    source states none."""
    text = f"{row.get('framework') or ''} {row.get('notes') or ''}"
    if row["stack"] == "maxtext":
        dated = re.search(
            r"(?:table dated 20|log line dated 20|at \w+ \(20|tag v)(\d\d)[-.](\d\d)", text
        )
        return f"{dated[1]}.{dated[2]}" if dated else ""
    if row["stack"] not in ("megatron", "other"):  # others take Megatron's constants
        return ""
    found = re.search(r"(?:NeMo|Release|container|tag v?) ?(\d\d\.\d\d(?:\.\d\d)?)", text)
    if found:
        return found[1]
    for pattern, known in (
        (r"MLPerf Training (v\d\.\d)", ROUNDS),
        (r"Megatron-Core (r[\d.]+)", CORES),
    ):
        found = re.search(pattern, text)
        if found:
            return known.get(found[1], "")
    paper = re.match(r"arXiv:(\d\d)(\d\d)\.", str(row["source"]))
    return f"{paper[1]}.{paper[2]}" if paper else ""


ROUNDS = {"v3.0": "23.04", "v3.1": "23.09", "v4.0": "24.04", "v4.1": "24.09", "v5.0": "25.04"}
"""Release of NVIDIA's framework that each MLPerf Training round ran (from its submissions)."""


CORES = {"r0.8.0": "24.07"}
"""Container that each release of Megatron-Core came in (NeMo's changelog)."""


def _unusable(row: Row) -> str:
    """Why a record cannot be scored, or ''."""
    if row.get("chip_key") not in CHIPS:
        return f"no machine file for chip '{row.get('chip_key') or row.get('chip')}'"
    if not row.get("scored_step_time_s"):
        return "no step time can be had from what the source states"
    absent = missing(row["model"])
    if absent:
        return f"the model's {', '.join(absent)} are not stated"
    if not row.get("n_chips"):
        return "the number of chips is not stated"
    if not (row.get("tokens_per_step") or row.get("global_batch")):
        return "neither tokens a step nor the global batch is stated"
    if not row.get("dtype_class"):
        return "the precision is not known"
    return ""


def _measured(row: Row) -> Measured:
    memory = (row.get("measured") or {}).get("hbm_gb")
    return Measured(
        step_time_s=float(row["scored_step_time_s"]),
        memory_bytes=float(memory) * 1e9 if memory else None,
    )


def _groups(row: Row) -> tuple[str, ...]:
    m = row["model"]
    chosen = {
        "moe": bool(m.get("experts")),
        "dense": not m.get("experts"),
        "fp8": row["dtype_class"] in ("fp8", "nvfp4", "int8"),
        "long_context": int(m["seq_len"]) >= 32768,
        "remat_stated": row.get("remat_class") is not None,
    }
    return tuple(name for name, member in chosen.items() if member)


def _sequences(row: Row) -> int:
    tokens, seq = row.get("tokens_per_step"), int(row["model"]["seq_len"])
    return max(1, round(tokens / seq)) if tokens else int(row["global_batch"])


def plan_of(row: Row, inferred: list[tuple[str, str, str]]) -> Plan | str:
    """The plan of a record over devices, or the reason why its degrees make none.

    Missing degrees: tp, cp, pp are 1; the data axis takes the rest (``fsdp`` on stacks that
    shard, else ``dp``). Megatron's printed dp without ep is multiplied by it where only that
    makes the devices; MaxText's own expert axis is a further batch axis and joins fsdp; a dp
    that repeats fsdp is dropped.
    """
    p = {k: v for k, v in (row.get("parallelism") or {}).items() if v is not None}
    stack = str(row["stack"])
    devices = int(row["n_chips"]) * DEVICES.get(str(row["chip_key"]), 1)
    tp, pp, cp = (int(p.get(k) or 1) for k in ("tp", "pp", "cp"))
    ep = int(p.get("ep") or 0) or _dispatched(row, devices // (tp * pp * cp), inferred)
    dp, fsdp = int(p.get("dp") or 1), int(p.get("fsdp") or 1)
    if devices % (tp * pp * cp):
        return f"tp {tp} × pp {pp} × cp {cp} does not divide {devices} devices"
    data = devices // (tp * pp * cp)
    if dp * fsdp != data:
        dp, fsdp = _data_axes(stack, data, dp, fsdp, ep, "dp" in p, inferred)
    zero = p.get("zero")
    sharding = (
        {0: "none", 1: "zero1", 2: "zero2"}.get(int(zero), "none") if zero is not None else ""
    )
    if zero == 3 and fsdp == 1 and dp > 1:
        dp, fsdp = 1, dp
    if not sharding:
        sharding = "zero1" if stack == "megatron" and "dp" in p and ep * dp > 1 else "none"
        if fsdp == 1 and dp > 1:
            fill(inferred, "optimizer sharding", sharding, f"not stated, {stack}'s default")
    microbatch, accumulation = _microbatch(row, dp * fsdp, tp * cp * pp, inferred)
    etp = 0
    if (dp * fsdp * cp) % ep:
        # Megatron's experts may be spread over the tensor-parallel devices as well.
        etp, ep = 1, math.gcd(ep, dp * fsdp * cp * tp)
        fill(inferred, "etp", etp, "the stated ep does not divide dp·fsdp·cp")
    vpp = _virtual_stages(row, pp, p.get("vpp"), inferred)
    remat = remat_of(row)
    return Plan(
        dp=dp,
        fsdp=fsdp,
        tp=tp,
        cp=cp,
        ep=ep,
        etp=etp,
        pp=pp,
        vpp=vpp,
        microbatch=microbatch,
        accumulation=accumulation,
        remat=remat or PLANNERS_ORDER[0],
        optimizer_sharding=sharding if fsdp == 1 and dp > 1 else "none",
        schedule="interleaved" if vpp > 1 else "1f1b",
        cp_kind="ring" if stack in ("torchtitan", "maxtext") else "allgather",
        sequence_parallel=p.get("sp") is not False or tp == 1,
    )


def _dispatched(row: Row, data: int, inferred: list[tuple[str, str, str]]) -> int:
    """Expert parallelism that the notes imply: who names DeepEP sends tokens to their experts."""
    experts = int(row["model"].get("experts") or 1)
    if experts == 1 or "DeepEP" not in str(row.get("notes")):
        return 1
    ep = math.gcd(experts, data)
    fill(inferred, "ep", ep, "not stated: DeepEP is, experts over the data axis")
    return ep


DEEPEST = 12
"""Most virtual stages that Megatron's published recipes use."""


def _virtual_stages(
    row: Row, pp: int, stated: float | None, inferred: list[tuple[str, str, str]]
) -> int:
    """Model chunks a pipeline rank: as stated, else as deep as divides, as Megatron's recipes."""
    if pp == 1:
        return 1
    if stated or str(row["stack"]) not in ("megatron", "other"):
        return int(stated or 1)
    layers = int(row["model"]["layers"])
    # embedding and loss may stand as layers of their own, so that 94 layers cut like 96
    deepest = max(
        (v for v in range(1, DEEPEST + 1) if 0 in (layers % (pp * v), (layers + 2) % (pp * v))),
        default=1,
    )
    fill(inferred, "vpp", deepest, "not stated: the deepest interleaving that divides the layers")
    return deepest


def _data_axes(
    stack: str,
    data: int,
    dp: int,
    fsdp: int,
    ep: int,
    dp_stated: bool,
    inferred: list[tuple[str, str, str]],
) -> tuple[int, int]:
    """dp and fsdp whose product is the devices that hold different data."""
    if stack == "maxtext" and dp * fsdp * ep == data:
        fill(inferred, "fsdp", fsdp * ep, "MaxText's expert axis cuts the batch as well")
        return dp, fsdp * ep
    if fsdp == data and dp_stated:
        fill(inferred, "dp", 1, "the printed dp repeats fsdp")
        return 1, fsdp
    if dp * ep == data and dp_stated:
        fill(inferred, "dp", data, "the printed dp leaves ep out")
        return data, 1
    if fsdp > 1 and data % fsdp == 0:
        fill(inferred, "dp", data // fsdp, "not stated: what the other degrees leave")
        return data // fsdp, fsdp
    if stack in SHARDED or fsdp > 1:
        fill(inferred, "fsdp", data, "not stated: what the other degrees leave, weights sharded")
        return 1, data
    fill(inferred, "dp", data, "not stated: what the other degrees leave")
    return data, 1


def _microbatch(
    row: Row, replicas: int, model_devices: int, inferred: list[tuple[str, str, str]]
) -> tuple[float, int]:
    """Sequences a replica a forward, and forwards a step."""
    each = _sequences(row) / replicas
    stated = row.get("microbatch")
    if not stated:
        microbatch = each if str(row["stack"]) in SHARDED else min(1.0, each)
        fill(inferred, "microbatch", f"{microbatch:g}", "not stated")
    else:
        scale = model_devices if str(row["stack"]) in PER_DEVICE else 1
        microbatch = min(float(stated) * scale, each)
    accumulation = max(1, round(each / microbatch))
    return each / accumulation, accumulation


def _job(
    row: Row, plan: Plan, file: str, line: int | None, inferred: list[tuple[str, str, str]]
) -> TrainJob:
    precision, why = precision_of(row)
    optimizer, stated = optimizer_of(row)
    fill(inferred, "precision of weights, gradients and moments", "", why)
    if not stated:
        fill(inferred, "optimizer", "adamw", "not stated")
    task = str(row["task"])

    def given(value: Any) -> Stated[Any]:
        return Given(value, file, line)

    return TrainJob(
        name=str(row["id"]),
        files=(file,),
        format="record",
        model=model_of(row),
        sequences_per_step=given(_sequences(row)),
        seq_len=given(int(row["model"]["seq_len"])),
        precision=Assumed(precision, why),
        optimizer=given(optimizer) if stated else Assumed("adamw", "not stated"),
        stack=given(str(row["stack"])),
        plan=given(plan),
        task=task,
        trainable_fraction=0.0 if task == "lora" else 1.0,
        flags=_flags(row, file, line),
        assumed=tuple(inferred),
    )


def _flags(row: Row, file: str, line: int | None) -> tuple[Flag, ...]:
    """The attention kernel, where the notes of a PyTorch/XLA run name the older one."""
    if row["stack"] in ("torch_xla", "torchax") and "flash attention" in str(row.get("notes")):
        return (Flag("attention_kernel", "notes", "flash", file, line),)
    return ()


def cases(rows: Iterable[Case | Skip]) -> list[Case]:
    """The rows that can be scored."""
    return [row for row in rows if isinstance(row, Case)]
