"""Megatron-Bridge and NeMo 2 recipes: Python files through their syntax tree, never run.

Keys: NVIDIA, NeMo, "NeMo 2.0 recipes", 2025; Megatron-Bridge, src/megatron/bridge/recipes and
perf_recipes, 2026.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from chipshift.errors import InputError, slipped
from chipshift.jobs import python_tree
from chipshift.jobs.context import Context
from chipshift.jobs.draft import DEGREES, Draft
from chipshift.jobs.job import Assumed, Given, Ignored
from chipshift.jobs.launch import CHIPS
from chipshift.jobs.overrides import typed
from chipshift.jobs.readers.bridge_classes import model_of_class
from chipshift.jobs.readers.bridge_library import ADAPTERS, LibraryRecipe, named
from chipshift.jobs.readers.bridge_model import MODEL, recipe_model
from chipshift.jobs.readers.bridge_scope import followed, overrides_beside
from chipshift.jobs.readers.bridge_shape import (
    SHAPE,
    is_shape,
    put_shape,
)
from chipshift.jobs.readers.bridge_teacher import conversion, of_teacher, put_bridge_teacher
from chipshift.jobs.readers.bridge_unseen import put_arguments, say_unseen, untold
from chipshift.jobs.readers.bridge_vocab import put_vocabulary
from chipshift.jobs.readers.bridge_walk import Assigned, Called
from chipshift.jobs.readers.megatron_core import (
    PASSED,
    RENAMED,
    argument_of,
    fill,
    pass_on,
    put_precision,
)
from chipshift.jobs.readers.nemo_library import CALLS, NemoRecipe, nemo_library, recipe_called
from chipshift.jobs.readers.nemo_vocab import put_nemo_vocabulary
from chipshift.jobs.settings import Setting, Sheet, as_integer
from chipshift.jobs.source import Source

SHORT = ("tp_size", "pp_size", "cp_size", "vp_size", "ep_size", "etp_size")
"""Spellings that functions which only report use too."""

GENERIC = ("gpt3-175b", "nemotron3-22b")
"""Models of NeMo's recipes that no hub holds."""
_PRECISION = re.compile(r"bf16|fp16|fp8|nvfp4|mxfp8|32")


@dataclass
class _Found:
    """What a script's statements have set so far.

    Attributes:
        settings: Megatron-LM arguments; ``nodes``: the machine's numbers.
        name: of the library's recipe, or of the job.
        model: words that name the model; ``recipe``: NeMo's recipe that was called;
            ``library``: the row of either library.
        untold: fields last set to what only a run could tell.
        exact: a mixed precision was named; ``reduced``: what DDP's own configuration says of the
            dtype in which gradients are reduced.
        length: the longest sequence of NeMo's model, which is its data's where that says none.
    """

    draft: Draft
    settings: dict[str, Setting] = field(default_factory=dict)
    nodes: dict[str, Setting] = field(default_factory=dict)
    name: str = ""
    model: str = ""
    recipe: NemoRecipe | None = None
    library: LibraryRecipe | None = None
    named: bool = False
    untold: dict[str, Setting] = field(default_factory=dict)
    exact: bool = False
    reduced: Setting | None = None
    length: Setting | None = None


def read_recipe(source: Source, context: Context) -> Draft:
    """One recipe of a Python file; see ``readers/__init__``."""
    draft = Draft(source.path, "megatron-bridge", uneven_pp=False)
    draft.pads_vocab = "megatron.bridge" not in source.text  # Bridge keeps the checkpoint's rows
    module = python_tree.parse(source)
    put_arguments(module, context)
    here, walk = followed(source, module, context)
    _named_machine(draft, here)
    found = _Found(draft, name=here)
    made = conversion(walk.events)
    for event in walk.events:
        if of_teacher(event.path if isinstance(event, Assigned) else event.into, made):
            continue
        if isinstance(event, Assigned):
            _assigned(found, event)
        else:
            _called(found, event.call, module, event.into)
    for path, setting in overrides_beside(context).items():
        if not of_teacher(path, made):
            _assigned(found, Assigned(path, setting))
    _reduced(found)
    settings = found.settings
    named = settings.get("recompute-modules")
    if named is not None and "recompute-granularity" not in settings:
        settings["recompute-granularity"] = Setting("selective", named.file, named.line)
        why = "modules are named; what helpers of other files set is not seen"
        draft.note("recompute_granularity", "selective", why)
    sheet = Sheet(found.nodes, draft)
    draft.put("nodes", sheet.integer("num_nodes", into="nodes"))
    draft.put(
        "devices_per_node", sheet.integer("num_gpus_per_node", "devices", into="devices a node")
    )
    if found.recipe is not None:
        _from_nemo(draft, settings, found.recipe)
    put_vocabulary(draft, context, settings, found.library, walk.events)
    if draft.pads_vocab and "megatron.bridge" not in source.text:
        own = found.library is not None and found.library.task == "pretrain"
        trained = found.model or found.name
        put_nemo_vocabulary(draft, context, settings, trained, own, walk.events)
        if found.length is not None:
            settings.setdefault("seq-length", found.length)
    _magnitudes(draft, (event.call for event in walk.events if isinstance(event, Called)))
    if re.search(r"sft|finetune", here):
        draft.assume("task", "sft", f"the recipe's name, {here}")
    finish(draft, context, settings, found.name, found.model, found.library)
    for key, setting in found.untold.items():
        if not any(given.rsplit(".", 1)[-1] == key for given in context.overrides.given):
            draft.ignored.append(untold(key, setting))
    put_bridge_teacher(draft, context, walk.events)
    say_unseen(draft, walk, module, context)
    return draft


def _called(found: _Found, call: python_tree.Call, module: python_tree.Module, into: str) -> None:
    """A call that no file given defines: a recipe, a model, or keywords that are fields."""
    draft, settings, last = found.draft, found.settings, call.name.rsplit(".", 1)[-1]
    whose = module.origin.get(last, "") or _module_of(call.name, module)
    recipe = named(module.imported.get(last, last), whose)
    taken = recipe_called(call, module)
    if recipe is not None or taken is not None:
        if not found.model:
            stated = recipe or (taken.library if taken is not None else None)
            assert stated is not None
            found.name, found.model, found.recipe = stated.name, stated.model, taken
            found.named, found.library = True, stated
            from_library(draft, settings, stated, call.line)
    elif last in CALLS:
        whose = call.name.rpartition(".")[0].rsplit(".", 1)[-1]
        meant = next((own for own, _ in nemo_library() if slipped(whose, own)), "")
        if meant:
            raise InputError(
                f"{draft.file}:{call.line}: {whose} is no recipe of NeMo's; did you mean '{meant}'?"
            )
        found.model = found.model or whose
    elif last == "from_hf_pretrained" and call.arguments:
        words = call.arguments[0]
        if not isinstance(words, python_tree.Unknown) and not found.named:
            found.model = str(words)
    elif last.endswith("pipeline_model_parallel_layout"):
        draft.uneven_pp = True  # worked out when it runs
        settings.pop(LAYOUT, None)
    elif (model := model_of_class(last)) and (into or not found.model):
        found.model, found.named = model, True
        for key in [*settings]:
            if key.replace("-", "_") in SHAPE:
                del settings[key]
    elif MODEL.match(last) and ("config" in last or "recipe" in last):
        found.model = found.model or last
    elif last == "_perf_precision" or last.endswith(("mixed_precision", "bf16_mixed")):
        found.exact = True
        words = str(call.arguments[0]) if call.arguments else last
        put_precision(settings, words, Setting(words, draft.file, call.line))
        if last == "_perf_precision":  # the library's, of its benchmarks
            settings["grad-reduce-in-bf16"] = Setting(True, draft.file, call.line)
    elif last == "_with_global_batch_size" and len(call.arguments) > 1:
        size = Setting(call.arguments[1], draft.file, call.line)
        _keep(found, "global_batch_size", size, "train.global_batch_size")
    if last in CALLS:
        found.nodes.update(call.keywords)
    elif last == "set_primary_perf_configs":
        tensor = call.keywords.get("tp_size")
        if tensor is not None and tensor.value not in (None, 1):
            settings["sequence-parallel"] = Setting(True, draft.file, tensor.line)
    for key, setting in call.keywords.items():
        _keep(found, key, setting, f"{call.name}.{key}")


def _module_of(name: str, module: python_tree.Module) -> str:
    """Where ``h100.llama3_8b_pretrain_config`` is taken from, as far as the imports say."""
    base = name.split(".")[0]
    return ".".join((module.origin.get(base, ""), module.imported.get(base, base), name))


def _assigned(found: _Found, event: Assigned) -> None:
    """``cfg.model.tensor_model_parallel_size = 2`` and the like."""
    path, setting = event.path, event.setting
    if path.endswith("pipeline_model_parallel_layout") and setting.value is not None:
        found.draft.uneven_pp = True
    _keep(found, path.rsplit(".", 1)[-1], setting, path)


def finish(
    draft: Draft,
    context: Context,
    settings: dict[str, Setting],
    name: str,
    model: str,
    recipe: LibraryRecipe | None = None,
) -> None:
    """The draft of a recipe's settings, ``--set`` laid over them; ``recipe`` is the library's."""
    draft.put("name", Given(name, draft.file))
    _lay_over(draft, context, settings)
    if recipe is not None:
        _old_layout(draft, settings, recipe)
    _named_machine(draft, name)
    recipe_model(draft, context, settings, model or name)
    settings.setdefault("bf16", Setting(True, draft.file))
    if "use-distributed-optimizer" not in settings:
        settings["use-distributed-optimizer"] = Setting(True, draft.file)
        draft.note("optimizer sharding", "zero1", "NeMo's recipes use the distributed optimizer")
    fill(settings, draft, context)
    held = math.prod(draft.get(axis) or 1 for axis in DEGREES)
    devices = draft.values.get("devices")
    if isinstance(devices, Assumed) and devices.value % held:
        draft.values.pop("devices")  # the degrees are no longer those of the recipe's name


def _old_layout(draft: Draft, settings: dict[str, Setting], recipe: LibraryRecipe) -> None:
    """Drop the library's layout where the job has other stages than the recipe it is of."""
    layout, stated = settings.get(LAYOUT), recipe.settings.get("pipeline_model_parallel_layout")
    if layout is None or layout.value != stated:
        return
    for name in ("pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size"):
        now = settings.get(argument_of(name))
        own = as_integer(recipe.settings.get(name)) or 1
        if (1 if now is None else as_integer(now.value)) != own:
            settings.pop(LAYOUT, None)
            draft.uneven_pp = True


def _lay_over(draft: Draft, context: Context, settings: dict[str, Setting]) -> None:
    """``--set model.tensor_model_parallel_size=4``, as Bridge's own command line spells it."""
    draft.known |= {f"model.{name}" for name in PASSED | RENAMED.keys()}
    for key, text in context.overrides.given.items():
        leaf = key.rsplit(".", 1)[-1]
        if leaf != key and (leaf in PASSED or leaf in RENAMED):
            place = context.overrides.places.get(key, ("--set", None))
            pass_on(settings, leaf, Setting(typed(text), *place))
            context.overrides.used.add(key)
        elif leaf != key and leaf in SHAPE and is_shape(key, leaf):
            place = context.overrides.places.get(key, ("--set", None))
            put_shape(settings, leaf, Setting(typed(text), *place))
            context.overrides.used.add(key)


def from_library(
    draft: Draft, settings: dict[str, Setting], recipe: LibraryRecipe, line: int | None
) -> None:
    """The library's settings of a recipe, as if they stood on the line that names it."""
    for key, value in recipe.settings.items():
        shown: Any = str(value).split() if key == "recompute_modules" else value
        pass_on(settings, key, Setting(shown, draft.file, line))
        if key == "optimizer":
            settings["optimizer"] = Setting(value, draft.file, line)
        if key == "use_distributed_optimizer" and value is False:
            settings["use-distributed-optimizer"] = Setting(False, draft.file, line)
    put_precision(settings, recipe.precision, Setting(recipe.precision, draft.file, line))
    if recipe.settings.get("fp8_param_gather") is False:
        settings.pop("fp8-param-gather", None)
    # a layout that the library works out when it runs is not in its row
    stages = int(recipe.settings.get("pipeline_model_parallel_size", 1))
    draft.uneven_pp = draft.uneven_pp or stages > 1
    draft.put("task", Given(recipe.task, draft.file, line))
    if recipe.task == "lora":
        draft.put("lora", Given(ADAPTERS, draft.file, line))
    whose = "NeMo's" if " " in recipe.name else "Megatron-Bridge's"
    draft.note("settings of the recipe", recipe.name, f"as {whose} library has them")


def _from_nemo(draft: Draft, settings: dict[str, Setting], recipe: NemoRecipe) -> None:
    """What a NeMo recipe's arguments default to, where the script gives none."""
    task = draft.values["task"]
    if recipe.lora is not None and isinstance(task, Given):
        draft.put("lora", Given(recipe.lora, draft.file, task.line))
    draft.assume("devices_per_node", recipe.devices_per_node, "the recipe's default")
    each = as_integer(draft.get("devices_per_node")) or 1
    held = math.prod(as_integer(settings[name].value) or 1 for name in HELD if name in settings)
    if recipe.nodes * each % held == 0:
        draft.assume("nodes", recipe.nodes, "the recipe's default num_nodes")


def _magnitudes(draft: Draft, calls: Iterable[python_tree.Call]) -> None:
    """``peft_scheme="dora"``: the recipe's adapters, their magnitudes trained apart."""
    stated = draft.values.get("lora")
    schemes = [
        call.keywords["peft_scheme"].value for call in calls if "peft_scheme" in call.keywords
    ]
    if stated is not None and any(str(scheme).lower() == "dora" for scheme in schemes):
        draft.put("lora", replace(stated, value=replace(stated.value, dora=True)))


LAYOUT = "pipeline-model-parallel-layout"
HELD = (
    "tensor-model-parallel-size",
    "pipeline-model-parallel-size",
    "context-parallel-size",
)


def _named_machine(draft: Draft, name: str) -> None:
    """``llama3_8b_pretrain_16gpu_h100_bf16_config`` says devices and chip in its name."""
    match = re.search(r"_(\d{1,6})gpu_([a-z0-9]+)_", name)
    if match is None:
        return
    why = f"the recipe's name, {name}"
    if "devices" not in draft.values and not draft.given("nodes"):
        draft.assume("devices", int(match.group(1)), why)
    if match.group(2) in CHIPS:
        draft.assume("chip", CHIPS[match.group(2)], why)


def _keep(found: _Found, key: str, setting: Setting, path: str) -> None:
    value, settings = setting.value, found.settings
    if key in SHAPE and not is_shape(path, key):
        return
    found.untold.pop(key, None)
    if key == "seq_length" and found.draft.pads_vocab and _OF_MODEL.search(path):
        found.length = setting
        return
    if key in ("num_nodes", "num_gpus_per_node", "devices"):
        if path.lower().endswith("trainer.devices"):  # after what the recipe's argument gave it
            found.nodes.pop("num_gpus_per_node", None)
        found.nodes[key] = setting
    elif isinstance(value, python_tree.Unknown):
        if key in ("mixed_precision", "precision_config", "plugins") and _PRECISION.search(value):
            found.exact = True
            put_precision(settings, str(value), setting)
        elif (argument_of(key) and not key.endswith(SHORT)) or key in SHAPE:
            found.untold[key] = setting
    elif key == "grad_reduce_in_fp32" and _OF_DDP.search(path):
        found.reduced = setting
    elif key == "grad_reduce_in_fp32":
        _put_reduced(settings, setting)
    elif key == "use_mcore_fsdp" and value is True:
        settings["use-megatron-fsdp"] = setting
        settings["data-parallel-sharding-strategy"] = Setting(
            "optim_grads_params", setting.file, setting.line
        )
    elif key in ("mixed_precision", "precision_config", "compute_dtype") and isinstance(value, str):
        found.exact = True
        put_precision(settings, value, setting)
    elif key in SHAPE:
        put_shape(settings, key, setting)
    else:
        if value is None or value is False:  # a library's own setting taken back
            settings.pop(argument_of(key), None)
        pass_on(settings, key, setting)


_OF_MODEL = re.compile(r"(?:^|\.)(?:config|[A-Z]\w*Config\w*)\.seq_length$")
"""Of NeMo 2, whose data has a length of its own, which is what is trained at."""
_OF_DDP = re.compile(r"(?:^|\.)(?:ddp|ddp_config|DistributedDataParallelConfig)\.\w+$")


def _put_reduced(settings: dict[str, Setting], setting: Setting) -> None:
    """Gradients are reduced in fp32, else in the dtype of the weights."""
    settings.pop("grad-reduce-in-bf16", None)
    if setting.value is False:
        settings["grad-reduce-in-bf16"] = Setting(True, setting.file, setting.line)


def _reduced(found: _Found) -> None:
    """DDP's own word holds where no mixed precision is named: that one's is written over it.

    Source: NVIDIA, Megatron-Bridge, training/config.py (runtime_config_update) and
    training/mixed_precision.py (update_config_with_precision_overrides), 2026-08; NeMo 2.6,
    lightning/pytorch/strategies/megatron_strategy.py, 2025-09.
    """
    setting = found.reduced
    if setting is None:
        return
    if found.exact or found.library is not None:
        why = "the mixed precision's own is written over it"
        where = ("ddp.grad_reduce_in_fp32", setting.file, setting.line)
        found.draft.ignored.append(Ignored(*where, False, why))
    else:
        _put_reduced(found.settings, setting)
