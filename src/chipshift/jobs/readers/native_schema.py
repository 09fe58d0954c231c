"""The native job file as pydantic models: validation, and the JSON Schema that docs publish.

Imported only when a native file is read or the schema is asked for: pydantic takes a tenth of a
second to start.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from chipshift.jobs.optimizers import OPTIMIZERS
from chipshift.jobs.remats import REMATS
from chipshift.jobs.stacks import STACKS

MOST = 10**12
Dtype = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "int8", "int4", "fp4", "mxfp4", "nvfp4"]
Master = Literal[
    "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "int4", "fp4", "mxfp4", "nvfp4", "none"
]
"""The one copy that there may be none of."""

Reference = Literal["base", "host", "none", "fp32", "bf16", "fp16", "fp8", "int8", "int4"]

AdaptedOp = Literal[
    "qkv_proj", "q_down", "q_up", "kv_down", "kv_up", "out_proj", "mlp_up", "mlp_down",
    "experts_up", "experts_down", "shared_up", "shared_down",
]  # fmt: skip


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ModelTable(_Table):
    """What is trained: exactly one of preset, config, hf and exact."""

    preset: str | None = Field(default=None, description="A shipped config, such as 'llama3-8b'")
    config: str | None = Field(
        default=None, description="A Hugging Face config.json in this file's folder or below it"
    )
    hf: dict[str, Any] | None = Field(
        default=None, description="The keys of a config.json, written here"
    )
    exact: dict[str, Any] | None = Field(
        default=None,
        description="The architecture layer by layer, as `chipshift read --toml` writes it",
    )


class JobTable(_Table):
    """What a step is."""

    seq_len: int = Field(ge=1, le=10**9, description="Tokens a sequence")
    sequences_per_step: int | None = Field(default=None, ge=1, le=MOST, description="Global batch")
    tokens_per_step: int | None = Field(
        default=None, ge=1, le=MOST, description="In place of sequences_per_step"
    )
    optimizer: str = Field(default="adamw", description=f"One of {', '.join(OPTIMIZERS)}")
    stack: str = Field(
        default="other",
        description=f"Framework, @YY.MM for a release: one of {', '.join(STACKS)}",
    )
    task: Literal["pretrain", "sft", "lora"] = "pretrain"
    trainable_fraction: float = Field(
        default=1.0, gt=0, le=1, description="Share of parameters trained"
    )
    loss_chunks: int = Field(
        default=1, ge=1, le=MOST, description="Pieces the LM head and loss are cut in"
    )
    document_len: int = Field(
        default=0,
        ge=0,
        le=10**9,
        description="Tokens of a document packed into a sequence; 0 = a sequence is one",
    )
    loss: Literal["lm", "dpo", "kto", "bco", "orpo", "simpo", "reward"] = Field(
        default="lm",
        description="What the loss is of; a pair's two answers are two sequences of the batch",
    )
    reference: Reference | None = Field(
        default=None,
        description="Frozen reference of dpo and kto: the dtype of its own weights, base (the "
        "policy with its adapters off), host (swapped in), none (computed beforehand)",
    )
    adapters: dict[AdaptedOp, Annotated[float, Field(gt=0, le=MOST)]] | None = Field(
        default=None, description="Low-rank adapters of a layer by op, such as {qkv_proj = 3}"
    )
    dora: bool = Field(default=False, description="The adapters train magnitudes apart (DoRA)")
    code: str | None = Field(default=None, description="Folder of the training code")


class PlanTable(_Table):
    """How a step is cut over devices: dp·fsdp·cp·tp·pp = devices."""

    open: Literal["", "dp", "fsdp", "tp", "cp", "ep", "pp"] = Field(
        default="",
        description="The axis that takes the devices that the others leave; with tp and cp the "
        "microbatch grows, with ep fsdp, with pp the accumulation",
    )
    slices_open: Literal["", "dp", "fsdp", "tp", "cp", "ep", "pp"] = Field(
        default="", description="The axis that takes the slices, beside the open one within a slice"
    )
    slices_known: int = Field(
        default=1, ge=1, le=MOST, description="Product of the degrees across slices that are told"
    )
    dp: int = Field(default=1, ge=1, le=MOST)
    fsdp: int = Field(default=1, ge=1, le=MOST)
    tp: int = Field(default=1, ge=1, le=MOST)
    cp: int = Field(default=1, ge=1, le=MOST)
    ep: int = Field(
        default=1, ge=1, le=MOST, description="Divides dp·fsdp·cp; not a factor of devices"
    )
    etp: int = Field(default=0, ge=0, le=MOST, description="tp of the experts; 0 = tp")
    pp: int = Field(default=1, ge=1, le=MOST)
    vpp: int = Field(default=1, ge=1, le=MOST)
    stage_layers: list[Annotated[int, Field(ge=0, le=MOST)]] = Field(
        default_factory=list,
        description="Layers of each of the pp·vpp model chunks in order; empty = spread evenly",
    )
    microbatch: float | None = Field(
        default=None, gt=0, le=MOST, description="Sequences a (dp, fsdp) replica a forward"
    )
    accumulation: int | None = Field(default=None, ge=1, le=MOST, description="Forwards a step")
    microbatch_rule: Literal["exact", "all", "at_most"] = Field(
        default="exact",
        description="With an open axis: a replica's share whole (all), or cut equally (at_most)",
    )
    remat: str = Field(
        default="none",
        description=f"One of {', '.join(REMATS)}; full:N/M; custom:saved=A+B,offload=C",
    )
    optimizer_sharding: Literal["none", "zero1", "zero2"] = "none"
    schedule: Literal["1f1b", "interleaved", "gpipe", "zero_bubble"] = "1f1b"
    cp_kind: Literal["ring", "allgather", "all_to_all"] = Field(
        default="ring",
        description="Keys and values round a ring or gathered, or heads dealt out (Ulysses)",
    )
    ulysses_degree: int = Field(
        default=0,
        ge=0,
        le=MOST,
        description="Devices of cp that all_to_all deals heads over, the rest a ring; 0 = all",
    )
    cp_shards: bool = Field(
        default=False, description="Weights are sharded over cp though fsdp is 1 (ZeRO-3, FSDP)"
    )
    rings: Literal[0, 4, 8] = Field(
        default=0,
        description="Chips of the rings that tp, else ep, goes round on slices of 16x16 (MaxText)",
    )
    sequence_parallel: bool = True
    uneven_pp: bool = Field(default=True, description="Stages may hold different numbers of layers")
    kv_replicated: bool = Field(
        default=True, description="Key/value heads are copied where tp exceeds them"
    )


class PrecisionTable(_Table):
    """Dtypes; FSDP's mixed precision is weights fp32, gather bf16, compute bf16, master none."""

    compute: Dtype = "bf16"
    weights: Dtype = "bf16"
    gradients: Dtype = "fp32"
    reduce: Dtype = "fp32"
    master: Master = "fp32"
    moments: Dtype = "fp32"
    gather: Dtype | Literal[""] = ""


class MachineTable(_Table):
    """Where it runs now."""

    name: str | None = Field(default=None, description="As --on takes it: 'h100*128', 'v6e:16x16'")
    devices: int | None = Field(
        default=None, ge=1, le=MOST, description="Where only the count is known"
    )


class AssumedTable(_Table):
    """A figure that the job's own files did not state, and why it was taken."""

    what: str
    value: str
    why: str


class FlagTable(_Table):
    """A setting that matters for porting: a kernel, an fp8 recipe, NCCL settings."""

    kind: str
    key: str
    value: str
    file: str = ""
    line: int | None = None


class NativeJob(_Table):
    """A chipshift job file."""

    chipshift: Literal[1] = Field(default=1, description="Version of this format")
    name: str | None = None
    model: ModelTable | None = None
    job: JobTable
    teacher: ModelTable | None = None
    plan: PlanTable | None = None
    precision: PrecisionTable = PrecisionTable()
    machine: MachineTable = MachineTable()
    assumed: list[AssumedTable] = []
    flag: list[FlagTable] = []


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the native job file, as docs/job.schema.json holds it."""
    schema = NativeJob.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
