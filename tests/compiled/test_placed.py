"""A compilation stopped when its buffers are placed: what its dump says."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from chipshift.compiled.placed import Placement, fields, main_placement, placement, settled


def number(value: int) -> bytes:
    """Base 128, the lowest seven bits first, the high bit set on all bytes but the last."""
    out = bytearray()
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes([*out, value])


def message(*parts: tuple[int, int | bytes]) -> bytes:
    out = b""
    for key, value in parts:
        if isinstance(value, int):
            out += number(key * 8) + number(value)
        else:
            out += number(key * 8 + 2) + number(len(value)) + value
    return out


def event(kind: int, buffer: int, shares: int = 0) -> tuple[int, bytes]:
    return 1, message((1, kind), (2, buffer), (5, shares))


SIZES = {1: 100, 2: 300, 3: 300, 4: 200}
BUFFERS = [(1, message((1, name), (2, size))) for name, size in SIZES.items()]
ALLOCATIONS = [
    (3, message((1, 0), (2, 1000), (5, 1), (7, 1))),  # an argument that is an output as well
    (3, message((1, 1), (2, 50), (12, 1))),  # a constant
    (3, message((1, 2), (2, 4096), (8, 1))),  # on the core
    (3, message((1, 3), (2, 30), (3, 1))),  # local to a thread
    (3, message((1, 4), (2, 700))),  # the heap, longer than what is ever alive in it
]
# 100, then 400; buffer 3 takes the room of 2, which is free only after both are; then 100 + 200
HEAP = message(
    event(0, 1), event(0, 2), event(2, 3, 2), event(1, 2), event(1, 3), event(0, 4), event(1, 1),
    event(1, 4),
)  # fmt: skip
ASSIGNMENT = message(*BUFFERS, *ALLOCATIONS, (4, HEAP), (4, message(event(0, 1), event(1, 1))))
PROTO = message((1, b"the program"), (3, ASSIGNMENT))


def test_the_peak_is_what_is_fixed_and_the_most_alive_in_the_heap() -> None:
    found = placement(PROTO)
    assert found == Placement(
        arguments=1000, outputs=1000, temporaries=700, peak=1000 + 50 + 400, total=1000 + 50 + 700
    )


@given(some.integers(0, len(PROTO) - 1))
def test_a_dump_that_is_not_written_whole_is_none(cut: int) -> None:
    assert placement(PROTO[:cut]) is None


@given(some.dictionaries(some.integers(1, 2000), some.integers(0, 2**63 - 1)))
def test_fields_are_read_as_they_were_written(values: dict[int, int]) -> None:
    assert dict(fields(message(*values.items()))) == values


def test_the_largest_program_of_a_dump_is_the_one_meant(tmp_path: Path) -> None:
    assert main_placement(tmp_path) is None
    small = message((3, message((3, message((1, 0), (2, 8), (5, 1))))))
    (tmp_path / "a.after_optimizations.hlo.pb").write_bytes(small)
    (tmp_path / "b.after_optimizations.hlo.pb").write_bytes(PROTO)
    assert main_placement(tmp_path) == placement(PROTO)


def test_a_dump_that_is_being_written_again_is_waited_for(tmp_path: Path) -> None:
    """As the compiler does it: the file is emptied, then written; the text ends with a brace."""
    proto = tmp_path / "module_1.jit_train_step.after_optimizations.hlo.pb"
    proto.write_bytes(b"")
    text = tmp_path / "module_1.jit_train_step.after_optimizations.txt"
    text.write_text("HloModule m\n\nENTRY main {\n}\n")
    writer = threading.Timer(0.3, proto.write_bytes, [PROTO])
    writer.start()
    found, program = settled(tmp_path, 20.0)
    writer.join()
    assert found == placement(PROTO)
    assert program.startswith("HloModule")


def test_a_dump_that_stays_cut_short_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "module_1.jit_train_step.after_optimizations.hlo.pb").write_bytes(PROTO)
    with pytest.raises(TimeoutError, match="no placed program"):
        settled(tmp_path, 0.0)
