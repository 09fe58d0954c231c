"""A machine: chips × fabric, by the names people use for it."""

from __future__ import annotations

from dataclasses import dataclass

from chipshift.machines.chip import Chip


@dataclass(frozen=True)
class Domain:
    """One level of the fabric, innermost first in ``Machine.fabric``.

    Attributes:
        kind: ``switched`` (NVLink), ``mesh`` (Infinity Fabric), ``torus`` (ICI, NeuronLink),
            ``scale_out`` (InfiniBand, RoCE, EFA between GPU or Trainium domains) or ``dcn``
            (between TPU slices).
        dims: chips along each physical axis of the domain; one entry for kinds other than torus.
        wraps: for each of ``dims``, whether the axis closes into a ring.
        link_bytes_per_s: one-way rate of one link **of a chip**: per neighbour and direction on a
            torus, per peer on a mesh, the chip's whole one-way egress on switched and scale-out.
        hop_latency_s: of one hop (torus), one step (others).
        source: of the rate.
    """

    kind: str
    dims: tuple[int, ...]
    wraps: tuple[bool, ...]
    link_bytes_per_s: float
    hop_latency_s: float
    source: str


@dataclass(frozen=True)
class Machine:
    """Chips in a fabric.

    Attributes:
        topology: as written after the colon (``16x16``, ``4x4x4*2``, ``8x64``).
        slices: TPU slices over DCN, or domains over the scale-out network.
        cloud_name: the cloud's accelerator type, or "" where there is none.
        fabric: levels from the inside out.
    """

    chip: Chip
    topology: str
    chips: int
    slices: int
    cloud_name: str
    fabric: tuple[Domain, ...]

    @property
    def devices(self) -> int:
        return self.chips * self.chip.devices_per_chip

    @property
    def name(self) -> str:
        return f"{self.chip.key}:{self.topology}"
