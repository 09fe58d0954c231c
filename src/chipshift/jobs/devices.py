"""How many devices a job runs on now, and of what chip: what the files say of nodes joined."""

from __future__ import annotations

from chipshift.errors import InputError
from chipshift.jobs.draft import FIELDS, Draft
from chipshift.jobs.job import Assumed, Given, Ignored, Stated


def devices_of_nodes(draft: Draft) -> None:
    """Devices = nodes × devices a node, where the file gives both and not the product.

    A launcher that states the devices of a node overrules what a recipe's name tells, and
    ``--set`` overrules both.

    Raises:
        InputError: ``--set`` gives one of the two and nothing the other.
    """
    nodes, each = draft.values.get("nodes"), draft.values.get("devices_per_node")
    total = draft.values.get("devices")
    if nodes is None or each is None:
        _refuse_idle(draft, nodes, "nodes", "devices_per_node")
        _refuse_idle(draft, each, "devices_per_node", "nodes")
        return
    laid = any(_is_set(stated) for stated in (nodes, each)) and not _is_set(total)
    over = isinstance(total, Assumed) and isinstance(each, Given)
    count = nodes.value * each.value
    if total is not None and not over and not laid:
        if isinstance(total, Given) and isinstance(each, Given) and total.value > count:
            why = f"{count} devices here, but {total.value} processes in {total.file}: taken"
            draft.ignored.append(Ignored("devices", each.file, each.line, True, why))
        return
    if isinstance(nodes, Given):
        draft.put("devices", Given(count, nodes.file, nodes.line))
    else:
        draft.put("devices", Assumed(count, nodes.why))


def _is_set(stated: Stated[int] | None) -> bool:
    return isinstance(stated, Given) and stated.file == "--set"


def _refuse_idle(draft: Draft, stated: Stated[int] | None, name: str, other: str) -> None:
    """Refuse a ``--set`` that by itself tells nothing."""
    if stated is not None and _is_set(stated):
        raise InputError(
            f"--set {name} is {stated.value}, but {draft.file} does not give {FIELDS[other]}; "
            f"expected --set {other}=N beside it, or --set devices=N"
        )


def machine_of(draft: Draft) -> Stated[str] | None:
    """The machine that the files name, or its chip and devices; None where they tell neither."""
    machine = draft.values.get("machine")
    if machine is not None:
        return machine
    chip, devices = draft.values.get("chip"), draft.get("devices")
    if chip is None or devices is None:
        return None
    name = f"{chip.value}*{devices}"
    if isinstance(chip, Given):
        return Given(name, chip.file, chip.line)
    return Assumed(name, chip.why)
