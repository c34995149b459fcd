"""Kernels of the message window: building the inverted index of a chunk, and top-k queries over all chunks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from dskype.bolts._kernels import score, ssim

__all__ = ["Index", "Messages", "Tail", "build_index", "topk"]


class Messages(NamedTuple):
    """What is kept of every message, in rising order of (position, seq): of row *i*, ``column[i - base]``.

    :ivar base: the first row that is there; rows are numbered from 0 since the window was made.
    :ivar seq: int64[m].
    :ivar position: int64[m].
    :ivar lat: float64[m], degrees.
    :ivar lon: float64[m], degrees.
    """

    base: int
    seq: np.ndarray
    position: np.ndarray
    lat: np.ndarray
    lon: np.ndarray


class Index(NamedTuple):
    """The inverted index of the sealed chunks. Chunk *c* has the rows ``first[c]`` to ``first[c + 1]``.

    :ivar first: int64[c + 1], rows.
    :ivar entry: int64[c + 1]; the terms of chunk *c* are ``terms[entry[c]:entry[c + 1]]``.
    :ivar terms: int64[t], rising within a chunk.
    :ivar begin: int64[t], where the postings of a term begin, in postings since the window was made.
    :ivar length: int32[t], how many there are.
    :ivar base: the number of the first posting that is there.
    :ivar rows: uint16[p], row of a message minus the first row of its chunk, rising within a term.
    :ivar weights: float64[p].
    """

    first: np.ndarray
    entry: np.ndarray
    terms: np.ndarray
    begin: np.ndarray
    length: np.ndarray
    base: int
    rows: np.ndarray
    weights: np.ndarray


class Tail(NamedTuple):
    """The keywords of the newest messages, which are in no chunk yet.

    :ivar first: their first row.
    :ivar offsets: int64[m + 1] into ``terms``.
    :ivar terms: int64[], rising within a message.
    :ivar weights: float64[].
    """

    first: int
    offsets: np.ndarray
    terms: np.ndarray
    weights: np.ndarray


@njit(cache=True)
def build_index(offsets, terms, weights):
    """Return (terms, lengths, rows, weights) of the inverted index of messages given by their keywords.

    :param offsets: int64[m + 1], m <= 65,536.
    """
    n = offsets[-1] - offsets[0]
    rows = np.empty(n, np.uint16)
    for i in range(len(offsets) - 1):
        for j in range(offsets[i] - offsets[0], offsets[i + 1] - offsets[0]):
            rows[j] = i
    given = terms[offsets[0]:offsets[-1]]
    order = np.argsort(given, kind="mergesort")
    out_terms = np.empty(n, np.int64)
    out_lengths = np.empty(n, np.int32)
    out_rows = np.empty(n, np.uint16)
    out_weights = np.empty(n, np.float64)
    count = 0
    for j in range(n):
        k = order[j]
        if count == 0 or given[k] != out_terms[count - 1]:
            out_terms[count] = given[k]
            out_lengths[count] = 0
            count += 1
        out_lengths[count - 1] += 1
        out_rows[j] = rows[k]
        out_weights[j] = weights[offsets[0] + k]
    return out_terms[:count].copy(), out_lengths[:count].copy(), out_rows, out_weights


@njit(cache=True, inline="always")
def _behind(values, low, high, value):
    """Return the first index in ``[low, high)`` whose value is above ``value``; ``high`` if there is none."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, inline="always")
def _below(s, r, t, q):
    """Tell whether (score s, row r) ranks below (score t, row q): a higher row is a newer message."""
    return s < t or (s == t and r < q)


@njit(cache=True)
def _sift_down(scores, rows, first, size, s, r):
    """Put (s, r) in the place of the root of the heap at ``first``, the lowest in rank."""
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and _below(scores[first + child + 1], rows[first + child + 1], scores[first + child], rows[first + child]):
            child += 1
        if not _below(scores[first + child], rows[first + child], s, r):
            break
        scores[first + i] = scores[first + child]
        rows[first + i] = rows[first + child]
        i = child
    scores[first + i] = s
    rows[first + i] = r


@njit(cache=True)
def _offer(scores, rows, first, size, room, s, r):
    """Offer (s, r) to a heap of the best ``room``; return its new size."""
    if size == room:
        if _below(scores[first], rows[first], s, r):
            _sift_down(scores, rows, first, size, s, r)
        return size
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if not _below(s, r, scores[first + parent], rows[first + parent]):
            break
        scores[first + i] = scores[first + parent]
        rows[first + i] = rows[first + parent]
        i = parent
    scores[first + i] = s
    rows[first + i] = r
    return size + 1


@njit(cache=True)
def _sort_heap(scores, rows, first, size):
    """Bring a heap into rank order."""
    while size > 1:
        size -= 1
        s, r = scores[first + size], rows[first + size]
        scores[first + size] = scores[first]
        rows[first + size] = rows[first]
        _sift_down(scores, rows, first, size, s, r)


@njit(cache=True)
def topk(messages, index, tail, queries, extent, diagonal_deg):
    """Return (offsets, rows, scores) of the best messages of every query; rows count from ``messages.base``.

    :param queries: a QueryBatch.
    """
    n, m, chunks = len(queries.watermark), len(messages.seq), len(index.first) - 1
    low, high = np.empty(n, np.int64), np.empty(n, np.int64)    # the window: rows from low up to high
    begin, size = np.zeros(n + 1, np.int64), np.zeros(n, np.int64)
    most = np.int64(1)
    for q in range(n):
        low[q] = _behind(messages.position, 0, m, queries.watermark[q] - extent)
        high[q] = _behind(messages.position, low[q], m, queries.watermark[q])
        begin[q + 1] = begin[q] + max(0, min(queries.count[q], high[q] - low[q]))
        most = max(most, queries.offsets[q + 1] - queries.offsets[q])
    best, best_rows = np.empty(begin[n], np.float64), np.empty(begin[n], np.int64)

    width = np.int64(1)
    for c in range(chunks):
        width = max(width, index.first[c + 1] - index.first[c])
    sums, seen, touched = np.empty(width, np.float64), np.full(width, -1, np.int64), np.empty(width, np.int64)
    lists = np.empty(most, np.int64)
    factors = np.empty(most, np.float64)
    mark = np.int64(0)

    _topk_tail(messages, tail, queries, diagonal_deg, low, high, begin, size, best, best_rows)
    for c in range(chunks - 1, -1, -1):
        first, stop = index.first[c] - messages.base, index.first[c + 1] - messages.base
        for q in range(n):
            room = begin[q + 1] - begin[q]
            if room == 0 or low[q] >= stop or high[q] <= first:
                continue
            found = 0
            entry = index.entry[c]
            for t in range(queries.offsets[q], queries.offsets[q + 1]):
                term = queries.terms[t]
                entry = _behind(index.terms, entry, index.entry[c + 1], term - 1)
                if entry == index.entry[c + 1]:
                    break
                if index.terms[entry] == term:
                    lists[found] = entry
                    factors[found] = queries.weights[t]
                    found += 1
            if found == 0:
                continue
            alpha, lat, lon = queries.alpha[q], queries.lat[q], queries.lon[q]
            from_row, to_row = max(low[q] - first, 0), min(high[q] - first, stop - first)
            held = 0
            mark += 1
            for i in range(found):
                at = index.begin[lists[i]] - index.base
                for j in range(at, at + index.length[lists[i]]):
                    row = np.int64(index.rows[j])
                    if row < from_row or row >= to_row:
                        continue
                    product = factors[i] * index.weights[j]
                    if seen[row] == mark:
                        sums[row] += product
                    else:
                        seen[row] = mark
                        sums[row] = 0.0 + product
                        touched[held] = row
                        held += 1
            for i in range(held):
                row = touched[i]
                at = first + row
                if size[q] == room and score(alpha, 1.0, sums[row]) < best[begin[q]]:
                    continue    # rounding is monotone: not even at no distance
                s = score(alpha, ssim(messages.lon[at] - lon, messages.lat[at] - lat, diagonal_deg), sums[row])
                size[q] = _offer(best, best_rows, begin[q], size[q], room, s, at)

    offsets = np.zeros(n + 1, np.int64)
    for q in range(n):
        _sort_heap(best, best_rows, begin[q], size[q])
        offsets[q + 1] = offsets[q] + size[q]
        for i in range(size[q]):    # close the gaps of queries that found less than they wanted
            best[offsets[q] + i] = best[begin[q] + i]
            best_rows[offsets[q] + i] = best_rows[begin[q] + i]
    return offsets, best_rows[:offsets[n]], best[:offsets[n]]


@njit(cache=True)
def _topk_tail(messages, tail, queries, diagonal_deg, low, high, begin, size, best, best_rows):
    """Offer the messages that are in no chunk yet."""
    first = tail.first - messages.base
    for q in range(len(low)):
        room = begin[q + 1] - begin[q]
        if room == 0:
            continue
        alpha, lat, lon = queries.alpha[q], queries.lat[q], queries.lon[q]
        t_first, t_stop = queries.offsets[q], queries.offsets[q + 1]
        for at in range(max(first, low[q]), high[q]):
            t, j, stop = t_first, tail.offsets[at - first], tail.offsets[at - first + 1]
            text, common = 0.0, False
            while t < t_stop and j < stop:
                if queries.terms[t] < tail.terms[j]:
                    t += 1
                elif queries.terms[t] > tail.terms[j]:
                    j += 1
                else:
                    text += queries.weights[t] * tail.weights[j]
                    common = True
                    t += 1
                    j += 1
            if common:
                s = score(alpha, ssim(messages.lon[at] - lon, messages.lat[at] - lat, diagonal_deg), text)
                size[q] = _offer(best, best_rows, begin[q], size[q], room, s, at)
