"""What a job runs on: chips, their fabric, the slices that can be rented, and their names."""

from chipshift.machines.build import all_slices, gpu_machine
from chipshift.machines.chip import Alternative, Chip, Figure
from chipshift.machines.load import all_chips, chip
from chipshift.machines.machine import Domain, Machine
from chipshift.machines.names import chip_named, parse_machine, readings
from chipshift.machines.prices import common_commits, given_prices, like_with_like, price
from chipshift.machines.slices import SliceShape, rentable, wraps

__all__ = [
    "Alternative",
    "Chip",
    "Domain",
    "Figure",
    "Machine",
    "SliceShape",
    "all_chips",
    "all_slices",
    "chip",
    "chip_named",
    "common_commits",
    "given_prices",
    "gpu_machine",
    "like_with_like",
    "parse_machine",
    "price",
    "readings",
    "rentable",
    "wraps",
]
