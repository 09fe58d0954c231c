"""llm.c: ``train_gpt2cu`` with its one-letter options, and ``train_gpt2.py`` with words.

Options and defaults: Karpathy, llm.c, train_gpt2.cu (``main``, ``gpt2_set_hyperparameters``,
``gpt3_set_hyperparameters``) and train_gpt2.py, 2025.
"""

from __future__ import annotations

import re
from dataclasses import replace

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.dtypes import dtype_of
from chipshift.jobs.job import Given
from chipshift.jobs.launch import (
    LLMC,
    as_settings,
    put_environment,
    put_machine,
    read_launch,
    unsettled,
)
from chipshift.jobs.readers.config_model import model_of_config
from chipshift.jobs.settings import Setting, Sheet
from chipshift.jobs.shell.values import Field
from chipshift.jobs.source import Source

BINARY = LLMC
SCRIPT = re.compile(r"(?:^|/)train_gpt2\.py$")

OPTIONS = {
    "e": "model", "b": "batch_size", "t": "sequence_length", "d": "total_batch_size",
    "z": "zero_stage", "r": "recompute", "w": "master_weights", "pn": "num_processes",
    "pg": "gpus_per_node",
}  # fmt: skip
"""The program's options that bear on a step, by the script's words where it has them."""

OTHERS = ("nk", "nm", "ge", "sl", "sg", "lg", "pi", "pf", "ps", "pr", *"ijonyluqcxvmsgafhk")

GPT2 = {6: 384, 12: 768, 24: 1024, 36: 1280, 48: 1600, 60: 1920, 72: 2880, 84: 3456}
"""Widths by layers (``d36``), with heads of 64 but for the two last, which have 96."""

GPT3 = {
    384: (6, 64), 768: (12, 64), 1024: (24, 64), 1536: (24, 96), 2048: (24, 128), 2560: (32, 80),
    4096: (32, 128), 5140: (40, 128), 12288: (96, 128),
}  # fmt: skip
"""Layers and width of a head by widths (``gpt3:c1536``)."""

HANDLING = ("make", "cmake", "ls", "ldd", "scp", "rsync", "chmod", "which", "nvcc", "test")
"""Commands that build or look at the program."""

HUB = {"gpt2": 12, "gpt2-medium": 24, "gpt2-large": 36, "gpt2-xl": 48}
WEIGHTS = {"gpt2_124M": 12, "gpt2_355M": 24, "gpt2_774M": 36, "gpt2_1558M": 48}
"""Files of weights that llm.c writes for OpenAI's models, by their layers."""


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "llm.c")
    launch = read_launch(source, context)
    settings: dict[str, Setting] | None = None
    binary = False
    for command in launch.found.commands:
        at = next((n for n, w in enumerate(command.words) if _starts(w)), None)
        first = command.words[0].plain.rsplit("/", 1)[-1]
        if at is not None and first not in HANDLING:
            binary = bool(BINARY.search(command.words[at].plain))
            rest = command.words[at + 1 :]
            words = _spelt(rest) if binary else list(rest)
            settings = as_settings(words, source.path, launch.found.environment)
    if settings is None:
        raise InputError(
            f"{source.path} starts no train_gpt2 of llm.c{unsettled(launch)}; expected one, or "
            "--set for the variable that leads to it"
        )
    context.overrides.lay_over(settings, tuple(OPTIONS.values()))
    put_machine(draft, launch)
    put_environment(draft, launch)
    sheet = Sheet(settings, draft)
    _processes(sheet)
    draft.put("stack", Given("other", source.path))
    _batch(sheet, 1024 if binary else 64)
    if not context.model_named:
        _model(sheet, "gpt2_124M_bf16.bin" if binary else "gpt2")
    (_compiled if binary else _scripted)(sheet)
    draft.assume("optimizer", "adamw", "llm.c's optimizer")
    sheet.ignore(("*",), False, "does not change the time or memory of a step")
    sheet.close("llm.c")
    return draft


def _starts(word: Field) -> bool:
    return bool(BINARY.search(word.plain) or SCRIPT.search(word.plain))


def _spelt(words: tuple[Field, ...]) -> list[Field]:
    """``-b 64 -t 1024`` in words; a letter is an option of its own wherever more follow it."""
    found: list[Field] = []
    for word in words:
        letters = re.fullmatch(r"-([a-z]{1,2})", word.plain)
        name = ""
        if letters and not re.fullmatch(r"-\d", word.plain):
            one = letters.group(1)
            name = OPTIONS.get(one) or (f"option_{one}" if one in OTHERS else "")
            name = name or OPTIONS.get(one[0]) or f"option_{one[0]}"
        found.append(Field(f"--{name}", word.line) if name else word)
    return found


def _processes(sheet: Sheet) -> None:
    """``-pn`` processes of ``-pg`` a node, where the launcher does not say how many."""
    processes = sheet.integer("num_processes", into="devices")
    each = sheet.integer("gpus_per_node", into="devices a node")
    draft = sheet.draft
    if draft.get("nodes") is None and draft.get("devices") is None:
        if processes is not None and processes.value > 1:
            draft.put("devices", processes)
            draft.put("devices_per_node", each)
        elif not {"devices_per_node"} & draft.values.keys():
            draft.assume("devices", 1, "started by no launcher: one process")


def _batch(sheet: Sheet, length: int) -> None:
    """Tokens of a step, sequences a device; accumulation makes up the rest."""
    draft = sheet.draft
    draft.put("microbatch", sheet.integer("batch_size", into="sequences a device a forward"))
    draft.assume("microbatch", 4, "llm.c's default batch a device")
    found = sheet.integer("sequence_length", into="sequence length", high=10**7)
    draft.put("seq_len", found)
    draft.assume("seq_len", length, "llm.c's default sequence length")
    key = "total_batch_size"
    total = sheet.integer(key, into="tokens a step", none=(-1,), high=10**12)
    tokens = found.value if found is not None else length
    if total is None:
        draft.assume("accumulation", 1, "without a total batch each forward is a step")
    elif total.value % tokens:
        raise InputError(
            f"{total.file}:{total.line}: {total.value} tokens a step are no whole number of "
            f"sequences of {tokens}; expected a multiple"
        )
    else:
        draft.put("global_batch", Given(total.value // tokens, total.file, total.line))


def _model(sheet: Sheet, default: str) -> None:
    """A depth (``d12``), a width of GPT-3 (``gpt3:c768``), or weights to start from."""
    draft = sheet.draft
    named = sheet.text("model", into="model")
    text = named.value if named is not None else default
    stem = re.sub(r"(_bf16)?\.bin$", "", text.rsplit("/", 1)[-1])
    depth = re.fullmatch(r"d(?:epth)?(\d+)", stem)
    width = re.fullmatch(r"gpt3:c(\d+)", stem)
    layers = int(depth.group(1)) if depth else HUB.get(stem) or WEIGHTS.get(stem) or 0
    if width and int(width.group(1)) in GPT3:
        d = int(width.group(1))
        layers, head = GPT3[d]
        positions = 2048
    elif layers in GPT2:
        d, head, positions = GPT2[layers], 96 if layers > 60 else 64, 1024
    else:
        draft.wanted_model = text[:80]
        return
    config = {
        "model_type": "gpt2", "n_layer": layers, "n_embd": d, "n_head": max(1, d // head),
        "n_positions": positions, "vocab_size": 50304,
    }  # fmt: skip
    model = model_of_config(config, f"gpt2-d{layers}", draft.file)
    line = named.line if named is not None else None
    draft.put("model", Given(replace(model, name=f"gpt-{layers}x{d}"), draft.file, line))
    if named is None:
        draft.note("model", text, "llm.c's default")


def _compiled(sheet: Sheet) -> None:
    """The CUDA program: bf16 weights and gradients, fp32 master weights and moments."""
    draft = sheet.draft
    master = sheet.integer("master_weights", into="master weights", low=0)
    why = "train_gpt2cu is built for bf16, as its Makefile has it; --set for PRECISION=FP32"
    for field in ("compute", "weights", "gradients", "reduce"):
        draft.assume(field, "bf16", why)
    kept = "fp32" if master is None or master.value else "none"
    draft.assume("master", kept, "train_gpt2cu keeps fp32 master weights (-w 1)")
    draft.assume("moments", "fp32", "train_gpt2cu keeps its moments in fp32")
    draft.assume("sharding", "ddp", "train_gpt2cu keeps its weights on each device")
    _sharded(sheet)
    again = sheet.integer("recompute", into="rematerialisation", low=0, high=2)
    level = again.value if again is not None else 1
    if level:
        what = "the GELU" if level == 1 else "the GELU and the norms"
        draft.note("rematerialisation", "none", f"{what} run again (-r {level}); counted as kept")
    draft.assume("remat", "none", "train_gpt2cu recomputes no matmul")


def _scripted(sheet: Sheet) -> None:
    """The script: autocast on fp32 weights, DDP."""
    draft = sheet.draft
    named = sheet.text("dtype", into="autocast")
    dtype = (dtype_of(named.value) if named is not None else None) or "fp32"
    draft.put("mixed", Given("no" if dtype == "fp32" else dtype, draft.file))
    draft.assume("loaded", "fp32", "train_gpt2.py keeps fp32 weights under autocast")
    draft.assume("sharding", "ddp", "train_gpt2.py wraps the model in DDP")
    _sharded(sheet)
    sheet.flag("compile", "compile", off=(0, "0", None))
    draft.assume("remat", "none", "train_gpt2.py recomputes nothing")


def _sharded(sheet: Sheet) -> None:
    """ZeRO 1, the one stage that llm.c has."""
    stage = sheet.integer("zero_stage", into="optimizer sharding", low=0, high=3)
    if stage is not None and stage.value:
        sheet.draft.put("optimizer_sharding", Given("zero1", stage.file, stage.line))
        if stage.value > 1:
            sheet.draft.note("optimizer sharding", "zero1", "llm.c has stage 1 alone")
