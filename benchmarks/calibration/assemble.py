"""Join the fitted GPU constants with published points that no table holds, and fit the TPUs.

usage: assemble.py FITTED_DIR OUT_DIR

FITTED_DIR holds the output of run_gpu.sh; OUT_DIR is ``src/chipshift/machines/calibration``.
The published points stand here, each with its source, because they are few.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

FA3 = "Shah et al., FlashAttention-3, arXiv 2407.08608 figures 5 and 6 (H100 SXM5, not causal)"
FA2 = "Dao, FlashAttention-2, arXiv 2307.08691 abstract (up to 73 % forward, 63 % backward, A100)"
RECIPES = "Google, AI-Hypercomputer/tpu-recipes microbenchmarks"
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
# TFLOP/s at LENGTHS, head dimension 128 and 64, 16 k tokens, H100 SXM5 (FA3's figures).
H100_ATTENTION = {
    ("backward", 128, "fa3"): (316, 424, 501, 542, 559, 561),
    ("backward", 64, "fa3"): (272, 363, 422, 453, 472, 474),
    ("backward", 128, "cudnn"): (305, 408, 465, 499, 518, 516),
    ("backward", 64, "cudnn"): (266, 348, 395, 417, 432, 433),
    ("forward", 128, "cudnn"): (497, 574, 617, 609, 600, 595),
    ("forward", 128, "fa2"): (309, 350, 362, 368, 370, 370),
    ("backward", 128, "fa2"): (214, 260, 291, 310, 318, 322),
    ("backward", 64, "fa2"): (198, 238, 264, 279, 287, 291),
}
H100_PEAK = 989.4
FP4_LEVEL = 1.465
FP4_WHY = (
    f"; e_max times {FP4_LEVEL}, so that GB200 reaches at K = 16384 the 4.6 times of H200's"
    " measured fp8 (1453 TFLOP/s) that cuBLAS 12.9 is said to reach (NVIDIA blog, 2025-05)"
)
V7X_MATMUL = {  # square size: TFLOP/s a device
    512: 105.0783, 1024: 349.727, 2048: 679.285, 4096: 892.945, 16384: 950.129, 32768: 956.382,
}  # fmt: skip
V7X_COPY = {  # bytes: GB/s a chip, read and write counted
    2097152: 2758.67, 4194304: 4499.49, 8388608: 4492.26, 16777216: 5514.62, 33554432: 6019.67,
    67108864: 6194.44, 134217728: 6353.01, 268435456: 6334.29, 1073741824: 6396.83,
    8589934592: 6420.96,
}  # fmt: skip
V7X_GATHER = {  # elements of a float32 shard: GB/s received a chip, 4 ranks on 2x2
    65536: 71.770, 262144: 129.187, 1048576: 161.904, 4194304: 174.765, 16777216: 178.771,
}  # fmt: skip


def section(name: str, values: dict[str, object]) -> str:
    """One TOML table; floats to four digits, so that a refit does not look like a change."""
    lines = [f"[{name}]"]
    for key, value in values.items():
        text = f"{value:.4g}" if isinstance(value, float) else f'"{value}"'
        lines.append(f"{key} = {text if not isinstance(value, int) else value}")
    return "\n".join(lines) + "\n"


def saturating(lengths: tuple[int, ...], rates: tuple[float, ...]) -> tuple[float, float, float]:
    """Fit rate = top·S/(S + half); returns top, half and the median relative error."""
    s, r = np.array(lengths, float), np.array(rates, float)
    x = least_squares(lambda p: np.log(p[0] * s / (s + p[1]) / r), [r.max(), 200]).x
    return float(x[0]), float(x[1]), float(np.median(np.abs(x[0] * s / (s + x[1]) / r - 1)))


def attention_points(kernels: tuple[str, ...]) -> list[str]:
    """H100's published attention points of some kernels, by keys a query meets."""
    out = []
    for (way, dim, kernel), rates in H100_ATTENTION.items():
        if kernel in kernels:
            top, half, error = saturating(LENGTHS, tuple(map(float, rates)))
            name = {"fa2": "attention_fa2", "cudnn": "attention_cudnn"}.get(kernel, "attention")
            values: dict[str, object] = {
                "e_max": top / H100_PEAK, "s_half": half, "n": len(rates), "median": error,
                "source": FA3,
            }  # fmt: skip
            out.append(section(f"{name}.{way}.hd{dim}", values))
    return out


def backward_by_ratio(fitted: dict, ratio: float, source: str) -> list[str]:
    out = []
    for dim, forward in fitted["attention"]["forward"].items():
        values: dict[str, object] = {
            "e_max": forward["e_max"] * ratio, "s_half": forward["s_half"], "n": 1, "source": source
        }  # fmt: skip
        out.append(section(f"attention.backward.{dim}", values))
    return out


def gpu(fitted_dir: Path, chip: str) -> str:
    """One GPU's file: the fitted tables, less what a training stack would not call, plus points."""
    text = (fitted_dir / f"kernels_{chip}.toml").read_text()
    if chip in ("b200", "b300", "gb200", "gb300"):
        # The serving kernel for head width 192 falls to an eighth of the others on this chip:
        # training calls another. Left out, so that 128's stands in.
        parts = text.split("\n[")
        parts = [p for p in parts if not p.startswith("attention.forward.hd192")]
        text = "\n[".join(training_fp4(p) if p.startswith("matmul.nvfp4") else p for p in parts)
    fitted = tomllib.loads(text)
    if chip in ("h100", "h200"):
        extra = attention_points(("fa3", "fa2", "cudnn"))
    elif chip == "a100":
        extra = backward_by_ratio(fitted, 0.63 / 0.73, "forward × 0.63/0.73: " + FA2)
    else:
        extra = backward_by_ratio(
            fitted, 561 / 648, "inherited from h100: forward × 561/648, " + FA3
        )
    stream = max(fitted["matmul"]["bf16"]["e_hbm"], STREAM.get(chip, STREAM["h100"])[0])
    extra.append(
        section("stream", {"e_hbm": stream, "source": STREAM.get(chip, STREAM["h100"])[1]})
    )
    extra.append(grouped_scale(fitted))
    head, rest = text.split("\n", 1)
    evidence = 'evidence = "measured kernel tables of this chip (see each table\'s source)"\n'
    return head + "\n" + evidence + rest.rstrip() + "\n\n" + "\n".join(extra)


def training_fp4(part: str) -> str:
    """The table of 4-bit matmuls, whose serving kernels fall short, at the level of cuBLAS."""
    part = re.sub(
        r"e_max = (\S+)", lambda m: f"e_max = {float(m[1]) * FP4_LEVEL:.4g}", part, count=1
    )
    return re.sub(r'(source = "[^"]*)"', lambda m: f'{m[1]}{FP4_WHY}"', part, count=1)


def grouped_scale(fitted: dict) -> str:
    """Rate of a grouped matmul with 512 rows an expert over a plain one of the same total shape."""
    grouped = fitted.get("grouped_matmul", {}).get("bf16")
    if grouped is None:
        return section("grouped_matmul", {"scale": 0.8, "source": "inherited from h100"})
    plain = fitted["matmul"]["bf16"]
    rate = grouped["e_max"] * 512 / (512 + grouped["rows_half"])
    plain_rate = plain["e_max"] * 4096 / (4096 + plain["k_half"])
    source = "derived: grouped_matmul.bf16 at 512 rows an expert over matmul.bf16 at K = 4096"
    return section("grouped_matmul", {"scale": rate / plain_rate, "source": source})


TPU_HEAD = """# {chip}: published points, fitted by benchmarks/calibration/assemble.py
evidence = "published microbenchmark points of this chip (see each table's source)"

"""


def v7x() -> str:
    # Below 2048 the point is one kernel's fixed cost, which launch_s stands for only roughly.
    points = {size: rate for size, rate in V7X_MATMUL.items() if size >= 2048}
    n = np.array(list(points), float)
    t = 2 * n**3 / (np.array(list(points.values())) * 1e12)
    peak, hbm = 1153.5e12, 3.69e12

    def matmul(p: np.ndarray) -> np.ndarray:
        flops = 2 * n**3 * (n + p[1]) / n
        return np.maximum(flops / (peak * p[0]), 6 * n * n / (hbm * 0.87)) + p[2] * 1e-6

    p = least_squares(lambda p: np.log(matmul(p) / t), [0.83, 200, 3], bounds=(0, [1, 4096, 50])).x
    out = [section("matmul.bf16", {
        "e_max": float(p[0]), "k_half": float(p[1]), "e_hbm": 0.87, "launch_s": float(p[2]) * 1e-6,
        "wave_softness": 0.0, "n": len(n),
        "median": float(np.median(np.abs(matmul(p) / t - 1))),
        "source": RECIPES + "/ironwood/README.md, GEMM table (square, a device), 2026-08",
    })]  # fmt: skip
    b = np.array(list(V7X_COPY), float)
    s = 2 * b / (np.array(list(V7X_COPY.values())) * 1e9)
    q = least_squares(lambda q: np.log((q[0] * 1e-6 + 2 * b / (7.38e12 * q[1])) / s), [1, 0.87]).x
    out.append(section("stream", {
        "e_hbm": float(q[1]), "launch_s": float(q[0]) * 1e-6, "n": len(b),
        "source": RECIPES + "/ironwood/hbm/hbm.md, copy, read and write counted, 2026-08",
    }))  # fmt: skip
    e = 4.0 * np.array(list(V7X_GATHER), float)
    moved = 2 * 3 * e
    g = moved / (np.array(list(V7X_GATHER.values())) * 1e9)
    w = least_squares(lambda w: np.log((w[0] * 1e-6 + moved / (2e11 * w[1])) / g), [10, 0.9]).x
    out.append(section("collective.all_gather.ici", {
        "efficiency": float(w[1]), "latency_s": float(w[0]) * 1e-6, "n": len(e),
        "median": float(np.median(np.abs((w[0] * 1e-6 + moved / (2e11 * w[1])) / g - 1))),
        "source": RECIPES + "/ironwood/collectives/all_gather.md, 2x2x1 and 2x2x2: t = latency + "
        "bytes received a chip / (2 links x 100 GB/s x efficiency), 2026-08",
    }))  # fmt: skip
    return TPU_HEAD.format(chip="v7x") + "\n".join(out)


def v6e() -> str:
    k_half = 125.0  # v7x's
    out = [section("matmul.bf16", {
        "e_max": 827.474 / 918 * (8192 + k_half) / 8192, "k_half": k_half, "e_hbm": 0.83,
        "launch_s": 2e-6, "wave_softness": 0.0, "n": 1,
        "source": RECIPES + "/README.md: 8192 cubed at 827.5 TFLOP/s (device time), copy of 32 MiB "
        "at 1359.6 GB/s of 1640; k_half and launch_s inherited from v7x's points",
    })]  # fmt: skip
    out.append(section("stream", {
        "e_hbm": 1359.6 / 1640, "launch_s": 2e-6, "n": 1,
        "source": RECIPES + "/README.md, copy of 32 MiB",
    }))  # fmt: skip
    out.append(section("collective.all_reduce.ici", {
        "efficiency": 235.76 / 400, "latency_s": 1.3e-5, "n": 1,
        "source": RECIPES + "/trillium/collectives/README.md: psum of 0.606 GB over 256 chips at "
        "235.8 GB/s bus bandwidth, of 4 links x 100 GB/s; latency inherited from v7x",
    }))  # fmt: skip
    return TPU_HEAD.format(chip="v6e") + "\n".join(out)


INHERITED = {
    "v5e": ("v6e", "no published matmul table: the same matrix unit at 128 x 128 (v6e's 256)"),
    "v5p": ("v6e", "no published matmul table"),
    "v4": ("v6e", "no published matmul table"),
    "mi300x": ("h100", "the form of its curves; the maximum is its own"),
    "mi325x": ("mi300x", "same silicon"),
    "mi350x": ("mi355x", "same silicon at 1000 W"),
    "mi355x": ("mi300x", "the form of its curves; the maximum is its own"),
    "trn1": ("v6e", "nothing measured in public"),
    "trn2": ("trn1", "nothing measured in public"),
    "trn3": ("trn1", "nothing measured in public"),
}
STREAM = {
    "a100": (0.83, "Azure, BabelStream on A100 80GB: triad 1.70 of 2.039 TB/s, 2025"),
    "h100": (0.89, "Azure, BabelStream on H100: triad 2.97 of 3.35 TB/s, 2025"),
    "h200": (0.87, "Azure, BabelStream on H200: triad 4.15 to 4.18 of 4.8 TB/s, 2025"),
}
STAS = "Bekman, ML Engineering, maximum achievable matmul FLOPS tables, 2026"
GPU_MATMUL = {"k_half": 150.0, "e_hbm": 0.77, "launch_s": 3e-6, "wave_softness": 0.15,
              "tile_m": 256, "tile_n": 256}  # fmt: skip
MAXIMA = {  # chip: {dtype: (fraction of dense peak, source)}
    "mi300x": {"bf16": (668.4 / 1307.4, STAS), "fp8": (1222.9 / 2614.9, "Azure, MI300X GEMM")},
    "mi325x": {"bf16": (784.9 / 1307.4, STAS), "fp8": (1519 / 2614.9, "AMD, ROCm blogs 2025-02")},
    "mi355x": {"bf16": (1565 / 2516.6, STAS)},
}


def inherited(chip: str) -> str:
    parent, why = INHERITED[chip]
    out = [
        f"# {chip}: every constant not given here is {parent}'s.\n"
        f'inherits = "{parent}"\nevidence = "inherited from {parent}: {why}"\n'
    ]
    for dtype, (top, source) in MAXIMA.get(chip, {}).items():
        values: dict[str, object] = {"e_max": float(top), **GPU_MATMUL, "n": 1, "source": source}
        out.append(section(f"matmul.{dtype}", values))
    return "\n".join(out)


def main() -> None:
    fitted, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    files = {c: gpu(fitted, c) for c in ("a100", "h100", "h200", "b200", "b300", "gb200", "gb300")}
    files |= {"v7x": v7x(), "v6e": v6e()} | {c: inherited(c) for c in INHERITED}
    for chip, text in files.items():
        tomllib.loads(text)
        (out / f"kernels_{chip}.toml").write_text(text.rstrip() + "\n")


if __name__ == "__main__":
    main()
