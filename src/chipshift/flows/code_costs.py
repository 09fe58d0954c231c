"""The numbers of a job from which the costs of findings in its code are worked."""

from __future__ import annotations

from chipshift.estimate.estimate import Estimate
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.worked.value import plain

SCORE_BYTES = 2.0  # bf16, in which a TPU's attention scores are kept when they are written out


def job_numbers(job: TrainJob, target: Estimate | None = None) -> dict[str, float]:
    """Counts a step and a device, bytes, seconds, as ``audit.cost.JOB_KEYS`` names them.

    With ``target``, of its plan on its machine; else of the job's present plan. What neither says
    is absent, never zero.
    """
    plan: Plan | None = None
    if target is not None:
        plan = target.plan
    elif job.plan is not None and not job.plan_open:
        plan = job.plan.value
    model = job.model
    found: dict[str, float] = {
        "seq_len": float(job.seq_len.value),
        "hidden": float(model.d_model),
        "vocab": float(model.vocab),
        "tokens_per_step": float(job.seq_len.value * job.sequences_per_step.value),
        "dtype_bytes": SCORE_BYTES,
    }
    attention = next((layer.attention for layer, _ in model.layers if layer.attention), None)
    if attention is not None:
        found["head_dim"] = float(attention.head_dim)
    if plan is not None:
        found["batch"] = plan.microbatch / plan.cp
        found["layers"] = model.n_layers / plan.pp
        found["accumulation"] = float(plan.accumulation)
        found["devices"] = float(plan.devices)
        if attention is not None:
            found["heads"] = attention.heads / plan.tp
    if target is not None:
        found |= _of_target(target)
    return found


def _of_target(target: Estimate) -> dict[str, float]:
    step_time_s = float(plain(target.step_time_s))
    found = {
        "step_time_s": step_time_s,
        "attention_fraction": float(plain(target.time["attention"])) / step_time_s,
        "state_bytes": sum(float(plain(target.memory[part])) for part in ("weights", "optimizer")),
    }
    figures = target.machine.chip.figures
    for key, name in (
        ("matrix_unit_width", "matrix_unit_cols"),
        ("hbm_bandwidth_bytes_per_s", "hbm_bandwidth_bytes_per_s"),
    ):
        if name in figures:
            found[key] = float(figures[name].value)
    return found
