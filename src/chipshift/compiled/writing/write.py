"""The built-in step as one runnable file: its modules joined, the plan written in, and what this
job does not need left out."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import chipshift
from chipshift.compiled.step.config import Config
from chipshift.compiled.writing.calls import plain
from chipshift.compiled.writing.fold import folded
from chipshift.compiled.writing.prune import PART, pruned
from chipshift.compiled.writing.text import WIDTH, quoted, refitted

PARTS = (
    "models/rope", *(f"compiled/step/{name}" for name in (
        "config", "axes", "sharding", "remat_names", "remat", "attention", "moe", "weights",
        "model", "train_step",
    )),
)  # fmt: skip
"""In the order that a reader, and Python, needs them."""

_OWN_IMPORT = re.compile(r"^from chipshift\.[^\n]*?(?:\([^)]*\)|$)\n?", re.MULTILINE)
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
    if len(jax.devices()) < wanted:
        raise SystemExit(f"not {wanted} devices here; a CPU shows as many with JAX_PLATFORMS=cpu")
    # The attention kernel is the TPU's; anywhere else the same in plain JAX.
    kernel = CONFIG.attention if jax.default_backend() == "tpu" else "blockwise"
    cfg = replace(CONFIG, attention=kernel)
    kinds = (AxisType.Auto,) * len(MESH_AXES)
    mesh = jax.make_mesh(cfg.mesh, MESH_AXES, kinds, devices=jax.devices()[:wanted])
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
    text, before = joined(title), ""
    while text != before:
        before = text
        text = folded(text, cfg, tuple({cfg.attention, "blockwise"}))
        text = pruned(text, root="main")
        text = pruned(plain(text, ("Weight",)), root="main")
    text = refitted(text)
    text = _HEADING.sub(lambda found: commented(ast.literal_eval(found[1])), text)
    text = re.sub(r"^(#.*)\n\n(?=@|def |class )", r"\1\n\n\n", text, flags=re.MULTILINE)
    text = _CONFIG.sub(lambda _: constants(cfg, fields_of(text)), text)
    text = re.sub(r"\n{3,}(?=    )", "\n\n", text)  # before a method, others between left out
    return re.sub(r"\n{4,}", "\n\n\n", text)


def joined(title: str) -> str:
    """All modules of the step in one text, imports first, a heading above each."""
    folder = Path(chipshift.__file__).parent
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


def constants(cfg: Config, kept: dict[str, set[str]]) -> str:
    """``CONFIG`` as Python source, each kind of layer and of rotary positions under a name of its
    own before it."""
    blocks = list(dict.fromkeys(block for unit, _ in cfg.segments for block in unit))
    ropes = [] if "rope" not in kept["Block"] else list(dict.fromkeys(b.rope for b in blocks))
    named = _names("ROPE", ropes) | _names("LAYER", blocks)
    lines = [built(value, kept, named, f"{name} = ") for value, name in named.items()]
    return "\n".join([*lines, built(cfg, kept, named, "CONFIG = ")])


def _names(word: str, values: list[Any]) -> dict[Any, str]:
    """A name for each value, numbered where there are several."""
    if len(values) == 1:
        return {values[0]: word}
    return {value: f"{word}_{number}" for number, value in enumerate(values, 1)}


def built(value: Any, kept: dict[str, set[str]], named: dict[Any, str], before: str = "") -> str:
    """A dataclass as Python source, ``before`` before it: fields that are kept and not at their
    default, laid out as ruff does it; the step's own one a line."""
    inner = " " * (len(before) - len(before.lstrip()) + 4)
    begins = f"{before}{type(value).__name__}("
    items = []
    for field in fields(value):
        one, name = getattr(value, field.name), f"{inner}{field.name}="
        if field.name in kept[type(value).__name__] and one != field.default:
            nested = is_dataclass(one) and one not in named
            text = built(one, kept, named, name) if nested else name + _literal(one, named)
            items.append(text)
    line = ", ".join(item.strip() for item in items)
    if not isinstance(value, Config):
        if len(f"{begins}{line}),") <= WIDTH:
            return f"{begins}{line})"
        if len(inner + line) <= WIDTH:
            return f"{begins}\n{inner}{line}\n{inner[4:]})"
    return f"{begins}\n" + "".join(f"{item},\n" for item in items) + f"{inner[4:]})"


def _literal(value: Any, named: dict[Any, str]) -> str:
    if isinstance(value, tuple) and any(map(_has_class, value)):
        items = ", ".join(_literal(one, named) for one in value)
        return f"({items}{',' * (len(value) == 1)})"
    return named[value] if is_dataclass(value) else quoted(value)


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
