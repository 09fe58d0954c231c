"""The written step: what its job needs and no more, with the loss of the step it is made from."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from chipshift.compiled import describe
from chipshift.compiled.step.config import Variant
from chipshift.compiled.writing.fold import folded
from chipshift.compiled.writing.prune import pruned
from chipshift.compiled.writing.write import source
from chipshift.jobs.plan import Plan
from chipshift.models.preset import preset
from tests.compiled.small import DENSE, LATENT, MOE, config

GEMMA = Variant(
    activation="gelu_tanh", unit_offset=True, post_norms=True, embed_scale=8.0,
    attention_cap=50.0, logit_cap=30.0,
)  # fmt: skip
DEEPSEEK = Variant(router="sigmoid", router_scale=2.5, interleaved_rope=True)
LOCAL = replace(DENSE, window=8)
ROUTED = replace(MOE, kv_rank=24, rope_dim=8, kv_heads=4, head_dim=24)
BIASED = replace(DENSE, qkv_bias=True, out_bias=True, gated=False)

STEPS = {
    "dense": config(DENSE, (1, 4, 1, 1, 2)),
    "qwen": config(replace(DENSE, qk_norm=True), (2, 2, 1, 1, 2), zero=True, remat="minimal"),
    "padded": replace(config(DENSE, (1, 2, 1, 1, 4), tied=True), vocab=127),
    "biased": config(BIASED, (1, 2, 1, 1, 4), sequence_parallel=False),
    "gemma": replace(
        config(DENSE, (1, 2, 1, 2, 1), tied=True, variant=GEMMA, loss_chunks=2),
        segments=(((LOCAL, DENSE), 2), ((LOCAL,), 1)),
    ),
    "mixtral": config(MOE, (1, 2, 2, 2, 1), accumulation=2),
    "deepseek": replace(
        config(LATENT, (2, 1, 2, 1, 2), ep_from="dp", variant=DEEPSEEK),
        segments=(((LATENT,), 1), ((ROUTED,), 2)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_the_written_step_is_the_step(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same program, operation by operation, and so the same loss; of the parameters too."""
    pytest.importorskip("jax")
    from chipshift.compiled.step import train_step

    cfg = STEPS[name]
    written = loaded(tmp_path / "written_step.py", source(cfg, "A step."), monkeypatch)
    assert programs(written.CONFIG, written) == programs(cfg, train_step)


def programs(cfg: Any, step_of: Any) -> tuple[str, str]:
    """The step and its first state as StableHLO, on the mesh that the written file makes."""
    import jax
    import numpy as np

    axes, devices = ("dp", "fsdp", "ep", "cp", "tp"), jax.devices()[: int(np.prod(cfg.mesh))]
    mesh = jax.make_mesh(
        cfg.mesh, axes, axis_types=(jax.sharding.AxisType.Auto,) * len(axes), devices=devices
    )
    step, shapes = step_of.make_step(mesh, cfg)
    state = jax.jit(partial(step_of.init_state, cfg))
    return step.lower(*shapes).as_text(), state.lower().as_text()


def loaded(file: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A file as a module."""
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, file.stem, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "there", "absent"),
    [
        ("dense", ["fsdp"], ["expert_gate", "kv_rank", "q_norm", "_bias", "post_norm", "_cap"]),
        ("qwen", ["q_norm", "zero"], ["expert_gate", "kv_rank", "_bias", "offload"]),
        ("gemma", ["attention_cap", "window", "loss_in_pieces"], ["expert_gate", "kv_rank"]),
        ("mixtral", ["expert_gate", "lax.scan(add"], ["kv_rank", "sigmoid", "shared_router"]),
        ("deepseek", ["kv_rank", "expert_gate", "sigmoid"], ["topk_softmax", "_cap", "window"]),
    ],
)
def test_it_holds_what_its_job_needs_and_no_more(
    name: str, there: list[str], absent: list[str]
) -> None:
    text = source(STEPS[name], "A step.")
    assert [word for word in there if word not in text] == []
    assert [word for word in absent if word in text] == []


def test_it_is_a_few_hundred_lines_formatted_and_with_nothing_unused() -> None:
    plan = Plan(fsdp=16, remat="full")
    cfg, _ = describe.config(preset("llama-3.1-8b"), plan, seq_len=8192)
    text = source(cfg, "Llama 3.1 8B over sixteen devices.")
    assert text.count("\n") <= 600
    for check in (["check", "--select", "F,E9"], ["format", "--check", "--line-length", "100"]):
        ran = subprocess.run(
            [sys.executable, "-m", "ruff", *check, "--isolated", "-"],
            input=text, text=True, capture_output=True,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout


FOLDED = '''
def f(cfg: Config, block: Block, x: Any) -> Any:
    """What it does."""
    tp = cfg.mesh[4]
    # Only where the sequence is cut.
    if cfg.mesh[3] > 1:
        x = gather(x)
    if x is None or tp > 1:
        x = x + 1
    if block.window:  # keys out of sight
        x = mask(x)
    elif tp == 2:
        x = -x
    else:
        x = 2 * x
    if not block.experts:  # dense
        # All of it.
        return x if block.gated else act(x)
    return route(x)
'''


def test_decided_branches_go_and_their_comments_with_them() -> None:
    """tp is 2 and cp 1; the layers are all dense and gated, one of them with a window."""
    cfg = replace(config(DENSE, (1, 1, 1, 1, 2)), segments=(((LOCAL, DENSE), 1),))
    assert (
        folded(FOLDED, cfg, ("blockwise",))
        == '''
def f(cfg: Config, block: Block, x: Any) -> Any:
    """What it does."""
    tp = cfg.mesh[4]
    x = x + 1
    if block.window:  # keys out of sight
        x = mask(x)
    else:
        x = -x
    # dense
    # All of it.
    return x
'''
    )


def test_what_differs_between_layers_or_is_bound_anew_stays() -> None:
    text = (
        "def f(cfg: Config, block: Block) -> Any:\n"
        "    if block.window is None:\n"
        "        return 1\n"
        "    return [0 if block.gated else 1 for block in others]\n"
    )
    cfg = replace(config(DENSE, (1, 1, 1, 1, 1)), segments=(((LOCAL, DENSE), 1),))
    assert folded(text, cfg, ("blockwise",)) == text


USED = '''
import os
from a import b, c

TABLE = (1,)
"""What it is for."""
KEPT = 2


@dataclass(frozen=True)
class Shape:
    """A shape.

    Attributes:
        wide, tall: its sides.
        name: shown nowhere.
    """

    wide: int
    tall: int
    name: str = ""

    def area(self) -> int:
        return self.wide * KEPT

    def unused(self) -> int:
        return other(self)


def other(shape: Any) -> Any:
    return TABLE


def main() -> None:
    first, second = b(), 2
    third = 3
    print(Shape(1).area(), first)
'''


LEFT = '''
from a import b

KEPT = 2

@dataclass(frozen=True)
class Shape:
    """A shape.

    Attributes:
        wide: its sides.
    """

    wide: int

    def area(self) -> int:
        return self.wide * KEPT

def main() -> None:
    first = b()
    print(Shape(1).area(), first)
'''


def test_what_nothing_uses_goes_with_what_documents_it() -> None:
    """Blank lines apart, which are set right at the end."""
    assert re.sub(r"\n{3,}", "\n\n", pruned(USED, "main")) == LEFT


def test_a_reports_lines_are_those_of_the_written_file(tmp_path: Path) -> None:
    """A matmul of the layers, written as it is in the package; what is no line of the step, or of a
    function that the file has not, stays as it is."""
    from chipshift.compiled.step import attention, model, moe
    from chipshift.compiled.writing.lines import by_written_lines

    written = tmp_path / "step.py"
    written.write_text(source(STEPS["dense"], "A step."))
    text = written.read_text().splitlines()

    def at(module: ModuleType, words: str) -> tuple[str, int]:
        assert module.__file__ is not None
        lines = Path(module.__file__).read_text().splitlines()
        return module.__file__, next(n for n, line in enumerate(lines, 1) if words in line)

    matmul, theirs = at(model, "return project_out("), ("/elsewhere/train.py", 7)
    choice, turned = at(moe, "jax.lax.top_k(logits"), at(attention, "turned = jnp.concatenate")
    found = by_written_lines(
        {
            "largest": [{"source": list(matmul)}, {"source": None}, {"source": list(theirs)}],
            "collectives": [{"sources": [{"file": turned[0], "line": turned[1], "function": "f"}]}],
            "places": [{"source": list(choice)}],
        },
        str(written),
    )
    file, line = found["largest"][0]["source"]
    assert (file, "return project_out(" in text[line - 1]) == (str(written), True)
    (row,) = found["collectives"][0]["sources"]
    assert (row["file"], row["function"]) == (str(written), "f")
    assert "turned = jnp.concatenate" in text[row["line"] - 1]
    assert found["largest"][1:] == [{"source": None}, {"source": list(theirs)}]
    assert found["places"] == [{"source": list(choice)}]
