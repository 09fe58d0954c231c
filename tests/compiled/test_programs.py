"""Users' own programs: a JAX step, a PyTorch module, a file of StableHLO."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from chipshift.compiled.request import Request
from chipshift.compiled.run import run
from chipshift.compiled.topology import target
from chipshift.errors import InputError
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
    found = compiled("entry", "make_step", mesh=MESH, mode="time")
    assert found["compiled"], found["reason"]
    (reduced,) = [c for c in found["collectives"] if c["mesh_axis"] == "data"]
    assert reduced["kind"] == "all_reduce"
    assert reduced["bytes_per_device_per_step"] == 512 * 512 * 2
    # x w and x' g: 2 x 128 rows x 512 x 512 columns each; no loop, so that the compiler's own count
    # has the same and its elementwise ones, at most 16 a hidden element
    matmuls = 2 * 2 * 128 * 512 * 512
    assert found["flops"]["matmuls"] == matmuls
    assert matmuls <= found["flops"]["by_cost_analysis"] <= matmuls + 16 * 128 * 512


def test_what_is_largest_where_a_step_does_not_fit() -> None:
    """hidden, its sine and a gradient, 32 GiB each, and 0.25 + 0.5 GiB of arguments on 15.75."""
    found = compiled("entry", "make_large")
    assert found["compiled"] is False
    memory = found["memory_bytes"]
    assert memory["arguments"] == (1024 * 65536 + 131072 * 1024) * 4
    assert memory["peak"] == found["wanted_bytes"] > 2 * 32 * 2**30
    assert found["available_bytes"] == 15.75 * 2**30
    first = found["largest"][0]
    assert (first["shape"], first["physical_bytes"]) == ("f32[131072,65536]", 32 * 2**30)
    named = {(Path(t["source"][0]).name, t["source"][1]) for t in found["largest"] if t["source"]}
    assert (f"{USERS}.py", line_of("hidden = jnp.tanh")) in named


def test_a_mesh_of_another_size_is_refused() -> None:
    found = compiled("entry", "make_step", mesh=(("data", 8),))
    assert "--mesh data=8: is over 8 devices, but the machine has 4" in found["input_error"]


def test_a_function_that_returns_something_else_is_refused() -> None:
    found = compiled("entry", "make_nothing")
    assert "must return (function, abstract arguments[, shardings])" in found["input_error"]


def test_a_branch_in_a_jax_step_is_found_with_its_line() -> None:
    (finding,) = compiled("entry", "make_branching_step")["findings"]
    assert (finding["rule"], finding["file"]) == ("data-dependent-branch", f"{USERS}.py")
    assert finding["line"] == line_of("if x.sum() > 0")


@pytest.mark.reference
def test_a_users_pytorch_module() -> None:
    found = compiled("torch", "make_net")
    assert found["compiled"], found["reason"]
    # both matrices in fp32, each over 4 devices, and the biases
    assert found["memory_bytes"]["arguments"] >= 2 * 256 * 512 * 4 / 4
    # forward, and backward by weights of both and by the input of the second; two rows a device
    assert found["flops"]["matmuls"] == 5 * 2 * 2 * 256 * 512


@pytest.mark.reference
def test_a_tied_weight_of_a_pytorch_module_is_held_once() -> None:
    found = compiled("torch", "make_tied")
    assert found["compiled"], found["reason"]
    table = 1024 * 256 * 4 / 4  # fp32, over 4 devices
    assert table <= found["memory_bytes"]["arguments"] < 2 * table
    # the head alone multiplies: forward, by its input and by its weight; 32 tokens a device
    assert found["flops"]["matmuls"] == 3 * 2 * 32 * 256 * 1024


@pytest.mark.reference
@pytest.mark.parametrize(
    ("function", "rule", "words"),
    [
        ("make_branch", "data-dependent-branch", "if y.mean() > 0"),
        ("make_item", "host-sync-in-step", ".item()"),
        ("make_mask", "bool-mask-select", "y[y > 0]"),
        ("make_nonzero", "data-dependent-shape", "torch.nonzero"),
        ("make_unknown", "op-not-lowered", "airy_ai"),
    ],
)
def test_what_stops_a_trace_is_a_finding_with_the_users_line(
    function: str, rule: str, words: str
) -> None:
    program = traced(function)
    assert program.lowered is None
    (finding,) = program.findings
    place = (finding["rule"], finding["file"], finding["line"])
    assert place == (rule, f"{USERS}.py", line_of(words))
    assert finding["instead"]


@pytest.mark.reference
def test_a_write_that_a_trace_would_lose_is_a_finding_beside_the_program() -> None:
    """y.view(-1).mul_(2) doubles y in PyTorch, and only the view in a traced program."""
    program = traced("make_view")
    assert program.lowered is not None
    (finding,) = program.findings
    place = (finding["rule"], finding["file"], finding["line"])
    assert place == ("inplace-alias", f"{USERS}.py", line_of("flat.mul_(2)"))


def traced(function: str) -> Any:
    """The program of a module, traced over four of the CPU's virtual devices."""
    import jax

    from chipshift.compiled.programs import build

    aim = target(parse_machine("v5e:2x2"))
    asked = Request("torch", function, aim, entry=f"{USERS}:{function}", path=(str(HERE),))
    return build(asked, jax.devices()[:4])


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
        (HLO, {"mesh": (("data", 3),)}, "--mesh data=3: is over 3 devices, but "),
        (STABLEHLO[:200], {}, "is not StableHLO that this XLA reads (Unable to parse module"),
        ("a module of mine", {}, "is not StableHLO that this XLA reads"),
        ("module @m {}", {}, "has no function main, which the program starts from; found no func"),
        (STABLEHLO.replace("@main", "@step"), {}, "starts from; found step"),
        (HLO.replace("]>}}", ', "more"=2]>}}'), {}, "over 8 devices, the machine has 4"),
        ("HloModule m, num_replicas=2\n", {}, "partitioned by num_partitions"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_a_sentence(
    tmp_path: Path, text: str, settings: dict[str, Any], words: str
) -> None:
    import jax

    from chipshift.compiled import file_program

    file = tmp_path / "program.hlo"
    file.write_text(text.lstrip())
    with pytest.raises(InputError, match=re.escape(words)):
        file_program.read(str(file), jax.devices()[:4], **settings)


@pytest.mark.parametrize("portable", [True, False])
def test_a_file_of_bytecode_is_the_program_that_its_text_is(tmp_path: Path, portable: bool) -> None:
    """As ``jax.export`` saves it, and as MLIR itself does."""
    import io

    import jax
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir
    from jax._src.lib.mlir.dialects import hlo

    from chipshift.compiled import file_program

    written = io.BytesIO()
    with mlir.make_ir_context():
        module = ir.Module.parse(STABLEHLO)
        if portable:
            version = hlo.get_minimum_version()
            written.write(hlo.serialize_portable_artifact(module, version))
        else:
            module.operation.write_bytecode(written)
    file = tmp_path / "program.mlirbc"
    file.write_bytes(written.getvalue())
    found = file_program.read(str(file), jax.devices()[:1])
    assert "stablehlo.dot_general" in found.module and "@main" in found.module
    file.write_bytes(written.getvalue()[:60])
    with pytest.raises(InputError, match="is not bytecode that this XLA reads"):
        file_program.read(str(file), jax.devices()[:1])
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is neither text nor MLIR bytecode"):
        file_program.read(str(file), jax.devices()[:1])


def test_a_file_for_fewer_devices_than_the_machine_has_says_so(tmp_path: Path) -> None:
    import jax

    from chipshift.compiled.programs import build

    file = tmp_path / "program.hlo"
    file.write_text(HLO.lstrip())
    asked = Request("hlo", "program", target(parse_machine("v5e:2x4")), file=str(file))
    assert build(asked, jax.devices()[:8]).notes == (
        "partitioned over 4 of the machine's 8 devices",
    )
    assert build(asked, jax.devices()[:4]).notes == ()
