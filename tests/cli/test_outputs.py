"""``--json`` against the published schemas, and what the figures of one object owe each other."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tests.cli.call import NATIVE, ROOT, TORCHTITAN, call

EXAMPLES = ROOT / "examples"
SCHEMAS = {
    path.stem: json.loads(path.read_text("utf8"))
    for path in sorted((ROOT / "docs" / "schemas").glob("*.json"))
}
REGISTRY: Registry[Any] = Registry().with_resources(
    (f"{name}.json", Resource.from_contents(schema)) for name, schema in SCHEMAS.items()
)
H100 = ("--on", "h100*128")

CALLS = [
    ("estimate", TORCHTITAN, *H100),
    ("estimate", NATIVE, "--on", "v6e:8x16", "--plan", "fsdp=128,remat=full"),
    ("estimate", str(EXAMPLES / "mixtral-8x7b-megatron.sh")),
    ("assess", TORCHTITAN, *H100, "--to", "v6e", "--to", "v7x:4x4x4", "--tokens", "15e12",
     "--measured", "step_time_s=4.2,memory_gib=61"),
    ("assess", TORCHTITAN, *H100, "--to", "v5e:1x1"),
    ("assess", TORCHTITAN, *H100, "--to", "trn2", "--to", "mi300x*64"),
    ("plan", TORCHTITAN, *H100, "--to", "v7x:4x4x4"),
    ("plan", str(EXAMPLES / "llama3-70b-megatron.sh"), "--to", "v6e:1x1"),
    ("chips",),
    ("chips", "v7x"),
    ("chips", "--compare", "h100,v6e,v7x,trn2"),
    ("read", TORCHTITAN),
    ("read", str(EXAMPLES / "deepseek-v3-megatron.sh")),
    ("fabric", "v6e:16x16*4", "--mesh", "dp=4,fsdp=64,tp=4"),
    ("fabric", "h100*128", "--mesh", "dp=2,fsdp=8,tp=8"),
    ("fabric", "trn2*16", "--mesh", "fsdp=16,tp=4"),
    ("audit", str(ROOT / "src" / "chipshift" / "worked")),
    ("roofline", TORCHTITAN, "--on", "h100*128", "--on", "v6e", "--on", "v7x"),
    ("roofline", str(EXAMPLES / "deepseek-v3-megatron.sh"), "--on", "v5p:4x4x4"),
    ("validate", str(ROOT / "tests" / "cli" / "measured.jsonl")),
]  # fmt: skip


def complaints(found: Any) -> list[str]:
    name = found["schema"].split("/")[1]
    Draft202012Validator.check_schema(SCHEMAS[name])
    validator = Draft202012Validator(SCHEMAS[name], registry=REGISTRY)
    return [f"{e.json_path}: {e.message[:200]}" for e in validator.iter_errors(found)]


def numbers(tree: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every figure of an object with its dotted path."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from numbers(value, f"{path}.{key}".lstrip("."))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from numbers(value, f"{path}.{index}".lstrip("."))
    elif isinstance(tree, int | float) and not isinstance(tree, bool):
        yield path, tree


@pytest.mark.parametrize("args", CALLS, ids=lambda a: " ".join(Path(x).name for x in a))
def test_one_object_that_keeps_the_contract(args: tuple[str, ...]) -> None:
    found = call(*args, "--json")
    assert found.code in (0, 1)
    answer = found.object()
    assert answer["schema"] == f"chipshift/{args[0]}/1"
    assert complaints(answer) == []
    assert all(math.isfinite(value) for _, value in numbers(answer))
    assert found.err == ""


def estimates(tree: Any) -> Iterator[dict[str, Any]]:
    """Every estimate within an object, however deep."""
    if isinstance(tree, dict):
        if "step_time_s" in tree and "time_s" in tree:
            yield tree
        for value in tree.values():
            yield from estimates(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from estimates(value)


@pytest.mark.parametrize("args", [CALLS[1], CALLS[2], CALLS[3], CALLS[6]], ids=lambda a: a[0])
def test_the_parts_make_the_whole(args: tuple[str, ...]) -> None:
    found = list(estimates(call(*args, "--json").object()))
    assert found
    for e in found:
        time, memory, plan, machine = e["time_s"], e["memory_bytes"], e["plan"], e["machine"]
        named = ("matmul", "attention", "memory_bound", "bubble", "optimizer", "input", "other")
        whole = sum(time[part] for part in named) + sum(time["collectives_exposed"].values())
        assert e["step_time_s"] == pytest.approx(whole, rel=1e-9)
        parts = ("weights", "gradients", "optimizer", "activations", "logits", "collectives",
                 "overhead")  # fmt: skip
        assert memory["total"] == pytest.approx(sum(memory[part] for part in parts), rel=1e-9)
        assert memory["fits"] == (memory["total"] <= memory["available"])
        degrees = math.prod(plan[axis] for axis in ("dp", "fsdp", "cp", "tp", "pp"))
        assert degrees == machine["devices"]
        rate = e["job"]["tokens_per_step"] / e["step_time_s"] / machine["chips"]
        assert e["tokens_per_s_per_chip"] == pytest.approx(rate, rel=1e-9)
        assert e["tflops_per_chip"] == pytest.approx(rate * e["model_flops_per_token"] / 1e12)
        if e["cost"]["usd_per_step"] is not None:
            hours = e["step_time_s"] * machine["chips"] / 3600
            step_usd = hours * e["cost"]["usd_per_chip_hour"]
            assert e["cost"]["usd_per_step"] == pytest.approx(step_usd, rel=1e-9)


def test_ratios_are_target_over_present() -> None:
    answer = call(*CALLS[3], "--json").object()
    now = answer["from"]
    for target in answer["targets"]:
        ratio, memory = target["ratio"], target["memory_bytes"]
        assert ratio["step_time"] == pytest.approx(target["step_time_s"] / now["step_time_s"])
        assert ratio["memory_headroom"] == pytest.approx(1 - memory["total"] / memory["available"])
        assert target["plans_scored"] <= target["plans_considered"]
    error = (now["step_time_s"] - 4.2) / 4.2  # (predicted − measured) / measured
    assert answer["measured"]["our_error"]["step_time_s"] == pytest.approx(error)


@pytest.mark.parametrize(
    ("to", "code"),
    [
        (["v5e:1x1"], 1),  # 8 B parameters with AdamW's state: over 100 GB; a v5e has 16 GiB
        (["v5e:1x1", "v6e:1x1"], 1),
        (["v5e:1x1", "v6e:8x16"], 0),  # one of them fits
        (["v6e:8x16"], 0),
    ],
)
def test_exit_code_1_only_where_nothing_fits_on_any_target(to: list[str], code: int) -> None:
    named = [word for machine in to for word in ("--to", machine)]
    found = call("assess", TORCHTITAN, *H100, *named, "--json")
    assert found.code == code
    verdicts = [t["verdict"] == "does_not_fit" for t in found.object()["targets"]]
    assert all(verdicts) == (code == 1)
    short = [t["short_bytes"] for t in found.object()["targets"] if t["plan"] is None]
    assert all(s is None or s > 0 for s in short)


def test_every_figure_of_present_and_targets_can_be_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A walk over each numeric key; the derivation's value is the figure itself."""
    from chipshift.estimate.output import figure
    from chipshift.flows import explain
    from chipshift.flows.assess import assess
    from chipshift.flows.output import assessment_json
    from chipshift.jobs.read import read_job
    from chipshift.machines.names import parse_machine

    job = read_job([TORCHTITAN])
    found = assess(job, parse_machine("h100*128"), ["v6e:8x16"])
    answer = assessment_json(found)
    walked = [
        (path, value)
        for path, value in numbers({"from": answer["from"], "targets": answer["targets"]})
    ]
    assert len(walked) > 300
    work, once = explain.with_working, {}  # each estimate is worked once, not once a figure
    monkeypatch.setattr(
        explain, "with_working", lambda e: once[id(e)] if id(e) in once else keep(once, work, e)
    )
    for path, value in walked:
        shown = explain.explained(found, answer, path)
        assert float(shown) == pytest.approx(value, rel=1e-9), path
        if path.rsplit(".", 1)[-1] in WORKED:
            assert shown.expression and shown.inputs, path
    step = figure(explain.explained(found, answer, "from.step_time_s"), "from.step_time_s")
    assert step["unit"] == "s" and len(step["inputs"]) > 5
    assert leaves_without_source(step) == []


def keep(once: dict[int, Any], work: Any, e: Any) -> Any:
    once[id(e)] = work(e)
    return once[id(e)]


WORKED = {"step_time_s", "mfu", "usd_per_step", "usd_per_1e12_tokens", "matmul", "attention",
          "weights", "gradients", "step_time_low_s", "cost_per_token"}  # fmt: skip


def leaves_without_source(tree: dict[str, Any]) -> list[str]:
    if not tree["inputs"]:
        return [] if tree["source"] else [tree["name"]]
    return [name for one in tree["inputs"] for name in leaves_without_source(one)]


def test_explain_as_json_and_as_a_tree_are_one() -> None:
    path = ("--explain", "memory_bytes.weights")
    tree = call("estimate", TORCHTITAN, *H100, *path, "--json").object()["worked"]
    said = call("estimate", TORCHTITAN, *H100, *path).out
    assert f"{tree['name']}" in said.splitlines()[0]
    # 8,030,261,248 parameters of 4 bytes over 128 devices (fp32 shards): 250,945,664 bytes.
    assert tree["value"] == 8_030_261_248 * 4 / 128


DEEPSEEK = (
    "assess", str(EXAMPLES / "deepseek-v3-megatron.sh"), "--to", "v6e:16x16*8", "--to", "v7x:8x8x8",
    "--to", "trn2:4x4x4*16", "--to", "mi300x*512", "--fix", "tp=1,cp=1,remat=full",
)  # fmt: skip
"""The largest shipped model on four kinds of machine; parts of the plan held, for speed."""


def test_the_largest_answer_its_page_and_its_derivations_stay_small(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = call(*DEEPSEEK, "--json", "--html", str(page))
    assert found.code == 0
    assert len(found.out.encode()) < 500_000
    assert page.stat().st_size < 1_200_000
    assert complaints(found.object()) == []
    worked = call(*DEEPSEEK, "--explain", "targets.0.step_time_s", "--json")
    assert len(worked.out.encode()) < 400_000
    assert complaints(worked.object()) == []
    assert references(worked.object()["worked"]) > 100
    for law in found.object()["transfers"]:
        references(law["worked"])


SAID = {
    "compiled": True,
    "memory_bytes": {"arguments": 5, "outputs": 4, "temporaries": 3, "peak": 9, "available": 10},
    "collectives": [{"kind": "all_gather", "mesh_axis": "fsdp", "count_per_step": 2,
                     "bytes_per_device_per_step": 6.0, "algorithm": "ring"}],
    "flops_per_device": 1e12, "compile_time_s": 3.0,
    "versions": {"jax": "0.10", "jaxlib": "0.10", "libtpu": "0.1"},
}  # fmt: skip


@pytest.mark.parametrize("outcome", [SAID, {"reason": "timed out"}], ids=["compiled", "not"])
def test_a_compilation_keeps_the_contract_whatever_the_compiler_said(
    outcome: dict[str, Any],
) -> None:
    from chipshift.compiled.report import report
    from chipshift.compiled.request import Request
    from chipshift.compiled.topology import target
    from chipshift.machines.names import parse_machine

    machine = parse_machine("v6e:4x4")
    request = Request("hlo", "step.hlo", target(machine), mode="fast", file="step.hlo", mesh=())
    assert complaints(report(request, machine, outcome, cached=False)) == []


def references(tree: Any) -> int:
    """How many values point at an equal one; each finds it before itself in the text."""
    seen: dict[int, float] = {}
    count = 0

    def walk(node: Any) -> None:
        nonlocal count
        if "value" not in node:
            for one in node.values():
                walk(one)
            return
        if "same_as" in node:
            assert seen[node["same_as"]] == node["value"]
            count += 1
        elif "id" in node:
            seen[node["id"]] = node["value"]
        for one in node["inputs"]:
            walk(one)

    walk(tree)
    return count


def test_a_plan_that_fits_nowhere_still_names_its_job() -> None:
    called = call("plan", str(EXAMPLES / "llama3-70b-megatron.sh"), "--to", "v6e:1x1", "--json")
    assert called.code == 1
    answer = called.object()
    assert answer["best"] is None
    assert answer["job"]["tokens_per_step"] == 1024 * 8192


@pytest.mark.parametrize("to", ["v7x:2x2x2", "v6e:1x1"])
def test_scoring_every_plan_finds_what_pruning_finds(to: str) -> None:
    pruned = call("plan", NATIVE, "--to", to, "--json").object()
    scored = call("plan", NATIVE, "--to", to, "--exhaustive", "--json").object()
    assert pruned["plans_pruned"] > 0 and scored["plans_pruned"] == 0
    assert scored["plans_scored"] == scored["plans_considered"] == pruned["plans_considered"]
    own = ("plan", "step_time_s", "memory_bytes", "time_s")
    best = [[one["best"] and one["best"].get(key) for key in own] for one in (pruned, scored)]
    assert best[0] == best[1] and (best[0][0] is None) == (to == "v6e:1x1")
    assert scored.get("short_bytes") == pruned.get("short_bytes")
