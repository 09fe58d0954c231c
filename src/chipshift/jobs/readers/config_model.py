"""A model from a framework's own architecture keys, by way of the Hugging Face config it equals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs.job import Assumed, Given
from chipshift.jobs.settings import Setting, Sheet, as_boolean, as_integer, wrong
from chipshift.jobs.twin import twin
from chipshift.models.model import Model


def model_of_config(config: Mapping[str, Any], name: str, where: str) -> Model:
    """The model of a config's keys.

    Raises:
        InputError: with the file it came from in front.
    """
    from chipshift.models.hf import read_config

    try:
        model = read_config(config, name=name)
    except InputError as error:
        raise InputError(f"{where}: the model's keys: {error}") from None
    shipped = twin(model, model.vocab)
    return model if shipped is None else replace(model, name=shipped.name)


def put_config_model(
    sheet: Sheet, base: Mapping[str, Any], keys: Mapping[str, str], name: str
) -> None:
    """Build the model from a sheet's keys; where it gives none, the framework's defaults.

    Args:
        base: config keys that hold whatever the sheet says, and defaults.
        keys: sheet key → config key.
    """
    config = dict(base)
    first: Setting | None = None
    for key, target in keys.items():
        found = sheet.raw(key)
        if found is None or found[1].value is None:
            continue
        setting = found[1]
        sheet.record(key, setting, target.replace("_", " "))
        value = setting.value
        if isinstance(value, str):
            number, switch = as_integer(value), as_boolean(value)
            value = number if number is not None else switch if switch is not None else value
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            value = int(value)
        if isinstance(value, (dict, list)):
            raise wrong(key, setting, "a single value")
        config[target] = value
        first = first or setting
    draft = sheet.draft
    model = model_of_config(config, name, first.where if first else draft.file)
    if first is None:
        draft.put("model", Assumed(model, "the framework's default shape; the file gives none"))
    else:
        draft.put("model", Given(model, first.file, first.line))
