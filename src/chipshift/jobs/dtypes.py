"""Dtypes by every name that frameworks give them."""

from __future__ import annotations

from chipshift.errors import nearest
from chipshift.jobs.job import Given
from chipshift.jobs.settings import Setting, Sheet, wrong

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


def read_dtype(sheet: Sheet, *keys: str, into: str) -> Given[str] | None:
    """A dtype under the first of several spellings; None where the file has none, or an empty one.

    Raises:
        InputError: it names none.
    """
    stated = sheet.text(*keys, into=into)
    if stated is None or not stated.value:
        return None
    name = dtype_of(stated.value)
    if name is None:
        key = next(key for key in keys if key in sheet.settings)
        setting = Setting(stated.value, stated.file, stated.line)
        hint = nearest(stated.value, tuple(DTYPES))
        raise wrong(key, setting, "fp32, bf16, fp16, fp8 or int8", hint)
    return Given(name, stated.file, stated.line)
