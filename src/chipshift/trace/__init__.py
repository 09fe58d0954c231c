"""Running a training step under a recorder: what a compiler-driven device would do with it."""

from chipshift.trace.outcome import Break, Place, Recompile, TraceResult
from chipshift.trace.run import trace

__all__ = ["Break", "Place", "Recompile", "TraceResult", "trace"]
