"""Time of a step in neither ops nor collectives: a slow host, hand-overs, jitter, fixed costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.parts import absent, plus
from chipshift.estimate.setting import Setting
from chipshift.parallel import remat
from chipshift.parallel.memory import gradient_replicas
from chipshift.worked import formula, rename

Number = Any


def _beyond(taken_s: Number, device_s: Number) -> Number:
    """What something takes beyond the device's own time; an absent one takes nothing."""
    return 0.0 if absent(taken_s) else np.maximum(taken_s - device_s, 0)


@formula(unit="s", source="host launches that outlast the device, offload, jitter, fixed costs")
def other_time(host_s: Number, device_s: Number, microbatches: Number, offload_s: Number,
               stall_s: Number, fixed_s: Number, jitter: Number, doublings: Number, busy_s: Number,
               ) -> Number:  # fmt: skip
    """Seconds of no op: host-bound gaps, transfers to the host, waiting for others.

    Args:
        host_s, device_s, offload_s: of a microbatch; stall_s, fixed_s, busy_s: of the step.
    """
    gaps = _beyond(host_s, device_s) + _beyond(offload_s, device_s)
    return gaps * microbatches + stall_s + fixed_s + jitter * doublings * busy_s


@formula(unit="s", source="a step waits for every host: the chance of a stall grows with them")
def rare_stalls(per_host: Number, hosts: Number, busy_s: Number) -> Number:
    """Seconds a step that hosts stall, each rarely and on its own: so much more for each host."""
    return per_host * (hosts - 1) * busy_s


@formula(unit="s", source="a stage waits for the hand-over of each neighbour, at most two")
def handover(stall_s: Number, pp: Number, nodes: Number, microbatches: Number) -> Number:
    """Seconds that a step loses where the pipeline crosses nodes: half of stall_s a neighbour."""
    neighbours = np.minimum(pp - 1, 2)
    return stall_s / 2 * neighbours * microbatches * np.where(nodes > 1, 1.0, 0.0)


@formula(unit="s", source="each rank of a collective's group takes the host its share of time")
def host_pace(pace_s: Number, ranks: Number, hosts: Number, collectives: Number) -> Number:
    """Host seconds of so many collectives of a job on several hosts; 0 on one."""
    busy = np.where(ranks > 1, 1.0, 0.0) * np.where(hosts > 1, 1.0, 0.0)
    return pace_s * ranks * collectives * busy


def host_s(s: Setting, c: Columns, choice: Choice, policy: remat.Policy, ops: Number,
           on_stage: Number, more_ops: Number = 0.0) -> Number:  # fmt: skip
    """Host seconds of one microbatch: launches, and tensor-parallel collectives of a slow host.

    Args:
        ops, more_ops: launched by a forward pass, and by passes without gradient beside it.
    """
    passes = 3.0 + (policy.every if policy.name == "full" else 0.0)
    launches = rename(plus(ops * passes, more_ops), "ops_of_a_microbatch")
    host = launches * s.stack.host_s_per_op
    if absent(s.stack.rank_pace_s):
        return host
    # forward and backward, attention and feed-forward: a gather and a scatter, or one sum
    calls = plus(8.0, s.stack.tp_regathers) if choice.sequence_parallel else 4.0
    hosts = s.devices / s.devices_per_host
    return host + host_pace(s.stack.rank_pace_s, c.tp, hosts, calls * on_stage)


def other_s(s: Setting, c: Columns, host: Number, device: Number, offload: Number, busy: Number,
            pp_nodes: Number, microbatches: Number) -> Number:  # fmt: skip
    """Time outside ops and collectives.

    Args:
        host, device, offload: seconds of a microbatch on the host; on the device, collectives
            between its ops among them; and of what goes to the host's memory.
        busy: seconds of the whole step in ops and collectives.
        microbatches: of a step, and what filling a pipeline takes as so many more.
    """
    stall = handover(s.stack.pp_stall_s, c.pp, pp_nodes, c.accumulation)
    hosts = np.maximum(s.devices / s.devices_per_host, 1.0)
    doublings = np.log2(hosts)
    replicas = gradient_replicas(c.dp, c.fsdp, c.cp)
    alone = np.where(replicas * c.tp * c.pp > 1, 1.0, 0.0)
    seconds = other_time(
        host, device, microbatches, offload, stall,
        s.stack.step_overhead_s,
        s.stack.jitter_per_doubling * alone, doublings, busy,
    )  # fmt: skip
    if not absent(s.stack.stall_per_host):
        seconds = seconds + rare_stalls(s.stack.stall_per_host, hosts, busy)
    return rename(seconds, "other_s")
