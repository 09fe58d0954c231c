"""chipshift: what a GPU training job becomes on TPU, with every number worked."""

__version__ = "0.1.0"
