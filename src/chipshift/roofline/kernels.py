"""Achieved shares of a chip's kernels: data in ``machines/calibration/kernels_<chip>.toml``."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from chipshift.machines.chip import Chip
from chipshift.roofline.time import attention_share, masked_keys, padded, width_share
from chipshift.worked import plain, rename

Number = Any


@dataclass(frozen=True)
class MatmulKernel:
    """A matmul of one dtype on one **device**.

    Attributes:
        peak_flop_per_s: dense peak of the device for the dtype.
        e_max: share of the peak that large matmuls reach.
        k_half: reduction length that reaches half of it.
        tile_m, tile_n, tile_k: what sizes are rounded up to.
        units: processors that tiles are dealt to (SMs; 1 on a TPU).
        wave_softness: 1 = plain wave quantisation, 0 = none.
        hbm_bytes_per_s, e_hbm: bandwidth of the device and its achieved share.
        launch_s: fixed time of one kernel.
        in_bytes, out_bytes: of one element read and written.
    """

    peak_flop_per_s: Number
    e_max: Number
    k_half: Number
    tile_m: Number
    tile_n: Number
    tile_k: Number
    units: Number
    wave_softness: Number
    hbm_bytes_per_s: Number
    e_hbm: Number
    launch_s: Number
    in_bytes: Number
    out_bytes: Number


@dataclass(frozen=True)
class AttentionKernel:
    """Attention forward and backward on one device, for one head width.

    Attributes:
        e_forward, e_backward: share of the bf16 peak that long sequences reach.
        s_half_forward, s_half_backward: keys a query that reach half of it.
        backward_flops: matmul FLOPs of the backward kernel over the forward's (it recomputes QKᵀ).
        block: queries and keys of a block, where the kernel skips whole blocks of the mask alone;
            0 = ``s_half`` stands for what it wastes.
        unit: columns of the matrix unit that heads are to fill; 0 = the table is of this width.
        unit_full: share of the unit beyond which wider heads gain nothing.
    """

    peak_flop_per_s: Number
    e_forward: Number
    s_half_forward: Number
    e_backward: Number
    s_half_backward: Number
    backward_flops: Number
    launch_s: Number
    block: Number = 0.0
    unit: Number = 0.0
    unit_full: Number = 1.0


@dataclass(frozen=True)
class Kernels:
    """Every kernel of one device, with where the figures come from.

    Attributes:
        matmul: of the job's compute dtype; ``plain``: bf16, for head, router and the like.
        grouped: the grouped matmul of routed experts; its ``k_half`` counts rows of one expert.
        stream_e_hbm: share of HBM bandwidth that memory-bound ops reach.
    """

    matmul: MatmulKernel
    plain: MatmulKernel
    attention: AttentionKernel
    grouped: MatmulKernel
    hbm_bytes_per_s: Number
    stream_e_hbm: Number
    evidence: str


_FALLBACK: dict[str, Any] = {
    "matmul": {
        "gpu": {"e_max": 0.75, "k_half": 300.0, "tile_m": 128.0, "tile_n": 128.0, "tile_k": 32.0,
                "e_hbm": 0.85, "launch_s": 3e-6, "wave_softness": 0.5},
        "tpu": {"e_max": 0.90, "k_half": 100.0, "tile_m": 8.0, "tile_n": 128.0, "tile_k": 128.0,
                "e_hbm": 0.85, "launch_s": 1e-6, "wave_softness": 0.0},
        "trainium": {"e_max": 0.80, "k_half": 200.0, "tile_m": 128.0, "tile_n": 128.0,
                     "tile_k": 128.0, "e_hbm": 0.85, "launch_s": 2e-6, "wave_softness": 0.0},
    },
    "attention": {"e_max": 0.5, "s_half": 512.0},
}  # fmt: skip
TPU_BLOCK = 1024.0
"""Queries and keys of a block of splash attention: MaxText's recipes choose 512 to 2,048."""
UNIT_FULL = {128.0: 0.5, 256.0: 0.625}
"""Share of a matrix unit that a TPU's attention reaches at most, by the unit's columns: on 128 what
heads of 128 to 256 reach in steps on v5e and v5p; on 256 what MLA's 192 and 128 fill (DeepSeek-V3),
and heads of 256 and 512 (Gemma 4) reach no more (docs/calibration.md). Heads of 128 fill half."""


@functools.cache
def _file(chip_key: str) -> dict[str, Any]:
    file = resources.files("chipshift.machines") / "calibration" / f"kernels_{chip_key}.toml"
    return tomllib.loads(file.read_text("utf8")) if file.is_file() else {}


@functools.cache
def _data(chip_key: str) -> dict[str, Any]:
    """A chip's calibration file; ``inherits`` names a relative whose tables fill what is absent."""
    own = _file(chip_key)
    parent = _data(own["inherits"]) if own.get("inherits") else {}
    return {
        key: ({**parent.get(key, {}), **own[key]} if isinstance(own.get(key), dict) else own[key])
        if key in own
        else parent[key]
        for key in {**parent, **own}
    }


def _plain(entry: Any) -> float:
    return float(entry["value"] if isinstance(entry, dict) else entry)


DTYPE_FALLBACK = {"tf32": "bf16", "fp16": "bf16", "fp4": "nvfp4", "mxfp8": "fp8",
                  "mxfp4": "nvfp4"}  # fmt: skip
"""The dtype whose matmul table stands in where a dtype has none of its own."""


def matmul_kernel(chip: Chip, dtype: str, in_bytes: float, out_bytes: float = 2.0) -> MatmulKernel:
    """The matmul kernel of a dtype on one device of the chip.

    Raises:
        KeyError: the chip has no peak for the dtype.
    """
    tables = _data(chip.key).get("matmul", {})
    table = tables.get(dtype) or tables.get(DTYPE_FALLBACK.get(dtype, "bf16")) or {}
    table = table or tables.get("bf16", {})
    constants = {**_FALLBACK["matmul"][chip.family]}
    if chip.has("matrix_unit_cols"):
        constants["tile_n"] = constants["tile_k"] = chip.value("matrix_unit_cols")
    constants |= {k: _plain(v) for k, v in table.items() if k in constants}
    if table:
        name = next(d for d in (dtype, DTYPE_FALLBACK.get(dtype, "bf16"), "bf16") if d in tables)
        constants["e_max"] = _matmul_share(chip.key, name)
    units = chip.value("sm_count") if chip.has("sm_count") else 1.0
    return MatmulKernel(
        peak_flop_per_s=peak(chip, dtype),
        units=units,
        hbm_bytes_per_s=chip.value("hbm_bandwidth_bytes_per_s") / chip.devices_per_chip,
        in_bytes=in_bytes,
        out_bytes=out_bytes,
        **constants,
    )


def grouped_kernel(chip: Chip, dtype: str, main: MatmulKernel) -> MatmulKernel:
    """The experts' grouped matmul: measured where there is a table, else the plain one's figures.

    Its share grows with the rows an expert is given (``rows_half`` of them reach half).
    """
    tables = _data(chip.key).get("grouped_matmul", {})
    name = next((d for d in (dtype, "bf16") if tables.get(d)), "")
    table = tables.get(name, {})
    names = ("e_max", "e_hbm", "launch_s")
    changes = {name: _plain(table[name]) for name in names if name in table}
    if "e_max" in changes:
        changes["e_max"] *= _against_owner(chip.key, name, "grouped_matmul", name)
    rows_half = _plain(table["rows_half"]) if "rows_half" in table else 100.0
    return replace(main, k_half=rows_half, **changes)


def peak(chip: Chip, dtype: str) -> float:
    """Peak of one device for a dtype, by the chip's own name for it."""
    names = [dtype, {"nvfp4": "fp4", "mxfp8": "fp8", "mxfp4": "fp4"}.get(dtype, dtype)]
    for name in names:
        if chip.has(f"peak_{name}_flop_per_s"):
            return chip.peak_flop_per_s(name)
    return chip.peak_flop_per_s(dtype)


def attention_kernel(chip: Chip, head_dim: float) -> AttentionKernel:
    """The attention kernel of a head width: the nearest measured width's constants."""
    tables = _data(chip.key).get("attention", {})
    forward = _nearest_width(tables.get("forward", {}), head_dim)
    backward = _nearest_width(tables.get("backward", {}), head_dim)
    for table, path in ((forward, "forward"), (backward, "backward")):
        if "e_max" in table:
            table["e_max"] *= _against_owner(chip.key, "bf16", "attention", path)
    unit = chip.value("matrix_unit_cols") if chip.has("matrix_unit_cols") else 128.0
    whole_blocks = chip.family == "tpu" and not forward
    full = UNIT_FULL[unit] if whole_blocks else 1.0
    e_forward = forward.get("e_max", full if whole_blocks else _FALLBACK["attention"]["e_max"])
    return AttentionKernel(
        peak_flop_per_s=peak(chip, "bf16"),
        e_forward=e_forward,
        s_half_forward=forward.get("s_half", _FALLBACK["attention"]["s_half"]),
        e_backward=backward.get("e_max", 0.8 * e_forward),
        s_half_backward=backward.get("s_half", forward.get("s_half", 512.0)),
        backward_flops=2.5,
        launch_s=forward.get("launch_s", 3e-6),
        block=TPU_BLOCK if whole_blocks else 0.0,
        unit=unit if whole_blocks else 0.0,
        unit_full=full,
    )


def attention_shares(kernel: AttentionKernel, keys: Number, reach: Number, span: Number,
                     head_dim: Number, v_head_dim: Number) -> tuple[Number, Number]:  # fmt: skip
    """Shares of the peak of an attention kernel, forward and backward.

    Args:
        kernel: on this device.
        keys, reach: that a query meets, on average and at the most.
        span: tokens along which its window moves.
        head_dim, v_head_dim: of queries and keys, and of values.
    """
    half, half_back = kernel.s_half_forward, kernel.s_half_backward
    best, best_back = kernel.e_forward, kernel.e_backward
    if plain(kernel.block):
        half = rename(masked_keys(keys, reach, span, kernel.block, half), "masked_keys")
        half_back = half
    if plain(kernel.unit):
        keys_wide = rename(padded(head_dim, kernel.unit), "qk_padded")
        values_wide = rename(padded(v_head_dim, kernel.unit), "v_padded")
        filled = width_share(head_dim, v_head_dim, keys_wide, values_wide, kernel.unit_full)
        filled = rename(filled, "share_of_width")
        best, best_back = best * filled, best_back * filled
    return attention_share(keys, best, half), attention_share(keys, best_back, half_back)


def _nearest_width(table: dict[str, Any], head_dim: float) -> dict[str, float]:
    """Constants of the measured head width nearest to ``head_dim`` (keys ``hd64``, ``hd128``)."""
    widths = [key for key in table if key.startswith("hd")]
    if not widths:
        return {}
    best = min(widths, key=lambda key: abs(float(key[2:]) - head_dim))
    return {k: _plain(v) for k, v in table[best].items() if k in ("e_max", "s_half", "launch_s")}


def kernels(chip: Chip, dtype: str, in_bytes: float, head_dim: float) -> Kernels:
    """All kernels of one device for a compute dtype and an attention head width."""
    data = _data(chip.key)
    evidence = str(data.get("evidence", "no kernel measurement of this chip: family defaults"))
    stream = data.get("stream", {})
    main = matmul_kernel(chip, dtype, in_bytes)
    return Kernels(
        matmul=main,
        plain=matmul_kernel(chip, "bf16", 2.0),
        attention=attention_kernel(chip, head_dim),
        grouped=grouped_kernel(chip, dtype, main),
        hbm_bytes_per_s=main.hbm_bytes_per_s,
        stream_e_hbm=_plain(stream.get("e_hbm", main.e_hbm)),
        evidence=evidence,
    )


def scaled(kernel: MatmulKernel, scale: Number) -> MatmulKernel:
    """The same kernel at a stack's in-situ speed."""
    return replace(kernel, e_max=rename(kernel.e_max * scale, "e_in_a_step"))


def _owner(chip_key: str, *path: str) -> tuple[str, dict[str, Any]]:
    """The chip whose calibration file has a table, and the table; ("", {}) where none has."""
    own = _file(chip_key)
    found: Any = own
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    if isinstance(found, dict):
        return chip_key, found
    return _owner(str(own["inherits"]), *path) if own.get("inherits") else ("", {})


def _matmul_share(chip_key: str, dtype: str) -> float:
    """The largest share of peak that matmuls of a dtype reach, the chip's own or a relative's.

    Where bf16 is measured and this dtype is not, its share stands to bf16's as the relative's.
    """
    owner, table = _owner(chip_key, "matmul", dtype)
    share = _plain(table["e_max"])
    if dtype == "bf16" or owner == chip_key:
        return share
    return share * _against_owner(chip_key, "bf16", "matmul", dtype)


def _against_owner(chip_key: str, dtype: str, *path: str) -> float:
    """What a chip's matmuls reach of peak over what those of a table's owner do; 1 for its own.

    A borrowed kernel is as good as its owner's beside plain matmuls, not beside the peak: a chip
    whose matmuls reach half of peak does not reach 0.8 of it in attention.
    """
    owner, table = _owner(chip_key, *path)
    if not table or owner == chip_key or not _owner(chip_key, "matmul", dtype)[1]:
        return 1.0
    return _matmul_share(chip_key, dtype) / _matmul_share(owner, dtype)


def _said(chip: Chip, *path: str) -> str:
    """The source of a calibration table, with the relative's name where it is borrowed."""
    owner, table = _owner(chip.key, *path)
    if not table:
        return f"no measurement of {chip.key}: default of the {chip.family} family"
    source = str(table.get("source", "its calibration file"))
    if owner == chip.key:
        return source
    beside = "" if path[0] == "matmul" else " beside its plain matmuls"
    return f"no measurement on {chip.key}, so {owner}'s{beside}: {source}"


def figure_source(chip: Chip, name: str, absent: str) -> str:
    """Publisher and date of a chip's figure; ``absent`` where it has none."""
    found = chip.figures.get(name)
    return f"{found.source}, {found.date}" if found else absent


def matmul_sources(chip: Chip, dtype: str, in_bytes: str) -> dict[str, str]:
    """Where each figure of ``matmul_kernel`` comes from, by field ("" key = the rest)."""
    tables = _data(chip.key).get("matmul", {})
    name = next((d for d in (dtype, DTYPE_FALLBACK.get(dtype, "bf16"), "bf16") if d in tables), "")
    default = f"no measurement of {chip.key}: default of the {chip.family} family"
    per_device = f", over {chip.devices_per_chip} devices" if chip.devices_per_chip > 1 else ""
    unit = figure_source(chip, "matrix_unit_cols", default)
    out = {"": default, "tile_n": unit, "tile_k": unit, "in_bytes": in_bytes}
    out |= dict.fromkeys(tables.get(name, {}), _said(chip, "matmul", name) if name else default)
    for known in (dtype, {"nvfp4": "fp4", "mxfp8": "fp8", "mxfp4": "fp4"}.get(dtype, dtype)):
        if chip.has(f"peak_{known}_flop_per_s"):
            out["peak_flop_per_s"] = figure_source(chip, f"peak_{known}_flop_per_s", default)
            break
    out["peak_flop_per_s"] = out.get("peak_flop_per_s", default) + per_device
    return out | {
        "units": figure_source(
            chip,
            "sm_count",
            "one queue of tiles a device: a matrix unit deals them to no processors",
        ),
        "hbm_bytes_per_s": figure_source(chip, "hbm_bandwidth_bytes_per_s", default) + per_device,
        "out_bytes": "results are written in bf16",
    }


def grouped_sources(chip: Chip, dtype: str, main: dict[str, str]) -> dict[str, str]:
    """Where each figure of ``grouped_kernel`` comes from."""
    tables = _data(chip.key).get("grouped_matmul", {})
    name = next((d for d in (dtype, "bf16") if d in tables), "")
    if not name:
        return {**main, "k_half": f"no grouped matmul measured on {chip.key}: default"}
    said = _said(chip, "grouped_matmul", name)
    return main | dict.fromkeys(("e_max", "e_hbm", "launch_s"), said) | {"k_half": said}


def attention_sources(chip: Chip, head_dim: float) -> dict[str, str]:
    """Where each figure of ``attention_kernel`` comes from."""
    default = f"no attention measured on {chip.key}: default (roofline/kernels.py)"
    out = {"": default}
    for phase in ("forward", "backward"):
        table = _data(chip.key).get("attention", {}).get(phase, {})
        widths = [key for key in table if key.startswith("hd")]
        best = min(widths, key=lambda key: abs(float(key[2:]) - head_dim), default="")
        said = _said(chip, "attention", phase, best) if best else default
        out |= {f"e_{phase}": said, f"s_half_{phase}": said}
        if phase == "forward":
            out["launch_s"] = said
            out["s_half_backward"] = said
            out["e_backward"] = f"assumed 0.8 of the forward kernel's: {said}"
    peak_said = matmul_sources(chip, "bf16", "")["peak_flop_per_s"]
    back = "FlashAttention-2 backward: 5 matmuls for the forward pass's 2"
    return out | {"peak_flop_per_s": peak_said, "backward_flops": back}


def stream_source(chip: Chip) -> str:
    """Where the share of HBM bandwidth of memory-bound ops comes from."""
    if _owner(chip.key, "stream")[1]:
        return _said(chip, "stream")
    return matmul_sources(chip, "bf16", "").get("e_hbm", matmul_sources(chip, "bf16", "")[""])
