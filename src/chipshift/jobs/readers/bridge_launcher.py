"""A Python file that submits a Megatron-Bridge or NeMo 2 script to Slurm through NeMo-Run.

It says nodes and devices; every setting of the job stands in the script that it submits. Fields of
the executor: NVIDIA, NeMo-Run, nemo_run/core/execution/slurm.py, and Megatron-Bridge,
tutorials/recipes/llama/04_launch_slurm_with_nemo_run.py, 2026-08.
"""

from __future__ import annotations

from chipshift.errors import InputError
from chipshift.jobs import python_tree
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.readers.bridge_script import is_launcher
from chipshift.jobs.readers.bridge_unseen import put_arguments
from chipshift.jobs.readers.bridge_walk import Called, follow, script_of
from chipshift.jobs.settings import as_integer
from chipshift.jobs.source import Source

MOST = 10**6
FIELDS = (("nodes", ("nodes",)), ("devices_per_node", ("gpus_per_node", "ntasks_per_node")))
"""A field of the machine and the executor's keywords that give it, the first being meant."""


def read_launcher(source: Source, context: Context) -> Draft:
    """The machine that the executor asks for; the script it submits must be given beside it.

    Raises:
        InputError: no other Python file was given, which would hold the job.
    """
    jobs = [
        one for base, one in context.beside.items() if base.endswith(".py") and not is_launcher(one)
    ]
    if not jobs:
        raise InputError(
            f"{source.path} only submits another script through NeMo-Run and holds no setting of "
            "a job; expected the training script that it submits, named alone or beside this file"
        )
    draft = Draft(source.path, "megatron-bridge")
    module = python_tree.parse(source)
    put_arguments(module, context)
    walk = follow(script_of(source.path, source.text, module), {}, "")
    calls = [event.call for event in walk.events if isinstance(event, Called)]
    for call in (one for one in calls if one.name.rsplit(".", 1)[-1] == "SlurmExecutor"):
        for field, names in FIELDS:
            stated = next((call.keywords[one] for one in names if one in call.keywords), None)
            count = None if stated is None else as_integer(stated.value)
            if stated is not None and count is not None and 1 <= count <= MOST:
                draft.put(field, Given(count, stated.file, stated.line))
    return draft
