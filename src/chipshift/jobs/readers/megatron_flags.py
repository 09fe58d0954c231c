"""Megatron-LM arguments that matter for porting only, and those that do not matter at all.

``megatron_arguments.txt`` has the names of Megatron-LM's own, so that a fork's are told from them.
Source: NVIDIA, Megatron-LM, megatron/training/arguments.py of 2024-08 and 2026-08, and the fields
of megatron/training/config and megatron/core's configs that are arguments too, 2026-08.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given, Ignored
from chipshift.jobs.near_value import near_text
from chipshift.jobs.settings import Sheet

FLAGS = (
    ("attention_kernel", ("use-flash-attn",)),
    ("attention_kernel", ("attention-backend",)),
    ("tp_overlap", ("tp-comm-overlap",)),
    ("loss_scaler", ("loss-scale",)),
    ("loss_scaler", ("initial-loss-scale",)),
    ("variable_length", ("variable-seq-lengths",)),
    ("packed_documents", ("reset-attention-mask",)),
    ("packed_documents", ("reset-position-ids",)),
    ("variable_length", ("rl-use-sequence-packing",)),
    ("cuda_graph", ("enable-cuda-graph",)),
    ("cuda_graph", ("cuda-graph-impl",)),
    ("cuda_graph", ("cuda-graph-scope",)),
    ("nccl", ("use-nccl-ub",)),
    ("nccl", ("nccl-communicator-config-path",)),
    ("expert_kernels", ("moe-enable-deepep",)),
    ("expert_kernels", ("moe-flex-dispatcher-backend",)),
    ("fused_ops", ("moe-permute-fusion",)),
    ("grouped_gemm", ("moe-grouped-gemm",)),
    ("fused_ops", ("cross-entropy-loss-fusion",)),
    ("fused_ops", ("mla-down-proj-fusion",)),
    ("cpu_offload", ("optimizer-cpu-offload",)),
    ("cpu_offload", ("cpu-offloading",)),
    ("cpu_offload", ("swap-optimizer",)),  # MindSpeed's
    ("cpu_offload", ("cpu-optimizer",)),  # Megatron-DeepSpeed's
    ("dp_overlap", ("overlap-grad-reduce",)),
    ("dp_overlap", ("overlap-param-gather",)),
    ("ep_overlap", ("overlap-moe-expert-parallel-comm",)),
)


def put_flags(sheet: Sheet) -> None:
    """Record what a port must replace."""
    draft = sheet.draft
    known = ("local", "transformer_engine", "inference_optimized")
    into = "implementation of the layers"
    impl = near_text(sheet, "transformer-impl", into=into, known=known)
    if impl is None or impl.value == "transformer_engine":
        value = "transformer_engine" if impl else "transformer_engine (the default)"
        draft.flag("transformer_engine", "--transformer-impl", value, impl.line if impl else None)
    for kind, keys in FLAGS:
        sheet.flag(kind, *keys)
    half = draft.get("compute") == "fp16" or "fp16" in sheet.settings
    if half and "loss-scale" not in sheet.settings:
        setting = sheet.settings.get("fp16")
        draft.flag("loss_scaler", "--fp16", "dynamic", setting.line if setting else None)
    experts = sheet.settings.get("num-experts")
    capacity = sheet.raw("moe-expert-capacity-factor")
    if capacity is not None:
        sheet.record(*capacity, "tokens beyond an expert's capacity are dropped")
    elif experts is not None:
        draft.flag("dropless_moe", "--num-experts", experts.value, experts.line)
    tp = draft.values.get("tp")
    if isinstance(tp, Given) and tp.value == 8:
        draft.flag("node_of_8", "--tensor-model-parallel-size", 8, tp.line)


UNTRAINED = re.compile(
    r"(?:^|[/_])(?:generate|text_generation|run_text|evaluate|inference|quantize|ptq|prompt|server|"
    r"convert|export|decode|maxengine)\w*\.py$|^(?:max_?text|MaxText)[\w.]*\.\w*"
    r"(?:decode|maxengine|inference|convert|logit_checker)\w*$"
)
"""Programs that train nothing."""


def say_untrained(draft: Draft, words: list[str], line: int) -> None:
    """Say of a program that generates, evaluates or converts that it does not train."""
    for word in words:
        if UNTRAINED.search(word) or word in ("WIKITEXT103", "LAMBADA"):  # --task of tasks/main.py
            why = "by its name it trains nothing; a training step of these sizes is counted"
            entry = Ignored(word.rsplit("/", 1)[-1], draft.file, line, True, why)
            if entry not in draft.ignored:
                draft.ignored.append(entry)


def put_ignored(sheet: Sheet) -> None:
    """Say of the rest whether it matters, and why."""
    sheet.ignore(CUTS, True, "this way of cutting is not read")
    _dispatcher(sheet)
    if sheet.draft.get("compute") in ("fp8", "fp4"):
        sheet.ignore(NARROW, True, "all linear maps are taken in the narrow dtype, attention not")
    sheet.ignore(
        ("hybrid-*", "spec", "linear-attention-*", "experimental-attention-*", "is-hybrid-model"),
        True,
        "layers other than attention and feed-forward are not read from Megatron arguments",
    )
    tower = ("patch-size", "patch-dim", "vision-*", "img-h", "img-w", "num-image-embeddings")
    sheet.ignore(tower, True, "a vision tower is not read from Megatron arguments")
    sheet.ignore(("freeze-*", "lora-*"), True, "frozen parts are not read")
    sheet.ignore(
        ("cpu-offloading-*", "optimizer-offload-*", "fine-grained-activation-*", "offload-modules"),
        True,
        "offload to the host is not in the estimate",
    )
    sheet.ignore(
        (
            "moe-token-drop-policy",
            "moe-pad-expert-input-to-capacity",
            "moe-expert-rank-capacity-factor",
        ),
        True,
        "experts are taken as evenly loaded",
    )
    sheet.ignore(("use-fused-*",), False, "a fused kernel of a fork: not in the estimate")
    sheet.ignore(SHAPES, True, "this part of the layers is not read from Megatron arguments")
    sheet.ignore(KEPT, True, "what this keeps or frees is not in the estimate")
    sheet.ignore(("perform-rl-step", "grpo-*"), True, "sampling what it trains on is not modelled")
    sheet.ignore(OF_FORKS, False, "does not change the time or memory of a step")
    sheet.ignore(QUIET, False, "does not change the time or memory of a step", among=own())


DEEPEP = "moe-enable-deepep"


def _dispatcher(sheet: Sheet) -> None:
    """How tokens reach their experts: the estimate sends each to its own by all-to-all.

    Megatron-LM's default, ``allgather``, sends every token to all devices of ep.
    """
    draft = sheet.draft
    found = sheet.settings.get("moe-token-dispatcher-type")
    if "num-experts" not in sheet.settings or (draft.get("ep") or 1) == 1:
        return
    why = "every token is sent to all devices of ep; here to those of its experts alone"
    if found is not None and str(found.value).lower() == "allgather":
        sheet.ignore(("moe-token-dispatcher-type",), True, why)
    elif found is None and draft.format == "megatron" and DEEPEP not in sheet.settings:
        draft.note("exchange of tokens", "all-to-all", f"of Megatron's default, allgather: {why}")


CUTS = (
    *("tensor-parallel-num-weight-shards", "gtp-*", "standalone-embedding-stage"),
    *("use-tp-pp-dp-mapping", "no-scatter-gather-tensors-in-pipeline"),
)
NARROW = (
    *("first-last-layers-bf16", "num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16"),
    *("fp8-dot-product-attention", "fp8-multi-head-attention", "fp8-output-proj"),
)
SHAPES = (
    *("moe-latent-size", "attention-output-gate", "heterogeneous-*", "mtp-use-repeated-layer"),
    *("moe-extended-tp", "dsa-*", "mtp-hybrid-override-pattern", "encoder-num-layers"),
    "retro-add-retriever",
)
KEPT = (
    *("fp32-residual-connection", "mlp-chunks-for-training", "moe-paged-stash", "mhc-*"),
    *("moe-use-upcycling", "activation-func-fp8-input-store", "torch-fsdp2-no-reshard-*"),
    *("distribute-saved-activations", "fp16-lm-cross-entropy", "output-logit-dtype"),
    *("keep-fp8-transpose-cache", "reuse-grad-buf-for-mxfp8-param-ag"),
)


@cache
def own() -> frozenset[str]:
    """Names of Megatron-LM's own arguments, of the years that the module's text gives."""
    text = (Path(__file__).parent / "megatron_arguments.txt").read_text(encoding="utf-8")
    return frozenset(text.split())


OF_FORKS = (
    *("rope-scaling-type", "rope-scaling-mscale", "rope-scaling-mscale-all-dim", "use-glm-rope"),
    *("rope-scaling-original-max-position-embeddings", "norm-topk-prob", "use-flash-attn-v2"),
    *("router-gating-in-fp32", "gemm-gradient-accumulation-fusion", "moe-permutation-async-comm"),
    *("moe-alltoall-overlap-comm", "mla-fa-without-pad", "mla-mm-split", "mtp-after-norm"),
    *("enable-hf2mg-convert", "model-type-hf", "moe-loss-coeff", "moe-min-capacity"),
)
"""MindSpeed's and Megatron-DeepSpeed's own of the same kind: positions, kernels and losses."""

QUIET = (
    *("lr", "lr-*", "min-lr*", "*-decay-*", "weight-decay*", "adam-*", "clip-grad", "init-method*"),
    *("train-*", "eval-*", "*-iters", "log-*", "save*", "load*", "*-interval", "tensorboard-*"),
    *("wandb-*", "data-*", "split", "seed", "num-workers", "vocab-file", "merge-file", "exit-*"),
    *("no-load-*", "no-save-*", "ckpt-*", "dist-ckpt-*", "auto-detect-ckpt-format", "finetune"),
    *(
        "use-mcore-models",
        "use-legacy-models",
        "distributed-*",
        "timing-*",
        "profile*",
        "manual-gc*",
    ),
    *("attention-dropout", "hidden-dropout", "norm-epsilon", "rotary-*", "rope-*", "use-rope-*"),
    *("no-masked-softmax-fusion", "no-bias-*", "no-rope-fusion", "no-gradient-*", "no-persist-*"),
    *("no-check-*", "no-mmap-*", "no-create-*", "no-async-*", "no-query-key-*", "apply-*"),
    *("make-vocab-size-divisible-by", "attention-softmax-in-fp32", "mock-data", "tiktoken-*"),
    *("moe-router-*", "moe-aux-*", "moe-z-*", "moe-token-dispatcher-type", "moe-layer-recompute"),
    *("moe-*", "mtp-*", "mscale*", "enable-experimental", "async-save", "use-dist-ckpt"),
    *("bf16", "fp8-*", "fp4-recipe", "fp4-*", "first-last-layers-bf16", "num-layers-at-*"),
    *("deepspeed-activation-checkpointing", "no-pipeline-parallel", "task", "epochs"),
    *("empty-unused-*", "deepspeed", "deepspeed_config", "deepspeed-config", "repeated-dataloader"),
    *("train-mode", "max-padding-length", "stage", "no-shared-storage", "local_rank"),
    *("calculate-per-token-loss", "loss-scale-window", "hysteresis", "min-loss-scale"),
    *("decoupled-*", "ddp-*", "num-distributed-*", "align-*", "overlap-*", "delay-*", "defer-*"),
    *("tp-comm-*", "nccl-*", "disable-tp-*"),
    *("check-*", "deterministic-mode", "local-rank", "node_rank", "master_*", "nproc_per_node"),
    *(
        "nnodes",
        "rdzv*",
        "max_restarts",
        "tee",
        "enable-one-logger",
        "one-logger-*",
        "*-cache-path",
    ),
    *("valid-data-path", "test-data-path", "export-*", "trust-remote-code", "legacy-tokenizer"),
    *("fsdp-*", "megatron-fsdp-*", "init-model-with-meta-device", "fully-parallel-load"),
    *("padded-vocab-size", "te-rng-tracker", "cuda-graph-*", "inference-*", "sft*", "use-cpu-*"),
    *("create-attention-mask-in-dataloader", "eod-mask-loss", "override-*", "use-checkpoint-*"),
    *("muon-*", "sgd-momentum", "bias-*", "rerun-mode", "result-rejected-*", "high-priority-*"),
    *("use-tp-pp-dp-mapping", "batch-p2p-*", "use-ring-exchange-p2p", "logging-level", "lazy-*"),
    *("cross-entropy-fusion-impl", "accumulate-*", "quick-geglu", "squared-relu", "softmax-type"),
    *("enable-ft-package", "enable-msc", "use-persistent-ckpt-worker", "use-gloo-process-groups"),
    *("use-mp-args-from-checkpoint-args", "use-one-sent-docs", "use-sharp", "use-mup", "mup-*"),
    *("disable-bf16-reduced-precision-matmul", "use-mpi", "no-gradient-accumulation-fusion"),
)
