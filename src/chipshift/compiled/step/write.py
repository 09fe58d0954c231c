"""The built-in step as one runnable file: this folder's modules joined, the plan written in."""

from __future__ import annotations

import re
from pathlib import Path
from pprint import pformat

from chipshift.compiled.step.config import Config

PARTS = (
    "config", "sharding", "remat_names", "remat", "attention", "moe", "model", "train_step",
)  # fmt: skip
"""In the order that a reader, and Python, needs them."""

_OWN_IMPORT = re.compile(r"^from chipshift\.compiled\.step[^\n]*?(?:\([^)]*\)|$)\n?", re.MULTILINE)
_FUTURE = "from __future__ import annotations\n"
_MODULE_CALLS = re.compile(r"\b(moe|remat)\.(?=experts|policy)")

_MAIN = '''

CONFIG = {config}


def main() -> None:
    """Run a few steps on random tokens over the devices there are."""
    wanted = int(np.prod(CONFIG.mesh))
    jax.config.update("jax_num_cpu_devices", wanted)  # where there is no accelerator
    there = len(jax.devices())
    if there < wanted:
        raise SystemExit(
            f"this step is cut over {{wanted}} devices and there are {{there}}; a CPU shows as "
            "many with JAX_PLATFORMS=cpu"
        )
    # The attention kernel is the TPU's; anywhere else the same in plain JAX.
    kernel = CONFIG.attention if jax.default_backend() == "tpu" else "blockwise"
    cfg = replace(CONFIG, attention=kernel)
    mesh = jax.make_mesh(
        cfg.mesh, MESH_AXES, axis_types=(AxisType.Auto,) * len(MESH_AXES),
        devices=jax.devices()[:wanted],
    )
    step, _ = make_step(mesh, cfg)
    place = jax.tree.map(lambda spec: NamedSharding(mesh, spec), state_specs(cfg))
    state = jax.jit(partial(init_state, cfg), out_shardings=place)()
    shape = (cfg.accumulation, cfg.batch, cfg.seq_len)
    ids = jax.random.randint(jax.random.key(1), shape, 0, cfg.vocab, jnp.int32)
    for number in range(3):
        state, metrics = step(state, ids, jnp.roll(ids, -1, axis=-1))
        print(number, {{name: float(value) for name, value in metrics.items()}})


if __name__ == "__main__":
    main()
'''


def source(cfg: Config, title: str) -> str:
    """Python source of the step for ``cfg``; ``title`` says what it is for."""
    folder = Path(__file__).parent
    parts, imports = [], []
    for name in PARTS:
        text = (folder / f"{name}.py").read_text("utf8")
        text = _OWN_IMPORT.sub("", text).replace(_FUTURE, "")
        doc, body = _split_docstring(text)
        found, body = _split_imports(body)
        imports += found
        comment = "\n".join(f"# {line}".rstrip() for line in doc.splitlines())
        parts.append(f"\n\n{comment}\n\n{body.strip()}\n")
    imports.append("from dataclasses import replace")
    head = f'"""{title}"""\n\n{_FUTURE}\n' + "\n".join(_merged(imports))
    body = _MODULE_CALLS.sub("", "".join(parts))
    return head + body + _MAIN.format(config=pformat(cfg, width=96))


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
    return [*sorted(whole), *sorted(taken)]


def _split_docstring(text: str) -> tuple[str, str]:
    _, doc, body = text.split('"""', 2)
    return doc.strip(), body


def _split_imports(text: str) -> tuple[list[str], str]:
    """Imports at the top level, and the rest; a bare ``import x`` inside a function stays."""
    lines = text.splitlines()
    found = [line for line in lines if re.match(r"(import|from) ", line)]
    rest = [line for line in lines if not re.match(r"(import|from) ", line)]
    return found, "\n".join(rest)
