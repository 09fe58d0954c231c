"""Training scripts that say the Trainer's settings in words, tables or defaults of their own.

Sources of what is taken: alpaca-lora, finetune.py, 2023 (``batch_size`` beside
``micro_batch_size`` is the whole batch); Hugging Face, TRL, trainer/base_config.py and release
notes of 0.19 (2025-06) and 0.22 (2025-08).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given
from chipshift.jobs.readers.hf_args import LENGTHS
from chipshift.jobs.settings import Setting, Sheet, as_boolean, as_integer

OWN: Mapping[str, tuple[str, ...]] = {
    "per_device_train_batch_size": (
        *("train_batch_size", "batch_size_per_gpu", "per_gpu_batch_size", "batch_size"),
        *("batch_size_training", "train_bs", "bsz", "bs", "per_device_batch_size"),
        *("batch_size_per_device", "train_batchsize", "batchsize", "local_batch_size"),
    ),
    "gradient_accumulation_steps": (
        *("accumulation_steps", "grad_accumulation_steps", "gradient_accumulation"),
        *("gradient_accumulate_every", "grad_accum_steps", "grad_accum", "accum_steps"),
        *("accumulate_grad_batches", "grad_acc", "grad_acc_steps"),
    ),
    "max_length": (
        *("max_len", "context_length", "context_len", "sequence_length", "max_sequence_length"),
        *("seqlen", "ctx_len", "max_input_length", "max_token_length"),
        "per_device_max_tokens",  # of a packed row, in ProLong's words
    ),
}
"""The Trainer's keys, and what scripts call the same."""

WHOLE = ("global_batch_size", "total_batch_size", "effective_batch_size")
"""What scripts call the sequences of a step."""

_MEANS = {
    "per_device_train_batch_size": "sequences a device a forward",
    "gradient_accumulation_steps": "forwards a step",
    "max_length": "the sequence length",
}

TABLES = (
    *("training", "train", "trainer", "training_config", "training_args", "training_arguments"),
    *("trainer_args", "sft", "sft_config", "sft_args", "args", "hyperparameters", "hparams"),
    *("hyper_parameters", "optimization", "optimizer", "model", "model_config", "model_args"),
    *("data", "dataset", "lora", "lora_config", "peft", "peft_config", "peft_args", "adapter"),
    *("quantization", "quantization_config", "bnb_config", "distributed", "precision", "hardware"),
)
"""Tables that a program's own file puts the Trainer's keys in."""

_LORA = ("r", "rank", "alpha", "lora_alpha", "dropout", "target_modules", "modules_to_save", "bias")

HOISTED = (
    *("per_device_train_batch_size", "gradient_accumulation_steps", "max_seq_length", "max_length"),
    *("max_seq_len", "seq_length", "seq_len", "model_max_length", "cutoff_len", "block_size"),
    *("bf16", "fp16", "tf32", "torch_dtype", "dtype", "gradient_checkpointing", "optim"),
    *("model_name_or_path", "model_name", "model_id", "base_model", "model_path"),
    *("packing", "fsdp", "deepspeed", "use_peft", "use_lora", "use_dora", "lora_r", "lora_rank"),
    *("lora_alpha", "lora_target_modules", "load_in_4bit", "load_in_8bit", "torch_compile"),
    *("attn_implementation", "use_liger_kernel", "loss_type", "beta", "micro_batch_size"),
    *("num_generations", "max_completion_length", "max_prompt_length", "num_ppo_epochs"),
)
"""Keys that are the Trainer's wherever they stand."""


def put_own_words(settings: dict[str, Setting], draft: Draft) -> None:
    """The Trainer's keys in place of a script's own words for them; each is said."""
    spelt = {key.replace("-", "_"): key for key in settings}
    names = ("micro_batch_size", "per_device_batch_size", "device_batch_size")
    micro = next((k for k in names if k in spelt), "")
    if micro == "device_batch_size" and spelt[micro] in settings:
        settings["per_device_train_batch_size"] = settings.pop(spelt[micro])
        _tokens_a_step(settings, spelt, draft)
    name = next((name for name in WHOLE if name in spelt), "batch_size")
    whole = settings.get(spelt.get(name, ""))
    _plain_optimizer(settings, spelt)
    if not micro and name != "batch_size" and "gradient_accumulation_steps" not in spelt:
        micro = next((k for k in OWN["per_device_train_batch_size"] if k in spelt), "")
    if micro and whole is not None and (count := as_integer(whole.value)):
        draft.put("global_batch", Given(count, whole.file, whole.line))
        why = f"the script's own --{spelt[name]}, beside --{spelt[micro]}"
        draft.note("sequences a step", count, why)
        del settings[spelt.pop(name)]
    name = next((name for name in WHOLE if name in spelt), "batch_size")
    for ours, theirs in OWN.items():
        named = next((name for name in theirs if name in spelt), "")
        if not named or ours in spelt:
            continue
        setting = settings.pop(spelt[named])
        settings[ours] = setting
        why = f"the script's own --{spelt[named]}, taken as {_MEANS[ours]}"
        draft.note(_MEANS[ours], setting.value, why)


def _tokens_a_step(settings: dict[str, Setting], spelt: Mapping[str, str], draft: Draft) -> None:
    """``--total-batch-size 524288`` in tokens beside ``--device-batch-size``.

    Source: Karpathy, nanochat, scripts/base_train.py, 2025.
    """
    whole = settings.get(spelt.get("total_batch_size", ""))
    lengths = [settings[spelt[one]] for one in (*OWN["max_length"], *LENGTHS) if one in spelt]
    tokens = as_integer(whole.value) if whole is not None else None
    length = as_integer(lengths[0].value) if lengths else None
    if whole is not None and tokens and length and tokens % length == 0:
        count = tokens // length
        draft.put("global_batch", Given(count, whole.file, whole.line))
        draft.note("sequences a step", count, f"{tokens} tokens a step of {length}")
        del settings[spelt["total_batch_size"]]


def _plain_optimizer(settings: dict[str, Setting], spelt: Mapping[str, str]) -> None:
    """``--optim name=sgd,lr=1e-4`` by its name."""
    setting = settings.get(spelt.get("optim", ""))
    told = re.match(r"name=(\w+)", str(setting.value)) if setting is not None else None
    if setting is not None and told:
        settings[spelt["optim"]] = Setting(told.group(1), setting.file, setting.line)


def hoist(sheet: Sheet) -> None:
    """Keys of the Trainer that stand in a table of the file's own, as if they stood at its top."""
    moved: dict[str, str] = {}
    _drop_turned_off(sheet)
    for key, setting in list(sheet.settings.items()):
        table, _, leaf = key.rpartition(".")
        if table.rsplit(".", 1)[-1] not in TABLES or setting.file == "--set":
            continue
        inner = table.rsplit(".", 1)[-1]
        adapters = inner in _ADAPTERS
        name = leaf if leaf in HOISTED else ""
        if adapters and leaf in _LORA:
            name = f"lora_{leaf.removeprefix('lora_')}"
        if inner in ("model", "base_model") and leaf in ("name", "path", "id", "name_or_path"):
            name = "model_name_or_path"
        if (
            not name
            or name in sheet.settings
            or (
                isinstance(setting.value, (dict, list))
                and (name not in ("lora_target_modules", "lora_modules_to_save"))
            )
        ):
            continue
        sheet.settings[name] = sheet.settings.pop(key)
        moved[table] = name
    _whole_batch(sheet)
    put_scheduler(sheet)
    for table, name in moved.items():
        why = f"{name} and its like stand in it: read as the Trainer's"
        sheet.draft.note("table of the file's own", table, why)
    kind = sheet.settings.get("training_type") or sheet.settings.get("training.type")
    if moved and kind is not None and "stage" not in sheet.settings:
        sheet.settings["stage"] = kind
        sheet.taken |= {"training_type", "training.type"} & sheet.settings.keys()


_ADAPTERS = ("lora", "lora_config", "peft", "peft_config", "peft_args", "adapter")


def _drop_turned_off(sheet: Sheet) -> None:
    """``lora: {enabled: false, r: 16}``: the rest of a table that is switched off says nothing."""
    for key, setting in list(sheet.settings.items()):
        table, _, leaf = key.rpartition(".")
        if table.rsplit(".", 1)[-1] not in _ADAPTERS or leaf not in ("enabled", "enable", "use"):
            continue
        sheet.record(key, setting, "adapters")
        if as_boolean(setting.value) is False:
            for other in [k for k in sheet.settings if k.startswith(f"{table}.") and k != key]:
                del sheet.settings[other]
        elif as_boolean(setting.value):
            sheet.settings.setdefault("use_lora", setting)


def _whole_batch(sheet: Sheet) -> None:
    """``effective_batch_size`` beside a device's: accumulation makes up the rest."""
    stated = {"global_batch_size", "effective_batch_size", "total_batch_size"}
    key = next((key for key in sheet.settings if key.rsplit(".", 1)[-1] in stated), "")
    if key and "gradient_accumulation_steps" not in sheet.settings:
        sheet.draft.put("global_batch", sheet.integer(key, into="sequences a step"))


def put_scheduler(sheet: Sheet) -> None:
    """Nodes and GPUs of a table that a program of the file's own submits to Slurm with."""
    for field, keys in (
        ("nodes", ("slurm.num_nodes", "slurm.nodes")),
        ("devices_per_node", ("slurm.gpus_per_node", "slurm.ntasks_per_node")),
    ):
        sheet.draft.put(field, sheet.integer(*keys, into=field.replace("_", " ")))


TRL_LENGTH = 1024
"""``max_length`` of these configurations by default (TRL 0.16 and newer; ``max_seq_length`` of
``SFTConfig`` before), to which longer samples are cut."""
TRL_CLASSES = ("SFT", "DPO", "KTO", "ORPO", "CPO", "BCO", "Reward", "GRPO", "RLOO")
TRL_CUTS = ("SFT", "DPO", "KTO", "ORPO", "CPO", "BCO", "Reward")
_TRL_PROGRAM = re.compile(
    r"(?:^|/)trl/(?:trl/)?scripts/|^trl\.scripts\.|(?:^|/)examples/scripts/(?:sft|dpo|kto|orpo|cpo|"
    r"bco|reward_modeling)\.py$"
)


def runs_trl(words: Sequence[str]) -> bool:
    """Whether a command starts one of TRL's own programs: ``trl sft``, ``-m trl.scripts.dpo``."""
    return any(_TRL_PROGRAM.search(w) or w.rsplit("/", 1)[-1] == "trl" for w in words)


def put_trl_defaults(settings: Mapping[str, Setting], draft: Draft, *, cuts: bool) -> None:
    """What TRL's configurations are by default where Transformers' are not, of the present version.

    ``max_seq_length``, which TRL dropped in 2025-07, tells an older one.

    Args:
        cuts: whether samples are cut to ``TRL_LENGTH`` where no length is given.
    """
    if cuts and not set(LENGTHS) & settings.keys():
        why = "TRL's default max_length; --set seq_len=N where yours differs"
        draft.assume("seq_len", TRL_LENGTH, why)
    if "max_seq_length" in settings:
        return
    if not {"gradient_checkpointing", "gradient_checkpointing_kwargs"} & settings.keys():
        why = "TRL's default gradient_checkpointing since 0.22; --set remat=none for older ones"
        draft.assume("remat", "full", why)
    if not {"bf16", "fp16"} & settings.keys():
        draft.assume("mixed", "bf16", "TRL's default bf16 since 0.19 where fp16 is not set")
