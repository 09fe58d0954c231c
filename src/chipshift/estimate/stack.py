"""The software stack of a run: what it fuses, overlaps and keeps, and what it is seen to reach.

Data in ``stacks/<name>.toml``: each figure with its evidence, and factors of it for families of
chips (``[family.<name>]``) and single chips (``[chip.<key>]``); a stack whose speed moved with its
releases has ``[[release]]`` blocks with the same tables, and ``stack@YY.MM`` names one. Constants
are per stack and chip, never per model or run.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass, fields, replace
from importlib import resources
from typing import Any

from chipshift.jobs.stacks import checked_stack


@dataclass(frozen=True)
class Stack:
    """Constants of a stack on a chip; docs/calibration.md explains each with its evidence.

    Attributes:
        matmul_scale, attention_scale, memory_scale: in-situ speed over the kernel's own (1 = as
            the kernel is measured alone; below 1 slower).
        narrow_matmul_scale, grouped_scale: the same for matmuls in 8 bits or fewer, and for the
            grouped matmuls of routed experts, on top of matmul_scale.
        mxfp8_scale: speed of 8-bit matmuls scaled by blocks of 32 over those scaled by tensor.
        fused_experts: 1 where one kernel makes the experts' matmuls, their activation and its 8-bit
            copy (a job's flag ``fused_experts``).
        fp8_attention_scale: speed of attention in 8 bits over bf16 (flag ``fp8_attention``).
        narrow_head: 1 where the LM head runs in the layers' 8 bits (flag ``fp8_head``).
        collective_scale: speed of weight gathers and gradient reductions over the same alone.
        dcn_scale: the same of what goes between TPU slices, over the network's rate (0: it is taken
            at collective_scale).
        norm_passes, rope_passes, activation_scale, permute_passes, loss_bytes_per_logit: HBM
            passes of the memory-bound ops, forward, as this stack fuses them.
        expert_bias_passes: passes over the outputs of routed experts with biases, to add these
            where no kernel of the experts does it on the way.
        permute_row_elements: what moving a row takes beside its elements, as so many more of them.
        permute_row_s: seconds that moving a row to its expert takes beside its passes.
        alltoall_row_s: the same for rows of 8-bit experts that a plain all-to-all sends
            (estimate/switches.py); what takes it is not known.
        backward_memory_factor: memory-bound traffic of the backward pass over the forward's.
        cast_passes: passes over a matmul's operands to make their fp8 copies and scales.
        range_passes: passes more where the operands' range is found in the step (absmax).
        casts_weights: 1 where gathered weights are cast with the inputs in every matmul, 0 where
            each device casts its shards.
        host_s_per_op: host time to launch one op; it paces the device where the ops are shorter.
        ops_per_layer: ops launched a layer, forward; the backward launches twice as many.
        pp_stall_s: time a microbatch that a middle stage of a pipeline between nodes loses to
            hand-overs with its two neighbours; half of it with one.
        tp_across_scale: speed of tensor-parallel collectives over several nodes, in a step over
            alone.
        tp_behind_gradients: share of the weights' gradients and of the recomputation that tensor
            parallelism's collectives of the backward pass hide behind, beside tp_overlap.
        tp_regathers: inputs that tensor parallelism gathers again in a layer's backward pass.
        regathers_once: 1 where a compiler gathers an input of the backward pass once for its map's
            rematerialisation and for its weight gradient.
        rank_latency_s: what a tensor-parallel collective between nodes takes for each rank of its
            group, beside its transfer.
        rank_pace_s: host time for each rank of a tensor-parallel collective's group, in a job of
            several nodes: it paces the device where the ops are shorter.
        bucket_bytes: gradients are summed in buckets of so many bytes (0: all as one message).
        whole_reduction: 1 where ZeRO-1 and 2 sum whole gradients on every device, beside the
            backward pass, and gather weights after the update, beside nothing.
        accumulate_bytes: memory traffic for each parameter to add one microbatch's gradients to
            their sum.
        weight_sum_bytes: bytes for each parameter that the matmul of a weight's gradient moves
            beside its own, where it adds to the sum over microbatches as it writes.
        gathers_expert_rows: 1 where tensor parallelism gathers, and scatters, the rows of a
            device's experts over their own part of it, not every token's activations.
        head_in_stages: 1 where stages are cut by cost with the LM head counted, 0 by layers.
        deals_repeated_heads: 1 where keys and values are repeated to as many heads as the queries
            have before an all-to-all deals them out.
        tp_overlap, cp_overlap, ep_overlap, pp_overlap: share of these collectives hidden.
        ep_overlap_interleaved: the same of the expert all-to-all where virtual stages let another
            microbatch compute meanwhile.
        ep_once_per_place: 1 where a token goes to a node once however many of its experts are
            there, and inside a single node to each device once (DeepEP and its kin); 0 where once
            for each expert.
        fsdp_overlap, dp_overlap: share of the compute that can hide weight gathers and gradient
            reductions.
        comm_tax: slowdown of compute while a collective runs beside it, a share of its time.
        optimizer_passes: HBM traffic of the optimizer over the minimum.
        gather_each_microbatch: 1 when FSDP gathers and reduces in every microbatch, 0 when once.
        sums_each_microbatch: 1 where gradients are summed over replicas in every microbatch, in one
            program with its backward pass, 0 where once a step.
        moe_imbalance: rows of the busiest expert rank over the mean.
        jitter_per_doubling: step-time growth for each doubling of the hosts.
        stall_per_host: step-time growth for each host, since a step waits for the rare stall of
            any of them.
        step_overhead_s: fixed time a step (loss reading, gradient norm, optimizer launch).
        activation_memory_scale: stored activations over the tensors named in parallel/remat.py.
        head_lanes: queries, keys, values and attention's output are stored with heads padded to
            this many elements.
        rows_kept_with_up: 1 where a policy that keeps the experts' first matmuls keeps the permuted
            rows that they read, 0 where these go with the norm before them.
        wide_layers: copies more of a layer's weights in its backward pass where 64 devices or more
            share them and the compiler moves them by all-reduces.
        streams_at_loss: tensors the size of the residual stream alive beside the logits.
        cast_copies: copies of the layers' weights in compute dtype that stand through the loop over
            layers, where the weights themselves are wider.
        narrow_activations: stored activations of a job in 8 bits or fewer over a bf16 job's
            (inputs of its matmuls are kept as they were cast).
        bucket_copy_bytes: bytes kept for each parameter, beside weights, gradients and optimizer
            state, where gradients are summed over replicas (DDP's buckets).
        flat_gather_bytes: bytes for each parameter of the flat buffer that updated weights are
            gathered into under ZeRO-1 and 2.
        wide_tensors: activations of full width that tensor parallelism keeps throughout.
        stranded_tensors: more of them that the allocator may not reuse yet, since a collective on
            another stream still reads them, where the host runs ahead of the device.
        pool_bytes: blocks of the allocator's pools that are in use in part.
        workspace_bytes: what the libraries hold of the allocator's memory throughout.
        working_layers: layers' worth of full activations alive while one is recomputed.
        gathered_layers: layers' worth of gathered weights alive at once.
        logit_memory_bytes: bytes kept for each logit element.
        unwindowed_logit_bytes: the same where the head's matmul is not windowed and the microbatch
            is several sequences, 0 = no difference: the logits' gradient is made inside it.
        hybrid_logit_bytes_of_one: the same under hybrid sharding (dp and fsdp both above 1) where
            the microbatch is a single sequence.
        wide_logit_bytes_of_one: the same where 64 devices or more share the head and tp does not,
            0 = no difference; the head's gradient then stands whole beside them.
        hybrid_logit_bytes_held: bytes of a logit through the layers' backward pass under hybrid
            sharding, 0 = no difference.
        hybrid_heads: copies more of the gathered head at the loss under hybrid sharding.
        unwindowed_shards: devices up to which a weight that they share is not windowed.
        apart_logit_bytes_held: the same where dp crosses slices or sequences are cut too (cp).
        turned_inputs: copies more of the layers' inputs through their backward pass, which reads
            them in another layout than the forward pass left them in, where dp crosses slices and
            a device has one sequence or two, whole or cut over cp.
        wide_logits_share: logits above this share of the usable memory are not held where 64
            devices or more share the head.
        wide_logit_bytes_held: bytes of a logit through the layers' backward pass where 64 devices
            or more share the head, 0 = no difference.
        wide_tp_logit_bytes_held: the same where tp cuts the head too.
        wide_tp_logit_bytes_of_sums: the same with several microbatches, whatever their share.
        early_head: 1 where a windowed head's gradient is made before the layers' backward pass over
            fsdp alone, 2 where over cp and tp=2 too.
        scattered_at_once: 1 where a sharded optimizer's gradients are scattered over dp and fsdp at
            once, the head's in a windowed matmul.
        first_layer_at_loss: 1 where dp over slices has the first layer's backward pass taken out of
            its loop, and its weights gathered and attention recomputed beside the loss.
        wide_heads: copies more of the gathered head at the loss where 64 devices or more share it
            and the microbatch is several sequences.
        fragmentation: share of dynamic memory lost by the allocator.
        context_bytes: driver, runtime and library workspace on each device.
        comm_buffer_bytes: communication buffers for each process group that leaves one device.
        margin_share: a guard band for the error of the peak, a share of activations, logits and
            gathered tensors: what fits by less is called not to.
        reruns_output: 1 when full recompute also runs the layer's last matmul.
        attention_backward_matmuls: matmuls of the attention kernel's backward pass for the two of
            the forward pass: 5 where one kernel makes every gradient, 7 where the queries' and
            the keys' kernels both compute the scores and their gradient anew.
        reruns_experts: 1 when recomputed experts also run their last matmul again, since the
            router's weights multiply its results.
        plans_buffers: 1 when a compiler places every buffer before the run (XLA), so that the loss
            and the layers' backward pass share their room.
        layer_moments: 1 when what a layer's backward pass holds is counted moment by moment, as the
            compiled step has it (estimate/backward.py), 0 when all at once, by working_layers.
        whole_routers: 1 when every device keeps the experts' routers whole.
        gradients_at_peak: share of the gradients that stand beside all stored activations without
            accumulation; the rest is made as the backward pass frees them.
        whole_gradient_layers: layers' worth of gradients alive at once before they are reduced.
    """

    name: str
    matmul_scale: float = 1.0
    attention_scale: float = 1.0
    memory_scale: float = 1.0
    narrow_matmul_scale: float = 1.0
    grouped_scale: float = 1.0
    mxfp8_scale: float = 1.0
    fp8_attention_scale: float = 1.0
    narrow_head: float = 0.0
    fused_experts: float = 0.0
    collective_scale: float = 1.0
    dcn_scale: float = 0.0
    permute_row_elements: float = 0.0
    permute_row_s: float = 0.0
    alltoall_row_s: float = 0.0
    expert_bias_passes: float = 0.0
    norm_passes: float = 4.0
    rope_passes: float = 2.0
    activation_scale: float = 1.0
    permute_passes: float = 3.0
    loss_bytes_per_logit: float = 12.0
    backward_memory_factor: float = 1.8
    cast_passes: float = 1.5
    range_passes: float = 0.0
    casts_weights: float = 0.0
    host_s_per_op: float = 0.0
    ops_per_layer: float = 20.0
    pp_stall_s: float = 0.0
    tp_across_scale: float = 1.0
    tp_behind_gradients: float = 0.0
    tp_regathers: float = 0.0
    regathers_once: float = 0.0
    rank_latency_s: float = 0.0
    rank_pace_s: float = 0.0
    bucket_bytes: float = 0.0
    whole_reduction: float = 0.0
    accumulate_bytes: float = 0.0
    weight_sum_bytes: float = 0.0
    gathers_expert_rows: float = 0.0
    head_in_stages: float = 0.0
    deals_repeated_heads: float = 0.0
    ep_once_per_place: float = 0.0
    ep_overlap_interleaved: float = 0.0
    tp_overlap: float = 0.2
    cp_overlap: float = 0.7
    ep_overlap: float = 0.0
    pp_overlap: float = 0.5
    fsdp_overlap: float = 0.9
    dp_overlap: float = 0.9
    comm_tax: float = 0.05
    optimizer_passes: float = 1.0
    gather_each_microbatch: float = 1.0
    sums_each_microbatch: float = 0.0
    moe_imbalance: float = 1.1
    jitter_per_doubling: float = 0.005
    stall_per_host: float = 0.0
    step_overhead_s: float = 0.01
    activation_memory_scale: float = 1.0
    head_lanes: float = 1.0
    rows_kept_with_up: float = 1.0
    wide_layers: float = 0.0
    streams_at_loss: float = 0.0
    cast_copies: float = 0.0
    narrow_activations: float = 0.7
    bucket_copy_bytes: float = 0.0
    flat_gather_bytes: float = 0.0
    wide_tensors: float = 0.0
    stranded_tensors: float = 0.0
    pool_bytes: float = 0.0
    workspace_bytes: float = 0.0
    working_layers: float = 1.0
    gathered_layers: float = 2.0
    logit_memory_bytes: float = 10.0
    unwindowed_logit_bytes: float = 0.0
    hybrid_logit_bytes_of_one: float = 0.0
    hybrid_logit_bytes_held: float = 0.0
    hybrid_heads: float = 0.0
    unwindowed_shards: float = 2.0
    wide_logit_bytes_held: float = 0.0
    wide_logits_share: float = 0.0
    apart_logit_bytes_held: float = 0.0
    turned_inputs: float = 0.0
    early_head: float = 0.0
    scattered_at_once: float = 0.0
    first_layer_at_loss: float = 0.0
    wide_logit_bytes_of_one: float = 0.0
    wide_heads: float = 0.0
    wide_tp_logit_bytes_held: float = 0.0
    wide_tp_logit_bytes_of_sums: float = 0.0
    fragmentation: float = 0.05
    context_bytes: float = 1.0e9
    comm_buffer_bytes: float = 2.0e8
    margin_share: float = 0.0
    reruns_output: float = 0.0
    reruns_experts: float = 0.0
    attention_backward_matmuls: float = 5.0
    plans_buffers: float = 0.0
    layer_moments: float = 0.0
    whole_routers: float = 0.0
    gradients_at_peak: float = 1.0
    whole_gradient_layers: float = 1.0

    @property
    def base(self) -> str:
        """The stack's name without a release."""
        return self.name.partition("@")[0]


@functools.cache
def _data(name: str) -> dict[str, Any]:
    file = resources.files("chipshift.estimate") / "stacks" / f"{name}.toml"
    return tomllib.loads(file.read_text("utf8")) if file.is_file() else {}


@functools.cache
def stack(name: str, chip_key: str) -> Stack:
    """The constants of a stack on a chip.

    Raises:
        InputError: a stack that is not known.
    """
    name = checked_stack(name, "the stack")
    base, _, release = name.partition("@")
    numbers = {field.name for field in fields(Stack)} - {"name"}
    chosen: dict[str, float] = {}
    for table in _tables(base, release, chip_key):
        for key, entry in table.items():
            if key in numbers:
                chosen[key] = _applied(entry, chosen.get(key, getattr(Stack, key)))
    return replace(Stack(name), **chosen)  # type: ignore[arg-type]


def _tables(base: str, release: str, chip_key: str) -> list[dict[str, Any]]:
    """Tables of constants that hold, in order: stack, family, chip, then each release reached.

    A stack without runs of its own names another in ``inherits``, whose constants its own follow.
    ``[[release]]`` blocks stand oldest first and say ``since``; without a release the newest holds.
    """
    data = _data(base)
    inherits = data.get("inherits")
    found = _tables(str(inherits), release, chip_key) if inherits else []
    found += _of_chip(data, chip_key)
    for block in data.get("release", []):
        if not release or release >= str(block["since"]):
            found += _of_chip(block, chip_key)
    return found


def newest_release(name: str) -> str:
    """The release taken where a stack's name holds none; "" where one is named or none is known."""
    base, _, release = name.partition("@")
    data = _data(base)
    known = [str(block["since"]) for block in data.get("release", [])]
    if release or not (known or "inherits" in data):
        return ""
    return known[-1] if known else newest_release(str(data["inherits"]))


def _of_chip(block: dict[str, Any], chip_key: str) -> list[dict[str, Any]]:
    """What a file or one of its releases says of a chip, from the widest table to the chip's own.

    A family's table names its chips.
    """
    families = block.get("family", {}).values()
    return [
        block.get("constants", {}),
        *(family for family in families if chip_key in family["chips"]),
        block.get("chip", {}).get(chip_key, {}),
    ]


def _applied(entry: Any, before: float) -> float:
    """A constant after an entry: ``value`` replaces it, ``times`` and ``odds`` multiply it or its
    odds."""
    if not isinstance(entry, dict):
        return float(entry)
    if "times" in entry:
        return before * float(entry["times"])
    if "odds" in entry:
        odds = before / (1 - before) * float(entry["odds"])
        return odds / (1 + odds)
    return float(entry["value"])


def sources(name: str, chip_key: str) -> dict[str, str]:
    """For each constant of a stack on a chip, the evidence it rests on ("" key = the default)."""
    base, _, release = name.partition("@")
    out = {"": f"default for stacks without own evidence (estimate/stack.py), stack {name}"}
    for table in _tables(base, release, chip_key):
        for key, entry in table.items():
            if isinstance(entry, dict):
                evidence = str(entry["evidence"])
                known = out.get(key) if "value" not in entry else None
                out[key] = f"{known}; {evidence}" if known else evidence
    return out


DEFAULT_BY_FAMILY = {"gpu": "megatron", "tpu": "maxtext", "trainium": "neuron"}
"""The stack of a target when neither the user nor the job's own stack decides."""

RUNS_ON = {
    "gpu": {"megatron", "torchtitan", "nanotron", "llm-foundry", "automodel", "fms-fsdp",
            "deepspeed", "maxtext", "paxml", "levanter", "jax", "other"},
    "tpu": {"maxtext", "paxml", "levanter", "torch_xla", "torchax", "torchtpu", "jax", "other"},
    "trainium": {"neuron", "other"},
}  # fmt: skip


def default_stack(family: str, job_stack: str) -> str:
    """The job's own stack where it runs on that family of chips, else the family's default."""
    runs_there = job_stack.partition("@")[0] in RUNS_ON[family]
    return job_stack if runs_there else DEFAULT_BY_FAMILY[family]
