"""torchtitan's keys that do not matter, and those that the estimate leaves out.

Keys: PyTorch, torchtitan, torchtitan/config/job_config.py, from 2024-06 to 2026-02.
"""

from __future__ import annotations

from chipshift.errors import slipped
from chipshift.jobs.settings import Setting, Sheet, as_boolean, as_integer, unknown, wrong

OWN: frozenset[str] = frozenset()
"""torchtitan's keys besides those below and those that are read: there are none, so that any other
is a fork's own."""

QUIET = (
    *("job.*", "profiling.*", "metrics.*", "checkpoint.*", "comm.*", "debug.*", "validation.*"),
    *("lr_scheduler.*", "memory_estimation.*", "compile.*", "experimental.*"),
    *("optimizer.lr", "optimizer.eps", "optimizer.weight_decay", "optimizer.beta*"),
    *("optimizer.implementation", "optimizer.fused", "optimizer.decay*", "optimizer.momentum"),
    *("model.tokenizer_path", "model.hf_assets_path", "model.norm_type", "model.print_after*"),
    *("activation_checkpoint.per_op_sac_*", "activation_checkpoint.early_stop"),
    *("activation_checkpoint.preserve_rng_state", "activation_checkpoint.determinism_check"),
    *("activation_checkpoint.debug", "activation_checkpoint.memory_budget"),
    *("activation_checkpoint.visualize_*", "activation_checkpoint.selective_ac_option"),
    *("training.dataset*", "training.steps", "training.max_norm", "training.enable_cpu_offload"),
    *("training.warmup_steps", "training.gc_*", "training.seed", "training.deterministic"),
    *("training.dataloader.*", "training.enable_fsdp"),
    *("fault_tolerance.*", "training.mixed_precision_reduce", "dump_folder", "hf_assets_path"),
)


CONTEXT = "training.max_context_length"
MICROBATCH_TOKENS = "training.num_tokens_per_microbatch_per_dp_rank"
STEP_TOKENS = "training.num_tokens_per_train_step"
STAGE_BATCHES = "parallelism.num_pp_microbatches"


def put_tokens(settings: dict[str, Setting]) -> None:
    """The token counts of 2026-06 on as the sequences of before.

    A replica's forward takes ``num_tokens_per_microbatch_per_dp_rank`` tokens (16,384), in a
    pipeline ``num_pp_microbatches`` times (1), of sequences of ``max_context_length`` (2,048).

    Source: PyTorch, torchtitan, torchtitan/config/configs.py and torchtitan/trainer.py, 2026-08.

    Raises:
        InputError: a key is one slip away from ``max_context_length``, or a value is no count.
    """
    length, former = settings.get(CONTEXT), settings.get("training.seq_len")
    for key, found in settings.items():
        if length is None and slipped(key, CONTEXT):
            raise unknown(key, found, CONTEXT)
    tokens, total = settings.pop(MICROBATCH_TOKENS, None), settings.pop(STEP_TOKENS, None)
    batches = settings.pop(STAGE_BATCHES, None)
    stated = tokens or total or length or batches
    if stated is None:
        return
    if length is None:
        size = _count("training.seq_len", former, 2048)
    else:
        size = _count(CONTEXT, length, 2048)
        settings.setdefault("training.seq_len", settings.pop(CONTEXT))
    stages = settings.get("parallelism.pipeline_parallel_degree")
    piped = stages is not None and (as_integer(stages.value) or 1) > 1
    times = _count(STAGE_BATCHES, batches, 1)
    micro = max(1, _count(MICROBATCH_TOKENS, tokens, 16_384) // size)
    unset = total is None or as_integer(total.value) == -1  # torchtitan's default
    whole = 0 if unset else _count(STEP_TOKENS, total, 0)

    def put(key: str, value: int, by: Setting | None) -> None:
        settings[key] = Setting(value, (by or stated).file, (by or stated).line)

    if tokens is not None or "training.local_batch_size" not in settings:
        put("training.local_batch_size", micro * (times if piped else 1), tokens)
        put("parallelism.pipeline_parallel_microbatch_size", micro, tokens)
    if whole:
        put("training.global_batch_size", max(1, whole // size), total)


def _count(key: str, stated: Setting | None, default: int) -> int:
    """A stated count, or the default where there is none."""
    if stated is None or stated.value is None:
        return default
    count = as_integer(stated.value)
    if count is None or count < 1:
        raise wrong(key, stated, "a whole number of at least 1")
    return count


def put_replica_groups(sheet: Sheet) -> None:
    """TorchFT's groups, each started by a command of its own: the numbers are of one.

    Source: PyTorch, torchtitan, docs/torchft.md and job_config.py (FaultTolerance), 2025-12.
    """
    key = "fault_tolerance.group_size"
    groups = sheet.settings.get(key)
    count = as_integer(groups.value) if groups is not None else None
    if sheet.flag("fault_tolerance", "fault_tolerance.enable") and count is not None and count > 1:
        why = f"{count} replica groups average their gradients; the numbers are of one of them"
        sheet.ignore((key,), True, why)
    method_key = "fault_tolerance.semi_sync_method"
    method = sheet.settings.get(method_key)
    if method is not None and method.value not in (None, "", "none"):
        why = "groups that meet every so many steps, and what they keep for it, are not modelled"
        sheet.ignore((method_key, "fault_tolerance.sync_steps"), True, why)


def put_ignored(sheet: Sheet) -> None:
    """Say of the rest whether it matters, and why."""
    sheet.ignore(
        ("parallelism.disable_loss_parallel", "training.enable_loss_parallel"),
        True,
        "the loss is taken as cut over tp, torchtitan's default",
    )
    if (sheet.draft.get("pp") or 1) > 1:
        csv = ("*.pipeline_parallel_schedule_csv",)
        sheet.ignore(csv, True, "a schedule in a CSV is not read: the named one's bubble is taken")
    sheet.ignore(("*split_points", "*split_mode"), False, "pp is 1")
    sheet.ignore(
        ("parallelism.context_parallel_*", "experimental.context_parallel_*"), False, "cp is 1"
    )
    sheet.ignore(
        ("parallelism.pipeline_*", "experimental.pipeline_*", "experimental.enable_compiled*"),
        False,
        "does not change time or memory here",
    )
    early = "optimizer.early_step_in_backward"
    if as_boolean(sheet.settings[early].value if early in sheet.settings else False):
        why = "gradients are freed as the backward pass steps; the estimate holds them all"
        sheet.ignore((early,), True, why)
    sheet.ignore((early,), False, "off")
    sheet.ignore(QUIET, False, "does not change the time or memory of a step")
