"""A job script around another file: Slurm, torchrun, accelerate, ``tune run`` and the like.

It says nodes, devices, chip and environment; the training settings stand in the file it names,
which is read when it is given too, with the script's ``key=value`` overrides laid over it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace

from chipshift.errors import InputError
from chipshift.jobs.context import Context
from chipshift.jobs.draft import FIELDS, Draft, join
from chipshift.jobs.job import Given, Ignored
from chipshift.jobs.launch import (
    Launch,
    as_settings,
    put_environment,
    put_machine,
    read_launch,
    unset,
)
from chipshift.jobs.overrides import Overrides, Place, typed
from chipshift.jobs.readers.accelerate_command import launched
from chipshift.jobs.readers.bridge_scope import is_overrides
from chipshift.jobs.readers.bridge_script import is_bridge, is_launcher
from chipshift.jobs.readers.bridge_words import bridge_words
from chipshift.jobs.readers.levanter_command import LEVANTER, dotted, levanter_command
from chipshift.jobs.readers.nanogpt_configs import CONFIGS, nanogpt_config
from chipshift.jobs.readers.nemo_defaults import nemo_defaults
from chipshift.jobs.readers.preference_keys import put_program
from chipshift.jobs.readers.started import program_of
from chipshift.jobs.recognise import is_program, is_python, recognise
from chipshift.jobs.settings import Setting, unset_names
from chipshift.jobs.shell.found import Command
from chipshift.jobs.shell.started import SUBMITS
from chipshift.jobs.shell.values import Field
from chipshift.jobs.source import Source

_PAIR = re.compile(r"(?:--|\+\+?)?([A-Za-z_][\w.]*)=([^\s=]+)$")
RUNS_PRIMUS = re.compile(r"primus-cli|primus/cli|run_pretrain\.sh")
"""Primus's own launchers; the second takes its file by ``EXP``."""

_SETTINGS = re.compile(r"[\w-]\.(?:ya?ml|toml|json)$")
"""Endings of files that hold a job's settings."""

_PROGRAM = re.compile(r"\.py$")
AXOLOTL = re.compile(r"(?:^|/)axolotl$|^axolotl\.cli\.train$|axolotl/cli/train\.py$")
"""axolotl's command and its module, whose words go before its YAML's."""

QUIET = re.compile(r"^(?:nnodes|nproc|rdzv|master|node_rank|standalone|config)")


def read(source: Source, context: Context) -> Draft:
    """Read one script; see ``readers/__init__``."""
    draft = Draft(source.path, "launch script")
    launch = read_launch(source, context)
    put_machine(draft, launch)
    put_environment(draft, launch)
    groups: list[list[Draft]] = []
    programs: list[tuple[Draft, int]] = []
    for command in launch.found.commands:
        by = launched(command, launch, context, source.path)
        before = {*context.consumed}
        named = _started_program(command, launch, context, source.path)
        taken = context.consumed - before if named else set()
        if named and programs:  # a script that trains in stages: its last
            groups = [[one for one in g if one is not programs[-1][0]] for g in groups]
        programs += [(one, command.line) for one in named]
        named += _named(command, launch, context, source.path, taken)
        _say_absent(draft, command, context)
        if by is not None:
            named = [*(one for one in named if one.format != "accelerate"), by]
        groups.append(named)
        put_program(draft, command, source.path)
        _tune(draft, command)
    inner = _last_job(groups, draft)
    if not inner:
        _say_unstarted(draft, launch, context)
        return draft
    if len(programs) > 1:
        why = f"the last of them, of line {programs[-1][1]}, is read; give it alone for another"
        draft.note("commands that train", len(programs), why)
    merged = join([*inner, draft])
    merged.file = inner[0].file
    return merged


def _last_job(groups: list[list[Draft]], draft: Draft) -> list[Draft]:
    """What one job's commands say: of several that each train by a file of their own, the last.

    A file that trains nothing of itself (an Accelerate configuration) counts for every command.
    """
    jobs = {
        number: {one.file for one in group if _trains(one)} for number, group in enumerate(groups)
    }
    last = next((jobs[number] for number in reversed(jobs) if jobs[number]), set())
    kept: list[Draft] = []
    for number, group in enumerate(groups):
        if not jobs[number] or jobs[number] == last:
            for one in group:
                same = next((other for other in kept if other.file == one.file), None)
                if same is None:
                    kept.append(one)
                else:
                    _say_otherwise(same, one, draft)
            continue
        for file in sorted(jobs[number]):
            why = f"another job of this script: the last one, of {min(last)}, is read"
            entry = Ignored(file.rsplit("/", 1)[-1], file, None, True, why)
            if entry not in draft.ignored:
                draft.ignored.append(entry)
    return kept


def _say_otherwise(first: Draft, other: Draft, draft: Draft) -> None:
    """Another command that starts the same file with other settings: a sweep's next run."""
    stated = {name: getattr(value, "value", None) for name, value in first.values.items()}
    differs = [n for n, v in other.values.items() if getattr(v, "value", None) != stated.get(n)]
    if differs:
        told = ", ".join(FIELDS.get(name, name) for name in sorted(differs)[:4])
        why = f"several commands start it with other settings ({told}): the first is read"
        entry = Ignored(first.file.rsplit("/", 1)[-1], first.file, None, True, why)
        if entry.key not in {one.key for one in draft.ignored}:
            draft.ignored.append(entry)


def _trains(draft: Draft) -> bool:
    """Whether a file gives a job of its own, and not its devices or sharding alone."""
    sized = any(draft.given(name) for name in ("microbatch", "global_batch", "seq_len"))
    return sized and draft.format != "deepspeed"


def _tune(draft: Draft, command: Command) -> None:
    """``tune run RECIPE``: a recipe of a single device, or without torchrun's words one process.

    Source: PyTorch, torchtune, torchtune/_cli/run.py, 2026: the recipe is started by torchrun only
    where one of torchrun's own arguments is given.
    """
    plain = [word.plain for word in command.words]
    at = next((at for at, word in enumerate(plain) if word.rsplit("/", 1)[-1] == "tune"), None)
    if at is None or plain[at + 1 : at + 2] != ["run"]:
        return
    recipe = next((word for word in plain[at + 2 :] if re.search(r"_(?:single|distrib)", word)), "")
    if recipe and "single_device" in recipe:
        line = command.words[at].line
        draft.put("devices", Given(1, draft.file, line))
        draft.put("sharding", Given("ddp", draft.file, line))
    elif not any(word.startswith(("--nproc", "--nnodes")) for word in plain):
        draft.assume("nodes", 1, "tune run without torchrun's words starts one process")
        draft.assume("devices_per_node", 1, "tune run without --nproc_per_node: one process")


def _started_program(command: Command, launch: Launch, context: Context, file: str) -> list[Draft]:
    """The Python program that a command starts, where it is given and no other reader's."""
    from chipshift.jobs.readers.transformers import read_started

    program = program_of(command, context)
    if program is None or _form(program) not in ("", "transformers"):
        return []
    draft = read_started(command, launch, context, file)
    return [] if draft is None else [draft]


def _form(source: Source) -> str:
    try:
        return recognise(source)
    except InputError:
        return ""


def _named(
    command: Command, launch: Launch, context: Context, file: str, taken: set[str]
) -> list[Draft]:
    """Drafts of the files that a command names, with its overrides; not of those taken already."""
    from chipshift.jobs.read import read_draft

    found = []
    names = [
        word.plain.rsplit("=", 1)[-1]
        for word in command.words
        if "/" in word.plain or "." in word.plain
    ]
    exported = {**launch.found.environment.exported, **dict(command.environment)}
    if "EXP" in exported and any(RUNS_PRIMUS.search(word.plain) for word in command.words):
        names.append(exported["EXP"].plain)
    sources = [
        (name, None if name.rsplit("/", 1)[-1] in taken else context.neighbour(name))
        for name in dict.fromkeys(names)
    ]
    pairs = {
        match.group(1): (_told(word, match.group(2), launch), word.line)
        for word in command.words
        if (match := _PAIR.match(word.plain)) and not QUIET.match(match.group(1))
    }
    if (own_yaml := _launched_by_nemo(command)) is not None:
        sources.append((own_yaml, context.neighbour(own_yaml)))
        pairs = {key.removeprefix("training."): told for key, told in pairs.items()}
    given = [source for _, source in sources if source is not None]
    if any(is_bridge(source) or is_launcher(source) for source in given):
        pairs |= _options(command)
    pairs |= dotted(command, launch)
    if given and any(AXOLOTL.search(word.plain) for word in command.words):
        pairs |= _options(command, AXOLOTL)
    texts = {key: text for key, (text, _) in pairs.items()}
    places: dict[str, Place] = {key: (file, line) for key, (_, line) in pairs.items()}
    for key in context.overrides.given:
        places.pop(key, None)
    scripts = any(name.endswith(".py") for name in names)
    for name, source in sources:
        if source is None or (scripts and is_overrides(source)) or is_program(source):
            continue
        if is_python(source.text) and not _form(source):
            continue  # said where the files are joined
        if name.endswith(".sh"):
            found += _other_script(source, launch, _started(context, launch, command, name))
            continue
        laid = Overrides({**texts, **context.overrides.given}, places)
        if _is_primus(source):
            laid = _of_primus(command, exported, context, file)
        own = replace(context, overrides=laid)
        found.append(read_draft(source, own))
        context.overrides.used |= laid.used & set(context.overrides.given)
    starts = [key.split(".", 1)[0] for key in pairs]
    if not found and starts.count("model") > 1 and "trainer" in starts and _of_nemo(names):
        found.append(_nemo_command(command, texts, places, context, file))
    elif not found and (words := bridge_words(command, context, file)) is not None:
        found.append(words)
    elif not found and starts and any(LEVANTER.search(word.plain) for word in command.words):
        found.append(levanter_command(texts, places, context, file))
    elif not found and starts and any("llamafactory-cli" in word.plain for word in command.words):
        found.append(_factory_command(command, texts, places, context, file))
    elif not found and scripts and (own_config := nanogpt_config(names, pairs)) is not None:
        found.append(_nanogpt_command(pairs, own_config, context, file))
    return found


def _launched_by_nemo(command: Command) -> str | None:
    """``main.py stages=[training] training=gpt3/5b``: the file of NeMo's launcher that is trained.

    Source: NVIDIA, NeMo-Framework-Launcher, launcher_scripts/conf/config.yaml, 2024.
    """
    plain = [word.plain for word in command.words]
    named = next((m[1] for w in plain if (m := re.match(r"training=([\w/.-]+)$", w))), None)
    launches = any(word.endswith("main.py") for word in plain)
    return f"{named.rsplit('/', 1)[-1]}.yaml" if named is not None and launches else None


def _told(word: Field, text: str, launch: Launch) -> str:
    """A pair's value; one that is a variable which nothing sets says so where it is needed."""
    if not word.unknown:
        return text
    value = Field(word.text.partition("=")[2], word.line, word.soft)
    return unset(value, launch.found.environment)


def _started(context: Context, launch: Launch, command: Command, name: str) -> Context:
    """The context of a script that is started: its arguments (``bash train.sh --nodes 4``) and the
    variables that are exported to it.
    """
    exported = {**launch.found.environment.exported, **dict(command.environment)}
    context = replace(context, environment={k: v for k, v in exported.items() if not v.unknown})
    plain = [word.plain for word in command.words]
    following = command.words[plain.index(name) + 1 :] if name in plain else ()
    if "args" in context.overrides.given or not following:
        return context
    told = shlex.join("" if word.unknown else word.plain for word in following)
    laid = Overrides({**context.overrides.given, "args": told})
    return replace(context, overrides=laid)


def _other_script(source: Source, launch: Launch, context: Context) -> list[Draft]:
    """The script that a command starts (``bash entrypoint.sh``), where it trains something.

    Raises:
        InputError: it is a framework's launch script, and asks for something.
    """
    from chipshift.jobs.read import read_draft

    base = source.path.rsplit("/", 1)[-1]
    if source.path in context.reading or base in launch.found.sourced:
        return []
    try:
        draft = read_draft(source, context)
    except InputError:
        if _launches(source):
            raise
        return []  # one that builds or fetches
    return [draft] if draft.values or draft.wanted_model else []


def _launches(source: Source) -> bool:
    """Whether a script is known to start a framework, and not just any program."""
    try:
        return recognise(source) not in ("wrapper", "transformers")
    except InputError:
        return False


def _of_nemo(names: list[str]) -> bool:
    """NeMo 1's training programs and NeMo-Aligner's, by their names."""
    program = next((name for name in names if name.endswith(".py")), "")
    trains = re.search(r"megatron_\w+\.py$|train_gpt_\w+\.py$|train_reward_model\.py$", program)
    return bool(trains) and not re.search(r"_(?:generate|eval|predict|export|merge)", program)


def _nanogpt_command(
    pairs: Mapping[str, tuple[str, int]], own: str, context: Context, file: str
) -> Draft:
    """``train.py config/x.py --block_size=1024`` alone: the config that it names was not given."""
    from chipshift.jobs.readers import nanogpt

    settings = {key: Setting(value, own) for key, value in CONFIGS.get(own, {}).items()}
    settings |= {key: Setting(typed(text), file, line) for key, (text, line) in pairs.items()}
    draft = nanogpt.fill(settings, Draft(file, "nanogpt"), context)
    why = "the config that it names was not given"
    draft.note("settings", f"nanoGPT's own {own}" if own else "of the command alone", why)
    return draft


def _factory_command(
    command: Command,
    texts: dict[str, str],
    places: dict[str, Place],
    context: Context,
    file: str,
) -> Draft:
    """``llamafactory-cli train x.yaml key=value`` alone: the YAML under them was not given."""
    from chipshift.jobs.readers import llamafactory

    laid = Overrides({**texts, **context.overrides.given}, places)
    own = replace(context, overrides=laid)
    draft = llamafactory.read(Source(file, "do_train: true\n"), own)
    context.overrides.used |= laid.used & set(context.overrides.given)
    name = next((w.plain for w in command.words if _SETTINGS.search(w.plain)), "its YAML")
    if "model" not in draft.values and not draft.wanted_model and not context.model_named:
        draft.wanted_model = f"the model of {name}: give that file too"
    draft.note("settings", "of the command alone", f"{name} was not given")
    return draft


def _nemo_command(
    command: Command,
    texts: dict[str, str],
    places: dict[str, Place],
    context: Context,
    file: str,
) -> Draft:
    """``model.x=1 trainer.y=2`` alone: the YAML under them was not given."""
    from chipshift.jobs.readers import nemo

    own, under = nemo_defaults([word.plain for word in command.words])
    texts = {**under, **texts}
    places = {**dict.fromkeys(under, (f"NeMo's {own}", None)), **places}
    if not {"trainer.precision", "model.precision"} & {*texts, *context.overrides.given}:
        raise InputError(
            f"{file} gives no trainer.precision; expected it in the command, the program's YAML "
            "beside it, or --set trainer.precision=bf16"
        )
    laid = Overrides({**texts, **context.overrides.given}, places)
    draft = nemo.read(Source(file, "model: {}\n"), replace(context, overrides=laid))
    context.overrides.used |= laid.used & set(context.overrides.given)
    why = f"NeMo's {own} lies under them" if own else "the program's YAML was not given"
    draft.note("settings", "of the command alone", why)
    return draft


def _say_absent(draft: Draft, command: Command, context: Context) -> None:
    """Files of settings that the command names and that were not given."""
    plain = [word.plain for word in command.words]
    laid = _launched_by_nemo(command)
    if laid is not None and context.neighbour(laid) is None:
        draft.miss(laid, draft.file, command.line, "its settings are not in the numbers")
    for at, word in enumerate(command.words):
        name = word.plain.rsplit("=", 1)[-1]
        configures = at > 0 and plain[at - 1] in ("--config", "--config_file", "--config-file")
        if word.unknown or not (_SETTINGS.search(name) or configures):
            continue
        if context.neighbour(name) is None:
            draft.miss(name, draft.file, word.line, "its settings are not in the numbers")


def _say_unstarted(draft: Draft, launch: Launch, context: Context) -> None:
    """Scripts that the commands start (``bash train.sh 70B``) and that were not given."""
    for command in launch.found.commands:
        plain = [word.plain for word in command.words]
        at = next((at for at, word in enumerate(plain) if word in SUBMITS), len(plain))
        started = next((w for w in plain[at + 1 :] if not w.startswith("-")), "")
        if started.endswith((".sh", ".sbatch", ".slurm")):
            base = started.rsplit("/", 1)[-1]
            if context.neighbour(base) is None and base not in launch.found.environment.files:
                draft.miss(base, draft.file, command.line, "what it starts is not read")


def _is_primus(source: Source) -> bool:
    return recognise(source).startswith("primus_") or bool(
        re.search(r"^modules:", source.text, re.M)
        and re.search(r"^[ \t]+framework:[ \t]*maxtext", source.text, re.M)
    )


def _of_primus(
    command: Command, exported: Mapping[str, Field], context: Context, file: str
) -> Overrides:
    """Primus's ``--key value``, over the file's overrides, and the variables that it asks for."""
    settings = as_settings(command.words, file)
    stated = {k: s for k, s in settings.items() if k not in ("config", "exp", "backend_path")}
    texts = {key: str(one.value) for key, one in stated.items() if not unset_names(one.value)}
    places = {key: (file, stated[key].line) for key in texts if key not in context.overrides.given}
    variables = {name: value.plain for name, value in exported.items() if not value.unknown}
    return Overrides({**variables, **texts, **context.overrides.given}, places)


def _options(command: Command, program: re.Pattern[str] = _PROGRAM) -> dict[str, tuple[str, int]]:
    """``--num-layers 8`` and ``--fast`` after the program's name, as its arguments."""
    plain = [word.plain for word in command.words]
    start = next((at for at, word in enumerate(plain) if program.search(word)), len(plain))
    if "--" in plain[start:]:  # what follows is the launcher's
        plain = plain[: plain.index("--", start)]
    found: dict[str, tuple[str, int]] = {}
    for at, word in enumerate(command.words[start + 1 : len(plain)], start + 1):
        match = re.fullmatch(r"--([A-Za-z][\w-]*)(?:=(.*))?", word.plain, re.S)
        if match is None:
            continue
        follows = plain[at + 1] if at + 1 < len(plain) else "--"
        alone = "true" if follows.startswith("--") else follows
        text = match.group(2) if match.group(2) is not None else alone
        found[match.group(1).replace("-", "_")] = (text, word.line)
    return found
