"""Blockers outside Python: requirements, images, launch scripts, DeepSpeed and Accelerate files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from chipshift.audit.cost import without_job
from chipshift.audit.finding import Finding, Place, Severity, Target
from chipshift.audit.judge import instead
from chipshift.audit.packages import package_rule
from chipshift.audit.rules import rules


@dataclass(frozen=True)
class ConfigHazard:
    """A hazard in a configuration file: the rule, its first line and the further ones (from 1).

    ``what`` is the words on the line; ``severity`` differs from the rule's own where the file says
    so (an optional dependency); ``optional`` names what switches it on.
    """

    rule: str
    line: int
    what: str
    places: tuple[int, ...] = ()
    severity: Severity | None = None
    optional: str = ""


class _Pattern(NamedTuple):
    rule: str
    expression: re.Pattern[str]
    severity: Severity | None = None


def _pattern(rule: str, text: str, severity: Severity | None = None) -> _Pattern:
    return _Pattern(rule, re.compile(text, re.VERBOSE), severity)


# A value after a key or an option: `--key value`, `--key=value`, `key: value`, `"key": "value"`.
_IS = r"""["']?\s*[=:\s]\s*["']?"""
_END = r"""(?=["'\s,;}\]]|$)"""

SETTINGS: tuple[_Pattern, ...] = (
    _pattern("flash-attn-kernel", rf"attn[\w-]*{_IS}flash_attention_[23]{_END}"),
    _pattern("flash-attn-kernel", rf"(?<!\w)flash_attention{_IS}(?i:true){_END}"),
    _pattern("xformers-op", rf"(?<!\w)xformers_attention{_IS}(?i:true){_END}"),
    _pattern("xformers-op", r"--enable_xformers_memory_efficient_attention\b"),
    _pattern("bitsandbytes", rf"(?<!\w)load_in_[48]bit{_IS}(?i:true|1){_END}"),
    _pattern("bitsandbytes", rf"optim(?:izer)?(?:_name|_type)?{_IS}(?:\w*_8bit|paged_\w+){_END}"),
    _pattern("bitsandbytes", r"--use_8bit_adam\b"),
    _pattern("deepspeed-runtime", rf"distributed_type{_IS}DEEPSPEED{_END}"),
    _pattern("deepspeed-runtime", rf"(?<![\w/])deepspeed(?:_config(?:_file)?)?{_IS}\S+\.json\b"),
    _pattern("deepspeed-runtime", r"--deepspeed\b(?!_)"),
    _pattern("apex-fused", rf"optim(?:izer)?{_IS}adamw_apex_fused{_END}"),
    _pattern("nccl-backend", rf"(?:(?:dist|ddp|distributed)[_-]?)?backend{_IS}nccl{_END}"),
    _pattern("fp16-cast", rf"(?:precision|dtype){_IS}(?:fp16|float16|16-mixed){_END}"),
    _pattern("fp16-cast", rf"""(?<![\w-])fp16["']?\s*:\s*(?i:true){_END}"""),
    _pattern("fp16-cast", r"(?<!\S)--fp16(?=\s|$|[=\s](?i:true))"),
    _pattern("torch-compile-inductor", rf"dynamo_backend{_IS}(?i:inductor){_END}"),
    _pattern("node8-topology", rf"--(?:nproc|gpus)[_-]per[_-]node{_IS}8{_END}"),
    _pattern("node8-topology", rf"--num[_-]gpus{_IS}8{_END}"),
    _pattern("node8-topology", r"--(?:gres|gpus-per-node|gpus)[=\s](?:gpu:)?(?:\w+:)?8(?=\s|$)"),
    _pattern("node8-topology", r"(?<!\w)(?i:gpus_per_node|n?proc_per_node)\s*[=:]\s*8(?=\s|$)"),
)  # fmt: skip

VARIABLES: tuple[_Pattern, ...] = (
    _pattern("cuda-env", r"(?<![\w$])CUDA_VISIBLE_DEVICES\s*[= ]\s*[\w\"'$]\S*", "medium"),
    _pattern("jax-gpu-kernel", r"XLA_FLAGS\s*[= ].*--xla_gpu_\w*", "low"),
    _pattern("tf32-flag", r"(?<![\w$])NVIDIA_TF32_OVERRIDE\s*[= ]"),
    _pattern("cudnn-flag", r"(?<![\w$])CUBLAS_WORKSPACE_CONFIG\s*[= ]"),
    _pattern(
        "cuda-env",
        r"(?<![\w$])(?:NCCL_\w+|CUDA_LAUNCH_BLOCKING|TORCH_CUDA_ARCH_LIST|PYTORCH_CUDA_ALLOC_CONF|"
        r"CUDA_DEVICE_ORDER|CUDA_DEVICE_MAX_CONNECTIONS|TORCH_NCCL_\w+|"
        r"XLA_PYTHON_CLIENT_MEM_FRACTION)\s*[= ]\s*\S+",
    ),
)
DEEPSPEED_KEYS = re.compile(r'"(zero_optimization|train_micro_batch_size_per_gpu)"\s*:')
DEEPSPEED_FP16 = re.compile(r'"fp16"\s*:\s*\{[^{}]*"enabled"\s*:\s*true', re.DOTALL)
DEEPSPEED_LAUNCH = re.compile(r"^\s*(?:\w+=\S+\s+)*deepspeed\s+(?:-|\S+\.py\b|\$)")
INSTALL = re.compile(r"\b(?:pip3?|uv|conda|mamba)\b.*?\binstall\b(?P<packages>.*)")
REQUIREMENT = re.compile(r"^\s*(?:-\s+)?[\"']?(?P<name>[A-Za-z0-9][\w.-]*)")
BROUGHT_ALONG = frozenset({"triton"})
"""Packages that PyTorch itself requires: listed in every lock file, and harmless until imported."""
CUDA_SUFFIX = re.compile(r"_(?:cuda|cu)\d*x?$")


def config_hazards(name: str, text: str, rule_of: Callable[[str], str]) -> tuple[ConfigHazard, ...]:
    """The hazards in one configuration file, one a cause; ``name`` decides how it is read.

    ``rule_of`` gives the rule of a package's import name, "" for a harmless one.
    """
    pure = PurePosixPath(name)
    suffix = pure.suffix.lower()
    lines = text.splitlines()
    if suffix == ".json":
        found = [*_deepspeed(text), *_settings(lines)]
    elif pure.name == "pyproject.toml":
        found = list(_pyproject(lines, rule_of))
    elif suffix in (".txt", ".in", ".cfg") or pure.name == "Pipfile":
        found = list(_requirements(_bare(lines), rule_of))
    elif suffix in (".yaml", ".yml"):
        bare = _bare(lines)
        installs = _requirements(bare, rule_of) if "environment" in pure.name else ()
        found = [*installs, *_settings(bare), *_variables(bare)]
    else:
        bare = _bare(lines)
        found = [*_installs(bare, rule_of), *_settings(bare), *_variables(bare), *_launch(bare)]
    return tuple(_one_a_cause(found))


def config_findings(root: Path, name: str, target: Target | None) -> list[Finding]:
    """Findings of a configuration file, worded for ``target`` (None: each with all its targets)."""
    try:
        text = (root / name).read_bytes().decode("utf-8", "replace")
    except OSError:
        return []
    found = []
    for hazard in config_hazards(name, text, package_rule):
        rule = rules()[hazard.rule]
        if target is not None and target not in rule.applies_to:
            continue
        worded = target or rule.applies_to[0]
        told = [hazard.what, rule.on_device.rstrip(".")]
        told += [f"only with {hazard.optional}"] if hazard.optional else []
        found.append(
            Finding(
                rule=rule.slug,
                target=worded,
                topic=rule.topic,
                severity=hazard.severity or rule.severity,
                file=name,
                line=hazard.line,
                end_line=hazard.line,
                message=". ".join(filter(None, told)),
                instead=instead(rule, worded, hazard.what),
                places=tuple(Place(name, line) for line in hazard.places),
                cost=without_job(rule.slug, rule.cost, {}),
                loop="startup",
                targets=rule.applies_to,
            )
        )
    return found


def _bare(lines: list[str]) -> list[str]:
    """Lines without their comments; ``#SBATCH`` and its like are read by the scheduler."""
    return [
        line if line.startswith(("#SBATCH", "#PBS", "#BSUB")) else re.sub(r"(^|\s)#.*", "", line)
        for line in lines
    ]


def _settings(lines: list[str]) -> Iterator[ConfigHazard]:
    yield from _matching(lines, SETTINGS)


def _variables(lines: list[str]) -> Iterator[ConfigHazard]:
    yield from _matching(lines, VARIABLES)


def _matching(lines: list[str], patterns: tuple[_Pattern, ...]) -> Iterator[ConfigHazard]:
    for number, line in enumerate(lines, start=1):
        for rule, expression, severity in patterns:
            match = expression.search(line)
            if match is not None:
                yield ConfigHazard(rule, number, match[0].strip("\"' "), severity=severity)
                break


def _launch(lines: list[str]) -> Iterator[ConfigHazard]:
    for number, line in enumerate(lines, start=1):
        if DEEPSPEED_LAUNCH.match(line):
            yield ConfigHazard("deepspeed-runtime", number, "the deepspeed launcher")


def _deepspeed(text: str) -> Iterator[ConfigHazard]:
    """A DeepSpeed configuration: the engine itself, and fp16 where it is switched on."""
    keys = list(DEEPSPEED_KEYS.finditer(text))
    if keys:
        lines = sorted(text.count("\n", 0, key.start()) + 1 for key in keys)
        what = f"a DeepSpeed configuration ({keys[0][1]})"
        yield ConfigHazard("deepspeed-runtime", lines[0], what, tuple(lines[1:]))
        fp16 = DEEPSPEED_FP16.search(text)
        if fp16 is not None:
            at = text.count("\n", 0, fp16.start()) + 1
            yield ConfigHazard("fp16-cast", at, "fp16 enabled", severity="medium")


def _requirements(
    lines: list[str], rule_of: Callable[[str], str], optional: str = ""
) -> Iterator[ConfigHazard]:
    for number, line in enumerate(lines, start=1):
        match = REQUIREMENT.match(line)
        if match is None:
            continue
        marked = "extra ==" in line or "platform_" in line
        yield from _package(
            match["name"], number, rule_of, optional or ("a marker" if marked else "")
        )


def _package(
    package: str, line: int, rule_of: Callable[[str], str], optional: str = ""
) -> Iterator[ConfigHazard]:
    """A package by the name it is installed under, which differs from that of its import."""
    plain = package.lower().replace("-", "_").replace(".", "_")
    names = (plain, CUDA_SUFFIX.sub("", plain), package.replace("-", "_"))
    rule = next(filter(None, map(rule_of, names)), "")
    if rule and plain not in BROUGHT_ALONG:
        severity: Severity | None = "low" if optional else None
        yield ConfigHazard(rule, line, f"needs {package}", severity=severity, optional=optional)


def _installs(lines: list[str], rule_of: Callable[[str], str]) -> Iterator[ConfigHazard]:
    """``pip install`` and its like, over lines that continue with a backslash."""
    installing = False
    for number, line in enumerate(lines, start=1):
        match = INSTALL.search(line)
        words = match["packages"] if match else line if installing else ""
        words, *command_after = re.split(r"[&;|]", words, maxsplit=1)
        installing = (installing or match is not None) and line.rstrip().endswith("\\")
        installing = installing and not command_after
        for word in words.rstrip("\\").split():
            package = REQUIREMENT.match(word)
            if package is not None and not word.startswith("-"):
                yield from _package(package["name"], number, rule_of)


def _pyproject(lines: list[str], rule_of: Callable[[str], str]) -> Iterator[ConfigHazard]:
    """Dependencies in pyproject.toml; those of an extra are optional. TOML itself has no lines."""
    table, key, inside = "", "", False
    for number, line in enumerate(_bare(lines), start=1):
        header = re.match(r"\s*\[([^\[\]]+)\]\s*$", line)
        if header and not inside:
            table, key = header[1].strip(), ""
            continue
        assigned = re.match(r"\s*[\"']?([\w.-]+)[\"']?\s*=\s*(.*)", line)
        if assigned and not inside:
            key, line = assigned[1], assigned[2]
        extra = f"the extra '{key}'" if "optional-dependencies" in table else ""
        if "poetry" in table and table.endswith("dependencies") and assigned:
            group = "" if table == "tool.poetry.dependencies" else f"the group {table}"
            yield from _package(key, number, rule_of, group)
        elif extra or table == "dependency-groups" or key in ("dependencies", "requires"):
            optional = extra or (f"the group '{key}'" if table == "dependency-groups" else "")
            for quoted in re.findall(r"[\"']([A-Za-z0-9][\w.-]*)[^\"']*[\"']", line):
                yield from _package(quoted, number, rule_of, optional)
            inside = (inside or "[" in line) and "]" not in re.sub(r"\[[\w,\s-]*\]", "", line)


def _one_a_cause(found: list[ConfigHazard]) -> Iterator[ConfigHazard]:
    """Hazards of one rule as one, packages of a third party excepted: each has its own way out."""
    causes: dict[tuple[str, str], ConfigHazard] = {}
    for hazard in sorted(found, key=lambda h: h.line):
        named = hazard.rule == "third-party-gpu-kernel"
        key = hazard.rule, hazard.what.lower() if named else ""
        first = causes.get(key)
        if first is None:
            causes[key] = hazard
        elif hazard.line != first.line and hazard.line not in first.places:
            places = (*first.places, hazard.line, *hazard.places)
            optional = first.optional and hazard.optional
            severity = first.severity if first.severity == hazard.severity else hazard.severity
            causes[key] = replace(first, places=places, optional=optional, severity=severity)
    yield from causes.values()
