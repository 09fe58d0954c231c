"""From hazards to findings: whether one holds where it runs and for its target, and how bad."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Mapping, Sequence

from chipshift.audit.cost import cost_from_job, without_job
from chipshift.audit.facts import EPOCH, EVAL, HOST, NEVER, STARTUP, STEP, FileFacts, Hazard
from chipshift.audit.finding import (
    SEVERITIES,
    TARGETS,
    Cost,
    Finding,
    Loop,
    Severity,
    Target,
)
from chipshift.audit.finding import Place as Line
from chipshift.audit.link import Linked, Place
from chipshift.audit.names import words
from chipshift.audit.rules import Rule, rules
from chipshift.audit.rules.counterpart import counterpart

LOOPS: dict[str, Loop] = {STEP: "step", EVAL: "eval", EPOCH: "startup", STARTUP: "startup"}
SYNC, SYNC_EVAL = "host-sync-in-step", "host-sync-in-eval"
DATA_RULES = words(
    """variable-length-input last-batch-partial sync-input-pipeline varlen-packing data-shard-by-
    rank rng-per-rank pin-memory"""
)
"""Rules whose hazard is made on the host and met in the step."""
NO_PLACE = words(
    """head-dim-lt-128 dim-not-128-multiple vocab-not-128-multiple heads-not-divisible tiny-batch
    weight-tying fp16-cast fp16-gradscaler cuda-autocast torch-compile-inductor ddp-wrapper
    tf32-flag rank-divergent-compute node8-topology rng-per-rank data-shard-by-rank last-
    batch-partial variable-length-input varlen-packing cuda-available-fallback single-host-
    assumption no-buffer-donation jit-cache-miss activation-checkpoint missing-step-sync
    custom-autograd-kernel triton-kernel op-not-lowered sparse-tensor fused-optimizer float64
    hardcoded-gpu-peak sync-input-pipeline checkpoint-device-tensors unrolled-loop moe-
    dropless deepspeed-runtime flash-attn-kernel cuda-extension third-party-gpu-kernel
    transformer-engine bitsandbytes apex-fused xformers-op jax-gpu-kernel x-f-adam-capturable
    x-f-inference-mode-compile timing-without-block gpu-arch-check"""
)
"""Rules about how the step is set up: written at start-up, paid in the step."""


OF_ARRAYS = words(
    """bool-mask-select bool-mask-assign nonzero-dynamic unique-bincount-dynamic item-to-shape
    data-dependent-branch growing-concat python-int-index host-sync-in-step host-sync-in-eval"""
)
"""Rules about what is done to a device array, which code on NumPy's has none of."""
RAISES_ON_TORCH_XLA = frozenset({"activation-checkpoint"})
"""Rules that stop a run on torch_xla only; elsewhere the cost is memory that is not saved."""


def lower(severity: Severity, by: int) -> Severity:
    return SEVERITIES[min(len(SEVERITIES) - 1, SEVERITIES.index(severity) + by)]


def placed(hazard: Hazard, place: Place) -> str:
    """Where the hazard's line runs."""
    if place.where in (EVAL, HOST, NEVER):
        return place.where
    if hazard.local == "quiet":
        return STEP if place.where == STEP else EVAL
    return hazard.local or place.where


def judged(hazard: Hazard, place: Place) -> tuple[str, Severity, Loop] | None:
    """(rule, severity, loop) of a hazard, or None when it is none where it runs."""
    where = placed(hazard, place)
    if where == NEVER:
        return None
    rule = hazard.rule
    if (
        where == HOST
        and rule not in DATA_RULES
        and (hazard.needs_step or rule in (SYNC, "float64", "fp16-cast"))
    ):
        return None
    if hazard.needs_step and where in (STARTUP, EPOCH):
        return None
    if rule == SYNC:
        if hazard.cadence:
            return None
        if where == EVAL:
            if not (hazard.looped or place.looped or _batchwise(hazard.func)):
                return None
            rule = SYNC_EVAL
    base: Severity = hazard.severity or rules()[rule].severity
    by = 0
    if rule not in NO_PLACE and rule != SYNC_EVAL and not hazard.raises:
        if where == EVAL:
            by = 1
        elif where in (STARTUP, EPOCH):
            by = 2
    if hazard.cadence and where == STEP and not hazard.raises:
        by += 1
    severity = lower(base, by)
    if hazard.flag:
        severity = "low"
    return rule, severity, LOOPS.get(where, "unknown")


def _batchwise(func: str) -> bool:
    return func.rsplit(".", 1)[-1] in ("validation_step", "test_step", "predict_step")


def targets_of(hazard: Hazard, rule: Rule) -> tuple[Target, ...]:
    return tuple(one for one in TARGETS if one in (hazard.targets or rule.applies_to))


def default_target(facts: FileFacts) -> Target:
    return "jax" if facts.uses_jax else "torchtpu"


def file_targets(
    files: Sequence[FileFacts], into: Mapping[str, list[FileFacts]]
) -> dict[str, Target]:
    """The default target of each file; one that imports neither takes its importer's."""
    found: dict[str, Target] = {}
    for facts in files:
        if facts.jax_weight:
            found[facts.file] = default_target(facts)
    for facts in files:
        if facts.file in found:
            continue
        importers = [found[one.file] for one in into.get(facts.file, ()) if one.file in found]
        jax = importers.count("jax")
        found[facts.file] = "jax" if jax * 2 > len(importers) else "torchtpu"
    return found


def instead(rule: Rule, target: Target, what: str = "") -> str:
    """What to write, in the target's own terms; for a library that ``what`` names, its own."""
    if rule.slug == "third-party-gpu-kernel":
        own = counterpart(what, target)
        if own:
            return own
    if target == "jax":
        return rule.jax
    if target == "neuron":
        return rule.trainium
    if target in ("torch_xla", "torchax"):
        return rule.torch_xla if target == "torch_xla" else rule.jax
    return rule.torchtpu


def _cell(facts: FileFacts, line: int) -> tuple[int | None, int]:
    """(cell, line within it) of a line of a notebook's joined code."""
    if not facts.cells:
        return None, line
    index = bisect.bisect_right([start for start, _ in facts.cells], line) - 1
    start, cell = facts.cells[max(0, index)]
    return cell, line - start + 1


def findings_of(
    facts: FileFacts,
    linked: Linked,
    target: Target | None,
    job: Mapping[str, float] | None,
) -> list[Finding]:
    """The findings of one file for one target (None: each once, with all its targets)."""
    groups: dict[tuple[str, str], list[tuple[Hazard, Severity, Loop]]] = defaultdict(list)
    unknown = Place(STEP, False)
    on_host = _numpy_only(facts)
    for number, hazard in enumerate(facts.hazards):
        if on_host and hazard.rule in OF_ARRAYS:
            continue
        place = linked.places.get((facts.file, hazard.func), unknown)
        found = judged(hazard, place)
        if found is None:
            continue
        rule, severity, loop = found
        holds = targets_of(hazard, rules()[rule])
        if not holds or (target is not None and target not in holds):
            continue
        if not place.sure and hazard.confidence == "sure" and hazard.needs_step:
            hazard.confidence = "likely"
        groups[(rule, hazard.cause or f"#{number}")].append((hazard, severity, loop))
    out: list[Finding] = []
    taken: set[tuple[str, int]] = set()
    for (slug, _), members in groups.items():
        finding = _finding(facts, slug, members, target, job, taken)
        if finding is not None:
            out.append(finding)
    out.sort(key=lambda one: (one.cell or 0, one.line, one.rule))
    return out


def _numpy_only(facts: FileFacts) -> bool:
    """A file that imports NumPy and neither framework: its arrays are on the host."""
    numpy = any(name.split(".")[0] == "numpy" for name in facts.imports.values())
    return numpy and facts.jax_weight == 0


def _finding(
    facts: FileFacts,
    slug: str,
    members: list[tuple[Hazard, Severity, Loop]],
    target: Target | None,
    job: Mapping[str, float] | None,
    taken: set[tuple[str, int]],
) -> Finding | None:
    members = [one for one in members if (slug, one[0].line) not in taken] or []
    if not members:
        return None
    made_first = members[0][0]
    members.sort(key=lambda one: (one[0].line, SEVERITIES.index(one[1])))
    # The edit starts at the first line, but for a head size at the number that sets it.
    first = made_first if slug == "head-dim-lt-128" else members[0][0]
    severity = min((one[1] for one in members), key=SEVERITIES.index)
    worst = next(one for one in members if one[1] == severity)
    lines: set[int] = set()
    for hazard, _, _ in members:
        lines.add(hazard.line)
        lines.update(hazard.places)
    lines = {one for one in lines if (slug, one) not in taken or one == first.line}
    taken.update((slug, one) for one in lines)
    lines.discard(first.line)
    rule = rules()[slug]
    holds = targets_of(worst[0], rule)
    worded = target if target is not None else holds[0]
    cell, line = _cell(facts, first.line)
    confidence = min(
        (one[0].confidence for one in members), key=("sure", "likely", "possible").index
    )
    if slug in RAISES_ON_TORCH_XLA and worded != "torch_xla" and severity == "blocker":
        severity = "high"
    message = _message(first, rule, worded, worst[0].flag)
    return Finding(
        rule=slug,
        target=worded,
        topic=rule.topic,
        severity=severity,
        file=facts.file,
        line=line,
        end_line=line + first.end_line - first.line,
        cell=cell,
        places=_places(facts, cell, lines),
        message=message,
        instead=instead(rule, worded, first.what),
        cost=_cost(slug, rule, members, job),
        loop=worst[2],
        confidence=confidence,
        targets=holds,
    )


def _places(facts: FileFacts, cell: int | None, lines: set[int]) -> tuple[Line, ...]:
    """Further lines as places; in a notebook those of the finding's own cell, counted within it."""
    within = (_cell(facts, one) for one in sorted(lines))
    return tuple(Line(facts.file, line) for of, line in within if of == cell)


def _message(hazard: Hazard, rule: Rule, target: Target, flag: str) -> str:
    text = hazard.what
    if rule.on_device:
        text = f"{text}. {rule.on_device}"
    if flag:
        text = f"{text} Only with the option {flag}, which is off by default."
    if target == "torch_xla":
        text = f"{text} (torch_xla is deprecated: TorchTPU succeeds it.)"
    return text


def _cost(
    slug: str,
    rule: Rule,
    members: list[tuple[Hazard, Severity, Loop]],
    job: Mapping[str, float] | None,
) -> Cost:
    figures: dict[str, float] = {}
    for hazard, _, _ in members:
        figures.update(hazard.figures)
    if job:
        worked = cost_from_job(slug, job, figures)
        if worked is not None:
            return worked
    return without_job(slug, rule.cost, figures)
