"""NeMo: version 1's YAML, and Megatron-Bridge and NeMo 2 recipes through their syntax tree.

All of them set Megatron Core's fields; they are read as the Megatron-LM arguments they equal.
Keys: NVIDIA, NeMo, "megatron_gpt_config.yaml" and "NeMo 2.0 recipes", 2025; Megatron-Bridge,
src/megatron/bridge/recipes and perf_recipes, 2026.
"""

from __future__ import annotations

import re

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Assumed, Given, Ignored
from chipshift.jobs.loss import HOST
from chipshift.jobs.readers.bridge import read_recipe
from chipshift.jobs.readers.bridge_launcher import read_launcher
from chipshift.jobs.readers.bridge_script import is_launcher
from chipshift.jobs.readers.hf_args import put_model_named
from chipshift.jobs.readers.megatron_core import PASSED, RENAMED, fill, pass_on, put_precision
from chipshift.jobs.readers.nemo_engine import put_engine, say_unread
from chipshift.jobs.readers.preference_keys import say_sampled
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Setting, Sheet
from chipshift.jobs.source import Source
from chipshift.models.lora import ALL_LINEAR, Lora

YAML_WORDS = frozenset(
    {
        *("model.activation", "model.bias", "model.share_embeddings_and_output_weights"),
        *("model.position_embedding_type", "model.fp8", "model.optim.name", "model.normalization"),
        *("trainer.precision", "model.tokenizer.model", "model.tokenizer.type", "name"),
        *("model.has_bias", "model.optim.grad_sync_dtype"),
    }
)
"""Keys of version 1's YAML whose values are read here rather than passed on."""

MAPS = {
    "attention_qkv": ("q_proj", "k_proj", "v_proj"),
    "attention_dense": ("o_proj",),
    "mlp_fc1": ("gate_proj", "up_proj"),
    "mlp_fc2": ("down_proj",),
    "attention": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "mlp": ("gate_proj", "up_proj", "down_proj"),
    "all": (ALL_LINEAR,),
}
"""NeMo 1's ``target_modules`` and the checkpoint's names of a layer's maps."""

_EVALUATION = re.compile(r"(?:validation|test|eval)_ds\.|^inference\.|^model\.peft\.")

_OTHER = re.compile(r"bert|mt5|t5|clip|vit|neva|diffusion|imagen|dreambooth|retro|controlnet|nerf")


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    if is_launcher(source):
        return read_launcher(source, context)
    if re.search(r"^\s*(?:import|from)\s+\w", source.text, re.M):
        return read_recipe(source, context)
    draft = Draft(source.path, "nemo", uneven_pp=False)
    found = yaml_sheet(source, context, draft).settings
    settings: dict[str, Setting] = {}
    draft.known |= {f"model.{name}" for name in PASSED | RENAMED.keys()} | YAML_WORDS
    for key, setting in found.items():
        name = key.rsplit(".", 1)[-1]
        if not _EVALUATION.search(key):
            pass_on(settings, name, setting)
        if setting.file == "--set" and (name in RENAMED or name in PASSED or key in YAML_WORDS):
            draft.reached.add(key)
    _yaml_words(settings, found)
    _other_kinds(draft, found)
    sheet = Sheet(found, draft)
    _tuning(sheet, settings, context)
    _aligning(sheet, context)
    nodes, devices = found.get("trainer.num_nodes"), found.get("trainer.devices")
    if nodes is not None:
        draft.put("nodes", sheet.integer("trainer.num_nodes", into="nodes"))
    if devices is not None and str(devices.value) not in ("-1", "auto"):
        draft.put("devices_per_node", sheet.integer("trainer.devices", into="devices a node"))
    fill(settings, draft, context)
    _plain_autocast(sheet)
    put_engine(sheet)
    say_unread(sheet)
    return draft


def _plain_autocast(sheet: Sheet) -> None:
    """Without ``megatron_amp_O2``, its default, half precision is autocast over fp32 weights.

    Source: NVIDIA, NeMo 2.4, nemo/collections/nlp/parts/utils_funcs.py
    (torch_dtype_from_precision) and megatron_trainer_builder.py, 2025.
    """
    draft, precision = sheet.draft, sheet.settings.get("trainer.precision")
    if precision is None or "16" not in str(precision.value):
        return
    held = sheet.boolean("model.megatron_amp_O2", into="weights held in half precision")
    if held is not None and held.value:
        return
    why = "without megatron_amp_O2 half precision is autocast over fp32 weights"
    for role, dtype in (("weights", "fp32"), ("gradients", "fp32"), ("master", "none")):
        if not isinstance(draft.values.get(role), Given):
            draft.put(role, Assumed(dtype, why))


def _tuning(sheet: Sheet, settings: dict[str, Setting], context: Context) -> None:
    """Fine-tuning: the length of its data, the model it starts from, its adapters."""
    draft = sheet.draft
    length = sheet.raw("model.data.train_ds.max_seq_length")
    if length is None:
        return
    sheet.record(*length, "sequence length")
    settings.setdefault("seq-length", length[1])
    draft.put("task", Given("sft", length[1].file, length[1].line))
    if "num-layers" not in settings:
        _started_from(sheet, context, "model.restore_from_path", "run.model_train_name")
    _adapters(sheet)


def _started_from(sheet: Sheet, context: Context, *keys: str) -> None:
    """The model by the name of the checkpoint that training starts from."""
    for key in keys:
        start = sheet.settings.get(key)
        if start is not None and isinstance(start.value, str):
            name = start.value.rsplit("/", 1)[-1].removesuffix(".nemo").replace("_", "-")
            if not context.model_named and not sheet.draft.get("model") and "?" not in name:
                put_model_named(sheet.draft, name, start)


def _aligning(sheet: Sheet, context: Context) -> None:
    """NeMo-Aligner: training on preferences, from a checkpoint.

    Source: NVIDIA, NeMo-Aligner, examples/nlp/gpt/conf and nemo_aligner/models/nlp/gpt, 2025: a
    batch counts pairs; KTO sends its mismatched answers through the model beside the others, with
    gradient; without adapters the reference's weights are swapped in from the host's memory.
    """
    draft, found = sheet.draft, sheet.settings
    inner = [key.split(".") for key in found if key.startswith("model.")]
    kinds = {path[1]: found[".".join(path)] for path in inner if len(path) > 2}
    ranked = found.get("model.reward_model_type")
    kind = next((name for name in ("dpo", "kto", "spin", "ppo") if name in kinds), "")
    if not (kind and "pretrained_checkpoint.restore_from_path" in found) and ranked is None:
        return
    place = ranked or kinds[kind]
    draft.put("task", Given("sft", place.file, place.line))
    _started_from(sheet, context, "pretrained_checkpoint.restore_from_path")
    _adapters(sheet)
    if ranked is not None:
        if str(ranked.value) == "binary_ranking":
            draft.counts_examples = True
            draft.put("loss", Given("reward", ranked.file, ranked.line))
        return
    if kind in ("spin", "ppo"):
        say_sampled(draft, kind)
        return
    draft.counts_examples = True
    draft.put("loss", Given("dpo", place.file, place.line))
    if kind == "kto":
        why = "NeMo-Aligner's KTO runs the mismatched answer as DPO runs the rejected one"
        draft.note("loss", "dpo", why)
    if "lora" not in draft.values:
        why = "NeMo-Aligner keeps the reference's weights in the host's memory; swaps take no time"
        draft.assume("reference", HOST, why)


def _adapters(sheet: Sheet) -> None:
    """LoRA by ``model.peft``; other schemes are said to be taken for full fine-tuning."""
    draft = sheet.draft
    scheme = sheet.text("model.peft.peft_scheme", into="adapters")
    words = {part.strip() for part in scheme.value.lower().split(",")} if scheme else set()
    if scheme is not None and "lora" in words:
        base = "model.peft.lora_tuning."
        rank = sheet.integer(base + "adapter_dim", into="rank of the adapters")
        named = sheet.strings(base + "target_modules", into="adapters")
        targets = [own for name in (named.value if named else ["attention_qkv"])
                   for own in MAPS.get(name, (name,))]  # fmt: skip
        lora = Lora(rank=rank.value if rank else 32, targets=tuple(dict.fromkeys(targets)))
        draft.put("lora", Given(lora, scheme.file, scheme.line))
    elif words - {"none", "null", ""}:
        assert scheme is not None
        why = f"{scheme.value} trains few weights; full fine-tuning was taken"
        draft.ignored.append(Ignored("model.peft.peft_scheme", scheme.file, scheme.line, True, why))


def _yaml_words(settings: dict[str, Setting], found: dict[str, Setting]) -> None:
    """Words of NeMo 1 that are values in YAML and switches in Megatron-LM."""

    def on(key: str, argument: str, wanted: str) -> None:
        setting = found.get(key)
        if setting is not None and re.search(wanted, str(setting.value).lower()):
            settings[argument] = Setting(True, setting.file, setting.line)

    on("model.activation", "swiglu", r"swiglu|geglu|silu")
    on("model.bias", "disable-bias-linear", r"false")
    on("model.share_embeddings_and_output_weights", "untie-embeddings-and-output-weights", r"false")
    on("model.position_embedding_type", "use-rotary-position-embeddings", r"rope")
    on("model.fp8", "fp8-format", r"true")
    on("model.has_bias", "disable-bias-linear", r"false")
    on("model.optim.name", "use-distributed-optimizer", r"distributed")
    on("model.optim.grad_sync_dtype", "grad-reduce-in-bf16", r"bf16|bfloat16")
    norm = found.get("model.normalization")
    if norm is not None:
        name = "RMSNorm" if "rms" in str(norm.value).lower() else "LayerNorm"
        settings["normalization"] = Setting(name, norm.file, norm.line)
    if "num-query-groups" in settings:
        groups = settings["num-query-groups"]
        settings["group-query-attention"] = Setting(True, groups.file, groups.line)
    window = found.get("model.window_size")
    if window is not None and isinstance(window.value, list) and window.value:
        settings["window-size"] = Setting(f"({window.value[0]},0)", window.file, window.line)
    precision = found.get("trainer.precision")
    if precision is not None:
        put_precision(settings, str(precision.value), precision)
    for key in ("model.tokenizer.model", "model.tokenizer.type"):
        tokenizer = found.get(key)
        if tokenizer is not None and isinstance(tokenizer.value, str):
            named = "/" in tokenizer.value
            settings["tokenizer-model" if named else "tokenizer-type"] = tokenizer


def _other_kinds(draft: Draft, found: dict[str, Setting]) -> None:
    """NeMo trains much besides decoders under the same keys: those are named, not misread."""
    words = [str(found[key].value) for key in ("name", "run.name") if key in found]
    for word in words:
        if match := _OTHER.search(word.lower()):
            draft.wanted_model = f"a {match.group()} of NeMo's"
    other = ("model.vision.", "model.unet", "model.first_stage", "model.decoder.", "model.mm_cfg.")
    if any(key.startswith(other) for key in found):
        draft.wanted_model = "a model of NeMo's that is not a decoder alone"
