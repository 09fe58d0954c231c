"""Bytes over links: where mesh axes sit, and how long collectives take there."""

from chipshift.fabric.collective import collective_terms, collective_time, inside_time
from chipshift.fabric.links import Links, links, links_worked, stack, take
from chipshift.fabric.paces import KINDS
from chipshift.fabric.placement import MESH_ORDER, Placement, Segment, assign, group, rest, subgroup

__all__ = [
    "KINDS", "MESH_ORDER", "Links", "Placement", "Segment", "assign", "collective_terms",
    "collective_time", "group", "inside_time", "links", "links_worked", "rest", "stack",
    "subgroup", "take",
]  # fmt: skip
