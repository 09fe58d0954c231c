"""A plan: how one step is cut over the devices."""

from __future__ import annotations

import re
from dataclasses import dataclass

SCHEDULES = ("1f1b", "interleaved", "gpipe", "zero_bubble")
OPTIMIZER_SHARDINGS = ("none", "zero1", "zero2")
CP_KINDS = ("ring", "allgather", "all_to_all")


@dataclass(frozen=True)
class Plan:
    """Degrees with dp·fsdp·cp·tp·pp = devices.

    Attributes:
        dp: replicas whose weights are whole (gradients all-reduced).
        fsdp: devices over which weights, gradients and moments are sharded (ZeRO-3).
            dp > 1 and fsdp > 1 together are hybrid sharding.
        tp: tensor parallel devices, with sequence parallelism unless ``sequence_parallel`` is off.
        cp: context parallel devices: the sequence is cut.
        ep: expert parallel devices; divides dp·fsdp·cp and is **not** a factor of devices.
        etp: tensor parallel devices of the routed experts, 0 = tp; with 1, ep may span
            dp·fsdp·cp·tp.
        pp: pipeline stages.
        vpp: virtual stages (model chunks) a pipeline rank.
        microbatch: sequences a (dp, fsdp) replica a forward; may be fractional.
        accumulation: forwards a step; global batch = microbatch × accumulation × dp × fsdp.
        remat: ``none``, ``selective``, ``full``, a MaxText policy name or ``offload:...``;
            ``full:12/32`` recomputes 12 of every 32 layers.
        optimizer_sharding: ``none``, ``zero1`` or ``zero2``, over dp.
        schedule: pipeline schedule.
        cp_kind: ``ring`` or ``allgather`` exchange of keys and values, or ``all_to_all`` of heads
            (DeepSpeed-Ulysses): attention has whole sequences of a part of the heads.
        ulysses_degree: devices of cp that an ``all_to_all`` deals the heads over; keys and values
            then pass round a ring of cp / ulysses_degree. 0 = all of cp, no ring.
        cp_shards: weights, gradients and moments are sharded over cp though fsdp is 1: the group of
            ZeRO-3 and FSDP is the replicas × cp. Above 1 fsdp × cp shares them anyway.
        sequence_parallel: activations outside the matmuls cut over tp as well.
        order: mesh axes, outermost first (the last takes its physical axes first, as JAX assigns
            them); () = the machine's usual order.
        rings: chips of each ring of 2 × rings/2 that the innermost axis (tp, else ep) goes round on
            slices of 16 × 16 (MaxText's ``custom_mesh``); 0 = JAX's own assignment.
        stage_layers: layers of each of the pp · vpp model chunks in order of execution, chunk i
            being on stage i mod pp; () = spread evenly, the first ones taking what is left over.
    """

    dp: int = 1
    fsdp: int = 1
    tp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 0
    pp: int = 1
    vpp: int = 1
    microbatch: float = 1.0
    accumulation: int = 1
    remat: str = "none"
    optimizer_sharding: str = "none"
    schedule: str = "1f1b"
    cp_kind: str = "ring"
    sequence_parallel: bool = True
    order: tuple[str, ...] = ()
    stage_layers: tuple[int, ...] = ()
    ulysses_degree: int = 0
    cp_shards: bool = False
    rings: int = 0

    @property
    def devices(self) -> int:
        return self.dp * self.fsdp * self.cp * self.tp * self.pp

    @property
    def ulysses(self) -> int:
        """Devices that share out the heads of a sequence: 1 where keys and values travel."""
        return (self.ulysses_degree or self.cp) if self.cp_kind == "all_to_all" else 1

    @property
    def global_batch(self) -> float:
        return self.microbatch * self.accumulation * self.dp * self.fsdp


SHARE = re.compile(r"(\w+):(\d{1,6})/(\d{1,6})")
"""A rematerialisation on a share of the layers: its name, and N of every M layers."""


def of_some(remat: str, layers: int, of: int) -> str:
    """A rematerialisation on so many of every ``of`` layers: ``full:12/32``."""
    if layers >= of:
        return remat
    return f"{remat}:{layers}/{of}" if layers > 0 else "none"


def of_all(remat: str) -> str:
    """The rematerialisation without the share of the layers that it is applied to."""
    shared = SHARE.fullmatch(remat)
    return shared.group(1) if shared else remat
