"""NVIDIA's recipes: which one a run was, and what it switches."""

from __future__ import annotations

import itertools

from chipshift.validate.case import Case
from chipshift.validate.recipes import degrees_run, misprints, recipe_of, recipes

from .test_records import case

MOE = {"name": "Qwen3-30B-A3B", "experts": 128, "topk": 8, "moe_d_ff": 768}


def test_one_recipe_at_most_holds_for_a_run() -> None:
    for one, other in itertools.combinations(recipes(), 2):
        shared = set(one.chips) & set(other.chips)
        if one.model == other.model and shared and set(one.precisions) & set(other.precisions):
            later, earlier = sorted((one, other), key=lambda r: r.since, reverse=True)
            assert earlier.until and earlier.until <= later.since, (one, other)


def test_a_recipe_holds_from_its_release_until_the_next() -> None:
    # 26.02's recipe of DeepSeek-V3 on B200 in MXFP8 holds until 26.04.01, which sends by DeepEP
    at = [recipe_of("deepseek-v3", "b200", "mxfp8", r) for r in ("26.02.01", "26.04", "26.04.01")]
    assert [r.dispatcher for r in at if r] == ["hybridep", "hybridep", "deepep"]
    assert recipe_of("deepseek-v3", "b200", "mxfp8", "25.04") is None
    assert recipe_of("llama3-70b", "b200", "mxfp8", "26.04") is None


def test_modules_made_again_are_the_tensors_that_are_not_kept() -> None:
    # queries and keys come of mla_up_proj; everything else is kept
    found = recipe_of("deepseek-v3", "gb300", "mxfp8", "26.02")
    assert found is not None and found.recompute == ("mla_up_proj",)
    kept = "activation+attention+attention_norm+mlp_norm+out_proj+up"
    assert found.remat == f"custom:saved={kept}"
    plain = recipe_of("qwen3-30b-a3b", "gb200", "mxfp8", "26.06")
    assert plain is not None and plain.remat == "none"


def test_a_run_of_a_release_takes_its_recipes_switches() -> None:
    notes, source = "NeMo 26.06", "NVIDIA-NeMo/Megatron-Bridge:docs/performance-summary.md@abc"
    one = case(notes=notes, source=source, chip_key="gb200", dtype="mxfp8", dtype_class="fp8",
               framework="Megatron-Bridge 26.06", model=MOE, remat_class=None,
               parallelism={"dp": 16, "tp": 1, "pp": 1, "ep": 8})  # fmt: skip
    said = {(flag.kind, flag.value) for flag in one.job.flags}
    assert one.stack_release.endswith("26.06")
    assert {("expert_kernels", "hybridep"), ("fused_experts", "True")} <= said
    assert one.remats == ("none",)
    before = case(notes="", source="NVIDIA/Megatron-LM:README.md@abc", model=MOE)
    assert not before.job.flags


def bridge(release: str, **row: object) -> Case:
    """A run of Qwen3-30B in 8 bits scaled by tensor on 16 H100, of a table of Megatron-Bridge."""
    source = "NVIDIA-NeMo/Megatron-Bridge:docs/performance-summary.md@abc"
    given = {"chip_key": "h100", "n_chips": 16, "dtype": "fp8", "dtype_class": "fp8",
             "global_batch": 1024, "tokens_per_step": 1024 * 4096}  # fmt: skip
    return case(notes=f"NeMo {release}", source=source, framework=f"Megatron-Bridge {release}",
                model=MOE, remat_class=None, **(given | row))  # fmt: skip


def test_a_misprinted_plan_is_the_recipes() -> None:
    # 26.02.01 prints 26.02's plan; its recipe, and 26.04's table, have no pipeline and ep = 16
    printed = {"dp": 8, "tp": 1, "pp": 2, "vpp": 12, "ep": 8}
    told = bridge("26.02.01", parallelism=printed, microbatch=1)
    assert (told.plan.dp, told.plan.pp, told.plan.vpp, told.plan.ep) == (16, 1, 1, 16)
    assert told.plan.accumulation == 64  # 1,024 sequences over 16 replicas of 1
    assert "its table misprints it" in {fill[2].partition(": ")[2] for fill in told.inferred}
    other = bridge("26.02.01", parallelism=printed | {"vpp": 6}, microbatch=1)
    assert (other.plan.dp, other.plan.pp, other.plan.vpp, other.plan.ep) == (8, 2, 6, 8)


def test_a_microbatch_can_be_the_misprint() -> None:
    degrees = {"dp": 8, "tp": 1, "pp": 2, "vpp": 24, "ep": 8}
    told = bridge("25.11", parallelism=degrees, microbatch=2)
    assert (told.plan.microbatch, told.plan.vpp) == (1, 12)


def test_a_misprint_is_mended_where_dp_is_not_printed() -> None:
    # 16 devices in pipelines of 2 leave dp 8
    told = bridge("25.11", parallelism={"tp": 1, "pp": 2, "vpp": 24, "ep": 8}, microbatch=2)
    assert (told.plan.dp, told.plan.microbatch, told.plan.vpp) == (8, 1, 12)


def test_misprints_and_what_ran_name_the_same_degrees_and_differ() -> None:
    for one in misprints():
        assert one.printed.keys() == one.ran.keys(), one
        assert all(one.printed[key] != one.ran[key] for key in one.printed), one
        asked = (one.model, one.chip, one.precision, one.release)
        assert degrees_run(*asked, one.printed) == one.ran
        assert degrees_run(*asked, one.ran) == {}
