"""Gradients summed over replicas: in every microbatch where XLA holds the whole step, else once."""

from __future__ import annotations

import pytest

from chipshift.estimate import Estimate, estimate
from chipshift.estimate.sent_whole import scattered_along_sequence, scatters_one_sequence_whole
from chipshift.estimate.setting import setting
from chipshift.jobs.plan import Plan
from chipshift.machines import parse_machine
from tests.estimate.conftest import job_of


def of(
    stack: str, microbatches: int, optimizer_sharding: str, machine: str = "v6e:2x4", cp: int = 1
) -> Estimate:
    on = parse_machine(machine)
    dp = on.devices // cp
    plan = Plan(dp=dp, cp=cp, accumulation=microbatches, optimizer_sharding=optimizer_sharding)
    job = job_of("llama-3.2-1b", sequences=dp * microbatches, seq_len=4096)
    return estimate(job, plan, on, stack)


def sums(
    stack: str, microbatches: int, optimizer_sharding: str, machine: str = "v6e:2x4", cp: int = 1
) -> float:
    """Seconds a step over dp, in units of one all-reduce of all gradients."""
    one = of(stack, 1, "none", machine, cp).collectives_total["dp"]
    found = of(stack, microbatches, optimizer_sharding, machine, cp)
    return float(found.collectives_total["dp"] / one)


@pytest.mark.parametrize("stack", ["maxtext", "jax"])
def test_each_microbatchs_gradients_are_all_reduced(stack: str) -> None:
    assert sums(stack, 4, "none") == pytest.approx(4)


def test_the_compiled_step_scatters_each_microbatchs_and_gathers_weights_once() -> None:
    """A scatter and a gather are half an all-reduce each: 4 x 1/2 + 1/2."""
    assert sums("jax", 1, "zero1") == pytest.approx(1)
    assert sums("jax", 4, "zero1") == pytest.approx(4 / 2 + 1 / 2)


def test_where_libtpu_sends_that_scatter_whole_it_takes_an_all_reduces_time() -> None:
    """Over every device of v6e:4x4, a square, or over dp and cp at once: 4 + 1/2. v7x keeps it."""
    assert sums("jax", 4, "zero1", "v6e:4x4") == pytest.approx(4 + 1 / 2)
    assert sums("jax", 4, "zero1", "v6e:2x4", cp=2) == pytest.approx(4 + 1 / 2)
    assert sums("jax", 4, "zero1", "v7x:2x2x2", cp=2) == pytest.approx(4 / 2 + 1 / 2)


def test_maxtext_sums_over_microbatches_in_whole_gradients() -> None:
    """Its loop carries gradients as the weights lie, whole over data: 4 all-reduces, then half of
    one; of a single microbatch the update reads a part, so that a scatter will do."""
    assert sums("maxtext", 1, "zero1") == pytest.approx(1)
    assert sums("maxtext", 4, "zero1") == pytest.approx(4 + 1 / 2)


def test_frameworks_that_sum_after_the_last_microbatch_sum_once() -> None:
    assert sums("megatron", 4, "none", "h100:8x2") == pytest.approx(1)
    assert sums("megatron", 4, "zero1", "h100:8x2") == pytest.approx(1)


def test_each_sum_hides_behind_its_own_microbatch() -> None:
    four, one = of("jax", 4, "none"), of("jax", 1, "none")
    exposed = four.collectives_exposed["dp"]
    assert exposed == pytest.approx(4 * one.collectives_exposed["dp"])


@pytest.mark.parametrize(("machine", "whole"), [("v6e:2x4", True), ("h100:8x1", False)])
def test_one_sequence_a_device_is_scattered_whole_over_tp_on_a_tpu(
    machine: str, whole: bool
) -> None:
    on = setting(job_of("llama-3.2-1b"), parse_machine(machine), "megatron")
    assert scatters_one_sequence_whole(on) is whole
    assert float(scattered_along_sequence(1.0, 2.0, 1)) == 2.0
    assert float(scattered_along_sequence(1.0, 2.0, 2)) == 1.0
