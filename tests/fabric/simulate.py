"""Small link-level machines: fragments that move one link a step, and bytes counted on each link.

``gossip_steps`` finds a schedule; its time is an upper bound of the optimum, the formula a lower
one. ``all_to_all_load`` routes every pair dimension by dimension and counts.
"""

import itertools

import numpy as np


def neighbours(dims, wraps):
    """For each chip, in row-major order, the chips it has a link from, and along which axis."""
    chips = list(itertools.product(*(range(d) for d in dims)))
    index = {chip: at for at, chip in enumerate(chips)}
    found = []
    for chip in chips:
        near = []
        for axis, (size, wrap) in enumerate(zip(dims, wraps, strict=True)):
            for step in (-1, 1):
                to = chip[axis] + step
                if wrap:
                    to %= size
                if 0 <= to < size and to != chip[axis]:
                    near.append((index[(*chip[:axis], to, *chip[axis + 1 :])], axis))
        found.append(near)
    return found


def gossip_steps(dims, wraps, fragments, seed=0):
    """Steps for every chip to hold every chip's fragments, one fragment a directed link a step.

    An all-gather: with n chips and V bytes, one step is V/(n · fragments)/W1 seconds. Each chip
    takes the fragments that are rarest, over its scarcest link first.
    """
    near = [[chip for chip, _ in found] for found in neighbours(dims, wraps)]
    n = len(near)
    rng = np.random.default_rng(seed)
    have = np.zeros((n, n * fragments), dtype=bool)
    for chip in range(n):
        have[chip, chip * fragments : (chip + 1) * fragments] = True
    steps = 0
    while not have.all():
        count = have.sum(axis=0) + rng.random(n * fragments)
        new = have.copy()
        for chip in range(n):
            lacks = ~have[chip]
            offers = [have[other] & lacks for other in near[chip]]
            for at in sorted(range(len(offers)), key=lambda i: int(offers[i].sum())):
                choice = offers[at] & ~new[chip]
                if choice.any():
                    new[chip, np.argmin(np.where(choice, count, np.inf))] = True
        have = new
        steps += 1
    return steps


def worst_cut(dims, wraps, strides):
    """Largest over sets S of chips of (chips outside S) / (links into S): shards through a cut.

    Everything outside S has to come in through those links, and by Edmonds' theorem on disjoint
    branchings a schedule exists that reaches the worst of these bounds, so this is the time of the
    best all-gather of one shard a chip. A link of an axis whose members are s apart counts 1/s.
    """
    near = neighbours(dims, wraps)
    n = len(near)
    sets = (np.arange(1, 2**n - 1)[:, None] >> np.arange(n)) & 1
    capacity = np.zeros((n, n))
    for chip, found in enumerate(near):
        for other, axis in found:
            capacity[other, chip] += 1 / strides[axis]
    into = (((1 - sets) @ capacity) * sets).sum(axis=1)
    return ((n - sets.sum(axis=1)) / into).max()


def ring_shift_load(size, stride, groups, closes):
    """Shards on the busiest directed link of an axis while ``groups`` interleaved groups gather.

    Each group sends every shard half way round in both directions (a ring), or all the way in
    both (a line); neighbours of a group are ``stride`` chips apart.
    """
    length = size * stride
    right, left = np.zeros(length), np.zeros(length)
    for group in range(groups):
        for source in range(size):
            to_right = range(1, size // 2 + 1) if closes else range(1, size - source)
            to_left = range(1, (size - 1) // 2 + 1) if closes else range(1, source + 1)
            # On an even ring the farthest shard is sent half each way.
            for far in to_right:
                share = 0.5 if closes and size % 2 == 0 and far == size // 2 else 1.0
                for hop in range(stride):
                    right[(group + (source + far - 1) * stride + hop) % length] += share
                    if share == 0.5:
                        left[(group + (source - far) * stride + hop) % length] += share
            for far in to_left:
                for hop in range(stride):
                    left[(group + (source - far) * stride + hop) % length] += 1
    return max(right.max(), left.max())


def all_to_all_load(dims, wraps):
    """Largest number of chip-to-chip messages on a directed link, routed axis by axis."""
    load = {}
    chips = list(itertools.product(*(range(d) for d in dims)))
    for source in chips:
        for target in chips:
            at = list(source)
            for axis, (size, wrap) in enumerate(zip(dims, wraps, strict=True)):
                away = target[axis] - at[axis]
                ways = [(away, 1.0)]
                if wrap:
                    right, left = away % size, -((-away) % size)
                    ways = [(right, 1.0)] if right < -left else [(left, 1.0)]
                    if right == -left:
                        ways = [(right, 0.5), (left, 0.5)]
                for distance, share in ways:
                    step = 1 if distance > 0 else -1
                    for hop in range(abs(distance)):
                        here = (at[axis] + step * hop) % size
                        line = (axis, step, (*at[:axis], here, *at[axis + 1 :]))
                        load[line] = load.get(line, 0.0) + share
                at[axis] = target[axis]
    return max(load.values())
