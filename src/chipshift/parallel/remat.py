"""Rematerialisation: which of a layer's tensors stay for the backward pass.

A layer's backward pass needs seven tensors besides its input. A policy keeps some on the device,
moves some to the host, and recomputes the rest from what is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from chipshift.jobs.remats import TENSORS, parse_remat

OP_TENSOR = {
    "attention_norm": "attention_norm",
    "q_down": "qkv",
    "q_up": "qkv",
    "q_proj": "qkv",
    "kv_down": "qkv",
    "kv_up": "qkv",
    "qkv_proj": "qkv",
    "rope": "qkv",
    "attention": "attention",
    "out_proj": "out_proj",
    "attention_residual": "out_proj",
    "mlp_norm": "mlp_norm",
    "mlp_up": "up",
    "router": "up",
    "permute": "up",
    "masks": "up",
    "dispatch": "up",
    "experts_up": "up",
    "shared_up": "up",
    "mlp_activation": "activation",
    "experts_activation": "activation",
    "shared_activation": "activation",
    "mlp_down": "down",
    "experts_down": "expert_out",
    "shared_down": "down",
    "experts_bias": "expert_out",
    "unpermute": "expert_out",
    "combine": "expert_out",
    "mlp_residual": "down",
}
"""Which tensor each op of a layer helps to make; ``down`` is the layer's output, ``expert_out``
what routed experts add to it."""


def tensor_of(op_name: str, side_by_side: bool) -> str:
    """The tensor that an op of a layer helps to make.

    Where attention and feed-forward stand side by side, attention's output is added to the layer's
    and nothing else reads it.
    """
    tensor = OP_TENSOR[op_name]
    return "down" if side_by_side and tensor == "out_proj" else tensor


@dataclass(frozen=True)
class Policy:
    """A rematerialisation policy.

    Attributes:
        saved: tensors kept in device memory.
        offloaded: tensors moved to the host and back; ``block_input`` may be among them.
        reruns_output: the recompute also runs the layer's last matmul, whose result is not used
            (PyTorch's checkpoint does, XLA removes it).
        every: share of the layers that the policy is applied to; the others keep everything.
        reruns_experts: where the experts' first matmuls run again their last one does too: the
            router's weights multiply its results, and their gradient reads them.
    """

    name: str
    saved: frozenset[str]
    offloaded: frozenset[str] = frozenset()
    reruns_output: bool = False
    every: float = 1.0
    reruns_experts: bool = False

    def recomputes(self, op_name: str, side_by_side: bool = False) -> bool:
        """Whether the op runs again before its layer's backward pass."""
        return self.recomputes_tensor(tensor_of(op_name, side_by_side))

    def recomputes_tensor(self, tensor: str) -> bool:
        """Whether the ops that make this tensor run again before the layer's backward pass."""
        if tensor == "expert_out" and self.reruns_experts:
            return self.recomputes_tensor("up")
        if tensor in ("down", "expert_out"):
            return self.reruns_output and not self.saved and not self.offloaded
        return tensor not in self.saved and tensor not in self.offloaded


_ALL = frozenset(TENSORS)
_DOTS = frozenset({"qkv", "out_proj", "up"})


def _policies() -> dict[str, Policy]:
    keep = {
        "none": _ALL,
        "full": frozenset[str](),
        # Megatron's selective recompute runs core attention again and keeps the rest.
        "selective": _ALL - {"attention"},
        # torchtitan's per-op selective checkpointing keeps attention and the matmuls' results.
        "selective_op": frozenset({"qkv", "attention", "out_proj", "up"}),
        # MaxText's named policies (its decoder layer's checkpoint names).
        "minimal": _DOTS,
        "minimal_with_context": _DOTS | {"attention"},
        "minimal_flash": _DOTS | {"attention"},
        "save_dot_except_mlp": frozenset({"qkv", "out_proj"}),
        "save_dot_except_mlpwi": frozenset({"qkv", "out_proj"}),
        "save_dot_with_context_except_mlp": frozenset({"qkv", "attention", "out_proj"}),
        "save_qkv_proj": frozenset({"qkv"}),
        "save_out_proj": frozenset({"out_proj"}),
    }
    table = {name: Policy(name, saved) for name, saved in keep.items()}
    moved = {
        "qkv_proj_offloaded": frozenset({"qkv"}),
        "minimal_offloaded": _DOTS,
        "offload:block_input": frozenset({"block_input"}),
        "offload:qkv": frozenset({"qkv"}),
    }
    return table | {name: Policy(name, frozenset(), away) for name, away in moved.items()}


POLICIES = _policies()


def policy(name: str, *, reruns_output: bool = False, reruns_experts: bool = False) -> Policy:
    """The policy of that name; ``custom:saved=a+b,offload=c`` names tensors one by one.

    ``full:12/32``, or another name, applies it to 12 of every 32 layers; the rest keep everything.

    Raises:
        InputError: no such policy, or no such tensor in a custom one.
    """
    told = parse_remat(name)
    if told.base == "custom":
        found = Policy(name, told.saved, told.offloaded)
    else:
        found = replace(POLICIES[told.base], every=told.every)
    if reruns_output and found.name == "full":
        found = replace(found, reruns_output=True)
    return replace(found, reruns_experts=True) if reruns_experts else found
