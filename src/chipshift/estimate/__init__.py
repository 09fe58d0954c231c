"""Time and memory of one plan of one job on one machine."""

from chipshift.estimate.estimate import ErrorBand, Estimate, Price, estimate

__all__ = ["ErrorBand", "Estimate", "Price", "estimate"]
