"""What one file says of a job, before it is joined with others and completed.

A ``Draft`` is the one thing in this room that is filled in step by step; readers write into it,
``join`` merges several, and ``complete.py`` makes the frozen ``TrainJob`` of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from chipshift.jobs.job import Assumed, Flag, Given, Ignored, Understood

FIELDS = {
    "model": "the model",
    "seq_len": "sequence length",
    "global_batch": "sequences a step",
    "tokens_per_step": "tokens a step",
    "microbatch": "sequences a replica a forward",
    "accumulation": "forwards a step",
    "dp": "data-parallel replicas",
    "fsdp": "fully sharded data parallel",
    "tp": "tensor parallel",
    "cp": "context parallel",
    "ep": "expert parallel",
    "etp": "tensor parallel of the experts",
    "pp": "pipeline stages",
    "vpp": "virtual stages a rank",
    "stage_layers": "layers of each model chunk",
    "remat": "rematerialisation",
    "optimizer_sharding": "optimizer sharding",
    "schedule": "pipeline schedule",
    "cp_kind": "context-parallel exchange",
    "ulysses_degree": "devices of cp that heads are dealt over",
    "cp_shards": "weights sharded over cp alone",
    "ring_of_rest": "devices of cp of which those that heads are too few for form rings",
    "rings": "chips of the rings that the innermost axis goes round",
    "sequence_parallel": "sequence parallelism",
    "compute": "dtype of the matmuls",
    "weights": "dtype of the weights",
    "gather": "dtype of gathered weights",
    "gradients": "dtype of gradients",
    "reduce": "dtype of the gradient reduction",
    "master": "dtype of the master weights",
    "moments": "dtype of the optimizer moments",
    "optimizer": "optimizer",
    "stack": "framework",
    "chip": "chip of the present machine",
    "machine": "present machine",
    "devices": "devices of the present machine",
    "devices_per_node": "devices a node",
    "nodes": "nodes",
    "task": "task",
    "trainable_fraction": "share of parameters trained",
    "adapters": "adapters a layer",
    "trained": "the part that is trained",
    "document_len": "tokens of a packed document",
    "loss_chunks": "pieces of the loss",
    "loss": "what the loss is of",
    "reference": "reference model",
    "teacher": "teacher of the distillation",
    "name": "name",
    "sharding": "data parallelism",
    "shard_group": "devices a group of hybrid sharding",
    "mixed": "mixed precision",
    "loaded": "dtype in which the weights are held",
    "engine": "what runs the data parallelism",
    "lora": "the adapters",
    "adapter_dtype": "dtype of the adapters",
    "quantised": "dtype of the frozen weights",
    "vocab_step": "step of the vocabulary",
    "second_copy": "devices that hold a second copy of the weights",
}
"""Every field a reader may fill, in words."""

DEGREES = ("dp", "fsdp", "tp", "cp", "pp")


@dataclass
class Draft:
    """One file's reading so far.

    Attributes:
        open_axis: the axis that takes the devices the others leave, or "": dp or fsdp, of MaxText
            any; slices_open, slices_known: see ``TrainJob``.
        microbatch_rule: ``exact``, ``all`` or ``at_most``: see ``TrainJob``.
        uneven_pp: the framework lets stages hold different numbers of layers.
        kv_replicated: the framework copies key/value heads where tp exceeds them.
        counts_examples: its batch counts examples, each of as many sequences as the loss has
            answers.
        pads_vocab: the framework pads the vocabulary's rows.
        accumulates_by_engine: DeepSpeed's file says the whole batch, and so how often.
        wanted_model: a model the file names that is not shipped.
        absent: files of settings that this one names and that were not given.
        known: keys that the file's reader asks for.
        reached: keys of ``--set`` that the reader took, or ignores for a stated reason.
    """

    file: str
    format: str
    values: dict[str, Given[Any] | Assumed[Any]] = field(default_factory=dict)
    open_axis: str = ""
    slices_open: str = ""
    slices_known: int = 1
    microbatch_rule: str = "exact"
    uneven_pp: bool = True
    kv_replicated: bool = True
    counts_examples: bool = False
    pads_vocab: bool = True
    accumulates_by_engine: bool = False
    wanted_model: str = ""
    absent: list[str] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)
    understood: list[Understood] = field(default_factory=list)
    ignored: list[Ignored] = field(default_factory=list)
    assumed: list[tuple[str, str, str]] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    reached: set[str] = field(default_factory=set)

    def put(self, name: str, value: Given[Any] | Assumed[Any] | None) -> None:
        """Set a field, an already stated one being replaced; None leaves it as it is."""
        if name not in FIELDS:
            raise KeyError(name)
        if value is not None:
            self.values[name] = value

    def assume(self, name: str, value: object, why: str) -> None:
        """Set a field that nothing has stated yet to a value the framework documents."""
        if name not in FIELDS:
            raise KeyError(name)
        if name not in self.values:
            self.values[name] = Assumed(value, why)

    def note(self, what: str, value: object, why: str) -> None:
        """An assumption that is not a field of its own."""
        entry = (what, str(value), why)
        if entry not in self.assumed:
            self.assumed.append(entry)

    def flag(self, kind: str, key: str, value: object, line: int | None) -> None:
        entry = Flag(kind, key, str(value), self.file, line)
        if entry not in self.flags:
            self.flags.append(entry)

    def miss(self, name: str, file: str, line: int | None, why: str) -> None:
        """A file of settings that is named and was not given: said, and remembered."""
        if name not in self.absent:
            self.absent.append(name)
            self.ignored.append(Ignored(name, file, line, True, f"not given: {why}"))

    def get(self, name: str) -> Any:
        """The bare value of a field, or None."""
        stated = self.values.get(name)
        return None if stated is None else stated.value

    def given(self, name: str) -> bool:
        return isinstance(self.values.get(name), Given)


def join(drafts: list[Draft]) -> Draft:
    """One draft of several files: what is stated beats what is assumed, the first file wins a
    conflict, and every conflict is reported as ignored with both values.
    """
    first = drafts[0]
    for other in drafts[1:]:
        for name, value in other.values.items():
            mine = first.values.get(name)
            if mine is None or (isinstance(mine, Assumed) and isinstance(value, Given)):
                first.values[name] = value
            elif isinstance(value, Given) and isinstance(mine, Given) and mine.value != value.value:
                shown = (
                    f"{FIELDS[name]} is {value.value} here and {mine.value} in {_where(mine)}; "
                    "the file named first was taken"
                )
                if name == "model":
                    shown = f"the model of {_where(mine)} was taken, its file being named first"
                first.ignored.append(Ignored(name, value.file, value.line, True, shown))
        first.open_axis = first.open_axis or other.open_axis
        if not first.slices_open:
            first.slices_open, first.slices_known = other.slices_open, other.slices_known
        if first.microbatch_rule == "exact":
            first.microbatch_rule = other.microbatch_rule
        first.counts_examples = first.counts_examples or other.counts_examples
        first.wanted_model = first.wanted_model or other.wanted_model
        first.absent += other.absent
        first.uneven_pp = first.uneven_pp and other.uneven_pp
        first.kv_replicated = first.kv_replicated and other.kv_replicated
        first.flags += [entry for entry in other.flags if entry not in first.flags]
        first.understood += other.understood
        first.ignored += [one for one in other.ignored if one not in first.ignored]
        first.assumed += [one for one in other.assumed if one not in first.assumed]
        first.known |= other.known
        first.reached |= other.reached
    return first


def _where(stated: Given[Any]) -> str:
    return stated.file if stated.line is None else f"{stated.file}:{stated.line}"
