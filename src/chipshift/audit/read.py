"""Reads one file: decodes, parses, walks it; a file that cannot be read says why."""

from __future__ import annotations

import ast
import json
import re
import warnings
from pathlib import Path

from chipshift.audit.detect import detectors
from chipshift.audit.facts import STEP, FileFacts
from chipshift.audit.names import module_name, words
from chipshift.audit.packages import PACKAGES
from chipshift.audit.prepass import outline
from chipshift.audit.reader import Reader
from chipshift.audit.walk import read_module

MAX_BYTES = 4_000_000
"""Larger files are generated ones; hand-written ones seen are below 1 MB."""
SCRIPT_LINES = 60
TORCH_ROOTS = words(
    """torch torchvision torchaudio transformers accelerate trl lightning pytorch_lightning
    deepspeed diffusers peft timm fairseq torch_xla torchax torchtext lightning_fabric
    torchacc"""
)
JAX_ROOTS = words(
    """jax flax optax haiku equinox orbax chex tokamax jaxlib jaxtyping maxtext MaxText praxis
    paxml"""
)
RELEVANT = re.compile(
    rb"\b(?:" + "|".join(PACKAGES).encode() + rb")\b|"
    rb"torch|jax|flax|cuda|CUDA|nccl|NCCL|triton|deepspeed|flash_attn|accelerat|transformers"
    rb"|tensorflow|collate|batch|DataLoader|Adam|loss|trl|Trainer|lightning|nonzero|\.item\(|optim|\bxla\b|\bxm\b|device"
)


def read_file(root: Path, file: str) -> FileFacts:
    """The facts of ``file`` (relative to ``root``); ``skipped`` says why there are none."""
    facts = FileFacts(file, module_name(file))
    path = root / file
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            facts.skipped = f"{size / 1e6:.1f} MB, taken as generated"
            return facts
        data = path.read_bytes()
    except OSError as error:
        facts.skipped = f"cannot be read: {error.strerror}"
        return facts
    source = _decode(data, facts)
    if source is None:
        return facts
    if file.endswith(".ipynb"):
        source = _notebook(source, facts)
        if source is None:
            return facts
    return read_source(source, facts)


def _decode(data: bytes, facts: FileFacts) -> str | None:
    if b"\0" in data:
        facts.skipped = "has NUL bytes"
        return None
    facts.lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        found = re.match(rb"(?:[^\n]*\n)?[^\n]*coding[:=]\s*([-\w.]+)", data)
        if found is not None:
            try:
                return data.decode(found.group(1).decode())
            except (LookupError, UnicodeDecodeError):
                pass
        facts.skipped = "is not UTF-8 and names no encoding that fits"
        return None


def _notebook(source: str, facts: FileFacts) -> str | None:
    """The code cells one below the other; ``facts.cells`` gives (first line, cell) of each."""
    try:
        cells = json.loads(source).get("cells", [])
    except (ValueError, AttributeError, RecursionError):
        facts.skipped = "is no notebook that can be read"
        return None
    lines: list[str] = []
    starts: list[tuple[int, int]] = []
    for index, cell in enumerate(cells if isinstance(cells, list) else []):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        text = cell.get("source", "")
        body = "".join(text) if isinstance(text, list) else str(text)
        body = re.sub(r"^(\s*)[%!].*$", r"\1pass", body, flags=re.M)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse(body)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            body = "\n" * body.count("\n")
        starts.append((len(lines) + 1, index))
        lines.extend(body.split("\n"))
    facts.cells = tuple(starts)
    facts.lines = len(lines)
    return "\n".join(lines)


def _why(error: BaseException, source: str) -> str:
    if isinstance(error, RecursionError | MemoryError):
        return "is nested too deeply to parse"
    if isinstance(error, SyntaxError):
        if re.search(r"^\s*print [^(=\n]|except \w+, \w+:|^\s*exec [\"']", source, re.M):
            return "is Python 2"
        if "nested" in error.msg:
            return "is nested too deeply to parse"
        if "{{" in source and ("{%" in source or "}}" in source):
            return f"is a template (line {error.lineno})"
        return f"does not parse (line {error.lineno}: {error.msg})"
    return f"cannot be parsed: {error}"


def read_source(source: str, facts: FileFacts) -> FileFacts:
    """Parse and walk ``source`` into ``facts``."""
    # A package's front says nothing by itself, but other files' names lead through it.
    front = facts.file.endswith("__init__.py") and "import" in source
    if not front and not RELEVANT.search(source.encode("utf-8", "replace")):
        return facts
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        facts.skipped = _why(error, source)
        return facts
    try:
        _walk(tree, source, facts)
    except RecursionError:
        facts.skipped = "is nested too deeply to parse"
        facts.hazards, facts.funcs = [], []
    return facts


def _walk(tree: ast.Module, source: str, facts: FileFacts) -> None:
    seen = outline(tree, facts.module, facts.file.endswith("__init__.py"), source)
    facts.imports = dict(seen.aliases)
    roots = {one.package.split(".", 1)[0] for one in seen.imports}
    roots.update(star.split(".", 1)[0] for star in seen.stars)
    torch, jax = bool(roots & TORCH_ROOTS), bool(roots & JAX_ROOTS)
    facts.uses_xla = "torch_xla" in roots
    if torch and jax:
        mentions_jax = source.count("jax.") + source.count("jnp.")
        jax = mentions_jax > source.count("torch.")
        torch = not jax
    facts.jax_weight = 1 if jax else (-1 if torch else 0)
    # A file that imports neither is read as PyTorch, the more cautious of the two.
    facts.uses_torch, facts.uses_jax = torch or not jax, jax
    for star in seen.stars:
        facts.imports[f"*{star}"] = star
    reader = Reader(tree, facts, seen, source, detectors())
    try:
        read_module(reader)
    finally:
        reader.close()
    script = facts.lines <= SCRIPT_LINES and "__main__" not in source and not seen.classes
    if script and not any(func.step_spans for func in facts.funcs):
        # A short script: what stands at its top level is the work itself, not its preparation.
        facts.funcs[0].role = STEP
    facts.classes = {
        name: tuple(_base_text(base) for base in node.bases) for name, node in seen.classes.items()
    }


def _base_text(node: ast.expr) -> str:
    try:
        return ast.unparse(node)[:200]
    except (ValueError, RecursionError):
        return ""
