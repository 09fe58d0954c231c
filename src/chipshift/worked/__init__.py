"""Numbers, their working and their sources."""

from chipshift.worked.formula import formula, rename
from chipshift.worked.leaves import with_sources
from chipshift.worked.value import Worked, leaf, plain

__all__ = ["Worked", "formula", "leaf", "plain", "rename", "with_sources"]
