"""What to type next on other GPUs: the plan as Megatron-LM's or torchtitan's own arguments.

Arguments: NVIDIA, Megatron-LM, megatron/training/arguments.py, 2026; PyTorch, torchtitan,
torchtitan/config, 2025. Both run on ROCm under the same arguments.
"""

from __future__ import annotations

from chipshift.estimate import Estimate
from chipshift.flows.launch import maxtext
from chipshift.jobs.loss import LM
from chipshift.parallel import remat


def lines_of(e: Estimate) -> dict[str, str]:
    """The command that starts the plan, by the program it is for; empty where none is written."""
    stack = e.stack.partition("@")[0]
    command = maxtext(e)
    if command is not None:
        return {"maxtext": command}
    if e.machine.chip.family == "gpu" and stack in WRITERS:
        return {stack: f"{_torchrun(e)} {WRITERS[stack](e)}"}
    return {}


def note_of(e: Estimate) -> str:
    """For whom the command is, or why there is none and where the degrees go instead."""
    stack, p = e.stack.partition("@")[0], e.plan
    written = lines_of(e)
    if "maxtext" in written:
        return "MaxText by xpk on GKE (dataset_type=synthetic times a step without data)"
    if written:
        name = {"megatron": "Megatron-LM", "torchtitan": "torchtitan"}[stack]
        rocm = " on ROCm" if e.machine.chip.key.startswith("mi") else ""
        order = (
            f"; number the ranks so that the mesh reads {', '.join(p.order)}, outermost first"
            if p.order
            else ""
        )
        return f"{name}{rocm}: your own arguments, with these for the plan{order}"
    if stack == "neuron":
        return (
            "no command is written: NeuronX Distributed Training starts from its own YAML; in it "
            f"distributed_strategy takes tensor_model_parallel_size {p.tp}, "
            f"pipeline_model_parallel_size {p.pp}, zero1 "
            f"{p.optimizer_sharding != 'none' or p.fsdp > 1}, and data takes micro_batch_size "
            f"{p.microbatch:g}, global_batch_size {p.global_batch:g}"
        )
    if e.job.loss != LM:
        return f"no command is written for {e.job.loss}: give your trainer the degrees and batch"
    if stack == "jax":
        return "the stack jax is the step that chipshift compile --write step.py writes and runs"
    return f"no command is written for the stack {stack}: give it the plan's degrees and batch"


def _torchrun(e: Estimate) -> str:
    chip = e.machine.chip
    each = int(chip.value("chips_per_host")) if chip.has("chips_per_host") else 8
    each = min(each, e.machine.chips)
    return f"torchrun --nnodes={-(-e.machine.chips // each)} --nproc-per-node={each}"


def _megatron(e: Estimate) -> str:
    p = e.plan
    parts = [
        "pretrain_gpt.py YOUR_ARGUMENTS",
        f"--tensor-model-parallel-size {p.tp}",
        f"--pipeline-model-parallel-size {p.pp}",
        f"--num-virtual-stages-per-pipeline-rank {p.vpp}" if p.vpp > 1 else "",
        f"--context-parallel-size {p.cp}" if p.cp > 1 else "",
        "--cp-comm-type a2a" if p.ulysses == p.cp > 1 else "",
        f"--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes {p.ulysses} "
        f"{p.cp // p.ulysses}" if 1 < p.ulysses < p.cp else "",
        f"--expert-model-parallel-size {p.ep}" if p.ep > 1 else "",
        f"--expert-tensor-parallel-size {p.etp}" if p.ep > 1 and p.etp else "",
        "--sequence-parallel" if p.tp > 1 and p.sequence_parallel else "",
        f"--micro-batch-size {p.microbatch:g}",
        f"--global-batch-size {p.global_batch:g}",
        f"--seq-length {e.job.seq_len.value}",
        "--use-distributed-optimizer" if p.optimizer_sharding != "none" else "",
        "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params"
        if p.fsdp > 1 else "",
        _megatron_remat(e),
    ]  # fmt: skip
    return " ".join(part for part in parts if part)


def _megatron_remat(e: Estimate) -> str:
    p = e.plan
    every = remat.policy(p.remat).every
    if every < 1:  # layers of each (virtual) stage
        again = round(every * e.job.model.n_layers / (p.pp * p.vpp))
        return (
            f"--recompute-granularity full --recompute-method block --recompute-num-layers {again}"
        )
    whole = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
    return {"full": whole, "selective": "--recompute-granularity selective"}.get(p.remat, "")


def _torchtitan(e: Estimate) -> str:
    p = e.plan
    piped = p.pp > 1
    degrees = {
        "data_parallel_replicate": p.dp, "data_parallel_shard": p.fsdp, "tensor_parallel": p.tp,
        "context_parallel": p.cp, "pipeline_parallel": p.pp, "expert_parallel": p.ep,
    }  # fmt: skip
    local = p.microbatch * (p.accumulation if piped else 1)
    schedule = {"1f1b": "1F1B", "interleaved": "Interleaved1F1B", "zero_bubble": "ZBVZeroBubble"}
    mode, _, option = p.remat.partition("_")
    every = remat.policy(p.remat).every
    if every < 1:
        mode, option = "selective", f"{round(1 / every)}"
    parts = [
        "-m torchtitan.train --job.config_file YOUR_JOB.toml",
        *(f"--parallelism.{axis}_degree={n}" for axis, n in degrees.items()
          if n > 1 or axis == "data_parallel_shard"),
        f"--parallelism.pipeline_parallel_schedule={schedule.get(p.schedule, '1F1B')}"
        if piped else "",
        f"--parallelism.pipeline_parallel_microbatch_size={p.microbatch:g}" if piped else "",
        f"--training.local_batch_size={local:g}",
        f"--training.global_batch_size={p.global_batch:g}",
        f"--training.seq_len={e.job.seq_len.value}",
        f"--activation_checkpoint.mode={mode}",
        f"--activation_checkpoint.selective_ac_option={option}" if option else "",
    ]  # fmt: skip
    return " ".join(part for part in parts if part)


WRITERS = {"megatron": _megatron, "torchtitan": _torchtitan}
