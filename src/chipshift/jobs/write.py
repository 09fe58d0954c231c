"""A ``TrainJob`` as a native job file, which reads back to the same job."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from chipshift.jobs.exact_model import encode_model
from chipshift.jobs.job import Given, TrainJob
from chipshift.jobs.loss import LM
from chipshift.models.model import Model

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(job: TrainJob) -> str:
    """The job file: every figure that the estimate uses, and the assumptions beside them."""
    parts = [
        f"# read from {', '.join(job.files)} ({job.format})\n",
        f"chipshift = 1\nname = {_value(job.name)}\n",
        _table("model", _model(job.model)),
        _table("job", _job(job)),
    ]
    if job.teacher is not None:
        parts.append(_table("teacher", _model(job.teacher)))
    if job.plan is not None:
        parts.append(_table("plan", _plan(job)))
    parts.append(_table("precision", asdict(job.precision.value)))
    machine: dict[str, Any] = {}
    if job.machine is not None:
        machine["name"] = job.machine.value
    if isinstance(job.devices, Given):
        machine["devices"] = job.devices.value
    if machine:
        parts.append(_table("machine", machine))
    for what, value, why in job.assumed:
        parts.append(_table("assumed", {"what": what, "value": value, "why": why}, array=True))
    for flag in job.flags:
        entry = {name: value for name, value in asdict(flag).items() if value is not None}
        parts.append(_table("flag", entry, array=True))
    return "\n".join(parts)


def _job(job: TrainJob) -> dict[str, Any]:
    table: dict[str, Any] = {"seq_len": job.seq_len.value}
    if not job.batch_open:
        table["sequences_per_step"] = job.sequences_per_step.value
    table |= {"optimizer": job.optimizer.value, "stack": job.stack.value, "task": job.task}
    table |= {"trainable_fraction": job.trainable_fraction, "loss_chunks": job.loss_chunks}
    if job.loss != LM:
        table |= {"loss": job.loss, "reference": job.reference}
    if job.document_len:
        table["document_len"] = job.document_len
    if job.adapters is not None:
        table["adapters"] = dict(job.adapters.maps)
        if job.adapters.dora:
            table["dora"] = True
    if job.code:
        table["code"] = job.code
    return table


def _plan(job: TrainJob) -> dict[str, Any]:
    assert job.plan is not None
    table = asdict(job.plan.value)
    table.pop("order", None)
    if not table["stage_layers"]:
        table.pop("stage_layers")
    if not table["ulysses_degree"]:
        table.pop("ulysses_degree")
    for name in ("cp_shards", "rings"):
        if not table[name]:
            table.pop(name)
    if job.plan_open:
        table["open"] = job.plan_open
        if job.slices_open:
            table |= {"slices_open": job.slices_open, "slices_known": job.slices_known}
        if not job.batch_open:
            if job.microbatch_rule != "exact":
                table["microbatch_rule"] = job.microbatch_rule
            if job.microbatch_rule == "all":
                table.pop("microbatch")
            else:
                table.pop("accumulation")
    return table | {"uneven_pp": job.uneven_pp, "kv_replicated": job.kv_replicated}


def _model(model: Model) -> dict[str, Any]:
    from chipshift.models.preset import names, preset

    if model.name in names():
        shipped, values = preset(model.name), model.numerics
        if shipped == model and (not values or values.assumed or values == shipped.numerics):
            return {"preset": model.name}
    return {"exact": encode_model(model)}


def _table(name: str, table: Mapping[str, Any], array: bool = False) -> str:
    """One table; nested ones follow as ``[name.key]`` and lists of tables as ``[[name.key]]``."""
    head = f"[[{name}]]" if array else f"[{name}]"
    plain, nested = [head], []
    for key, value in table.items():
        if isinstance(value, Mapping):
            nested.append(_table(f"{name}.{_key(key)}", value))
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
            nested += [_table(f"{name}.{_key(key)}", entry, array=True) for entry in value]
        else:
            plain.append(f"{_key(key)} = {_value(value)}")
    return "\n".join(plain) + "\n" + "".join("\n" + part for part in nested)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return json.dumps(str(value)).replace("\x7f", "\\u007f")
