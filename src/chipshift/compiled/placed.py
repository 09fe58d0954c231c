"""A compilation stopped where memory and collectives are settled: when XLA has placed its buffers.

libtpu optimises, partitions and schedules a program at full effort, places every buffer, and then
spends nine tenths of its time on code for the cores. Its dump holds the placed program and the
buffer assignment (``HloProto`` of OpenXLA, xla/service/hlo.proto) as soon as they exist.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLL_S = 0.2
SETTLES_S = 30.0
"""For how long a dump that the compiler is writing again is waited for."""
NEAR_THE_LIMIT = 0.99
"""Share of the usable memory from which on the compiler is left to say itself that it fits."""

ACCEPTED = "*.after_optimizations_after_buffer_assignment.txt"
"""Written once the compiler has accepted its buffers."""

PROTO = ".after_optimizations.hlo.pb"


@dataclass(frozen=True)
class Placement:
    """Bytes of device memory in a buffer assignment.

    Attributes:
        temporaries: the room that all of them share, with the gaps between them.
        peak: most that is alive at one time; what the compiler reports of a finished program.
        total: of all allocations; what has to fit.
    """

    arguments: int
    outputs: int
    temporaries: int
    peak: int
    total: int


def dumping(folder: Path) -> dict[str, Any]:
    """Compiler options that write the dump which is read here."""
    return {
        "xla_dump_to": str(folder),
        "xla_dump_hlo_as_proto": True,
        "xla_dump_hlo_as_text": True,
    }


def compile_until_placed(
    lowered: Any, options: dict[str, Any], usable_bytes: float, folder: Path
) -> Any:
    """Compile until the buffers are placed, with the dump in ``folder``.

    The compiler goes on in a thread: the process has to end with ``os._exit``.

    Returns:
        None once ``main_placement(folder)`` stands; the compiled program where the compiler
        finished without a dump that can be read.

    Raises:
        Exception: whatever the compiler raises, a refusal for memory among it.
    """
    made: list[Any] = []
    failed: list[Exception] = []

    def compile_it() -> None:
        try:
            made.append(lowered.compile(compiler_options={**options, **dumping(folder)}))
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=compile_it, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(POLL_S)
        found = main_placement(folder)
        if found is None:
            continue
        if found.total <= NEAR_THE_LIMIT * usable_bytes or any(folder.glob(ACCEPTED)):
            return None
    if failed:
        raise failed[0]
    return None if main_placement(folder) else made[0]


def main_placement(folder: Path) -> Placement | None:
    """That of the largest program in a dump; None before it is written whole."""
    found = [placement(file.read_bytes()) for file in folder.glob(f"*{PROTO}")]
    whole = [one for one in found if one is not None]
    return max(whole, key=lambda one: one.total) if whole else None


def main_text(folder: Path) -> str:
    """The placed program itself: the largest in a dump; "" before there is one."""
    files = [Path(str(file).removesuffix(".hlo.pb") + ".txt") for file in folder.glob(f"*{PROTO}")]
    return max((file.read_text("utf8") for file in files if file.exists()), key=len, default="")


def settled(folder: Path, wait_s: float = SETTLES_S) -> tuple[Placement, str]:
    """``main_placement`` and ``main_text`` of a dump whose files the compiler, which goes on in its
    thread, may be writing anew.

    Raises:
        TimeoutError: neither stands whole after ``wait_s``.
    """
    until = time.monotonic() + wait_s
    while True:
        found, text = main_placement(folder), main_text(folder)
        if found is not None and text.rstrip().endswith("}"):
            return found, text
        if time.monotonic() > until:
            raise TimeoutError(f"no placed program in the compiler's dump after {wait_s:g} s")
        time.sleep(POLL_S)


def placement(proto: bytes) -> Placement | None:
    """Read from an ``HloProto``; None where it is cut short or has no buffer assignment."""
    try:
        assignment = next((v for key, v in fields(proto) if key == 3), None)
        return None if assignment is None else _placement(bytes(assignment))
    except IndexError:
        return None


def _placement(assignment: bytes) -> Placement:
    """``BufferAssignmentProto``: 1 = logical buffers, 3 = allocations, 4 = traces of the heap."""
    sizes: dict[int, int] = {}
    arguments = outputs = fixed = 0
    heaps: list[int] = []
    traces: list[bytes] = []
    for key, value in fields(assignment):
        if key == 1:
            buffer = numbers(value)
            sizes[buffer.get(1, 0)] = buffer.get(2, 0)
        elif key == 3:
            # 2 size, 3 thread-local, 5 parameter, 7 live out, 8 color (0 = HBM), 12 constant
            one = numbers(value)
            size = one.get(2, 0)
            if one.get(8, 0) or one.get(3, 0):
                continue
            arguments += size if one.get(5, 0) else 0
            outputs += size if one.get(7, 0) else 0
            if one.get(5, 0) or one.get(7, 0) or one.get(12, 0):
                fixed += size
            else:
                heaps.append(size)
        elif key == 4:
            traces.append(bytes(value))
    heap = max(heaps, default=0)
    # as XLA does it, over the cores' own memories too, which only in tiny programs hold more
    peak = max((most_alive(trace, sizes) for trace in traces), default=heap)
    return Placement(arguments, outputs, heap, fixed + peak, fixed + heap)


def most_alive(trace: bytes, sizes: dict[int, int]) -> int:
    """Most bytes alive at one time in a ``HeapSimulatorTrace``: events of 1 kind (0 allocated,
    1 freed, 2 shares another's room), 2 buffer, 5 whose room it shares."""
    alive = most = 0
    users: dict[int, int] = {}
    room: dict[int, int] = {}
    for key, value in fields(trace):
        if key != 1:
            continue
        event = numbers(value)
        kind, buffer = event.get(1, 0), event.get(2, 0)
        if kind == 1:
            users[room[buffer]] -= 1
            alive -= 0 if users[room[buffer]] else sizes[room[buffer]]
            continue
        room[buffer] = room.get(event.get(5, 0), event.get(5, 0)) if kind == 2 else buffer
        alive += 0 if users.get(room[buffer]) else sizes[room[buffer]]
        users[room[buffer]] = users.get(room[buffer], 0) + 1
        most = max(most, alive)
    return most


def numbers(message: Any) -> dict[int, int]:
    """The whole numbers of a message by field."""
    return {key: value for key, value in fields(message) if isinstance(value, int)}


def fields(message: Any) -> Iterator[tuple[int, Any]]:
    """Fields of a Protocol Buffers message (Google, Encoding, 2026): numbers, or bytes as they are.

    Raises:
        IndexError: the message ends within a field.
    """
    view, at = memoryview(message), 0
    while at < len(view):
        tag, at = _varint(view, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(view, at)
            yield tag >> 3, value
            continue
        length, at = _varint(view, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        if at + length > len(view):
            raise IndexError
        yield tag >> 3, view[at : at + length]
        at += length


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
