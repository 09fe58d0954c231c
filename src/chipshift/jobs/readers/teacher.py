"""The frozen teacher of a distillation, by the name that a file gives it.

Its forward pass runs on every sequence without gradient, beside the student's, on the same mesh:
NVIDIA, Megatron-Bridge, src/megatron/bridge/models/distillation_provider.py; Google, MaxText,
trainers/post_train/distillation/train_distill.py, 2026-08.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given, Ignored, Understood
from chipshift.models.model import Model

KEY = "teacher"
UNCOUNTED = "the teacher's forward pass and weights are not counted"


def put_teacher(
    draft: Draft, context: Context, key: str, name: str, file: str, line: int | None
) -> None:
    """The teacher as a field of the job, or a note that it is left out and what would count it.

    Teacher and student have one vocabulary: the loss compares their logits (MaxText refuses
    others, and Megatron-Bridge sets the teacher's with the student's).
    """
    from chipshift.models.preset import preset

    if KEY in context.overrides.given:
        return
    try:
        teacher = preset(name) if name else None
    except InputError:
        teacher = None
    if teacher is None:
        named = f": {name} is no shipped model" if name else ""
        why = f"{UNCOUNTED}{named}; --set teacher=PATH of its config.json, or a name, counts it"
        draft.note("task", "the student alone", UNCOUNTED)
        draft.ignored.append(Ignored(key, file, line, True, why))
        return
    student = draft.get("model")
    if isinstance(student, Model) and student.vocab != teacher.vocab:
        why = "the teacher's logits are compared with the student's: one vocabulary"
        draft.note("vocabulary of the teacher", student.vocab, why)
        teacher = replace(teacher, vocab=student.vocab)
    draft.put(KEY, Given(teacher, file, line))
    draft.understood.append(Understood(key, name, file, line, "teacher of the distillation"))
