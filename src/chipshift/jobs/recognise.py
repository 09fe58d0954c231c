"""Which format a file is in, told from its content; its name and extension are not looked at."""

from __future__ import annotations

import ast
import re
import warnings

from chipshift.errors import InputError
from chipshift.jobs.format_keys import FOREIGN, JSON_FORMATS, KNOWN, YAML_FORMATS
from chipshift.jobs.source import Source

_TABLE = re.compile(r"^[ \t]*\[\[?[ \t]*([A-Za-z0-9_.\"'-]+)[ \t]*\]\]?[ \t]*(?:#.*)?$", re.M)
_TOML_PAIR = re.compile(r"^[ \t]*[A-Za-z0-9_.-]+[ \t]*=[ \t]*\S", re.M)
_NATIVE_TABLES = {"job", "plan", "precision", "machine", "assumed", "flag", "model"}
_TITAN_TABLES = {"training", "parallelism", "activation_checkpoint", "lr_scheduler", "checkpoint"}
_MEGATRON = re.compile(
    r"--(?:tensor-model-parallel-size|micro-batch-size|hidden-size|num-layers)\b"
)
_MEGATRON_LLM = re.compile(
    r"\.py\b.*--tensor_model_parallel_size\b.*--(?:use_checkpoint_args|micro_batch_size|num_layers)\b",
    re.S,
)
"""Megatron-LLM's spelling of Megatron-LM's arguments."""
_MEGATRON_YAML = re.compile(
    r"^[ \t]+--(?:tensor-model-parallel-size|micro-batch-size|hidden-size|num-layers):[ \t]", re.M
)
_PRIMUS = re.compile(r"^[ \t]+framework:[ \t]*[\"']?(megatron|torchtitan)\b(?!_)", re.M)
_TOP_ARGUMENTS = ("num_layers", "hidden_size", "num_attention_heads")
_TRAINER_COMMAND = re.compile(r"--(?:per[_-]device[_-]train[_-]batch|model[_-]name[_-]or[_-]path)")
_JSON_KEY = re.compile(r"\"([A-Za-z_][\w.-]*)\"[ \t]*:")
_YAML_KEY = re.compile(
    r"(?:^[ \t]{0,8}(?:- )?|[{,][ ]*)[\"']?([A-Za-z_][\w.-]*)[\"']?[ \t]*:(?=[ \t\n]|$)", re.M
)
_IMPORTS = re.compile(r"^(?:import|from)[ \t]+\w[\w.]*(?:[ \t]+(?:import|as)\b.*)?$", re.M)
_PYTHON = re.compile(r"^[ \t]*(?:import|from|def|class|@)[ \t]*\w", re.M)
_LIGHTNING = re.compile(r"^[ \t]*(?:import|from)[ \t]+(?:pytorch_)?lightning\b", re.M)
_NEMO_COMMAND = re.compile(r"\bnemo[ \t]+llm[ \t]+(?:pretrain|finetune)\b.*--factory", re.S)
_TITAN_COMMAND = re.compile(
    r"--(?:parallelism|activation[_-]checkpoint|experimental)\.\w+|run_train\.sh|\btorchtitan\b.*"
    r"--(?:training|job|model)\.\w+|--job[._-]config[_-]file|--model\.flavor|--training\.(?:local_batch_size|seq_len|"
    r"batch_size|steps|compile|dataset|mixed_precision|global_batch_size|tensor_parallel|data_parallel)",
    re.S,
)
_SWIFT = re.compile(
    r"(?<![\w/-])(?:swift|megatron)[ \t]+(?:sft|pt|rlhf)\b|"
    r"swift/cli/(?:_megatron/)?(?:sft|pt|rlhf)\.py"
)
_CONTAINER = re.compile(r"^_target_:[ \t]*[\w.]*\bConfigContainer\b", re.M)
"""Megatron-Bridge's run_config.yaml."""
_SHEBANG = re.compile(r"\s*#!.*sh\b")
_COMMANDS = re.compile(r"parse_args\(|add_argument\(|ArgumentParser\(|TrlParser\(")
_ARGUMENTS = re.compile(
    r"^(?![ \t]*class ).*\b\w*(?:TrainingArguments|"
    r"(?:SFT|DPO|GRPO|RLOO|PPO|ORPO|KTO|BCO|CPO|GKD|Reward)Config)\(",
    re.M,
)
_NANOGPT = re.compile(r"^(?:block_size|gradient_accumulation_steps|n_embd)[ \t]*=", re.M)
_FLAGPERF = re.compile(r"^vendor[ \t]*(?::[ \t]*\w+[ \t]*)?=", re.M)
"""A benchmark of FlagPerf names the chip's vendor and has no shape of its own."""
_LLMC = re.compile(
    r"^[^#\n]*(?:[/ \t\"]train_gpt2(?:_fp32)?cu(?=[ \t\\\n]|$)|"
    r"train_gpt2\.py\b[^#]*--(?:total_batch_size|sequence_length)\b)",
    re.M,
)
"""llm.c's programs."""
_LITGPT = re.compile(r"\blitgpt[ \t]+(?:pretrain|finetune\w*)\b")
_LIGHTNING_COMMAND = re.compile(
    r"--(?:accumulate_grad_batches|trainer\.(?:devices|strategy|precision|num_nodes))\b|"
    r"--strategy[ =]+\"?(?:deepspeed|ddp|fsdp)"
)
_LAUNCH = re.compile(
    r"\A\s*#!.*\b(?:ba|z|k|da)?sh\b|^[ \t]*#SBATCH|"
    r"^[ \t]*(?:\w+=\S*[ \t]+)*(?:(?:nohup|exec|time|(?:uv|poetry|pixi|pdm)[ \t]+run)[ \t]+)*"
    r"(?:/[\w./-]*/)?(?:(?:srun|torchrun|mpirun|accelerate|deepspeed|tune|axolotl|composer|llamafactory-cli)\b|"
    r"(?:lightning|fabric)[ \t]+run\b|python3?[ \t][^\n]*levanter[./]main[./]\w+|"
    r"python3?[ \t].*-m[ \t]+(?:torch\.distributed\.|accelerate\.commands\.launch\b))",
    re.M,
)
_PLAIN_COMMAND = re.compile(
    r"^(?<!\\\n)[ \t]*(?:\w+=\S*[ \t]+)*python3?[ \t]+(?:-\w+[ \t]+)*[\w./-]++"
    r"(?:[^\n]|\\\n)*?\.(?:ya?ml|json)\b",
    re.M,
)
"""A program that is started with a file of settings, and no launcher.

Each line is looked at once: a word is not taken back, a line that goes on another begins nothing.
"""
_STARTS_SCRIPT = re.compile(
    r"^[ \t]*(?:(?:\w+=\S*|nohup|exec|time|env)[ \t]+)*(?:(?:ba|z)?sh|sbatch|qsub|\.)[ \t]*"
    r"(?:-\S+[ \t]+)*(?:\./)?[\w./${}-]+\.(?:sh|sbatch|slurm|bash)\b",
    re.M,
)
"""A line that starts another script, in one without a first line of its own."""
_OWN_COMMAND = re.compile(
    r"--(?:model[_-](?:name|id|path)|base[_-]model|pretrained[_-]model\w*|model)[ =]+[^\s-]"
)
_OWN_BATCH = re.compile(r"--(?:train[_-]|micro[_-]|device[_-])?(?:batch[_-]size|bsz?)[ =]+\S")
"""Words of a training script's own, which a launcher passes on."""
_KEY_VALUE = re.compile(
    r"(?<![\w-])(?:per_device_batch_size|ici_\w+_parallelism|max_target_length)="
)

_MAXTEXT = re.compile(
    r"^[^#\n]*\bpython3?[ \t](?:[^\n]*[ \t/\"])?(?:(?:-m[ \t]+)?MaxText[./]train(?:\.py)?|"
    r"-m[ \t]+maxtext\.trainers\.pre_train\.train)(?=[ \t\\])",
    re.M,
)
"""A command that starts MaxText's training program, which has a default for each key."""

_WEAK = r"\"?gradient_accumulation_steps\"?[ \t]*:"
"""A word of the Trainer's that many tables of other programs have, so that it must stand at the
top of its file to tell a Trainer's."""

HEAD = 300_000
"""Characters looked at: the longest real job file is a tenth of it."""


class NoFormat(InputError):
    """A file in no format known here."""


class TakesArguments(InputError):
    """A program that takes its settings from its command line or from a file."""


def is_program(source: Source) -> bool:
    """Whether a file is a program that says nothing without its arguments."""
    try:
        recognise(source)
    except TakesArguments:
        return True
    except InputError:
        return False
    return False


def recognise(source: Source) -> str:
    """The name of the reader for a file.

    Raises:
        InputError: the content is in no format known here.
    """
    text = source.text[:HEAD]
    if not text.strip():
        raise InputError(f"{source.path} is empty; expected a job file")
    if _takes_arguments(text):
        raise TakesArguments(
            f"{source.path} is a Python script that takes its settings from its command line; "
            "expected the command or the shell script that starts it, or its YAML"
        )
    python = is_python(text)
    _refuse_foreign(source.path, text, python)
    shell = not python and not (_opens_json(text) and _JSON_KEY.search(text))
    form = (
        _json(text)
        or _toml(text)
        or (_script(text) if shell else "")
        or ("" if _SHEBANG.match(text) else _python(text))
        or ("" if _SHEBANG.match(text) or python else _yaml(text))
        or (_wrapper(text) if shell else "")
    )
    if not form and python and _COMMANDS.search(text):
        raise TakesArguments(
            f"{source.path} is a Python script that takes its settings from its command line; "
            "expected the command or the shell script that starts it, or its YAML"
        )
    if not form and (parent := _HYDRA.search(text)) and not python:
        raise InputError(
            f"{source.path} is a part of a Hydra configuration, which lays it over "
            f"{parent.group(1)[:80]}; expected the whole of it, as 'python train.py --cfg job "
            "--resolve' of that program prints it"
        )
    if not form and (laid := _LAID_OVER.search(text)) and not python:
        raise InputError(
            f"{source.path} is laid over {laid.group(1)[:80]}, which says what is trained; "
            "expected the whole of it"
        )
    if not form:
        _refuse_broken(source)
        raise NoFormat(f"{source.path} is in no format known here; expected {KNOWN}")
    return form


def _refuse_broken(source: Source) -> None:
    """Where a file is no JSON, TOML or YAML though its name says so, for want of a better reason.

    Raises:
        InputError: with the line.
    """
    from chipshift.jobs import json_lines, toml_lines, yaml_lines

    parsers = {"json": json_lines.parse, "toml": toml_lines.parse}
    parsers |= dict.fromkeys(("yaml", "yml"), yaml_lines.parse)
    parse = parsers.get(source.path.rpartition(".")[2].lower())
    if parse is not None:
        parse(source)


_HYDRA = re.compile(r"^defaults:[ \t]*(?:#.*)?\n(?:[ \t]*#.*\n)*[ \t]*-[ \t]*([^\n#]+)", re.M)
"""A defaults list and its first entry."""
_LAID_OVER = re.compile(r"^defaults:[ \t]*[\"']?([\w./~-]+)", re.M)
"""The one file that a configuration goes over."""


def _refuse_foreign(path: str, text: str, python: bool) -> None:
    """Say which framework's a YAML is that one of the readers would take for its own."""
    if python or _SHEBANG.match(text) or _opens_json(text):
        return
    keys = set(_YAML_KEY.findall(text))
    for name, sets in FOREIGN:
        if any(s <= keys for s in sets):
            raise InputError(
                f"{path} is a configuration of {name}, which is not read; expected a format of "
                "docs/jobs.md, such as a chipshift TOML with its model, lengths and batch"
            )


def is_python(text: str) -> bool:
    """A Python script, whatever commands its documentation shows."""
    if not _IMPORTS.search(text) or re.match(r"#!.*sh\b", text):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        return False
    return True


def _takes_arguments(text: str) -> bool:
    """Python whose arguments are parsed, and only its own documentation gives an example."""
    return bool(
        _IMPORTS.search(text)
        and re.search(r"^[ \t]+parser = |\b(?:TrlParser|HfArgumentParser)\(", text, re.M)
        and not _python(text)
        and not re.match(r"#!.*sh\b", text)
    )


def _opens_json(text: str) -> bool:
    """The first character that is no space and in no comment opens a JSON object."""
    head = re.match(r"(?:\s+|//[^\n]*\n|/\*.*?\*/)*", text, re.S)
    return head is not None and text[head.end() : head.end() + 1] == "{"


def _json(text: str) -> str:
    if not _opens_json(text):
        return ""
    keys = set(_JSON_KEY.findall(text))
    if "\n" in text.strip() and not re.search(r"^(?: {1,4}|\t)" + _WEAK, text, re.M):
        keys.discard("gradient_accumulation_steps")
    return next((name for name, sets in JSON_FORMATS if any(s <= keys for s in sets)), "")


def _toml(text: str) -> str:
    """``native`` or ``torchtitan`` when the text looks like TOML, else ""."""
    if _IMPORTS.search(text) or _SHEBANG.match(text):
        return ""  # a script may write such a file, as a here-document
    tables = {name.split(".")[0].strip("\"'") for name in _TABLE.findall(text)}
    keys = {match.split("=")[0].strip().split(".")[0] for match in _TOML_PAIR.findall(text)}
    if "chipshift" in keys:
        return "native"
    if tables & _TITAN_TABLES:
        return "torchtitan"
    if tables and tables <= _NATIVE_TABLES and tables & {"job", "plan"}:
        if re.search(r"^[ \t]*flavor[ \t]*=", text, re.M):
            return "torchtitan"
        return "native"
    return ""


def _script(text: str) -> str:
    """A launch script, by the arguments it passes."""
    if _manifest(text):
        return "kubernetes"
    if _holds_command(text):
        return "command_yaml"
    if re.search(r"--recipe[ =]+\S", text) and "run_recipe" in text and not _IMPORTS.search(text):
        return "bridge_command"
    benchmark = "performance/run_script.py" in text and "--model_recipe_name" in text
    if ("setup_experiment.py" in text or benchmark) and not _IMPORTS.search(text):
        return "bridge_experiment"
    primus = _PRIMUS.search(text)
    if primus and re.search(r"^modules:", text, re.M):
        return f"primus_{primus.group(1)}"
    if not _IMPORTS.search(text) and re.search(r"primus-cli|primus/cli/|\bEXP=\S*\.ya?ml", text):
        return "wrapper"
    if _MEGATRON_YAML.search(text) and not _LAUNCH.search(text):
        return "megatron_yaml"
    if _AXOLOTL_COMMAND.search(text) and not _IMPORTS.search(text):
        return "wrapper"
    if not _IMPORTS.search(text) and _MEGATRON_LLM.search(text) and "megatron sft" not in text:
        return "megatron"
    if _MEGATRON.search(text) and "--pipeline-group-size" not in text:  # OpenChatKit's own words
        return "megatron"
    if (_KEY_VALUE.search(text) or _MAXTEXT.search(text)) and not _manifest(text):
        return "maxtext"
    if not _IMPORTS.search(text) and _LLMC.search(text):
        return "llmc"
    if not _IMPORTS.search(text) and _LITGPT.search(text):
        return "litgpt"
    if not _IMPORTS.search(text) and _NEMO_COMMAND.search(text):
        return "nemo_command"
    if not _IMPORTS.search(text) and re.search(r"openrlhf[./]cli[./]train_", text):
        return "openrlhf"
    if not _IMPORTS.search(text) and (started := _SWIFT.search(text)):
        return "swift_megatron" if "megatron" in started.group() else "swift"
    if _TITAN_COMMAND.search(text):
        return "torchtitan"
    if _TRAINER_COMMAND.search(text):
        return "transformers"
    if _LIGHTNING_COMMAND.search(text) and not _IMPORTS.search(text):
        return "lightning"
    return "transformers" if own_command(text) else ""


_COMMAND_KEY = re.compile(
    r"^(?:run|commands?|entrypoint)[ \t]*:[ \t]*(?:[|>][-+\d]*[ \t]*$|\S.*\b(?:python3?|torchrun|"
    r"accelerate|deepspeed|bash)\b|(?:#.*)?\n[ \t]*-)",
    re.M,
)
_LAUNCHER_KEY = re.compile(
    r"^(?:resources|num_nodes|nodes|setup|workdir|envs|searcher|image|python|distribution|compute|"
    r"environment|file_mounts|type)[ \t]*:",
    re.M,
)


def _holds_command(text: str) -> bool:
    """A launcher's YAML that holds a command (SkyPilot, dstack, Determined), and no script."""
    return bool(
        _COMMAND_KEY.search(text)
        and _LAUNCHER_KEY.search(text)
        and not _SHEBANG.match(text)
        and not _IMPORTS.search(text)
        and not re.search(r"^(?:parameters|modules|trainer|model)[ \t]*:", text, re.M)
    )


def own_command(text: str) -> bool:
    """A launcher that starts a training script with words of the script's own."""
    return bool(
        _OWN_COMMAND.search(text)
        and _OWN_BATCH.search(text)
        and _LAUNCH.search(text)
        and not _IMPORTS.search(text)
        and re.search(r"\S\.py\b", text)
    )


def _manifest(text: str) -> bool:
    """A Kubernetes manifest."""
    return bool(re.search(r"^apiVersion:", text, re.M) and re.search(r"^kind:[ \t]*\w", text, re.M))


def _wrapper(text: str) -> str:
    """A shell script that starts something, told apart from all else last."""
    starts = _STARTS_SCRIPT.search(text) and not _IMPORTS.search(text)
    plain = _PLAIN_COMMAND.search(text) and not _IMPORTS.search(text)
    return "wrapper" if starts or plain or _LAUNCH.search(text) else ""


def _python(text: str) -> str:
    library = re.search(r"\b(?:from|import) (?:megatron\.bridge|nemo)\b", text)
    if not library and _LIGHTNING.search(text) and re.search(r"\b(?:Trainer|Fabric)\(", text):
        return "lightning"
    if _NANOGPT.search(text) and not _ARGUMENTS.search(text) and not _FLAGPERF.search(text):
        return "nanogpt"
    if not _PYTHON.search(text):
        return ""
    if re.search(r"^[ \t]*(?:from|import) torchtitan", text, re.M):
        return "torchtitan_recipe"
    if re.search(r"\bimport[^\n]*(?:megatron\.bridge|nemo)|from (?:megatron\.bridge|nemo)", text):
        return "nemo"
    if _ARGUMENTS.search(text):
        return "transformers"
    return ""


def _yaml(text: str) -> str:
    keys = set(_YAML_KEY.findall(text))
    if _CONTAINER.search(text):
        return "bridge_container"
    if all(re.search(rf"^{key}[ \t]*:", text, re.M) for key in _TOP_ARGUMENTS):
        return "megatron_yaml"
    if not re.search(rf"^{_WEAK}", text, re.M):
        keys.discard("gradient_accumulation_steps")
    form = next((name for name, sets in YAML_FORMATS if any(s <= keys for s in sets)), "")
    if form == "levanter" and not _LEVANTER.search(text):
        form = ""  # a trainer and a batch, but the batch is not the trainer's
        later = next(at for at, (name, _) in enumerate(YAML_FORMATS) if name == "levanter")
        rest = YAML_FORMATS[later + 1 :]
        form = next((name for name, sets in rest if any(s <= keys for s in sets)), "")
    if not form and _TRAINER_TARGET.search(text):
        return "lightning"
    if form == "axolotl" and "per_device_train_batch_size" in keys and not keys & _AXOLOTL:
        return "transformers"  # another program's, with a base_model too
    return form


_LEVANTER = re.compile(
    r"^trainer:[^\n]*\n(?:(?:[ \t#][^\n]*)?\n)*?[ \t]+"
    r"(?:train_batch_size|mp|per_device_parallelism)"
    r"[ \t]*:|^trainer:[ \t]*\{[^}]*(?:train_batch_size|\bmp)[ \t]*:",
    re.M,
)
"""Levanter's batch and precision stand in its ``trainer``."""
_TRAINER_TARGET = re.compile(r"^_target_:[ \t]*[\"']?(?:pytorch_)?lightning[\w.]*\.Trainer\b", re.M)
"""Hydra's file of a trainer alone."""
_AXOLOTL_COMMAND = re.compile(
    r"\baxolotl[ \t]+train\b|\baxolotl\.cli\.train\b|axolotl/cli/train\.py"
)
_AXOLOTL = {"sequence_len", "micro_batch_size", "datasets", "adapter", "lora_r", "sample_packing"}
"""Keys that tell axolotl's YAML from others that name a base_model."""
