"""What to type next: the chosen plan as MaxText's command line, started on a cluster by xpk.

Keys, their defaults and what they are refused for: Google, MaxText, configs/base.yml and
configs/types.py, 2026-08-22. xpk's options: Google, xpk, parser/workload.py, 2026-06-25.
"""

from __future__ import annotations

import math
import re

from chipshift.estimate import Estimate
from chipshift.estimate.groups import mesh_order
from chipshift.jobs.loss import LM
from chipshift.jobs.plan import of_all
from chipshift.models.model import MoeMlp

MAXTEXT_MODELS = {
    "llama-2-7b": "llama2-7b", "llama-2-13b": "llama2-13b", "llama-2-70b": "llama2-70b",
    "llama-3-8b": "llama3-8b", "llama-3-70b": "llama3-70b", "llama-3.1-8b": "llama3.1-8b",
    "llama-3.1-70b": "llama3.1-70b", "llama-3.1-405b": "llama3.1-405b",
    "llama-3.3-70b": "llama3.3-70b", "llama-4-scout": "llama4-17b-16e",
    "llama-4-maverick": "llama4-17b-128e", "mistral-7b": "mistral-7b",
    "mistral-7b-v0.1": "mistral-7b", "mixtral-8x7b": "mixtral-8x7b",
    "mixtral-8x22b": "mixtral-8x22b", "deepseek-v2": "deepseek2-236b",
    "deepseek-v2-lite": "deepseek2-16b", "deepseek-v3": "deepseek3-671b",
    "deepseek-v3-671b": "deepseek3-671b", "kimi-k2": "kimi-k2-1t", "gemma-2b": "gemma-2b",
    "gemma-7b": "gemma-7b", "gemma-2-2b": "gemma2-2b", "gemma-2-9b": "gemma2-9b",
    "gemma-2-27b": "gemma2-27b", "gemma-3-4b": "gemma3-4b", "gemma-3-12b": "gemma3-12b",
    "gemma-3-27b": "gemma3-27b", "gpt-oss-20b": "gpt-oss-20b", "gpt-oss-120b": "gpt-oss-120b",
    "qwen2.5-1.5b": "qwen2.5-1.5b", "qwen2.5-7b": "qwen2.5-7b", "qwen2.5-14b": "qwen2.5-14b",
    "qwen3-0.6b": "qwen3-0.6b", "qwen3-1.7b": "qwen3-1.7b", "qwen3-4b": "qwen3-4b",
    "qwen3-8b": "qwen3-8b", "qwen3-14b": "qwen3-14b", "qwen3-32b": "qwen3-32b",
    "qwen3-30b-a3b": "qwen3-30b-a3b", "qwen3-235b-a22b": "qwen3-235b-a22b",
    "qwen3-next-80b-a3b": "qwen3-next-80b-a3b", "qwen3.5-35b-a3b": "qwen3.5-35b-a3b",
    "qwen3.5-397b-a17b": "qwen3.5-397b-a17b",
}  # fmt: skip
"""MaxText's own names (its ``configs/models``) of models that we ship presets of."""


REMATS = {"selective": "save_dot_with_context_except_mlp", "selective_op": "minimal_with_context",
          "offload:block_input": "custom decoder_layer_input=offload",
          "offload:qkv": "qkv_proj_offloaded"}  # fmt: skip
"""MaxText's nearest policy where ours has another name."""


AXES = {"dp": "data", "fsdp": "fsdp", "ep": "expert", "cp": "context", "tp": "tensor",
        "pp": "pipeline"}  # fmt: skip
"""MaxText's names of the mesh axes, ``ici_<name>_parallelism`` inside a slice and ``dcn_``."""

OWN_AXES = {
    "dp": ("data",), "pp": ("stage",), "fsdp": ("fsdp", "fsdp_transpose"),
    "cp": ("context", "context_usp_ulysses", "context_autoregressive"),
    "tp": ("tensor", "tensor_sequence"), "ep": ("expert",),
}  # fmt: skip
"""The axes of MaxText's mesh between ``diloco`` and ``autoregressive``, in its own order."""

LONGEST_NAME = 39
"""Characters of a workload's name: a label that xpk lengthens for Kubernetes' 63."""

DATA = (
    "dataset_type=grain",
    "grain_train_files=gs://YOUR_BUCKET/YOUR_DATA/*.array_record",
    "tokenizer_type=huggingface",
    "tokenizer_path=YOUR_TOKENIZER",
)


def maxtext(e: Estimate) -> str | None:
    """MaxText's command for an estimate on a TPU, or None where MaxText does not run there.

    What only the user knows stands in capitals: cluster, bucket, data, tokenizer.
    """
    if e.machine.chip.family != "tpu" or e.stack.partition("@")[0] != "maxtext":
        return None
    if e.job.loss != LM:  # its pretraining trainer has no other
        return None
    name = workload_name(e)
    model = MAXTEXT_MODELS.get(e.job.model.name.lower(), "NAME_OF_YOUR_MODEL_CONFIG")
    parts = [
        f"python3 -m maxtext.trainers.pre_train.train run_name={name}",
        "base_output_directory=gs://YOUR_BUCKET/runs",
        *DATA,
        f"model_name={model}",
        f"max_target_length={e.job.seq_len.value}",
        *_batch(e),
        *_mesh(e),
        *_pipeline(e),
        *_memory(e),
        *_precision(e),
        "attention=flash",
        *_backward(e),
    ]
    train = " ".join(parts)
    slice_name = e.machine.cloud_name.partition("*")[0]
    if not slice_name:
        return train
    return (
        f"xpk workload create --cluster=YOUR_CLUSTER --workload={name} "
        f"--base-docker-image=maxtext_base_image --tpu-type={slice_name} "
        f'--num-slices={e.machine.slices} --command="{train}"'
    )


def workload_name(e: Estimate) -> str:
    """Model and machine as a label of lower-case letters, digits and hyphens."""
    words = re.sub(r"[^a-z0-9]+", "-", f"{e.job.model.name}-{e.machine.name}".lower()).strip("-")
    label = words if words[:1].isalpha() else f"run-{words}"
    return label[:LONGEST_NAME].rstrip("-")


def _batch(e: Estimate) -> list[str]:
    """Sequences a device: a cp or tp group shares one, a pipeline holds all its microbatches."""
    p = e.plan
    held = p.accumulation if p.pp > 1 else 1
    whole = p.microbatch * held * p.dp * p.fsdp
    out = [f"per_device_batch_size={per_device(whole, e.machine.devices)}"]
    if p.accumulation > held:
        out.append(f"gradient_accumulation_steps={p.accumulation}")
    return out


def per_device(sequences: float, devices: int) -> str:
    """Sequences a device in digits whose product with the devices is never below the sequences.

    MaxText takes the whole part of that product.
    """
    each = sequences / devices
    if devices * each < sequences:
        each = math.nextafter(each, math.inf)
    return f"{int(each)}" if each == int(each) else repr(each)


def _pipeline(e: Estimate) -> list[str]:
    """Layers a stage: stages × repeats × these are the layers that MaxText pipelines.

    Those are all layers, of DeepSeek's block the mixtures of experts only; layers that do not
    divide stay outside the pipeline. Layers are not scanned in it, as MaxText recommends.
    """
    p, model = e.plan, e.job.model
    if p.pp == 1:
        return []
    layers = model.n_layers
    if "deepseek" in model.name.lower() or "kimi" in model.name.lower():
        layers = sum(int(n) for layer, n in model.layers if isinstance(layer.mlp, MoeMlp))
    each = max(layers // (p.pp * p.vpp), 1)
    whole = each * p.pp * p.vpp
    return [
        f"num_layers_per_pipeline_stage={each}",
        *([f"pipeline_parallel_layers={whole}"] if whole != layers else []),
        f"num_pipeline_microbatches={p.accumulation}",
        "scan_layers=false",
    ]


def _backward(e: Estimate) -> list[str]:
    """One kernel for attention's backward pass, unless the job's own settings ask for two."""
    if any(flag.kind == "separate_backward" for flag in e.job.flags):
        return []
    return ["sa_use_fused_bwd_kernel=true"]


def _memory(e: Estimate) -> list[str]:
    p = e.plan
    whole = of_all(p.remat)
    out = [f"remat_policy={REMATS.get(whole, whole)}"]
    if p.optimizer_sharding != "none" and p.dp > 1:
        out.append("shard_optimizer_over_data=true")
    if e.job.optimizer.value in ("sgd", "muon"):
        out.append(f"opt_type={e.job.optimizer.value}")
    return out


def _precision(e: Estimate) -> list[str]:
    """What differs from MaxText's defaults: fp32 weights, gradients and moments, bf16 matmuls."""
    p = e.job.precision.value
    narrow = p.master == "none" and p.weights == "bf16"
    out = ["weight_dtype=bfloat16"] if narrow else []
    if p.gradients == "bf16":
        out.append("grad_dtype=bfloat16")
    if p.moments == "bf16" and not narrow:
        out.append("mu_dtype=bfloat16")
    if e.plan.cp > 1 and e.plan.cp_kind == "ring":
        out.append("context_parallel_strategy=ring")
    if e.plan.ulysses > 1:
        whole = e.plan.ulysses == e.plan.cp
        out.append(f"context_parallel_strategy={'ulysses' if whole else 'usp'}")
        out.append("context_parallel_load_balance=false")
    kind = "fp8_full" if e.peak_dtype.startswith("fp8") else e.peak_dtype
    if kind in ("fp8_full", "int8"):
        out += [f"quantization={kind}", "use_qwix_quantization=true"]
    return out


def _mesh(e: Estimate) -> list[str]:
    """MaxText's degrees: the ``ici`` ones multiply to a slice, the ``dcn`` ones to the slices.

    The outermost axes of the plan's order take the slices. MaxText's expert axis is one of the
    mesh and cuts the batch, so that ours, which lies inside fsdp, dp and cp, comes out of them.
    """
    p = e.plan
    ici = {"pp": p.pp, "dp": p.dp, "fsdp": p.fsdp, "cp": p.cp, "tp": p.tp, "ep": 1}
    dcn = dict.fromkeys(ici, 1)
    slices = e.machine.slices
    for axis in p.order or mesh_order(e.machine):
        dcn[axis] = math.gcd(ici[axis], slices)
        ici[axis] //= dcn[axis]
        slices //= dcn[axis]
    experts = p.ep
    for axis in ("fsdp", "dp", "cp"):
        taken = math.gcd(ici[axis], experts)
        ici[axis] //= taken
        ici["ep"] *= taken
        experts //= taken
    dealt = math.gcd(ici["cp"], p.ulysses) if p.ulysses < p.cp else 1
    ici["cp"] //= dealt
    degrees = [f"ici_context_usp_ulysses_parallelism={dealt}"] if dealt > 1 else []
    degrees += [
        f"{level}_{AXES[axis]}_parallelism={degree}"
        for level, degrees in (("dcn", dcn), ("ici", ici))
        for axis in AXES
        if (degree := degrees[axis]) > 1 or (axis == "fsdp" and level == "ici")
    ]
    return degrees + _order(e)


def _order(e: Estimate) -> list[str]:
    """``mesh_axes`` where the plan's axes do not stand in MaxText's own order.

    MaxText lists all its axes, and ``ici_parallelism`` follows the list. Experts lie inside the
    innermost of the axes that cut the batch.
    """
    p = e.plan
    order = p.order or mesh_order(e.machine)
    last = max(order.index(axis) for axis in ("dp", "fsdp", "cp"))
    wanted = [*order[: last + 1], "ep", *order[last + 1 :]]
    longer = [axis for axis in OWN_AXES if getattr(p, axis) > 1]
    if [axis for axis in wanted if axis in longer] == longer:
        return []
    names = [name for axis in wanted for name in OWN_AXES[axis]]
    return [f"mesh_axes=[{','.join(('diloco', *names, 'autoregressive'))}]"]
