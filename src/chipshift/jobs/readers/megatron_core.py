"""Megatron Core's fields as the Megatron-LM arguments they equal.

NeMo and Megatron-Bridge set the fields of Megatron Core's configs: each is passed on as an
argument, and read as such. Fields: NVIDIA, Megatron-LM, megatron/core/model_parallel_config.py and
transformer_config.py, 2026-08.
"""

from __future__ import annotations

import re

from chipshift.errors import slipped
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.dtypes import dtype_of
from chipshift.jobs.readers import megatron
from chipshift.jobs.settings import Setting, Sheet, as_boolean, unknown

RENAMED = {
    "encoder_seq_length": "seq-length",
    "seq_length": "seq-length",
    "sequence_length": "seq-length",
    "virtual_pipeline_model_parallel_size": "num-virtual-stages-per-pipeline-rank",
    "activations_checkpoint_granularity": "recompute-granularity",
    "activations_checkpoint_method": "recompute-method",
    "activations_checkpoint_num_layers": "recompute-num-layers",
    "num_moe_experts": "num-experts",
    "moe_router_topk": "moe-router-topk",
    "use_megatron_fsdp": "use-megatron-fsdp",
    "tp_comm_overlap": "tp-comm-overlap",
    "ub_tp_comm_overlap": "tp-comm-overlap",
    "data_parallel_sharding_strategy": "data-parallel-sharding-strategy",
    "mtp_num_layers": "mtp-num-layers",
    "override_vocab_size": "padded-vocab-size",
    "fp8_param": "fp8-param-gather",
    "fp8_params": "fp8-param-gather",
    "fp8_param_gather": "fp8-param-gather",
    "num_kv_heads": "num-query-groups",
    "qkv_bias": "add-qkv-bias",
    "add_qkv_bias": "add-qkv-bias",
    "mbs": "micro-batch-size",
    "gbs": "global-batch-size",
    "tp_size": "tensor-model-parallel-size",
    "pp_size": "pipeline-model-parallel-size",
    "cp_size": "context-parallel-size",
    "vp_size": "num-virtual-stages-per-pipeline-rank",
    "ep_size": "expert-model-parallel-size",
    "etp_size": "expert-tensor-parallel-size",
    "num_layers_in_first_pipeline_stage": "decoder-first-pipeline-num-layers",
    "num_layers_in_last_pipeline_stage": "decoder-last-pipeline-num-layers",
}
"""Fields whose Megatron-LM argument has another name."""

PASSED = frozenset(
    {
        *("micro_batch_size", "global_batch_size", "tensor_model_parallel_size", "num_layers"),
        *("pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size"),
        *("expert_tensor_parallel_size", "sequence_parallel", "hidden_size", "ffn_hidden_size"),
        *("num_attention_heads", "num_query_groups", "kv_channels", "recompute_granularity"),
        *("recompute_method", "recompute_num_layers", "recompute_modules", "vocab_size"),
        *("use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather"),
        *("moe_ffn_hidden_size", "grad_reduce_in_bf16", "max_position_embeddings"),
        *("cuda_graph_impl", "attention_backend", "moe_grouped_gemm", "moe_permute_fusion"),
        *("bf16", "fp16", "swiglu", "pipeline_model_parallel_layout"),
        *("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"),
        *("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "transformer_impl"),
        *("exp_avg_sq_dtype", "moe_token_dispatcher_type", "moe_expert_capacity_factor"),
        *("fp32_residual_connection", "fp16_lm_cross_entropy", "use_tp_pp_dp_mapping"),
        *("cp_comm_type", "hierarchical_context_parallel_sizes"),
        *("moe_flex_dispatcher_backend", "use_precision_aware_optimizer", "use_nccl_ub"),
        "make_vocab_size_divisible_by",
    }
)


def argument_of(name: str) -> str:
    """The argument that a field equals, or ""."""
    return RENAMED.get(name) or (name.replace("_", "-") if name in PASSED else "")


def pass_on(settings: dict[str, Setting], name: str, setting: Setting) -> None:
    """A field as the argument it equals; off and unset ones are left out.

    Raises:
        InputError: the field is one slip of the keyboard away from one that is known.
    """
    if name not in PASSED and name not in RENAMED:
        meant = next((k for k in sorted(PASSED | RENAMED.keys()) if slipped(name, k)), "")
        if meant and setting.file != "--set":
            raise unknown(name, setting, meant)
    argument = argument_of(name)
    value = setting.value
    if argument == "fp8-param-gather" and as_boolean(value) is False:
        settings.pop(argument, None)  # the precision's own, taken back
    if not argument or value is None or value is False or isinstance(value, dict):
        return
    if isinstance(value, str) and as_boolean(value) is False and not value.isdecimal():
        return
    if argument in ("num-virtual-stages-per-pipeline-rank", "num-experts") and str(value) == "1":
        return  # NeMo makes experts of a feed-forward above 1
    if isinstance(value, str) and argument.endswith("-dtype"):
        setting = Setting(dtype_of(value) or value, setting.file, setting.line)
    settings[argument] = setting


BLOCKWISE = re.compile(r"subchannel|block|fp8_?sc")
"""The recipe whose weights stay bf16 between steps: NVIDIA, Megatron-Bridge 2026-08 and NeMo 2.6,
mixed_precision.py (``fp8_param_gather``), as of every other fp8 recipe there they do not."""


def put_precision(settings: dict[str, Setting], words: str, setting: Setting) -> None:
    lowered = words.lower()
    if "16" in lowered or "fp8" in lowered or "fp4" in lowered:
        half = "fp16" if re.fullmatch(r"(?:fp)?16(?:-mixed)?", lowered) else "bf16"
        settings[half] = Setting(True, setting.file, setting.line)
    if "nvfp4" in lowered:
        settings["fp4-format"] = Setting("e2m1", setting.file, setting.line)
    elif "fp8" in lowered:
        settings["fp8-format"] = Setting("hybrid", setting.file, setting.line)
        settings["fp8-recipe"] = Setting(lowered, setting.file, setting.line)
        if not BLOCKWISE.search(lowered):
            settings["fp8-param-gather"] = Setting(True, setting.file, setting.line)


def fill(settings: dict[str, Setting], draft: Draft, context: Context) -> None:
    settings.setdefault("use-mcore-models", Setting(True, draft.file))
    megatron.lay_over(settings, context.overrides)
    context.put_model(draft)
    known = draft.get("model") is not None or bool(draft.wanted_model)
    megatron.fill(Sheet(settings, draft), context.model_named or known)
