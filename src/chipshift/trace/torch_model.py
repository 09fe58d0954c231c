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
from chipshift.trace.torch_fake import convertible, set_apart
from chipshift.trace.torch_layers import layer_of, norm_params, size_of
from chipshift.trace.torch_ops import model_of_ops, ops_of
from chipshift.trace.torch_watch import OUTSIDE, Attended, Convolved, Map, Seen, tensors_in, watched

TOKENS = 64
"""Length of the one sequence that is run where the function gives no inputs."""


def read_torch_model(text: str) -> Model:
    """The model that ``MODULE:FUNCTION`` builds; this imports and runs the user's code.

    The function takes nothing and returns the module, or (module, inputs, ...) with a tuple or
    dict of example inputs, or its tensors one after another; without them one sequence of
    ``TOKENS`` token ids is run.

    Raises:
        InputError: PyTorch is absent, the function or the module fails (with file and line), or
            the module is of a shape that is not read.
    """
    if importlib.util.find_spec("torch") is None:
        raise InputError("--torch needs PyTorch: install it with pip install 'chipshift[torch]'")
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    function, _ = load_function("--torch", text)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with _quiet(), fake, torch.no_grad(), convertible():
        made = _called(text, function)
        module, *rest = made if isinstance(made, (tuple, list)) and made else (made,)
        if not isinstance(module, torch.nn.Module):
            raise InputError(
                f"--torch {text}: returned {type(module).__name__}, expected an nn.Module"
            )
        set_apart(module)
        inputs = rest[0] if rest else torch.zeros((1, TOKENS), dtype=torch.long)
        if len(rest) > 1 and all(isinstance(one, torch.Tensor) for one in rest):
            inputs = tuple(rest)  # tensors one after another are the arguments of one call
        blocks = _blocks(module)
        try:
            seen = _run(text, module, blocks, inputs, tuples=False)
        except InputError as error:
            if not any(True for block in blocks for _ in sites(block)):
                raise error if rest else _without_inputs(error) from None
            try:
                seen = _run(text, module, blocks, inputs, tuples=True)
            except InputError:
                raise error from None
        try:
            return _model(text, module, blocks, seen)
        except InputError as error:
            return model_of_ops(text, module, seen, str(error))


def _without_inputs(error: InputError) -> InputError:
    """The failure of a module that was given token ids because nothing else was."""
    return InputError(
        f"{error} (it was given {TOKENS} token ids; a function that returns (module, example "
        "inputs) says what else)"
    )


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
        with watched(module, seen, inputs):
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
    first = next((one for one in tensors_in(inputs) if len(one.shape)), None)
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
    weights = list(module.parameters())
    tables = [m for m in module.modules() if isinstance(m, torch.nn.Embedding)]
    around = seen.events.get(OUTSIDE, [])
    outside = [e for e in around if isinstance(e, Map)]
    table, head = _ends(tables, outside, seen, weights)
    if head is None and _lost(seen):
        raise InputError(
            f"--torch {text}: it multiplies without a parameter outside its blocks' attention"
        )
    # a map of neither all positions nor one an item (patches before a class token joins them)
    # is counted by its own rows, as a convolution is
    apart = [e for e in outside if e is not head and e.rows not in (seen.rows, seen.batch)]
    layers: Counter[Layer] = Counter()
    order: list[Layer] = []
    for number, block in enumerate(blocks):
        if number in seen.events:
            order.append(layer_of(f"--torch {text}: block {number}", block, seen, number))
            layers[order[-1]] += 1
    kinds = list(layers)
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
        tokens=None if head is not None or table is not None else seen.rows // seen.batch,
        embedding_width=None if width in (0, seen.width) else width,
        projections=tuple(
            Projection(f"map {n}", e.inputs, e.outputs, once=e.rows == seen.batch != seen.rows)
            for n, e in enumerate(outside)
            if e is not head and not any(e is one for one in apart)
        ),
        convs=ops_of(seen, [*apart, *(e for e in around if isinstance(e, Convolved))]),
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
    experts = (("experts a token", ", ".join(said)),) if said else ()
    lost = _lost(seen) / seen.batch / 1e9
    what = f"{lost:.3g} GFLOP an item of matmuls without a parameter outside the blocks' attention"
    return (*experts, ("not counted", what)) if lost else experts


def _lost(seen: Seen) -> int:
    """FLOPs of matmuls without a parameter that no block's attention is, above a thousandth."""
    outside = [e for e in seen.events.get(OUTSIDE, []) if isinstance(e, Attended)]
    lost = seen.mixed_flops + sum(e.flops for e in outside)
    maps = [e for events in seen.events.values() for e in events if isinstance(e, Map)]
    # a rotary table's outer product and the like are nothing
    return lost if lost > 2e-3 * sum(e.rows * e.inputs * e.outputs for e in maps) else 0


def _ends(
    tables: list[Any], outside: list[Map], seen: Seen, weights: list[Any]
) -> tuple[Any, Map | None]:
    """The table of tokens and the head over its rows, None for what there is not.

    The table is looked up at every position (one of classes once an item), the one with as many
    rows as the head has outputs rather than another (positions, kinds of token).
    """
    at = {id(weight): number for number, weight in enumerate(weights)}
    rows = [seen.looked_up.get(at.get(id(table.weight), -1), 0) for table in tables]
    read = [t for t, n in zip(tables, rows, strict=True) if n == seen.rows]
    read = read or [t for t, n in zip(tables, rows, strict=True) if n > seen.batch]
    wide = outside[-1].outputs if outside else 0
    as_wide = [table for table in read if table.num_embeddings == wide]
    table = next(iter(as_wide + read), None)
    # more logits than tokens are padding
    if table is None or wide < table.num_embeddings:
        return table, None
    every = seen.looked_up[at[id(table.weight)]] == seen.rows or outside[-1].rows > seen.batch
    return table, outside[-1] if every else None
