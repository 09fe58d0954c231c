"""Recording a JAX step: its compilations with JAX's own explanation, and what the host reads."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from chipshift.errors import InputError
from chipshift.trace.load import Inputs, Step, is_users, run_steps, shown, told
from chipshift.trace.outcome import INPUT_CHANGED, Break, Cause, Place, TraceResult, grouped

MISS = re.compile(r"TRACING CACHE MISS at (?P<file>.+?):(?P<line>\d+)(?::\d+)? ")
COMPILING = re.compile(r"^Compiling (?P<name>\S+) with global shapes and types (?P<types>.*)")
CALLBACKS = frozenset({"pure_callback", "io_callback", "debug_callback", "debug_print"})
NO_LOWERING = {"eig": "no TPU rule (jax 0.10.2, compiled for v5e)"}
JITTED_ANEW = "a function that was not jitted before (made anew each step?)"
READ_METHODS = ("item", "tolist", "__array__", "_value")


@dataclass
class Record:
    """What the recorders write to."""

    step: int = 0
    recording: bool = False
    programs: int = 0
    seen: set[str] = field(default_factory=set)
    causes: list[Cause] = field(default_factory=list)
    pending: Cause | None = None
    syncs: Counter[Place] = field(default_factory=Counter)
    inside_read: int = 0
    read: dict[int, weakref.ref[Any]] = field(default_factory=dict)

    def was_read(self, array: Any) -> bool:
        """Whether the host has this array's value already; from now on it has."""
        reference = self.read.get(id(array))
        if reference is not None and reference() is array:
            return True
        self.read[id(array)] = weakref.ref(array)
        return False


def record(step: Step, inputs: Inputs, steps: int) -> TraceResult:
    """Run ``step`` at most ``steps`` times and count compilations, host reads and callbacks.

    Python that a trace cannot follow (a branch on a traced value, a mask as an index) raises in
    JAX; it is reported as a graph break and ends the run. Raises InputError for other failures.
    """
    import jax

    log = Record()
    fallbacks: Counter[tuple[str, Place]] = Counter()
    breaks: list[Break] = []
    done = 0

    @contextlib.contextmanager
    def during(given: Any) -> Iterator[None]:
        log.step += 1
        if log.step == 1:
            fallbacks.update(_fallbacks(step, given))
        log.recording = True
        try:
            yield
        finally:
            log.recording = False

    errors = jax.errors
    traced_wrong = (
        errors.ConcretizationTypeError,
        errors.NonConcreteBooleanIndexError,
        errors.TracerArrayConversionError,
        errors.TracerIntegerConversionError,
    )
    try:
        with _compilations(log), _reads(log):
            done = run_steps(step, inputs, steps, during)
    except traced_wrong as error:
        breaks.append(Break(_raised_at(error), f"{type(error).__name__}: {_first_sentence(error)}"))
        done = log.step
    except (Exception, SystemExit) as error:
        raise InputError(f"trace: step {log.step} failed: {told(error)}") from error
    if not done:
        raise InputError("trace: the inputs function yielded nothing, expected one input a step")
    notes: tuple[str, ...] = (
        () if hasattr(step, "lower") else ("the step itself is not under jax.jit",)
    )
    if breaks:
        notes += (f"step {done} raised while it was traced, and nothing after it ran",)
    return TraceResult(
        framework="jax",
        steps=done,
        programs=log.programs,
        recompiles=grouped(log.causes),
        host_syncs=tuple(log.syncs.most_common()),
        fallbacks=tuple((op, place, n * done) for (op, place), n in fallbacks.items()),
        graph_breaks=tuple(breaks),
        notes=notes,
    )


class _Listener(logging.Handler):
    """Reads JAX's log of compilations and of the reasons for them."""

    def __init__(self, log: Record) -> None:
        super().__init__(logging.DEBUG)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        text, log = record.getMessage(), self._log
        miss = MISS.search(text)
        if miss is not None:
            file, line = miss["file"], int(miss["line"])
            place = Place(shown(file), line) if is_users(file) else _here()
            log.pending = Cause(*_explained(text, place))
        compiling = COMPILING.match(text)
        if compiling is None or not log.recording:
            return
        program = compiling["name"] + compiling["types"]
        cause = log.pending or Cause(_unexplained(compiling["name"]), _here())
        log.pending = None
        # The same function jitted anew is compiled again, but comes to the same program.
        log.programs += not (program in log.seen and cause.kind == JITTED_ANEW)
        if log.step > 1 or program in log.seen:
            log.causes.append(cause)
        log.seen.add(program)


def _explained(text: str, place: Place) -> tuple[str, Place, str]:
    """Kind, place and example of a cache miss, from JAX's own explanation of it."""
    changed = re.search(r"\* at (.+)", text)
    if "different input types" in text:
        return INPUT_CHANGED, place, changed[1].strip() if changed else ""
    if "static" in text and "different" in text:
        return "a static argument's value changed", place, ""
    if "never seen function" in text:
        return JITTED_ANEW, place, ""
    if "pytree" in text or "structure" in text:
        return "the structure of an input changed", place, ""
    lines = [line.strip() for line in text.splitlines()[1:] if line.strip()]
    return "a new cache key", place, lines[-1] if lines else ""


def _unexplained(name: str) -> str:
    return f"{name} ran on a shape or type not seen before"


@contextlib.contextmanager
def _compilations(log: Record) -> Iterator[None]:
    import jax

    logger, listener = logging.getLogger("jax"), _Listener(log)
    before = logger.propagate, list(logger.handlers)
    logger.propagate, logger.handlers = False, [listener]
    try:
        with jax.log_compiles(True), jax.explain_cache_misses(True):
            yield
    finally:
        logger.propagate, logger.handlers = before


@contextlib.contextmanager
def _reads(log: Record) -> Iterator[None]:
    """Count each transfer of a device array's value to the host, once an array."""
    import jax.numpy as jnp
    import numpy as np

    array = type(jnp.zeros(()))

    def noted(read: Callable[..., Any], direct: bool) -> Callable[..., Any]:
        def reading(*args: Any, **kwargs: Any) -> Any:
            ours = bool(args) and isinstance(args[0], array)
            if ours and log.recording and not log.inside_read:
                # NumPy functions are called by JAX too; only a call from the user's line is a read.
                users = not direct or is_users(sys._getframe(1).f_code.co_filename)
                if users and not _in_callback() and not log.was_read(args[0]):
                    log.syncs[_here()] += 1
            log.inside_read += ours
            try:
                return read(*args, **kwargs)
            finally:
                log.inside_read -= ours

        return reading

    with contextlib.ExitStack() as patches:
        for name in READ_METHODS:
            old: Any = getattr(array, name)
            of_property = isinstance(old, property)
            new: Any = noted(old.fget if of_property else old, direct=False)
            new = property(new) if of_property else new
            patches.enter_context(mock.patch.object(array, name, new))
        for name in ("asarray", "array"):
            patches.enter_context(mock.patch.object(np, name, noted(getattr(np, name), True)))
        yield


def _fallbacks(step: Step, given: Any) -> Counter[tuple[str, Place]]:
    """Calls of the step's program that leave the device, from its jaxpr; empty without one."""
    found: Counter[tuple[str, Place]] = Counter()
    trace = getattr(step, "trace", None)
    if trace is None:
        return found
    from chipshift.trace.load import called

    try:
        closed = called(trace, given).jaxpr
    except Exception:  # the run itself will meet it and report it
        return found
    for equation in _equations(closed.jaxpr):
        name = equation.primitive.name
        if name in CALLBACKS or name in NO_LOWERING:
            found[
                f"{name}{': ' + NO_LOWERING[name] if name in NO_LOWERING else ''}",
                _source(equation),
            ] += 1
    return found


def _equations(jaxpr: Any) -> Iterator[Any]:
    import jax

    for equation in jaxpr.eqns:
        yield equation
        for value in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns")
        ):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _equations(inner)


def _source(equation: Any) -> Place:
    for frame in equation.source_info.traceback.frames if equation.source_info.traceback else ():
        if is_users(frame.file_name):
            return Place(shown(frame.file_name), frame.line_num)
    return Place("", 0)


def _here() -> Place:
    frame: Any = sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return Place(shown(frame.f_code.co_filename), frame.f_lineno)
        frame = frame.f_back
    return Place("", 0)


def _in_callback() -> bool:
    """Whether a callback of the program is running: its transfer is counted as the callback."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.replace("\\", "/").endswith("jax/_src/callback.py"):
            return True
        frame = frame.f_back
    return False


def _raised_at(error: BaseException) -> Place:
    import traceback

    users = [f for f in traceback.extract_tb(error.__traceback__) if is_users(f.filename)]
    return Place(shown(users[-1].filename), users[-1].lineno or 0) if users else Place("", 0)


def _first_sentence(error: BaseException) -> str:
    return str(error).strip().splitlines()[0].partition(". ")[0].rstrip(".")
