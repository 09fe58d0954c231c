"""The teacher of a Megatron-Bridge distillation: which model it is, and what is left uncounted.

``convert_to_distillation_provider(student, teacher, ...)`` runs the teacher forward, without
gradient, on every sequence, under the student's own degrees of tp, pp and cp. Source: NVIDIA,
Megatron-Bridge, src/megatron/bridge/models/distillation_provider.py, 2026-08.
"""

from __future__ import annotations

from collections.abc import Sequence

from chipshift.errors import InputError
from chipshift.jobs import python_tree
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Ignored
from chipshift.jobs.readers.bridge_library import library
from chipshift.jobs.readers.bridge_walk import Called, Event
from chipshift.models.model import Model

CONVERSION = "convert_to_distillation_provider"
UNCOUNTED = "the teacher's forward pass and weights are not counted"


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


def say_teacher(draft: Draft, events: Sequence[Event]) -> None:
    """Note the teacher as ignored and of weight, with its size where its model is known."""
    made = conversion(events)
    if made is None:
        return
    name = _model(events, teacher_path(made))
    student = draft.get("model")
    why = UNCOUNTED + _size(name, student if isinstance(student, Model) else None)
    draft.note("task", "the student alone", UNCOUNTED)
    draft.ignored.append(Ignored("teacher", made.file, made.call.line, True, why))


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


def _size(name: str, student: Model | None) -> str:
    """Its parameters, the bytes of its weights in bf16, and its matmuls beside the student's.

    A forward pass is 2 FLOP for each active parameter and token, the student's step 6.
    """
    from chipshift.models.count import params, params_active
    from chipshift.models.preset import preset

    if not name:
        return ""
    try:
        teacher = preset(name)
    except InputError:
        return f": {name}"
    count = params(teacher)
    whole = f": {name}, {count / 1e9:.3g} B parameters, {2 * count / 1e9:.3g} GB of bf16 weights"
    if student is None:
        return whole
    share = params_active(teacher) / (3 * params_active(student))
    return f"{whole} over tp and pp, and about {share:.0%} more FLOP than the student's step"


def _last(event: Called) -> str:
    return event.call.name.rsplit(".", 1)[-1]
