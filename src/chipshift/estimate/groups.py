"""The links of each group of a plan that communicates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chipshift.fabric import Placement, assign, group, links, links_worked, rest, subgroup
from chipshift.jobs.plan import Plan
from chipshift.machines.machine import Machine

ALONE = Placement(1, (), False, "")


def mesh_order(machine: Machine) -> tuple[str, ...]:
    """Mesh axes, outermost first: over slices dp comes first, so that pipelines stay inside one."""
    crosses_dcn = any(level.kind == "dcn" for level in machine.fabric)
    return ("dp", "pp", "fsdp", "cp", "tp") if crosses_dcn else ("pp", "dp", "fsdp", "cp", "tp")


def placements(machine: Machine, dp: int, fsdp: int, cp: int, tp: int, ep: int, pp: int,
               etp: int = 0, order: tuple[str, ...] = (), ulysses: int = 1,
               cp_shards: bool = False, rings: int = 0) -> dict[str, Placement]:  # fmt: skip
    """Where each group of ``columns.GROUPS`` sits; with ``ulysses`` also the parts of cp.

    Expert groups take the innermost devices of dp × fsdp × cp, as Megatron and torchtitan do, and
    all-to-alls of heads the innermost of cp (Megatron's first of hierarchical_context_parallel
    sizes), the ring going round what is left.

    Raises:
        InputError: degrees that do not multiply to the machine's devices.
    """
    sizes = {"dp": dp, "fsdp": fsdp, "cp": cp, "tp": tp, "pp": pp}
    order = order or mesh_order(machine)
    round_ep = rings if rings and tp == 1 else 0
    if round_ep:  # the expert axis goes round the rings, fsdp over what is left
        sizes |= {"fsdp": fsdp // ep, "ep": ep}
        order = (*(axis for axis in order if axis != "tp"), "tp", "ep")
    at = assign(machine, {axis: sizes[axis] for axis in order}, rings)

    def union(*axes: str) -> Placement:
        inside = ("ep",) if round_ep and "fsdp" in axes else ()
        return group(at, tuple(axis for axis in order if axis in (*axes, *inside)))

    sharded = fsdp > 1 or cp_shards
    shards = union("fsdp", "cp") if sharded else ALONE
    sums = at["dp"] if sharded else union("dp", "cp")
    over_tp = ep if not etp or etp == tp else max(1, ep * etp // tp)
    inside = min(over_tp, shards.size)
    pool = union("dp", "fsdp", "cp", *(() if not etp or etp == tp else ("tp",)))
    parts = {"heads": subgroup(at["cp"], ulysses), "around": rest(at["cp"], ulysses)}
    return (parts if ulysses > 1 else {}) | {
        "tp": at["tp"],
        "cp": at["cp"],
        "ep": at["ep"] if round_ep else subgroup(pool, ep),
        "weights": shards,
        "expert_weights": at["fsdp"] if round_ep else rest(shards, inside),
        "dp": sums,
        "expert_dp": rest(sums, over_tp // inside),
        "pp": at["pp"],
    }


def plan_placements(machine: Machine, plan: Plan) -> dict[str, Placement]:
    """``placements`` of a plan's degrees, in the order of its mesh axes.

    Raises:
        InputError: degrees that do not multiply to the machine's devices.
    """
    return placements(machine, plan.dp, plan.fsdp, plan.cp, plan.tp, plan.ep, plan.pp, plan.etp,
                      plan.order, plan.ulysses, plan.cp_shards, plan.rings)  # fmt: skip


def group_links(machine: Machine, at: Mapping[str, Placement], *, explain: bool = False
                ) -> dict[str, Any]:  # fmt: skip
    """The links of every placed group, as numbers for ``collective_time``.

    Args:
        machine: where they are placed.
        at: the groups (``placements``).
        explain: with the sources of the numbers.
    """
    of = links_worked if explain else links
    return {name: of(machine, placement) for name, placement in at.items()}
