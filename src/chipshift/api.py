"""The public Python interface: ``from chipshift import read, estimate, assess``.

Thin: names of machines, plans and stacks are read as the command line reads them, and what comes
back are the dataclasses behind ``--json``. A mistake in what is given raises ``InputError``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chipshift.estimate import Estimate
    from chipshift.flows.assess import Assessment
    from chipshift.jobs.job import TrainJob
    from chipshift.jobs.plan import Plan
    from chipshift.machines.machine import Machine

Path = str | os.PathLike[str]


def read(
    *files: Path | Sequence[Path],
    model: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> TrainJob:
    """One job from its files, in any format that is known; several files are merged.

    Args:
        files: paths, or one list of them; the first wins a conflict.
        model: preset or config.json in place of the model that the files name.
        settings: what the files leave open, as ``--set``: ``{"seq_len": 8192}``.

    Raises:
        InputError: a file that cannot be used.
    """
    from chipshift.jobs.read import read_job

    paths: list[str] = []
    for file in files:
        several = [file] if isinstance(file, str | os.PathLike) else file
        paths += [os.fspath(one) for one in several]
    given = {key: str(value) for key, value in (settings or {}).items()}
    return read_job(paths, model=model, overrides=given)


def estimate(
    job: TrainJob,
    plan: Plan | str | None = None,
    machine: Machine | str | None = None,
    stack: str | None = None,
    *,
    usd_per_chip_hour: float | None = None,
    explain: bool = False,
) -> Estimate:
    """Time, memory and cost of one step of one plan on one machine.

    Args:
        job: as ``read`` gives it.
        plan: a Plan or its degrees (``"fsdp=64,tp=2"``); None = the job's own.
        machine: a Machine or its name (``"v6e:16x16"``); None = the one in the job's file.
        stack: framework and compiler; None = the job's own where it runs there, else the default.
        usd_per_chip_hour: price; None = the chip's sourced on-demand price.
        explain: figures are ``Worked``: number, unit, formula, inputs and sources.

    Raises:
        InputError: a machine, plan or stack that does not exist or does not fit.
    """
    from chipshift.estimate import Price
    from chipshift.estimate import estimate as of_plan
    from chipshift.flows.asked import plan_asked
    from chipshift.flows.options import Options, runs

    job, on = _present(job, machine)
    chosen = plan_asked(job, plan or "", on) if plan is None or isinstance(plan, str) else plan
    if stack is not None:
        runs(stack, on.chip)
    price = Options().price_of(on)
    if usd_per_chip_hour is not None:
        price = Price(usd_per_chip_hour, "given")
    return of_plan(job, chosen, on, stack, price=price, explain=explain)


def assess(
    job: TrainJob, on: Machine | str | None = None, to: Sequence[str] | str = (), **options: Any
) -> Assessment:
    """What the job becomes on other machines: best plans, ratios, verdicts, what to relearn.

    Args:
        job: as ``read`` gives it.
        on: the machine it runs on now; None = the one in the job's file.
        to: names of the machines asked about, with a size or without.
        options: fields of ``flows.options.Options``: ``prices={"h100": 2.2}``, ``tokens=15e12``,
            ``fixed={"tp": 4}``, ``stacks={"v6e": "torchax"}`` ...

    Raises:
        InputError: a machine or an option that does not exist.
    """
    from chipshift.errors import InputError
    from chipshift.flows.assess import assess as answer
    from chipshift.flows.options import Options

    targets = [to] if isinstance(to, str) else list(to)
    if not targets:
        raise InputError("to: name at least one machine, such as to='v6e'")
    job, present = _present(job, on)
    return answer(job, present, targets, Options(**options))


def _present(job: TrainJob, on: Machine | str | None) -> tuple[TrainJob, Machine]:
    from chipshift.flows.asked import present_machine
    from chipshift.jobs.complete import resolve_machine

    if on is None or isinstance(on, str):
        return present_machine(job, on or "")
    return resolve_machine(job, on), on
