"""Parts of a plan that the user holds: whether any plan of the job can have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.loss import loss
from chipshift.models.model import Model, MoeMlp

Fixed = Mapping[str, str | int | float]


def held_text(fixed: Fixed) -> str:
    """``tp=4,remat=full``, as the user writes it."""
    return ",".join(f"{key}={value}" for key, value in fixed.items())


def check_held(job: TrainJob, fixed: Fixed) -> None:
    """Refuse a held value that no plan of this job has on any machine.

    Raises:
        InputError: the value, what it would have to divide, and what does.
    """
    sequences, seq_len = int(job.sequences_per_step.value), int(job.seq_len.value)
    if "pp" in fixed and int(fixed["pp"]) > job.model.n_layers:
        raise InputError(
            f"--fix pp={fixed['pp']}: {job.model.name} has {job.model.n_layers} layers; expected "
            f"at most as many stages"
        )
    cp = int(fixed.get("cp", 1))
    if cp > 1 and seq_len % (2 * cp):
        raise InputError(
            f"--fix cp={cp}: a sequence of {seq_len} cannot be cut into 2 × {cp} equal parts; "
            f"expected one of {_divisors(seq_len // 2)}"
        )
    for axis in ("dp", "fsdp", "accumulation", "microbatch"):
        value = float(fixed.get(axis, 1))
        if sequences % value:
            raise InputError(
                f"--fix {axis}={value:g} does not divide the {sequences} sequences of a step; "
                f"expected one of {_divisors(sequences)}"
            )
    answers = loss(job.loss).answers
    if "microbatch" in fixed and float(fixed["microbatch"]) % answers:
        raise InputError(
            f"--fix microbatch={fixed['microbatch']}: an example of {job.loss} has {answers} "
            f"sequences; expected a multiple of {answers}"
        )
    if int(fixed.get("ep", 1)) > 1 and not _experts(job.model):
        raise InputError(f"--fix ep={fixed['ep']}: {job.model.name} has no experts; expected ep=1")
    for axis, what, number in _cut(job.model):
        if number % int(fixed.get(axis, 1)):
            raise InputError(
                f"--fix {axis}={fixed[axis]} does not divide {what} of {job.model.name}; expected "
                f"one of {_divisors(number)}"
            )


def _cut(model: Model) -> Iterator[tuple[str, str, int]]:
    """Numbers that tensor and expert parallelism must divide: axis, what it is, the number."""
    heads = {layer.attention.heads for layer, _ in model.layers if layer.attention}
    widths = {layer.mlp.width for layer, _ in model.layers if layer.mlp}
    yield from (("tp", f"the {n} attention heads", n) for n in sorted(heads))
    yield from (("tp", f"the feed-forward width {n}", n) for n in sorted(widths))
    yield from (("ep", f"the {n} experts", n) for n in _experts(model))


def _experts(model: Model) -> list[int]:
    return sorted({layer.mlp.experts for layer, _ in model.layers if isinstance(layer.mlp, MoeMlp)})


def _divisors(number: int) -> str:
    found = [d for d in range(1, min(number, 4096) + 1) if number % d == 0]
    return ", ".join(map(str, found[:12])) + (" ..." if len(found) > 12 else "")
