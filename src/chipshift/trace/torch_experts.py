"""Routed experts in a module that is run on tensors without values.

Which token goes to which expert is decided by values, which such tensors have none of. Experts are
therefore told by their shapes: a list of equal submodules, or parameters stacked in three
dimensions, beside a router with as many outputs. They are not run; how many a token visits is read
from the router's own call of ``topk``, from the indices that the experts are given, or from an
attribute, and said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

TOP_K = (
    *("top_k", "topk", "num_experts_per_tok", "num_experts_per_token", "experts_per_token"),
    *("n_activated_experts", "moe_top_k", "moe_topk", "router_top_k", "num_selected_experts", "k"),
)
"""Attributes that hold the number of experts a token visits."""


@dataclass(frozen=True)
class Experts:
    """Routed experts as they stand in a module.

    Attributes:
        count: of them.
        top_k: experts that a token visits.
        shapes: of one expert's matrices.
        params: of one expert, biases included.
        told: how ``top_k`` was told.
    """

    count: int
    top_k: int
    shapes: tuple[tuple[int, int], ...]
    params: int
    told: str

    def widths(self, d_model: int) -> tuple[int, int, int] | None:
        """(width read and written, inner width, matrices) of an expert; None where unclear."""
        shared = set.intersection(*(set(shape) for shape in self.shapes))
        outer = d_model if d_model in shared else max(shared, default=0)
        if not outer:
            return None
        others = [a if b == outer else b for a, b in self.shapes]
        inner = min(others)
        matrices = sum(others) // inner
        fits = matrices in (2, 3) and sum(others) == matrices * inner
        return (outer, inner, matrices) if fits else None


@dataclass
class Site:
    """A place where experts stand: the module whose forward pass is replaced.

    Attributes:
        alone: it holds the experts only, its router being elsewhere, so that it is called with
            what the router chose.
        skipped: children that are, or hold, experts.
    """

    module: Any
    count: int
    shapes: tuple[tuple[int, int], ...]
    params: int
    alone: bool
    skipped: tuple[Any, ...]


def sites(block: Any) -> Iterator[Site]:
    """Every place in a block where routed experts stand, beside a router of as many outputs."""
    parents = {id(child): m for m in block.modules() for child in m.children()}
    taken: set[int] = set()
    for module in block.modules():
        if id(module) in taken:
            continue
        found = _listed(module) or _stacked(module)
        if found is None:
            continue
        count, shapes, size = found
        # within a list a matrix of so many sides is an expert's own (Swin's table of biases)
        own = _routes(module, count, tuple(module.children()) if _is_list(module) else ())
        owner = module if own and not _is_list(module) else parents.get(id(module))
        if owner is None or not (own or _routes(owner, count, (module,))):
            continue
        taken |= {id(m) for m in module.modules()}
        alone = not own and not _is_list(module)
        site = module if alone else owner
        skipped = () if site is module else (module,)
        yield Site(site, count, shapes, size, alone, skipped)


def _is_list(module: Any) -> bool:
    import torch

    return isinstance(module, (torch.nn.ModuleList, torch.nn.ModuleDict))


def _listed(module: Any) -> tuple[int, tuple[tuple[int, int], ...], int] | None:
    """(experts, matrices of one, parameters of one) of a list of equal feed-forwards."""
    children = list(module.children()) if _is_list(module) else []
    if len(children) < 2 or len({type(c) for c in children}) > 1:
        return None
    all_shapes = [[tuple(p.shape) for p in child.parameters()] for child in children]
    matrices = [shape for shape in all_shapes[0] if len(shape) == 2]
    if len(matrices) < 2 or any(shapes != all_shapes[0] for shapes in all_shapes):
        return None
    return len(children), tuple(matrices), sum(p.numel() for p in children[0].parameters())


def _stacked(module: Any) -> tuple[int, tuple[tuple[int, int], ...], int] | None:
    """The same of parameters stacked in three dimensions, the first being the experts'."""
    own = list(module.parameters(recurse=False))
    stacks = [tuple(p.shape) for p in own if p.dim() == 3]
    if len(stacks) < 2 or len({s[0] for s in stacks}) > 1 or stacks[0][0] < 2:
        return None
    count = stacks[0][0]
    of_experts = [p for p in own if p.dim() == 3 or (p.dim() == 2 and p.shape[0] == count)]
    size = sum(p.numel() for p in of_experts) // count
    return count, tuple((a, b) for _, a, b in stacks), size


def _routes(module: Any, count: int, besides: tuple[Any, ...]) -> bool:
    """Whether a matrix with one side of ``count`` stands in a module, its experts left out."""
    left = {id(p) for m in besides for p in m.parameters()}
    own = [p for p in module.parameters() if id(p) not in left and p.dim() == 2]
    stacked = {id(p) for p in module.parameters(recurse=False) if p.dim() == 2}
    has_stacks = any(p.dim() == 3 for p in module.parameters(recurse=False))
    # a bias of each expert is a matrix too, where experts are stacked: it is no router
    own = [p for p in own if not (has_stacks and id(p) in stacked and _is_bias(module, p))]
    return any(count in tuple(p.shape) for p in own)


def _is_bias(module: Any, parameter: Any) -> bool:
    return any(
        p is parameter and "bias" in name for name, p in module.named_parameters(recurse=False)
    )


class Stubs:
    """Replaces the forward passes of sites, and records what they hold.

    Args:
        add: takes each ``Experts`` as its site is reached.
        muted: a list whose only item, when true, keeps other recorders silent.
        chosen: (k, of how many) of each ``topk`` that was seen, the latest last.
        tuples: sites that hold experts and router return (output, scores) instead of an output.
    """

    def __init__(
        self,
        add: Callable[[Experts], None],
        muted: list[bool],
        chosen: list[tuple[int, int]],
        tuples: bool = False,
    ) -> None:
        self.add, self.muted, self.chosen, self.tuples = add, muted, chosen, tuples
        self.unrunnable: set[type] = set()
        self.undo: list[Any] = []

    def place(self, block: Any) -> None:
        """Replace the forward pass of each site in a block."""
        for site in sites(block):
            own = site.module.forward
            site.module.forward = self._alone(site) if site.alone else self._whole(site, own)
            self.undo.append(site.module)

    def remove(self) -> None:
        for module in self.undo:
            del module.forward

    def _alone(self, site: Site) -> Callable[..., Any]:
        """Experts that are called with tokens and what the router chose for them."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            import torch

            given = [a for a in [*args, *kwargs.values()] if isinstance(a, torch.Tensor)]
            indices = [a for a in given if not a.is_floating_point() and a.dim() >= 2]
            if indices and 0 < int(indices[0].shape[-1]) <= site.count:
                k, told = int(indices[0].shape[-1]), "the indices that the experts are given"
            else:
                k, told = self._top_k(site)
            self.add(Experts(site.count, k, site.shapes, site.params, told))
            return torch.empty_like(given[0])

        return forward

    def _whole(self, site: Site, own: Callable[..., Any]) -> Callable[..., Any]:
        """A router with its experts: the router and shared experts run, the routed ones not."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            import torch

            tokens = next(a for a in [*args, *kwargs.values()] if isinstance(a, torch.Tensor))
            out = self._attempt(site, own, args, kwargs)
            for child in site.module.children():
                holds = {id(m) for m in child.modules()}
                if not any(id(one) in holds for one in site.skipped):
                    _try(child, tokens)
            k, told = self._top_k(site)
            self.add(Experts(site.count, k, site.shapes, site.params, told))
            if out is not None:
                return out
            scores = tokens.new_empty((tokens[..., 0].numel(), site.count))
            return (torch.empty_like(tokens), scores) if self.tuples else torch.empty_like(tokens)

        return forward

    def _attempt(self, site: Site, own: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What the module itself returns, its ``topk`` being seen; None where it needs values."""
        if type(site.module) in self.unrunnable:
            return None
        before, self.muted[0] = self.muted[0], True
        try:
            return own(*args, **kwargs)
        except Exception:  # whatever code does that finds no values
            self.unrunnable.add(type(site.module))
            return None
        finally:
            self.muted[0] = before

    def _top_k(self, site: Site) -> tuple[int, str]:
        """(experts a token visits, how that was told): 0 where nothing tells it."""
        for k, of in reversed(self.chosen):
            if of == site.count:
                return k, "the router's topk"
        holders = [site.module, *site.module.children()]
        holders += [getattr(m, "config", None) for m in holders]
        for name in TOP_K:
            for holder in holders:
                value = getattr(holder, name, None)
                if isinstance(value, int) and 0 < value <= site.count:
                    return value, f"the attribute {name}"
        return 0, ""


def _try(child: Any, tokens: Any) -> None:
    """A router or a shared expert on the tokens, flat where it wants them so."""
    for given in (tokens, tokens.reshape(-1, tokens.shape[-1])):
        try:
            child(given)
        except Exception:
            continue
        return
