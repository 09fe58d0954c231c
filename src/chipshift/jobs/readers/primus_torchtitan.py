"""Primus on torchtitan: its modules' settings, read as torchtitan's own with Primus's defaults.

Keys and what they do: AMD, Primus, primus/configs/modules/torchtitan/pre_trainer.yaml,
primus/backends/torchtitan (model_override_patches.py, models/deepseek_v3), at commit fd1eeab,
2026-08-22.
"""

from __future__ import annotations

from dataclasses import replace

from chipshift.jobs.context import Context
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given, Ignored
from chipshift.jobs.readers import primus, torchtitan
from chipshift.jobs.readers.yaml_sheet import yaml_sheet
from chipshift.jobs.settings import Setting, Sheet, as_boolean, as_integer
from chipshift.jobs.source import Source
from chipshift.models.model import Attention, Model
from chipshift.models.preset import altered

TURBO = (
    ("attention_kernel", "use_turbo_attention", ""),
    ("grouped_gemm", "use_turbo_grouped_mm", ""),
    ("tp_overlap", "use_turbo_async_tp", "parallelism.enable_async_tensor_parallel"),
    ("fp8_recipe", "enable_attention_float8", ""),
)
"""Primus-Turbo's switches, what each is to a port, and the key that it needs besides."""

CLASSIC = {"16B": (16, 16), "236B": (40, 8), "671B": (56, 8)}
"""Heads and key/value heads, of width 128, of DeepSeek's flavours with ``use_classic_attention``:
plain attention in place of the latent one."""

SHAPE = {
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "vocab_size": "vocab_size",
}
"""Keys under ``model:`` that replace one of the flavour's, and the key of config.json."""

OWN = frozenset(
    {
        *("name", "flavor", "converters", "hf_assets_path", "tokenizer_path", "norm_type"),
        *("print_after_conversion", "attn_type", "attn_mask_type", "use_flex_attn"),
    }
)
"""torchtitan's own keys under ``model:``; any other replaces one of the flavour's."""

QUIET = ("sink_level", "file_sink_level", "stderr_sink_level", "trainable", "training.mock_data")
DEFAULTS = frozenset({"activation_checkpoint.mode", "compile.enable"})


def read(source: Source, context: Context) -> Draft:
    """Read one file; see ``readers/__init__``."""
    draft = Draft(source.path, "torchtitan", kv_replicated=False)
    found = yaml_sheet(source, context, draft).settings
    module = primus.the_module(found, "torchtitan", source.path, context)
    settings = module.settings
    if "model.flavor" not in settings and module.model is not None and not context.model_named:
        draft.wanted_model = str(module.model.value)
    turbo = {k: settings.pop(k) for k in [*settings] if k.startswith("primus_turbo.")}
    changes = {
        key: settings.pop(key)
        for key in [*settings]
        if key.startswith("model.") and key.removeprefix("model.") not in OWN
    }
    for key in QUIET:
        if one := settings.pop(key, None):
            why = "does not change the time or memory of a step"
            draft.ignored.append(Ignored(key, one.file, one.line, False, why))
    primus.note_absent(module, draft)
    primus.note_defaults(module, draft, DEFAULTS)
    torchtitan.fill(settings, draft, context, "Primus")
    if not context.model_named:
        _alter(draft, changes)
        _classic(draft, settings, turbo)
    _turbo(draft, settings, turbo)
    return draft


def _alter(draft: Draft, changes: dict[str, Setting]) -> None:
    """The flavour with what the file replaces of it.

    Raises:
        InputError: a size that no model can have.
    """
    model: Model = draft.get("model")
    keys: dict[str, int] = {}
    for key, setting in changes.items():
        name = SHAPE.get(key.removeprefix("model."))
        value = as_integer(setting.value)
        if name is None or value is None:
            why = "replaces a number of the flavour; --model with a config.json settles it"
            draft.ignored.append(Ignored(key, setting.file, setting.line, True, why))
        elif (name, value) != ("num_hidden_layers", model.n_layers):
            keys[name] = value
            record(draft, key, setting, "the flavour's number replaced")
    if keys:
        where = next(iter(changes.values())).where
        draft.put("model", _as(draft, altered(model.name, keys, where)))


def _as(draft: Draft, model: Model) -> Given[Model]:
    stated = draft.values["model"]
    assert isinstance(stated, Given)
    return Given(model, stated.file, stated.line)


def _classic(draft: Draft, settings: dict[str, Setting], turbo: dict[str, Setting]) -> None:
    """DeepSeek's flavours with plain attention, ``primus_turbo.use_classic_attention``."""
    switch = turbo.get("primus_turbo.use_classic_attention")
    flavor = settings.get("model.flavor")
    heads = CLASSIC.get(str(flavor.value).upper()) if flavor is not None else None
    family = settings.get("model.name")
    if switch is None or not as_boolean(switch.value) or heads is None or family is None:
        return
    if str(family.value) != "deepseek_v3":
        return
    model: Model = draft.get("model")
    plain = Attention(heads=heads[0], kv_heads=heads[1], head_dim=128, v_head_dim=128)
    layers = tuple((replace(layer, attention=plain), count) for layer, count in model.layers)
    name = f"{model.name}-classic-attention"
    draft.put("model", _as(draft, replace(model, name=name, layers=layers)))
    record(draft, "primus_turbo.use_classic_attention", switch, "plain attention, not latent")


def _turbo(draft: Draft, settings: dict[str, Setting], turbo: dict[str, Setting]) -> None:
    """Primus-Turbo's kernels as flags; attention's need the converter besides the switch."""

    def on(key: str, of: dict[str, Setting] = turbo) -> bool:
        return key in of and bool(as_boolean(of[key].value))

    if not on("primus_turbo.enable_primus_turbo"):
        return
    for kind, name, besides in TURBO:
        key = f"primus_turbo.{name}"
        if on(key) and (not besides or on(besides, settings)):
            draft.flag(kind, key, "true", turbo[key].line)
    eight = turbo.get("primus_turbo.enable_attention_float8")
    if eight is not None and as_boolean(eight.value):
        why = "attention in 8 bits is estimated as in 16"
        name = "primus_turbo.enable_attention_float8"
        draft.ignored.append(Ignored(name, eight.file, eight.line, True, why))


def record(draft: Draft, key: str, setting: Setting, understood_as: str) -> None:
    """List a key as understood."""
    Sheet({}, draft).record(key, setting, understood_as)
