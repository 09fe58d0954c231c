"""Models by the class that holds their numbers: ``Llama32ModelProvider1B``, ``Qwen25Config7B``.

Names: NVIDIA, NeMo 2.6, nemo/collections/llm/gpt/model (``Llama3Config8B``), 2025-09, and
Megatron-Bridge 0.2, src/megatron/bridge/models (``Llama3ModelProvider8B``), 2025-12.
"""

from __future__ import annotations

import re

_CLASS = re.compile(
    r"(Llama|CodeLlama|Qwen|Mixtral|Mistral|MistralNeMo|DeepSeek|DeepSeekV|Gemma|GPTOSS|Nemotron|"
    r"Starcoder|Phi)(\d*)(?:Model)?(?:Provider|Config)(V?\d*[A-Za-z0-9_]*)"
)
SPELT = {
    ("Llama", "2"): "llama-2-",
    ("Llama", "3"): "llama-3-",
    ("Llama", "31"): "llama-3.1-",
    ("Llama", "32"): "llama-3.2-",
    ("Llama", "33"): "llama-3.3-",
    ("Qwen", "2"): "qwen2-",
    ("Qwen", "25"): "qwen2.5-",
    ("Qwen", "3"): "qwen3-",
    ("Gemma", ""): "gemma-",
    ("Gemma", "2"): "gemma-2-",
    ("Gemma", "3"): "gemma-3-",
    ("GPTOSS", ""): "gpt-oss-",
    ("Mixtral", ""): "mixtral-",
    ("Starcoder", "2"): "starcoder2-",
}
WHOLE = {
    "MistralConfig7B": "mistral-7b-v0.1",
    "MistralModelProvider7B": "mistral-7b-v0.1",
    "MistralNeMoConfig12B": "mistral-nemo-12b",
    "Mixtral8x7BConfig": "mixtral-8x7b",
    "MixtralConfig8x7B": "mixtral-8x7b",
    "MixtralConfig8x22B": "mixtral-8x22b",
    "DeepSeekV2Config": "deepseek-v2",
    "DeepSeekV2LiteConfig": "deepseek-v2-lite",
    "DeepSeekV3Config": "deepseek-v3",
    "DeepSeekV2ModelProvider": "deepseek-v2",
    "DeepSeekV2LiteModelProvider": "deepseek-v2-lite",
    "DeepSeekV3ModelProvider": "deepseek-v3",
    "Nemotron4Config340B": "nemotron-4-340b",
    "Llama2Config7B": "llama-2-7b",
}
"""Classes whose names say it in a way of their own."""


def model_of_class(name: str) -> str:
    """The model's name, or "" where the class is of no model or of no size."""
    if name in WHOLE:
        return WHOLE[name]
    match = _CLASS.fullmatch(name)
    if match is None or (match.group(1), match.group(2)) not in SPELT:
        return ""
    size = match.group(3).lower()
    if not re.fullmatch(r"\d+(?:p\d+)?[bm](?:_a\d+b)?|8x\d+b", size):
        return ""
    small = {"500m": "0.5b", "600m": "0.6b"}.get(size, size)
    spelt = re.sub(r"(\d)p(\d)", r"\1.\2", small).replace("_", "-")
    return SPELT[match.group(1), match.group(2)] + spelt
