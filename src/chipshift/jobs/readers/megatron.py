"""Megatron-LM launch scripts: a shell script that starts ``pretrain_*.py`` with its arguments.

Arguments, defaults and arithmetic: NVIDIA, Megatron-LM, megatron/training/arguments.py,
megatron/core/model_parallel_config.py and transformer_config.py, 2026-08.
"""

from __future__ import annotations

import re

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.launch import (
    Launch,
    as_settings,
    program_words,
    put_environment,
    put_machine,
    read_launch,
    unsettled,
)
from chipshift.jobs.overrides import Overrides
from chipshift.jobs.readers.megatron_adapters import put_adapters
from chipshift.jobs.readers.megatron_context import put_exchange
from chipshift.jobs.readers.megatron_deepspeed import translate
from chipshift.jobs.readers.megatron_flags import own, put_flags, put_ignored, say_untrained
from chipshift.jobs.readers.megatron_model import build
from chipshift.jobs.readers.megatron_precision import put_precision
from chipshift.jobs.readers.megatron_remat import put_remat
from chipshift.jobs.readers.megatron_stages import put_stages
from chipshift.jobs.readers.optimizer_name import put_optimizer_named
from chipshift.jobs.settings import Setting, Sheet
from chipshift.jobs.shell.values import Field, split
from chipshift.jobs.source import Source

MOST = 10**6
TELLTALES = frozenset(
    {
        *("--tensor-model-parallel-size", "--micro-batch-size", "--num-layers", "--hidden-size"),
        *("--pipeline-model-parallel-size", "--seq-length", "--global-batch-size", "--bf16"),
    }
)
OTHER_PROGRAMS = re.compile(
    r"(?:pretrain|train|finetune)_(?:bert|t5|ict|vision\w*|vlm|retro|mamba)"
)
"""Programs of Megatron-LM whose arguments describe something other than a decoder."""

LLAMA_PROGRAM = re.compile(r"(?:^|/)pretrain_llama\w*\.py$")
"""A program of forks (AscendSpeed) that builds LLaMA whatever the arguments leave out."""
LLAMA_SAYS = (
    "swiglu",
    "normalization",
    "untie-embeddings-and-output-weights",
    "disable-bias-linear",
)

BERT_TASKS = ("MNLI", "QQP", "RACE", "ICT-ZEROSHOT-NQ", "RETRIEVER-EVAL", "RET-FINETUNE-NQ")
"""``--task`` of Megatron-LM's tasks/main.py, which fine-tunes a BERT for them."""

QUIET_NAMES = re.compile(r"WANDB|TOKEN|KEY|LOG|DEBUG|PATH|DIR|PROFILE|CKPT")


def read(source: Source, context: Context) -> Draft:
    """Read one script; see ``readers/__init__``."""
    draft = Draft(source.path, "megatron", uneven_pp=False, kv_replicated=True)
    launch = read_launch(source, context)
    words = training_command(launch, source.path)
    program = next(
        (w.plain for c in launch.found.commands for w in c.words if OTHER_PROGRAMS.search(w.plain)),
        "",
    )
    settings = as_settings(words, source.path, launch.found.environment)
    _of_megatron_llm(settings)
    _say_several(draft, launch)
    lay_over(settings, context.overrides)
    translate(settings, draft, context, launch.found.environment.files)
    _refuse_parts(settings)
    sheet = Sheet(settings, draft)
    put_machine(draft, launch)
    put_environment(draft, launch)
    _unset(draft, launch)
    task = settings.get("task")
    if not program and task is not None and str(task.value) in BERT_TASKS:
        program = f"BERT for {task.value}"
    if program:
        draft.wanted_model = program.rsplit("/", 1)[-1]
    for command in launch.found.commands:
        if _telltales(list(command.words)):
            say_untrained(draft, [word.plain for word in command.words], command.line)
    _put_llama(settings, draft, launch)
    context.put_model(draft)
    fill(sheet, context.model_named or bool(program))
    return draft


LLM = {
    "use-rms-norm": ("normalization", "RMSNorm"),
    "no-tie-embed-logits": ("untie-embeddings-and-output-weights", True),
}
"""Megatron-LLM's own words and the arguments that they equal."""


def _of_megatron_llm(settings: dict[str, Setting]) -> None:
    """Megatron-LLM's ``--tensor_model_parallel_size`` as Megatron-LM spells it.

    Source: EPFL, Megatron-LLM, megatron/arguments.py, 2023: linear maps have no biases without
    ``--use_bias``.
    """
    if "tensor_model_parallel_size" not in settings or "tensor-model-parallel-size" in settings:
        return
    for key in [*settings]:
        settings[key.replace("_", "-")] = settings.pop(key)
    for key, (argument, value) in LLM.items():
        if (own := settings.pop(key, None)) is not None:
            settings[argument] = Setting(value, own.file, own.line)
    glu, heads = settings.pop("glu-activation", None), settings.pop("num-attention-heads-kv", None)
    if glu is not None and "glu" in str(glu.value):
        settings["swiglu"] = Setting(True, glu.file, glu.line)
    if heads is not None:
        settings["num-query-groups"] = heads
        settings["group-query-attention"] = Setting(True, heads.file, heads.line)
    if settings.pop("use-bias", None) is None:
        settings["disable-bias-linear"] = Setting(True, next(iter(settings.values())).file)


def _say_several(draft: Draft, launch: Launch) -> None:
    """A script that trains more than once: the jobs that are not read."""
    counts = [_telltales(program_words(command)) for command in launch.found.commands]
    jobs = sum(count > 3 and count == max(counts) for count in counts)
    if jobs > 1:
        draft.note("jobs of the script", jobs, "of those alike the last was read")


def _refuse_parts(settings: dict[str, Setting]) -> None:
    """Megatron-Bridge's MIMO: ``--component images=tp=1,pp=1,dp=1,rank_offset=16``.

    Raises:
        InputError: parts of the model on devices of their own are not read.
    """
    part = settings.get("component")
    if part is not None and "=" in str(part.value):
        raise InputError(
            f"{part.where}: --component trains parts of a model on devices of their own "
            "(MegatronMIMO), which is not read; expected a job whose devices hold the whole model"
        )


def _put_llama(settings: dict[str, Setting], draft: Draft, launch: Launch) -> None:
    """LLaMA's layers, where the program is a fork's own and its arguments name none of them.

    Source: Ascend, AscendSpeed, pretrain_llama.py and ascendspeed/model/llama_model.py, 2023: gated
    feed-forward, RMSNorm, rotary positions, no biases and a head of its own.
    """
    words = [word.plain for command in launch.found.commands for word in command.words]
    program = next((word for word in words if LLAMA_PROGRAM.search(word)), "")
    if not program or any(key in settings for key in LLAMA_SAYS):
        return
    for key, value in (
        *dict.fromkeys(LLAMA_SAYS, True).items(),
        ("position-embedding-type", "rope"),
    ):
        settings[key] = Setting("RMSNorm" if key == "normalization" else value, draft.file)
    why = f"{program.rsplit('/', 1)[-1]} builds LLaMA's: no argument names another"
    draft.note("layers", "gated, RMSNorm, rotary, no biases, untied head", why)


def fill(sheet: Sheet, model_named: bool, framework: str = "Megatron-LM") -> None:
    """A draft from Megatron's arguments, wherever they were written.

    Args:
        framework: whose keys they are; one of another than Megatron-LM's that is not known matters.
    """
    draft = sheet.draft
    draft.put("stack", Given("megatron", draft.file))
    if model_named:
        sheet.ignore(MODEL_KEYS, False, "--model names the model")
    else:
        draft.put("model", build(sheet))
    _degrees(sheet)
    _padding(sheet)
    _batch(sheet)
    _data_parallel(sheet)
    put_remat(sheet)
    put_precision(sheet)
    put_adapters(sheet)
    _optimizer(sheet)
    put_flags(sheet)
    put_ignored(sheet)
    sheet.close(framework, unknown_matters=framework != "Megatron-LM", own=own())


MODEL_KEYS = (
    *("num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads", "kv-channels"),
    *("group-query-attention", "num-query-groups", "swiglu", "normalization", "vocab-size"),
    *("untie-embeddings-and-output-weights", "disable-bias-linear", "add-qkv-bias"),
    *("position-embedding-type", "max-position-embeddings", "num-experts", "moe-router-topk"),
    *(
        "moe-ffn-hidden-size",
        "moe-layer-freq",
        "first-k-dense-replace",
        "moe-shared-expert-*",
        "*-lora-rank",
        "*-head-dim",
    ),
    *("multi-latent-attention", "qk-layernorm", "tokenizer-*", "mtp-num-layers", "window-size"),
)


def lay_over(settings: dict[str, Setting], overrides: Overrides) -> None:
    """``--set seq-length=4096`` or with underscores; script variables were laid over before."""
    for key, text in overrides.given.items():
        dashed = key.replace("_", "-").removeprefix("--")
        if dashed in settings or dashed in MODEL_KEYS or f"--{dashed}" in TELLTALES:
            value = True if text.lower() == "true" else text
            settings[dashed] = Setting(value, *overrides.places.get(key, ("--set", None)))
            overrides.used.add(key)


def training_command(launch: Launch, file: str) -> list[Field]:
    """Arguments of the command with the most of Megatron's own; the last of equals.

    A file of settings that another script sources starts no command: its variables that hold
    Megatron arguments are then taken together.

    Raises:
        InputError: the script starts none and holds none.
    """
    best: list[Field] = []
    most = 1
    for command in launch.found.commands:
        words = program_words(command)
        count = _telltales(words)
        if count >= most:
            best, most = words, count
    if not best:
        for value in launch.found.environment.variables.values():
            words = [
                w for field in (value if isinstance(value, list) else [value]) for w in split(field)
            ]
            if _telltales(words):
                best += words
    if not best:
        raise InputError(
            f"{file} starts no command with Megatron-LM arguments{unsettled(launch)}; expected a "
            "training command, or --set for the variable that leads to it"
        )
    return best


def _telltales(words: list[Field]) -> int:
    return sum(word.plain.split("=")[0].replace("_", "-") in TELLTALES for word in words)


def _unset(draft: Draft, launch: Launch) -> None:
    """Conditions that rest on what nothing sets, but for logging and the like."""
    for name, line in sorted(launch.found.environment.unset.items()):
        if name.isidentifier() and not QUIET_NAMES.search(name):
            draft.note(f"${name} (line {line})", "unset", f"nothing sets it; --set {name}=... does")


def _degrees(sheet: Sheet) -> None:
    draft = sheet.draft
    for field, key in (
        ("tp", "tensor-model-parallel-size"),
        ("pp", "pipeline-model-parallel-size"),
        ("cp", "context-parallel-size"),
        ("ep", "expert-model-parallel-size"),
        ("etp", "expert-tensor-parallel-size"),
    ):
        draft.put(field, sheet.integer(key, into=field, high=MOST))
    if (draft.get("ep") or 1) == 1:
        draft.values.pop("etp", None)
    put_stages(sheet)
    parallel = sheet.boolean("sequence-parallel", into="sequence parallelism")
    tp = draft.get("tp") or 1
    if tp > 1:
        on = parallel is not None and parallel.value
        line = parallel.line if parallel else None
        draft.put("sequence_parallel", Given(on, draft.file, line))
    put_exchange(sheet)


def _padding(sheet: Sheet) -> None:
    """Megatron pads the vocabulary to a multiple of 128 × tp, which ``settle`` works out."""
    step = sheet.integer("make-vocab-size-divisible-by", into="step of the vocabulary")
    draft = sheet.draft
    if draft.pads_vocab and "padded-vocab-size" not in sheet.settings:
        draft.put("vocab_step", step)
        draft.assume("vocab_step", 128, "Megatron's default --make-vocab-size-divisible-by")


def _batch(sheet: Sheet) -> None:
    draft = sheet.draft
    decoder = sheet.integer("decoder-seq-length", into="sequence length", high=10**9)
    encoder = sheet.integer("seq-length", into="sequence length", high=10**9)
    draft.put("seq_len", decoder or encoder)  # with an image's encoder the second is its own
    micro = sheet.integer("micro-batch-size", "batch-size", into="microbatch")
    draft.put("microbatch", micro)
    total = sheet.integer("global-batch-size", into="global batch in sequences")
    ramp = sheet.raw("rampup-batch-size", "step-batch-size-schedule")
    if ramp is not None:
        sheet.record(*ramp, "the full global batch is taken")
        steps = re.findall(r"\d+[KMBT]?:(\d+)", str(ramp[1].value))
        if total is None and steps:  # tokens or samples from which on : sequences
            total = Given(int(steps[-1]), ramp[1].file, ramp[1].line)
    draft.put("global_batch", total)
    if micro is None:
        sheet.refuse_slip("micro-batch-size")
        raise InputError(
            f"{draft.file} gives no --micro-batch-size; expected it, or --set micro-batch-size=N"
        )
    if total is None:
        draft.note("global batch", "microbatch × dp", "Megatron's default without one")


def _data_parallel(sheet: Sheet) -> None:
    """dp takes what is left; how its state is sharded."""
    draft = sheet.draft
    distributed = sheet.boolean("use-distributed-optimizer", into="optimizer state sharded")
    megatron_fsdp = sheet.boolean(
        "use-megatron-fsdp", "use-custom-fsdp", into="Megatron's own FSDP"
    )
    torch_fsdp = sheet.boolean("use-torch-fsdp2", into="PyTorch FSDP2")
    strategy = sheet.text(
        "data-parallel-sharding-strategy",
        into="what is sharded",
        choices=("no_shard", "optim", "optim_grads", "optim_grads_params"),
    )
    instances = sheet.integer("num-distributed-optimizer-instances", into="groups of sharding")
    own = megatron_fsdp is not None and megatron_fsdp.value
    shards = strategy is not None and strategy.value == "optim_grads_params"
    zero = sheet.integer("zero-stage", into="DeepSpeed's ZeRO stage", low=0, high=3)
    if torch_fsdp is not None and torch_fsdp.value:
        draft.flag("torch_fsdp2", "--use-torch-fsdp2", "true", torch_fsdp.line)
    whole = (torch_fsdp is not None and torch_fsdp.value) or (own and shards)
    whole = whole or (zero is not None and zero.value == 3)
    axis = "fsdp" if whole else "dp"
    draft.open_axis = axis
    draft.put(axis, Given(1, draft.file))
    if whole:
        if instances and instances.value > 1:
            draft.put("dp", instances)
        return
    kind, line = "none", None
    if distributed and distributed.value:
        kind, line = "zero1", distributed.line
    if zero is not None:
        kind, line = ("none", "zero1", "zero2", "none")[zero.value], zero.line
    if own and strategy is not None:
        kind = {"no_shard": "none", "optim": "zero1", "optim_grads": "zero2"}.get(
            strategy.value, kind
        )
        line = strategy.line
    draft.put("optimizer_sharding", Given(kind, draft.file, line))
    if (draft.get("cp") or 1) > 1 and kind != "none":
        draft.note("optimizer sharding over cp", "yes", "Megatron shards it over dp × cp")


def _optimizer(sheet: Sheet) -> None:
    draft = sheet.draft
    chosen = sheet.text("optimizer-selection", into="optimizer")  # MindSpeed's
    name = sheet.text("optimizer", into="optimizer")
    if chosen is not None and (name is None or "adam" not in chosen.value):
        name = chosen
    if name:
        put_optimizer_named(draft, name, "optimizer")
    draft.assume("optimizer", "adamw", "Megatron's default --optimizer adam, decoupled decay")
