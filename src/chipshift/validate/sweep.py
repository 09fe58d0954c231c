"""The nanotron sweep (CSV): one lab's H100 runs over dp, tp, pp, ZeRO and microbatch."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from chipshift.errors import InputError
from chipshift.jobs.job import Assumed, Given, TrainJob
from chipshift.jobs.plan import Plan
from chipshift.models.model import Attention, DenseMlp, Layer, Model
from chipshift.units import GIB
from chipshift.validate.case import Case, Measured, Skip
from chipshift.validate.rows import PRECISIONS

SOURCE = "huggingface/nanotron ultrascale playbook sweep"
FF_WIDTH = {2048: 8192, 3072: 8192, 4096: 14336, 8192: 28672, 16384: 53248}
"""Feed-forward width of each model of the sweep, by its hidden size (the CSV leaves it out)."""
TIED = frozenset({2048, 3072})
"""Hidden sizes whose models tie the LM head (failed rows do not say)."""
NEEDED = ("status", "dp", "tp", "pp", "mbs", "batch_accum", "nodes", "hidden_size", "num_layers",
          "num_heads", "tok/s/gpu")  # fmt: skip


def read_sweep(path: Path) -> list[Case | Skip]:
    """Every data row, its id the 0-based row number; rows that failed otherwise are skipped.

    Raises:
        InputError: the file is not such a table.
    """
    with path.open(newline="", encoding="utf8") as file:
        reader = csv.DictReader(file)
        absent = [key for key in NEEDED if key not in (reader.fieldnames or [])]
        if absent:
            raise InputError(f"{path}: column '{absent[0]}' is missing (expected the sweep's CSV)")
        return [to_case(row, i, str(path)) for i, row in enumerate(reader)]


def _whole(row: Mapping[str, str], key: str, default: int = 1) -> int:
    text = row.get(key) or ""
    return int(float(text)) if text else default


def to_case(row: Mapping[str, str], index: int, file: str = "") -> Case | Skip:
    """One row as a case; truth is ``status``.

    Step time is dp × mbs × accumulation × seq_len over the tokens a second of all GPUs. Failed
    rows give ``gbs`` in tokens, so the batch is worked out from the degrees.
    """
    status = row["status"]
    if status not in ("Success", "OOM"):
        return Skip(str(index), f"status is '{status}': neither timed nor out of memory")
    nodes, hidden = _whole(row, "nodes"), _whole(row, "hidden_size")
    if hidden not in FF_WIDTH:
        return Skip(str(index), f"the feed-forward width of hidden size {hidden} is not known")
    dp, tp, pp = (_whole(row, key) for key in ("dp", "tp", "pp"))
    mbs, accumulation = _whole(row, "mbs"), _whole(row, "batch_accum")
    sequences, seq_len = dp * mbs * accumulation, _whole(row, "seq_len", 4096)
    engine = row.get("pp_engine") or ""
    plan = Plan(
        dp=dp,
        tp=tp,
        pp=pp,
        microbatch=float(mbs),
        accumulation=accumulation,
        optimizer_sharding={0: "none", 1: "zero1"}[_whole(row, "zero_stage", 0)],
        schedule="gpipe" if engine.startswith("AllForward") else "1f1b",
        sequence_parallel=(row.get("tp_mode") or "REDUCE_SCATTER") == "REDUCE_SCATTER",
    )
    model = _model(row, hidden)
    job = TrainJob(
        name=str(index),
        files=(file,),
        format="sweep",
        model=model,
        sequences_per_step=Given(sequences, file, index + 2),
        seq_len=Given(seq_len, file, index + 2),
        precision=Assumed(*PRECISIONS["nanotron"]),
        optimizer=Assumed("adamw", "nanotron's default"),
        stack=Given("nanotron", file),
        plan=Given(plan, file, index + 2),
    )
    return Case(
        id=str(index),
        chip="h100",
        machine=f"h100*{8 * nodes}",
        stack="nanotron",
        framework="nanotron",
        task="sweep",
        quality="A",
        source=SOURCE,
        publisher="huggingface",
        model=model.name,
        precision="bf16",
        job=job,
        plan=plan,
        remats=("none",),
        measured=_measured(row, sequences * seq_len, 8 * nodes),
        groups=_groups(row, hidden, tp, pp),
        release=_release(row, pp, nodes),
    )


def _release(row: Mapping[str, str], pp: int, nodes: int) -> str:
    """State of engine and network that a row ran under: the file has three series of runs.

    "0", an early pipeline engine; "1", the repaired one; and as "2" the runs without pipelines that
    were made before both, on a network in order. In the other two every collective of a job of
    several nodes waits about 0.2 ms for each rank (docs/calibration.md has the bandwidths that
    say so). On 64 nodes most runs of the third kind were made under the network of the others.
    """
    if row.get("after_pp_fix") == "True":
        return "1"
    if pp > 1:
        return "0"
    return "2" if nodes < 64 else "1"


def _model(row: Mapping[str, str], hidden: int) -> Model:
    heads = _whole(row, "num_heads")
    kv_heads = _whole(row, "num_kv_heads", heads)
    width = hidden // heads
    layer = Layer(Attention(heads, kv_heads, width, width), DenseMlp(FF_WIDTH[hidden]), 2 * hidden)
    count = _whole(row, "num_layers")
    said = row.get("tie_word_embeddings") or ""
    return Model(
        name=f"nanotron-{hidden}x{count}",
        architecture="llama",
        d_model=hidden,
        vocab=_whole(row, "vocab_size", 131072),
        layers=((layer, count),),
        layer_order=(0,) * count,
        tied=said == "True" if said else hidden in TIED,
        final_norm_params=hidden,
    )


def _measured(row: Mapping[str, str], tokens: float, gpus: int) -> Measured:
    if row["status"] == "OOM":
        return Measured(oom=True)
    rate = float(row["tok/s/gpu"])

    def size(key: str) -> float | None:
        return float(row[key]) * GIB if row.get(key) else None

    return Measured(tokens / (rate * gpus), size("Mem Alloc (GB)"), size("Mem Res (GB)"))


def _groups(row: Mapping[str, str], hidden: int, tp: int, pp: int) -> tuple[str, ...]:
    chosen = {
        "width_16384": hidden == 16384,
        "tp_across_nodes": tp > 8,
        "pipeline": pp > 1,
        "early_engine": row.get("after_pp_fix") == "False",
        "late_engine": row.get("after_pp_fix") == "True",
    }
    return tuple(name for name, member in chosen.items() if member)
