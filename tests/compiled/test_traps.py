"""What a trace of a PyTorch module cannot take, or passes over: the user's line and the way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chipshift.compiled.request import Request
from chipshift.compiled.topology import target
from chipshift.machines.names import parse_machine

pytest.importorskip("jax")
pytest.importorskip("torch")
pytestmark = pytest.mark.reference

HERE = Path(__file__).parent
USERS = "users_traps"
TEXT = (HERE / f"{USERS}.py").read_text("utf8").splitlines()


def traced(function: str) -> Any:
    """The program of a module over four of the CPU's virtual devices."""
    import jax

    from chipshift.compiled.programs import build

    aim = target(parse_machine("v5e:2x2"))
    asked = Request("torch", function, aim, entry=f"{USERS}:{function}", path=(str(HERE),))
    return build(asked, jax.devices()[:4])


def line_of(words: str) -> int:
    return next(number for number, line in enumerate(TEXT, 1) if words in line)


@pytest.mark.parametrize(
    ("trap", "rule"),
    [
        ("on_cuda", "cuda-call-in-step"),
        ("flash", "cuda-only-package"),
        ("absent", "import-fails"),
        ("hooked", "hook-in-step"),
        ("asserted", "data-dependent-branch"),
        ("listed", "host-sync-in-step"),
        ("reshaped", "trace-error"),
    ],
)
def test_what_stops_a_trace(trap: str, rule: str) -> None:
    program = traced(f"make_{trap}")
    assert program.lowered is None
    (finding,) = program.findings
    place = (finding["rule"], finding["file"], finding["line"])
    assert place == (rule, f"{USERS}.py", line_of(f"# {trap}"))
    assert finding["instead"]


@pytest.mark.parametrize(
    ("trap", "rule", "words"),
    [
        ("two_inputs", "inputs-do-not-fit", "def forward(self, x"),
        ("vector", "loss-not-a-number", "def vector("),
        ("table", "loss-not-a-number", "def table("),
        ("of_output_alone", "loss-does-not-fit", "def of_output_alone("),
    ],
)
def test_module_inputs_and_loss_that_do_not_go_together(trap: str, rule: str, words: str) -> None:
    program = traced(f"make_{trap}")
    assert program.lowered is None
    (finding,) = program.findings
    place = (finding["rule"], finding["file"], finding["line"])
    assert place == (rule, f"{USERS}.py", line_of(words))
    assert finding["instead"]


@pytest.mark.parametrize(
    ("trap", "rule"),
    [
        ("no_grad", "no-grad-lost"),
        ("custom", "custom-backward-lost"),
        ("autocast", "autocast-lost"),
        ("dropout", "rng-fixed"),
        ("noise", "rng-fixed"),
        ("counted", "buffer-update-lost"),
        ("assigned", "buffer-update-lost"),
        ("normed", "buffer-update-lost"),
    ],
)
def test_what_a_trace_passes_over_is_a_finding_beside_the_program(trap: str, rule: str) -> None:
    program = traced(f"make_{trap}")
    assert program.lowered is not None
    (finding,) = program.findings
    place = (finding["rule"], finding["file"], finding["line"])
    assert place == (rule, f"{USERS}.py", line_of(f"# {trap}"))


def test_what_is_as_in_pytorch_is_no_finding() -> None:
    program = traced("make_quiet")
    assert program.lowered is not None
    assert program.findings == ()
    assert program.notes == ()


def test_frozen_parameters_are_a_note() -> None:
    """up's matrix and bias, of three layers with two each."""
    (note,) = traced("make_frozen").notes
    assert note.startswith("2 of 6 parameters take no gradient (requires_grad is off, up.weight")
