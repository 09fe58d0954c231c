"""A module that is no stack of plain blocks, as the matmuls and convolutions that it ran.

Its parameters and FLOPs are those of the ops that were seen, for one item of the example inputs'
batch; what is not seen in it is a structure to be cut by tensor or pipeline parallelism.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from chipshift.errors import InputError
from chipshift.models.count import conv_params
from chipshift.models.model import Conv, Layer, Model
from chipshift.trace.torch_layers import size_of
from chipshift.trace.torch_watch import Attended, Convolved, Map, Seen


def model_of_ops(text: str, module: Any, seen: Seen, why: str) -> Model:
    """One layer that holds every op; parameters that none uses are its others.

    Args:
        why: what stood against reading it as a stack of blocks.

    Raises:
        InputError: nothing with a parameter was run.
    """
    events = [e for at in sorted(seen.events) for e in seen.events[at]]
    convs = ops_of(seen, [e for e in events if isinstance(e, (Map, Convolved))])
    if not convs:
        raise InputError(f"--torch {text}: no matmul or convolution with a parameter was run")
    mixing = seen.mixed_flops + sum(e.flops for e in events if isinstance(e, Attended))
    size, used = size_of(module), conv_params(convs)
    layer = Layer(
        None,
        None,
        0,
        convs=convs,
        mixing_flops=mixing // seen.batch,
        other_params=max(size - used, 0),
    )
    reason = why.split(": ", 1)[-1].removeprefix("block ")
    return Model(
        name=type(module).__name__,
        architecture="torch",
        d_model=max(conv.outputs for conv in convs),
        vocab=0,
        layers=((layer, 1),),
        layer_order=(0,),
        tied=True,
        has_head=False,
        tokens=1,
        defaults=(("read as", f"its {len(convs)} kinds of ops, no stack of blocks: {reason}"),),
    )


def ops_of(seen: Seen, events: Sequence[Map | Convolved]) -> tuple[Conv, ...]:
    """Each parameter's op once, its positions those of all its calls; equal ones together.

    Parts of a parameter that are used apart (queries', keys' and values') are ops of their own.
    """
    by_weight: dict[tuple[int, int], Conv] = {}
    for event in events:
        if isinstance(event, Map):
            made = Conv("matmul", event.inputs, event.outputs, 1, event.rows // seen.batch)
        else:
            made = Conv(
                "stem" if event.reads_data else "convolution",
                event.inputs,
                event.outputs,
                event.kernel,
                event.positions // seen.batch,
                event.groups,
            )
        part = (event.weight, event.inputs * event.outputs)
        before = by_weight.get(part)
        if before is not None and isinstance(event, Map):
            made = replace(made, positions=made.positions + before.positions)
        by_weight[part] = made
    counted = Counter(by_weight.values())
    return tuple(replace(conv, count=n) for conv, n in counted.items())
