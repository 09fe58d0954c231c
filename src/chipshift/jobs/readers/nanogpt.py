"""nanoGPT's config files: Python assignments laid over train.py's defaults.

Names, defaults and the batch arithmetic: Karpathy, nanoGPT, train.py and model.py, 2024.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from chipshift.errors import InputError
from chipshift.jobs import python_tree
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.dtypes import dtype_of
from chipshift.jobs.job import Given
from chipshift.jobs.python_tree import Unknown
from chipshift.jobs.readers.hf_args import put_model_named
from chipshift.jobs.readers.nanogpt_forks import fork_shape
from chipshift.jobs.readers.nanogpt_sharding import put_fork_sharding
from chipshift.jobs.readers.optimizer_name import put_optimizer_named
from chipshift.jobs.settings import Setting, Sheet
from chipshift.jobs.source import Source
from chipshift.models.model import Layer, Model
from chipshift.models.preset import preset


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "nanogpt")
    return fill(dict(python_tree.parse(source).constants), draft, context)


def fill(settings: dict[str, Setting], draft: Draft, context: Context) -> Draft:
    """A draft from train.py's keys, wherever they were written."""
    context.overrides.lay_over(settings, KEYS)
    sheet = Sheet(settings, draft)
    length = _count(sheet, "block_size", "sequence length", 1024)
    draft.put("seq_len", length)
    batch = _count(sheet, "batch_size", "sequences a forward", 12)
    steps = _count(sheet, "gradient_accumulation_steps", "forwards of all devices", 40)
    own = _accumulates(context)
    if own is None and steps.line is not None and steps.value > 1 and steps.value % 8:
        why = "divided over the devices; train.py of before June 2023 takes so many on each"
        draft.note("accumulation", steps.value, f"{why}: --set sequences_per_step=N")
    draft.put("microbatch", batch)
    # train.py divides the accumulation over the devices: their product is the global batch
    total = batch.value * steps.value
    if own is False:
        draft.put("accumulation", steps)
        draft.note("accumulation", steps.value, "the program given divides it over no devices")
    else:
        draft.put("global_batch", Given(total, steps.file, steps.line))
    if not context.model_named and not _elsewhere(sheet):
        draft.put("model", Given(gpt_model(sheet, length.value), draft.file))
    written = settings.get("dtype")
    if written is not None and isinstance(written.value, Unknown) and "bfloat16" in written.value:
        del settings["dtype"]  # train.py's own choice by what the chip has: the default below
    dtype = sheet.text("dtype", into="autocast")
    name = dtype_of(dtype.value) if dtype is not None else None
    if dtype is not None and name:
        draft.put("mixed", Given("no" if name == "fp32" else name, dtype.file, dtype.line))
        if name == "fp16":
            draft.flag("loss_scaler", "dtype", dtype.value, dtype.line)
    draft.assume("mixed", "bf16", "train.py takes bfloat16 where the chip has it")
    draft.assume("loaded", "fp32", "train.py keeps fp32 weights under autocast")
    put_fork_sharding(sheet)
    draft.assume("sharding", "ddp", "train.py wraps the model in DDP")
    _optimizer(sheet)
    draft.assume("optimizer", "adamw", "train.py's optimizer")
    draft.assume("remat", "none", "train.py recomputes nothing")
    draft.assume("stack", "other", "nanoGPT has no calibration of its own")
    if not sheet.flag("compile", "compile") and "compile" not in settings:
        draft.flag("compile", "compile", "True (the default)", None)
    draft.flag("fused_optimizer", "fused", "True (train.py's, on CUDA)", None)
    off = [key for key, one in settings.items() if key.startswith("use_") and one.value is False]
    sheet.ignore(off, False, "a fork's own, and off")
    forks = ("use_*", "moe_*", "*expert*", "*window*", "n_kv*", "num_kv*", "block_linear")
    sheet.ignore(forks, True, "changes nanoGPT's model; --torch reads the module as it is")
    loop = [key for key, one in settings.items() if isinstance(one.value, Unknown)]
    sheet.ignore(loop, False, "a variable of the training loop")
    sheet.ignore(QUIET, False, "does not change the time or memory of a step")
    why = "no key of train.py, a fork's own; --torch reads a module as it is"
    sheet.ignore(("*",), True, why)
    sheet.close("nanoGPT")
    return draft


_DIVIDES = re.compile(
    r"gradient_accumulation_steps[ \t]*(?://=|=[^\n=]*//[ \t]*\(?[^\n]*world_size)|"
    r"gradient_accumulation_steps[ \t]*%[^\n]*world_size"
)


def _accumulates(context: Context) -> bool | None:
    """Whether a training program that is given divides the accumulation; None without one."""
    for source in context.beside.values():
        if (
            "DistributedDataParallel" in source.text
            and "gradient_accumulation_steps" in source.text
        ):
            return bool(_DIVIDES.search(source.text))
    return None


_ELSEWHERE = re.compile(r"(?:^|_)(?:model_)?config(?:_path|_file|_name)?$")
_OTHER_BLOCKS = re.compile(r"mamba|rwkv|hyena|ssm|s4|retnet|gla|delta|lstm", re.I)


def _elsewhere(sheet: Sheet) -> bool:
    """A fork's model that this file has not: another file's, a hub's, or of other blocks."""
    if _from_hub(sheet):
        return True
    for key, setting in sheet.settings.items():
        if not isinstance(setting.value, str) or isinstance(setting.value, Unknown):
            continue
        named = _ELSEWHERE.search(key) and setting.value.endswith((".json", ".yaml", ".yml"))
        if named and not {"n_layer", "n_embd"} & sheet.settings.keys():
            sheet.taken.add(key)
            sheet.draft.wanted_model = f"the model of {setting.value}"
            sheet.draft.miss(setting.value, setting.file, setting.line, "it is the model's config")
            return True
        if re.search(r"block_type|mixer|layer_type", key) and _OTHER_BLOCKS.search(setting.value):
            sheet.taken.add(key)
            sheet.draft.wanted_model = f"a fork's model of {setting.value} blocks"
            return True
    return False


def _from_hub(sheet: Sheet) -> bool:
    """A fork's ``init_from = "/models/Qwen2-0.5B"``: train.py knows GPT-2's weights alone."""
    start = sheet.settings.get("init_from")
    text = str(start.value) if start is not None and isinstance(start.value, str) else ""
    if start is None or not text or re.match(r"gpt2|scratch$|resume$|prev_run$", text):
        return False
    if isinstance(start.value, Unknown) or text.endswith((".pt", ".pth", ".bin", ".ckpt")):
        return False
    sheet.record("init_from", start, "weights to start from")
    put_model_named(sheet.draft, text.rstrip("/").rsplit("/", 1)[-1], start)
    return True


QUIET = (
    *("out_dir", "eval_*", "log_*", "always_save_*", "save_*", "init_from", "wandb_*", "dataset"),
    *("learning_rate", "max_iters", "weight_decay", "beta*", "grad_clip", "decay_lr", "warmup_*"),
    *("lr_*", "min_lr", "*_lr", "lr", "backend", "device", "dropout", "seed", "meta_vocab_size"),
    *("*iter", "*iters", "*_interval", "*_name", "*_dir", "*_path", "*_file*", "*_notes", "gamma"),
    *("momentum", "*decay*", "*schedule*", "epsilon", "eps", "*seed*", "tensorboard*", "start"),
    *("rho", "interval", "hess*", "scale_attn*", "*num_workers", "*tokenizer*", "*_cache*"),
    *("comment", "rank", "world_size", "ckpt_*", "*overwrite*", "max_length", "exp_*", "project*"),
    *("num_samples", "max_new_tokens", "temperature", "top_k", "data_*", "*checkpoint*"),
)
"""Keys of train.py and sample.py that change neither time nor memory, and forks' like them."""


def _optimizer(sheet: Sheet) -> None:
    """AdamW, or what a fork's key names; one that is not known is said."""
    built = sheet.settings.get("optimizer")
    if built is not None and isinstance(built.value, Unknown):  # train.py's own variable
        sheet.taken.add("optimizer")
        del sheet.settings["optimizer"]
    keys = ("optimizer_type", "optimizer_name", "algorithm", "optimizer")
    named = sheet.text(*keys, into="optimizer")
    if named is not None:
        put_optimizer_named(sheet.draft, named, "optimizer")


KEYS = ("block_size", "batch_size", "gradient_accumulation_steps", "n_layer", "n_head", "n_embd")


def _count(sheet: Sheet, key: str, into: str, default: int) -> Given[int]:
    found = sheet.integer(key, into=into, high=10**9)
    if found is None:
        sheet.draft.note(key, default, "train.py's default")
    return found or Given(default, sheet.draft.file)


def gpt_model(sheet: Sheet, positions: int) -> Model:
    """GPT-2 as model.py has it: head tied, biases by choice, vocabulary padded to 50304."""
    start = sheet.text("init_from", into="weights to start from")
    if start is not None and start.value.startswith("gpt2"):
        # train.py takes layers, widths, biases and vocabulary from the weights
        return replace(preset(start.value), max_positions=positions)
    layers = _count(sheet, "n_layer", "layers", 12).value
    heads = _count(sheet, "n_head", "heads", 12).value
    d = _count(sheet, "n_embd", "model width", 768).value
    meta = sheet.settings.get("meta_vocab_size")
    if meta is not None and isinstance(meta.value, Unknown) and meta.value.startswith("meta["):
        # train.py itself: the data set's own vocabulary, where it has one
        sheet.taken.add("meta_vocab_size")
        sheet.draft.note("vocab_size", 50304, "train.py's default; the data set may hold another")
        vocab = sheet.integer("vocab_size", into="vocabulary")
    else:
        names = ("vocab_size", "meta_vocab_size", "vocab_size_override", "padded_vocab_size")
        vocab = sheet.integer(*names, into="vocabulary")
        if vocab is None:
            why = "train.py's default where the data set's meta.pkl tells none"
            sheet.draft.note("vocab_size", 50304, why)
    bias = sheet.boolean("bias", into="biases")
    if d % heads or layers > 100_000:
        raise InputError(
            f"{sheet.draft.file}: n_embd {d} is not a multiple of n_head {heads}, or n_layer "
            f"{layers} is absurd; expected a multiple"
        )
    on = bias is not None and bias.value
    norm = 2 * d if on else d
    shape = fork_shape(sheet, d, heads)
    mlp = shape.mlp(d, on)
    made: dict[str, Any] = {
        "vocab": vocab.value if vocab else 50304,
        "layers": ((Layer(shape.attention(d, heads, on), mlp, 2 * norm), layers),),
        "layer_order": (0,) * layers,
        "embedding_extra_params": positions * d if shape.learned else 0,
        "final_norm_params": norm,
    }
    return Model(
        name=f"gpt-{layers}x{d}", architecture="nanogpt", d_model=d, tied=shape.tied, **made
    )
