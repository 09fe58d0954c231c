"""What is compiled: a program, a target, options; as data that a child process reads."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from chipshift.compiled.step.config import Block, Config, Variant
from chipshift.compiled.topology import Target
from chipshift.models.rope import Rope

OPTIONS: dict[str, dict[str, Any]] = {"tpu": {}, "cuda": {"xla_gpu_autotune_level": 0}}
"""Compiler options by platform: the compiler's own effort in both modes (docs/compile.md has what
lower effort would change)."""

PACKAGES = ("jax", "jaxlib", "libtpu", "jax-cuda12-plugin")


@dataclass(frozen=True)
class Request:
    """One compilation.

    Attributes:
        kind: ``job`` (the built-in step), ``entry`` (a user's JAX step), ``torch`` (a user's
            module) or ``hlo`` (a file).
        config: of the built-in step, else None; plan: as ``--plan`` takes it; notes: where the
            step departs from the job.
        entry: ``package.module:function`` of the user's code.
        file: StableHLO or HLO text.
        path: folders to import the user's code from.
        mode: ``fast`` or ``time``.
        mesh: (axis, size) for programs whose mesh is not the built-in step's.
        options: compiler options besides the mode's.
        keep: file to write the optimised program to, "" = none.
        detail: where it does not fit, find out what is the largest, which compiles once more.
    """

    kind: str
    program: str
    target: Target
    mode: str = "fast"
    config: Config | None = None
    plan: str = ""
    notes: tuple[str, ...] = ()
    entry: str = ""
    file: str = ""
    path: tuple[str, ...] = ()
    mesh: tuple[tuple[str, int], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    keep: str = ""
    detail: bool = True

    @property
    def compiler_options(self) -> dict[str, Any]:
        return {**OPTIONS[self.target.platform], **dict(self.options)}

    @property
    def stops_when_placed(self) -> bool:
        """Whether the compiler is stopped once its buffers are placed: memory and collectives are
        settled then, its cycles and algorithms not yet chosen. XLA:GPU is quick enough whole."""
        return self.mode == "fast" and self.target.platform == "tpu"

    @property
    def has_dump(self) -> bool:
        """Whether the compiler's own dump is read: libtpu's, for its buffer assignment."""
        return self.target.platform == "tpu"

    @property
    def part(self) -> Path:
        """Where the program is written before it is whole; whoever interrupts removes it."""
        return Path(f"{self.keep}.part")

    def as_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def from_json(text: str) -> Request:
    """The request that ``as_json`` wrote."""
    values = json.loads(text)
    values["target"] = Target(**values["target"])
    if values["config"] is not None:
        values["config"] = config_from(values["config"])
    values["path"], values["notes"] = tuple(values["path"]), tuple(values["notes"])
    values["mesh"] = tuple((name, size) for name, size in values["mesh"])
    values["options"] = tuple((name, value) for name, value in values["options"])
    return Request(**values)


def config_from(values: dict[str, Any]) -> Config:
    """A ``Config`` from its dictionary."""
    values = dict(values)
    values["variant"] = Variant(**values["variant"])
    values["mesh"] = tuple(values["mesh"])
    values["segments"] = tuple(
        (tuple(Block(**{**block, "rope": Rope(**block["rope"])}) for block in unit), repeats)
        for unit, repeats in values["segments"]
    )
    return Config(**{field.name: values[field.name] for field in fields(Config)})


def versions() -> dict[str, str]:
    """Installed versions of what compiles, read without importing any of it."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def key(request: Request) -> str:
    """Content address: everything that the compiled program and its reading depend on."""
    digest = hashlib.sha256(replace(request, detail=True).as_json().encode())
    digest.update(json.dumps(versions(), sort_keys=True).encode())
    here = Path(__file__).parent
    for source in sorted(here.rglob("*.py")):
        if source.name not in ("cache.py", "run.py", "against.py"):
            digest.update(source.read_bytes())
    if request.file:
        digest.update(Path(request.file).read_bytes())
    return digest.hexdigest()
