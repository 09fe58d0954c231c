"""How forks of nanoGPT shard: FSDP, PyTorch's ZeroRedundancyOptimizer, DeepSpeed's stages.

A fork's train.py is not in its config, so each key is taken by what its name means elsewhere, which
the reading says.
"""

from __future__ import annotations

from chipshift.jobs.job import Given
from chipshift.jobs.settings import Sheet

FSDP = ("use_fsdp", "fsdp", "enable_fsdp")
ZERO1 = ("use_zero1", "zero1", "use_zero", "use_zero_redundancy", "use_zero_optimizer")
DEEPSPEED = ("deepspeed", "use_deepspeed")
STAGES = {0: "ddp", 1: "zero1", 2: "zero2", 3: "fsdp"}


def put_fork_sharding(sheet: Sheet) -> None:
    """What a fork's keys shard, if any is on."""
    draft = sheet.draft
    engine = sheet.boolean(*DEEPSPEED, into="DeepSpeed")
    stage = sheet.integer("zero_stage", "deepspeed_stage", into="ZeRO stage", low=0, high=3)
    whole = sheet.boolean(*FSDP, into="FSDP")
    states = sheet.boolean(*ZERO1, into="sharded optimizer")
    found = None
    if engine is not None and engine.value:
        draft.put("engine", Given("deepspeed", engine.file, engine.line))
        found = Given(STAGES[stage.value if stage else 1], engine.file, engine.line)
    elif stage is not None and stage.value:
        found = Given(STAGES[stage.value], stage.file, stage.line)
    elif whole is not None and whole.value:
        found = Given("fsdp", whole.file, whole.line)
    elif states is not None and states.value:
        found = Given("zero1", states.file, states.line)
    if found is not None:
        draft.put("sharding", found)
        draft.note("sharding", found.value, "a fork's own key, by what its name means elsewhere")
