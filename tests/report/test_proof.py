"""Part four in a line: what the compiler said of a plan."""

from chipshift.report.terminal import proof_words

COMPILED = {
    "machine": {"name": "v6e:4x4"},
    "compiled": True,
    "reason": None,
    "memory_bytes": {"peak": 8 * 2**30, "available": 31.25 * 2**30},
    "collectives": [
        {"kind": "all_gather", "mesh_axis": "fsdp"},
        {"kind": "reduce_scatter", "mesh_axis": "fsdp"},
        {"kind": "all_gather", "mesh_axis": "fsdp"},
    ],
}


def test_a_plan_that_compiles_names_its_memory_and_collectives() -> None:
    assert proof_words(COMPILED) == (
        "v6e:4x4: compiles, 8.0 GiB of 31.2 GiB a device; "
        "all_gather over fsdp, reduce_scatter over fsdp"
    )


def test_a_plan_that_does_not_says_why() -> None:
    refused = COMPILED | {"compiled": False, "reason": "out of memory", "memory_bytes": None}
    assert proof_words(refused) == "v6e:4x4: does not compile: out of memory"
