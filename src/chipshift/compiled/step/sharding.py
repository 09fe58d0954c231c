"""How the step is cut over devices: who holds which part of a weight, and moves.

Each move names the layout of a value in the forward pass and of its gradient in the backward pass,
and XLA's partitioner picks the collective: an all-gather forward is a reduce-scatter backward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from chipshift.compiled.step.axes import BATCH, MESH_AXES, seq, weight_axes
from chipshift.compiled.step.config import Config


def make_mesh(cfg: Config, devices: list[Any]) -> Mesh:
    """The mesh over ``devices``: slices outermost, the last axes on neighbouring chips."""
    if cfg.slices == 1:
        grid = _place(cfg.mesh, devices)
    else:
        inner, outer = _split_slices(cfg)
        groups: dict[int, list[Any]] = {}
        for device in devices:
            groups.setdefault(device.slice_index, []).append(device)
        parts = np.stack([_place(inner, groups[index]) for index in sorted(groups)])
        # (slices, *inner) -> each axis is its part over slices times its part inside one.
        parts = parts.reshape(*outer, *inner)
        order = [axis + side * len(inner) for axis in range(len(inner)) for side in (0, 1)]
        grid = parts.transpose(order).reshape(cfg.mesh)
    return Mesh(grid, MESH_AXES, axis_types=(AxisType.Auto,) * len(MESH_AXES))


def _split_slices(cfg: Config) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes inside a slice and over slices: dp crosses slices first, then fsdp."""
    left, outer = cfg.slices, [1] * len(cfg.mesh)
    for axis in (0, 1):
        outer[axis] = int(np.gcd(left, cfg.mesh[axis]))
        left //= outer[axis]
    if left != 1:
        raise ValueError(
            f"{cfg.slices} slices need dp x fsdp divisible by {cfg.slices}: only data parallel "
            f"axes cross slices, and here dp={cfg.mesh[0]}, fsdp={cfg.mesh[1]}"
        )
    return tuple(m // o for m, o in zip(cfg.mesh, outer, strict=True)), tuple(outer)


def _place(shape: tuple[int, ...], devices: list[Any]) -> Any:
    """Devices of one slice in mesh order; JAX knows how axes sit best on a torus."""
    from jax.experimental import mesh_utils

    if devices[0].platform == "tpu":
        try:
            return mesh_utils.create_device_mesh(shape, devices)
        except NotImplementedError:
            return mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
    return np.array(devices).reshape(shape)


@dataclass(frozen=True)
class Weight:
    """Shape of a weight and the dimensions that tp, fsdp and ep cut (None = not cut)."""

    shape: tuple[int, ...]
    tp: int | None = None
    fsdp: int | None = None
    ep: int | None = None

    def spec(self, cfg: Config, *, whole: bool = False, zero: bool = False) -> Any:
        """Where it lives; ``whole``: gathered over fsdp; ``zero``: cut over dp as well."""
        dims: list[tuple[str, ...]] = [()] * len(self.shape)
        sizes = dict(zip(MESH_AXES, cfg.mesh, strict=True))
        if cfg.mesh[4] > 1 and self.tp is not None and self.shape[self.tp] % sizes["tp"] == 0:
            dims[self.tp] = ("tp",)
        if cfg.mesh[2] > 1 and self.ep is not None:
            dims[self.ep] = ("ep",)
        over = weight_axes(cfg, expert=self.ep is not None, zero=zero)
        parts = int(np.prod([sizes[axis] for axis in over]))
        if self.fsdp is not None and not whole and parts > 1:
            dim = self._cut(parts, dims, sizes)
            dims[dim] = (*dims[dim], *over)
        return P(*(axes or None for axes in dims))

    def _cut(self, parts: int, dims: list[tuple[str, ...]], sizes: dict[str, int]) -> int:
        """The dimension that fsdp cuts: the declared one, else the first that divides."""
        for dim in (self.fsdp or 0, *range(len(self.shape))):
            held = int(np.prod([sizes[axis] for axis in dims[dim]], dtype=int))
            if self.shape[dim] % (held * parts) == 0:
                return int(dim)
        raise ValueError(f"no dimension of a weight of shape {self.shape} divides over {parts}")


def on_devices(mesh: Mesh, run: Any, cut: Any, out: Any) -> Any:
    """``run`` on every device by itself, on the parts of its arguments that ``cut`` gives it."""
    return jax.shard_map(run, mesh=mesh, in_specs=cut, out_specs=out, check_vma=False)


def constrain(mesh: Mesh, x: Any, spec: Any) -> Any:
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))


def gathered(mesh: Mesh, x: Any, cut: Any, whole: Any) -> Any:
    """``x``, held as ``cut``, gathered to ``whole``; its gradient is reduced and scattered."""

    def forward(x: Any) -> Any:
        # Both layouts are named: with the second alone XLA may move the gather up, before a cast.
        return constrain(mesh, constrain(mesh, x, cut), whole)

    moved = jax.custom_vjp(forward)
    moved.defvjp(lambda x: (forward(x), None), lambda _, grad: (constrain(mesh, grad, cut),))
    return moved(x)


def scattered(mesh: Mesh, x: Any, cut: Any, whole: Any) -> Any:
    """``x``, a matmul's partial sums, reduced and scattered to ``cut``; its gradient gathered."""

    def backward(_: None, grad: Any) -> tuple[Any]:
        return (constrain(mesh, constrain(mesh, grad, cut), whole),)

    moved = jax.custom_vjp(lambda x: constrain(mesh, x, cut))
    moved.defvjp(lambda x: (constrain(mesh, x, cut), None), backward)
    return moved(x)


def whole(mesh: Mesh, cfg: Config, weight: Weight, w: Any) -> Any:
    """A master weight cast and gathered for use. Cast first, on the device's own part, so that the
    gather moves the smaller dtype."""
    part = constrain(mesh, w.astype(cfg.compute_dtype), weight.spec(cfg))
    return constrain(mesh, part, weight.spec(cfg, whole=True))


def project(
    mesh: Mesh, cfg: Config, weight: Weight, equation: str, x: Any, w: Any, dtype: Any = None
) -> Any:
    """FSDP: ``einsum(equation, x, w)`` with ``w`` gathered for use, here and in the backward pass.

    Nobody keeps the gathered weight: the backward pass gathers it again, and leaves the weight's
    gradient reduced and scattered to where the weight lives, in ``cfg.reduce_dtype``.
    """
    lhs, out = equation.split("->")
    left, right = lhs.split(",")
    result = jnp.dtype(dtype or cfg.compute_dtype)

    def forward(x: Any, w: Any) -> tuple[Any, tuple[Any, Any]]:
        y = jnp.einsum(equation, x, whole(mesh, cfg, weight, w), preferred_element_type=result)
        return y, (x, w)

    def backward(kept: tuple[Any, Any], grad: Any) -> tuple[Any, Any]:
        x, w = kept
        grad = grad.astype(x.dtype)
        grad_x = jnp.einsum(f"{out},{right}->{left}", grad, whole(mesh, cfg, weight, w))
        reduce = jnp.dtype(cfg.reduce_dtype)
        grad_w = jnp.einsum(f"{left},{out}->{right}", x, grad, preferred_element_type=reduce)
        return grad_x, constrain(mesh, grad_w, weight.spec(cfg)).astype(w.dtype)

    multiply = jax.custom_vjp(lambda x, w: forward(x, w)[0])
    multiply.defvjp(forward, backward)
    return multiply(x, w)


def project_over_tp(
    mesh: Mesh, cfg: Config, weights: tuple[Weight, ...], equation: str, x: Any, ws: tuple[Any, ...]
) -> tuple[Any, ...]:
    """``project`` of one (B, S, M), its sequence in parts, by several weights: ``x`` is gathered
    over tp. Its gradient is written for one device, which adds up what each
    weight gives and scatters that once: the partitioner would scatter every weight's own, or send
    what goes into a narrow one to other devices instead."""
    lhs, out = equation.split("->")
    left, right = lhs.split(",")
    cut, whole_x = P(BATCH, seq(cfg), None), P(BATCH, "cp", None)
    specs = [_as_used(cfg, weight).spec(cfg, whole=True) for weight in weights]

    def used(ws: tuple[Any, ...]) -> list[Any]:
        gathered = [whole(mesh, cfg, weight, w) for weight, w in zip(weights, ws, strict=True)]
        return [_own_head(mesh, cfg, *one) for one in zip(weights, gathered, strict=True)]

    def forward(x: Any, ws: tuple[Any, ...]) -> tuple[Any, tuple[Any, Any]]:
        x = constrain(mesh, constrain(mesh, x, cut), whole_x)
        return tuple(jnp.einsum(equation, x, w) for w in used(ws)), (x, ws)

    def on_device(grads: Any, ws: Any) -> Any:
        pairs = zip(grads, ws, strict=True)
        total = sum(jnp.einsum(f"{out},{right}->{left}", grad, w) for grad, w in pairs)
        return jax.lax.psum_scatter(total, "tp", scatter_dimension=1, tiled=True)

    in_parts = [P(BATCH, "cp", "tp")] * len(weights)
    add_up = jax.shard_map(
        on_device, mesh=mesh, in_specs=(in_parts, specs), out_specs=cut, check_vma=False
    )

    def backward(kept: tuple[Any, Any], grads: tuple[Any, ...]) -> tuple[Any, Any]:
        x, ws = kept
        cast = [grad.astype(x.dtype) for grad in grads]
        return add_up(cast, used(ws)), tuple(
            _weight_grad(mesh, cfg, weight, equation, x, grad, w)
            for weight, grad, w in zip(weights, cast, ws, strict=True)
        )

    multiply = jax.custom_vjp(lambda x, ws: forward(x, ws)[0])
    multiply.defvjp(forward, backward)
    return tuple(multiply(x, ws))


def _as_used(cfg: Config, weight: Weight) -> Weight:
    """Fewer key heads than tp devices are whole on each, which uses one of them."""
    if weight.tp is not None:
        return weight
    return replace(weight, shape=(weight.shape[0], cfg.mesh[4], *weight.shape[2:]), tp=1)


def _own_head(mesh: Mesh, cfg: Config, weight: Weight, w: Any) -> Any:
    """A gathered weight as it is used: of one that tp does not cut the device's own head."""
    if weight.tp is not None:
        return w
    spec = _as_used(cfg, weight).spec(cfg, whole=True)

    def on_device(w: Any) -> Any:
        head = jax.lax.axis_index("tp") * w.shape[1] // cfg.mesh[4]
        return jax.lax.dynamic_slice_in_dim(w, head, 1, axis=1)

    return jax.shard_map(on_device, mesh=mesh, in_specs=P(), out_specs=spec, check_vma=False)(w)


def project_out(mesh: Mesh, cfg: Config, weight: Weight, equation: str, x: Any, w: Any) -> Any:
    """``project`` of what tp cuts to (B, S, M), the sums scattered along the sequence; written for
    one device for the same reason."""
    lhs, out = equation.split("->")
    left, right = lhs.split(",")
    cut, whole_y = P(BATCH, seq(cfg), None), P(BATCH, "cp", None)

    def on_device(x: Any, w: Any) -> Any:
        part = jnp.einsum(equation, x, w)
        return jax.lax.psum_scatter(part, "tp", scatter_dimension=1, tiled=True)

    specs = (P(BATCH, "cp", "tp"), weight.spec(cfg, whole=True))
    add_up = jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=cut, check_vma=False)

    def forward(x: Any, w: Any) -> tuple[Any, tuple[Any, Any]]:
        return add_up(x, whole(mesh, cfg, weight, w)), (x, w)

    def backward(kept: tuple[Any, Any], grad: Any) -> tuple[Any, Any]:
        x, w = kept
        grad = constrain(mesh, constrain(mesh, grad, cut), whole_y)
        grad_x = jnp.einsum(f"{out},{right}->{left}", grad, whole(mesh, cfg, weight, w))
        return grad_x, _weight_grad(mesh, cfg, weight, equation, x, grad, w)

    multiply = jax.custom_vjp(lambda x, w: forward(x, w)[0])
    multiply.defvjp(forward, backward)
    return multiply(x, w)


def _weight_grad(
    mesh: Mesh, cfg: Config, weight: Weight, equation: str, x: Any, grad: Any, w: Any
) -> Any:
    """Gradient of ``w`` in ``einsum(equation, x, w)``, reduced and scattered to where it lives."""
    lhs, out = equation.split("->")
    left, right = lhs.split(",")
    reduce, spec = jnp.dtype(cfg.reduce_dtype), _as_used(cfg, weight).spec(cfg)
    grad_w = jnp.einsum(f"{left},{out}->{right}", x, grad, preferred_element_type=reduce)
    grad_w = constrain(mesh, grad_w, spec)
    if weight.tp is not None:
        return grad_w.astype(w.dtype)

    def put_back(own: Any) -> Any:
        head = jax.lax.axis_index("tp") * weight.shape[1] // cfg.mesh[4]
        every = jnp.zeros((own.shape[0], weight.shape[1], *own.shape[2:]), own.dtype)
        return jax.lax.psum(jax.lax.dynamic_update_slice_in_dim(every, own, head, axis=1), "tp")

    cut = weight.spec(cfg)
    whole_heads = jax.shard_map(put_back, mesh=mesh, in_specs=spec, out_specs=cut, check_vma=False)(
        grad_w
    )
    return whole_heads.astype(w.dtype)


def project_apart(mesh: Mesh, cfg: Config, weight: Weight, x: Any, w: Any) -> Any:
    """``project`` of (B, S, M) by (M, R), where tp cuts the sequence and not the weight."""
    if cfg.mesh[4] == 1 or not cfg.sequence_parallel:
        return project(mesh, cfg, weight, "bsm,mr->bsr", x, w)
    cut = P(BATCH, seq(cfg), None)

    def forward(x: Any, w: Any) -> tuple[Any, tuple[Any, Any]]:
        y = jnp.einsum("bsm,mr->bsr", x, whole(mesh, cfg, weight, w))
        return constrain(mesh, y, cut), (x, w)

    def backward(kept: tuple[Any, Any], grad: Any) -> tuple[Any, Any]:
        x, w = kept
        grad_x = jnp.einsum("bsr,mr->bsm", grad, whole(mesh, cfg, weight, w))
        return grad_x, _summed(mesh, cfg, weight, x, grad).astype(w.dtype)

    multiply = jax.custom_vjp(lambda x, w: forward(x, w)[0])
    multiply.defvjp(forward, backward)
    return multiply(x, w)


def _summed(mesh: Mesh, cfg: Config, weight: Weight, x: Any, grad: Any) -> Any:
    """The weight's gradient of every device's own tokens, reduced and scattered to its place.

    Written for one device: the partitioner would gather the tokens in place of summing over tp.
    """
    cut, spec = P(BATCH, seq(cfg), None), weight.spec(cfg, zero=cfg.zero)
    parts = [(axes,) if isinstance(axes, str) else axes or () for axes in spec]
    held = {axis for axes in parts for axis in axes}
    rest = tuple(axis for axis in (*BATCH, *seq(cfg)) if axis not in held)
    # dp last: its part is cut out of the part that a device has without it, if it has one.
    stages = [set(MESH_AXES) - {"dp"}, {"dp"}] if weight_axes(cfg) else [set(MESH_AXES)]

    def on_device(x: Any, grad: Any) -> Any:
        total = jnp.einsum(
            "bsm,bsr->mr", x, grad, preferred_element_type=jnp.dtype(cfg.reduce_dtype)
        )
        for stage in stages:
            for dim, axes in enumerate(parts):
                over = tuple(axis for axis in axes if axis in stage)
                if over:
                    total = jax.lax.psum_scatter(total, over, scatter_dimension=dim, tiled=True)
        return jax.lax.psum(total, rest) if rest else total

    on_mesh = jax.shard_map(
        on_device, mesh=mesh, in_specs=(cut, cut), out_specs=spec, check_vma=False
    )
    return on_mesh(x, grad)


def fsdp_gathered(cfg: Config, spec: Any, part: Any) -> Any:
    """On one device: its part of a weight cut as ``spec``, cast and gathered over fsdp (and cp).

    The gradient is reduced and scattered in ``cfg.reduce_dtype`` over these axes alone: left to the
    partitioner it would be summed over dp in the same move, whole.
    """
    held = [(axes,) if isinstance(axes, str) else axes or () for axes in spec]
    dim = next((dim for dim, axes in enumerate(held) if "fsdp" in axes), None)
    if dim is None:
        return part.astype(cfg.compute_dtype)
    over = tuple(axis for axis in held[dim] if axis in ("fsdp", "cp"))

    def forward(part: Any) -> tuple[Any, None]:
        cast = part.astype(cfg.compute_dtype)
        return jax.lax.all_gather(cast, over, axis=dim, tiled=True), None

    def backward(_: None, grad: Any) -> tuple[Any]:
        grad = grad.astype(cfg.reduce_dtype)
        total = jax.lax.psum_scatter(grad, over, scatter_dimension=dim, tiled=True)
        return (total.astype(part.dtype),)

    gather = jax.custom_vjp(lambda part: forward(part)[0])
    gather.defvjp(forward, backward)
    return gather(part)
