"""Time and memory of one plan of one job on one machine.

The package can be called: ``chipshift.estimate(job, plan, machine)`` is ``chipshift.api.estimate``,
whose name in Python is this package's too.
"""

import sys
import types
from typing import Any

from chipshift.estimate.estimate import ErrorBand, Estimate, Price, estimate

__all__ = ["ErrorBand", "Estimate", "Price", "estimate"]


class _Callable(types.ModuleType):
    """A package that is also the public function of its name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Estimate:
        from chipshift import api

        return api.estimate(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
