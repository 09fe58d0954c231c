"""torchtitan's keys that do not matter, and those that the estimate leaves out.

Keys: PyTorch, torchtitan, torchtitan/config/job_config.py, from 2024-06 to 2026-02.
"""

from __future__ import annotations

from chipshift.jobs.settings import Sheet, as_boolean, as_integer

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
    *("training.dataloader.*", "training.data_parallel_type", "training.enable_fsdp"),
    *("fault_tolerance.*", "training.mixed_precision_reduce", "dump_folder", "hf_assets_path"),
)


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
