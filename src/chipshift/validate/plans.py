"""The plan of a published record: degrees over devices, with what the source leaves out."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from chipshift.jobs.plan import Plan
from chipshift.models.model import Model, MoeMlp
from chipshift.validate.case import fill
from chipshift.validate.gaps import Inferred
from chipshift.validate.rows import LARGEST_SLICE, Row, release_of, remat_of

PLANNERS_ORDER = (
    "none",
    "custom:saved=attention+out_proj+qkv+up",  # norms and activations again
    "custom:saved=attention+out_proj+qkv",  # the whole feed-forward again
    "full",
)
"""What a planner tries where the source does not state the rematerialisation: the least first, in
the steps that Megatron's selective recompute offers."""
UNCOMPRESSED_AGAIN = "custom:saved=attention+out_proj+up"
"""Before the feed-forward: latent attention's queries and keys are made again from the compressed
ones (Megatron's ``mla_up_proj``)."""
DEVICES = {"v7x": 2, "trn1": 2}
"""Devices a chip in the records' degrees: v7x TensorCores, Trainium1 NeuronCores."""
SHARDED = frozenset({"paxml", "levanter", "torch_xla", "torchax", "maxtext", "torchtitan"})
"""Stacks whose unstated data axis shards the weights (FSDP); the others replicate them on GPUs."""
TPUS = frozenset(LARGEST_SLICE)
DEGREES = frozenset({"dp", "fsdp", "tp", "pp", "cp", "ep"})
BRIDGE = "25.09"
"""First release whose recipes are Megatron-Bridge's (NVIDIA-NeMo/Megatron-Bridge,
scripts/performance: its mixtures of experts have ``expert_tensor_parallel_size=1``)."""
RING_SLICE = 256
"""Chips of the slices (16x16 of v5e and v6e) that MaxText's ring meshes are written for."""
PER_DEVICE = frozenset({"maxtext", "paxml"})
"""Stacks that state sequences a device, not a replica."""


def planners_order(model: Model) -> tuple[str, ...]:
    """The rematerialisations to go through in order for a model until one fits."""
    latent = any(ly.attention and ly.attention.kv_lora_rank is not None for ly, _ in model.layers)
    if not latent:
        return PLANNERS_ORDER
    return (*PLANNERS_ORDER[:2], UNCOMPRESSED_AGAIN, *PLANNERS_ORDER[2:])


def sequences(row: Row) -> int:
    """Sequences a step."""
    tokens, seq = row.get("tokens_per_step"), int(row["model"]["seq_len"])
    return max(1, round(tokens / seq)) if tokens else int(row["global_batch"])


def plan_of(row: Row, model: Model, inferred: Inferred) -> Plan:
    """The plan of a record over devices.

    Missing degrees: tp, cp, pp are 1; the data axis takes the rest (``fsdp`` on stacks that
    shard, else ``dp``). Megatron's printed dp without ep is multiplied by it where only that
    makes the devices; MaxText's own expert axis is a further batch axis and joins fsdp; a dp
    that repeats fsdp is dropped. Degrees that do not divide the devices are left out.
    """
    p = {k: v for k, v in (row.get("parallelism") or {}).items() if v is not None}
    stack = str(row["stack"])
    devices = devices_of(row)
    tp, pp, cp = _model_axes(p, devices, inferred)
    data = devices // (tp * pp * cp)
    ep = int(p.get("ep") or 0) or _dispatched(row, model, data, inferred)
    dp, fsdp = int(p.get("dp") or 1), int(p.get("fsdp") or 1)
    if dp * fsdp != data:
        dp, fsdp = _data_axes(row, data, dp, fsdp, ep, "dp" in p, inferred)
    if p.get("zero") == 3 and fsdp == 1 and dp > 1:
        dp, fsdp = 1, dp
    sharding = _sharding(p, stack, dp, fsdp, ep, inferred)
    microbatch, accumulation = _microbatch(row, dp * fsdp, tp * cp * pp, inferred)
    etp = 0
    if (dp * fsdp * cp) % ep:
        # Megatron's experts may be spread over the tensor-parallel devices as well.
        etp, ep = 1, math.gcd(ep, dp * fsdp * cp * tp)
        fill(inferred, "etp", etp, "the stated ep does not divide dp·fsdp·cp")
    elif ep > 1 and tp > 1 and stack == "megatron" and release_of(row) >= BRIDGE:
        etp = 1
        fill(inferred, "etp", etp, "Megatron-Bridge's recipes do not cut experts by tp")
    vpp = _virtual_stages(stack, model.n_layers, pp, p.get("vpp"), inferred)
    return Plan(
        dp=dp,
        fsdp=fsdp,
        tp=tp,
        cp=cp,
        ep=ep,
        etp=etp,
        pp=pp,
        vpp=vpp,
        microbatch=microbatch,
        accumulation=accumulation,
        remat=remat_of(row) or PLANNERS_ORDER[0],
        optimizer_sharding=sharding,
        schedule="interleaved" if vpp > 1 else "1f1b",
        cp_kind="ring" if stack in ("torchtitan", "maxtext") else "allgather",
        cp_shards=stack == "torchtitan" and fsdp == 1 and cp > 1,
        sequence_parallel=tp == 1 or p.get("sp", stack != "automodel") is not False,
        rings=_rings(row, tp if tp > 1 else ep, inferred),
    )


def _rings(row: Row, innermost: int, inferred: Inferred) -> int:
    """Chips of a ring, where notes name one of MaxText's custom meshes and the degrees are its.

    ``hybrid_ring_64x4`` stands on slices of 256 chips, the innermost axis being of 4.
    """
    found = re.search(r"custom_mesh=hybrid_ring_\d+x(\d)\b", str(row.get("notes") or ""))
    if not found:
        return 0
    if innermost != int(found[1]) or int(row["n_chips"]) % RING_SLICE:
        why = f"its innermost axis has {found[1]} devices on slices of {RING_SLICE} chips"
        fill(inferred, "custom_mesh", 0, f"the stated degrees are not those of a ring: {why}")
        return 0
    return int(found[1])


def devices_of(row: Row) -> int:
    """Devices as a record's degrees count them."""
    return int(row["n_chips"]) * DEVICES.get(str(row["chip_key"]), 1)


def plans_to_try(row: Row, model: Model, plan: Plan) -> tuple[Plan, ...]:
    """The plan; where the record states no degree at all and the stack replicates weights, also
    those that cut the model further, to go through until one fits: experts over the data axis
    first, which costs least, then tensor parallelism over the devices of a node, then pipelines."""
    stated = {k for k, v in (row.get("parallelism") or {}).items() if v and k in DEGREES}
    if stated or _shards(row):
        return (plan,)
    cuts = sorted(
        ((t, p) for t in (1, 2, 4, 8) for p in (1, 2, 4, 8, 16)), key=lambda c: (c[0] * c[1], -c[0])
    )
    devices, zero = devices_of(row), row["parallelism"].get("zero")
    tried = [
        plan_of({**row, "parallelism": {"zero": zero, "tp": t, "pp": p, "ep": ep}}, model, [])
        for t, p in cuts
        if devices % (t * p) == 0 and p <= model.n_layers
        for ep in _expert_degrees(model, devices // (t * p))
    ]
    return (plan, *(one for one in tried if one != plan))


def _expert_degrees(model: Model, data: int) -> tuple[int, ...]:
    """Powers of two that divide every mixture's experts and the data axis, 1 among them."""
    routed = [ly.mlp.experts for ly, _ in model.layers if isinstance(ly.mlp, MoeMlp)]
    most = math.gcd(data, *routed) if routed else 1
    return tuple(1 << i for i in range(most.bit_length()) if most % (1 << i) == 0)


def _shards(row: Row) -> bool:
    """Whether the data axis of a record that does not say shards the weights."""
    return str(row["stack"]) in SHARDED or str(row["chip_key"]) in TPUS


def _model_axes(p: Mapping[str, Any], devices: int, inferred: Inferred) -> tuple[int, int, int]:
    """tp, pp and cp as stated, each where it divides the devices that the ones before leave."""
    found = []
    for axis in ("tp", "pp", "cp"):
        degree = int(p.get(axis) or 1)
        if devices % degree:
            fill(inferred, axis, 1, f"the stated {degree} does not divide {devices} devices")
            degree = 1
        devices //= degree
        found.append(degree)
    return found[0], found[1], found[2]


def _sharding(
    p: Mapping[str, Any], stack: str, dp: int, fsdp: int, ep: int, inferred: Inferred
) -> str:
    """What ZeRO shards over dp, as stated or as the stack does by default."""
    if fsdp > 1 or dp == 1:
        return "none"
    if p.get("zero") is not None:
        return {1: "zero1", 2: "zero2"}.get(int(p["zero"]), "none")
    sharding = "zero1" if stack == "megatron" and "dp" in p and ep * dp > 1 else "none"
    fill(inferred, "optimizer sharding", sharding, f"not stated, {stack}'s default")
    return sharding


def _dispatched(row: Row, model: Model, data: int, inferred: Inferred) -> int:
    """Expert parallelism that the notes imply: who names DeepEP sends tokens to their experts."""
    routed = [ly.mlp.experts for ly, _ in model.layers if isinstance(ly.mlp, MoeMlp)]
    if not routed or "DeepEP" not in str(row.get("notes")):
        return 1
    ep = math.gcd(routed[0], data)
    fill(inferred, "ep", ep, "not stated: DeepEP is, experts over the data axis")
    return ep


DEEPEST = 12
"""Most virtual stages that Megatron's published recipes use."""


def _virtual_stages(
    stack: str, layers: int, pp: int, stated: float | None, inferred: Inferred
) -> int:
    """Model chunks a pipeline rank: as stated, else as deep as divides, as Megatron's recipes."""
    if pp == 1:
        return 1
    if stated or stack not in ("megatron", "other"):
        return int(stated or 1)
    # embedding and loss may stand as layers of their own, so that 94 layers cut like 96
    deepest = max(
        (v for v in range(1, DEEPEST + 1) if 0 in (layers % (pp * v), (layers + 2) % (pp * v))),
        default=1,
    )
    fill(inferred, "vpp", deepest, "not stated: the deepest interleaving that divides the layers")
    return deepest


def _data_axes(
    row: Row,
    data: int,
    dp: int,
    fsdp: int,
    ep: int,
    dp_stated: bool,
    inferred: Inferred,
) -> tuple[int, int]:
    """dp and fsdp whose product is the devices that hold different data."""
    if row["stack"] == "maxtext" and dp * fsdp * ep == data:
        fill(inferred, "fsdp", fsdp * ep, "MaxText's expert axis cuts the batch as well")
        return dp, fsdp * ep
    if fsdp == data and dp_stated:
        fill(inferred, "dp", 1, "the printed dp repeats fsdp")
        return 1, fsdp
    if dp * ep == data and dp_stated:
        fill(inferred, "dp", data, "the printed dp leaves ep out")
        return data, 1
    if fsdp > 1 and data % fsdp == 0:
        fill(inferred, "dp", data // fsdp, "not stated: what the other degrees leave")
        return data // fsdp, fsdp
    if _shards(row) or fsdp > 1:
        fill(inferred, "fsdp", data, "not stated: what the other degrees leave, weights sharded")
        return 1, data
    fill(inferred, "dp", data, "not stated: what the other degrees leave")
    return data, 1


def _microbatch(
    row: Row, replicas: int, model_devices: int, inferred: Inferred
) -> tuple[float, int]:
    """Sequences a replica a forward, and forwards a step."""
    each = sequences(row) / replicas
    stated = row.get("microbatch")
    if not stated:
        microbatch = each if str(row["stack"]) in SHARDED else min(1.0, each)
        fill(inferred, "microbatch", f"{microbatch:g}", "not stated")
    else:
        scale = model_devices if str(row["stack"]) in PER_DEVICE else 1
        microbatch = min(float(stated) * scale, each)
    accumulation = max(1, round(each / microbatch))
    return each / accumulation, accumulation
