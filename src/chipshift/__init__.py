"""chipshift: what a GPU training job becomes on TPU, with every number worked.

From Python: ``from chipshift import read, estimate, assess`` (docs/python.md). Nothing is imported
before it is used, so that ``import chipshift`` takes no time.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chipshift.api import assess as assess
    from chipshift.api import estimate as estimate
    from chipshift.api import read as read
    from chipshift.errors import InputError as InputError

__version__ = "0.1.0"

__all__ = ["InputError", "assess", "estimate", "read"]


def __getattr__(name: str) -> Any:
    if name in ("assess", "read"):
        from chipshift import api

        return getattr(api, name)
    if name == "InputError":
        from chipshift.errors import InputError

        return InputError
    raise AttributeError(f"module 'chipshift' has no attribute '{name}'")
