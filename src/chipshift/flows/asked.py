"""What a person asks for in words: the machine a job runs on now, and a plan by its degrees."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from chipshift.errors import InputError
from chipshift.jobs.check import complaints
from chipshift.jobs.complete import resolve_machine
from chipshift.jobs.job import TrainJob
from chipshift.jobs.plan import Plan
from chipshift.machines.machine import Machine
from chipshift.machines.names import parse_machine
from chipshift.parallel.remat import policy
from chipshift.planner.space import read_fixed


def present_machine(job: TrainJob, on: str = "") -> tuple[TrainJob, Machine]:
    """The job with its open axis filled, and the machine: the one named, else the file's own.

    Raises:
        InputError: no machine named anywhere, or a plan that does not fit it.
    """
    name = on or (job.machine.value if job.machine is not None else "")
    if not name:
        raise InputError(
            f"{job.files[0]} does not say which machine the job runs on: add --on, such as "
            "--on 'h100*128'"
        )
    machine = parse_machine(name)
    job = resolve_machine(job, machine)
    if job.plan is not None:
        try:
            policy(job.plan.value.remat)
        except InputError as error:
            raise InputError(f"{job.files[0]}: {error}") from None
    return job, machine


def plan_asked(job: TrainJob, text: str, machine: Machine) -> Plan:
    """The plan that ``text`` names on a machine, or the job's own where it is empty.

    Raises:
        InputError: no plan at all, or one that no framework runs.
    """
    own = job.plan.value if job.plan is not None else None
    plan = plan_of(own, text, machine, job.sequences_per_step.value)
    if text:  # a stack's own limits (uneven stages, copied heads) pass
        for complaint in complaints(replace(job, kv_replicated=True, uneven_pp=True), plan):
            raise InputError(f"--plan {text}: {complaint}")
    return plan


def plan_of(own: Plan | None, text: str, machine: Machine, sequences: int) -> Plan:
    """The plan that ``--plan`` asks for: its own keys over those of one device, or the job's plan
    where it is empty.

    With degrees given and none for the rest, fsdp takes the devices that are left, and the
    accumulation follows the global batch.

    Raises:
        InputError: no plan at all, or one for another number of devices or sequences.
    """
    if not text:
        if own is None:
            raise InputError("the job has no plan of its own: add --plan, such as --plan fsdp=64")
        return own
    given = read_fixed(text)
    held = prod(int(given.get(axis, 1)) for axis in ("dp", "tp", "cp", "pp"))
    if "fsdp" not in given and machine.devices % held == 0:
        given["fsdp"] = machine.devices // held
    _check_devices(text, held, int(given.get("fsdp", 1)), machine)
    replicas = int(given.get("dp", 1)) * int(given.get("fsdp", 1))
    if sequences % replicas:
        raise InputError(
            f"--plan {text}: {sequences} sequences a step do not divide over {replicas} replicas; "
            f"expected dp × fsdp that divides {sequences}{_near(sequences, replicas)}"
        )
    share = sequences // replicas
    if "microbatch" not in given and share % int(given.get("accumulation", 1)):
        raise InputError(
            f"--plan {text}: {share} sequences of a replica do not divide over "
            f"{given['accumulation']} forwards{_near(share, int(given['accumulation']))}"
        )
    if "microbatch" not in given:
        given["microbatch"] = share / int(given.get("accumulation", 1))
    if "accumulation" not in given:
        given["accumulation"] = max(round(share / float(given["microbatch"])), 1)
    held_sequences = float(given["microbatch"]) * int(given["accumulation"])
    if held_sequences != share:
        raise InputError(
            f"--plan {text}: a microbatch of {given['microbatch']:g} × accumulation "
            f"{given['accumulation']} is {held_sequences:g} sequences of a replica, but there are "
            f"{sequences} over {replicas} = {share}; expected a microbatch that divides {share}"
            f"{_near(share, round(float(given['microbatch'])))}"
        )
    return Plan(**given)  # type: ignore[arg-type]


def _check_devices(text: str, held: int, fsdp: int, machine: Machine) -> None:
    """
    Args:
        held: devices of all degrees but fsdp.

    Raises:
        InputError: the degrees do not multiply to the machine's devices.
    """
    devices = machine.devices
    if held * fsdp == devices:
        return
    fits = (
        f"fsdp={devices // held}" if devices % held == 0 else f"degrees that multiply to {devices}"
    )
    raise InputError(
        f"--plan {text}: dp × fsdp × cp × tp × pp = {held * fsdp} devices, but {machine.name} has "
        f"{devices} devices; expected {fits}"
    )


def _near(number: int, wanted: int) -> str:
    """A clause with the divisor of a number that is nearest to what is wanted."""
    found = [d for d in range(1, min(number, 65536) + 1) if number % d == 0]
    return f"; the nearest is {min(found, key=lambda d: (abs(d - wanted), d))}"
