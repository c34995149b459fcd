"""Kernels of the trees of groups: an R-tree per keyword, with float32 bounds and groups as its leaves. Imports numpy and numba only.

A list of one group has no tree. A posting goes where bounds grow least; a group or node that is full is split in two.
"""

from __future__ import annotations

import numpy as np

from dskype.bolts.boolean.lanes._kernels import (
    BLOCKS,
    CHILD,
    COUNT,
    DEAD,
    FAN_OUT,
    GROUP,
    LANES,
    NONE,
    PARENT,
    TERM,
    TREE,
    UPPER,
    USED,
    clear_child,
    free_group,
    free_node,
    new_node,
)
from dskype.bolts.boolean.lanes.group_kernels import append, fit_frame, gather, group_bounds, lay, make_room, read_boxes
from dskype.bolts.boolean.lanes.table_kernels import set_list
from dskype.topology.kernel_cache import njit

_LOOSE = np.float32(0.05)  # what is loose in bounds counts a little: of two that need not grow the smaller one is taken
_FEW_CHILDREN = 4
_FEW_LANES = 64
_MERGED_LANES = 192


@njit(cache=True)
def set_parent(index, child, node):
    """Let a group (or ~node) know its parent."""
    if child >= 0:
        index.group_i4[child, PARENT] = node
    else:
        index.node_i4[~child, UPPER] = node


@njit(cache=True)
def parent_of(index, child):
    """Return the parent of a group (or ~node), -1: none."""
    return np.int64(index.group_i4[child, PARENT] if child >= 0 else index.node_i4[~child, UPPER])


@njit(cache=True)
def node_bounds(index, node):
    """Return the bounds of all children of a node."""
    bounds = index.node[node]
    west, south, east, north = bounds[0], bounds[16], bounds[32], bounds[48]
    for j in range(1, FAN_OUT):
        west, south, east, north = min(west, bounds[j]), min(south, bounds[16 + j]), max(east, bounds[32 + j]), max(north, bounds[48 + j])
    return np.float64(west), np.float64(south), np.float64(east), np.float64(north)


@njit(cache=True)
def bounds_of(index, child):
    """Return the bounds of a group (or ~node)."""
    if child >= 0:
        return group_bounds(index, child)
    return node_bounds(index, ~child)


@njit(cache=True)
def nth_child(index, node, child):
    """Return at which place of a node a child is."""
    j = 0
    while index.node_i4[node, CHILD + j] != child:
        j += 1
    return j


@njit(cache=True)
def set_child(index, node, j, child, bounds):
    """Let a node have a child, with its bounds, at a place."""
    index.node[node, j], index.node[node, 16 + j] = np.float32(bounds[0]), np.float32(bounds[1])
    index.node[node, 32 + j], index.node[node, 48 + j] = np.float32(bounds[2]), np.float32(bounds[3])
    index.node_i4[node, CHILD + j] = child


@njit(cache=True)
def tighten(index, child):
    """Compute the bounds of a group (or ~node) again, and of all that it is in."""
    node = parent_of(index, child)
    while node >= 0:
        set_child(index, node, nth_child(index, node, child), child, bounds_of(index, child))
        child = ~node
        node = parent_of(index, child)


@njit(cache=True)
def choose(index, node, posting, costs):
    """Return the place of the child whose bounds grow least for a rectangle.

    :param costs: float32[16], scratch.
    """
    bounds = index.node[node]
    west, south, east, north = np.float32(posting[0]), np.float32(posting[1]), np.float32(posting[2]), np.float32(posting[3])
    zero = np.float32(0)
    for j in range(FAN_OUT):
        left, right, under, over = bounds[j] - west, east - bounds[32 + j], bounds[16 + j] - south, north - bounds[48 + j]
        left, right, under, over = (
            left if left > zero else zero,
            right if right > zero else zero,
            under if under > zero else zero,
            over if over > zero else zero,
        )
        loose = (bounds[32 + j] - bounds[j]) + (bounds[48 + j] - bounds[16 + j])
        costs[j] = (left + right) + (under + over) + _LOOSE * loose
    best = 0
    for j in range(1, np.int64(index.node_i4[node, COUNT])):
        best = j if costs[j] < costs[best] else best
    return best


@njit(cache=True)
def descend(index, root, posting, costs):
    """Return the group in which a posting goes; all bounds on the way contain it."""
    node = root
    while True:
        j = choose(index, node, posting, costs)
        bounds = index.node[node]
        bounds[j], bounds[16 + j] = min(bounds[j], np.float32(posting[0])), min(bounds[16 + j], np.float32(posting[1]))
        bounds[32 + j], bounds[48 + j] = max(bounds[32 + j], np.float32(posting[2])), max(bounds[48 + j], np.float32(posting[3]))
        child = np.int64(index.node_i4[node, CHILD + j])
        if child >= 0:
            return child
        node = ~child


@njit(cache=True)
def _split_node(index, node, child, bounds):
    """Divide the children of a full node, and one more, between it and a new node; return that."""
    ids = np.empty(FAN_OUT + 1, np.int64)
    boxes = np.empty((FAN_OUT + 1, 4))
    for j in range(FAN_OUT):
        ids[j] = index.node_i4[node, CHILD + j]
        for e in range(4):
            boxes[j, e] = index.node[node, 16 * e + j]
    ids[FAN_OUT] = child
    for e in range(4):
        boxes[FAN_OUT, e] = bounds[e]
    x, y = boxes[:, 0] + boxes[:, 2], boxes[:, 1] + boxes[:, 3]
    order = np.argsort(x if x.max() - x.min() >= y.max() - y.min() else y)
    other = new_node(index, parent_of(index, ~node))
    for j in range(FAN_OUT):
        clear_child(index, node, j)
    for i in range(FAN_OUT + 1):
        o, to, j = order[i], node if i < 8 else other, i if i < 8 else i - 8
        set_child(index, to, j, ids[o], boxes[o])
        set_parent(index, ids[o], to)
    index.node_i4[node, COUNT], index.node_i4[other, COUNT] = 8, FAN_OUT - 7
    return other


@njit(cache=True)
def add_child(index, row, node, child):
    """Let a node have one more child, a group (or ~node); what is full is split.

    :param row: of the list.
    """
    while True:
        bounds = bounds_of(index, child)
        n = np.int64(index.node_i4[node, COUNT])
        if n < FAN_OUT:
            set_child(index, node, n, child, bounds)
            set_parent(index, child, node)
            index.node_i4[node, COUNT] = n + 1
            tighten(index, ~node)
            return
        other = _split_node(index, node, child, bounds)
        upper = parent_of(index, ~node)
        if upper < 0:
            upper = new_node(index, np.int64(-1))
            set_child(index, upper, 0, ~node, node_bounds(index, node))
            set_parent(index, ~node, upper)
            index.node_i4[upper, COUNT] = 1
            set_list(index.terms, row, TREE, 0, upper)
        else:
            tighten(index, ~node)
        node, child = upper, ~other


@njit(cache=True)
def put(index, work, row, kind, where, posting, codes, mark):
    """Put a posting into a list of one group, or with a tree; return its place.

    :param where: the group or the root.
    """
    if kind == GROUP:
        g = where
    else:
        g = descend(index, where, posting, work.costs)
    full = index.group_i4[g, USED] == index.group_i4[g, BLOCKS] * LANES
    if full:
        other = make_room(index, work, g)
        if other >= 0 and kind == GROUP:
            root = new_node(index, np.int64(-1))
            set_list(index.terms, row, TREE, 0, root)
            add_child(index, row, root, g)
            add_child(index, row, root, other)
            g = descend(index, root, posting, work.costs)
        elif other >= 0:
            tighten(index, g)
            add_child(index, row, parent_of(index, g), other)
            # One of the two has room; which one is closer is asked among all, that is what bounds say now.
            g = descend(index, index.terms.table[row, 1] >> 32, posting, work.costs)
            if index.group_i4[g, USED] == index.group_i4[g, BLOCKS] * LANES:
                g = other
                _contain(index, g, posting)
        elif kind == TREE:
            tighten(index, g)
            _contain(index, g, posting)
    return append(index, g, posting, codes, mark)


@njit(cache=True)
def _contain(index, g, posting):
    """Let all bounds above a group contain a rectangle."""
    child = np.int64(g)
    node = parent_of(index, child)
    while node >= 0:
        j, bounds = nth_child(index, node, child), index.node[node]
        bounds[j], bounds[16 + j] = min(bounds[j], np.float32(posting[0])), min(bounds[16 + j], np.float32(posting[1]))
        bounds[32 + j], bounds[48 + j] = max(bounds[32 + j], np.float32(posting[2])), max(bounds[48 + j], np.float32(posting[3]))
        child = ~node
        node = parent_of(index, child)


# -- removal ----------------------------------------------------------------------------------------


@njit(cache=True)
def remove_child(index, row, node, child):
    """Take a child out of a node; nodes without children go, and a root with one child only gives way to it."""
    while True:
        n, j = np.int64(index.node_i4[node, COUNT]) - 1, nth_child(index, node, child)
        for e in range(4):
            index.node[node, 16 * e + j] = index.node[node, 16 * e + n]
        index.node_i4[node, CHILD + j] = index.node_i4[node, CHILD + n]
        clear_child(index, node, n)
        index.node_i4[node, COUNT] = n
        upper = parent_of(index, ~node)
        if upper >= 0 and 0 < n <= _FEW_CHILDREN:
            _hand_over(index, node, upper)
            n = np.int64(index.node_i4[node, COUNT])
        if n:
            break
        free_node(index, node)
        if upper < 0:
            set_list(index.terms, row, NONE, 0, 0)
            return
        node, child = upper, ~node
    if upper >= 0:
        tighten(index, ~node)
        return
    while index.node_i4[node, COUNT] == 1:
        child = np.int64(index.node_i4[node, CHILD])
        free_node(index, node)
        set_parent(index, child, -1)
        if child >= 0:
            set_list(index.terms, row, GROUP, 0, child)
            return
        node = ~child
        set_list(index.terms, row, TREE, 0, node)


@njit(cache=True)
def _hand_over(index, node, upper):
    """Move the few children of a node to a sibling that has room for them, if there is one."""
    n = np.int64(index.node_i4[node, COUNT])
    for j in range(np.int64(index.node_i4[upper, COUNT])):
        other = ~np.int64(index.node_i4[upper, CHILD + j])
        if other >= 0 and other != node and index.node_i4[other, COUNT] + n <= FAN_OUT * 3 // 4:
            for i in range(n):
                child, at = np.int64(index.node_i4[node, CHILD + i]), np.int64(index.node_i4[other, COUNT])
                for e in range(4):
                    index.node[other, 16 * e + at] = index.node[node, 16 * e + i]
                index.node_i4[other, CHILD + at] = child
                set_parent(index, child, other)
                index.node_i4[other, COUNT] = at + 1
                clear_child(index, node, i)
            index.node_i4[node, COUNT] = 0
            tighten(index, ~other)
            return


@njit(cache=True)
def shrink(index, work, row, g):
    """Follow the removal of a posting of a group: it may go, be put in order again, or be joined with another one."""
    live = np.int64(index.group_i4[g, USED] - index.group_i4[g, DEAD])
    parent = parent_of(index, g)
    if live == 0:
        if parent < 0:
            set_list(index.terms, row, NONE, 0, 0)
        else:
            remove_child(index, row, parent, g)
        free_group(index, g)
    elif 2 * index.group_i4[g, DEAD] > index.group_i4[g, USED]:
        if parent >= 0 and live < _FEW_LANES and _join(index, work, row, g, parent, live):
            return
        n = gather(index, work, g, 0)
        lay(index, work, g, 0, n, False)
        tighten(index, g)


@njit(cache=True)
def _join(index, work, row, g, parent, live):
    """Move the postings of a group to the closest one with the same parent that has room; say whether there was one."""
    west, south, east, north = group_bounds(index, g)
    best, least = np.int64(-1), np.inf
    for j in range(np.int64(index.node_i4[parent, COUNT])):
        other = np.int64(index.node_i4[parent, CHILD + j])
        if other >= 0 and other != g and index.group_i4[other, USED] - index.group_i4[other, DEAD] + live <= _MERGED_LANES:
            b = index.node[parent]
            cost = max(east, b[32 + j]) - min(west, b[j]) + (max(north, b[48 + j]) - min(south, b[16 + j]))
            if cost < least:
                best, least = other, cost
    if best < 0:
        return False
    n = gather(index, work, g, gather(index, work, best, 0))
    read_boxes(index, work, 0, n)
    fit_frame(index, work, best, 0, n, 0.1)
    lay(index, work, best, 0, n, True)
    tighten(index, best)
    remove_child(index, row, parent, g)
    free_group(index, g)
    return True


@njit(cache=True)
def has_term(index, g):
    """Return the term of a group's list."""
    return index.group[g, TERM]
