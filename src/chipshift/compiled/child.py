"""The process that compiles: reads a request on standard input, writes a report as JSON.

It is run as ``python -m chipshift.compiled.child REPORT``; each line it prints on standard output
names the phase that begins. A crash of the compiler ends this process and nothing else; when
standard input ends, so does this process.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from chipshift.compiled.request import Request, from_json, versions
from chipshift.errors import InputError

_phases = 1
"""File descriptor that names of phases go to."""

FOLDER = "chipshift-compile-"
"""How the name of the folder begins that a compilation writes into."""

TRIES = 20
"""Attempts to remove a folder that is still written into."""

NO_TILES = "Couldn't find output tile sizes"
"""XLA:GPU, which has no GPU to measure on, took a Triton kernel for a matmul whose shape it cannot
tile; with one it would take the library's."""

LOOKING = "looking for what is too large"


def environment() -> dict[str, str]:
    """What must be set before jax is imported: no metadata server, no lock, no attached device."""
    return {
        "TPU_SKIP_MDS_QUERY": "1",
        "JAX_PLATFORMS": "cpu",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_STDERR_LOG_LEVEL": "3",
        "TPU_MIN_LOG_LEVEL": "3",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def main() -> None:
    os.environ.update(environment())
    request = from_json(sys.stdin.readline())
    report = Path(sys.argv.pop(1))  # the user's module may parse its command line: it finds none
    threading.Thread(target=end_with_parent, args=(request, report), daemon=True).start()
    keep_phases_apart()
    try:
        outcome = compile_request(request)
    except InputError as error:
        outcome = {"input_error": str(error)}
    report.write_text(json.dumps(outcome))
    os._exit(0)  # a compiler stopped when its buffers were placed goes on in its thread


def end_with_parent(request: Request, report: Path) -> None:
    """Leave when whoever asked is gone: interrupted, crashed or killed, so that nobody else removes
    what was written."""
    sys.stdin.read()
    if request.keep:
        request.part.unlink(missing_ok=True)
    for _ in range(TRIES if report.parent.name.startswith(FOLDER) else 0):
        shutil.rmtree(report.parent, ignore_errors=True)  # the compiler may be writing into it
        if not report.parent.exists():
            break
    os._exit(1)


def keep_phases_apart() -> None:
    """What the user's code prints goes where errors go; phases alone to whoever asked."""
    global _phases
    _phases = os.dup(1)
    os.dup2(2, 1)


def phase(name: str) -> None:
    with suppress(OSError):  # nobody listens any longer: end_with_parent leaves
        os.write(_phases, f"{name}\n".encode())


def compile_request(request: Request) -> dict[str, Any]:
    """Trace, lower, compile and read; what the user can mend comes back as ``reason``."""
    from chipshift.compiled.programs import build
    from chipshift.compiled.users import users_files, watch_reads

    started = time.monotonic()
    base: dict[str, Any] = {
        "program": request.program,
        "mode": request.mode,
        "versions": versions(),
        "compiled": False,
    }
    try:
        phase("starting the compiler")
        try:
            devices = target_devices(request)
        except Exception as error:  # jax's own error types differ by version
            words = str(error).split("\n", 1)[0]
            return base | {"reason": f"the compiler refuses {request.target.topology}: {words}"}
        phase("tracing")
        opened = watch_reads() if request.kind in ("entry", "torch") else set()
        program = build(request, devices)
    except InputError as error:
        return base | {"input_error": str(error)}
    if program.failure is not None:
        return base | {"reason": program.failure, "findings": program.findings}
    base |= {"files": users_files(opened), "notes": program.notes, "sharding": program.sharding}
    lowered_s = time.monotonic() - started
    phase("compiling")
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="placed-")) if request.has_dump else None
    try:
        compiled = compile_it(request, program, folder)
    except Exception as error:
        spent = {"lower_time_s": lowered_s, "compile_time_s": time.monotonic() - begun}
        said = refused(request, program, str(error), folder)
        return base | spent | {"findings": program.findings} | said
    compile_s = time.monotonic() - begun
    phase("reading the program")
    from chipshift.compiled.reading import read, read_placed

    found = (
        base
        | {"compiled": True, "reason": None, "findings": program.findings}
        | {"lower_time_s": lowered_s, "compile_time_s": compile_s}
        | (
            read_placed(request, program, folder)
            if compiled is None and folder is not None
            else read(request, program, compiled, folder)
        )
    )
    memory = found["memory_bytes"]
    if request.detail and memory["available"] and (memory["peak"] or 0) > memory["available"]:
        phase(LOOKING)  # XLA's GPU compiler refuses nothing
        found |= {"largest": too_large(request, program).get("largest", found["largest"])}
    return found


def compile_it(request: Request, program: Any, folder: Path | None) -> Any:
    """The compiled program, or None where the compiler was stopped when its buffers were placed.

    Args:
        folder: that the compiler's dump is written to, None for none.
    """
    if folder is None:
        try:
            return program.lowered.compile(compiler_options=request.compiler_options)
        except Exception as error:  # jax's own error types differ by version
            if NO_TILES not in str(error):
                raise
            options = {**request.compiler_options, "xla_gpu_enable_triton_gemm": False}
            return program.lowered.compile(compiler_options=options)
    from chipshift.compiled.placed import compile_until_placed, dumping
    from chipshift.machines.load import chip

    if not request.stops_when_placed:
        options = {**request.compiler_options, **dumping(folder)}
        return program.lowered.compile(compiler_options=options)
    usable = chip(request.target.chip).value("usable_hbm_bytes_per_device")
    return compile_until_placed(program.lowered, request.compiler_options, usable, folder)


def refused(
    request: Request, program: Any, message: str, folder: Path | None = None
) -> dict[str, Any]:
    """Why there is no program; out of memory: how much too much, and what is the largest.

    Args:
        folder: of the dump that was made at once, else None.
    """
    from chipshift.compiled.reasons import explain
    from chipshift.compiled.too_large import read_dump

    said = explain(message)
    if said.get("out_of_memory") and request.detail:
        phase(LOOKING)
        said |= read_dump(folder) if folder else too_large(request, program)
    return said


def too_large(request: Request, program: Any) -> dict[str, Any]:
    from chipshift.compiled.too_large import what_is_large

    return what_is_large(program.lowered, request.compiler_options)


def target_devices(request: Request) -> list[Any]:
    """The devices of the target, as the compiler describes them with none attached."""
    from jax.experimental import topologies

    target = request.target
    if target.platform == "cuda":
        topology = topologies.get_topology_desc(
            platform="cuda", target_config=target.config, topology=target.topology
        )
    else:
        settings: dict[str, Any] = {"num_slices": target.slices} if target.slices > 1 else {}
        if set(target.topology.partition(":")[2]) <= set("1x"):
            settings["chips_per_host_bounds"] = (1, 1, 1)  # one chip; hosts have more by default
        if target.chip == "v4":  # one device of a chip's two cores, as its users run it
            settings["chip_config_name"] = "megacore"
        topology = topologies.get_topology_desc(
            topology_name=target.topology, platform="tpu", **settings
        )
    return list(topology.devices)


if __name__ == "__main__":
    main()
