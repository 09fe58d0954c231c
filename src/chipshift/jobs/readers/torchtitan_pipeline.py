"""torchtitan's pipeline: schedule, microbatches, and the layers of each stage.

Keys and arithmetic: PyTorch, torchtitan, torchtitan/distributed/pipeline_parallel.py, from 2024-06
to 2026-08.
"""

from __future__ import annotations

from chipshift.errors import InputError
from chipshift.jobs.job import Given
from chipshift.jobs.settings import Setting, Sheet, wrong
from chipshift.jobs.stages import of_rows, of_splits, of_torchtitan, told

SCHEDULES = {
    "1f1b": "1f1b",
    "gpipe": "gpipe",
    "interleaved1f1b": "interleaved",
    "loopedbfs": "interleaved",
    "interleavedzerobubble": "zero_bubble",
    "zbvzerobubble": "zero_bubble",
    "dualpipev": "zero_bubble",
}
V_SHAPED = ("zbvzerobubble", "dualpipev")
"""Schedules whose chunks come back to the first stage; their layers are taken as even."""


def put_pipeline(sheet: Sheet) -> None:
    """Within a pipeline the local batch is itself cut into microbatches."""
    draft = sheet.draft
    keys = ("parallelism.", "experimental.")
    size = sheet.integer(
        *(k + "pipeline_parallel_microbatch_size" for k in keys), into="microbatch in the pipeline"
    )
    count = sheet.integer(
        *(k + "pipeline_parallel_microbatches" for k in keys),
        into="microbatches a step",
        none=(-1,),
    )
    schedule = sheet.text(
        *(k + "pipeline_parallel_schedule" for k in keys), into="pipeline schedule"
    )
    per_stage = sheet.integer(
        "parallelism.pipeline_parallel_layers_per_stage", into="layers a virtual stage"
    )
    stages = draft.get("pp") or 1
    if stages == 1:
        return
    name = schedule.value if schedule else "1F1B"
    kind = SCHEDULES.get(name.lower().replace("_", ""))
    if kind is None:
        found = sheet.raw(*(k + "pipeline_parallel_schedule" for k in keys))
        assert found is not None
        raise wrong(found[0], found[1], "one of " + ", ".join(SCHEDULES))
    line = schedule.line if schedule else None
    draft.put("schedule", Given(kind, draft.file, line))
    looped = name.lower() not in ("1f1b", "gpipe")
    if per_stage and draft.get("model") is not None:
        weighed = draft.get("model").n_layers + sum(_ends(sheet))
        virtual = max(1, round(-(-weighed // per_stage.value) / stages))
        draft.put("vpp", Given(virtual, per_stage.file, per_stage.line))
    elif looped:
        draft.assume("vpp", 2, "torchtitan's default of two virtual stages a rank")
    _stage_layers(sheet, name)
    local = draft.get("microbatch")
    micro = size.value if size else 1
    if count and local % count.value == 0:
        micro = local // count.value
    if local % micro:
        raise InputError(
            f"{draft.file}: training.local_batch_size {local} is not a multiple of the pipeline's "
            f"microbatch {micro}; expected a multiple"
        )
    draft.put("microbatch", Given(micro, draft.file, size.line if size else None))
    if draft.get("global_batch") is None:
        draft.put("accumulation", Given(local // micro, draft.file))


ENDS = (
    "parallelism.pipeline_parallel_first_stage_less_layers",
    "parallelism.pipeline_parallel_last_stage_less_layers",
)


def _ends(sheet: Sheet) -> tuple[int, int]:
    """Layers that the embedding and the head weigh."""
    first = sheet.integer(ENDS[0], into="layers the embedding weighs", low=0)
    last = sheet.integer(ENDS[1], into="layers the head weighs", low=0)
    return (1 if first is None else first.value, 1 if last is None else last.value)


def _stage_layers(sheet: Sheet, schedule: str) -> None:
    """Layers of each chunk: stated by module names, else the embedding and head weigh layers."""
    draft = sheet.draft
    keys = ("parallelism.", "experimental.")
    parts = sheet.raw(*(k + "module_fqns_per_model_part" for k in keys))
    points = tuple(k + "pipeline_parallel_split_points" for k in keys)
    splits = sheet.strings(*points, into="first layers of the stages")
    splits = splits if splits is not None and splits.value else None
    embedding, head = _ends(sheet)
    model, pp, vpp = draft.get("model"), draft.get("pp"), draft.get("vpp") or 1
    if parts is not None:
        key, setting = parts
        sheet.record(key, setting, "layers of each model chunk")
        chunks = of_rows(setting.value)
        if chunks is None or len(chunks) % pp:
            raise wrong(
                key, setting, f"a list of module names for each of a multiple of {pp} parts"
            )
        draft.put("vpp", Given(len(chunks) // pp, setting.file, setting.line))
        draft.put("stage_layers", Given(chunks, setting.file, setting.line))
    elif model is None or schedule.lower() in V_SHAPED:
        return
    elif splits is not None:
        chunks = of_splits(model.n_layers, splits.value)
        if chunks is None or len(chunks) % pp:
            key, setting = sheet.raw(*points) or ("", Setting("", draft.file))
            raise wrong(key, setting, f"the first layer of all but one of {pp} or more stages")
        draft.put("vpp", Given(len(chunks) // pp, splits.file, splits.line))
        draft.put("stage_layers", Given(chunks, splits.file, splits.line))
    else:
        chunks = of_torchtitan(model.n_layers, pp * vpp, embedding, head)
        if chunks is None or len(set(chunks)) == 1:
            return
        line = next((sheet.settings[k].line for k in ENDS if k in sheet.settings), None)
        draft.put("stage_layers", Given(chunks, draft.file, line))
    why = f"embedding and head weigh {embedding} and {head} layers"
    if parts is not None or splits is not None:
        why = "as the file splits them"
    draft.note("layers a stage", told(chunks, pp), f"{why}; the heaviest stage sets the pace")
