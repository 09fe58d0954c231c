"""Write src/chipshift/audit/api_names.json: the names that exist in packages which cannot share an
environment with the tests (torch_tpu and torch_xla want different PyTorch versions).

    python scripts/write_api_names.py [--torch-tpu 0.2.0] [--torch-xla 2.9.0] [--torch WHEEL_OR_PIN]

torch_xla is read from the sources in its wheel, without installing it: its public interface is
Python. torch_tpu builds ``torch.tpu`` when it is imported, so it is installed with PyTorch in a
throw-away environment and asked. Neuron's packages on the public index are stubs: its names are
kept by hand in the manifest, each with the page that documents it, and are carried over.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MANIFEST = Path(__file__).parents[1] / "src" / "chipshift" / "audit" / "api_names.json"
ASK_TORCH_TPU = """
import importlib, json
import torch, torch_tpu
from torch_tpu._internal import public_api
names = {}
for module in public_api._PUBLIC_MODULES:
    if any(part.startswith("_") for part in module.split(".")):
        continue
    names[module] = [n for n in dir(importlib.import_module(module)) if not n.startswith("_")]
print("NAMES" + json.dumps(names))
"""


def main() -> None:
    """Fetch, read and write."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--torch-tpu", default="0.2.0")
    options.add_argument("--torch-xla", default="2.9.0")
    options.add_argument("--only", choices=["torch_tpu", "torch_xla"], help="keep the other")
    options.add_argument("--torch", default="torch==2.13.0", help="what pip installs as PyTorch")
    chosen = options.parse_args()
    kept = json.loads(MANIFEST.read_text()) if MANIFEST.exists() else {}
    manifest: dict[str, Any] = {"neuron": {"names": {}}, **kept}
    if chosen.only != "torch_xla":
        torch = "-".join(Path(chosen.torch).name.split("-")[:2])
        manifest["torch_tpu"] = {
            "version": chosen.torch_tpu,
            "read": f"by importing it beside {torch}",
            "names": names_of_torch_tpu(chosen.torch_tpu, chosen.torch),
        }
    if chosen.only != "torch_tpu":
        manifest["torch_xla"] = {
            "version": chosen.torch_xla,
            "read": "from the Python sources in its wheel",
            "names": names_of_wheel("torch_xla", chosen.torch_xla),
        }
    MANIFEST.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")


def names_of_wheel(package: str, version: str) -> dict[str, list[str]]:
    """Public names by module, from the sources in a wheel."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", folder]
        subprocess.run([*pip, f"{package}=={version}"], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        names: dict[str, list[str]] = {}
        stars: dict[str, list[str]] = {}
        with zipfile.ZipFile(wheel) as archive:
            for member in sorted(archive.namelist()):
                parts = member.removesuffix(".py").removesuffix("/__init__").split("/")
                if not member.endswith(".py") or parts[0] != package or _private(parts):
                    continue
                tree = ast.parse(archive.read(member))
                names[".".join(parts)] = sorted({n for n in defined(tree) if n[0] != "_"})
                stars[".".join(parts)] = [
                    ".".join([*parts[: len(parts) - node.level + is_package], node.module or ""])
                    for node in ast.walk(tree)
                    if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
                    for is_package in [member.endswith("/__init__.py")]
                ]
    for module, sources in stars.items():
        names[module] = sorted({*names[module], *(n for s in sources for n in names.get(s, []))})
    return names


def _private(parts: list[str]) -> bool:
    return any(part.startswith("_") or part in ("test", "tests") for part in parts)


def defined(tree: ast.Module) -> Iterator[str]:
    """Names that a module binds at its top level, also inside ``if`` and ``try``."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (
                alias.asname or alias.name.split(".")[0]
                for alias in node.names
                if alias.name != "*"
            )
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.If | ast.Try | ast.With):
            pending += ast.iter_child_nodes(node)
        elif isinstance(node, ast.ExceptHandler):
            pending += node.body


def names_of_torch_tpu(version: str, torch: str) -> dict[str, list[str]]:
    """Public names by module below ``torch.tpu``, asked in a throw-away environment."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        subprocess.run(
            [python, "-m", "pip", "install", "-q", torch, f"torch_tpu=={version}"], check=True
        )
        asked = subprocess.run(
            [python, "-c", ASK_TORCH_TPU], check=True, capture_output=True, text=True, timeout=600
        )
    line = next(line for line in asked.stdout.splitlines() if line.startswith("NAMES"))
    return {module: sorted(names) for module, names in json.loads(line[5:]).items()}


if __name__ == "__main__":
    main()
