"""``read_job``: the files of a job as people have them, in any format, to a ``TrainJob``."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.bases import idle_keys, on_bases
from chipshift.jobs.complete import complete
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft, join
from chipshift.jobs.environment import with_environment
from chipshift.jobs.hydra import composed
from chipshift.jobs.job import Given, Ignored, TrainJob
from chipshift.jobs.overrides import Overrides
from chipshift.jobs.readers.bridge_script import starts_bridge
from chipshift.jobs.recognise import NoFormat, TakesArguments, is_python, recognise
from chipshift.jobs.source import Source, load
from chipshift.jobs.stated_model import stated_model
from chipshift.jobs.unknown_keys import bears
from chipshift.models.model import Model


def read_job(
    paths: Sequence[str],
    *,
    model: str | Model | None = None,
    overrides: Mapping[str, str] | None = None,
) -> TrainJob:
    """Read one job from one or several files; nothing in them is executed.

    Args:
        paths: job files in any format that ``recognise`` knows; several are merged, the one named
            first winning a conflict, which is reported.
        model: a model, preset name or config.json that replaces the model the files name.
        overrides: ``--set`` settings: keys of the file's own format, variables of a script, or
            fields of a job (``seq_len``, ``sequences_per_step``, ``tp`` ...).

    Raises:
        InputError: one sentence naming file, key, what was found and what was expected.
    """
    if not paths:
        raise InputError("no job file was named; expected at least one")
    try:
        return _read(paths, model, dict(overrides or {}))
    except InputError as error:
        # text of a user's file may stand in the message: keep it one printable sentence
        raise InputError("".join(c if c.isprintable() else " " for c in str(error))) from None


def _read(paths: Sequence[str], model: str | Model | None, overrides: dict[str, str]) -> TrainJob:
    laid = Overrides(overrides)
    sources = composed(on_bases([with_environment(load(path), laid) for path in paths]))
    named = named_model(model) if isinstance(model, str) else model
    told = stated_model(laid, _unknown_config(sources)) if named is None else None
    named = named or told
    if told is not None:  # they are the model's, and no keys of the files
        laid.given = {key: text for key, text in laid.given.items() if key not in laid.used}
    teacher = laid.variable("teacher")
    context = Context(
        overrides=laid,
        model_named=named is not None,
        model=None if named is None else Given(named, _source_of(model, told)),
        beside={_base(source): source for source in sources},
    )
    draft = join(_drafts(sources, context))
    draft.put("model", context.model)
    if teacher not in (None, "none"):
        draft.put("teacher", Given(named_model(str(teacher)), "--set"))
    context.overrides.apply(draft)
    return complete(draft, tuple(paths))


def _unknown_config(sources: Sequence[Source]) -> Mapping[str, Any]:
    """The keys of a config of no known architecture among the files; none where there is none."""
    from chipshift.jobs.json_lines import parse
    from chipshift.models.hf import knows, numbers_of

    for source in sources:
        try:
            tree = parse(source)[0] if recognise(source) == "hf_config" else None
        except InputError:
            continue  # the reading of the files says what is wrong
        if isinstance(tree, dict) and not knows(tree):
            return numbers_of(tree)
    return {}


def _source_of(model: str | Model | None, told: Model | None) -> str:
    if told is not None:
        return "--set"
    return "--model" if isinstance(model, str) else "--torch"


def _drafts(sources: list[Source], context: Context) -> list[Draft]:
    """Every file's draft, but for those that another of them takes in (``source conf.sh``)."""
    from chipshift.jobs.readers.transformers import read_alone

    drafts: list[tuple[Source, Draft]] = []
    refusals: list[tuple[Source, InputError]] = []
    for source in sources:
        try:
            drafts.append((source, read_draft(source, context)))
        except TakesArguments as error:
            alone = read_alone(source, context) if len(sources) == 1 else None
            if alone is None:
                refusals.append((source, error))
            else:
                drafts.append((source, alone))
        except InputError as error:
            refusals.append((source, error))
    if not drafts:  # what a known format asks for tells more than a file of none
        raise next((e for _, e in refusals if not isinstance(e, NoFormat)), refusals[0][1])
    for source, refusal in refusals:
        program = isinstance(refusal, TakesArguments) or is_python(source.text)
        idle = isinstance(refusal, NoFormat) and not program and idle_keys(source)
        if not (program or idle or _base(source) in context.consumed):
            raise refusal
        if _base(source) in context.consumed:
            continue
        if idle:
            why = "in no format known here, and no key of it bears on time or memory by its name"
            drafts[0][1].ignored.append(Ignored(_base(source), source.path, None, False, why))
        if program:
            why = "a program, or a part of one: what it sets beside its arguments is not read"
            drafts[0][1].ignored.append(Ignored(_base(source), source.path, None, True, why))
    own = [draft for source, draft in drafts if _base(source) not in context.consumed]
    return own or [draft for _, draft in drafts]


def _base(source: Source) -> str:
    return source.path.rsplit("/", 1)[-1]


def read_draft(source: Source, context: Context) -> Draft:
    """One file as a draft, by the reader that its content asks for.

    Raises:
        InputError: the file is in no known format, cannot be read, or takes in itself.
    """
    if context.reading.count(source.path) > 1:  # a manifest's own script bears its name once more
        raise InputError(f"{source.path} starts itself; expected another file")
    try:
        form = recognise(source)
    except NoFormat:
        if not _starts_program(source, context):
            raise
        form = "wrapper"
    if form == "megatron" and starts_bridge(source, context):
        form = "wrapper"  # the arguments are those of the script that it starts
    reader = importlib.import_module(f"chipshift.jobs.readers.{form}")
    context.reading.append(source.path)
    try:
        draft: Draft = reader.read(source, context)
    finally:
        context.reading.pop()
    for key, line in source.twice.items():
        why = f"written twice with two values: that of line {line} was taken, as parsers do"
        taken = any(one.key == key or one.key.startswith(f"{key}.") for one in draft.understood)
        matters = taken or bears(key, True)
        draft.ignored.append(Ignored(key, source.path, line, matters, why))
    return draft


_COMMAND = re.compile(r"^[^#\n]*\bpython3?[ \t]+(?:-\w+[ \t]+)*([\w./-]+\.py)\b", re.M)


def _starts_program(source: Source, context: Context) -> bool:
    """Whether a file of no known launcher starts a Python program that is given beside it."""
    if is_python(source.text):
        return False
    started = (name.rsplit("/", 1)[-1] for name in _COMMAND.findall(source.text[:100_000]))
    return any(name in context.beside for name in started)


def named_model(name: str) -> Model:
    """A model by preset name or by the path of its config.json.

    Raises:
        InputError: neither a preset nor a file that can be read.
    """
    from chipshift.models.hf import read_config
    from chipshift.models.preset import preset

    if name.endswith(".json") or os.path.exists(name):  # never raises, unlike Path.exists
        return read_config(name)
    return preset(name)
