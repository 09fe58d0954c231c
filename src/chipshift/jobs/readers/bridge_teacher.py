"""The teacher of a Megatron-Bridge distillation: which model it is, and what is set of it.

``convert_to_distillation_provider(student, teacher, ...)`` runs the teacher forward, without
gradient, on every sequence, under the student's own degrees of tp, pp and cp. Source: NVIDIA,
Megatron-Bridge, src/megatron/bridge/models/distillation_provider.py, 2026-08.
"""

from __future__ import annotations

from collections.abc import Sequence

from chipshift.jobs import python_tree
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.readers.bridge_library import library
from chipshift.jobs.readers.bridge_walk import Called, Event
from chipshift.jobs.readers.teacher import put_teacher

CONVERSION = "convert_to_distillation_provider"


def conversion(events: Sequence[Event]) -> Called | None:
    """The call that makes a job of a student and a teacher; None in other jobs."""
    return next(
        (one for one in events if isinstance(one, Called) and _last(one) == CONVERSION), None
    )


def of_teacher(path: str, made: Called | None) -> bool:
    """Whether a path is to a field of the teacher: what is set there is not the student's."""
    if made is None:
        return False
    base = teacher_path(made).split(".")[0]
    student = made.takes[0].split(".")[0] if made.takes else ""
    parts = path.split(".")
    return "teacher" in parts or (base not in ("", student) and parts[0] == base)


def teacher_path(made: Called) -> str:
    """``teacher_cfg.model`` of the call, or "" where it takes no plain name."""
    named = made.call.keywords.get("teacher_provider")
    if named is not None:
        return str(named.value)
    return made.takes[1] if len(made.takes) > 1 else ""


def put_bridge_teacher(draft: Draft, context: Context, events: Sequence[Event]) -> None:
    """The teacher of the script's conversion, where it makes one."""
    made = conversion(events)
    if made is not None:
        name = _model(events, teacher_path(made))
        put_teacher(draft, context, "teacher", name, made.file, made.call.line)


def _model(events: Sequence[Event], path: str) -> str:
    """The model that a provider was made from, by the last call that made it; "" if not told."""
    called = [one for one in events if isinstance(one, Called)]
    base = path.split(".")[0]
    for at in range(len(called) - 1, -1, -1):
        one = called[at]
        if not path or one.into not in (path, base):
            continue
        recipe = library().get(_last(one))
        if recipe is not None:
            return recipe.model
        made = one if _last(one) == "from_hf_pretrained" else called[at - 1] if at else one
        words = made.call.arguments[0] if made.call.arguments else None
        if _last(made) == "from_hf_pretrained" and isinstance(words, str):
            return "" if isinstance(words, python_tree.Unknown) else words
    return ""


def _last(event: Called) -> str:
    return event.call.name.rsplit(".", 1)[-1]
