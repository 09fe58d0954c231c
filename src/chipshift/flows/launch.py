"""What to type next: the chosen plan as a MaxText command line."""

from __future__ import annotations

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


def maxtext(e: Estimate) -> str | None:
    """MaxText flags for an estimate on a TPU, or None where MaxText does not run there.

    ``per_device_batch_size`` counts sequences a device, so that a cp or tp group shares one.
    """
    if e.machine.chip.family != "tpu":
        return None
    p, job = e.plan, e.job
    name = MAXTEXT_MODELS.get(job.model.name.lower())
    slices = e.machine.slices
    dcn = slices if slices > 1 else 1
    batch = p.microbatch * p.dp * p.fsdp / e.machine.devices
    ici_dp = max(p.dp // dcn, 1)
    parts = [
        "python3 -m MaxText.train MaxText/configs/base.yml",
        f"model_name={name}" if name else f"# no MaxText preset of {job.model.name}: set its sizes",
        f"max_target_length={job.seq_len.value}",
        f"per_device_batch_size={batch:g}",
        f"gradient_accumulation_steps={p.accumulation}" if p.accumulation > 1 else "",
        f"ici_data_parallelism={ici_dp}" if ici_dp > 1 else "",
        f"dcn_data_parallelism={dcn}" if dcn > 1 else "",
        f"ici_fsdp_parallelism={p.fsdp}",
        f"ici_tensor_parallelism={p.tp}" if p.tp > 1 else "",
        f"ici_context_parallelism={p.cp}" if p.cp > 1 else "",
        f"ici_expert_parallelism={p.ep}" if p.ep > 1 else "",
        f"ici_pipeline_parallelism={p.pp}" if p.pp > 1 else "",
        f"remat_policy={REMATS.get(p.remat, p.remat)}",
        "attention=flash",
    ]
    train = " ".join(part for part in parts if part)
    if not e.machine.cloud_name:
        return train
    return (
        f"xpk workload create --workload chipshift --tpu-type={e.machine.cloud_name} "
        f'--num-slices={slices} --command "{train}"'
    )
