"""The present plan, carried over unchanged to another machine."""

from __future__ import annotations

from dataclasses import replace

from chipshift.estimate.setting import Setting
from chipshift.jobs.plan import Plan, of_all
from chipshift.planner.space import degree_tuples, models_cut


def unchanged(s: Setting, plan: Plan) -> Plan | None:
    """The same tp, cp, ep, pp, remat and schedule on another number of devices.

    Only the data-parallel degrees follow the devices, as a launch script's "the rest" would; the
    microbatch stays where the batch allows it, else it shrinks to what divides. None when the
    model-parallel degrees do not divide the devices or the batch does not divide the replicas.
    """
    held = plan.tp * plan.cp * plan.pp
    devices = s.machine.devices
    sequences = int(s.job.sequences_per_step.value)
    if devices % held:
        return None
    replicas = devices // held
    if sequences % replicas:
        return None
    dp, fsdp = plan.dp, plan.fsdp
    if fsdp > 1 and replicas % dp == 0:
        fsdp = replicas // dp
    elif fsdp > 1 or plan.cp_shards:
        dp, fsdp = 1, replicas
    else:
        dp = replicas
    share = sequences // replicas
    micro = plan.microbatch if plan.microbatch <= share and share % plan.microbatch == 0 else 1.0
    remat = plan.remat if s.machine.chip.family == "gpu" else of_all(plan.remat)
    moved = replace(
        plan,
        remat=remat,
        cp_shards=plan.cp_shards and fsdp == 1,
        dp=dp,
        fsdp=fsdp,
        microbatch=float(micro),
        accumulation=round(share / micro),
        order=(),
        rings=0,
    )
    fixed: dict[str, str | int | float] = {
        "dp": dp, "fsdp": fsdp, "tp": plan.tp, "cp": plan.cp, "pp": plan.pp, "ep": plan.ep,
    }  # fmt: skip
    seq_len = int(s.job.seq_len.value)
    legal = degree_tuples(models_cut(s), devices, sequences, seq_len, fixed)
    return moved if len(legal) else None
