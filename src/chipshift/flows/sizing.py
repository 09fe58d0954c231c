"""How many chips, in which slice: a target that was named without a size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from chipshift.estimate.setting import setting
from chipshift.flows.options import Options
from chipshift.jobs.job import TrainJob
from chipshift.machines import all_slices, gpu_machine
from chipshift.machines.chip import Chip
from chipshift.machines.machine import Machine
from chipshift.machines.names import parse_machine
from chipshift.models.ops import forward_flops_per_token
from chipshift.planner.choose import Choice, choose
from chipshift.worked import plain

MOST_SLICES = 64
MOST_CHIPS = 32768


@dataclass
class Sizer:
    """Best plans on the machines of one chip, each searched once."""

    job: TrainJob
    chip: Chip
    stack: str
    options: Options
    progress: Callable[[int], None] | None = None
    known: dict[str, Choice] = field(default_factory=dict)

    def on(self, machine: Machine) -> Choice:
        """The best plan on a machine."""
        if machine.name not in self.known:
            self.known[machine.name] = choose(
                self.job, machine, self.stack, fixed=self.options.fixed,
                price=self.options.price_of(machine), explain_choice=False,
                progress=self.progress,
            )  # fmt: skip
        return self.known[machine.name]

    def step_time_s(self, machine: Machine) -> float:
        """Seconds of the best plan, infinite where none fits."""
        best = self.on(machine).best
        return float("inf") if best is None else float(plain(best.step_time_s))


def machines_of(chip: Chip) -> Iterator[Machine]:
    """Machines of a chip that can be rented, by chips, most cubic first, then several slices."""
    if chip.family == "gpu":
        domain = int(chip.value("scale_up_domain_chips"))
        chips = 1
        while chips <= MOST_CHIPS:
            if chips <= domain or chips % domain == 0 or domain & (domain - 1):
                yield gpu_machine(chip.key, chips)
            chips *= 2
        return
    single = sorted(all_slices(chip.key), key=lambda m: (m.chips, max(m.fabric[0].dims)))
    yield from single
    largest = single[-1]
    count = 2
    while count <= MOST_SLICES:
        yield parse_machine(f"{chip.key}:{largest.topology}*{count}")
        count *= 2


def floor_s(job: TrainJob, machine: Machine, stack: str) -> float:
    """Seconds that the model's FLOPs take at the highest achieved share: no plan is faster."""
    s = setting(job, machine, stack)
    flops = 3 * forward_flops_per_token(job.model, float(job.seq_len.value))
    if job.task == "lora":
        flops *= 2 / 3
    tokens = job.sequences_per_step.value * job.seq_len.value
    kernel = s.kernels.matmul
    share = float(kernel.e_max) * max(float(s.stack.matmul_scale), 1e-9)
    return float(flops * tokens / (machine.devices * float(kernel.peak_flop_per_s) * share))


def smallest_within(sizer: Sizer, limit_s: float) -> Machine | None:
    """The smallest machine whose step takes at most ``limit_s``; of equal chips the fastest."""
    for group in _by_chips(sizer.chip):
        if floor_s(sizer.job, group[0], sizer.stack) > limit_s or _too_many(sizer, group[0]):
            continue
        fast = [m for m in group[:3] if sizer.step_time_s(m) <= limit_s]
        if fast:
            return min(fast, key=sizer.step_time_s)
    return None


def fastest(sizer: Sizer) -> Machine | None:
    """The machine with the least step time of those that the batch can fill."""
    groups = [g for g in _by_chips(sizer.chip) if not _too_many(sizer, g[0])]
    tried = [group[0] for group in groups[-3:]]
    found = [m for m in tried if sizer.on(m).best is not None]
    return min(found, key=sizer.step_time_s) if found else None


def cheapest(sizer: Sizer) -> Machine | None:
    """The machine with the least step time × chips among the six smallest on which the job fits.

    Larger ones only add communication for the same work, so that a token costs more on them.
    """
    found: list[Machine] = []
    for group in _by_chips(sizer.chip):
        if _too_many(sizer, group[0]) or len(found) == 6:
            break
        if sizer.on(group[0]).best is not None:
            found.append(group[0])
    return min(found, key=lambda m: m.chips * sizer.step_time_s(m)) if found else None


def largest_within(sizer: Sizer, chips: float) -> Machine | None:
    """The largest machine of at most so many chips on which the job fits."""
    groups = [g for g in _by_chips(sizer.chip) if g[0].chips <= chips]
    for group in reversed(groups[-2:]):
        if not _too_many(sizer, group[0]) and sizer.on(group[0]).best is not None:
            return group[0]
    return None


def _too_many(sizer: Sizer, machine: Machine) -> bool:
    """More devices than the step has work to cut: sequences × heads × layers."""
    model = sizer.job.model
    heads = max((ly.attention.heads for ly, _ in model.layers if ly.attention), default=1)
    return machine.devices > sizer.job.sequences_per_step.value * heads * 8


def _by_chips(chip: Chip) -> Iterator[list[Machine]]:
    """Machines grouped by their number of chips, ascending."""
    group: list[Machine] = []
    for machine in machines_of(chip):
        if group and machine.chips != group[0].chips:
            yield group
            group = []
        group.append(machine)
    if group:
        yield group
