"""Kernels that answer top-k queries from the IR-tree, best node first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.bolts.topk._kernels import find_term
from dskype.bolts.window._kernels import answers, lowest, make_best, offer
from dskype.deploy.lab.rtree_kernels import EAST, NORTH, SOUTH, WEST
from dskype.deploy.lab.skype.irtree_kernels import FIRST, LEVEL, MARK, NEXT, NODES, OWNER, ROOT, index_of
from dskype.spouts.score_kernels import MARGIN, score, ssim, ssim_in_metres
from dskype.spouts.sphere_kernels import EARTH_RADIUS_M, RADIANS
from dskype.topology.kernel_cache import njit

__all__ = ["topk"]


class _Room(NamedTuple):
    """Room for the children, or messages, of one node that have terms of a query.

    :ivar found: int64[capacity], nodes, or indexes of messages.
    :ivar sums: float64[capacity], their text parts; for nodes the highest ones below.
    :ivar below: int32[capacity, terms], for nodes: their entries for the terms of the query, or -1.
    """

    found: np.ndarray
    sums: np.ndarray
    below: np.ndarray


@njit(cache=True)
def _push(bounds, items, size, bound, item):
    """Add an item to a heap with the highest bound at its root."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if bounds[parent] >= bound:
            break
        bounds[i], items[i] = bounds[parent], items[parent]
        i = parent
    bounds[i], items[i] = bound, item


@njit(cache=True)
def _pop(bounds, items, size):
    """Remove the root of a heap of ``size`` items."""
    bound, item = bounds[size - 1], items[size - 1]
    size -= 1
    i = 0
    while True:
        below = 2 * i + 1
        if below >= size:
            break
        if below + 1 < size and bounds[below + 1] > bounds[below]:
            below += 1
        if bounds[below] <= bound:
            break
        bounds[i], items[i] = bounds[below], items[below]
        i = below
    bounds[i], items[i] = bound, item


@njit(cache=True, inline="always")
def _nearest(box, lon, lat, diagonal_deg, scale_m):
    """Return the highest spatial similarity that a point in a rectangle can have; in metres, by its latitude alone."""
    dx, dy = max(box[WEST] - lon, 0.0, lon - box[EAST]), max(box[SOUTH] - lat, 0.0, lat - box[NORTH])
    if scale_m > 0.0:
        return 1.0 - min(1.0, dy * ((1.0 - MARGIN) * RADIANS * EARTH_RADIUS_M) / scale_m)
    return ssim(dx, dy, diagonal_deg)


@njit(cache=True)
def topk(tree, rows, messages, key, local, queries, thresholds, extent, diagonal_deg):
    """Return (offsets, rows, scores) of the best messages of every query; rows count from ``messages.base``.

    Nodes are visited best first, by the highest score that a message below them may have. The bounds are computed like scores, in the same
    order, from values that are not lower. Rounding is monotone, so they hold to the last bit.

    :param key: with ``local``, the map of terms: see :func:`dskype.bolts.topk._kernels.find_term`.
    :param thresholds: float64[n], the least scores.
    """
    n, nodes, width = len(queries.watermark), tree.meta[NODES], np.int64(1)
    low, high, best = make_best(messages, queries, thresholds, extent)
    for q in range(n):
        width = max(width, queries.offsets[q + 1] - queries.offsets[q])
    # The heap has bounds and items; an item has a node and its entries. A node is visited once per query.
    bounds, items = np.empty(nodes, np.float64), np.empty(nodes, np.int32)
    of_item, lists = np.empty(nodes, np.int32), np.empty((nodes, width), np.int32)
    found, sums, below = np.empty(tree.capacity, np.int64), np.empty(tree.capacity, np.float64), np.empty((tree.capacity, width), np.int32)
    room = _Room(found, sums, below)
    for q in range(n):
        if best.begin[q + 1] == best.begin[q]:
            continue
        begin, terms = queries.offsets[q], queries.offsets[q + 1] - queries.offsets[q]
        waiting = pushed = 0
        for t in range(terms):
            at = find_term(queries.terms[begin + t], key, local)
            lists[0, t] = tree.top[at] if at >= 0 else -1
            if lists[0, t] >= 0:
                waiting = pushed = 1
        of_item[0], bounds[0], items[0] = tree.meta[ROOT], np.inf, 0
        least = lowest(best, q)
        while waiting and bounds[0] >= least:  # equal is enough: the message may be newer
            item = items[0]
            _pop(bounds, items, waiting)
            waiting -= 1
            node = of_item[item]
            if tree.node[node, LEVEL] == 0:
                least = _scan(tree, rows, queries, q, lists[item], low[q], high[q], diagonal_deg, room, best)
                continue
            held = _children(tree, queries, q, lists[item], room)
            for h in range(held):
                spatial = _nearest(tree.box[found[h]], queries.lon[q], queries.lat[q], diagonal_deg, queries.scale_m[q])
                bound = score(queries.alpha[q], spatial, sums[h])
                if bound >= least:
                    of_item[pushed] = found[h]
                    for t in range(terms):
                        lists[pushed, t] = below[h, t]
                    _push(bounds, items, waiting, bound, pushed)
                    waiting += 1
                    pushed += 1
    return answers(best, thresholds)


@njit(cache=True)
def _scan(tree, rows, queries, q, lists, low, high, diagonal_deg, room, best):
    """Offer the messages of a leaf, from index ``low`` up to ``high``; return the least score that can now enter."""
    entry, found, sums = tree.entry, room.found, room.sums
    tree.meta[MARK] += 1
    mark, held, begin = tree.meta[MARK], 0, queries.offsets[q]
    for t in range(queries.offsets[q + 1] - begin):
        e = lists[t]
        if e < 0:
            continue
        factor, e = queries.weights[begin + t], entry[e, FIRST]
        while e >= 0:
            i = index_of(entry[e, OWNER], rows.base)
            if low <= i < high:
                if tree.seen[i] != mark:
                    tree.seen[i], tree.at[i] = mark, held
                    found[held], sums[held] = i, 0.0
                    held += 1
                sums[tree.at[i]] += factor * tree.weight[e]
            e = entry[e, NEXT]
    alpha, lat, lon, scale_m = queries.alpha[q], queries.lat[q], queries.lon[q], queries.scale_m[q]
    least = lowest(best, q)
    for h in range(held):
        i = found[h]
        near = ssim_in_metres(lat, lon, rows.lat[i], rows.lon[i], scale_m) if scale_m > 0.0 else ssim(rows.lon[i] - lon, rows.lat[i] - lat, diagonal_deg)
        s = score(alpha, near, sums[h])
        if s >= least:
            least = offer(best, q, s, i)
    return least


@njit(cache=True)
def _children(tree, queries, q, lists, room):
    """Find the children of a node that have terms of the query, write them into ``room``, and return their number.

    :param lists: int32[terms], the node's entries for the terms, -1: none.
    """
    entry, found, sums, below = tree.entry, room.found, room.sums, room.below
    tree.meta[MARK] += 1
    mark, held, begin = tree.meta[MARK], 0, queries.offsets[q]
    terms = queries.offsets[q + 1] - begin
    for t in range(terms):
        e = lists[t]
        if e < 0:
            continue
        factor, e = queries.weights[begin + t], entry[e, FIRST]
        while e >= 0:
            child = np.int64(entry[e, OWNER])
            if tree.seen[child] != mark:
                tree.seen[child], tree.at[child] = mark, held
                found[held], sums[held] = child, 0.0
                for other in range(terms):
                    below[held, other] = -1
                held += 1
            h = tree.at[child]
            sums[h] += factor * tree.weight[e]
            below[h, t] = e
            e = entry[e, NEXT]
    return held
