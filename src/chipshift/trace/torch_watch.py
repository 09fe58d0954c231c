"""One forward pass on tensors without values, watched: matmuls, convolutions, attentions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from chipshift.trace.torch_experts import Experts

OUTSIDE = -1


@dataclass(frozen=True)
class Map:
    """A matmul of ``rows`` rows with a parameter; ``weight`` tells parameters apart."""

    rows: int
    inputs: int
    outputs: int
    weight: int


@dataclass(frozen=True)
class Convolved:
    """A convolution with a parameter: ``positions`` outputs along its axes, for the whole batch.

    ``reads_data``: its input is one of the example inputs, which want no gradient.
    """

    inputs: int
    outputs: int
    kernel: int
    positions: int
    groups: int
    weight: int
    reads_data: bool = False

    @property
    def flops(self) -> int:
        each = self.inputs // self.groups * self.outputs * self.kernel
        return 2 * self.positions * each


@dataclass(frozen=True)
class Attended:
    """One attention: query heads, key/value heads and widths as they were seen.

    Attributes:
        queries, keys: positions; ``times``: items of the batch.
    """

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    causal: bool
    queries: int = 0
    keys: int = 0
    times: int = 1

    @property
    def flops(self) -> int:
        """Of both matmuls over all pairs of positions, for the whole batch."""
        pairs = self.queries * self.keys * self.heads * self.times
        return 2 * pairs * (self.head_dim + self.v_head_dim)


Event = Map | Attended | Convolved | Experts


@dataclass
class Seen:
    """What one run met, by block (``OUTSIDE`` for none), in order.

    Attributes:
        width, rows, batch: of what the first block was given: its last axis, the product of the
            others, the first of them.
        muted: its only item, when true, keeps what is met out.
        chosen: (k, of how many) of each ``topk``, in order.
        looked_up: rows read of each table in one call, by its parameter's number.
        mixed_flops: of matmuls of activations with each other that are no attention, and of
            weights that were made of parameters.
    """

    events: dict[int, list[Event]] = field(default_factory=dict)
    width: int = 0
    rows: int = 0
    batch: int = 1
    block: int = OUTSIDE
    muted: list[bool] = field(default_factory=lambda: [False])
    chosen: list[tuple[int, int]] = field(default_factory=list)
    looked_up: dict[int, int] = field(default_factory=dict)
    mixed_flops: int = 0

    def mix(self, flops: int) -> None:
        """A matmul or convolution without a parameter as it stands."""
        self.mixed_flops += 0 if self.muted[0] else flops

    def add(self, event: Event) -> None:
        if not self.muted[0]:
            self.events.setdefault(self.block, []).append(event)


@contextmanager
def watched(module: Any, seen: Seen, inputs: Any) -> Iterator[None]:
    """Matmuls with parameters and attentions of a run on ``inputs`` go into ``seen``.

    PyTorch's fused path through its own encoder layers is off meanwhile, as it is in training: its
    one op shows no matmul.
    """
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten
    # reached from inside torch's own layers, where the function's name is not seen
    fused = (
        aten._scaled_dot_product_flash_attention_for_cpu,
        aten._scaled_dot_product_flash_attention,
    )
    stored = {p.untyped_storage()._cdata: n for n, p in enumerate(module.parameters())}
    given = {one.untyped_storage()._cdata for one in tensors_in(inputs)}
    sdpa = torch.nn.functional.scaled_dot_product_attention
    inside = [False]
    scores: list[Any] = []

    def weight_of(tensor: Any) -> int | None:
        return stored.get(tensor.untyped_storage()._cdata)

    class Maps(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        supports_higher_order_operators = True  # flex_attention is one

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None
                               ) -> Any:  # fmt: skip
            out = func(*args, **(kwargs or {}))
            packet = getattr(func, "_overloadpacket", None)
            if packet is None:
                if func.name() == "flex_attention":  # its mask's function stands last
                    masked = getattr(args[4][-1], "__name__", "") != "noop_mask"
                    seen.add(_attended(args, masked, {}))
                return out
            if not inside[0] and packet in fused:
                seen.add(_attended(args, bool(args[4]) if len(args) > 4 else False, kwargs or {}))
                return out
            if packet is aten.topk:
                along = args[2] if len(args) > 2 else -1
                seen.chosen.append((int(args[1]), int(args[0].shape[along])))
                return out
            if packet is aten.embedding and (weight := weight_of(args[0])) is not None:
                seen.looked_up[weight] = max(seen.looked_up.get(weight, 0), int(args[1].numel()))
                return out
            if packet is aten.convolution:
                read = args[0].untyped_storage()._cdata in given
                weight = weight_of(args[1])
                made = _convolved(args, out, -1 if weight is None else weight, read)
                if weight is None:  # its weight was made of parameters (a norm of them)
                    seen.mix(made.flops)
                else:
                    seen.add(made)
                return out
            if inside[0] or packet not in (aten.mm, aten.addmm, aten.bmm, aten.baddbmm):
                return out
            a, b = args[-2:] if packet in (aten.mm, aten.bmm) else args[1:3]
            weight = weight_of(b)
            if weight is None and weight_of(a) is not None:
                weight, a, b = weight_of(a), b.mT, a.mT
            if weight is not None:
                for _ in range(int(b.shape[0]) if b.dim() == 3 else 1):
                    seen.add(Map(int(a.shape[-2]), int(b.shape[-2]), int(b.shape[-1]), weight))
            elif packet in (aten.bmm, aten.baddbmm):
                _pair(a, b, out, seen, scores)
            else:
                seen.mix(2 * int(a.numel()) * int(b.shape[-1]))
            return out

    class Attentions(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None
                               ) -> Any:  # fmt: skip
            named = kwargs or {}
            if func is not sdpa:
                return func(*args, **named)
            causal = bool(named.get("is_causal", args[5] if len(args) > 5 else False))
            tensors = args + tuple(named[n] for n in ("query", "key", "value") if n in named)
            masked = {"attn_mask": args[3] if len(args) > 3 else named.get("attn_mask")}
            seen.add(_attended(tensors, causal, masked))
            inside[0] = True
            try:
                return func(*args, **named)
            finally:
                inside[0] = False

    fused_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with Maps(), Attentions():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused_path)


def tensors_in(inputs: Any) -> list[Any]:
    """The tensors of example inputs: one, several, or by name."""
    listed = list(inputs.values()) if isinstance(inputs, dict) else inputs
    listed = listed if isinstance(listed, (list, tuple)) else [listed]
    return [one for one in listed if hasattr(one, "untyped_storage")]


def _attended(tensors: Any, causal: bool, given: dict[str, Any]) -> Attended:
    """An attention by its queries, keys and values; what has a mask is taken for causal."""
    q, k, v = tensors[:3]
    masked = given.get("attn_mask") is not None
    return Attended(
        int(q.shape[-3]),
        int(k.shape[-3]),
        int(q.shape[-1]),
        int(v.shape[-1]),
        causal or masked,
        int(q.shape[-2]),
        int(k.shape[-2]),
        int(q.shape[0]) if q.dim() == 4 else 1,
    )


def _pair(a: Any, b: Any, out: Any, seen: Seen, scores: list[Any]) -> None:
    """Two matmuls of activations in a row, scores and then their sum of values, are attention.

    Not so where the second multiplies by what the first made, as linear attention does, nor in
    another block.
    """
    follows = scores and scores[0].shape[0] == a.shape[0] and scores[1] == a.shape[-1]
    if follows and scores[3] == seen.block and scores[2] != b.untyped_storage()._cdata:
        keyed = scores[0]
        scores.clear()
        heads, dim = int(keyed.shape[0]), int(keyed.shape[-1])
        times = seen.batch if heads % seen.batch == 0 else 1
        heads //= times
        seen.mixed_flops -= 0 if seen.muted[0] else 2 * int(keyed.numel()) * int(a.shape[-1])
        keys = int(a.shape[-1])
        queries = int(keyed.shape[-2])
        seen.add(Attended(heads, heads, dim, int(b.shape[-1]), True, queries, keys, times))
    else:
        seen.mixed_flops += 0 if seen.muted[0] else 2 * int(a.numel()) * int(b.shape[-1])
        scores[:] = [a, b.shape[-1], out.untyped_storage()._cdata, seen.block]


def _convolved(args: Any, out: Any, weight: int, reads_data: bool) -> Convolved:
    """A convolution by its weight, its output and its groups; a transposed one by its input."""
    kernel, transposed, groups = args[1], bool(args[6]), int(args[8])
    taps = 1
    for axis in kernel.shape[2:]:
        taps *= int(axis)
    at = args[0] if transposed else out
    positions = int(at.shape[0])
    for axis in at.shape[2:]:
        positions *= int(axis)
    outputs, inputs = int(kernel.shape[0]), int(kernel.shape[1]) * groups
    if transposed:
        inputs, outputs = outputs, int(kernel.shape[1]) * groups
    return Convolved(inputs, outputs, taps, positions, groups, weight, reads_data)
