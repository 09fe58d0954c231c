"""A training job: what is run, and for each field whether the file said so or we assumed it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from chipshift.jobs.plan import Plan
from chipshift.models.adapters import Adapters
from chipshift.models.model import Model

T = TypeVar("T")


@dataclass(frozen=True)
class Given(Generic[T]):
    """A value that the user's file states."""

    value: T
    file: str
    line: int | None = None


@dataclass(frozen=True)
class Assumed(Generic[T]):
    """A value that nothing stated, and the reason for it."""

    value: T
    why: str


Stated = Given[T] | Assumed[T]


def restated(stated: Stated[Any], value: T) -> Stated[T]:
    """The same statement about another value."""
    if isinstance(stated, Given):
        return Given(value, stated.file, stated.line)
    return Assumed(value, stated.why)


@dataclass(frozen=True)
class Understood:
    """One line of a reading: this key, with this value, was understood as that."""

    key: str
    value: str
    file: str
    line: int | None
    understood_as: str


@dataclass(frozen=True)
class Ignored:
    """A key that was read and not used, whether that matters to the numbers, and why."""

    key: str
    file: str
    line: int | None
    matters: bool
    why: str


@dataclass(frozen=True)
class Flag:
    """A setting that says nothing about arithmetic but much about porting.

    Attributes:
        kind: ``attention_kernel``, ``transformer_engine``, ``fused_optimizer``, ``fused_ops``,
            ``nccl``, ``cuda_environment``, ``xla_flags``, ``deepspeed``, ``apex``,
            ``loss_scaler``, ``tf32``, ``fp8_recipe``, ``fp8_params``
            (Transformer Engine's weights in 8 bits), ``compile``, ``cuda_graph``,
            ``variable_length`` (batches whose shape varies), ``packed_documents`` (rows of fixed
            length with several documents), ``node_of_8``, ``tp_overlap``, ``dp_overlap``,
            ``ep_overlap``, ``expert_kernels``, ``dropless_moe``, ``cpu_offload``,
            ``fixed_ranges`` (8-bit operands whose range is given), ``separate_backward``
            (attention's backward pass in a kernel for queries and one for keys),
            ``eager_modules`` (modules run op by op), ``torch_fsdp2`` (in place of Megatron's own
            sharding), ``balanced_experts`` (tokens dealt out evenly whatever the router
            says), ``quantised_weights``, ``quantised_optimizer``, ``custom_code`` ...
    """

    kind: str
    key: str
    value: str
    file: str
    line: int | None


@dataclass(frozen=True)
class Precision:
    """Dtypes by their field names (``bf16``, ``fp32``, ``fp8`` ...).

    Attributes:
        compute: of the main matmuls; decides the peak that MFU is measured against.
        weights: of the copy that the matmuls read.
        gradients: of the gradient as it is accumulated and kept.
        reduce: of the gradient as it is communicated.
        master: of the optimizer's copy of the weights, or ``none`` when it is the weights.
        moments: of each optimizer moment.
        gather: of sharded weights as they are gathered, or "" when that is ``weights``. FSDP with
            mixed precision keeps weights in fp32 with no separate master copy and gathers them
            in bf16: weights fp32, gather bf16, compute bf16, master none.
    """

    compute: str = "bf16"
    weights: str = "bf16"
    gradients: str = "fp32"
    reduce: str = "fp32"
    master: str = "fp32"
    moments: str = "fp32"
    gather: str = ""


@dataclass(frozen=True)
class TrainJob:
    """A job as read: every field that a reader filled is ``Given`` or ``Assumed``.

    Attributes:
        sequences_per_step: the global batch in sequences; tokens a step = this × seq_len.
        precision: see Precision; ``Assumed`` where the framework's documented default was taken.
        optimizer: ``adamw``, ``adafactor``, ``sgd``, ``muon`` ...
        machine: the machine it runs on now, or None when the file does not say (``--on`` then).
        plan: the present plan, or None when the file says nothing of it. Degrees that the file
            leaves to the world size (dp = "the rest") are filled when the machine is known:
            ``plan_open`` names that one axis, or is "".
        slices_open: the axis that takes the machine's slices, beside the one that takes what a
            slice has left, or ""; ``slices_known``: the product of the degrees across slices that
            are told.
        batch_open: the file gives the batch of a replica only: until the open axis is filled,
            ``sequences_per_step`` counts that axis as 1.
        microbatch_rule: what the global batch makes of the microbatch once the open axis is
            filled: nothing (``exact``), its share of a replica over ``accumulation`` (``all``), or
            no more than it, the share being cut into equal forwards (``at_most``).
        devices: devices it runs on now where the file says that but not the chip.
        uneven_pp: the framework lets pipeline stages hold different numbers of layers.
        kv_replicated: the framework copies key/value heads where tp is a multiple of them.
        stack: the framework and compiler (architecture.md's Stack list).
        task: ``pretrain``, ``sft`` or ``lora``; for lora see ``adapters``.
        trainable_fraction: share of the matmul parameters whose gradients are computed.
        adapters: low-rank ones beside frozen weights; None where there are none.
        document_len: tokens of a document where several are packed into a sequence and attention
            stays within each; 0 = a sequence is one document.
        loss: what the loss is of, a name in jobs/loss.py; ``lm`` = every token's next.
        reference: where log-probabilities under a frozen reference come from: the dtype of its
            own weights, ``base`` (the policy with its adapters off), ``host`` (weights
            that are swapped in from the host), ``none`` (none is run).
        teacher: the frozen model of a distillation, whose forward pass every sequence goes through
            beside the model's own; None where there is none.
        loss_chunks: the LM head and loss are computed in this many pieces (1 = at once).
        host: anything the input pipeline says; unused so far.
        code: folder of the training code when the file or the user named it.
    """

    name: str
    files: tuple[str, ...]
    format: str
    model: Model
    sequences_per_step: Stated[int]
    seq_len: Stated[int]
    precision: Stated[Precision]
    optimizer: Stated[str]
    stack: Stated[str]
    machine: Stated[str] | None = None
    plan: Stated[Plan] | None = None
    plan_open: str = ""
    slices_open: str = ""
    slices_known: int = 1
    batch_open: bool = False
    microbatch_rule: str = "exact"
    devices: Stated[int] | None = None
    uneven_pp: bool = True
    kv_replicated: bool = True
    task: str = "pretrain"
    trainable_fraction: float = 1.0
    adapters: Adapters | None = None
    document_len: int = 0
    loss: str = "lm"
    reference: str = "none"
    teacher: Model | None = None
    loss_chunks: int = 1
    flags: tuple[Flag, ...] = ()
    understood: tuple[Understood, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    assumed: tuple[tuple[str, str, str], ...] = ()  # (what, value, why), printed in every report
    code: str | None = None
