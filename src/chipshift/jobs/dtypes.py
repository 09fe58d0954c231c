"""Dtypes by every name that frameworks give them."""

from __future__ import annotations

DTYPES = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "bf16-true": "bf16",
    "bf16-mixed": "bf16",
    "amp_bf16": "bf16",
    "fp16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "16": "fp16",
    "16-mixed": "fp16",
    "16-true": "fp16",
    "amp_fp16": "fp16",
    "fp32": "fp32",
    "float32": "fp32",
    "float": "fp32",
    "f32": "fp32",
    "32": "fp32",
    "32-true": "fp32",
    "tf32": "tf32",
    "fp8": "fp8",
    "float8": "fp8",
    "amp_fp8": "fp8",
    "int8": "int8",
    "int4": "int4",
    "nf4": "int4",
    "fp4": "fp4",
}


def dtype_of(name: str) -> str | None:
    """``torch.bfloat16``, ``bfloat16``, ``BF16`` → ``bf16``; None when it names no dtype."""
    plain = name.strip().lower()
    for prefix in ("torch.", "jnp.", "dtype.", "np."):
        plain = plain.removeprefix(prefix)
    return DTYPES.get(plain)
