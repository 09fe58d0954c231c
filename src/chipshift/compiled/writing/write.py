"""The built-in step as one runnable file: its modules joined, the plan written in, and what this
job does not need left out."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import chipshift.compiled.step
from chipshift.compiled.step.config import Config
from chipshift.compiled.writing.fold import folded
from chipshift.compiled.writing.prune import PART, pruned
from chipshift.compiled.writing.text import quoted

PARTS = (
    "config", "sharding", "remat_names", "remat", "attention", "moe", "weights", "model",
    "train_step",
)  # fmt: skip
"""In the order that a reader, and Python, needs them."""

_OWN_IMPORT = re.compile(r"^from chipshift\.compiled\.step[^\n]*?(?:\([^)]*\)|$)\n?", re.MULTILINE)
_FUTURE = "from __future__ import annotations\n"
_MODULE_CALLS = re.compile(r"\bmoe\.(?=experts)")
_HEADING = re.compile(rf"^{PART} = (.*)$", re.MULTILINE)
_CONFIG = re.compile(r"^CONFIG = None$", re.MULTILINE)

_MAIN = '''

CONFIG = None


def main() -> None:
    """Run a few steps on random tokens over the devices there are."""
    wanted = int(np.prod(CONFIG.mesh))
    jax.config.update("jax_num_cpu_devices", wanted)  # where there is no accelerator
    there = len(jax.devices())
    if there < wanted:
        raise SystemExit(
            f"this step is cut over {wanted} devices and there are {there}; a CPU shows as "
            "many with JAX_PLATFORMS=cpu"
        )
    # The attention kernel is the TPU's; anywhere else the same in plain JAX.
    kernel = CONFIG.attention if jax.default_backend() == "tpu" else "blockwise"
    cfg = replace(CONFIG, attention=kernel)
    mesh = jax.make_mesh(
        cfg.mesh,
        MESH_AXES,
        axis_types=(AxisType.Auto,) * len(MESH_AXES),
        devices=jax.devices()[:wanted],
    )
    step, _ = make_step(mesh, cfg)
    place = jax.tree.map(lambda spec: NamedSharding(mesh, spec), state_specs(cfg))
    state = jax.jit(partial(init_state, cfg), out_shardings=place)()
    shape = (cfg.accumulation, cfg.batch, cfg.seq_len)
    ids = jax.random.randint(jax.random.key(1), shape, 0, cfg.vocab, jnp.int32)
    for number in range(3):
        state, metrics = step(state, ids, jnp.roll(ids, -1, axis=-1))
        print(number, {name: float(value) for name, value in metrics.items()})


if __name__ == "__main__":
    main()
'''


def source(cfg: Config, title: str) -> str:
    """Python source of the step for ``cfg``; ``title`` says what it is for."""
    text = pruned(folded(joined(title), cfg, tuple({cfg.attention, "blockwise"})), root="main")
    text = _HEADING.sub(lambda found: commented(ast.literal_eval(found[1])), text)
    text = re.sub(r"^(#.*)\n\n(?=@|def |class )", r"\1\n\n\n", text, flags=re.MULTILINE)
    text = _CONFIG.sub(lambda _: f"CONFIG = {literal(cfg, fields_of(text))}", text)
    text = re.sub(r"\n{3,}(?=    )", "\n\n", text)  # before a method, others between left out
    return re.sub(r"\n{4,}", "\n\n\n", text)


def joined(title: str) -> str:
    """All modules of the step in one text, imports first, a heading above each."""
    folder = Path(chipshift.compiled.step.__file__).parent
    parts, imports = [], []
    for name in PARTS:
        text = (folder / f"{name}.py").read_text("utf8")
        text = _OWN_IMPORT.sub("", text).replace(_FUTURE, "")
        doc, body = _split_docstring(text)
        found, body = _split_imports(body)
        imports += found
        parts.append(f"\n\n{PART} = {doc!r}\n\n{body.strip()}\n")
    imports.append("from dataclasses import replace")
    head = f'"""{title}"""\n\n{_FUTURE}\n' + "\n".join(_merged(imports))
    return head + _MODULE_CALLS.sub("", "".join(parts)) + _MAIN


def commented(doc: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in doc.splitlines())


def fields_of(text: str) -> dict[str, set[str]]:
    """The fields that each class of a file still has."""
    return {
        node.name: {
            inner.target.id
            for inner in node.body
            if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name)
        }
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef)
    }


def literal(value: Any, kept: dict[str, set[str]], indent: str = "") -> str:
    """A value as Python source: of dataclasses, fields that are kept and not at their default."""
    inner = indent + "    "
    if isinstance(value, tuple) and any(map(_has_class, value)):
        items = [f"{inner}{literal(one, kept, inner)},\n" for one in value]
        return f"(\n{''.join(items)}{indent})"
    if not is_dataclass(value):
        return quoted(value)
    name = type(value).__name__
    given = {
        field.name: getattr(value, field.name)
        for field in fields(value)
        if field.name in kept[name] and getattr(value, field.name) != field.default
    }
    items = [f"{inner}{key}={literal(one, kept, inner)},\n" for key, one in given.items()]
    return f"{name}(\n{''.join(items)}{indent})" if items else f"{name}()"


def _has_class(value: Any) -> bool:
    return is_dataclass(value) or (isinstance(value, tuple) and any(map(_has_class, value)))


def _merged(imports: list[str]) -> list[str]:
    """Each module imported from once, with all the names that any part takes of it."""
    names: dict[str, set[str]] = {}
    whole = set()
    for line in imports:
        if found := re.match(r"from (\S+) import (.+)$", line):
            names.setdefault(found[1], set()).update(re.split(r",\s*", found[2].strip()))
        else:
            whole.add(line)
    taken = [f"from {module} import {', '.join(sorted(of))}" for module, of in names.items()]
    lines = [*sorted(whole), *sorted(taken)]
    own = [line for line in lines if re.split(r"[ .]", line)[1] in sys.stdlib_module_names]
    return [*own, "", *(line for line in lines if line not in own)]


def _split_docstring(text: str) -> tuple[str, str]:
    _, doc, body = text.split('"""', 2)
    return doc.strip(), body


def _split_imports(text: str) -> tuple[list[str], str]:
    """Imports at the top level, and the rest; a bare ``import x`` inside a function stays."""
    lines = text.splitlines()
    found = [line for line in lines if re.match(r"(import|from) ", line)]
    rest = [line for line in lines if not re.match(r"(import|from) ", line)]
    return found, "\n".join(rest)
