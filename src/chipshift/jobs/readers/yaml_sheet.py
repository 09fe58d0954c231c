"""The common beginning of every YAML reader."""

from __future__ import annotations

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.interpolate import interpolated
from chipshift.jobs.settings import Sheet, flatten
from chipshift.jobs.source import Source
from chipshift.jobs.yaml_lines import parse


def yaml_sheet(source: Source, context: Context, draft: Draft) -> Sheet:
    """The first document's settings, references resolved and ``--set`` laid over.

    Raises:
        InputError: not YAML, or not a table of keys.
    """
    documents = parse(source)
    tree = documents[0].tree if documents else None
    if not isinstance(tree, dict):
        raise InputError(f"{source.path} holds no table of keys; expected a job file")
    settings = flatten(tree, source.path, documents[0].lines)
    context.overrides.lay_over(settings)
    return Sheet(interpolated(settings, context.overrides.given), draft)
