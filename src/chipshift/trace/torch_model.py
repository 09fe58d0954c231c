"""A model from the user's own ``nn.Module``, by running it once on tensors that hold nothing.

The function is called and the module run under PyTorch's ``FakeTensorMode``: shapes go through, no
memory is taken and nothing is computed. Every matmul with a parameter, every attention and the
tables are seen; the largest list of blocks becomes the layers.
"""

from __future__ import annotations

import importlib.util
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from chipshift.errors import InputError
from chipshift.models.count import params
from chipshift.models.model import Layer, Model, Projection
from chipshift.trace.load import load_function, told
from chipshift.trace.torch_experts import Experts, Stubs, sites
from chipshift.trace.torch_layers import layer_of, norm_params, size_of
from chipshift.trace.torch_ops import model_of_ops
from chipshift.trace.torch_watch import OUTSIDE, Attended, Map, Seen, watched

TOKENS = 64
"""Length of the one sequence that is run where the function gives no inputs."""


def read_torch_model(text: str) -> Model:
    """The model that ``MODULE:FUNCTION`` builds; this imports and runs the user's code.

    The function takes nothing and returns the module, or (module, inputs, ...) with a tuple or
    dict of example inputs; without them one sequence of ``TOKENS`` token ids is run.

    Raises:
        InputError: PyTorch is absent, the function or the module fails (with file and line), or
            the module is of a shape that is not read.
    """
    if importlib.util.find_spec("torch") is None:
        raise InputError("--torch needs PyTorch: install it with pip install 'chipshift[torch]'")
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    function, _ = load_function("--torch", text)
    with _quiet(), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        made = _called(text, function)
        module, *rest = made if isinstance(made, (tuple, list)) and made else (made,)
        if not isinstance(module, torch.nn.Module):
            raise InputError(
                f"--torch {text}: returned {type(module).__name__}, expected an nn.Module"
            )
        inputs = rest[0] if rest else torch.zeros((1, TOKENS), dtype=torch.long)
        blocks = _blocks(module)
        try:
            seen = _run(text, module, blocks, inputs, tuples=False)
        except InputError as error:
            if not any(True for block in blocks for _ in sites(block)):
                raise
            try:
                seen = _run(text, module, blocks, inputs, tuples=True)
            except InputError:
                raise error from None
        try:
            return _model(text, module, blocks, seen)
        except InputError as error:
            return model_of_ops(text, module, seen, str(error))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what PyTorch logs of an operation that fails: the sentence says it."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _called(text: str, call: Callable[[], Any]) -> Any:
    """What the user's code returns, its failure as one sentence with their file and line."""
    try:
        return call()
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"--torch {text}: {' '.join(told(error).split())[:500]}") from None


def _blocks(module: Any) -> list[Any]:
    """The children of the list of blocks that holds most parameters."""
    import torch

    lists = [
        list(m.children())
        for m in module.modules()
        if isinstance(m, (torch.nn.ModuleList, torch.nn.Sequential)) and len(m) > 0
    ]
    lists += [
        list(m.values())
        for m in module.modules()
        if isinstance(m, torch.nn.ModuleDict) and len({type(v) for v in m.values()}) == 1
    ]
    return max(lists, key=lambda made: sum(map(size_of, made)), default=[])


def _run(text: str, module: Any, blocks: list[Any], inputs: Any, tuples: bool) -> Seen:
    """One forward pass, watched; routed experts are told by their shapes and not run."""
    seen = Seen()
    seen.batch = _batch(inputs)
    stubs = Stubs(seen.add, seen.muted, seen.chosen, tuples)
    hooks = []

    def entered(number: int) -> Callable[..., None]:
        def note(_: Any, args: Any, kwargs: Any) -> None:
            seen.block = number
            first = next((a for a in [*args, *kwargs.values()] if hasattr(a, "shape")), None)
            if first is not None and not seen.width:
                seen.width = int(first.shape[-1])
                seen.rows = int(first.numel()) // max(seen.width, 1)

        return note

    def left(*_: Any) -> None:
        seen.block = OUTSIDE

    for number, block in enumerate(blocks):
        hooks.append(block.register_forward_pre_hook(entered(number), with_kwargs=True))
        hooks.append(block.register_forward_hook(left))
        stubs.place(block)
    module.eval()
    try:
        with watched(module, seen):
            if isinstance(inputs, dict):
                _called(text, lambda: module(**inputs))
            elif isinstance(inputs, (tuple, list)):
                _called(text, lambda: module(*inputs))
            else:
                _called(text, lambda: module(inputs))
    finally:
        for hook in hooks:
            hook.remove()
        stubs.remove()
    return seen


def _batch(inputs: Any) -> int:
    """Items of the example inputs: the first axis of the first tensor."""
    listed = list(inputs.values()) if isinstance(inputs, dict) else inputs
    listed = listed if isinstance(listed, (list, tuple)) else [listed]
    first = next((one for one in listed if hasattr(one, "shape") and len(one.shape)), None)
    return int(first.shape[0]) if first is not None else 1


def _model(text: str, module: Any, blocks: list[Any], seen: Seen) -> Model:
    """The model of what was seen, which adds up to the module's parameters or is refused."""
    import torch

    if not seen.width or not any(n in seen.events for n in range(len(blocks))):
        raise InputError(
            f"--torch {text}: no list of blocks (nn.ModuleList or nn.Sequential) with matmuls was "
            "run; expected a transformer built of such blocks"
        )
    if not any(layer_events(seen, n) for n in range(len(blocks))):
        raise InputError(f"--torch {text}: no block attends")
    tables = [m for m in module.modules() if isinstance(m, torch.nn.Embedding)]
    outside = [e for e in seen.events.get(OUTSIDE, []) if isinstance(e, Map)]
    table = _token_table(tables, outside)
    head = outside[-1] if outside and table is not None else None
    if head is not None and table is not None and head.outputs < table.num_embeddings:
        head = None
    layers: Counter[Layer] = Counter()
    order: list[Layer] = []
    for number, block in enumerate(blocks):
        if number in seen.events:
            order.append(layer_of(f"--torch {text}: block {number}", block, seen, number))
            layers[order[-1]] += 1
    kinds = list(layers)
    weights = list(module.parameters())
    tied = (
        head is not None
        and table is not None
        and weights[head.weight].untyped_storage()._cdata == table.weight.untyped_storage()._cdata
    )
    rows, width = (table.num_embeddings, table.embedding_dim) if table is not None else (1, 0)
    norms = norm_params(module) - sum(norm_params(b) for b in blocks)
    model = Model(
        name=type(module).__name__,
        architecture="torch",
        d_model=seen.width,
        vocab=head.outputs if head is not None else rows,
        layers=tuple((kind, layers[kind]) for kind in kinds),
        layer_order=tuple(kinds.index(one) for one in order),
        tied=tied or head is None,
        final_norm_params=norms,
        has_head=head is not None,
        embedding_width=None if width in (0, seen.width) else width,
        projections=tuple(
            Projection(f"map {n}", e.inputs, e.outputs, once=e.rows == seen.batch != seen.rows)
            for n, e in enumerate(outside)
            if e is not head
        ),
        defaults=_inferred(seen),
    )
    rest = size_of(module) - params(model)
    extra = sum(size_of(t) for t in tables if t is not table)
    extra += (rows - model.vocab) * width if table is not None else -model.vocab * seen.width
    if rest < extra:
        raise InputError(
            f"--torch {text}: its maps add up to more than its {size_of(module):,} parameters, so "
            "that weights are shared between blocks, which is not read"
        )
    return replace(model, embedding_extra_params=extra, other_params=rest - extra)


def layer_events(seen: Seen, number: int) -> bool:
    """Whether a block attends."""
    return any(isinstance(e, Attended) for e in seen.events.get(number, []))


def _inferred(seen: Seen) -> tuple[tuple[str, object], ...]:
    """What the run could not show and was told otherwise, for the reading to print."""
    found = [e for events in seen.events.values() for e in events if isinstance(e, Experts)]
    said = dict.fromkeys(f"{e.top_k} of {e.count} ({e.told})" for e in found)
    return (("experts a token", ", ".join(said)),) if said else ()


def _token_table(tables: list[Any], outside: list[Map]) -> Any:
    """The table of tokens: as many rows as the head has outputs, else the first; or None."""
    wide = outside[-1].outputs if outside else 0
    as_wide = [table for table in tables if table.num_embeddings == wide]
    return next(iter(as_wide + tables), None)
