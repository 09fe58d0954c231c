"""Whether a plan can be run at all: what each framework refuses at start, said in one sentence."""

from __future__ import annotations

from collections.abc import Iterator

from chipshift.errors import InputError
from chipshift.jobs.job import TrainJob
from chipshift.jobs.loss import loss
from chipshift.jobs.plan import Plan
from chipshift.models.model import Attention, Model, MoeMlp


def check_plan(job: TrainJob, where: str) -> None:
    """Raise the first complaint of ``complaints`` as an InputError."""
    if job.plan is None:
        return
    for complaint in complaints(job, job.plan.value):
        raise InputError(f"{where}: {complaint}")


def complaints(job: TrainJob, plan: Plan) -> Iterator[str]:
    """What stands against running this job by this plan; each a clause with found and expected."""
    yield from _tensor(job.model, plan, job.kv_replicated)
    yield from _dealt_heads(job, plan)
    yield from _layers(job.model, plan, job.uneven_pp)
    yield from _sequence(job, plan)
    yield from _examples(job, plan)
    yield from _experts(job.model, plan, closed=not job.plan_open)


def _tensor(model: Model, plan: Plan, kv_replicated: bool) -> Iterator[str]:
    if plan.tp == 1:
        return
    for layer, _ in model.layers:
        attention, mlp = layer.attention, layer.mlp
        if attention is not None:
            heads, kv_heads = attention.heads, attention.kv_heads
            if heads % plan.tp:
                yield (
                    f"{heads} attention heads cannot be cut over tp={plan.tp}; expected a tp that "
                    f"divides {heads} ({_divisors(heads)})"
                )
            replicates = kv_replicated and plan.tp % kv_heads == 0
            if kv_heads % plan.tp and not replicates and attention.kv_lora_rank is None:
                also = " or is a multiple of it" if kv_replicated else ""
                yield (
                    f"{kv_heads} key/value heads cannot be cut over tp={plan.tp}; expected a tp "
                    f"that divides {kv_heads}{also}"
                )
        width = mlp.width if mlp is not None else 0
        if width % plan.tp and not (isinstance(mlp, MoeMlp) and plan.etp == 1):
            yield (
                f"a feed-forward width of {width} cannot be cut over tp={plan.tp}; expected a tp "
                f"that divides it"
            )


OWN_KV_HEADS = ("megatron",)
"""Stacks that deal only heads that there are: Transformer Engine asserts that key/value heads are a
multiple of the devices too. Others repeat key/value heads (DeepSpeed's ALST, ms-swift, verl), as
Megatron-DeepSpeed does."""


def _dealt_heads(job: TrainJob, plan: Plan) -> Iterator[str]:
    """An all-to-all deals whole heads, after tp has taken its part of them."""
    if plan.cp_kind != "all_to_all":
        if plan.ulysses_degree:
            yield (
                f"ulysses_degree={plan.ulysses_degree}, but cp_kind is '{plan.cp_kind}'; expected "
                "cp_kind = 'all_to_all'"
            )
        return
    if plan.cp % plan.ulysses:
        yield (
            f"ulysses_degree={plan.ulysses} does not divide cp={plan.cp}; expected one of "
            f"{_divisors(plan.cp)}, {_near(plan.cp, plan.ulysses)} being the nearest"
        )
        return
    own = job.stack.value.partition("@")[0] in OWN_KV_HEADS
    copies = not own or any(flag.kind == "deepspeed" for flag in job.flags)
    seen = {layer.attention for layer, _ in job.model.layers if layer.attention is not None}
    for attention in sorted(seen, key=lambda a: (a.heads, a.kv_heads)):
        yield from _dealt(attention, plan, copies)


def _dealt(attention: Attention, plan: Plan, copies: bool) -> Iterator[str]:
    over = f"{plan.ulysses} devices"
    heads = attention.heads // plan.tp
    if heads % plan.ulysses:
        yield (
            f"{attention.heads} attention heads over tp={plan.tp} leave {heads}, which an "
            f"all-to-all cannot deal over {over} of cp; expected a number that divides {heads} "
            f"({_divisors(heads)}), {_near(heads, plan.ulysses)} being the nearest"
        )
        return
    kv_heads = max(attention.kv_heads // plan.tp, 1)
    if attention.kv_lora_rank is not None or kv_heads % plan.ulysses == 0:
        return
    if not copies and kv_heads == 1:
        yield (
            f"{attention.kv_heads} key/value heads over tp={plan.tp} leave one a device, which an "
            f"all-to-all cannot deal over {over} of cp; expected a ring (cp_kind = 'ring')"
            + (f", or tp={plan.tp // plan.ulysses}" if plan.tp % plan.ulysses == 0 else "")
        )
    elif not copies:
        yield (
            f"{attention.kv_heads} key/value heads over tp={plan.tp} leave {kv_heads}, which an "
            f"all-to-all cannot deal over {over} of cp; expected a number that divides {kv_heads} "
            f"({_divisors(kv_heads)}), {_near(kv_heads, plan.ulysses)} being the nearest"
        )
    elif plan.ulysses % kv_heads:
        yield (
            f"{kv_heads} key/value heads on a device cannot be dealt over {over} of cp, nor be "
            f"repeated to as many; expected a divisor or a multiple of {kv_heads}"
        )


def _near(number: int, wanted: int) -> int:
    """The divisor of a number that is nearest to what is wanted, the smaller of two as near."""
    found = [d for d in range(1, number + 1) if number % d == 0]
    return min(found, key=lambda d: (abs(d - wanted), d))


def _layers(model: Model, plan: Plan, uneven: bool) -> Iterator[str]:
    if plan.vpp > 1 and plan.pp == 1:
        yield f"{plan.vpp} virtual stages need pipeline stages, but pp=1; expected pp of at least 2"
    stages = plan.pp * plan.vpp
    if plan.stage_layers:
        held = sum(plan.stage_layers)
        if len(plan.stage_layers) != stages or held != model.n_layers:
            yield (
                f"stage_layers gives {held} layers in {len(plan.stage_layers)} chunks; expected "
                f"{model.n_layers} layers in pp={plan.pp} × {plan.vpp} virtual stages = {stages}"
            )
        return
    if stages > model.n_layers > 0:
        yield (
            f"{model.n_layers} layers cannot fill pp={plan.pp} × {plan.vpp} virtual stages = "
            f"{stages}; expected at most {model.n_layers}"
        )
    elif model.n_layers % stages and not uneven:
        yield (
            f"{model.n_layers} layers cannot be cut evenly over pp={plan.pp} × {plan.vpp} virtual "
            f"stages = {stages}; expected a divisor of {model.n_layers} "
            f"({_divisors(model.n_layers)})"
        )


def _sequence(job: TrainJob, plan: Plan) -> Iterator[str]:
    length = job.seq_len.value
    if length % plan.cp:
        yield (
            f"a sequence of {length} cannot be cut over cp={plan.cp}; expected a cp that divides it"
        )
    elif plan.sequence_parallel and plan.tp > 1 and (length // plan.cp) % plan.tp:
        yield (
            f"a sequence of {length // plan.cp} a device cannot be cut over tp={plan.tp} by "
            "sequence parallelism; expected a tp that divides it"
        )


def _examples(job: TrainJob, plan: Plan) -> Iterator[str]:
    """A loss over pairs needs both answers of each in one microbatch."""
    answers = loss(job.loss).answers
    if plan.microbatch % answers:
        yield (
            f"a microbatch of {plan.microbatch:g} sequences holds no whole examples of {job.loss}, "
            f"which have {answers} each; expected a multiple of {answers}"
        )


def _experts(model: Model, plan: Plan, closed: bool) -> Iterator[str]:
    if plan.ep == 1:
        return
    counts = {layer.mlp.experts for layer, _ in model.layers if isinstance(layer.mlp, MoeMlp)}
    if not counts:
        yield f"ep={plan.ep}, but {model.name} has no experts; expected ep=1"
    for experts in sorted(counts):
        if experts % plan.ep:
            yield (
                f"{experts} experts cannot be cut over ep={plan.ep}; expected an ep that divides "
                f"{experts} ({_divisors(experts)})"
            )
    room = plan.dp * plan.fsdp * plan.cp * (plan.tp if plan.etp == 1 else 1)
    if closed and room % plan.ep:
        over = "dp × fsdp × cp × tp" if plan.etp == 1 else "dp × fsdp × cp"
        yield f"ep={plan.ep} does not divide {over} = {room}; expected an ep that does"


def _divisors(number: int) -> str:
    found = [d for d in range(1, min(number, 4096) + 1) if number % d == 0]
    shown = ", ".join(map(str, found[:10]))
    return shown + (" ..." if len(found) > 10 else "")
