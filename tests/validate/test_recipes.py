"""NVIDIA's recipes: which one a run was, and what it switches."""

from __future__ import annotations

import itertools

from chipshift.validate.recipes import recipe_of, recipes

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
