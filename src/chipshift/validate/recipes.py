"""Switches of NVIDIA's performance recipes, which its tables of runs do not print.

A run of NeMo's containers from 25.11 on is one of Megatron-Bridge's recipes; how that recipe sends
tokens to experts, whether it replays CUDA graphs and what it recomputes stands in its code
(``data/megatron_recipes.csv``), by model, chip, precision and release. Where the table of a release
prints other degrees than the recipe of its tag, and the table of the next release prints the
recipe's, the first is a misprint (mostly of the release before) and the recipe was run
(``data/megatron_misprints.csv``, whole: every carried run was compared with the recipe of its tag).
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from chipshift.jobs.job import Flag

MODULES = {
    "layernorm": ("attention_norm", "mlp_norm"),
    "moe_act": ("activation",),
    "mla_up_proj": ("qkv",),
    "mlp": (),
}
"""Megatron-Core's modules of selective recomputation, and the tensors of parallel/remat.py that
each makes again. ``mlp`` is of dense layers alone: three of 61, taken as kept."""
TENSORS = ("attention_norm", "qkv", "attention", "out_proj", "mlp_norm", "up", "activation")


@dataclass(frozen=True)
class Recipe:
    """One line of the table.

    Attributes:
        dispatcher: ``alltoall``, ``deepep`` or ``hybridep``.
        cuda_graph: what is replayed: ``none``, ``router``, ``attn`` or ``full_iteration``.
        recompute: modules that are made again.
    """

    model: str
    chips: tuple[str, ...]
    precisions: tuple[str, ...]
    since: str
    until: str
    dispatcher: str
    a2a_overlap: bool
    cuda_graph: str
    fused_experts: bool
    fp8_attention: bool
    fp8_head: bool
    recompute: tuple[str, ...]

    def holds(self, model: str, chip: str, precision: str, release: str) -> bool:
        """Whether it is the recipe of a run."""
        known = model == self.model and chip in self.chips and precision in self.precisions
        return known and self.since <= release and (not self.until or release < self.until)

    @property
    def remat(self) -> str:
        """Its recomputation in the words of parallel/remat.py."""
        again = {tensor for module in self.recompute for tensor in MODULES[module]}
        kept = sorted(set(TENSORS) - again)
        return f"custom:saved={'+'.join(kept)}" if again else "none"

    def flags(self, file: str, line: int | None) -> tuple[Flag, ...]:
        """What a job's file would say of it."""
        said = (
            ("expert_kernels", "moe_flex_dispatcher_backend", self.dispatcher),
            ("ep_overlap", "overlap_moe_expert_parallel_comm", _word(self.a2a_overlap)),
            ("cuda_graph", "cuda_graph_scope", self.cuda_graph),
            ("fused_experts", "use_transformer_engine_op_fuser", _word(self.fused_experts)),
            ("fp8_attention", "fp8_dot_product_attention", _word(self.fp8_attention)),
            ("fp8_head", "fp8_output_proj", _word(self.fp8_head)),
        )
        return tuple(Flag(kind, key, value, file, line) for kind, key, value in said)


def _word(on: bool) -> str:
    return "True" if on else "False"


@functools.cache
def recipes() -> tuple[Recipe, ...]:
    """Every line of the table."""
    file = resources.files("chipshift.validate") / "data" / "megatron_recipes.csv"
    out = []
    for row in csv.DictReader(file.read_text("utf8").splitlines()):
        switches = {k: row[k] == "yes" for k in ("a2a_overlap", "fused_experts", "fp8_attention",
                                                 "fp8_head")}  # fmt: skip
        lists = {k: tuple(filter(None, row[k].split("+"))) for k in ("chips", "precisions",
                                                                    "recompute")}  # fmt: skip
        words = {k: row[k] for k in ("model", "since", "until", "dispatcher", "cuda_graph")}
        out.append(Recipe(**words, **switches, **lists))  # type: ignore[arg-type]
    return tuple(out)


def recipe_of(model: str, chip: str, precision: str, release: str) -> Recipe | None:
    """The recipe that a run of a NeMo container was, where the table knows it."""
    found = (one for one in recipes() if one.holds(model, chip, precision, release))
    return next(found, None)


@dataclass(frozen=True)
class Misprint:
    """Degrees that a release's table of runs prints, and those that its recipe ran with."""

    model: str
    chip: str
    precision: str
    release: str
    printed: Mapping[str, int]
    ran: Mapping[str, int]


@functools.cache
def misprints() -> tuple[Misprint, ...]:
    """Every line of the table."""
    file = resources.files("chipshift.validate") / "data" / "megatron_misprints.csv"
    rows = csv.DictReader(file.read_text("utf8").splitlines())
    return tuple(
        Misprint(row["model"], row["chip"], row["precision"], row["release"],
                 _degrees(row["printed"]), _degrees(row["ran"]))
        for row in rows
    )  # fmt: skip


def _degrees(text: str) -> dict[str, int]:
    """``pp=2+vpp=12`` as numbers by name."""
    return {key: int(value) for key, _, value in (part.partition("=") for part in text.split("+"))}


def degrees_run(
    model: str, chip: str, precision: str, release: str, printed: Mapping[str, Any]
) -> Mapping[str, int]:
    """Degrees that a run had in place of those that its table prints; none where it is right.

    Args:
        printed: ``tp``, ``cp``, ``pp``, ``vpp``, ``ep`` and ``microbatch`` of the record.
    """
    asked = (model, chip, precision, release)
    for one in misprints():
        if (one.model, one.chip, one.precision, one.release) == asked and all(
            printed.get(key) == value for key, value in one.printed.items()
        ):
            return one.ran
    return {}
