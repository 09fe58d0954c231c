"""Google's MaxText recipes: which one a run was, and what it switches."""

from __future__ import annotations

import itertools

import pytest

from chipshift.validate.maxtext_recipes import (
    day_of,
    kernel_flags,
    maxtext_recipe_of,
    maxtext_recipes,
)

from .test_records import case

LLAMA = {"name": "Llama3-70B", "seq_len": 8192}


def kinds(**fields: object) -> set[str]:
    """Kinds of flags that a MaxText run's record gives its job."""
    found = case(stack="maxtext", **({"chip_key": "v7x", "n_chips": 64} | fields))
    return {flag.kind for flag in found.job.flags}


def test_one_recipe_at_most_holds_for_a_run() -> None:
    for one, other in itertools.combinations(maxtext_recipes(), 2):
        assert (one.model, one.chip) != (other.model, other.chip)


def test_a_recipe_holds_from_the_day_of_its_commit() -> None:
    # tpu-recipes gave Llama 3.1 70B at 8k its ranges on 2025-12-21, at 128k never
    def fixed(length: int, day: str, precision: str = "fp8") -> bool:
        found = maxtext_recipe_of("llama3-70b", "v7x", precision, length, day)
        return found is not None and found.fixed_ranges

    assert fixed(8192, "2025-12-21") and fixed(8192, "2026-04-20")
    assert not fixed(8192, "2025-12-20")
    assert not fixed(131072, "2026-08-06")
    assert not fixed(8192, "2026-04-20", "bf16")


def test_notes_give_the_day_of_a_table_before_that_of_a_commit() -> None:
    assert day_of("table dated 2025-12-20; read at commit abc (2026-01-05)") == "2025-12-20"
    assert day_of("log line dated 2025-03-12; config from README block") == "2025-03-12"
    assert day_of("config and base.yml read at 76bd53b0f (2023-12-15)") == "2023-12-15"
    assert day_of("MLPerf Training v4.0, 3 runs") == ""


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ("read at commit 76bd53b0f (2023-12-15)", {"attention_kernel"}),  # before splash attention
        ("log line dated 2024-10-30", {"separate_backward"}),  # MaxText's default
        ("table dated 2025-12-18; flags: use_tokamax_splash=True", set()),
        ("log line dated 2025-10-08; flags: sa_use_fused_bwd_kernel=True", set()),
    ],
)
def test_what_notes_say_of_attentions_backward_pass(notes: str, expected: set[str]) -> None:
    assert {flag.kind for flag in kernel_flags(None, notes, "runs.jsonl", 1)} == expected


def test_a_run_takes_the_switches_of_the_recipe_that_it_was() -> None:
    eight = {"dtype": "fp8", "dtype_class": "fp8", "model": LLAMA}
    tokamax = "; flags: use_tokamax_splash=True"
    assert kinds(**eight, notes="table dated 2026-04-20" + tokamax) == {"fixed_ranges"}
    assert kinds(**eight, notes="table dated 2025-12-20" + tokamax) == set()
    # v6e: benchmarks/maxtext_trillium_model_configs.py fuses Llama 3.1's and Mistral's, no other's
    v6e = {"chip_key": "v6e", "n_chips": 64, "notes": "log line dated 2025-10-08"}
    assert kinds(**v6e, model=LLAMA) == set()
    assert kinds(**v6e, model={"name": "llama3-405b", "seq_len": 8192}) == {"separate_backward"}


def test_a_gpu_has_kernels_of_its_own() -> None:
    assert kinds(chip_key="h100", notes="log line dated 2025-10-08", model=LLAMA) == set()
