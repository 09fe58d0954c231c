"""What a launch script says besides the training arguments: nodes, devices, chip, environment.

Slurm directives (``#SBATCH --nodes=16``), ``srun``, ``torchrun``, ``python -m
torch.distributed.run`` or ``.launch``, ``accelerate launch``, ``deepspeed`` and ``mpirun`` each
have their own words for nodes and devices a node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from chipshift.jobs.context import Context
from chipshift.jobs.device_counts import put_count, put_visible
from chipshift.jobs.draft import Draft
from chipshift.jobs.job import Given, Understood
from chipshift.jobs.scheduler import SLURM, directives, gpus_per_node, options_of, set_by_scheduler
from chipshift.jobs.settings import Setting, as_integer
from chipshift.jobs.several_runs import say_runs
from chipshift.jobs.shell.found import Command, Resolved
from chipshift.jobs.shell.lex import CLOSE, OPEN
from chipshift.jobs.shell.loops import UNKNOWN
from chipshift.jobs.shell.resolve import ARGUMENTS, DOUBTFUL, resolve
from chipshift.jobs.shell.values import Environment, Field
from chipshift.jobs.source import Source

NODES = ("nnodes", "num_nodes", "nodes", "n_nodes", "num_machines", "N", "num-nodes")
PER_NODE = (
    *("nproc_per_node", "nproc-per-node", "num_gpus", "gpus-per-node", "gpus_per_node"),
    *("ntasks-per-node", "npernode", "nproc"),
)
TOTAL = ("num_processes", "ntasks", "n", "np", "gpus", "world_size")

CHIPS = {
    "a100": "a100",
    "h100": "h100",
    "h200": "h200",
    "gh200": "h200",
    "b200": "b200",
    "b300": "b300",
    "gb200": "gb200",
    "gb300": "gb300",
    "vr200": "vr200",
    "r100": "r100",
    "mi300x": "mi300x",
    "mi300": "mi300x",
    "mi325x": "mi325x",
    "mi350x": "mi350x",
    "mi355x": "mi355x",
}
"""Names in ``--gres=gpu:NAME:8`` and ``--constraint``, which sites choose, by chip."""

PORTING = (
    ("nccl", re.compile(r"^(NCCL_|TORCH_NCCL_|UCX_|FI_|RCCL_|SHARP_|NVSHMEM_)")),
    ("transformer_engine", re.compile(r"^NVTE_")),
    ("cuda_environment", re.compile(r"^(CUDA_|CUBLAS_|PYTORCH_CUDA_|CUDNN_)")),
    ("tf32", re.compile(r"^(NVIDIA_TF32_OVERRIDE|TORCH_ALLOW_TF32.*)$")),
    ("xla_flags", re.compile(r"^(XLA_FLAGS|LIBTPU_INIT_ARGS|XLA_PYTHON_.*)$")),
)
NO_SETTINGS = re.compile(r"activate|bashrc|profile|conda|modules?\b|lmod|setvars|venv|vars\.sh$")
"""Files that scripts source to find programs, which say nothing of the job."""

QUIET = ("CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH")


@dataclass
class Launch:
    """A script's launch.

    Attributes:
        options: of the scheduler and launchers, by name without dashes.
        found: the script as resolved.
    """

    found: Resolved
    options: dict[str, Field] = field(default_factory=dict)


def read_launch(source: Source, context: Context) -> Launch:
    """Resolve a script with what its scheduler directives say."""
    options = directives(source.text)
    fixed = context.overrides.given
    variables = {**context.environment, **set_by_scheduler(options)}
    found = resolve(source.text, source.path, fixed, variables, context.texts())
    context.overrides.used |= found.environment.used_fixed
    context.consumed |= found.sourced
    launch = Launch(found, options)
    for script in found.written:  # ``sbatch job.sh`` of a file that the script itself writes
        launch.options = {**launch.options, **directives(script.text)}
    for command in found.commands:
        words = launcher_words(command)
        options = _by_node(options_of(words), words)
        if "devices" in options and any(one.plain in ("lightning", "fabric") for one in words[:2]):
            options.setdefault("gpus-per-node", options["devices"])  # lightning run --devices=8
        submits = bool(words) and words[0].plain.rsplit("/", 1)[-1] in SUBMITTING
        if submits:  # what is said there goes before the script's own directives
            launch.options |= {**options, SLURM: Field("", words[0].line)}
        launch.options = {**options, **launch.options}
    for name, value in _included(launch.options).items():
        launch.options.setdefault(name, value)
    return launch


def _by_node(options: dict[str, Field], words: list[Field]) -> dict[str, Field]:
    """What MPI's launchers and ``jsrun`` say, in the words of the others.

    Source: IBM, jsrun(1), 2023: ``-n`` resource sets of ``-g`` GPUs each, ``-r`` of them a host.
    """
    started = next((w.plain.rsplit("/", 1)[-1] for w in words if _launches(w)), "")
    if started in BY_NODE:
        each = next((options.pop(n) for n in ("N", "ppn", "map-by") if n in options), None)
        if each is not None and (found := re.match(r"(?:ppr:)?(\d{1,4})\b", each.plain)):
            options.setdefault("npernode", Field(found.group(1), each.line, each.soft))
    elif started == "jsrun":
        sets, gpus, hosts = (options.pop(n, None) for n in ("n", "g", "r"))
        if sets is not None and gpus is not None and (gpus_each := as_integer(gpus.plain)):
            count = as_integer(sets.plain)
            options["n"] = Field(str(count * gpus_each), sets.line) if count else sets
            if hosts is not None and (a_host := as_integer(hosts.plain)):
                options["npernode"] = Field(str(a_host * gpus_each), hosts.line)
    return options


def _launches(word: Field) -> bool:
    return word.plain.rsplit("/", 1)[-1] in LAUNCHERS


def _included(options: Mapping[str, Field]) -> dict[str, Field]:
    """DeepSpeed's ``--include worker-0:0,1@worker-1:0,1``: hosts, and each one's devices.

    Source: DeepSpeed, "Getting Started", Resource Configuration (multi-node), 2026.
    """
    named = options.get("include")
    if named is None or named.unknown or not named.plain:
        return {}
    hosts = [host.partition(":") for host in named.plain.split("@")]
    counts = {len([slot for slot in slots.split(",") if slot]) for _, _, slots in hosts}
    found = {"nnodes": Field(str(len(hosts)), named.line, named.soft)}
    if len(counts) == 1 and counts != {0}:  # a host alone, or ``localhost:``, gives all it has
        found["num_gpus"] = Field(str(counts.pop()), named.line, named.soft)
    return found


SUBMITTING = ("sbatch", "salloc")
LAUNCHERS = (
    *SUBMITTING,
    *("torchrun", "tune", "srun", "mpirun", "mpiexec", "accelerate", "deepspeed"),
    *("lightning", "fabric", "aprun", "jsrun", "mpiexec.hydra"),
)
BY_NODE = ("aprun", "mpirun", "mpiexec", "mpiexec.hydra")
"""Launchers whose ``-N`` is processes a node, where Slurm's is nodes: Open MPI, mpirun(1); Cray,
aprun(1); HPE, mpiexec(1) and Intel MPI have ``-ppn`` for it, 2024."""


LLMC = re.compile(r"(?:^|/)train_gpt2(?:cu|_fp32cu)$")
"""llm.c's program, whose one-letter options are no launcher's."""

_SCRIPT = re.compile(r"\.(?:sh|sbatch|slurm|bash|job|sub|run)$")


def launcher_words(command: Command) -> list[Field]:
    """A launch command's own words, up to the training program."""
    words = [word for word in command.words if word.plain]
    launcher = False
    for at, word in enumerate(words):
        plain = word.plain
        base = plain.rsplit("/", 1)[-1]
        if base in LAUNCHERS or (
            plain
            in ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
        ):
            launcher = True
        if at and words[0].plain in SUBMITTING and _SCRIPT.search(plain) and plain[0] != "-":
            return words[:at]
        if launcher and LLMC.search(plain):
            return words[:at]
        if launcher and (plain.endswith(".py") or (plain == "-m" and at and _is_module(words, at))):
            return words[:at]
    return words if launcher else []


def program_words(command: Command) -> list[Field]:
    """What follows the training program; all words where no program can be told."""
    words = list(command.words)
    for at, word in enumerate(words):
        if word.plain.endswith(".py"):
            return words[at + 1 :]
        if word.plain == "-m" and _is_module(words, at):
            return words[at + 2 :]
    return words


def _is_module(words: list[Field], at: int) -> bool:
    """``-m package.train`` names the program, ``-m torch.distributed.run`` a launcher."""
    following = words[at + 1].plain if at + 1 < len(words) else ""
    return bool(following) and not following.startswith(("torch.distributed", "accelerate."))


def chip_of(options: Mapping[str, Field]) -> tuple[str, Field] | None:
    """The chip that a gres, constraint or partition names."""
    for name in ("gres", "gpus-per-node", "gpus", "constraint", "C", "partition", "p"):
        value = options.get(name)
        if value is None:
            continue
        for word in re.split(r"[^a-z0-9]+", value.plain.lower()):
            if word in CHIPS:
                return CHIPS[word], value
    return None


def put_machine(draft: Draft, launch: Launch, world: Field | None = None) -> None:
    """Nodes, devices a node, their product and the chip, as far as the launch says them."""
    options = launch.options
    own = ("num_machines", *NODES) if "num_processes" in options else NODES  # accelerate's, first
    nodes = next((options[n] for n in own if n in options), None)
    launched = next((options[n] for n in PER_NODE[:5] if n in options), None)
    each = launched if launched and as_integer(launched.plain) else gpus_per_node(options)
    each = each or next((options[n] for n in PER_NODE[5:] if n in options), None) or launched
    total = world or next((options[n] for n in TOTAL if n in options), None)
    if nodes is not None and ":" in nodes.plain:  # torchrun's elastic MIN:MAX
        nodes = Field(nodes.plain.split(":")[-1], nodes.line, nodes.soft)
    for name, value in (("nodes", nodes), ("devices_per_node", each)):
        put_count(draft, name, value)
    if nodes is None and total is None and each is not None:
        standalone = "standalone" in options or not any("rdzv" in o for o in options)
        standalone = standalone or _at_home(options)
        if (standalone and "nproc" in "".join(options)) or _deepspeed_alone(launch):
            draft.assume("nodes", 1, "the launcher's default of one node")
    if nodes is None and _one_task(options) and each is not None and not world:
        draft.assume("nodes", 1, "one task takes one node")
    elif nodes is None and total is None and each is not None and SLURM in options:
        draft.assume("nodes", 1, "Slurm's default of one node")
    elif nodes is None or each is None:
        put_count(draft, "devices", total)
    put_visible(draft, launch.found)
    if found := chip_of(options):
        chip, value = found
        draft.put("chip", Given(chip, draft.file, value.line))
        draft.understood.append(
            Understood("gres or constraint", value.shown, draft.file, value.line, f"chip {chip}")
        )


def _deepspeed_alone(launch: Launch) -> bool:
    """``deepspeed --num_gpus 8`` without hosts, ranks or a scheduler: the local machine alone.

    Source: DeepSpeed, "Resource Configuration (single-node)", 2026; the machine's own
    /job/hostfile would say otherwise.
    """
    several = {
        "hostfile",
        "H",
        "node_rank",
        "no_ssh",
        "include",
        "i",
        SLURM,
    } & launch.options.keys()
    starts = any(
        word.plain.rsplit("/", 1)[-1] == "deepspeed"
        for command in launch.found.commands
        for word in command.words[:4]  # behind nohup, exec or time
    )
    return starts and not several


def _at_home(options: Mapping[str, Field]) -> bool:
    """``--rdzv_endpoint localhost:0``: the processes of one node meet there."""
    place = options.get("rdzv_endpoint") or options.get("rdzv-endpoint")
    return place is not None and re.match(r"(?:localhost|127\.0\.0\.1)\b", place.plain) is not None


def _one_task(options: Mapping[str, Field]) -> bool:
    """``--ntasks=1``: the program starts its own processes, one for each device of the node."""
    counts = [options[name].plain for name in TOTAL if name in options]
    named = options.get("ntasks") or options.get("n")
    return named is not None and counts == ["1"]


def put_environment(draft: Draft, launch: Launch) -> None:
    """Exported settings that matter for porting, as flags; loops that were not followed."""
    _say_loops(draft, launch)
    _say_unsourced(draft, launch)
    say_runs(draft, launch.found.commands)
    variables = dict(launch.found.environment.exported)
    for command in launch.found.commands:
        variables.update(dict(command.environment))
    for name, value in variables.items():
        for kind, pattern in PORTING:
            if pattern.match(name) and name not in QUIET:
                draft.flag(kind, name, value.shown, value.line or None)


def _say_unsourced(draft: Draft, launch: Launch) -> None:
    for name, line in launch.found.environment.unsourced.items():
        if not NO_SETTINGS.search(name):
            draft.miss(name, draft.file, line, "what it sets is not in the numbers")


def _say_loops(draft: Draft, launch: Launch) -> None:
    for line, told in launch.found.skipped:
        if told == ARGUMENTS:
            why = f"{told}; --set args='...' gives some"
            draft.note(f"arguments (loop of line {line})", "none", why)
        elif told == DOUBTFUL:
            draft.note(f"condition of line {line}", "taken as not so", "only a run could tell it")
        elif told == UNKNOWN:
            draft.note(f"loop of line {line}", "left out", f"{told}; --set gives what it sets")


def as_settings(
    words: Iterable[Field], file: str, environment: Environment | None = None
) -> dict[str, Setting]:
    """``--key value ...`` as ``{"key": Setting}``: True without a value, a list with several.

    Args:
        environment: the script's variables, that what is unset may say what would set it.
    """
    gathered: dict[str, tuple[list[Field], int]] = {}
    key = ""
    for word in words:
        match = re.match(r"--([A-Za-z][\w.-]*)(?:=(.*))?$", word.plain, re.S)
        if match:
            key = match.group(1)
            gathered[key] = ([], word.line)
            if match.group(2) is not None:
                text = word.text.partition("=")[2]
                gathered[key][0].append(Field(text, word.line, word.soft))
        elif key and word.plain:
            gathered[key][0].append(word)
    settings = {}
    for key, (values, line) in gathered.items():
        plain = [unset(v, environment) if v.unknown else v.plain for v in values]
        plain = _without_empty(plain, line, environment)
        value = True if not plain else plain[0] if len(plain) == 1 else plain
        settings[key] = Setting(value, file, line or None)
    return settings


def _without_empty(plain: list[str], line: int, environment: Environment | None) -> list[str]:
    """``--size 1 $EXTRA``: a variable that nothing sets is left out, as a shell does, and said."""
    if environment is None or len(plain) < 2:
        return plain
    empty = [one.empty for one in plain[1:] if isinstance(one, Unset) and one.empty]
    for name in empty:
        environment.unset.setdefault(name, line)
    return [plain[0], *(one for one in plain[1:] if not getattr(one, "empty", ""))]


def unset(word: Field, environment: Environment | None) -> Unset:
    """A word that holds a variable which nothing in the script sets, with what would set it."""
    name = word.unknown[0]
    told = settling(name, environment)
    alone = not word.empty_unknown and len(word.unknown) == 1 and name.isidentifier()
    return Unset(word.shown, word.unknown, told, name if alone and "giving" not in told else "")


def settling(name: str, environment: Environment | None) -> str:
    """The ``--set`` that would settle a variable: the script's arguments, or its conditions'."""
    if environment is None:
        return ""
    sourced = [one for one in environment.unsourced if not NO_SETTINGS.search(one)]
    if sourced and not name.isdecimal():
        line = environment.unsourced[sourced[0]]
        return f"--set {name}=..., or by giving {sourced[0]}, which line {line} sources"
    if name in environment.unset and not name.isdecimal():
        return ""
    if name.startswith("("):  # what a program would print: the variable that takes it
        taking = [
            variable
            for variable, value in environment.variables.items()
            if isinstance(value, Field) and value.plain == f"{OPEN}{name}{CLOSE}"
        ]
        if taking:
            return f"--set {taking[0]}=..."
    needed = [one for one in environment.unset if one.isdecimal()]
    if not name.isdecimal() and not needed:
        return ""
    named: dict[str, str] = {}
    for variable, value in environment.variables.items():
        if isinstance(value, Field) and len(value.unknown) == 1:
            named.setdefault(value.unknown[0], variable)
    first = sorted({*needed, *([name] if name.isdecimal() else ())}, key=lambda one: int(one[:6]))
    shown = [f"${one} is {named[one]}" if one in named else f"${one}" for one in first[:8]]
    return f"--set args='...', the script's own arguments ({', '.join(shown)})"


def unsettled(launch: Launch) -> str:
    """What the script's conditions rest on and nothing sets, for a sentence; "" where nothing."""
    environment = launch.found.environment
    unset = sorted(environment.unset)
    if not unset:
        return ""
    own = settling(next((n for n in unset if n.isdecimal()), ""), environment)
    asked = f"; {own}, would say" if own else ""
    return f" (conditions in it rest on {', '.join(unset[:3])}, unset here{asked})"


class Unset(str):
    """Text that holds a variable which nothing in the script sets."""

    names: tuple[str, ...]
    settling: str
    empty: str
    """The variable, where the text is it alone and no file that may set it was left out."""

    def __new__(
        cls, shown: str, names: tuple[str, ...], settling: str = "", empty: str = ""
    ) -> Unset:
        made = super().__new__(cls, shown)
        made.names, made.settling, made.empty = names, settling, empty
        return made
