"""Derive a GPU's kernel calibration curves from measured kernel tables.

usage: gpu_kernels.py SYSTEMS_DATA_DIR SYSTEM CHIP PEAK_BF16 PEAK_FP8 PEAK_FP4 HBM_B_PER_S SMS

SYSTEMS_DATA_DIR is the ``systems/data`` folder of NVIDIA's Apache-2.0 ``aiconfigurator-core``
wheel (one folder a system, parquet tables by kernel); the tables are read, never kept: only the
few constants below are. Needs pandas, pyarrow and scipy, which the package itself does not.

Model of a matmul, an attention forward, a grouped matmul and a collective: docs/calibration.md.
Errors printed beside each constant are absolute relative errors of shapes that were **left out**
of the fit (five folds by output width and depth, so that no left-out shape has a sibling in it).
"""

from __future__ import annotations

import glob
import sys
from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

Fit = tuple[np.ndarray, np.ndarray]


def read(folder: str, system: str, pattern: str) -> pd.DataFrame:
    """All tables of one kind, whatever framework measured them."""
    paths = sorted(glob.glob(f"{folder}/{system}/{pattern}"))
    return pd.concat([pd.read_parquet(p) for p in paths]) if paths else pd.DataFrame()


def fit(
    model: Callable[[np.ndarray, pd.DataFrame], np.ndarray],
    table: pd.DataFrame,
    groups: np.ndarray,
    start: list[float],
    low: list[float],
    high: list[float],
) -> Fit:
    """Least squares on log time, robust; the errors are of rows left out five ways."""
    y = np.log(table["latency"].to_numpy() * 1e-3)

    def solve(rows: np.ndarray) -> np.ndarray:
        part, truth = table[rows], y[rows]
        return least_squares(
            lambda x: np.log(model(x, part)) - truth,
            start,
            bounds=(low, high),
            loss="soft_l1",
            f_scale=0.05,
            x_scale=np.maximum(np.abs(start), 1e-6),
        ).x

    everything = np.ones(len(table), bool)
    errors = np.zeros(len(table))
    fold = pd.factorize(groups)[0] % 5
    for k in range(5):
        if (fold == k).any() and (fold != k).any():
            x = solve(fold != k)
            errors[fold == k] = np.abs(np.exp(np.log(model(x, table)) - y) - 1)[fold == k]
    return solve(everything), errors


def show(name: str, keys: dict[str, float], errors: np.ndarray, source: str) -> None:
    print(f"\n[{name}]")
    for key, value in keys.items():
        print(f"{key} = {value:.4g}")
    print(f"n = {len(errors)}")
    print(f"left_out_median = {np.median(errors):.4f}")
    print(f"left_out_p90 = {np.quantile(errors, 0.9):.4f}")
    print(f'source = "{source}"')


def matmul(
    table: pd.DataFrame, name: str, peak: float, hbm: float, sms: float, size: float
) -> None:
    """t = max(2·M'N'K·q / (peak·e_max·K/(K+k_half)), bytes/(hbm·e_hbm)) + launch."""

    def model(x: np.ndarray, d: pd.DataFrame) -> np.ndarray:
        e_max, k_half, e_hbm, launch, soft = x
        m, n, k = (d[c].to_numpy(float) for c in "mnk")
        rows, cols = np.ceil(m / 128), np.ceil(n / 128)
        waves = rows * cols / sms
        q = 1 + (np.ceil(waves) / waves - 1) * soft
        flops = 2 * rows * 128 * cols * 128 * k * q * (k + k_half) / k
        moved = size * (m * k + n * k) + 2 * m * n
        return np.maximum(flops / (peak * e_max), moved / (hbm * e_hbm)) + launch

    start, low, high = [0.7, 200, 0.8, 4e-6, 0.5], [0.2, 0, 0.3, 0, 0], [1, 4000, 1, 3e-5, 1.2]
    groups = (table["n"].astype(str) + "x" + table["k"].astype(str)).to_numpy()
    x, errors = fit(model, table, groups, start, low, high)
    keys = dict(zip(["e_max", "k_half", "e_hbm", "launch_s", "wave_softness"], x, strict=True))
    show(f"matmul.{name}", {**keys, "tile_m": 128, "tile_n": 128}, errors, SOURCE + "GEMM")
    large = ((table.m >= 4096) & (table.n >= 1024) & (table.k >= 1024)).to_numpy()
    print(f"left_out_median_large = {np.median(errors[large]):.4f}")
    print(f"left_out_p90_large = {np.quantile(errors[large], 0.9):.4f}")


def attention(table: pd.DataFrame, peak: float) -> None:
    """t = flops / (peak·e_max·keys/(keys + s_half)) + launch, keys = S/2, by head dimension."""
    for head_dim, part in table.groupby("head_dim"):

        def model(x: np.ndarray, d: pd.DataFrame) -> np.ndarray:
            e_max, s_half, launch = x
            b, h, s, w = (
                d[c].to_numpy(float) for c in ("batch_size", "num_heads", "isl", "head_dim")
            )
            keys = s / 2  # what a query meets on average under a causal mask
            flops = 4 * b * h * s * keys * w
            return flops * (keys + s_half) / keys / (peak * e_max) + launch

        groups = (part["isl"].astype(str) + "/" + part["num_heads"].astype(str)).to_numpy()
        x, errors = fit(model, part, groups, [0.5, 500, 1e-5], [0.05, 0, 0], [1, 8000, 2e-4])
        keys = dict(zip(["e_max", "s_half", "launch_s"], x, strict=True))
        show(f"attention.forward.hd{head_dim}", keys, errors, SOURCE + "context attention, causal")


def grouped(table: pd.DataFrame, name: str, peak: float, hbm: float, size: float) -> None:
    """A gated expert layer: 6·tokens·d·f flops a rank, rows an expert ramp, weights read once."""

    def model(x: np.ndarray, d: pd.DataFrame) -> np.ndarray:
        e_max, rows_half, e_hbm, launch = x
        t, w, f, k, e, ep, tp = (
            d[c].to_numpy(float)
            for c in (
                "num_tokens", "hidden_size", "inter_size", "topk", "num_experts",
                "moe_ep_size", "moe_tp_size",
            )
        )  # fmt: skip
        f = f / tp
        rows = t * k / e
        flops = 6 * rows * (e / ep) * w * f
        moved = size * 3 * w * f * (e / ep) + 2 * rows * (e / ep) * (4 * w + 4 * f)
        work = flops * (rows + rows_half) / rows / (peak * e_max)
        return np.maximum(work, moved / (hbm * e_hbm)) + launch

    groups = (table["hidden_size"].astype(str) + "x" + table["inter_size"].astype(str)).to_numpy()
    start, low, high = [0.5, 100, 0.5, 5e-5], [0.05, 0, 0.05, 0], [1, 4000, 1.5, 1e-3]
    x, errors = fit(model, table, groups, start, low, high)
    keys = dict(zip(["e_max", "rows_half", "e_hbm", "launch_s"], x, strict=True))
    show(f"grouped_matmul.{name}", keys, errors, SOURCE + "MoE, balanced routing")


GROUPED_KERNELS = (
    "moe_torch_flow_cutlass",
    "moe_torch_flow",
    "sglang_flashinfer_cutlass_moe",
    "deepgemm",
)

KINDS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
}


def collectives(table: pd.DataFrame) -> None:
    """t = latency + (bus bytes / bus_max)·(1 + (half/bytes)^0.5); message_size is in elements."""
    table = table[table["nccl_dtype"] == "half"]
    keys = ["op_name", "num_gpus", "message_size"]
    table = table.groupby(keys, as_index=False)["latency"].median()
    for (kind, n), part in table.groupby(["op_name", "num_gpus"]):
        factor = KINDS[str(kind)](float(str(n)))

        def model(x: np.ndarray, d: pd.DataFrame, factor: float = factor) -> np.ndarray:
            peak, half, latency = x[0] * 1e9, x[1] * 1e6, x[2] * 1e-6
            v = 2.0 * d["message_size"].to_numpy(float)
            return latency + v * factor / peak * (1 + np.sqrt(half / v))

        part = part.reset_index(drop=True)
        x, errors = fit(
            model, part, part["message_size"].to_numpy(), [400, 1, 15], [20, 0, 1], [3000, 500, 90]
        )
        values = {
            "busbw_max_bytes_per_s": x[0] * 1e9,
            "half_bytes": x[1] * 1e6,
            "latency_s": x[2] * 1e-6,
        }
        kind = "all_to_all" if kind == "alltoall" else kind
        show(f"collective.{kind}.n{n}", values, errors, SOURCE + "NCCL, one NVLink domain")


SOURCE = "NVIDIA, aiconfigurator-core 0.12.0 (Apache-2.0) measured kernel tables, 2026-09: "


def main() -> None:
    folder, system, chip = sys.argv[1:4]
    bf16, fp8, fp4, hbm, sms = map(float, sys.argv[4:9])
    print(f"# {chip}: fitted by benchmarks/calibration/gpu_kernels.py; see docs/calibration.md")
    gemm = read(folder, system, "gemm/*/*/gemm_perf.parquet")
    gemm = gemm[(gemm.m >= 256) & (gemm.n >= 256) & (gemm.k >= 256)]
    for dtype, name, peak, size in (
        ("bfloat16", "bf16", bf16, 2), ("fp8", "fp8", fp8, 1), ("fp8_block", "fp8_block", fp8, 1),
        ("nvfp4", "nvfp4", fp4, 0.5),
    ):  # fmt: skip
        part = gemm[gemm.gemm_dtype == dtype]
        if len(part) and peak:
            # The frameworks call the same library for bf16 (their median); of the fp8 kernels a
            # training run takes the quickest.
            how = "median" if name == "bf16" else "min"
            part = part.groupby(["m", "n", "k"], as_index=False)["latency"].agg(how)
            matmul(part, name, peak, hbm, sms, size)
    table = read(folder, system, "attention/*/*/context_attention_perf.parquet")
    if len(table):
        for column in ("window_size", "step"):
            if column in table:
                table = table[table[column].fillna(0) == 0]
        table = table[
            (table.attn_dtype == "bfloat16")
            & (table.kv_cache_dtype == "bfloat16")
            & (table.isl >= 512)
            & (table.batch_size * table.num_heads * table.isl >= 4 * 128 * sms)
            & table.head_dim.isin([64, 128, 192, 256])
        ]
        keys = ["batch_size", "num_heads", "num_key_value_heads", "isl", "head_dim"]
        attention(table.groupby(keys, as_index=False)["latency"].min(), bf16)
    moe = read(folder, system, "moe/*/*/moe_perf.parquet")
    if len(moe):
        # Training's grouped matmul is CUTLASS-like; the Triton kernels of serving waste most of
        # an expert-parallel rank's tiles and say nothing about it. One rank's whole experts only.
        moe = moe[(moe.distribution == "balanced") & moe.kernel_source.isin(GROUPED_KERNELS)]
        moe = moe[(moe.moe_tp_size == 1) & (moe.moe_ep_size <= 4)]
        moe = moe[moe.num_tokens * moe.topk / moe.num_experts >= 32]
        keys = ["num_tokens", "hidden_size", "inter_size", "topk", "num_experts"]
        keys += ["moe_tp_size", "moe_ep_size"]
        for dtype, name, peak, size in (
            ("bfloat16", "bf16", bf16, 2), ("fp8", "fp8", fp8, 1),
            ("fp8_block", "fp8_block", fp8, 1),
        ):  # fmt: skip
            part = moe[moe.moe_dtype == dtype]
            if len(part) > 50 and peak:
                part = part.groupby(keys, as_index=False)["latency"].min()
                grouped(part, name, peak, hbm, size)
    nccl = read(folder, system, "comm/nccl/*/nccl_perf.parquet")
    if len(nccl):
        collectives(nccl)


if __name__ == "__main__":
    main()
