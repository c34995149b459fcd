"""Partitioning of hypergraphs, by local search (Cambazoglu et al., a term-based inverted index partitioning model, TWEB 2013)."""

from __future__ import annotations

import numpy as np

from dskype.distribution.kdt_tree import assign_items

__all__ = ["partition_hypergraph"]

_PASSES = 8
_IMBALANCE = 1.1
"""How many times the mean weight a part may have."""


def partition_hypergraph(vertices: np.ndarray, edges: np.ndarray, weights: np.ndarray, parts: int) -> np.ndarray:
    """Return the part of each vertex, int64[n], so that edges touch few parts.

    The parts are balanced at first, whatever the edges are. Then each vertex in turn, the heaviest first, moves to the part that the fewest of its edges do not touch yet, counting those
    edges that leave the part where it is, until a pass changes nothing: local search on the connectivity of edges, as in the refinement of multilevel partitioners. It follows
    from the arguments. O(passes * pins * parts).

    :param vertices: int64[pins]; ``edges``: int64[pins]: a vertex is in an edge.
    :param weights: float64[n], of vertices.
    """
    n, m = len(weights), int(edges.max(initial=-1)) + 1
    part_of = assign_items(weights, np.arange(n), parts)
    order = np.argsort(vertices, kind="stable")
    starts, own_edges = np.searchsorted(vertices[order], np.arange(n + 1)), edges[order]
    pins = np.zeros((m, parts), np.int32)
    np.add.at(pins, (edges, part_of[vertices]), 1)
    sums, most = np.bincount(part_of, weights, parts), _IMBALANCE * float(weights.sum()) / parts
    turn = [v for v in np.argsort(-weights, kind="stable").tolist() if starts[v] < starts[v + 1]]
    for _ in range(_PASSES):
        moved = 0
        for v in turn:
            here, touched = int(part_of[v]), own_edges[starts[v] : starts[v + 1]]
            rows = pins[touched]
            gain = (rows > 0).sum(axis=0) - (rows[:, here] > 1).sum()  # edges that have the part already, less those that keep this one
            gain[here] = 0
            gain[(sums + weights[v] > most) & (np.arange(parts) != here)] = -1
            best = int(gain.argmax())
            if gain[best] <= 0:
                continue
            pins[touched, here] -= 1
            pins[touched, best] += 1
            sums[here] -= weights[v]
            sums[best] += weights[v]
            part_of[v] = best
            moved += 1
        if not moved:
            break
    return part_of
