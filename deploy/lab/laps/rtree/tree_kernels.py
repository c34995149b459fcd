"""Kernels of the R-tree over parts: insertion with splits, removal, and joining nodes that have too few children.

Rectangles in nodes are float32 (see :func:`~dskype.deploy.lab.laps.parts_kernels.low`); those of the subscriptions decide where borders meet.
"""

from __future__ import annotations

import numpy as np

from dskype.deploy.lab.laps.parts_kernels import (
    EMPTY,
    KEYS,
    NEED_KEYS,
    NEED_NODES,
    NEED_PARTS,
    NEED_POOL,
    NEED_REBUILD,
    NEXT,
    NODES,
    PARTS,
    PLACE,
    POOL,
    ROOT,
    SPARE_NODE,
    SPARE_NODES,
    SPARE_PART,
    STALE,
    START,
    free_slot,
    give,
    low,
    part_size,
    put_part,
    terms_of,
)
from dskype.deploy.lab.laps.rtree.token_kernels import (
    COUNT,
    INVERTED,
    LEVEL,
    LISTS,
    ORDINAL,
    PARENT,
    SPATIAL,
    TOKENS,
    add_tokens,
    drop_tokens,
    forget,
    forget_column,
    forget_part,
    learn,
    learn_column,
    move_part,
    weight_of,
)
from dskype.deploy.lab.rtree_kernels import EAST, NORTH, SOUTH, WEST, partition
from dskype.topology.kernel_cache import njit

__all__ = ["insert", "part_rect", "plant", "rebuild", "remove"]


@njit(cache=True)
def _half(box, later):
    """Return a rectangle as four float32; if it crosses the antimeridian, its first half, or its second one if ``later``."""
    west, east = box[WEST], box[EAST]
    if west > east:
        if later:
            west = -180.0
        else:
            east = 180.0
    return low(west, 180.0), low(box[SOUTH], 90.0), low(east, 180.0), low(box[NORTH], 90.0)


@njit(cache=True)
def part_rect(index, part):
    """Return the rectangle of a part (four float32)."""
    return _half(index.box[part], index.pool[index.part[part, START]] & 2 != 0)


# -- nodes ----------------------------------------------------------------------------------------


@njit(cache=True)
def _new_node(index, level):
    meta = index.meta
    node = meta[SPARE_NODE]
    if node >= 0:
        meta[SPARE_NODE] = index.node[node, PARENT]
        meta[SPARE_NODES] -= 1
    else:
        node = meta[NODES]
        meta[NODES] += 1
    row = index.node[node]
    row[LEVEL], row[PARENT], row[COUNT], row[ORDINAL], row[TOKENS] = level, -1, 0, 0, 0
    return node


@njit(cache=True)
def _drop_node(index, node):
    index.node[node, LEVEL], index.node[node, PARENT] = -1, index.meta[SPARE_NODE]
    index.meta[SPARE_NODE] = node
    index.meta[SPARE_NODES] += 1


@njit(cache=True)
def plant(index):
    """Make an empty tree: a root without children."""
    index.meta[SPARE_NODE] = -1
    index.meta[ROOT] = _new_node(index, 0)


@njit(cache=True)
def _hint(index, part):
    """Return what a leaf keeps of a part beside its rectangle."""
    first, last = terms_of(index, part)
    if index.kind == INVERTED:
        return np.int32(last - first)
    return index.pool[first]


@njit(cache=True)
def _add_child(index, node, child, rect):
    """Put a child at the end of a node; what the node knows about terms is left to the caller."""
    row = index.node[node]
    j = row[COUNT]
    index.child[node, j] = child
    for k in range(4):
        index.rect[node, k, j] = rect[k]
    if row[LEVEL] == 0:
        index.part[child, PLACE] = node
        index.hint[node, j] = _hint(index, child)
        row[TOKENS] += weight_of(index, child)
    else:
        index.node[child, PARENT], index.node[child, ORDINAL] = node, j
        row[TOKENS] += index.node[child, TOKENS]
    row[COUNT] = j + 1


@njit(cache=True)
def _fit(index, node):
    """Compute the rectangle of a node in its parent; tell whether it has changed."""
    parent = np.int64(index.node[node, PARENT])
    if parent < 0:
        return False
    ordinal, n, rect = index.node[node, ORDINAL], index.node[node, COUNT], index.rect[node]
    above = index.rect[parent]
    changed = False
    for k in range(4):
        edge = rect[k, 0]
        for j in range(1, n):
            edge = min(edge, rect[k, j]) if k < 2 else max(edge, rect[k, j])
        if above[k, ordinal] != edge:
            above[k, ordinal] = edge
            changed = True
    return changed


@njit(cache=True)
def _grow_root(index):
    """Put a new root above the root; what nodes know is stale then, for levels are counted from the root."""
    old = index.meta[ROOT]
    root = _new_node(index, index.node[old, LEVEL] + 1)
    index.meta[ROOT] = root
    _add_child(index, root, old, np.zeros(4, np.float32))
    _fit(index, old)
    if index.kind != SPATIAL:
        index.meta[STALE] = 1


# -- insertion ------------------------------------------------------------------------------------


@njit(cache=True)
def _choose(index, west, south, east, north):
    """Write the path to the leaf for a rectangle: that whose rectangles grow least (Guttman 1984), the smaller of two; return its length."""
    node, depth = index.meta[ROOT], 0
    while True:
        index.path[depth] = node
        depth += 1
        if index.node[node, LEVEL] == 0:
            return depth
        rect = index.rect[node]
        chosen, least, least_area = 0, np.float32(np.inf), np.float32(np.inf)
        for j in range(index.node[node, COUNT]):
            area = (rect[EAST, j] - rect[WEST, j]) * (rect[NORTH, j] - rect[SOUTH, j])
            growth = (max(east, rect[EAST, j]) - min(west, rect[WEST, j])) * (max(north, rect[NORTH, j]) - min(south, rect[SOUTH, j])) - area
            if growth < least or (growth == least and area < least_area):
                chosen, least, least_area = j, growth, area
        node = np.int64(index.child[node, chosen])


@njit(cache=True)
def _room(index, nodes, keys, pool):
    """Return (what is lacking, how much) for so many more nodes, keys and elements of the pool; (0, 0) if nothing is."""
    meta = index.meta
    if meta[SPARE_NODES] + len(index.node) - meta[NODES] < nodes:
        return NEED_NODES, np.int64(nodes)
    if (meta[KEYS] + keys) * 4 > len(index.key) * 3:
        return NEED_KEYS, np.int64(keys)
    if meta[POOL] + pool > len(index.pool):
        return NEED_POOL, np.int64(pool)
    return 0, np.int64(0)


@njit(cache=True)
def _lacks(index, batch, i, depth):
    """Return what is lacking for part ``i`` at the end of the path, with all splits that it may bring about."""
    if index.meta[SPARE_PART] < 0 and index.meta[PARTS] == len(index.part):
        return NEED_PARTS, np.int64(1)
    terms = batch.offsets[i + 1] - batch.offsets[i]
    pool = np.int64(part_size(batch, i))
    if index.kind == SPATIAL:
        return _room(index, depth + 2, np.int64(0), pool)
    keys, splits = terms * (depth + 1), True
    for d in range(depth - 1, -1, -1):
        node = index.path[d]
        splits = splits and index.node[node, COUNT] == index.capacity
        if splits:
            keys += np.int64(index.node[node, TOKENS]) + terms
        if index.kind == LISTS and d < depth - 1:
            pool += (8 if splits else 4) * np.int64(index.node[node, TOKENS]) + 16
    return _room(index, depth + 2, keys, pool)


@njit(cache=True)
def _attach(index, part, depth):
    """Put a part into the leaf at the end of the path; there is room."""
    path = index.path
    west, south, east, north = part_rect(index, part)
    leaf, ordinal, weight = path[depth - 1], index.node[path[depth - 1], COUNT], weight_of(index, part)
    _add_child(index, leaf, part, np.array((west, south, east, north), np.float32))
    for d in range(1, depth):
        rect, j = index.rect[path[d - 1]], index.node[path[d], ORDINAL]
        rect[WEST, j], rect[SOUTH, j] = min(rect[WEST, j], west), min(rect[SOUTH, j], south)
        rect[EAST, j], rect[NORTH, j] = max(rect[EAST, j], east), max(rect[NORTH, j], north)
        index.node[path[d - 1], TOKENS] += weight
    add_tokens(index, part, leaf, ordinal)
    node = leaf
    while index.node[node, COUNT] > index.capacity:
        node = _split(index, node)


@njit(cache=True)
def _take_children(index, node, rects, children, n):
    """Take all children off a node, and write them and their rectangles behind the first ``n``; return how many there are."""
    for j in range(index.node[node, COUNT]):
        children[n] = index.child[node, j]
        for k in range(4):
            rects[n, k] = index.rect[node, k, j]
        n += 1
    index.node[node, COUNT] = index.node[node, TOKENS] = 0
    return n


@njit(cache=True)
def _split(index, node):
    """Move some children of a node that has too many to a new one beside it; return the parent."""
    if index.node[node, PARENT] < 0:
        _grow_root(index)
    parent = np.int64(index.node[node, PARENT])
    forget(index, node)
    forget_column(index, parent, index.node[node, ORDINAL])
    children, rects = np.empty(index.capacity + 1, np.int64), np.empty((index.capacity + 1, 4), np.float64)
    n = _take_children(index, node, rects, children, 0)
    goes = partition(rects[:n], index.least)
    twin = _new_node(index, index.node[node, LEVEL])
    for j in range(n):
        _add_child(index, twin if goes[j] else node, children[j], rects[j])
    index.node[parent, TOKENS] -= index.node[twin, TOKENS]  # which _add_child adds again
    _add_child(index, parent, twin, rects[0])
    _fit(index, node)
    _fit(index, twin)
    learn(index, node)
    learn(index, twin)
    learn_column(index, parent, index.node[node, ORDINAL])
    learn_column(index, parent, index.node[twin, ORDINAL])
    return parent


@njit(cache=True)
def insert(index, batch, first):
    """Insert parts ``first`` and following; return (how many are in, what is lacking for the next, how much)."""
    for i in range(first, len(batch.slots)):
        if index.meta[STALE]:
            return i, NEED_REBUILD, np.int64(0)
        west, south, east, north = _half(batch.boxes[i], batch.later[i])
        depth = _choose(index, west, south, east, north)
        lacking, need = _lacks(index, batch, i, depth)
        if lacking:
            return i, lacking, need
        _attach(index, put_part(index, batch, i), depth)
    return len(batch.slots), (NEED_REBUILD if index.meta[STALE] else 0), np.int64(0)


# -- removal --------------------------------------------------------------------------------------


@njit(cache=True)
def _detach(index, part):
    """Take a part out of its leaf; nodes may have too few children then."""
    leaf = np.int64(index.part[part, PLACE])
    last = index.node[leaf, COUNT] - 1
    ordinal = 0
    while index.child[leaf, ordinal] != part:
        ordinal += 1
    forget_part(index, part, leaf, ordinal)
    if ordinal != last:
        move_part(index, index.child[leaf, last], leaf, last, ordinal)
        index.child[leaf, ordinal], index.hint[leaf, ordinal] = index.child[leaf, last], index.hint[leaf, last]
        for k in range(4):
            index.rect[leaf, k, ordinal] = index.rect[leaf, k, last]
    index.node[leaf, COUNT] = last
    drop_tokens(index, part, leaf)
    weight, node = weight_of(index, part), leaf
    while node >= 0:
        index.node[node, TOKENS] -= weight
        node = np.int64(index.node[node, PARENT])
    node = leaf
    while last and _fit(index, node):
        node = np.int64(index.node[node, PARENT])


@njit(cache=True)
def _sibling(index, node):
    """Return the child of the same parent with which a node makes up the smallest rectangle, by what it adds to both."""
    parent, own = np.int64(index.node[node, PARENT]), index.node[node, ORDINAL]
    rect = index.rect[parent]
    chosen, least = np.int64(-1), np.float32(np.inf)
    for j in range(index.node[parent, COUNT]):
        if j == own:
            continue
        width = max(rect[EAST, j], rect[EAST, own]) - min(rect[WEST, j], rect[WEST, own])
        height = max(rect[NORTH, j], rect[NORTH, own]) - min(rect[SOUTH, j], rect[SOUTH, own])
        growth = width * height - (rect[EAST, j] - rect[WEST, j]) * (rect[NORTH, j] - rect[SOUTH, j])
        if chosen < 0 or growth < least:
            chosen, least = np.int64(index.child[parent, j]), growth
    return chosen


@njit(cache=True)
def _drop_child(index, parent, ordinal):
    """Take a child, whose terms are forgotten, off a node; the last one takes its place."""
    last = index.node[parent, COUNT] - 1
    if ordinal != last:
        moved = index.child[parent, last]
        forget_column(index, parent, last)
        index.child[parent, ordinal] = moved
        index.node[moved, ORDINAL] = ordinal
        for k in range(4):
            index.rect[parent, k, ordinal] = index.rect[parent, k, last]
        learn_column(index, parent, ordinal)
    index.node[parent, COUNT] = last


@njit(cache=True)
def _join(index, node):
    """Put the children of a node that has too few together with those of a sibling: into one node, or divided anew; return the parent."""
    parent, other = np.int64(index.node[node, PARENT]), _sibling(index, node)
    forget(index, node)
    forget(index, other)
    forget_column(index, parent, index.node[node, ORDINAL])
    forget_column(index, parent, index.node[other, ORDINAL])
    tokens = index.node[parent, TOKENS]
    children, rects = np.empty(2 * index.capacity, np.int64), np.empty((2 * index.capacity, 4), np.float64)
    n = _take_children(index, other, rects, children, 0)
    n = _take_children(index, node, rects, children, n)
    if n <= index.capacity:
        for j in range(n):
            _add_child(index, other, children[j], rects[j])
        _drop_child(index, parent, index.node[node, ORDINAL])
        _drop_node(index, node)
    else:
        goes = partition(rects[:n], index.least)
        for j in range(n):
            _add_child(index, node if goes[j] else other, children[j], rects[j])
        _fit(index, node)
        learn(index, node)
        learn_column(index, parent, index.node[node, ORDINAL])
    _fit(index, other)
    learn(index, other)
    learn_column(index, parent, index.node[other, ORDINAL])
    index.node[parent, TOKENS] = tokens
    return parent


@njit(cache=True)
def _repair(index, node):
    """Join a node, and those above it, that have too few children; a root with a single child goes."""
    while index.node[node, PARENT] >= 0 and index.node[node, COUNT] < index.least:
        node = _join(index, node)
    root = index.meta[ROOT]
    while index.node[root, LEVEL] > 0 and index.node[root, COUNT] == 1:
        child = np.int64(index.child[root, 0])
        _drop_node(index, root)
        index.node[child, PARENT] = -1
        index.meta[ROOT] = root = child
        if index.kind != SPATIAL:
            index.meta[STALE] = 1


@njit(cache=True)
def _lacks_for_removal(index, part):
    """Return what is lacking to take a part out: joining nodes may take more keys and longer lists for a while."""
    if index.kind == SPATIAL:
        return 0, np.int64(0)
    node, keys = np.int64(index.part[part, PLACE]), np.int64(0)
    while index.node[node, PARENT] >= 0 and index.node[node, COUNT] <= index.least:
        node, most = np.int64(index.node[node, PARENT]), np.int64(0)
        for j in range(index.node[node, COUNT]):
            most = max(most, np.int64(index.node[index.child[node, j], TOKENS]))
        keys += 2 * most
    return _room(index, 0, keys, 8 * keys if index.kind == LISTS else np.int64(0))


@njit(cache=True)
def remove(index, slots, first):
    """Take slots ``first`` and following out; return (how many are out, what is lacking for the next, how much)."""
    for i in range(first, len(slots)):
        part = np.int64(index.head[slots[i]])
        while part >= 0:
            if index.part[part, PLACE] >= 0:  # otherwise it was taken out by a call that then lacked room
                if index.meta[STALE]:
                    return i, NEED_REBUILD, np.int64(0)
                lacking, need = _lacks_for_removal(index, part)
                if lacking:
                    return i, lacking, need
                leaf = np.int64(index.part[part, PLACE])
                _detach(index, part)
                index.part[part, PLACE] = -1
                _repair(index, leaf)
            part = np.int64(index.part[part, NEXT])
        free_slot(index, slots[i])
    return len(slots), (NEED_REBUILD if index.meta[STALE] else 0), np.int64(0)


# -- levels that are counted anew -----------------------------------------------------------------


@njit(cache=True)
def rebuild(index):
    """Make everything that nodes know about terms; return (what is lacking, how much). If something is, it is to be called again."""
    for place in range(len(index.key)):
        if index.kind == LISTS and index.key[place] != EMPTY:
            start, capacity = index.value[place] >> 32, np.int64(1) << (index.value[place] & 31)
            give(index, start, capacity)
        index.key[place] = EMPTY
    index.meta[KEYS] = 0
    levels = np.int64(index.node[index.meta[ROOT], LEVEL]) + 1
    for node in range(index.meta[NODES]):
        if index.node[node, LEVEL] != 0:
            continue
        for j in range(index.node[node, COUNT]):
            part = np.int64(index.child[node, j])
            first, last = terms_of(index, part)
            if (index.meta[KEYS] + levels * (last - first)) * 4 > len(index.key) * 3:
                return NEED_KEYS, levels * (last - first)
            if not add_tokens(index, part, node, j):
                return NEED_POOL, len(index.pool) - index.meta[POOL] + 1
    index.meta[STALE] = 0
    return 0, np.int64(0)
