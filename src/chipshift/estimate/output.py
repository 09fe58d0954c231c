"""An estimate as the output contract writes it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from chipshift.errors import InputError, nearest
from chipshift.estimate.estimate import Estimate
from chipshift.estimate.groups import mesh_order, plan_placements
from chipshift.estimate.stack import newest_release
from chipshift.jobs.job import Given, TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines.machine import Machine
from chipshift.models.scope import further_tokens, left_out
from chipshift.worked import Worked
from chipshift.worked.tree import as_json as worked_json


def machine_json(machine: Machine) -> dict[str, Any]:
    """The contract's ``machine`` object."""
    return {
        "name": machine.name,
        "chip": machine.chip.key,
        "chips": machine.chips,
        "devices": machine.devices,
        "topology": machine.topology,
        "slices": machine.slices,
        "cloud_name": machine.cloud_name,
    }


def job_json(job: TrainJob) -> dict[str, Any]:
    """The contract's ``job`` object."""
    return {
        "name": job.name,
        "file": ", ".join(job.files),
        "format": job.format,
        "framework": job.stack.value,
        "tokens_per_step": job.sequences_per_step.value * job.seq_len.value,
        "seq_len": job.seq_len.value,
        "model": job.model.name,
        "loss": job.loss,
        "reference": job.reference,
    }


def plan_json(plan: Plan, machine: Machine) -> dict[str, Any]:
    """The contract's ``plan`` object, with the physical axes each mesh axis sits on."""
    at = plan_placements(machine, plan)
    degrees = {"dp": plan.dp, "fsdp": plan.fsdp, "tp": plan.tp, "cp": plan.cp, "pp": plan.pp}
    found = {"tp": at["tp"], "cp": at["cp"], "pp": at["pp"]}
    if plan.fsdp > 1:
        found |= {"fsdp": at["weights"], "dp": at["dp"]}
    else:
        found |= {"dp": at["dp"]}
    axes = {
        axis: [piece.axis for piece in found[axis].segments]
        for axis in mesh_order(machine)
        if degrees[axis] > 1 and axis in found
    }
    keys = ("dp", "fsdp", "tp", "cp", "ep", "etp", "pp", "vpp", "microbatch", "accumulation",
            "remat", "optimizer_sharding", "schedule", "cp_kind", "cp_shards")  # fmt: skip
    order = list(plan.order or mesh_order(machine))
    return {key: getattr(plan, key) for key in keys} | {
        "ulysses_degree": plan.ulysses, "axes": axes, "order": order, "reordered": bool(plan.order)
    }  # fmt: skip


def assumptions(e: Estimate) -> list[dict[str, Any]]:
    """Everything that nothing stated, from the job's own fields and from what is not modelled."""
    rows: list[dict[str, Any]] = [{"what": w, "value": v, "why": y} for w, v, y in e.job.assumed]
    named = {row["what"] for row in rows}
    for what in ("sequences_per_step", "seq_len", "precision", "optimizer", "stack"):
        field = getattr(e.job, what)
        if not isinstance(field, Given) and what not in named:
            rows.append({"what": what, "value": _text(field.value), "why": field.why})
    rows.append(
        {"what": "time_s.input", "value": 0, "why": "input pipelines are not modelled: fed in time"}
    )
    for part, size in left_out(e.job.model):
        rows.append(
            {"what": f"model: {part}", "value": size,
             "why": "parameters of a part that neither time nor memory has in it"}
        )  # fmt: skip
    further = further_tokens(e.job.model, float(e.job.seq_len.value))
    if further is not None:
        more = f"{further.share:.1%} more FLOPs and {further.params / 1e9:.2f} B parameters each"
        rows.append(
            {"what": "model: blocks that predict further tokens", "value": further.blocks,
             "why": f"in neither time nor memory; where they are trained, {more}"}
        )  # fmt: skip
    if e.stack != e.job.stack.value:
        rows.append(
            {"what": f"stack on {e.machine.chip.key}", "value": e.stack,
             "why": "default for this family of chips; set it with --stack"}
        )  # fmt: skip
    newest = newest_release(e.stack)
    if newest:
        rows.append(
            {"what": f"release of {e.stack}", "value": f"{newest} or newer",
             "why": f"the newest that is told apart; an older one by {e.stack}@RELEASE"}
        )  # fmt: skip
    return rows


def _text(value: Any) -> str:
    if hasattr(value, "__dataclass_fields__"):
        return ", ".join(f"{k} {v}" for k, v in asdict(value).items())
    return str(value)


def estimate_json(e: Estimate) -> dict[str, Any]:
    """The contract's estimate; numbers stay ``Worked`` when the estimate was explained."""
    memory = dict(e.memory)
    total = memory.pop("total")
    return {
        "job": job_json(e.job),
        "machine": machine_json(e.machine),
        "stack": e.stack,
        "plan": plan_json(e.plan, e.machine),
        "step_time_s": e.step_time_s,
        "tokens_per_s_per_chip": e.tokens_per_s_per_chip,
        "model_flops_per_token": e.model_flops_per_token,
        "tflops_per_chip": e.tflops_per_chip,
        "mfu": e.mfu,
        "hfu": e.hfu,
        "peak_dtype": e.peak_dtype,
        "time_s": {
            **e.time,
            "collectives_total": e.collectives_total,
            "collectives_exposed": e.collectives_exposed,
            "recompute": e.recompute,
        },
        "memory_bytes": {**memory, "total": total, "available": e.available, "fits": e.fits},
        "cost": {
            "usd_per_chip_hour": e.price.usd_per_chip_hour,
            "usd_per_step": e.usd_per_step,
            "usd_per_1e12_tokens": e.usd_per_1e12_tokens,
            "price_source": e.price.source,
        },
        "assumptions": assumptions(e),
        "error_band": asdict(e.error_band),
    }


def at_path(tree: Any, path: str) -> Any:
    """The value at a dotted path.

    Raises:
        InputError: no such key, with the nearest one.
    """
    found = tree
    for step in path.split("."):
        if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        elif isinstance(found, dict) and step in found:
            found = found[step]
        else:
            raise InputError(f"--explain {path}: there is no '{step}'{_choices(found, step)}")
    return found


def _choices(found: Any, step: str) -> str:
    """What could have stood at a step of a path."""
    if isinstance(found, dict):
        return f"{nearest(step, list(found))} (expected one of {', '.join(found)})"
    if isinstance(found, list):
        return f" (expected a number from 0 to {len(found) - 1})" if found else " (it is empty)"
    return ": what stands before it has no parts"


def jsonable(tree: Any) -> Any:
    """The tree with every ``Worked`` replaced by its value."""
    if isinstance(tree, Worked):
        return tree.value
    if isinstance(tree, dict):
        return {key: jsonable(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [jsonable(value) for value in tree]
    if hasattr(tree, "item") and not isinstance(tree, (str, bytes)):
        return tree.item()
    return tree


def figure(found: Any, path: str) -> dict[str, Any]:
    """The contract's ``worked`` object of the value found at a path.

    Raises:
        InputError: it is not a figure.
    """
    if isinstance(found, Worked):
        return worked_json(found)
    kinds = {dict: "a group of figures", list: "a list", type(None): "null", bool: "yes or no"}
    kind = kinds.get(type(found), "a word")
    inside = _choices(found, "") if isinstance(found, dict | list) else ""
    raise InputError(f"--explain {path}: that is {kind}, no figure{inside}")
