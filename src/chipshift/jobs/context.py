"""What a reader may know besides its own file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.overrides import Overrides
from chipshift.jobs.shell.values import Field
from chipshift.jobs.source import Source
from chipshift.models.model import Model


@dataclass
class Context:
    """Shared by the readers of one job.

    Attributes:
        overrides: what ``--set`` lays over the files.
        model_named: ``--model`` was given: a reader need not resolve the file's own model.
        model: that model, for what else depends on it.
        beside: every file of the job by base name, for those that name one another.
        consumed: base names that another file has taken in (``source``, ``--deepspeed``).
        reading: paths of the files that are being read, each taken in by the one before.
        environment: variables that the script which starts this one exports.
    """

    overrides: Overrides = field(default_factory=lambda: Overrides({}))
    model_named: bool = False
    model: Given[Model] | None = None
    beside: Mapping[str, Source] = field(default_factory=dict)
    consumed: set[str] = field(default_factory=set)
    reading: list[str] = field(default_factory=list)
    environment: Mapping[str, Field] = field(default_factory=dict)

    def neighbour(self, path: str) -> Source | None:
        """The file of that name among those the user gave; no other file is ever opened."""
        base = path.replace("\\", "/").rsplit("/", 1)[-1]
        found = self.beside.get(base)
        if found is not None:
            self.consumed.add(base)
        return found

    def put_model(self, draft: Draft) -> None:
        """The model that ``--model`` names, for stages and layers that the files count by it."""
        draft.put("model", self.model)

    def texts(self) -> dict[str, str]:
        return {name: source.text for name, source in self.beside.items()}
