"""``read_job``: the files of a job as people have them, in any format, to a ``TrainJob``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from chipshift.errors import InputError
from chipshift.jobs.complete import complete
from chipshift.jobs.draft import Draft, join
from chipshift.jobs.job import Given, TrainJob
from chipshift.jobs.overrides import Overrides
from chipshift.jobs.recognise import recognise
from chipshift.jobs.source import Source, load
from chipshift.models.model import Model


def read_job(
    paths: Sequence[str],
    *,
    model: str | None = None,
    overrides: Mapping[str, str] | None = None,
) -> TrainJob:
    """Read one job from one or several files; nothing in them is executed.

    Args:
        paths: job files in any format that ``recognise`` knows; several are merged, the one named
            first winning a conflict, which is reported.
        model: preset name or config.json that replaces the model the files name.
        overrides: ``--set`` settings: keys of the file's own format, variables of a script, or
            fields of a job (``seq_len``, ``sequences_per_step``, ``tp`` ...).

    Raises:
        InputError: one sentence naming file, key, what was found and what was expected.
    """
    if not paths:
        raise InputError("no job file was named; expected at least one")
    settings = Overrides(dict(overrides or {}))
    named = named_model(model) if model is not None else None
    drafts = [read_draft(load(path), settings, named is not None) for path in paths]
    draft = join(drafts)
    if named is not None:
        draft.put("model", Given(named, "--model"))
    settings.apply(draft)
    return complete(draft, tuple(paths))


def read_draft(source: Source, settings: Overrides, model_named: bool = False) -> Draft:
    """One file as a draft, by the reader that its content asks for.

    Args:
        model_named: ``--model`` was given, so that a reader need not resolve the file's own.
    """
    form = recognise(source)
    reader = importlib.import_module(f"chipshift.jobs.readers.{form}")
    draft: Draft = reader.read(source, settings, model_named)
    return draft


def named_model(name: str) -> Model:
    """A model by preset name or by the path of its config.json.

    Raises:
        InputError: neither a preset nor a file that can be read.
    """
    from chipshift.models.hf import read_config
    from chipshift.models.preset import preset

    place = Path(name)
    if place.suffix == ".json" or "/" in name or place.exists():
        return read_config(name)
    return preset(name)
