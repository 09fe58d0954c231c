"""What a finding costs: worked from the job's numbers where they are given, else the formula."""

from __future__ import annotations

from collections.abc import Mapping

from chipshift.audit.finding import Cost
from chipshift.audit.names import words

JOB_KEYS = words(
    """step_time_s batch seq_len heads head_dim layers vocab hidden params
    optimizer_bytes_per_param state_bytes dtype_bytes devices tokens_per_step distinct_lengths
    max_length accumulation compile_time_s host_round_trip_s matrix_unit_width
    hbm_bandwidth_bytes_per_s attention_fraction max_new_tokens"""
)
"""Numbers a job may give; times in s, bytes, counts a step and a device."""


def score_matrix_bytes(job: Mapping[str, float]) -> float:
    """B · H · S² · bytes a layer, times layers, twice for the backward, a device."""
    size = job["batch"] * job["heads"] * job["seq_len"] ** 2 * job.get("dtype_bytes", 2)
    return 2 * size * job.get("layers", 1)


def _sync(job: Mapping[str, float]) -> Cost | None:
    stall = job.get("host_round_trip_s")
    if stall is None:
        return None
    step = job.get("step_time_s")
    return Cost(
        seconds_per_step=stall,
        fraction_of_step=stall / step if step else None,
        formula="one host round trip a step",
        basis="job",
    )


def _recompiles(job: Mapping[str, float]) -> Cost | None:
    lengths = job.get("distinct_lengths")
    if lengths is None:
        return None
    return Cost(recompiles=lengths, formula="compiles = distinct lengths", basis="job")


def _grows(job: Mapping[str, float]) -> Cost | None:
    tokens = job.get("max_new_tokens")
    if tokens is None:
        return None
    return Cost(recompiles=tokens, formula="one compile for each generated token", basis="job")


def _scores(job: Mapping[str, float]) -> Cost | None:
    if not {"batch", "heads", "seq_len"} <= set(job):
        return None
    return Cost(
        bytes=score_matrix_bytes(job),
        formula="2 · layers · B · H · S² · bytes: scores of the forward and the backward",
        basis="job",
    )


def _head(job: Mapping[str, float], size: float) -> Cost | None:
    width = job.get("matrix_unit_width")
    share = job.get("attention_fraction")
    if share is None and {"seq_len", "hidden"} <= set(job):
        # Attention's share of dense-layer FLOPs with full attention and no vocabulary.
        share = job["seq_len"] / (job["seq_len"] + 6 * job["hidden"])
    if width is None or share is None or not size:
        return None
    lost = share * max(0.0, 1 - min(1.0, size / width))
    return Cost(
        fraction_of_step=lost,
        formula="attention's share · (1 − head_dim / matrix unit width)",
        basis="job",
    )


def _state(job: Mapping[str, float]) -> Cost | None:
    size = job.get("state_bytes")
    if size is None:
        return None
    return Cost(bytes=size, formula="weights and optimizer state a second time", basis="job")


def _logits(job: Mapping[str, float], vocab: float) -> Cost | None:
    vocab = job.get("vocab", vocab)
    if not vocab or not {"batch", "seq_len"} <= set(job):
        return None
    return Cost(
        bytes=job["batch"] * job["seq_len"] * vocab * 4,
        formula="B · S · V · 4: logits that stay unsharded",
        basis="job",
    )


def _padding(size: float) -> Cost | None:
    if not size:
        return None
    padded = -(-size // 128) * 128
    return Cost(
        formula=f"ceil({size:.0f} / 128) · 128 / {size:.0f} − 1 = {padded / size - 1:.2f}",
        basis="measurement",
    )


def cost_from_job(
    rule: str, job: Mapping[str, float], figures: Mapping[str, float] | None = None
) -> Cost | None:
    """The cost of a finding of ``rule`` from the job's numbers (``JOB_KEYS``) (a step and device).

    None when the job does not give what the rule's formula needs. ``figures`` are numbers read from
    the line itself (``head_dim``, ``dim``, ``vocab``).
    """
    line = figures or {}
    if rule in ("host-sync-in-step", "host-sync-in-eval", "data-dependent-branch"):
        return _sync(job)
    if rule in (
        "variable-length-input",
        "varlen-packing",
        "nonzero-dynamic",
        "bool-mask-select",
        "bool-mask-assign",
        "item-to-shape",
        "unique-bincount-dynamic",
        "moe-dropless",
    ):
        return _recompiles(job)
    if rule == "growing-concat":
        return _grows(job)
    if rule == "sdpa-math-fallback":
        return _scores(job)
    if rule == "head-dim-lt-128":
        return _head(job, line.get("head_dim", job.get("head_dim", 0.0)))
    if rule == "no-buffer-donation":
        return _state(job)
    if rule == "vocab-not-128-multiple":
        return _logits(job, line.get("vocab", 0.0))
    return None


def without_job(rule: str, formula: str, figures: Mapping[str, float]) -> Cost:
    """The cost to print with no job: the documented formula or measurement, else unknown."""
    if rule == "dim-not-128-multiple":
        padded = _padding(figures.get("dim", 0.0))
        if padded is not None:
            return padded
    if rule == "head-dim-lt-128" and figures.get("head_dim"):
        size = figures["head_dim"]
        return Cost(
            formula=f"{size:.0f} / 128 = {size / 128:.0%} of the matrix unit in attention "
            f"({size / 256:.0%} where it is 256 wide)",
            basis="measurement",
        )
    if not formula:
        return Cost(formula="unknown from the source", basis="unknown")
    basis = "measurement" if "measured" in formula.lower() else "unknown"
    return Cost(formula=formula, basis=basis)  # type: ignore[arg-type]
