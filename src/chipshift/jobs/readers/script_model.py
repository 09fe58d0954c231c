"""The model that a Python training script builds, told from its calls.

``from_pretrained("name")`` of a model's class, a configuration built in place
(``LlamaConfig(num_hidden_layers=4)``), LitGPT's ``GPT.from_name("...")`` and its checkpoint
folders, or the name that a wrapper's own class takes.

Sources: Hugging Face, Transformers, "Auto Classes" and each model's configuration page, 2026;
Lightning AI, LitGPT, litgpt/config.py and litgpt/api.py, 2026-06.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given, Ignored, Understood
from chipshift.jobs.python_tree import Call, Module, Unknown, own_fields
from chipshift.jobs.readers.config_model import model_of_config
from chipshift.jobs.readers.hf_args import MODELS
from chipshift.jobs.settings import Setting, Sheet
from chipshift.jobs.source import Source

_NO_MODEL = re.compile(r"Tokenizer|Processor|FeatureExtractor|GenerationConfig|Peft|Dataset|Metric")
_NAMING = ("pretrained_model_name_or_path", "model_name_or_path", "model_name", "model_id")
_CONSTANTS = (
    *MODELS,
    *("pretrained_model_name_or_path", "checkpoint", "model_checkpoint", "checkpoint_dir"),
)
_LIT_LLAMA = {"7B": "llama-2-7b", "13B": "llama-2-13b"}
"""lit-llama's sizes of the first Llama, whose shapes its successor's 7B and 13B kept."""
_OLD_NAMES = {"tiny_LLaMA_1b": "tinyllama-1.1b"}
"""Names of forks of lit-gpt (TinyLlama, lit_gpt/config.py, 2024) for a shipped model."""
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
          "vocab_size")  # fmt: skip
DEFAULTS: dict[str, dict[str, int]] = {
    name: dict(zip(_SIZES, sizes, strict=True))
    for name, sizes in {
        "Llama": (4096, 32, 32, 11008, 32000),
        "Mistral": (4096, 32, 32, 14336, 32000),
        "Mixtral": (4096, 32, 32, 14336, 32000),
        "Qwen2": (4096, 32, 32, 22016, 151936),
        "Qwen3": (4096, 32, 32, 22016, 151936),
        "Gemma": (3072, 28, 16, 24576, 256000),
        "GPTNeoX": (6144, 44, 64, 24576, 50432),
        "Bert": (768, 12, 12, 3072, 30522),
        "Roberta": (768, 12, 12, 3072, 50265),
        "Phi": (2048, 24, 32, 8192, 51200),
    }.items()
}
DEFAULTS["GPT2"] = {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}
DEFAULTS["GPT2"] |= {"vocab_size": 50257}
DEFAULTS["OPT"] = {**DEFAULTS["Bert"], "ffn_dim": 3072, "vocab_size": 50272}
for _name, _heads in {"Mistral": 8, "Mixtral": 8, "Qwen2": 32, "Qwen3": 32, "Gemma": 16}.items():
    DEFAULTS[_name]["num_key_value_heads"] = _heads
DEFAULTS["Mixtral"] |= {"num_local_experts": 8, "num_experts_per_tok": 2}
DEFAULTS["Qwen3"]["head_dim"], DEFAULTS["Gemma"]["head_dim"] = 128, 256
"""What a configuration class is where its call does not say: Transformers 5.24, 2026."""

_SHAPES = re.compile(r"(?:^|_)(?:layers?|heads?|embd|hidden_size|d_model|intermediate_size)$")


def put_built_model(draft: Draft, module: Module, context: Context) -> bool:
    """Put the model whose configuration the script builds in place; whether there is one."""
    if context.model_named:
        return False
    for call in module.calls:
        if not _built(call):
            continue
        if own := _of_its_own(call, module):
            draft.wanted_model = f"a {call.name} of {own}"[:120]
        elif _put_built(draft, call):
            return True
    return any(_of_nanogpt(call, module) and _put_nanogpt(draft, call) for call in module.calls)


NANOGPT = ("n_layer", "n_head", "n_embd", "block_size", "vocab_size", "bias")


def _of_nanogpt(call: Call, module: Module) -> bool:
    """``GPTConfig(n_layer=12, ...)`` of a ``model.py`` beside the script: nanoGPT's."""
    own = module.origin.get(call.name, "").rsplit(".", 1)[-1] == "model"
    return call.name == "GPTConfig" and own and {*NANOGPT[:3]} <= call.keywords.keys()


def _put_nanogpt(draft: Draft, call: Call) -> bool:
    """nanoGPT's GPT, with model.py's defaults (biases, 1,024 positions) where nothing is said."""
    from chipshift.jobs.readers.nanogpt import gpt_model

    if any(isinstance(one.value, Unknown) for one in call.keywords.values()):
        return False
    settings = {key: one for key, one in call.keywords.items() if key in NANOGPT}
    settings.setdefault("bias", Setting(True, draft.file, call.line))
    sheet = Sheet(settings, draft)
    length = sheet.integer("block_size", into="longest sequence")
    model = gpt_model(sheet, length.value if length is not None else 1024)
    draft.put("model", Given(model, draft.file, call.line))
    return True


_GPT_2 = re.compile(r"(?=.*\bwpe\b)(?=.*\bc_attn\b)(?=.*\bc_fc\b)(?=.*gelu)", re.I | re.S)
_NOT_GPT_2 = re.compile(r"rotary|\brope\b|rms_?norm|swiglu|n_kv_head|moe|mamba", re.I)


def put_own_gpt(draft: Draft, module: Module, sources: Sequence[Source]) -> bool:
    """A GPT-2 of the program's own, whose ``GPTConfig`` it declares; whether there is one.

    Its blocks must be GPT-2's by the names in the file: one with other norms, positions or
    activations is asked for.
    """
    from chipshift.jobs.readers.nanogpt import gpt_model

    for call in module.calls:
        if call.name.rsplit(".", 1)[-1] != "GPTConfig":
            continue
        home = next((s for s in sources if re.search(r"^class GPTConfig\b", s.text, re.M)), None)
        if home is None or not _GPT_2.search(home.text) or _NOT_GPT_2.search(home.text):
            return False
        fields = {k: v for k, v in own_fields(home, "GPTConfig").items() if k in NANOGPT}
        settings = {key: Setting(value, home.path) for key, value in fields.items()}
        settings |= {key: one for key, one in call.keywords.items() if key in NANOGPT}
        if any(isinstance(one.value, (Unknown, NoneType)) for one in settings.values()):
            return False
        settings.setdefault("bias", Setting(True, home.path))
        sheet = Sheet(settings, draft)
        length = sheet.integer("block_size", into="longest sequence")
        model = gpt_model(sheet, length.value if length is not None else 1024)
        draft.put("model", Given(model, call.file or draft.file, call.line))
        return True
    return False


def script_model(module: Module, file: str) -> Setting | None:
    """The name of the model that the script loads, or None."""
    for name, setting in _names(module, file):
        return Setting(name, setting.file, setting.line)
    return None


def _names(module: Module, file: str) -> Iterator[tuple[str, Setting]]:
    """Names of a model, the surest first."""
    for sure in (True, False):
        for call in module.calls:
            for setting in _named(call, sure, file):
                if isinstance(setting.value, str) and not isinstance(setting.value, Unknown):
                    yield _bare(setting.value, call.name), setting
    for key in _CONSTANTS:
        for constant in (key, key.upper()):
            known = module.constants.get(constant)
            if known is None or isinstance(known.value, Unknown):
                continue
            if isinstance(known.value, str):
                yield _bare(known.value, ""), known


def _named(call: Call, sure: bool, file: str) -> Iterator[Setting]:
    owner, _, last = call.name.rpartition(".")
    first = call.arguments[0] if call.arguments else None
    if last == "from_pretrained" and not _NO_MODEL.search(owner):
        if sure and isinstance(first, str):
            yield Setting(first, file, call.line)
    elif last in ("from_name", "from_file", "from_checkpoint", "load") and (
        owner.rsplit(".", 1)[-1] in ("GPT", "Config", "LLM", "LLaMA", "LLaMAConfig")
    ):
        if sure and isinstance(first, str):
            yield Setting(first, file, call.line)
        if sure and "name" in call.keywords:
            yield call.keywords["name"]
    if sure and last.endswith("Trainer") and "model" in call.keywords:
        yield call.keywords["model"]  # TRL's trainers take a name too
    if _NO_MODEL.search(call.name) or (sure and last != "from_pretrained"):
        return
    for key in _NAMING:
        if key in call.keywords:
            yield call.keywords[key]


def _bare(name: str, call: str) -> str:
    """A checkpoint folder's own name; what lit-llama calls a size."""
    if call.startswith("LLaMA") and name in _LIT_LLAMA:
        return _LIT_LLAMA[name]
    name = re.sub(r"/(?:model_config\.yaml|lit_model\.pth)$", "", name.rstrip("/"))
    return _OLD_NAMES.get(name, name)


def _of_its_own(call: Call, module: Module) -> str:
    """Where a configuration of a known name comes from, if that is not Transformers: "" if it is.

    One that is given every size in Transformers' words is taken for what its name says.
    """
    origin = module.origin.get(call.name.split(".")[0], "")
    if not origin or origin.split(".")[0] == "transformers" or {*_SIZES} <= call.keywords.keys():
        return ""
    return origin


def _built(call: Call) -> bool:
    """A configuration of a family that is read here, with numbers in its arguments."""
    from chipshift.models.hf import knows

    last = call.name.rsplit(".", 1)[-1]
    stem = last.removesuffix("Config")
    if stem == last or not any(_SHAPES.search(key) for key in call.keywords):
        return False
    return knows({"architectures": [f"{stem}ForCausalLM"]})


def _put_built(draft: Draft, call: Call) -> bool:
    stem = call.name.rsplit(".", 1)[-1].removesuffix("Config")
    config: dict[str, Any] = {"architectures": [f"{stem}ForCausalLM"], **DEFAULTS.get(stem, {})}
    for key, setting in call.keywords.items():
        if isinstance(setting.value, Unknown):
            if _SHAPES.search(key):
                draft.wanted_model = f"a {stem} whose {key} is {setting.value}"
                return True
            if key == "vocab_size":
                why = f"{setting.value}: only a run could tell; the family's own size was taken"
                draft.ignored.append(Ignored(key, setting.file, setting.line, True, why))
            continue
        config[key] = setting.value
        draft.understood.append(
            Understood(key, str(setting.value)[:60], setting.file, setting.line, "model's config")
        )
    first = next(iter(call.keywords.values()))
    model = model_of_config(config, stem.lower(), f"{first.file}:{call.line}")
    draft.put("model", Given(model, first.file, call.line))
    return True
