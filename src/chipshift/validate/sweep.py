"""The nanotron sweep (CSV): one lab's H100 runs over dp, tp, pp, ZeRO and microbatch."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from chipshift.errors import InputError
from chipshift.jobs.job import Assumed, Given, TrainJob
from chipshift.jobs.plan import Plan
from chipshift.models.count import attention_params
from chipshift.models.model import Attention, DenseMlp, Layer, Model
from chipshift.units import GIB
from chipshift.validate.case import Case, Measured, Skip
from chipshift.validate.convention import Convention, flops_per_token
from chipshift.validate.files import text_of
from chipshift.validate.rows import PRECISIONS
from chipshift.validate.typed import LARGEST_DIM, number_of

SOURCE = "huggingface/nanotron ultrascale playbook sweep"
FF_WIDTH = {2048: 8192, 3072: 8192, 4096: 14336, 8192: 28672, 16384: 53248}
"""Feed-forward width of each model of the sweep, by its hidden size (the CSV leaves it out)."""
COUNTED = Convention(attention=1.0)
"""How the sweep's ``mTFLOPs`` counts: attention whole, the LM head, no recomputation (within 1 % of
tokens a second × FLOPs a token on all 716 timed rows)."""
TIED = frozenset({2048, 3072})
"""Hidden sizes whose models tie the LM head (failed rows do not say)."""
NEEDED = ("status", "dp", "tp", "pp", "mbs", "batch_accum", "nodes", "hidden_size", "num_layers",
          "num_heads", "tok/s/gpu")  # fmt: skip
COUNTS = ("dp", "tp", "pp", "mbs", "batch_accum", "nodes", "hidden_size", "num_layers", "num_heads")


def read_sweep(path: Path) -> list[Case | Skip]:
    """Every data row, its id the 0-based row number; rows that failed otherwise are skipped.

    Raises:
        InputError: the file is not such a table.
    """
    text = text_of(path)
    table = text.lstrip("\n")
    above = len(text) - len(table)
    reader = csv.DictReader(io.StringIO(table, newline=""))
    try:
        reader.fieldnames = [name.strip() for name in reader.fieldnames or []]
        absent = [key for key in NEEDED if key not in reader.fieldnames]
        if absent:
            raise InputError(f"{path}: column '{absent[0]}' is missing (expected the sweep's CSV)")
        return [to_case(row, i, str(path), above + reader.line_num) for i, row in enumerate(reader)]
    except csv.Error as error:
        raise InputError(f"{path}: line {above + reader.line_num} is not CSV ({error})") from None


def _whole(row: Mapping[str, str], key: str, default: int = 0) -> int:
    """A whole number above 0, the default where the cell is empty; 0 where it is no such number."""
    text = (row.get(key) or "").strip()
    found = number_of(text) if text else default
    return int(found) if found and 0 < found <= LARGEST_DIM and not found % 1 else 0


def _unusable(row: Mapping[str, str]) -> str:
    """Why a row cannot be scored, or ''."""
    status = _status(row)
    if status not in ("success", "oom"):
        said = row.get("status") or ""
        return f"status is '{said}': neither timed nor out of memory"
    for key in (*COUNTS, "seq_len", "vocab_size"):
        if not _whole(row, key, {"seq_len": 4096, "vocab_size": 131072}.get(key, 0)):
            return f"{key} is '{row.get(key) or ''}', expected a whole number above 0"
    heads, hidden = _whole(row, "num_heads"), _whole(row, "hidden_size")
    if heads > hidden:
        return f"num_heads is {heads}, more than the hidden size of {hidden}"
    rate = number_of((row.get("tok/s/gpu") or "").strip())
    if status == "success" and not (rate and rate > 0):
        return f"tok/s/gpu is '{row.get('tok/s/gpu') or ''}', expected tokens a second"
    return ""


def _status(row: Mapping[str, str]) -> str:
    return (row.get("status") or "").strip().lower()


def to_case(
    row: Mapping[str, str], index: int, file: str = "", line: int | None = None
) -> Case | Skip:
    """One row as a case; truth is ``status``.

    Step time is dp × mbs × accumulation × seq_len over the tokens a second of all GPUs. Failed
    rows give ``gbs`` in tokens, so the batch is worked out from the degrees.
    """
    why = _unusable(row)
    if why:
        return Skip(str(index), why, line)
    nodes, hidden = _whole(row, "nodes"), _whole(row, "hidden_size")
    dp, tp, pp = (_whole(row, key) for key in ("dp", "tp", "pp"))
    mbs, accumulation = _whole(row, "mbs"), _whole(row, "batch_accum")
    sequences, seq_len = dp * mbs * accumulation, _whole(row, "seq_len", 4096)
    inferred: list[tuple[str, str, str]] = []
    zero = _whole(row, "zero_stage")
    engine = row.get("pp_engine") or ""
    plan = Plan(
        dp=1 if zero == 3 else dp,
        fsdp=dp if zero == 3 else 1,
        tp=tp,
        pp=pp,
        microbatch=float(mbs),
        accumulation=accumulation,
        optimizer_sharding={1: "zero1", 2: "zero2"}.get(zero, "none"),
        schedule="gpipe" if engine.startswith("AllForward") else "1f1b",
        sequence_parallel=(row.get("tp_mode") or "REDUCE_SCATTER") == "REDUCE_SCATTER",
    )
    model = _model(row, hidden, inferred)
    job = TrainJob(
        name=str(index),
        files=(file,),
        format="sweep",
        model=model,
        sequences_per_step=Given(sequences, file, line),
        seq_len=Given(seq_len, file, line),
        precision=Assumed(*PRECISIONS["nanotron"]),
        optimizer=Assumed("adamw", "nanotron's default"),
        stack=Given("nanotron", file),
        plan=Given(plan, file, line),
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
        inferred=tuple(inferred),
        line=line,
        counted=(str(COUNTED), flops_per_token(model, seq_len, COUNTED)),
    )


def _release(row: Mapping[str, str], pp: int, nodes: int) -> str:
    """State of engine and network that a row ran under: the file has three series of runs.

    "0", an early pipeline engine; "1", the repaired one; and as "2" the runs without pipelines that
    were made before both, on a network in order. In the other two every collective of a job of
    several nodes waits about 0.2 ms for each rank (docs/calibration.md has the bandwidths that
    say so). On 64 nodes most runs of the third kind were made under the network of the others.
    """
    if _is(row, "after_pp_fix", "true"):
        return "1"
    if pp > 1:
        return "0"
    return "2" if nodes < 64 else "1"


def _is(row: Mapping[str, str], key: str, word: str) -> bool:
    return (row.get(key) or "").strip().lower() == word


def _model(row: Mapping[str, str], hidden: int, inferred: list[tuple[str, str, str]]) -> Model:
    heads, count = _whole(row, "num_heads"), _whole(row, "num_layers")
    kv_heads = _whole(row, "num_kv_heads", heads) or heads
    width = hidden // heads
    attention = Attention(heads, kv_heads, width, width)
    ff_width = FF_WIDTH.get(hidden) or _ff_width(row, hidden, attention, count, inferred)
    layer = Layer(attention, DenseMlp(ff_width), 2 * hidden)
    said = row.get("tie_word_embeddings") or ""
    return Model(
        name=f"nanotron-{hidden}x{count}",
        architecture="llama",
        d_model=hidden,
        vocab=_whole(row, "vocab_size", 131072),
        layers=((layer, count),),
        layer_order=(0,) * count,
        tied=_is(row, "tie_word_embeddings", "true") if said else hidden in TIED,
        final_norm_params=hidden,
    )


def _ff_width(
    row: Mapping[str, str],
    hidden: int,
    attention: Attention,
    layers: int,
    inferred: list[tuple[str, str, str]],
) -> int:
    """Feed-forward width of a model that is not among the sweep's own five.

    What the parameters (in 1e9, embedding and head once each) leave for three matrices a layer, in
    steps of 256; where they are not stated 3.5 × the hidden size, as in the sweep's 8B and 80B.
    """
    total = number_of((row.get("Total Params Numeric") or "").strip())
    if not total:
        width, why = round(3.5 * hidden / 256) * 256, "not stated: 3.5 × the hidden size"
    else:
        ends = 2 * hidden * _whole(row, "vocab_size", 131072)
        rest = (total * 1e9 - ends) / layers - attention_params(attention, hidden)
        width, why = round(rest / (3 * hidden) / 256) * 256, "what Total Params leaves a layer"
    inferred.append(("feed-forward width", str(max(256, width)), why))
    return max(256, width)


def _measured(row: Mapping[str, str], tokens: float, gpus: int) -> Measured:
    if _status(row) == "oom":
        return Measured(oom=True)
    rate = number_of(row["tok/s/gpu"].strip())
    assert rate is not None  # _unusable

    def of(key: str, unit: float) -> float | None:
        found = number_of((row.get(key) or "").strip())
        return found * unit if found and found > 0 else None

    return Measured(
        step_time_s=tokens / (rate * gpus),
        state_memory_bytes=of("Mem Alloc (GB)", GIB),
        memory_bytes=of("Mem Res (GB)", GIB),
        tflops_per_chip=of("mTFLOPs", 1.0),
    )


def _groups(row: Mapping[str, str], hidden: int, tp: int, pp: int) -> tuple[str, ...]:
    chosen = {
        "width_16384": hidden == 16384,
        "tp_across_nodes": tp > 8,
        "pipeline": pp > 1,
        "early_engine": _is(row, "after_pp_fix", "false"),
        "late_engine": _is(row, "after_pp_fix", "true"),
    }
    return tuple(name for name, member in chosen.items() if member)
