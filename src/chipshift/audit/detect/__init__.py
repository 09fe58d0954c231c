"""The detectors, one module an area; each registers what it looks at."""

from __future__ import annotations

import functools

from chipshift.audit.registry import Detectors


@functools.cache
def detectors() -> Detectors:
    """All detectors, built once a process."""
    from chipshift.audit.detect import (
        attention,
        branches,
        collectives,
        cuda_runtime,
        devices,
        dims,
        graphs,
        imports,
        inputs,
        jax_code,
        kernels,
        masks,
        moe,
        precision,
        ranks,
        sizes,
        state,
        syncs,
    )

    found = Detectors()
    for area in (
        imports,
        kernels,
        attention,
        devices,
        cuda_runtime,
        precision,
        masks,
        sizes,
        branches,
        syncs,
        moe,
        collectives,
        ranks,
        dims,
        inputs,
        state,
        graphs,
        jax_code,
    ):
        area.register(found)
    return found
