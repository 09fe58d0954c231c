"""chipshift's own job file: TOML, validated by ``native_schema``; documented in docs/jobs.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from chipshift.errors import InputError, nearest
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.exact_model import decode_model
from chipshift.jobs.job import Flag, Given, Understood
from chipshift.jobs.optimizers import moments_named
from chipshift.jobs.overrides import Overrides, typed
from chipshift.jobs.settings import Setting
from chipshift.jobs.source import Source
from chipshift.jobs.toml_lines import key_lines, parse
from chipshift.jobs.words import checked_word
from chipshift.models.adapters import Adapters
from chipshift.models.model import Model

if TYPE_CHECKING:
    from pydantic import BaseModel

    from chipshift.jobs.readers.native_schema import ModelTable, NativeJob

PLAN = (
    *("dp", "fsdp", "tp", "cp", "ep", "etp", "pp", "vpp", "microbatch", "accumulation", "remat"),
    *("optimizer_sharding", "schedule", "cp_kind", "ulysses_degree", "sequence_parallel"),
    *("cp_shards", "rings"),
)
JOB = (
    *("seq_len", "tokens_per_step", "optimizer", "stack", "task", "trainable_fraction"),
    *("document_len", "loss_chunks", "loss", "reference"),
)
PRECISION: tuple[str, ...] = (
    "compute",
    "weights",
    "gradients",
    "reduce",
    "master",
    "moments",
    "gather",
)
DEFAULT_WHY = "not stated; the job file's default"


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    tree, lines = parse(source), key_lines(source.text)
    _lay_over(tree, context.overrides)
    table = validated(tree, source.path, lines)
    draft = Draft(source.path, "native")
    draft.reached |= context.overrides.added  # the schema has refused what is no key
    if table.name:
        draft.put("name", Given(table.name, source.path, lines.get("name")))
    if not context.model_named:
        draft.put("model", _model(table.model, source, lines))
    if "teacher" not in context.overrides.given:
        draft.put("teacher", _model(table.teacher, source, lines, "teacher"))
    _take(draft, "job", table.job, JOB, lines)
    if table.job.adapters is not None:
        line = lines.get("job.adapters")
        maps = tuple(sorted((str(op), n) for op, n in table.job.adapters.items()))
        beside = Adapters(maps, table.job.dora)
        draft.put("adapters", Given(beside, source.path, line))
        _note(draft, "job.adapters", table.job.adapters, line)
        if table.job.dora:
            _note(draft, "job.dora", True, lines.get("job.dora"))
    if table.job.sequences_per_step is not None:
        line = lines.get("job.sequences_per_step")
        draft.put("global_batch", Given(table.job.sequences_per_step, source.path, line))
        _note(draft, "job.sequences_per_step", table.job.sequences_per_step, line)
    if table.plan is not None:
        _take(draft, "plan", table.plan, PLAN, lines)
        if table.plan.stage_layers:
            chunks, line = tuple(table.plan.stage_layers), lines.get("plan.stage_layers")
            draft.put("stage_layers", Given(chunks, source.path, line))
            _note(draft, "plan.stage_layers", list(chunks), line)
        draft.open_axis = table.plan.open
        draft.slices_open, draft.slices_known = table.plan.slices_open, table.plan.slices_known
        draft.microbatch_rule = table.plan.microbatch_rule
        draft.uneven_pp, draft.kv_replicated = table.plan.uneven_pp, table.plan.kv_replicated
    _take(draft, "precision", table.precision, PRECISION, lines)
    if table.machine.name:
        draft.put("machine", Given(table.machine.name, source.path, lines.get("machine.name")))
        _note(draft, "machine.name", table.machine.name, lines.get("machine.name"))
    _take(draft, "machine", table.machine, ("devices",), lines)
    draft.assumed += [(entry.what, entry.value, entry.why) for entry in table.assumed]
    for flag in table.flag:
        draft.flags.append(
            Flag(flag.kind, flag.key, flag.value, flag.file or source.path, flag.line)
        )
    return draft


def validated(tree: Mapping[str, Any], file: str, lines: Mapping[str, int]) -> NativeJob:
    """The file's tables as the schema's objects.

    Raises:
        InputError: the first thing wrong, with file, line, key, what was found and expected.
    """
    from pydantic import ValidationError

    from chipshift.jobs.readers.native_schema import NativeJob

    try:
        return _worded(NativeJob.model_validate(tree), file, lines)
    except ValidationError as error:
        found_wrong = error.errors(include_url=False)
    # A key that is missing under its name often stands there under another: say that one first.
    first = next((e for e in found_wrong if e["type"] == "extra_forbidden"), found_wrong[0])
    location = [str(part) for part in first["loc"] if not str(part).startswith("literal")]
    key = ".".join(location)
    line = lines.get(key) or lines.get(".".join(location[:-1]))
    where = file if line is None else f"{file}:{line}"
    if first["type"] == "extra_forbidden":
        raise InputError(f"{where}: unknown key {key}{nearest(location[-1], _siblings(location))}")
    if first["type"] == "missing":
        raise InputError(f"{where}: {key} is missing; expected it in a chipshift job file")
    given = first.get("input")
    quoted = isinstance(given, str) and first["type"].startswith(("int", "float", "bool"))
    found = repr(given)[:60] if quoted else str(given)[:60]  # '4096' is no number
    message = first["msg"].removeprefix("Input should be ")
    words = re.findall(r"'([^']*)'", message) if first["type"] == "literal_error" else []
    hint = nearest(given.lower(), words) if isinstance(given, str) else ""
    raise InputError(f"{where}: {key} is {found or repr('')}; expected {message}{hint}")


WORDS = (("", "name", "name"), ("job", "optimizer", "optimizer"), ("job", "stack", "stack"),
         ("plan", "remat", "remat"), ("machine", "name", "machine"))  # fmt: skip
"""(table, key, field of a job) of words that the schema has no list of: see jobs/words.py."""


def _worded(table: NativeJob, file: str, lines: Mapping[str, int]) -> NativeJob:
    """The same tables with every word in the spelling that the rest of the program has.

    Raises:
        InputError: a word that its field has not, with the nearest.
    """
    for name, key, field in WORDS:
        place = getattr(table, name) if name else table
        if place is None or key not in place.model_fields_set or getattr(place, key) is None:
            continue
        dotted = f"{name}.{key}" if name else key
        line = lines.get(dotted)
        said = f"{file if line is None else f'{file}:{line}'}: {dotted}"
        narrow = moments_named(getattr(place, key)) if key == "optimizer" else None
        if narrow and "moments" not in table.precision.model_fields_set:
            table.precision = table.precision.model_copy(update={"moments": narrow})
        setattr(place, key, checked_word(field, getattr(place, key), said))
    return table


def _siblings(location: list[str]) -> list[str]:
    """Keys that may stand where an unknown one was found."""
    from chipshift.jobs.readers import native_schema

    tables: dict[str, type[BaseModel]] = {
        "job": native_schema.JobTable,
        "plan": native_schema.PlanTable,
        "precision": native_schema.PrecisionTable,
        "machine": native_schema.MachineTable,
        "model": native_schema.ModelTable,
        "teacher": native_schema.ModelTable,
    }
    table = tables.get(location[0]) if len(location) > 1 else None
    return list((table or native_schema.NativeJob).model_fields)


def _lay_over(tree: dict[str, Any], overrides: Overrides) -> None:
    """``--set plan.tp=4`` into the tables."""
    settings: dict[str, Setting] = {}
    overrides.lay_over(settings)
    for dotted in settings:
        *tables, key = dotted.split(".")
        place = tree
        for name in tables:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise InputError(f"--set {dotted}: '{name}' is not a table; expected TABLE.KEY")
        place[key] = typed(overrides.given[dotted])


def _take(
    draft: Draft, table: str, values: Any, names: tuple[str, ...], lines: Mapping[str, int]
) -> None:
    """Fields that the file states; those it does not, and that have a default, are assumed."""
    stated = values.model_fields_set
    for name in names:
        value = getattr(values, name)
        if value is None:
            continue
        if name in stated:
            line = lines.get(f"{table}.{name}")
            draft.put(name, Given(value, draft.file, line))
            _note(draft, f"{table}.{name}", value, line)
        elif name in ("optimizer", "stack", *PRECISION) and value != "":
            draft.assume(name, value, DEFAULT_WHY)


def _note(draft: Draft, key: str, value: object, line: int | None) -> None:
    draft.understood.append(Understood(key, str(value), draft.file, line, key.split(".")[-1]))


def _model(
    table: ModelTable | None, source: Source, lines: Mapping[str, int], key: str = "model"
) -> Given[Model] | None:
    """The model by whichever of the four ways names it."""
    if table is None:
        return None
    named = {name: value for name in table.model_fields_set if (value := getattr(table, name))}
    line = lines.get(key)
    if len(named) != 1:
        found = " and ".join(sorted(named)) or "nothing"
        raise InputError(
            f"{source.path}:{line}: [{key}] holds {found}; expected one of preset, config, hf, "
            "exact"
        )
    from chipshift.models.hf import read_config
    from chipshift.models.preset import preset

    (way,) = named
    line = lines.get(f"{key}.{way}", line)
    if table.preset:
        try:
            model = preset(table.preset)
        except InputError as error:
            raise InputError(f"{source.path}:{line}: {key}.preset: {error}") from None
    elif table.config:
        model = read_config(inside(source.path, table.config, line))
    elif table.hf:
        model = read_config(table.hf, name=str(table.hf.get("_name_or_path") or "model"))
    else:
        model = decode_model(table.exact or {}, f"{source.path}:{line}: {key}.exact")
    return Given(model, source.path, line)


def inside(file: str, relative: str, line: int | None) -> Path:
    """A path named in a file: only in that file's folder or below it.

    Raises:
        InputError: the path leads elsewhere, symbolic links followed.
    """
    folder = Path(file).resolve().parent
    plain = PurePosixPath(relative)
    place = folder / relative
    odd = "\0" in relative  # no path has it
    if odd or plain.is_absolute() or not place.resolve().is_relative_to(folder):
        where = file if line is None else f"{file}:{line}"
        raise InputError(
            f"{where}: {relative!r} lies outside the job file's folder; expected a path inside "
            "it, or --model for one elsewhere"
        )
    return place
