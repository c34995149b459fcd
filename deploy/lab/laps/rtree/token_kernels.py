"""Kernels of what the nodes of a tree know about the tokens below them.

What the token table holds is the ``kind`` of the index:

* SPATIAL: nothing.
* ONE (Rt+-tree): (node, term) -> the children below which a part has the term as its first one.
* ALL (Rt-tree): the same for all terms of the parts.
* INVERTED (IR-tree): the same, in leaves as well, whose children are parts.
* LISTS (Rt++-tree): (node, term) -> the parts below whose i-th term it is; i is 1 for the level at which lists begin. Postings are
  ``part * 2``, and 1 more if the part has no further term. Leaves have no lists: the parts in the lists above them are looked at one by one.

A set of children is an int64, one bit for each. A set is right by counting: a bit goes when the last part below that child goes which has the term.
"""

from __future__ import annotations

import numpy as np

from dskype.deploy.lab.laps.parts_kernels import EMPTY, ROOT, STALE, append, discard_list, enter, erase, find, posting_list, shorten, terms_of
from dskype.topology.kernel_cache import njit

__all__ = [
    "ALL", "COUNT", "INVERTED", "LEVEL", "LISTS", "ONE", "ORDINAL", "PARENT", "SPATIAL", "TOKENS",
    "add_tokens", "below", "drop_tokens", "forget", "forget_column", "forget_part", "learn", "learn_column", "move_part", "nth_token", "token_range", "weight_of",
]  # fmt: skip

SPATIAL, ONE, ALL, INVERTED, LISTS = range(5)
LEVEL, PARENT, COUNT, ORDINAL, TOKENS = range(5)
"""Columns of ``Index.node``."""


@njit(cache=True)
def token_range(index, part):
    """Return (first, behind the last) place of the terms by which nodes know a part."""
    first, last = terms_of(index, part)
    if index.kind == SPATIAL:
        return first, first
    if index.kind == ONE:
        return first, first + 1
    return first, last


@njit(cache=True)
def weight_of(index, part):
    """Return how much a part adds to the TOKENS of each node above it."""
    if index.kind == ALL or index.kind == INVERTED:
        first, last = terms_of(index, part)
        return last - first
    return np.int64(1)


@njit(cache=True)
def knows_children(index):
    """Tell whether the table holds sets of children."""
    return index.kind == ONE or index.kind == ALL or index.kind == INVERTED


@njit(cache=True)
def below(index, node):
    """Return the parts below a node (int64[])."""
    out = np.empty(index.node[node, TOKENS], np.int64)
    waiting = np.empty((index.node[node, LEVEL] + 1) * (index.capacity + 1) + 1, np.int64)
    waiting[0], n, size = node, 0, 1
    while size:
        size -= 1
        node = waiting[size]
        leaf = index.node[node, LEVEL] == 0
        for j in range(index.node[node, COUNT]):
            if leaf:
                out[n] = index.child[node, j]
                n += 1
            else:
                waiting[size] = index.child[node, j]
                size += 1
    return out[:n]


@njit(cache=True)
def _set_bit(index, node, term, ordinal):
    """Say that a child has a term; tell whether it was known."""
    place, bit = find(index, node, term), np.int64(1) << ordinal
    if index.key[place] == EMPTY:
        enter(index, place, node, term, bit)
        return False
    if index.value[place] & bit:
        return True
    index.value[place] |= bit
    return False


@njit(cache=True)
def _clear_bit(index, node, term, ordinal):
    """Say that a child does not have a term; tell whether no child has it any more."""
    place = find(index, node, term)
    if index.key[place] == EMPTY:
        return True
    left = index.value[place] & ~(np.int64(1) << ordinal)
    if left:
        index.value[place] = left
        return False
    erase(index, place)
    return True


@njit(cache=True)
def nth_token(index, node):
    """Return which tokens the lists of a node are about, from 0 on; -1 if it has no lists.

    The lists begin ``first`` levels below the root, or one level above the leaves if the tree has no more levels.
    """
    level = np.int64(index.node[node, LEVEL])
    begin = max(np.int64(index.node[index.meta[ROOT], LEVEL]) - index.first, np.int64(1))
    return begin - level if 0 < level <= begin else np.int64(-1)


# -- parts that come and go -----------------------------------------------------------------------


@njit(cache=True)
def _add_posting(index, part, leaf):
    """Put a part into the lists of the nodes above its leaf; tell whether there was room."""
    first, last = terms_of(index, part)
    node = np.int64(index.node[leaf, PARENT])
    while node >= 0:
        nth = nth_token(index, node)
        if 0 <= nth < last - first:
            posting = np.int64(part) * 2 + (1 if nth == last - first - 1 else 0)
            if append(index, node, index.pool[first + nth], posting) < 0:
                return False
        node = np.int64(index.node[node, PARENT])
    return True


@njit(cache=True)
def add_tokens(index, part, leaf, ordinal):
    """Tell the nodes about a part that has come into a leaf as its child ``ordinal``; return False if there was no room in the pool."""
    if index.kind == LISTS:
        return _add_posting(index, part, leaf)
    first, last = token_range(index, part)
    for at in range(first, last):
        term = index.pool[at]
        if index.kind == INVERTED:
            _set_bit(index, leaf, term, ordinal)
        node = np.int64(leaf)
        while index.node[node, PARENT] >= 0:
            child = node
            node = np.int64(index.node[child, PARENT])
            if _set_bit(index, node, term, index.node[child, ORDINAL]):
                break
    return True


@njit(cache=True)
def _still_has(index, leaf, term):
    """Tell whether a part of a leaf has a term."""
    if index.kind == INVERTED:
        return index.key[find(index, leaf, term)] != EMPTY
    for j in range(index.node[leaf, COUNT]):
        first, last = token_range(index, index.child[leaf, j])
        for at in range(first, last):
            if index.pool[at] == term:
                return True
    return False


@njit(cache=True)
def forget_part(index, part, leaf, ordinal):
    """Take the terms of the child ``ordinal`` off a leaf that knows them."""
    if index.kind == INVERTED:
        first, last = terms_of(index, part)
        for at in range(first, last):
            _clear_bit(index, leaf, index.pool[at], ordinal)


@njit(cache=True)
def move_part(index, part, leaf, ordinal, to):
    """Say in a leaf that a child stands elsewhere."""
    if index.kind == INVERTED:
        first, last = terms_of(index, part)
        for at in range(first, last):
            _set_bit(index, leaf, index.pool[at], to)
            _clear_bit(index, leaf, index.pool[at], ordinal)


@njit(cache=True)
def drop_tokens(index, part, leaf):
    """Tell the nodes above a leaf about a part that has gone."""
    first, last = token_range(index, part)
    if index.kind == LISTS:
        node = np.int64(index.node[leaf, PARENT])
        while node >= 0:
            nth = nth_token(index, node)
            if 0 <= nth < last - first:
                _drop_posting(index, node, index.pool[first + nth], np.int64(part) * 2 + (1 if nth == last - first - 1 else 0))
            node = np.int64(index.node[node, PARENT])
        return
    for at in range(first, last):
        term = index.pool[at]
        if _still_has(index, leaf, term):
            continue
        node = np.int64(leaf)
        while index.node[node, PARENT] >= 0:
            ordinal = index.node[node, ORDINAL]
            node = np.int64(index.node[node, PARENT])
            if not _clear_bit(index, node, term, ordinal):
                break


@njit(cache=True)
def _drop_posting(index, node, term, posting):
    place = find(index, node, term)
    start, length, _ = posting_list(index.value[place])
    for i in range(length):
        if index.pool[start + i] == posting:
            shorten(index, place, i)
            return


# -- nodes that change ----------------------------------------------------------------------------


@njit(cache=True)
def learn_column(index, node, ordinal):
    """Let a node know the terms below one of its children."""
    if index.meta[STALE] or not knows_children(index):
        return
    parts = below(index, index.child[node, ordinal])
    for i in range(len(parts)):
        first, last = token_range(index, parts[i])
        for at in range(first, last):
            _set_bit(index, node, index.pool[at], ordinal)


@njit(cache=True)
def forget_column(index, node, ordinal):
    """Let a node forget the terms below one of its children."""
    if index.meta[STALE] or not knows_children(index):
        return
    parts = below(index, index.child[node, ordinal])
    for i in range(len(parts)):
        first, last = token_range(index, parts[i])
        for at in range(first, last):
            _clear_bit(index, node, index.pool[at], ordinal)


@njit(cache=True)
def learn(index, node):
    """Make everything that a node knows about its children; it knows nothing yet."""
    if index.meta[STALE] or index.kind == SPATIAL:
        return
    if index.kind == LISTS:
        nth = nth_token(index, node)
        if nth < 0:
            return
        parts = below(index, node)
        for i in range(len(parts)):
            first, last = terms_of(index, parts[i])
            if nth < last - first:
                append(index, node, index.pool[first + nth], parts[i] * 2 + (1 if nth == last - first - 1 else 0))
    elif index.node[node, LEVEL] > 0:
        for j in range(index.node[node, COUNT]):
            learn_column(index, node, j)
    elif index.kind == INVERTED:
        for j in range(index.node[node, COUNT]):
            first, last = terms_of(index, index.child[node, j])
            for at in range(first, last):
                _set_bit(index, node, index.pool[at], j)


@njit(cache=True)
def forget(index, node):
    """Forget everything that a node knows about its children."""
    if index.meta[STALE] or index.kind == SPATIAL:
        return
    nth = np.int64(-1)
    if index.kind == LISTS:
        nth = nth_token(index, node)
        if nth < 0:
            return
    elif index.node[node, LEVEL] == 0 and index.kind != INVERTED:
        return
    parts = below(index, node)
    for i in range(len(parts)):
        first, last = token_range(index, parts[i])
        if nth >= 0:
            first, last = first + nth, min(last, first + nth + 1)
        for at in range(first, last):
            place = find(index, node, index.pool[at])
            if index.key[place] == EMPTY:
                continue
            if index.kind == LISTS:
                discard_list(index, place)
            else:
                erase(index, place)
