"""What a device holds beside its state and activations under stacks of PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chipshift.estimate.columns import Choice, Columns
from chipshift.estimate.idle import host_s
from chipshift.estimate.parts import Times, absent, plus
from chipshift.estimate.setting import Setting
from chipshift.parallel import memory
from chipshift.parallel.remat import Policy
from chipshift.worked import rename

Number = Any


@dataclass(frozen=True)
class Beside:
    """Bytes of a stage beside state and activations; 0.0 where the stack has no such thing.

    Attributes:
        buckets: that gradients are summed from.
        flat: that updated weights are gathered through, after the activations are gone.
        wide: activations of full width, kept throughout.
    """

    buckets: Number
    flat: Number
    wide: Number


def beside(s: Setting, c: Columns, choice: Choice, params: Number, tokens: Number) -> Beside:
    """What stacks of PyTorch's DDP and plain tensor parallelism hold beside."""
    st, trained = s.stack, params * s.trainable
    replicas = memory.gradient_replicas(c.dp, c.fsdp, c.cp)
    buckets: Number = 0.0
    flat: Number = 0.0
    if not absent(st.bucket_copy_bytes):
        buckets = memory.bucket_bytes(trained, st.bucket_copy_bytes, replicas)
    if not absent(st.flat_gather_bytes) and choice.optimizer_sharding != "none":
        flat = memory.flat_gather_bytes(trained, st.flat_gather_bytes, replicas)
    wide: Number = 0.0
    if not absent(st.wide_tensors):
        wide = memory.wide_bytes(tokens, s.model.d_model, st.wide_tensors, c.tp)
    return Beside(buckets, flat, wide)


def stranded(s: Setting, c: Columns, choice: Choice, policy: Policy, counts: list[Number],
              w: Any) -> Number:  # fmt: skip
    """Bytes of gathered activations that the allocator may not hand out again yet.

    A collective on a stream of its own reads them: the further the host runs ahead of the device,
    the more of them are asked for before the first is done with.
    """
    if absent(s.stack.stranded_tensors):
        return 0.0
    device: Number = 0.0
    launches: Number = 0.0
    for one, count in zip(w.layers, counts, strict=False):
        forward = Times()
        for times in one.forward.values():
            forward = forward + times
        device = plus(device, (forward + one.input_grad + one.weight_grad).total * count)
        launches = launches + s.stack.ops_per_layer * count
    host = host_s(s, c, choice, policy, launches, sum(counts[1:], counts[0]))
    ahead = rename(memory.share_ahead(host, device, c.pp), "share_ahead")
    whole = memory.wide_bytes(w.tokens, s.model.d_model, s.stack.stranded_tensors, c.tp)
    return rename(ahead * whole, "stranded_bytes")
