"""Kernels of the IR-tree: insertion with splits, and removal."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.deploy.lab.rtree_kernels import EAST, NORTH, SOUTH, WEST, partition
from dskype.topology.kernel_cache import njit

__all__ = ["Tree", "TreeRows", "collapse", "insert", "keywords", "plant", "remove", "tidy"]

OWNER, TERM, UP, FIRST, NEXT, AFTER, BEFORE = range(7)
LEVEL, PARENT, COUNT, HEAD, SIZE = range(5)
ROOT, ENTRIES, SPARE_ENTRY, SPARE_ENTRIES, NODES, SPARE_NODE, SPARE_NODES, ORPHANS, MARK = range(9)
_LOW = np.int64(2**31 - 1)


class Tree(NamedTuple):
    """The R-tree and its inverted files.

    An *entry* says that a node, or a message, has a term: ``(OWNER, TERM)``. Its weight is that of the message, or the highest one below
    the node. The entries of a term are a tree like that of the nodes: from the entry of the root (``top[term]``) through the entries of the
    children that have the term (a list: FIRST, then NEXT) down to the messages, and back (UP). All entries of one owner are a list, too
    (HEAD, then AFTER; for nodes also BEFORE), for messages in rising order of the global terms. -1: none.

    The arrays have room for more. ``meta`` says how much is used, and where the lists of spare entries and nodes begin (linked by NEXT
    and PARENT; a spare node has level -1).

    :ivar capacity: the most children of a node.
    :ivar meta: int64[9]: ROOT, ENTRIES, SPARE_ENTRY, SPARE_ENTRIES, NODES, SPARE_NODE, SPARE_NODES, ORPHANS, MARK.
    :ivar entry: int32[e, 7]: OWNER (node, or the low 31 bits of the message's row), TERM (dense id), UP, FIRST, NEXT, AFTER, BEFORE.
    :ivar weight: float64[e].
    :ivar node: int32[n, 5]: LEVEL (0: its children are messages), PARENT, COUNT (children), HEAD, SIZE (entries).
    :ivar box: float64[n, 4], the minimum bounding rectangle in degrees: WEST, SOUTH, EAST, NORTH.
    :ivar child: int32[n, capacity + 1], nodes, or the low 31 bits of rows; one more than the capacity until the node is split.
    :ivar top: int32[terms], the root's entry by dense id.
    :ivar path: int64[64], the nodes from the root to a leaf.
    :ivar orphans: int64[capacity + 1], messages (indexes of rows) whose leaf was dissolved.
    :ivar seen: int64[], by node or row: its last mark; ``at``: int64[], the place that belongs to the mark.
    """

    capacity: int
    meta: np.ndarray
    entry: np.ndarray
    weight: np.ndarray
    node: np.ndarray
    box: np.ndarray
    child: np.ndarray
    top: np.ndarray
    path: np.ndarray
    orphans: np.ndarray
    seen: np.ndarray
    at: np.ndarray


class TreeRows(NamedTuple):
    """The messages; row *r* is ``column[r - base]``.

    :ivar base: the first row in the columns.
    :ivar lat: float64[m], degrees.
    :ivar lon: float64[m], degrees.
    :ivar leaf: int32[m], the leaf of the message, or -1.
    :ivar head: int32[m], its first entry.
    """

    base: int
    lat: np.ndarray
    lon: np.ndarray
    leaf: np.ndarray
    head: np.ndarray


@njit(cache=True, inline="always")
def index_of(stored, base):
    """Return the index of a row, given its low 31 bits."""
    return (np.int64(stored) - base) & _LOW


# -- entries and nodes ----------------------------------------------------------------------------


@njit(cache=True)
def _new_entry(tree, owner, term, up, weight):
    meta, entry = tree.meta, tree.entry
    e = meta[SPARE_ENTRY]
    if e >= 0:
        meta[SPARE_ENTRY] = entry[e, NEXT]
        meta[SPARE_ENTRIES] -= 1
    else:
        e = meta[ENTRIES]
        meta[ENTRIES] += 1
    entry[e, OWNER], entry[e, TERM], entry[e, UP] = owner, term, up
    entry[e, FIRST] = entry[e, NEXT] = entry[e, AFTER] = entry[e, BEFORE] = -1
    tree.weight[e] = weight
    return e


@njit(cache=True)
def _drop_entry(tree, e):
    tree.entry[e, OWNER], tree.entry[e, NEXT] = -1, tree.meta[SPARE_ENTRY]
    tree.meta[SPARE_ENTRY] = e
    tree.meta[SPARE_ENTRIES] += 1


@njit(cache=True)
def _own(tree, node, e):
    """Add an entry to the list of a node."""
    head = tree.node[node, HEAD]
    tree.entry[e, OWNER], tree.entry[e, AFTER], tree.entry[e, BEFORE] = node, head, -1
    if head >= 0:
        tree.entry[head, BEFORE] = e
    tree.node[node, HEAD] = e
    tree.node[node, SIZE] += 1


@njit(cache=True)
def _disown(tree, e):
    """Remove an entry from the list of its node."""
    node, before, after = tree.entry[e, OWNER], tree.entry[e, BEFORE], tree.entry[e, AFTER]
    if before >= 0:
        tree.entry[before, AFTER] = after
    else:
        tree.node[node, HEAD] = after
    if after >= 0:
        tree.entry[after, BEFORE] = before
    tree.node[node, SIZE] -= 1


@njit(cache=True)
def _new_node(tree, level, parent):
    meta = tree.meta
    node = meta[SPARE_NODE]
    if node >= 0:
        meta[SPARE_NODE] = tree.node[node, PARENT]
        meta[SPARE_NODES] -= 1
    else:
        node = meta[NODES]
        meta[NODES] += 1
    tree.node[node, LEVEL], tree.node[node, PARENT], tree.node[node, COUNT] = level, parent, 0
    tree.node[node, HEAD], tree.node[node, SIZE] = -1, 0
    return node


@njit(cache=True)
def _drop_node(tree, node):
    tree.node[node, LEVEL], tree.node[node, PARENT] = -1, tree.meta[SPARE_NODE]
    tree.meta[SPARE_NODE] = node
    tree.meta[SPARE_NODES] += 1


@njit(cache=True)
def plant(tree):
    """Make an empty tree: a root without children."""
    tree.meta[:] = 0
    tree.meta[SPARE_ENTRY] = tree.meta[SPARE_NODE] = -1
    tree.meta[ROOT] = _new_node(tree, 0, -1)
    _fit(tree, TreeRows(0, tree.weight, tree.weight, tree.node[:, 0], tree.node[:, 0]), tree.meta[ROOT])


@njit(cache=True)
def _fit(tree, rows, node):
    """Compute the bounding rectangle of a node; return whether it has changed."""
    west = south = np.inf
    east = north = -np.inf
    for j in range(tree.node[node, COUNT]):
        child = tree.child[node, j]
        if tree.node[node, LEVEL] == 0:
            i = index_of(child, rows.base)
            west, east = min(west, rows.lon[i]), max(east, rows.lon[i])
            south, north = min(south, rows.lat[i]), max(north, rows.lat[i])
        else:
            box = tree.box[child]
            west, south, east, north = min(west, box[WEST]), min(south, box[SOUTH]), max(east, box[EAST]), max(north, box[NORTH])
    box = tree.box[node]
    same = box[WEST] == west and box[SOUTH] == south and box[EAST] == east and box[NORTH] == north
    box[WEST], box[SOUTH], box[EAST], box[NORTH] = west, south, east, north
    return not same


# -- insertion ------------------------------------------------------------------------------------


@njit(cache=True)
def _choose(tree, lon, lat):
    """Write the path to the leaf for a point, along the rectangles that grow least (Guttman 1984); return its length."""
    node, depth = tree.meta[ROOT], 0
    while True:
        tree.path[depth] = node
        depth += 1
        if tree.node[node, LEVEL] == 0:
            return depth
        chosen, least, least_margin = tree.child[node, 0], np.inf, np.inf
        for j in range(tree.node[node, COUNT]):
            child = tree.child[node, j]
            box = tree.box[child]
            width, height = box[EAST] - box[WEST], box[NORTH] - box[SOUTH]
            wider, higher = max(box[EAST], lon) - min(box[WEST], lon), max(box[NORTH], lat) - min(box[SOUTH], lat)
            growth, margin = wider * higher - width * height, (wider - width) + (higher - height)
            if growth < least or (growth == least and margin < least_margin):
                chosen, least, least_margin = child, growth, margin
        node = np.int64(chosen)


@njit(cache=True)
def _has_room(tree, depth, terms):
    """Tell whether there is room for a message at the end of the path, and for all splits that it may cause.

    :param depth: length of the path.
    :param terms: number of keywords of the message.
    """
    meta = tree.meta
    entries, d = terms * (depth + 2), depth - 1
    while d >= 0 and tree.node[tree.path[d], COUNT] == tree.capacity:
        entries += tree.node[tree.path[d], SIZE] + terms
        d -= 1
    if d < 0:  # a new root
        entries += tree.node[tree.path[0], SIZE] + terms
    return meta[SPARE_ENTRIES] + len(tree.weight) - meta[ENTRIES] >= entries and meta[SPARE_NODES] + len(tree.node) - meta[NODES] >= depth + 2


@njit(cache=True)
def _attach(tree, rows, i, depth):
    """Add message ``i``, which has its entries, to the leaf at the end of the path; there is room."""
    entry, weight, path = tree.entry, tree.weight, tree.path
    lon, lat = rows.lon[i], rows.lat[i]
    for d in range(depth):
        box = tree.box[path[d]]
        box[WEST], box[EAST] = min(box[WEST], lon), max(box[EAST], lon)
        box[SOUTH], box[NORTH] = min(box[SOUTH], lat), max(box[NORTH], lat)
    leaf = path[depth - 1]
    tree.child[leaf, tree.node[leaf, COUNT]] = (rows.base + i) & _LOW
    tree.node[leaf, COUNT] += 1
    rows.leaf[i] = leaf
    e = rows.head[i]
    while e >= 0:
        term, w = entry[e, TERM], weight[e]
        up = np.int64(tree.top[term])
        if up < 0:
            up = _new_entry(tree, path[0], term, -1, w)
            _own(tree, path[0], up)
            tree.top[term] = up
        weight[up] = max(weight[up], w)
        for d in range(1, depth):
            below = np.int64(entry[up, FIRST])
            while below >= 0 and entry[below, OWNER] != path[d]:
                below = np.int64(entry[below, NEXT])
            if below < 0:
                below = _new_entry(tree, path[d], term, up, w)
                _own(tree, path[d], below)
                entry[below, NEXT] = entry[up, FIRST]
                entry[up, FIRST] = below
            weight[below] = max(weight[below], w)
            up = below
        entry[e, UP], entry[e, NEXT] = up, entry[up, FIRST]
        entry[up, FIRST] = e
        e = entry[e, AFTER]
    node = leaf
    while tree.node[node, COUNT] > tree.capacity:
        node = _split(tree, rows, node)


@njit(cache=True)
def _grow_root(tree):
    """Add a new root above the root."""
    old = tree.meta[ROOT]
    root = _new_node(tree, tree.node[old, LEVEL] + 1, -1)
    tree.meta[ROOT] = root
    tree.node[old, PARENT] = root
    tree.node[root, COUNT], tree.child[root, 0] = 1, old
    tree.box[root] = tree.box[old]
    e = tree.node[old, HEAD]
    while e >= 0:
        term = tree.entry[e, TERM]
        up = _new_entry(tree, root, term, -1, tree.weight[e])
        _own(tree, root, up)
        tree.entry[up, FIRST] = e
        tree.entry[e, UP] = up
        tree.top[term] = up
        e = tree.entry[e, AFTER]


@njit(cache=True)
def _split(tree, rows, node):
    """Move some children of an overfull node to a new node beside it; return the parent."""
    n, level = np.int64(tree.node[node, COUNT]), tree.node[node, LEVEL]
    if tree.node[node, PARENT] < 0:
        _grow_root(tree)
    parent = np.int64(tree.node[node, PARENT])
    boxes = np.empty((n, 4), np.float64)
    for j in range(n):
        if level == 0:
            i = index_of(tree.child[node, j], rows.base)
            boxes[j, WEST] = boxes[j, EAST] = rows.lon[i]
            boxes[j, SOUTH] = boxes[j, NORTH] = rows.lat[i]
        else:
            boxes[j] = tree.box[tree.child[node, j]]
    goes = partition(boxes, max(np.int64(1), 2 * n // 5))
    twin = _new_node(tree, level, parent)
    tree.child[parent, tree.node[parent, COUNT]] = twin
    tree.node[parent, COUNT] += 1
    stay = 0
    for j in range(n):
        child = tree.child[node, j]
        if goes[j]:
            tree.child[twin, tree.node[twin, COUNT]] = child
            tree.node[twin, COUNT] += 1
            if level == 0:
                rows.leaf[index_of(child, rows.base)] = twin
            else:
                tree.node[child, PARENT] = twin
        else:
            tree.child[node, stay] = child
            stay += 1
    tree.node[node, COUNT] = stay
    _fit(tree, rows, node)
    _fit(tree, rows, twin)
    e = np.int64(tree.node[node, HEAD])
    while e >= 0:
        following = np.int64(tree.entry[e, AFTER])
        _split_entry(tree, rows, e, twin, level)
        e = following
    return parent


@njit(cache=True)
def _split_entry(tree, rows, e, twin, level):
    """Divide the list of an entry between its node and the new node."""
    entry, weight = tree.entry, tree.weight
    stay = go = np.int64(-1)
    most_stay = most_go = 0.0
    below = np.int64(entry[e, FIRST])
    while below >= 0:
        following = np.int64(entry[below, NEXT])
        owner = entry[below, OWNER]
        if (rows.leaf[index_of(owner, rows.base)] if level == 0 else tree.node[owner, PARENT]) == twin:
            entry[below, NEXT], go, most_go = go, below, max(most_go, weight[below])
        else:
            entry[below, NEXT], stay, most_stay = stay, below, max(most_stay, weight[below])
        below = following
    if go < 0:
        entry[e, FIRST] = stay
    elif stay < 0:
        entry[e, FIRST] = go
        _disown(tree, e)
        _own(tree, twin, e)
    else:
        entry[e, FIRST], weight[e] = stay, most_stay
        other = _new_entry(tree, twin, entry[e, TERM], entry[e, UP], most_go)
        _own(tree, twin, other)
        entry[other, FIRST], entry[other, NEXT] = go, entry[e, NEXT]
        entry[e, NEXT] = other
        while go >= 0:
            entry[go, UP] = other
            go = np.int64(entry[go, NEXT])


@njit(cache=True)
def insert(tree, rows, first, offsets, terms, weights):
    """Insert messages from index ``first`` on, until there is no room; return how many were inserted.

    :param offsets: int64[n + 1], into terms (int32, dense ids) and weights (float64).
    """
    for i in range(len(offsets) - 1):
        depth = _choose(tree, rows.lon[first + i], rows.lat[first + i])
        if not _has_room(tree, depth, offsets[i + 1] - offsets[i]):
            return i
        head = np.int64(-1)
        for j in range(offsets[i + 1] - 1, offsets[i] - 1, -1):
            e = _new_entry(tree, (rows.base + first + i) & _LOW, terms[j], -1, weights[j])
            tree.entry[e, AFTER] = head
            head = e
        rows.head[first + i] = head
        _attach(tree, rows, first + i, depth)
    return len(offsets) - 1


# -- removal --------------------------------------------------------------------------------------


@njit(cache=True)
def _unlink(tree, up, e):
    """Remove an entry from the list of the entry above it."""
    entry = tree.entry
    if entry[up, FIRST] == e:
        entry[up, FIRST] = entry[e, NEXT]
        return
    before = entry[up, FIRST]
    while entry[before, NEXT] != e:
        before = entry[before, NEXT]
    entry[before, NEXT] = entry[e, NEXT]


@njit(cache=True)
def _lift(tree, e):
    """Remove the entry of a message from its leaf; remove entries that become empty, and lower the highest weights above."""
    entry, weight = tree.entry, tree.weight
    up, w = np.int64(entry[e, UP]), weight[e]
    _unlink(tree, up, e)
    entry[e, UP] = entry[e, NEXT] = -1
    while up >= 0:
        above = np.int64(entry[up, UP])
        if entry[up, FIRST] < 0:
            if above < 0:
                tree.top[entry[up, TERM]] = -1
            else:
                _unlink(tree, above, up)
            _disown(tree, up)
            _drop_entry(tree, up)
        else:
            if w < weight[up]:
                return
            most, below = 0.0, entry[up, FIRST]
            while below >= 0:
                most = max(most, weight[below])
                below = entry[below, NEXT]
            if most == weight[up]:
                return
            weight[up] = most
        up = above


@njit(cache=True)
def _remove_child(tree, node, child):
    """Remove a child from a node."""
    last = tree.node[node, COUNT] - 1
    j = 0
    while tree.child[node, j] != child:
        j += 1
    tree.child[node, j] = tree.child[node, last]
    tree.node[node, COUNT] = last


@njit(cache=True)
def _detach(tree, rows, i):
    """Remove message ``i`` from its leaf; remove nodes that lose their last child."""
    node = np.int64(rows.leaf[i])
    e = rows.head[i]
    while e >= 0:
        _lift(tree, e)
        e = tree.entry[e, AFTER]
    _remove_child(tree, node, (rows.base + i) & _LOW)
    rows.leaf[i] = -1
    box = tree.box[node]
    if tree.node[node, COUNT] and box[WEST] < rows.lon[i] < box[EAST] and box[SOUTH] < rows.lat[i] < box[NORTH]:
        return
    while node >= 0:
        parent = np.int64(tree.node[node, PARENT])
        if tree.node[node, COUNT] == 0 and parent >= 0:
            _remove_child(tree, parent, node)
            _drop_node(tree, node)
        else:
            if tree.node[node, COUNT] == 0:
                tree.node[node, LEVEL] = 0
            if not _fit(tree, rows, node):
                return
        node = parent


@njit(cache=True)
def remove(tree, rows, n):
    """Remove the oldest ``n`` messages and their entries; return their leaves (int64[n])."""
    leaves = np.empty(n, np.int64)
    for i in range(n):
        leaves[i] = rows.leaf[i]
        _detach(tree, rows, i)
        e = np.int64(rows.head[i])
        while e >= 0:
            following = np.int64(tree.entry[e, AFTER])
            _drop_entry(tree, e)
            e = following
    return leaves


@njit(cache=True)
def tidy(tree, rows, leaves, start, least):
    """Dissolve leaves with fewer than ``least`` messages, and insert these messages again.

    :param leaves: int64[n], leaves that may have too few messages; ``start``: index of the first one to examine.
    :returns: -1; or, if there is no room, the index at which to continue when there is.
    """
    meta, at = tree.meta, start
    while True:
        while meta[ORPHANS]:
            i = tree.orphans[meta[ORPHANS] - 1]
            terms, e = 0, rows.head[i]
            while e >= 0:
                terms += 1
                e = tree.entry[e, AFTER]
            depth = _choose(tree, rows.lon[i], rows.lat[i])
            if not _has_room(tree, depth, terms):
                return at
            meta[ORPHANS] -= 1
            _attach(tree, rows, i, depth)
        if at == len(leaves):
            return -1
        node = leaves[at]
        at += 1
        if tree.node[node, LEVEL] == 0 and tree.node[node, COUNT] < least and node != meta[ROOT]:
            n = np.int64(tree.node[node, COUNT])
            for j in range(n):
                tree.orphans[j] = index_of(tree.child[node, j], rows.base)
            for j in range(n):
                _detach(tree, rows, tree.orphans[j])
            meta[ORPHANS] = n


@njit(cache=True)
def collapse(tree):
    """Remove the root while it has only one child node."""
    root = tree.meta[ROOT]
    while tree.node[root, LEVEL] > 0 and tree.node[root, COUNT] == 1:
        child = np.int64(tree.child[root, 0])
        e = np.int64(tree.node[root, HEAD])
        while e >= 0:
            following, below = np.int64(tree.entry[e, AFTER]), tree.entry[e, FIRST]
            tree.entry[below, UP] = -1
            tree.top[tree.entry[e, TERM]] = below
            _drop_entry(tree, e)
            e = following
        _drop_node(tree, root)
        tree.node[child, PARENT] = -1
        tree.meta[ROOT] = root = child


@njit(cache=True)
def keywords(tree, head):
    """Return (offsets, terms, weights) of messages by their first entries; terms are dense ids (int32)."""
    offsets = np.zeros(len(head) + 1, np.int64)
    for i in range(len(head)):
        n, e = 0, head[i]
        while e >= 0:
            n += 1
            e = tree.entry[e, AFTER]
        offsets[i + 1] = offsets[i] + n
    terms, weights = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.float64)
    for i in range(len(head)):
        j, e = offsets[i], head[i]
        while e >= 0:
            terms[j], weights[j] = tree.entry[e, TERM], tree.weight[e]
            j += 1
            e = tree.entry[e, AFTER]
    return offsets, terms, weights
