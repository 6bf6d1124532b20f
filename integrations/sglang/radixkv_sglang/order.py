"""Walks over the tree of a cache."""

from collections.abc import Iterator

import numpy as np
import radixkv
from numpy.typing import NDArray


def all_pages(cache: radixkv.Cache) -> NDArray[np.uint32]:
    """Every cached page once."""
    segments = [cache.node_pages(node) for node in _nodes(cache)]
    return np.concatenate(segments) if segments else np.empty(0, np.uint32)


def _nodes(cache: radixkv.Cache) -> Iterator[int]:
    waiting = [root for _, root in cache.namespaces()]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(cache.node_children(node).tolist())


def by_subtree_weight(cache: radixkv.Cache, nodes: list[int]) -> list[int]:
    """The indices of `nodes`, one node for each waiting request, in the order in which a walk of
    the tree meets them, depth first and the subtree with the most requests first. Those of a node
    come after those below it; 0, no node, comes last."""
    at: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        at.setdefault(node, []).append(index)
    weight: dict[int, int] = {0: 0}
    children: dict[int, list[int]] = {0: []}
    for node, indices in at.items():
        weight[0] += len(indices)
        while node:
            # A namespace's root has the parent 0.
            parent = cache.node_info(node).parent
            if node not in weight:
                weight[node] = 0
                children.setdefault(node, [])
                children.setdefault(parent, []).append(node)
            weight[node] += len(indices)
            node = parent
    found: list[int] = []
    waiting = [(0, False)]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            found.extend(at.get(node, ()))
            continue
        waiting.append((node, True))
        below = sorted(children.get(node, ()), key=weight.__getitem__)
        waiting.extend((child, False) for child in below)
    return found
