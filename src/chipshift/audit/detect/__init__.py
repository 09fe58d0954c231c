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
        last_batch,
        loss_scaling,
        masks,
        moe,
        operators,
        precision,
        ranks,
        seeds,
        sizes,
        state,
        syncs,
        unrolled,
    )

    found = Detectors()
    for area in (
        imports,
        kernels,
        attention,
        devices,
        cuda_runtime,
        precision,
        loss_scaling,
        masks,
        sizes,
        last_batch,
        unrolled,
        branches,
        syncs,
        moe,
        collectives,
        ranks,
        seeds,
        dims,
        inputs,
        state,
        operators,
        graphs,
        jax_code,
    ):
        area.register(found)
    return found
