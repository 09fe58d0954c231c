"""Users' own programs: a JAX step, a PyTorch module, a file of StableHLO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chipshift.compiled.request import Request
from chipshift.compiled.run import run
from chipshift.compiled.topology import target
from chipshift.machines.names import parse_machine

pytest.importorskip("jax")
pytestmark = pytest.mark.compiler

HERE = Path(__file__).parent
USERS = "users_code"
MESH = (("data", 2), ("model", 2))


def compiled(kind: str, function: str, **settings: Any) -> dict[str, Any]:
    aim = target(parse_machine("v5e:2x2"))
    asked = Request(kind, function, aim, entry=f"{USERS}:{function}", path=(str(HERE),), **settings)
    return run(asked, timeout_s=600)


def line_of(words: str) -> int:
    lines = (HERE / f"{USERS}.py").read_text("utf8").splitlines()
    return next(number for number, line in enumerate(lines, start=1) if words in line)


def test_a_users_jax_step() -> None:
    """Rows over data: the weight's gradient, half its columns a device, is all-reduced over data:
    512 x 512 x 2 B, twice the half of it sent."""
    found = compiled("entry", "make_step", mesh=MESH)
    assert found["compiled"], found["reason"]
    (reduced,) = [c for c in found["collectives"] if c["mesh_axis"] == "data"]
    assert reduced["kind"] == "all_reduce"
    assert reduced["bytes_per_device_per_step"] == 512 * 512 * 2


def test_a_mesh_of_another_size_is_refused() -> None:
    found = compiled("entry", "make_step", mesh=(("data", 8),))
    assert "8, but the machine has 4 devices" in found["input_error"]


def test_a_function_that_returns_something_else_is_refused() -> None:
    found = compiled("entry", "make_nothing")
    assert "must return (function, abstract arguments[, shardings])" in found["input_error"]


def test_a_branch_in_a_jax_step_is_found_with_its_line() -> None:
    (finding,) = compiled("entry", "make_branching_step")["findings"]
    assert (finding["rule"], finding["file"]) == ("branch-on-tensor", f"{USERS}.py")
    assert finding["line"] == line_of("if x.sum() > 0")


@pytest.mark.reference
def test_a_users_pytorch_module() -> None:
    found = compiled("torch", "make_net")
    assert found["compiled"], found["reason"]
    # both matrices in fp32, each over 4 devices, and the biases
    assert found["memory_bytes"]["arguments"] >= 2 * 256 * 512 * 4 / 4


@pytest.mark.reference
@pytest.mark.parametrize(
    ("function", "rule", "words"),
    [
        ("make_branch", "branch-on-tensor", "if y.mean() > 0"),
        ("make_item", "host-read", ".item()"),
        ("make_mask", "data-dependent-shape", "y[y > 0]"),
    ],
)
def test_what_cannot_be_traced_is_a_finding_with_the_users_line(
    function: str, rule: str, words: str
) -> None:
    found = compiled("torch", function)
    assert found["compiled"] is False
    (finding,) = found["findings"]
    assert (finding["rule"], finding["file"], finding["line"]) == (
        rule, f"{USERS}.py", line_of(words),
    )  # fmt: skip
    assert finding["instead"]


STABLEHLO = """
module @jit_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<256x512xbf16>, %arg1: tensor<512x128xbf16>)
      -> (tensor<256x128xbf16>) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0]
        : (tensor<256x512xbf16>, tensor<512x128xbf16>) -> tensor<256x128xbf16>
    return %0 : tensor<256x128xbf16>
  }
}
"""


def test_a_stablehlo_file(tmp_path: Path) -> None:
    file = tmp_path / "program.stablehlo"
    file.write_text(STABLEHLO)
    found = run(
        Request("hlo", "program", target(parse_machine("v5e:1x1")), file=str(file)), timeout_s=600
    )
    assert found["compiled"], found.get("reason")
    assert found["memory_bytes"]["arguments"] == (256 * 512 + 512 * 128) * 2
    assert found["collectives"] == []


HLO = """
HloModule jit_f, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["data"=2, "model"=2]>}}

ENTRY main {
  x = bf16[256,512] parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
  w = bf16[512,1024] parameter(1), COLUMNS
  y = bf16[256,1024] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT g = f32[512,1024] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}, COLUMNS
}
""".replace("COLUMNS", "sharding={devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}")


def read_file(path: Path, text: str, machine: str, **settings: Any) -> dict[str, Any]:
    path.write_text(text.lstrip())
    aim = target(parse_machine(machine))
    return run(Request("hlo", path.name, aim, file=str(path), **settings), timeout_s=600)


def test_an_hlo_file_is_cut_and_named_by_its_own_mesh(tmp_path: Path) -> None:
    """x' (x w): the columns of w stay apart over model, and x' y sums over the rows of x, which
    data cuts: 512 x 512 x 4 B a device, twice the half of it sent."""
    found = read_file(tmp_path / "program.hlo", HLO, "v5e:2x2")
    assert found["compiled"], found.get("reason")
    assert found["memory_bytes"]["arguments"] == (128 * 512 + 512 * 512) * 2
    summed = [c for c in found["collectives"] if c["mesh_axis"] == "data"]
    assert [c["kind"] for c in summed] == ["all_reduce"]
    assert summed[0]["bytes_per_device_per_step"] == 512 * 512 * 4


@pytest.mark.parametrize(
    ("text", "settings", "words"),
    [
        ("hello", {}, "neither StableHLO"),
        ("HloModule m, is_scheduled=true\n\nENTRY e {\n}\n", {}, "the output of a compiler"),
        ("HloModule m\n\nENTRY e {\n  ROOT x = nonsense\n}\n", {}, "not HLO text that this XLA"),
        (HLO, {"mesh": (("data", 3),)}, "is partitioned over 4 devices"),
        (HLO.replace("]>}}", ', "more"=2]>}}'), {}, "over 8 devices, the machine has 4"),
        ("HloModule m, num_replicas=2\n", {}, "partitioned by num_partitions"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_a_sentence(
    tmp_path: Path, text: str, settings: dict[str, Any], words: str
) -> None:
    found = read_file(tmp_path / "program.hlo", text, "v5e:2x2", **settings)
    assert words in found["input_error"]
