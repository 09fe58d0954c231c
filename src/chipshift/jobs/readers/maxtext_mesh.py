"""MaxText's mesh and batch: axes inside a slice (ICI) and across slices (DCN), -1 for the rest.

At most one ICI axis may be -1, which takes the devices that a slice has left, and at most one DCN
axis, which takes the slices. Source: Google, MaxText, configs/base.yml and
utils/max_utils.py (fill_unspecified_mesh_axes), 2026-08.
"""

from __future__ import annotations

import math

from chipshift.errors import InputError
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.readers.maxtext_context import put_strategy
from chipshift.jobs.settings import Sheet, wrong

AXES = (
    ("dp", ("data", "diloco")),
    ("fsdp", ("fsdp", "fsdp_transpose")),
    ("tp", ("tensor", "tensor_transpose", "tensor_sequence", "sequence")),
    ("cp", ("context", "context_usp_ulysses")),
    ("pp", ("pipeline",)),
    ("ep", ("expert",)),
)
"""Our axes and MaxText's; its expert axis also shards weights, as fsdp does."""

DEFAULT = {"ici": "ici_fsdp_parallelism", "dcn": "dcn_data_parallelism"}
"""The axis of each network that is -1 where a file says nothing of it."""


class _Net:
    """One network's degrees: ``known`` by our axes, and the axis that is -1, by its key."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.known: dict[str, int] = {}
        self.rest: list[tuple[str, str]] = []
        self.places: dict[str, Given[int]] = {}

    @property
    def product(self) -> int:
        return math.prod(self.known.values())


def _net(name: str, sheet: Sheet) -> _Net:
    net = _Net(name)
    for field, names in AXES:
        for own in names:
            key = f"{name}_{own}_parallelism"
            size = sheet.integer(key, into=field, low=-1, high=10**6)
            value = size.value if size is not None else -1 if key == DEFAULT[name] else 1
            if value == 0:
                raise wrong(key, sheet.settings[key], "a whole number of at least 1, or -1")
            if value == -1:
                net.rest.append((field, key))
            else:
                net.known[field] = net.known.get(field, 1) * value
            if size is not None and value > 0:
                net.places.setdefault(field, size)
    return net


def _one_rest(net: _Net, sheet: Sheet) -> str:
    """The axis that takes what is left, or "".

    Raises:
        InputError: several are -1, which MaxText refuses.
    """
    stated = [(field, key) for field, key in net.rest if key in sheet.settings]
    if len(stated) > 1:
        (_, first), (_, second) = stated[:2]
        place = sheet.settings[second]
        raise InputError(
            f"{place.where}: {second} is -1 and so is {first}; expected one -1 at most among "
            f"the {net.name} axes, as MaxText asks"
        )
    if stated and len(net.rest) > 1:
        why = f"{stated[0][1]} is -1, beside which MaxText takes no other"
        sheet.draft.note(DEFAULT[net.name], 1, why)
    return (stated or net.rest or [("", "")])[0][0]


def put_axes(sheet: Sheet) -> None:
    """Degrees inside a slice times degrees across slices; -1 takes what the others leave."""
    draft = sheet.draft
    ici, dcn = _net("ici", sheet), _net("dcn", sheet)
    inner, outer = _one_rest(ici, sheet), _one_rest(dcn, sheet)
    told = sheet.integer("num_slices", "compile_topology_num_slices", into="slices", none=(-1,))
    places = {**dcn.places, **ici.places}
    degrees = {field: ici.known.get(field, 1) * dcn.known.get(field, 1) for field, _ in AXES}
    slices = told.value if told is not None else _slices_of(draft)
    if outer and slices is not None:
        if slices % dcn.product and told is not None:
            raise InputError(
                f"{told.file}: {slices} slices cannot be cut over {dcn.product} of the dcn axes; "
                "expected a multiple"
            )
        degrees[outer] *= max(1, slices // dcn.product)
        if told is not None and slices > 1:
            places.setdefault(outer, told)
        outer = ""
    degrees["fsdp"] *= degrees["ep"]
    for field, value in degrees.items():
        if value > 1 or field in places:
            place = places.get(field) or places.get("ep")
            line = place.line if place else None
            draft.put(field, Given(value, place.file if place else draft.file, line))
    if degrees["tp"] > 1 or degrees["cp"] > 1 or inner in ("tp", "cp"):
        draft.note("sequence parallelism", "on", "MaxText cuts activations over the tensor axis")
    put_strategy(sheet, degrees["cp"] > 1 or "cp" in (inner, outer))
    _put_rings(sheet)
    _open(draft, inner or outer, degrees)
    if inner and outer and inner != outer:
        draft.slices_open, draft.slices_known = outer, dcn.product


RINGS = {"hybrid_ring_64x4": 4, "hybrid_ring_32x8": 8}
"""MaxText's custom meshes: chips of a ring (configs/base.yml, 2026-08)."""


def _put_rings(sheet: Sheet) -> None:
    """Rings of chips that the innermost axis goes round, where ``custom_mesh`` names one."""
    name = sheet.text("custom_mesh", into="rings")
    if name is None or not name.value:
        return
    if name.value not in RINGS:
        expected = " or ".join(f"'{one}'" for one in RINGS)
        raise wrong("custom_mesh", sheet.settings["custom_mesh"], expected)
    sheet.draft.put("rings", Given(RINGS[name.value], name.file, name.line))


def _slices_of(draft: Draft) -> int | None:
    """Slices of the machine that the launch names, where it names one."""
    from chipshift.machines.names import parse_machine

    name = draft.get("machine")
    return None if name is None else parse_machine(name).slices


def _open(draft: Draft, axis: str, degrees: dict[str, int]) -> None:
    """The open axis still holds what is known of it: the expert axis is a part of fsdp."""
    if not axis:
        return
    draft.open_axis = axis
    if axis not in ("dp", "fsdp"):
        draft.put(axis, Given(degrees[axis], draft.file))
        return
    if degrees[axis] > 1:
        draft.note(axis, "the rest", f"includes {degrees[axis]} of its own from other axes")
    draft.put(axis, Given(1, draft.file))


def put_batch(sheet: Sheet) -> None:
    """per_device_batch_size counts devices, ours the devices of a replica."""
    draft = sheet.draft
    each = sheet.number("per_device_batch_size", into="sequences a device", low=1e-6)
    value = each.value if each else 12.0
    if each is None:
        draft.note("per_device_batch_size", 12, "MaxText's default")
    replica = (draft.get("tp") or 1) * (draft.get("cp") or 1) * (draft.get("pp") or 1)
    steps = sheet.integer("gradient_accumulation_steps", into="accumulation")
    forwards = steps.value if steps else 1
    microbatches = _pipeline(sheet)
    line = each.line if each else None
    file = each.file if each else draft.file
    draft.put("microbatch", Given(value * replica / microbatches, file, line))
    draft.put("accumulation", Given(forwards * microbatches, draft.file, line))
    draft.put("seq_len", sheet.integer("max_target_length", into="sequence length", high=10**9))
    draft.assume("seq_len", 2048, "MaxText's default max_target_length")


def _pipeline(sheet: Sheet) -> int:
    """Microbatches that a pipeline cuts a batch into, as many as stages by default.

    Raises:
        InputError: a number of microbatches beside stages that only the machine tells.
    """
    draft = sheet.draft
    stages = draft.get("pp") or 1
    opened = "pp" in (draft.open_axis, draft.slices_open)
    if stages == 1 and not opened:
        return 1
    count = sheet.integer("num_pipeline_microbatches", into="microbatches", none=(-1,))
    if count is not None and opened:
        raise wrong(
            "num_pipeline_microbatches",
            sheet.settings["num_pipeline_microbatches"],
            "-1 beside a pipeline axis of -1, or a number of stages in its place",
        )
    _repeats(sheet, stages)
    draft.assume("schedule", "gpipe", "MaxText's pipeline runs all forwards, then backwards")
    delayed = sheet.boolean("pipeline_delay_activation_forwarding", into="default of microbatches")
    twice = 2 if delayed is not None and delayed.value else 1
    return count.value if count else stages * twice


def _repeats(sheet: Sheet, stages: int) -> None:
    """Times that a microbatch goes round the stages: by default one layer each time.

    Source: Google, MaxText, configs/types.py: layers / (stages × num_layers_per_pipeline_stage).
    """
    draft = sheet.draft
    repeats = sheet.integer("num_pipeline_repeats", into="vpp", none=(-1,))
    each = sheet.integer("num_layers_per_pipeline_stage", into="layers a stage each time")
    piped = sheet.integer("pipeline_parallel_layers", into="layers in the pipeline", none=(-1,))
    if repeats is not None:
        draft.put("vpp", repeats)
        return
    model = draft.get("model")
    if model is None or stages == 1:
        return
    layers = piped.value if piped is not None else model.n_layers
    rounds, rest = divmod(layers, stages * (each.value if each is not None else 1))
    if piped is not None and layers != model.n_layers:
        why = "taken as spread over the stages too; MaxText runs them outside the pipeline"
        draft.note("layers outside the pipeline", model.n_layers - layers, why)
    if rounds < 1 or rest:
        return
    if each is not None:
        draft.put("vpp", Given(rounds, each.file, each.line))
    draft.assume("vpp", rounds, "MaxText's default num_layers_per_pipeline_stage, 1")
