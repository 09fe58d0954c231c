"""How Megatron-LM arguments cut layers into pipeline stages, virtual and uneven ones.

Arguments and arithmetic: NVIDIA, Megatron-LM, megatron/training/arguments.py and
megatron/core/transformer/transformer_block.py, 2026-08.
"""

from __future__ import annotations

from chipshift.errors import InputError
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.settings import Setting, Sheet, wrong
from chipshift.jobs.stages import of_layout, of_rows, told, with_ends, with_places


def put_stages(sheet: Sheet) -> None:
    """Interleaved stages, and the ways to make stages uneven."""
    draft = sheet.draft
    per_stage = sheet.integer("num-layers-per-virtual-pipeline-stage", into="layers a chunk")
    virtual = sheet.integer("num-virtual-stages-per-pipeline-rank", into="vpp", high=10**4)
    layout = sheet.raw("pipeline-model-parallel-layout")
    ends = _stated_ends(sheet)
    draft.uneven_pp = draft.uneven_pp or layout is not None or bool(ends)
    draft.uneven_pp = draft.uneven_pp or bool(noop_layers(sheet))
    pp, model = draft.get("pp") or 1, draft.get("model")
    if per_stage and model is not None and pp > 1:
        each = -(-model.n_layers // pp)
        if each % per_stage.value and not draft.uneven_pp:
            raise InputError(
                f"{per_stage.file}:{per_stage.line}: {per_stage.value} layers a virtual stage do "
                f"not divide the {each} layers of a stage; expected a divisor of {each}"
            )
        value = max(1, each // per_stage.value)
        draft.put("vpp", Given(value, per_stage.file, per_stage.line))
    if virtual and pp > 1:
        draft.put("vpp", virtual)
    _left_out(sheet, pp, per_stage)
    if layout is not None:
        _layout(sheet, *layout)
    elif ends and model is not None and pp > 1:
        _ends(draft, ends, model.n_layers, pp)
    vpp = draft.get("vpp") or 1
    draft.assume("schedule", "interleaved" if vpp > 1 else "1f1b", "Megatron's schedule")


def noop_layers(sheet: Sheet) -> frozenset[int]:
    """Places, from 0, that MindSpeed's ``--noop-layers`` leaves without a layer."""
    listed = sheet.strings("noop-layers", into="places without a layer")
    named = listed.value if listed is not None else []
    return frozenset(int(one) for one in named if one.isdecimal() and len(one) < 7)


def _left_out(sheet: Sheet, pp: int, per_stage: Given[int] | None) -> None:
    """MindSpeed's ``--noop-layers 7,62``: places of the even cut that hold no layer.

    Source: Huawei, MindSpeed, docs/features/noop-layers.md, 2025.
    """
    places, total = noop_layers(sheet), sheet.integer("num-layers", into="layers")
    draft = sheet.draft
    if not places or total is None or draft.get("model") is None:
        return
    draft.uneven_pp = True
    vpp = draft.get("vpp") or 1
    if per_stage and pp > 1:
        vpp = max(1, total.value // pp // per_stage.value)
        draft.put("vpp", Given(vpp, per_stage.file, per_stage.line))
    each = total.value // (pp * vpp)
    if pp > 1 and each * pp * vpp == total.value:
        chunks = tuple(
            each - sum(at * each <= place < (at + 1) * each for place in places)
            for at in range(pp * vpp)
        )
        stated = sheet.settings["noop-layers"]
        _put_chunks(draft, chunks, pp, stated.file, stated.line)


def _stated_ends(sheet: Sheet) -> dict[str, Given[int]]:
    """Layers of the first and last stage, and what counts as a layer there, as far as stated."""
    found: dict[str, Given[int]] = {}
    for end in ("first", "last"):
        key = f"decoder-{end}-pipeline-num-layers"
        layers = sheet.integer(key, into=f"layers of the {end} stage", low=0)
        if layers is not None:
            found[end] = layers
    for part in ("embedding", "loss"):
        key = f"account-for-{part}-in-pipeline-split"
        counted = sheet.boolean(key, into=f"the {part} counts as a layer")
        if counted is not None and counted.value:
            found[part] = Given(1, counted.file, counted.line)
    return found


def _ends(draft: Draft, ends: dict[str, Given[int]], layers: int, pp: int) -> None:
    """Layers of each chunk where only the ends are stated.

    Raises:
        InputError: the other stages do not come out even.
    """
    vpp = draft.get("vpp") or 1
    n = {name: stated.value for name, stated in ends.items()}
    if "first" in n or "last" in n:
        chunks = with_ends(layers, pp, vpp, n.get("first"), n.get("last"))
    else:
        chunks = with_places(layers, pp, vpp, n.get("embedding", 0), n.get("loss", 0))
    stated = next(iter(ends.values()))
    if chunks is None:
        raise InputError(
            f"{stated.file}:{stated.line}: {layers} layers cannot be cut over pp={pp} × {vpp} "
            "virtual stages as first, last, embedding and loss are counted; expected the other "
            "stages to be even"
        )
    _put_chunks(draft, chunks, pp, stated.file, stated.line)


def _layout(sheet: Sheet, key: str, setting: Setting) -> None:
    """``--pipeline-model-parallel-layout``: every chunk in its letters; it gives vpp as well."""
    draft, value = sheet.draft, setting.value
    sheet.record(key, setting, "layers of each model chunk")
    chunks = of_rows(value) if isinstance(value, list) else of_layout(str(value).replace("\\", ""))
    pp, model = draft.get("pp") or 1, draft.get("model")
    if chunks is None or len(chunks) % pp:
        raise wrong(key, setting, f"a multiple of {pp} chunks such as 'Et|t*2|tL', from E to L")
    if model is not None and sum(chunks) != model.n_layers:
        raise wrong(key, setting, f"{model.n_layers} layers t; it has {sum(chunks)}")
    draft.put("vpp", Given(len(chunks) // pp, setting.file, setting.line))
    _put_chunks(draft, chunks, pp, setting.file, setting.line)


def _put_chunks(
    draft: Draft, chunks: tuple[int, ...], pp: int, file: str, line: int | None
) -> None:
    if len(set(chunks)) > 1:
        draft.put("stage_layers", Given(chunks, file, line))
        why = "given stage by stage, first to last; the heaviest sets the pace"
        draft.note("layers a stage", told(chunks, pp), why)
