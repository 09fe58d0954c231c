"""A full mesh without a switch: AMD Infinity Fabric inside a node.

Each device has one link to each other device of the node, so a group of ``n`` reaches its members
over ``n - 1`` links only: two MI300X talk over one link of the seven.
"""

from __future__ import annotations

from typing import Any

from chipshift.worked import formula


@formula(unit="B/s", source="Stas Bekman, ML Engineering, 'Inter-node and intra-node networking'")
def bandwidth(n: Any, link: Any) -> Any:
    """(n-1) · link one-way; a group of one is given one link so that nothing divides by 0.

    With it the formulas of ``switched`` hold: an all-gather takes v/(n·link), an all-to-all
    v/(n²·link), which is one message a pair on its own link.
    """
    return (n - 1 + (n == 1)) * link
