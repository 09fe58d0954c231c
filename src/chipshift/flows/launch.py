"""What to type next: the chosen plan as a MaxText command line."""

from __future__ import annotations

import math

from chipshift.estimate import Estimate

MAXTEXT_MODELS = {
    "llama-3.1-8b": "llama3.1-8b", "llama-3.1-70b": "llama3.1-70b",
    "llama-3.1-405b": "llama3.1-405b", "llama-3-8b": "llama3-8b", "llama-3-70b": "llama3-70b",
    "llama-2-7b": "llama2-7b", "llama-2-13b": "llama2-13b", "llama-2-70b": "llama2-70b",
    "mixtral-8x7b": "mixtral-8x7b", "mixtral-8x22b": "mixtral-8x22b", "mistral-7b": "mistral-7b",
    "deepseek-v3": "deepseek3-671b", "deepseek-v3-671b": "deepseek3-671b",
    "qwen3-8b": "qwen3-8b", "qwen3-32b": "qwen3-32b", "gemma-2-9b": "gemma2-9b",
    "gemma-3-27b": "gemma3-27b",
}  # fmt: skip
"""MaxText's own names (its ``configs/models``) of models that we ship presets of."""


REMATS = {"selective": "save_dot_with_context_except_mlp", "selective_op": "minimal_with_context"}
"""MaxText's nearest policy where ours has another name."""


AXES = {"dp": "data", "fsdp": "fsdp", "ep": "expert", "cp": "context", "tp": "tensor",
        "pp": "pipeline"}  # fmt: skip
"""MaxText's names of the mesh axes, ``ici_<name>_parallelism`` inside a slice and ``dcn_``."""


def maxtext(e: Estimate) -> str | None:
    """MaxText flags for an estimate on a TPU, or None where MaxText does not run there.

    ``per_device_batch_size`` counts sequences a device, so that a cp or tp group shares one; with
    pipeline stages it holds all microbatches of a step, elsewhere one.
    """
    if e.machine.chip.family != "tpu":
        return None
    p, job = e.plan, e.job
    name = MAXTEXT_MODELS.get(job.model.name.lower())
    piped = p.pp > 1
    held = p.accumulation if piped else 1
    batch = p.microbatch * held * p.dp * p.fsdp / e.machine.devices
    parts = [
        "python3 -m MaxText.train MaxText/configs/base.yml",
        f"model_name={name or 'NAME_OF_YOUR_MODEL_CONFIG'}",
        f"max_target_length={job.seq_len.value}",
        f"per_device_batch_size={batch:.12g}",
        f"num_pipeline_microbatches={p.accumulation}" if piped else "",
        f"gradient_accumulation_steps={p.accumulation}" if p.accumulation > held else "",
        *_mesh(e),
        "shard_optimizer_over_data=true" if p.optimizer_sharding != "none" and p.dp > 1 else "",
        f"remat_policy={REMATS.get(p.remat, p.remat)}",
        "attention=flash",
    ]
    train = " ".join(part for part in parts if part)
    slice_name = e.machine.cloud_name.partition("*")[0]
    if not slice_name:
        return train
    return (
        f"xpk workload create --workload chipshift --tpu-type={slice_name} "
        f'--num-slices={e.machine.slices} --command "{train}"'
    )


def _mesh(e: Estimate) -> list[str]:
    """MaxText's degrees: the ``ici`` ones multiply to a slice, the ``dcn`` ones to the slices.

    The outermost axes of the plan's order take the slices. MaxText's expert axis is one of the
    mesh and cuts the batch, so that ours, which lies inside fsdp, dp and cp, comes out of them.
    """
    p = e.plan
    ici = {"pp": p.pp, "dp": p.dp, "fsdp": p.fsdp, "cp": p.cp, "tp": p.tp, "ep": 1}
    dcn = dict.fromkeys(ici, 1)
    slices = e.machine.slices
    for axis in p.order or ("pp", "dp", "fsdp", "cp", "tp"):
        dcn[axis] = math.gcd(ici[axis], slices)
        ici[axis] //= dcn[axis]
        slices //= dcn[axis]
    experts = p.ep
    for axis in ("fsdp", "dp", "cp"):
        taken = math.gcd(ici[axis], experts)
        ici[axis] //= taken
        ici["ep"] *= taken
        experts //= taken
    return [
        f"{level}_{AXES[axis]}_parallelism={degree}"
        for level, degrees in (("dcn", dcn), ("ici", ici))
        for axis in AXES
        if (degree := degrees[axis]) > 1 or (axis == "fsdp" and level == "ici")
    ]
