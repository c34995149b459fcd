"""Kernels that find the parts that messages satisfy, in the trees of all kinds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.deploy.lab.laps.match_kernels import enlarged, mark_terms, overlap, put, satisfied, sorted_once
from dskype.deploy.lab.laps.parts_kernels import EMPTY, ROOT, find, low, posting_list
from dskype.deploy.lab.laps.rtree.token_kernels import COUNT, INVERTED, LEVEL, LISTS, SPATIAL, nth_token
from dskype.deploy.lab.rtree_kernels import EAST, NORTH, SOUTH, WEST
from dskype.topology.kernel_cache import njit

__all__ = ["match"]

_FEW = 96
"""Terms of a message up to which they are looked up in lists; above, leaves are scanned."""
_PRIME = 67
_ORDINAL = np.array([next((bit for bit in range(63) if (1 << bit) % _PRIME == rest), 0) for rest in range(_PRIME)])
"""Which bit is set in a power of two, by its remainder."""


class Search(NamedTuple):
    """One search: a message, or one half of its area.

    :ivar rect: float32[4], what is searched; as the rectangles of nodes.
    :ivar area: float64[4], the message's.
    :ivar hits: uint8[64], children of the node that is looked at whose rectangles overlap.
    :ivar mine: int32[k], the message's terms that are known (dense ids); ``frame`` says how many.
    :ivar term: int32[levels, k], by level of the node on the way that has been opened: the terms that it, or the tree above it, knows;
        ``bits``: int64[levels, k], which of its children have them.
    :ivar frame: int64[levels + 1, 3], by level: the node, how many terms, children to be visited (bits). The last row: number of terms in ``mine``.
    """

    rect: np.ndarray
    area: np.ndarray
    hits: np.ndarray
    mine: np.ndarray
    term: np.ndarray
    bits: np.ndarray
    frame: np.ndarray


@njit(cache=True)
def _overlaps(index, node, search):
    """Set ``hits`` for the children of a node; tell whether there are any."""
    rect, n, hits = index.rect[node], np.int64(index.node[node, COUNT]), search.hits
    west, south, east, north = search.rect[WEST], search.rect[SOUTH], search.rect[EAST], search.rect[NORTH]
    for j in range(n):
        hits[j] = (rect[WEST, j] <= east) & (west <= rect[EAST, j]) & (rect[SOUTH, j] <= north) & (south <= rect[NORTH, j])
    for j in range(n, 64):
        hits[j] = 0
    words = hits.view(np.uint64)
    some = words[0]
    for word in range(1, 8):
        some |= words[word]
    return some != 0


@njit(cache=True)
def _inside(index, node, j, search):
    """Tell whether the rectangle of a part overlaps the message's, and not only at a border."""
    rect, own = index.rect[node], search.rect
    return (rect[WEST, j] < own[EAST]) & (own[WEST] < rect[EAST, j]) & (rect[SOUTH, j] < own[NORTH]) & (own[SOUTH] < rect[NORTH, j])


# -- sets of children -----------------------------------------------------------------------------


@njit(cache=True)
def _open(index, search, level, node, bit):
    """Look at a node: which of its children overlap and have one of the terms.

    :param bit: which child of the node that is open at the level above it is; only terms that this one has are looked up. 0: the root.
    """
    frame = search.frame
    frame[level, 0], frame[level, 2] = node, 0
    if not _overlaps(index, node, search):
        return
    candidates = (np.int64(1) << index.node[node, COUNT]) - 1
    if index.kind != SPATIAL and index.kind != LISTS:
        candidates = n = np.int64(0)
        for i in range(frame[level + 1, 1] if bit else frame[-1, 0]):
            if bit and not search.bits[level + 1, i] & bit:
                continue
            term = search.term[level + 1, i] if bit else search.mine[i]
            place = find(index, node, term)
            if index.key[place] != EMPTY:
                search.term[level, n], search.bits[level, n] = term, index.value[place]
                candidates |= index.value[place]
                n += 1
        frame[level, 1] = n
    visit = np.int64(0)
    while candidates:
        one = candidates & -candidates
        candidates ^= one
        if search.hits[_ORDINAL[one % _PRIME]]:
            visit |= one
    frame[level, 2] = visit


@njit(cache=True)
def _verify_leaf(index, scratch, search, leaf, found, n):
    """Verify all parts of a leaf whose rectangles overlap; return how many are found."""
    if not _overlaps(index, leaf, search):
        return n
    now = scratch.now[0]
    words = search.hits.view(np.uint64)
    for word in range((index.node[leaf, COUNT] + 7) >> 3):
        if words[word] == 0:
            continue
        for j in range(8 * word, 8 * word + 8):
            if not search.hits[j] or scratch.stamp[index.hint[leaf, j]] != now:
                continue
            part = np.int64(index.child[leaf, j])
            if satisfied(index, scratch, part, 1) and (_inside(index, leaf, j, search) or overlap(index.box[part], search.area)):
                n = put(index, part, found, n)
    return n


@njit(cache=True)
def _count_leaf(index, scratch, search, leaf, bit, found, n):
    """Count the terms of the parts of a leaf by its inverted lists; return how many are found."""
    if not _overlaps(index, leaf, search):
        return n
    counts = np.zeros(64, np.int64)
    for i in range(search.frame[1, 1] if bit else search.frame[-1, 0]):
        if bit and not search.bits[1, i] & bit:
            continue
        place = find(index, leaf, search.term[1, i] if bit else search.mine[i])
        if index.key[place] == EMPTY:
            continue
        rest = index.value[place]
        while rest:
            one = rest & -rest
            rest ^= one
            counts[_ORDINAL[one % _PRIME]] += 1
    for j in range(index.node[leaf, COUNT]):
        if search.hits[j] and counts[j] == index.hint[leaf, j]:
            part = np.int64(index.child[leaf, j])
            if satisfied(index, scratch, part, counts[j]) and (_inside(index, leaf, j, search) or overlap(index.box[part], search.area)):
                n = put(index, part, found, n)
    return n


@njit(cache=True)
def _search_sets(index, scratch, search, found, n):
    """Go through the nodes that the rectangle and the terms lead to (LAPS, section 3.2); return (slots, how many).

    Nodes of the Rt++-tree lead a message of many terms by its rectangle alone: to look so many up in each of them takes longer.
    """
    root = index.meta[ROOT]
    top = np.int64(index.node[root, LEVEL])
    level, frame = top, search.frame
    if top == 0:
        found = enlarged(found, n + 64)
        if index.kind == INVERTED:
            return found, _count_leaf(index, scratch, search, root, np.int64(0), found, n)
        return found, _verify_leaf(index, scratch, search, root, found, n)
    _open(index, search, level, root, np.int64(0))
    while level <= top:
        bits = frame[level, 2]
        if bits == 0:
            level += 1
            continue
        bit = bits & -bits
        frame[level, 2] = bits ^ bit
        child = np.int64(index.child[frame[level, 0], _ORDINAL[bit % _PRIME]])
        if level > 1:
            level -= 1
            _open(index, search, level, child, bit)
            continue
        found = enlarged(found, n + 64)
        if index.kind == INVERTED:
            n = _count_leaf(index, scratch, search, child, bit, found, n)
        else:
            n = _verify_leaf(index, scratch, search, child, found, n)
    return found, n


# -- lists of parts -------------------------------------------------------------------------------


@njit(cache=True)
def _scan_lists(index, scratch, search, node, nth, found, n):
    """Count parts in the lists of a node (LAPS, section 5.2); return (slots, how many, whether some part below it may need further terms).

    A part counts if it was in a list of each node above that has lists; one that has no further term matches if its rectangle overlaps. In the
    lowest lists the others' terms are looked at right away, which spares the way to the leaf.
    """
    base = np.int32(scratch.now[0] * 32 + nth)
    visit, lowest = False, index.node[node, LEVEL] == 1
    for i in range(search.frame[-1, 0]):
        place = find(index, node, search.mine[i])
        if index.key[place] == EMPTY:
            continue
        start, length, _ = posting_list(index.value[place])
        found = enlarged(found, n + length)
        for j in range(start, start + length):
            posting = np.int64(index.pool[j])
            part = posting >> 1
            if nth and scratch.seen[part] != base:
                continue
            if posting & 1 or lowest:
                if overlap(index.box[part], search.area) and satisfied(index, scratch, part, nth + 1):
                    n = put(index, part, found, n)
            else:
                scratch.seen[part] = base + np.int32(1)
                visit = True
    return found, n, visit


@njit(cache=True)
def _search_lists(index, scratch, search, waiting, found, n):
    """Go through the nodes with candidates (LAPS, Algorithm 1); return (slots, how many).

    :param waiting: int64[], nodes whose children are to be looked at.
    """
    root = index.meta[ROOT]
    if index.node[root, LEVEL] == 0:
        found = enlarged(found, n + 64)
        return found, _verify_leaf(index, scratch, search, root, found, n)
    if nth_token(index, root) >= 0:
        found, n, _ = _scan_lists(index, scratch, search, root, np.int64(0), found, n)
        return found, n
    waiting[0], size = root, 1
    open_children = np.empty(64, np.int64)
    while size:
        size -= 1
        node = waiting[size]
        if not _overlaps(index, node, search):
            continue
        count = 0
        for j in range(index.node[node, COUNT]):
            if search.hits[j]:
                open_children[count] = index.child[node, j]
                count += 1
        for j in range(count):
            child, visit = open_children[j], True
            nth = nth_token(index, child)
            if nth >= 0:
                found, n, visit = _scan_lists(index, scratch, search, child, nth, found, n)
            if visit:
                waiting[size] = child
                size += 1
    return found, n


# -- messages -------------------------------------------------------------------------------------


@njit(cache=True)
def match(index, scratch, messages):
    """Return (message int32[], slot int32[]) of all matches, sorted by message, then slot."""
    longest = np.int64(1)
    for i in range(len(messages.areas)):
        longest = max(longest, messages.offsets[i + 1] - messages.offsets[i])
    levels = np.int64(index.node[index.meta[ROOT], LEVEL]) + 1
    search = Search(
        np.empty(4, np.float32),
        np.empty(4, np.float64),
        np.zeros(64, np.uint8),
        np.empty(longest, np.int32),
        np.empty((levels, longest), np.int32),
        np.empty((levels, longest), np.int64),
        np.zeros((levels + 1, 3), np.int64),
    )
    waiting = np.empty(levels * (index.capacity + 1) + 1, np.int64)
    message, slot, found = np.empty(256, np.int32), np.empty(256, np.int32), np.empty(256, np.int32)
    total = np.int64(0)
    for i in range(len(messages.areas)):
        area, n = messages.areas[i], np.int64(0)
        for k in range(4):
            search.area[k] = area[k]
        halves = 1 if area[WEST] <= area[EAST] else 2
        for half in range(halves):
            known = mark_terms(messages, i, scratch, search.mine)
            if known == 0:
                break
            search.frame[-1, 0] = known
            search.rect[WEST] = low(-180.0 if half else area[WEST], 180.0)
            search.rect[SOUTH] = low(area[SOUTH], 90.0)
            search.rect[EAST] = low(180.0 if half + 1 < halves else area[EAST], 180.0)
            search.rect[NORTH] = low(area[NORTH], 90.0)
            if index.kind == LISTS and known <= _FEW:
                found, n = _search_lists(index, scratch, search, waiting, found, n)
            else:
                found, n = _search_sets(index, scratch, search, found, n)
        n = sorted_once(found, n)
        message, slot = enlarged(message, total + n), enlarged(slot, total + n)
        for j in range(n):
            message[total + j], slot[total + j] = i, found[j]
        total += n
    return message[:total].copy(), slot[:total].copy()
