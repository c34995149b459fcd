"""Partitioning of hypergraphs (Cambazoglu et al., a term-based inverted index partitioning model, TWEB 2013), by the multilevel partitioner Mt-KaHyPar of the extra ``bench``."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType

import numpy as np

from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["partition_hypergraph"]

_IMBALANCE = 0.1
"""How far the weight of a part may be above the mean: a share of it."""

_TOTAL = 2**28
"""The sum of weights as the library gets them: integers, and their sum has 32 bits."""

_SEED = 1


def partition_hypergraph(vertices: np.ndarray, edges: np.ndarray, weights: np.ndarray, parts: int) -> np.ndarray:
    """Return the part of each vertex, int64[n], so that edges touch few parts: the least sum of (parts of an edge - 1) that is found.

    A vertex that is heavier than a part may be gets a part of its own, and the others share what is left: with such a vertex the library would fill some of the parts and leave others
    nearly empty. The preset ``DETERMINISTIC`` follows from the arguments, whatever the process has done before; ``DEFAULT`` with a seed does not, even on one thread. With one thread the
    library starts no other, so the process may fork later. It holds the interpreter's lock until it is done.

    :param vertices: int64[pins]; ``edges``: int64[pins]: a vertex is in an edge. In any order, and repetitions do not count.
    :param weights: float64[n], of vertices.
    :raises IllegalArgumentException: the package mtkahypar is not installed.
    """
    library, whole = _library(), _scaled(weights)
    heavy = _heavy(whole, parts)
    part_of = np.zeros(len(whole), np.int64)
    part_of[heavy] = np.arange(len(heavy))
    rest = np.setdiff1d(np.arange(len(whole)), heavy)
    if not len(rest) or parts - len(heavy) == 1:
        part_of[rest] = len(heavy)
        return part_of
    number = np.full(len(whole), -1)
    number[rest] = np.arange(len(rest))
    kept = number[vertices] >= 0
    nets = _nets(number[vertices[kept]], edges[kept], len(rest))
    initializer = library.initialize(1, False)  # one thread, and no warnings about the topology of the machine
    context = initializer.context_from_preset(library.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(parts - len(heavy), _IMBALANCE, library.Objective.KM1)
    context.logging = False
    library.set_seed(_SEED)
    graph = initializer.create_hypergraph(context, len(rest), len(nets), nets, whole[rest].tolist(), [1] * len(nets))
    part_of[rest] = len(heavy) + np.array(graph.partition(context).get_partition(), np.int64)
    return part_of


def _heavy(weights: np.ndarray, parts: int) -> np.ndarray:
    """Return the vertices that are heavier than a part may be, the heaviest first. At least one part is left for the others."""
    order, rest, count = np.argsort(-weights, kind="stable"), int(weights.sum()), 0
    while count < len(order) and weights[order[count]] > (1 + _IMBALANCE) * rest / (parts - count):
        rest -= int(weights[order[count]])
        count += 1
    return order[:count]


def _nets(vertices: np.ndarray, edges: np.ndarray, n: int) -> list[list[int]]:
    """Return the vertices of each edge that has at least two: the others touch one part wherever it is."""
    edge, vertex = np.divmod(np.unique(edges.astype(np.int64) * n + vertices), n)
    starts = np.flatnonzero(np.diff(edge, prepend=-1))
    lists, pins = [*starts.tolist(), len(edge)], vertex.tolist()
    return [pins[a:b] for a, b in pairwise(lists) if b - a > 1]


def _scaled(weights: np.ndarray) -> np.ndarray:
    """Return weights as integers from 1, so that vertices without weight are spread, too."""
    total = float(weights.sum())
    return np.maximum(1, np.rint(weights * (_TOTAL / total))).astype(np.int64) if total > 0 else np.ones(len(weights), np.int64)


def _library() -> ModuleType:
    """Return the module of the library, an extra.

    :raises IllegalArgumentException: it is not installed.
    """
    try:
        import mtkahypar
    except ImportError as error:
        raise IllegalArgumentException(
            explain("Partitioning by hypergraph needs the package mtkahypar.", given=str(error), hint="pip install '/path/to/dskype[bench]'")
        ) from None
    return mtkahypar
