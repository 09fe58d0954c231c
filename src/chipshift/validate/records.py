"""Published training records (one JSON object a line) as jobs, plans and machines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.job import Assumed, Flag, Given, Stated, TrainJob
from chipshift.jobs.plan import Plan
from chipshift.models.model import Model
from chipshift.validate.case import Case, Measured, Skip, fill
from chipshift.validate.convention import convention_of, flops_per_token, stated_tflops
from chipshift.validate.files import text_of
from chipshift.validate.gaps import Inferred, completed
from chipshift.validate.maxtext_recipes import day_of, kernel_flags, maxtext_recipe_of
from chipshift.validate.plans import plan_of, planners_order, plans_to_try, sequences
from chipshift.validate.recipes import Recipe, degrees_run, recipe_of
from chipshift.validate.rows import (
    LARGEST_SLICE,
    Row,
    compute_of,
    machine_of,
    missing,
    model_of,
    optimizer_of,
    precision_of,
    release_of,
    remat_of,
)
from chipshift.validate.tuning import FineTuning, fine_tuning


def read_records(path: Path) -> list[Case | Skip]:
    """Every row of a records file, usable or skipped; a line that is no record is skipped too.

    Raises:
        InputError: no line is a record.
    """
    out: list[Case | Skip] = []
    broken = 0
    for number, line in enumerate(text_of(path).split("\n"), 1):
        if not line.strip():
            continue
        row = _record_of(line)
        if isinstance(row, str):
            broken += 1
            out.append(Skip(f"line {number}", row, number))
        else:
            out.append(to_case(row, str(path), number))
    if out and broken == len(out):
        first = out[0]
        assert isinstance(first, Skip)
        raise InputError(f"{path}:{first.line}: {first.why}")
    return out


def _record_of(line: str) -> Row | str:
    """The record that a line holds, or why it holds none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"not a JSON object ({error})"
    if not isinstance(row, dict) or not isinstance(row.get("model"), dict):
        return "expected a record, an object with a 'model' object"
    return row


def to_case(row: Row, file: str = "", line: int | None = None) -> Case | Skip:
    """One record as a case, or the reason why it cannot be one."""
    row, inferred = completed(row, line)
    id_ = str(row["id"])
    why = _unusable(row)
    if why:
        unread = [clause for what, _, clause in inferred if what == "unreadable"]
        return Skip(id_, "; ".join([why, *unread]), line)
    row = _as_run(row, inferred)
    model = model_of(row)
    plan = plan_of(row, model, inferred)
    plans = plans_to_try(row, model, plan)
    if len(plans) > 1:
        fill(inferred, "ep, tp and pp", "the least that fit", "no degree is stated")
    tuned = fine_tuning(row)
    inferred += tuned.inferred
    recipe = _recipe(row)
    remat = remat_of(row) or tuned.remat
    if not remat and recipe:
        remat = recipe.remat
        fill(inferred, "remat", remat, "the recipe's recompute_modules")
    elif not remat:
        fill(inferred, "remat", "the least that fits", "not stated")
    job = _job(row, model, plan, tuned, file, line, inferred)
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
        publisher=publisher_of(source),
        model=str(row["model"]["name"]).lower(),
        precision=str(row["dtype_class"]),
        job=job,
        plan=plan,
        wider=plans[1:],
        remats=(remat,) if remat else planners_order(model),
        measured=_measured(row),
        groups=_groups(row, model),
        counted=_counted(row, model),
        line=line,
        inferred=tuple(inferred),
        release=release_of(row),
    )


def publisher_of(source: str) -> str:
    """Owner of a repository, or the site, that a source's page belongs to."""
    page = re.sub(r"^https?://(www\.)?(github\.com/)?", "", source)
    return re.sub(r"[/@:#].*", "", page)


def _unusable(row: Row) -> str:
    """Why a record cannot be scored, or ''."""
    if not row.get("chip_key"):
        return f"no machine file for chip '{row.get('chip') or 'not stated'}'"
    if not row.get("scored_step_time_s"):
        return "no step time can be had from what the source states"
    absent = missing(row["model"])
    if absent:
        return f"the model's {', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not stated"
    m = row["model"]
    if not m.get("preset") and not m.get("head_dim") and m["heads"] > m["d_model"]:
        return f"the model has {m['heads']} heads, more than its width of {m['d_model']}"
    if not row.get("n_chips"):
        return "the number of chips is not stated"
    if not (row.get("tokens_per_step") or row.get("global_batch")):
        return "neither tokens a step nor the global batch is stated"
    return ""


def _measured(row: Row) -> Measured:
    memory = (row.get("measured") or {}).get("hbm_gb")
    return Measured(
        step_time_s=float(row["scored_step_time_s"]),
        memory_bytes=float(memory) * 1e9 if memory else None,
        tflops_per_chip=stated_tflops(row),
    )


def _counted(row: Row, model: Model) -> tuple[str, float | None]:
    """The source's convention in words, and this model's FLOPs of a token by it."""
    convention = convention_of(row)
    if convention is None:
        return "", None
    return str(convention), flops_per_token(model, int(row["model"]["seq_len"]), convention)


def _groups(row: Row, model: Model) -> tuple[str, ...]:
    chosen = {
        "moe": model.routed,
        "dense": not model.routed,
        "fp8": row["dtype_class"] in ("fp8", "nvfp4", "int8"),
        "long_context": int(row["model"]["seq_len"]) >= 32768,
        "remat_stated": row.get("remat_class") is not None,
    }
    return tuple(name for name, member in chosen.items() if member)


def _job(
    row: Row,
    model: Model,
    plan: Plan,
    tuned: FineTuning,
    file: str,
    line: int | None,
    inferred: Inferred,
) -> TrainJob:
    precision, why = precision_of(row)
    if tuned.weights:
        precision = replace(precision, weights=tuned.weights)
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
        model=model,
        sequences_per_step=given(sequences(row)),
        seq_len=given(int(row["model"]["seq_len"])),
        precision=Assumed(precision, why),
        optimizer=given(optimizer) if stated else Assumed("adamw", "not stated"),
        stack=given(str(row["stack"])),
        plan=given(plan),
        task=task,
        trainable_fraction=0.0 if task == "lora" else 1.0,
        adapters=tuned.adapters,
        document_len=tuned.document_len,
        loss_chunks=_loss_chunks(row),
        flags=_flags(row, file, line),
        assumed=tuple(inferred),
    )


def _loss_chunks(row: Row) -> int:
    """Pieces that the logits are made in, where MaxText's flags say (num_vocab_tiling)."""
    found = re.search(r"\bnum_vocab_tiling=(\d+)", str(row.get("notes") or ""))
    return int(found[1]) if found else 1


def _flags(row: Row, file: str, line: int | None) -> tuple[Flag, ...]:
    """What notes say of kernels: PyTorch/XLA's and MaxText's older attention; AutoModel without
    Transformer Engine (TE), which is Hugging Face's modules run op by op (``force_hf`` of its
    recipes)."""
    recipe = _recipe(row)
    if row["stack"] == "megatron":
        scaled = "current scaling" in str(row.get("dtype"))
        how = (Flag("fp8_recipe", "dtype", "current scaling", file, line),) if scaled else ()
        return how + (recipe.flags(file, line) if recipe else ())
    if row["stack"] == "maxtext" and row["chip_key"] in LARGEST_SLICE:
        return _maxtext_flags(row, file, line)
    if row["stack"] == "automodel" and not re.search(r"\bTE\b", str(row.get("notes"))):
        return (Flag("eager_modules", "notes", "no TE", file, line),)
    if row["stack"] in ("torch_xla", "torchax") and "flash attention" in str(row.get("notes")):
        return (Flag("attention_kernel", "notes", "flash", file, line),)
    return ()


def _recipe(row: Row) -> Recipe | None:
    """NVIDIA's recipe that a pretraining run of Megatron-Bridge was."""
    return recipe_of(*_recipe_keys(row)) if _runs_recipes(row) else None


def _runs_recipes(row: Row) -> bool:
    return bool(row["stack"] == "megatron" and row["task"] == "pretrain")


def _recipe_keys(row: Row) -> tuple[str, str, str, str]:
    """Model, chip, precision and release, as the tables of recipes name them."""
    name, chip = str(row["model"]["name"]).lower(), str(row["chip_key"])
    return name, chip, compute_of(row), release_of(row)


def _as_run(row: Row, inferred: Inferred) -> Row:
    """A record with the degrees of its recipe where its table misprints them."""
    if not _runs_recipes(row):
        return row
    degrees = dict(row["parallelism"])
    ran = degrees_run(*_recipe_keys(row), degrees | {"microbatch": row.get("microbatch")})
    if not ran:
        return row
    for key, value in ran.items():
        fill(inferred, key, str(value), "the recipe's: its table misprints it")
    degrees |= {key: value for key, value in ran.items() if key != "microbatch"}
    degrees.pop("dp", None)  # it takes what the others leave of the devices
    return {**row, "parallelism": degrees, "microbatch": ran.get("microbatch", row["microbatch"])}


def _maxtext_flags(row: Row, file: str, line: int | None) -> tuple[Flag, ...]:
    """Kernels of MaxText's attention on a TPU, and whether 8-bit operands have a fixed range."""
    name, notes = str(row["model"]["name"]).lower(), str(row.get("notes") or "")
    length, precision = int(row["model"]["seq_len"]), str(row["dtype_class"])
    recipe = maxtext_recipe_of(name, str(row["chip_key"]), precision, length, day_of(notes))
    return kernel_flags(recipe, notes, file, line)


def cases(rows: Iterable[Case | Skip]) -> list[Case]:
    """The rows that can be scored."""
    return [row for row in rows if isinstance(row, Case)]
