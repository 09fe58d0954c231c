"""A GPU library's own counterpart is named, not a list of all of them."""

import pytest

from chipshift.audit.finding import TARGETS
from chipshift.audit.packages import package_rule
from chipshift.audit.rules.counterpart import counterpart, counterparts


@pytest.mark.parametrize(
    ("what", "target", "named"),
    [
        ("imports grouped_gemm: GPU kernel library", "jax", "jax.lax.ragged_dot"),
        ("imports megablocks.ops: GPU kernel library", "torchtpu", "torch.tpu.ops.ragged_dot"),
        ("needs causal-conv1d", "torch_xla", "torch.nn.Conv1d"),
        ("calls core.put() of nvshmem: GPU kernel library", "jax", "ragged_all_to_all"),
        ("needs cupy-cuda12x", "neuron", "NumPy"),
        ("imports gsplat: GPU kernel library", "jax", "No counterpart is known"),
    ],
)
def test_the_library_in_the_finding_decides(what: str, target, named: str) -> None:
    assert named in counterpart(what, target)


def test_a_library_without_an_entry_has_no_counterpart_of_its_own() -> None:
    assert counterpart("imports somebodys_kernels", "jax") == ""


def test_every_entry_serves_every_target() -> None:
    for package in counterparts():
        assert all(counterpart(f"imports {package}", target) for target in TARGETS), package


def test_entries_are_of_libraries_that_the_audit_knows() -> None:
    inside = {"dali": "nvidia.dali", "nvcomp": "nvidia.nvcomp"}
    unknown = [p for p in counterparts() if not package_rule(inside.get(p, p))]
    assert set(unknown) <= {"selective_scan"}
