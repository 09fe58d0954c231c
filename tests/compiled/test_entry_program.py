"""What a user's ``make_step(mesh)`` may give, and what is said of what it may not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from chipshift.compiled.programs import Program, build
from chipshift.compiled.request import Request
from chipshift.compiled.topology import target
from chipshift.errors import InputError
from chipshift.machines.names import parse_machine

pytest.importorskip("jax")

HEAD = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
def array(*shape, sharding=None):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)
def product(w, x):
    return x @ w
"""
MESH = (("data", 2), ("model", 2))


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program of ``def make_step(mesh)`` with a body, on four of the CPU's eight virtual
    devices, the last four."""
    import jax

    def build_it(body: str, name: str = "make_step(mesh)") -> Program:
        indented = "".join(f"    {line}\n" for line in body.splitlines())
        (tmp_path / "users_entry.py").write_text(f"{HEAD}def {name}:\n{indented}")
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.delitem(sys.modules, "users_entry", raising=False)
        entry, aim = "users_entry:make_step", target(parse_machine("v5e:2x2"))
        asked = Request("entry", entry, aim, entry=entry, path=(str(tmp_path),), mesh=MESH)
        return build(asked, jax.devices()[4:8])

    return build_it


def refused(built: Any, *given: str) -> str:
    with pytest.raises(InputError) as caught:
        built(*given)
    return str(caught.value).removeprefix("'users_entry:make_step'")


SHARDED = "own = NamedSharding(mesh, P('data', 'model'))\n"


@pytest.mark.parametrize(
    "returned",
    [
        "product, (array(8, 4, sharding=own), array(8, 8, sharding=own))",
        "jax.jit(product), (array(8, 4, sharding=own), array(8, 8, sharding=own))",
        "jax.jit(product, in_shardings=(own, own)), (array(8, 4), array(8, 8))",
        "product, (array(8, 4), array(8, 8)), (own, own)",
        "jax.jit(product), [array(8, 4), array(8, 8)], own",  # one for all
        "product, (np.zeros((8, 4)), jnp.zeros((8, 8))), (own, None)",
    ],
)
def test_shardings_are_taken_wherever_they_stand(built: Any, returned: str) -> None:
    program = built(f"{SHARDED}return {returned}")
    assert program.failure is None and program.notes == ()
    assert (program.axes, program.sizes) == (("data", "model"), (2, 2))
    assert 'sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"model"}]>' in program.lowered.as_text()


@pytest.mark.parametrize(
    "returned", ["product, (array(8, 4), array(8, 8))", "jax.jit(product), (np.ones((8, 4)),) * 2"]
)
def test_arguments_without_a_sharding_are_whole_on_every_device(built: Any, returned: str) -> None:
    """Never compiled for what jax takes by itself, the machine at hand."""
    import jax

    if "ones" in returned:
        returned = returned.replace("(8, 4)", "(4, 4)")
    program = built(f"return {returned}")
    assert program.notes == ("arguments without a sharding are whole on every device",)
    assert set(program.lowered._lowering._device_list) == set(jax.devices()[4:8])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return None", " must return (function, abstract arguments[, shardings]), found None"),
        ("return product, 1, 2, 3", "found a tuple of 4"),
        ("return (array(8),), product", ": the first it returns is a tuple of 1, not a function"),
        ("return product, array(8, 8)", ": the abstract arguments are a ShapeDtypeStruct; expec"),
        ("return product, (array(8, 8),)", "(1): product(w, x): missing a required argument: 'x'"),
        ("return product, (array(8),) * 3", "(3): product(w, x): too many positional arguments"),
        (
            "own = NamedSharding(mesh, P())\nreturn product, (array(8, 8),) * 2, (own,) * 3",
            ": its shardings do not match its abstract arguments",
        ),
        ("import sys\nsys.exit('no data')", " leaves, at users_entry.py, line 10: SystemExit: no"),
        (
            "def step(x):\n    import sys\n    sys.exit('no data')\nreturn step, (array(8),)",
            " leaves, at users_entry.py, line 11: SystemExit: no data",
        ),
        (
            "other = jax.make_mesh((4,), ('data',), devices=jax.devices()[:4])\n"
            "return product, (array(8, 8, sharding=NamedSharding(other, P('data'))),) * 2",
            " shards over other devices than the 4 of data=2,model=2, the mesh that it was given",
        ),
        (
            "half = jax.make_mesh((2,), ('data',), devices=mesh.devices.flat[:2])\n"
            "return product, (array(8, 8, sharding=NamedSharding(half, P('data'))),) * 2",
            " shards over other devices than the 4 of data=2,model=2",
        ),
        (
            "other = jax.make_mesh((4,), ('data',), devices=jax.devices()[:4])\n"
            "return product, [array(8, 8, sharding=NamedSharding(m, P())) for m in (mesh, other)]",
            " shards over other devices than the 4 of data=2,model=2",
        ),
        (
            "return product, (array(8, 8, sharding=NamedSharding(mesh, P('modle'))),) * 2",
            " shards over 'modle', at users_entry.py, line 9, which is no axis of the mesh "
            "data=2,model=2; did you mean 'model'?",
        ),
        (
            "def step(x):\n"
            "    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P('z')))\n"
            "return step, (array(8),)",
            " shards over 'z', at users_entry.py, line 10, which is no axis of the mesh "
            "data=2,model=2; expected --mesh with the axes that it shards over, such as --mesh z=4",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled_is_one_sentence(built: Any, body: str, said: str) -> None:
    assert said in refused(built, body)


def test_a_function_that_takes_no_mesh_is_refused(built: Any) -> None:
    said = refused(built, "return 1", "make_step()")
    assert said.startswith(": make_step(): too many positional arguments; expected a function")


@pytest.mark.parametrize(
    ("body", "line", "said"),
    [
        ("return {}['weights']", 9, "KeyError: 'weights'"),
        ("return (lambda x: x @ jnp.ones((3, 3))), (array(8, 4),)", 9, "TypeError: dot_general"),
    ],
)
def test_what_the_users_code_raises_is_a_finding_with_its_line(
    built: Any, body: str, line: int, said: str
) -> None:
    (finding,) = built(body).findings
    assert (finding["file"], finding["line"]) == ("users_entry.py", line)
    assert finding["message"].startswith(said)


@pytest.mark.parametrize(
    "returned",
    [
        # jnp.ones is made here, by no device of the target
        "(lambda w, x: bare(x @ w, P('data', 'model')) * jnp.ones(4)), (array(8, 4), array(8, 8))",
        "product, (array(8, 4), array(8, 8)), P('data', 'model')",
        "product, (array(8, 4), array(8, 8)), (P('data', 'model'), None)",
        "product, (array(8, 4, sharding=P('data', 'model')), array(8, 8))",
        "jax.jit(product, in_shardings=P('data', 'model')), (array(8, 4), array(8, 8))",
    ],
)
def test_a_partition_spec_alone_names_axes_of_the_mesh(built: Any, returned: str) -> None:
    """As under ``with jax.set_mesh(mesh)``, in which users run such a step."""
    program = built(f"bare = jax.lax.with_sharding_constraint\nreturn {returned}")
    assert program.failure is None
    assert '[{"data"}, {"model"}]>' in program.lowered.as_text()


def test_the_mesh_stands_in_the_context_of_the_users_code(built: Any) -> None:
    """Flax and others write a constraint only where there is one, and else say nothing."""
    asked = "assert jax.sharding.get_abstract_mesh().shape == {'data': 2, 'model': 2}\n"
    step = "    return x @ w\n"
    body = f"{asked}def step(w, x):\n    {asked}{step}return step, (array(8, 4), array(8, 8))"
    assert built(body).failure is None


def test_a_step_may_make_another_mesh_of_the_same_devices(built: Any) -> None:
    """Of other axes, whose types jax.make_mesh takes to be explicit."""
    other = "one = jax.make_mesh((4,), ('z',), devices=mesh.devices.flatten())\n"
    body = f"{other}return product, (array(4, 4, sharding=NamedSharding(one, P())),) * 2"
    assert built(body).failure is None


def test_the_way_out_of_a_step_of_jax_is_written_in_jax(built: Any) -> None:
    branch = "def step(x):\n    return x if x.sum() > 0 else -x\nreturn step, (array(8),)"
    (finding,) = built(branch).findings
    assert finding["rule"] == "data-dependent-branch" and "jax.lax.cond" in finding["instead"]
    (finding,) = built("return {}['weights']").findings
    assert "module(*inputs)" not in finding["instead"] and "jax.set_mesh" in finding["instead"]
