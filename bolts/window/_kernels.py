"""Kernels of message windows: the index of the newest messages, its conversion into a chunk, and top-k queries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.bolts.search_kernels import first_above, first_not_below
from dskype.spouts.score_kernels import score, ssim, ssim_in_metres
from dskype.topology.kernel_cache import njit

__all__ = ["Best", "Chunks", "Messages", "Scratch", "Tail", "add_keywords", "answers", "gather_texts", "locate", "lowest", "make_best", "offer", "seal", "topk"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


class Messages(NamedTuple):
    """The columns of messages, in rising order of (position, seq); row *i* is ``column[i - base]``.

    :ivar base: the first row in the columns; rows are numbered from 0 since the window was made.
    :ivar seq: int64[m].
    :ivar position: int64[m].
    :ivar lat: float64[m], degrees; ``lon`` alike.
    :ivar end: int64[m], at which position a message ends; empty: none does.
    """

    base: int
    seq: np.ndarray
    position: np.ndarray
    lat: np.ndarray
    lon: np.ndarray
    end: np.ndarray


class Chunks(NamedTuple):
    """The inverted indexes of the chunks. Chunk *c* has the rows ``first[c]`` to ``first[c + 1]``.

    :ivar first: int64[c + 1], rows.
    :ivar entry: int64[c + 1]; the entries of chunk *c* are ``entry[c]`` to ``entry[c + 1]``.
    :ivar terms: int64[e], the term of an entry; rising within a chunk.
    :ivar begin: int64[e], the number of its first posting, counted since the window was made.
    :ivar length: int32[e], its number of postings.
    :ivar most: float64[e], the highest of their weights.
    :ivar base: the number of the first posting in the arrays.
    :ivar rows: uint16[p], row of a message minus the first row of its chunk; rising within an entry.
    :ivar weights: float64[p].
    """

    first: np.ndarray
    entry: np.ndarray
    terms: np.ndarray
    begin: np.ndarray
    length: np.ndarray
    most: np.ndarray
    base: int
    rows: np.ndarray
    weights: np.ndarray


class Tail(NamedTuple):
    """The index of the newest messages, which are in no chunk yet: a hash table of terms, and per term a linked list.

    The arrays have room for more; ``counts`` says how much is used.

    :ivar first: their first row.
    :ivar counts: int64[2], the numbers of entries and of postings.
    :ivar slots: int32[power of 2], entry + 1, or 0.
    :ivar terms: int64[], the term of an entry.
    :ivar last: int32[], its newest posting.
    :ivar length: int32[], its number of postings.
    :ivar most: float64[], the highest of their weights.
    :ivar entries: int32[], the entry of a posting.
    :ivar previous: int32[], the previous posting of the same entry, or -1.
    :ivar rows: uint16[], row of the message minus ``first``.
    :ivar weights: float64[].
    """

    first: int
    counts: np.ndarray
    slots: np.ndarray
    terms: np.ndarray
    last: np.ndarray
    length: np.ndarray
    most: np.ndarray
    entries: np.ndarray
    previous: np.ndarray
    rows: np.ndarray
    weights: np.ndarray


class Scratch(NamedTuple):
    """Room for the sums of one query over one chunk.

    :ivar sums: float64[rows].
    :ivar seen: int64[rows]; the sum of a row is valid if this is the present mark.
    :ivar touched: int64[rows], the rows with valid sums.
    :ivar mark: int64[1], the last mark used.
    """

    sums: np.ndarray
    seen: np.ndarray
    touched: np.ndarray
    mark: np.ndarray


class Best(NamedTuple):
    """The best messages of each query so far: a heap with the lowest in rank at its root.

    :ivar begin: int64[n + 1]; the heap of query *q* has room from ``begin[q]`` to ``begin[q + 1]``.
    :ivar size: int64[n], how full the heaps are.
    :ivar floor: float64[n], the number before the query's threshold: scores up to it are useless.
    :ivar scores: float64[].
    :ivar rows: int64[]; a higher row is a newer message.
    """

    begin: np.ndarray
    size: np.ndarray
    floor: np.ndarray
    scores: np.ndarray
    rows: np.ndarray


class _Lists(NamedTuple):
    """The posting lists of one query in one chunk, in rising order of their terms; the arrays have room for more.

    :ivar entry: int64[], entries of the chunk.
    :ivar factor: float64[], the query's weights of these terms.
    :ivar at: int64[], postings.
    """

    entry: np.ndarray
    factor: np.ndarray
    at: np.ndarray


class _Query(NamedTuple):
    """One query.

    :ivar alpha: weight of the distance, 0 to 1.
    :ivar lat: degrees; ``lon`` alike.
    :ivar diagonal_deg: distance at which the spatial similarity is 0, degrees.
    :ivar scale_m: the same in metres; 0: distances are in degrees.
    :ivar watermark: at which messages have to count.
    """

    alpha: float
    lat: float
    lon: float
    diagonal_deg: float
    scale_m: float
    watermark: int


@njit(cache=True, inline="always")
def _make_query(queries, q, diagonal_deg):
    """Return one query of a batch."""
    return _Query(queries.alpha[q], queries.lat[q], queries.lon[q], diagonal_deg, queries.scale_m[q], queries.watermark[q])


@njit(cache=True, inline="always")
def _counts(messages, row, query):
    """Tell whether the message at an index into the columns has not ended at the watermark of a query."""
    return messages.end.shape[0] == 0 or messages.end[row] > query.watermark


@njit(cache=True, inline="always")
def _nearness(lat, lon, query):
    """Return the spatial similarity of a message and a :class:`_Query`."""
    if query.scale_m > 0.0:
        return ssim_in_metres(query.lat, query.lon, lat, lon, query.scale_m)
    return ssim(lon - query.lon, lat - query.lat, query.diagonal_deg)


class _Span(NamedTuple):
    """The rows of one chunk that are in the window of a query.

    :ivar chunk: its number.
    :ivar first: index of its first row in the columns of messages.
    :ivar start: the first of these rows; ``stop``: the row behind the last; both counted from ``first``.
    :ivar whole: whether these rows are the whole chunk.
    """

    chunk: int
    first: int
    start: int
    stop: int
    whole: bool


# -- the tail -------------------------------------------------------------------------------------


@njit(cache=True, inline="always")
def _slot(slots, terms, term):
    """Return the slot of a term, or the empty slot for it."""
    mask = len(slots) - 1
    at = np.int64((np.uint64(term) * _GOLDEN) >> _HALF) & mask
    while slots[at] != 0 and terms[slots[at] - 1] != term:
        at = (at + 1) & mask
    return at


@njit(cache=True)
def enter(tail):
    """Enter all entries into the (empty) slots."""
    for entry in range(tail.counts[0]):
        tail.slots[_slot(tail.slots, tail.terms, tail.terms[entry])] = entry + 1


@njit(cache=True)
def add_keywords(tail, row, offsets, terms, weights):
    """Index messages; there is room for them.

    :param row: row of the first message, minus the tail's first row.
    :param offsets: int64[m + 1] into ``terms`` (int64) and ``weights`` (float64).
    """
    entries, postings = tail.counts[0], tail.counts[1]
    for i in range(len(offsets) - 1):
        for j in range(offsets[i], offsets[i + 1]):
            at = _slot(tail.slots, tail.terms, terms[j])
            if tail.slots[at] == 0:
                tail.terms[entries] = terms[j]
                tail.last[entries] = -1
                tail.length[entries] = 0
                tail.most[entries] = weights[j]
                entries += 1
                tail.slots[at] = entries
            entry = tail.slots[at] - 1
            tail.entries[postings] = entry
            tail.previous[postings] = tail.last[entry]
            tail.rows[postings] = row + i
            tail.weights[postings] = weights[j]
            tail.last[entry] = postings
            tail.length[entry] += 1
            tail.most[entry] = max(tail.most[entry], weights[j])
            postings += 1
    tail.counts[0], tail.counts[1] = entries, postings


@njit(cache=True)
def seal(tail, order):
    """Return (terms, lengths, most, rows, weights) of the tail as a chunk.

    :param order: int64[entries], the entries in rising order of their terms. (The caller sorts, because numba may confuse ``argsort`` and ``sort``
        of one type when kernels of several processes come from one cache.)
    """
    entries, postings = tail.counts[0], tail.counts[1]
    at = np.empty(entries, np.int64)
    begin = 0
    for i in range(entries):
        at[order[i]] = begin
        begin += tail.length[order[i]]
    rows, weights = np.empty(postings, np.uint16), np.empty(postings, np.float64)
    for j in range(postings):
        entry = tail.entries[j]
        rows[at[entry]] = tail.rows[j]
        weights[at[entry]] = tail.weights[j]
        at[entry] += 1
    return tail.terms[:entries][order], tail.length[:entries][order], tail.most[:entries][order], rows, weights


# -- lookups --------------------------------------------------------------------------------------


@njit(cache=True)
def locate(position, seq, positions, seqs):
    """Return the indexes of messages in columns that rise by (position, seq), or -1."""
    found = np.full(len(seqs), -1, np.int64)
    for i in range(len(seqs)):
        low, high = 0, len(seq)
        while low < high:
            middle = (low + high) >> 1
            if position[middle] < positions[i] or (position[middle] == positions[i] and seq[middle] < seqs[i]):
                low = middle + 1
            else:
                high = middle
        if low < len(seq) and seq[low] == seqs[i] and position[low] == positions[i]:
            found[i] = low
    return found


@njit(cache=True)
def gather_texts(ends, base, data, rows):
    """Return (offsets, data) of the texts at ``rows``: text *i* ends at ``ends[i] - base`` and begins at the end of the previous one."""
    offsets = np.zeros(len(rows) + 1, np.int32)
    for i in range(len(rows)):
        begin = ends[rows[i] - 1] if rows[i] else base
        offsets[i + 1] = offsets[i] + (ends[rows[i]] - begin)
    out = np.empty(offsets[-1], np.uint8)
    for i in range(len(rows)):
        begin = (ends[rows[i] - 1] if rows[i] else base) - base
        for j in range(offsets[i + 1] - offsets[i]):
            out[offsets[i] + j] = data[begin + j]
    return offsets, out


# -- the best of a query: a heap with the lowest in rank at its root -------------------------------


@njit(cache=True, inline="always")
def _below(s, r, t, q):
    """Tell whether (score s, row r) ranks below (score t, row q): a higher row is a newer message."""
    return s < t or (s == t and r < q)


@njit(cache=True)
def _sift_down(scores, rows, first, size, s, r):
    """Replace the root of the heap at ``first`` by (s, r)."""
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
def offer(best, q, s, r):
    """Offer (s, r) to the heap of a query; return the least score that can now enter."""
    scores, rows, first, size, room = best.scores, best.rows, best.begin[q], best.size[q], best.begin[q + 1] - best.begin[q]
    if size == room:
        if _below(scores[first], rows[first], s, r):
            _sift_down(scores, rows, first, size, s, r)
        return scores[first]
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
    best.size[q] = size + 1
    return lowest(best, q)


@njit(cache=True, inline="always")
def lowest(best, q):
    """Return the least score that can enter the heap of a query."""
    return best.scores[best.begin[q]] if best.size[q] == best.begin[q + 1] - best.begin[q] else best.floor[q]


@njit(cache=True)
def sort_heap(scores, rows, first, size):
    """Sort a heap into rank order."""
    while size > 1:
        size -= 1
        s, r = scores[first + size], rows[first + size]
        scores[first + size] = scores[first]
        rows[first + size] = rows[first]
        _sift_down(scores, rows, first, size, s, r)


@njit(cache=True)
def make_best(messages, queries, thresholds, extent):
    """Return (low, high, best): the window of query *q* is ``low[q]`` to ``high[q]``, as indexes into the columns; the heaps are empty."""
    n, m = len(queries.watermark), len(messages.seq)
    low, high = np.empty(n, np.int64), np.empty(n, np.int64)
    begin, floor = np.zeros(n + 1, np.int64), np.empty(n, np.float64)
    for q in range(n):
        low[q] = first_above(messages.position, 0, m, queries.watermark[q] - extent)
        high[q] = first_above(messages.position, low[q], m, queries.watermark[q])
        begin[q + 1] = begin[q] + max(0, min(queries.wanted[q], high[q] - low[q]))
        floor[q] = np.nextafter(thresholds[q], -np.inf)
    return low, high, Best(begin, np.zeros(n, np.int64), floor, np.empty(begin[n], np.float64), np.empty(begin[n], np.int64))


@njit(cache=True)
def answers(best, thresholds):
    """Return (offsets, rows, scores) of the messages in the heaps, in rank order."""
    n, begin, size, scores, rows = len(best.size), best.begin, best.size, best.scores, best.rows
    offsets = np.zeros(n + 1, np.int64)
    for q in range(n):
        sort_heap(scores, rows, begin[q], size[q])
        held = size[q]
        while held and scores[begin[q] + held - 1] < thresholds[q]:
            held -= 1
        offsets[q + 1] = offsets[q] + held
        for i in range(held):  # close the gaps of queries that found fewer messages than they wanted
            scores[offsets[q] + i] = scores[begin[q] + i]
            rows[offsets[q] + i] = rows[begin[q] + i]
    return offsets, rows[: offsets[n]], scores[: offsets[n]]


# -- queries --------------------------------------------------------------------------------------


@njit(cache=True)
def topk(messages, chunks, tail, queries, thresholds, extent, diagonal_deg, scratch):
    """Return (offsets, rows, scores) of the best messages of every query; rows count from ``messages.base``.

    Bounds decide which messages can be skipped. They are computed like scores, in the same order, from values that are not lower. Rounding
    is monotone, so a bound below the lowest score of a full heap excludes a message exactly.

    :param queries: a QueryBatch.
    :param thresholds: float64[n], the least scores.
    """
    n, keywords = len(queries.watermark), np.int64(1)
    low, high, best = make_best(messages, queries, thresholds, extent)
    begin = best.begin
    for q in range(n):
        keywords = max(keywords, queries.offsets[q + 1] - queries.offsets[q])
    lists = _Lists(np.empty(keywords, np.int64), np.empty(keywords, np.float64), np.empty(keywords, np.int64))

    for q in range(n):
        if begin[q + 1] > begin[q] and high[q] > tail.first - messages.base and tail.counts[0]:
            _query_tail(messages, tail, queries, q, diagonal_deg, low[q], high[q], best, scratch)
    for c in range(len(chunks.first) - 2, -1, -1):  # newer chunks first: their messages win ties
        first, stop = chunks.first[c] - messages.base, chunks.first[c + 1] - messages.base
        for q in range(n):
            if begin[q + 1] > begin[q] and low[q] < stop and high[q] > first:
                found = _find_lists(chunks, c, queries, q, lists)
                if found:
                    start, end = max(low[q] - first, 0), min(high[q], stop) - first
                    span = _Span(c, first, start, end, start == 0 and end == stop - first)
                    query = _make_query(queries, q, diagonal_deg)
                    _query_chunk(messages, chunks, span, query, q, lists, found, best, scratch)

    return answers(best, thresholds)


@njit(cache=True)
def _query_tail(messages, tail, queries, q, diagonal_deg, low, high, best, scratch):
    """Offer the messages that are in no chunk yet, from row ``low`` up to ``high``."""
    first = tail.first - messages.base
    sums, seen, touched = scratch.sums, scratch.seen, scratch.touched
    scratch.mark[0] += 1
    mark, held = scratch.mark[0], 0
    from_row, to_row = low - first, high - first
    for t in range(queries.offsets[q], queries.offsets[q + 1]):
        entry = tail.slots[_slot(tail.slots, tail.terms, queries.terms[t])] - 1
        if entry < 0:
            continue
        factor, j = queries.weights[t], tail.last[entry]
        while j >= 0:
            row = np.int64(tail.rows[j])
            if row < from_row:
                break
            if row < to_row:
                if seen[row] == mark:
                    sums[row] += factor * tail.weights[j]
                else:
                    seen[row] = mark
                    sums[row] = 0.0 + factor * tail.weights[j]
                    touched[held] = row
                    held += 1
            j = tail.previous[j]
    query = _make_query(queries, q, diagonal_deg)
    least = lowest(best, q)
    for i in range(held):
        row = touched[i]
        s = score(query.alpha, _nearness(messages.lat[first + row], messages.lon[first + row], query), sums[row])
        if s >= least and _counts(messages, first + row, query):
            least = offer(best, q, s, first + row)


@njit(cache=True)
def _find_lists(chunks, c, queries, q, lists):
    """Find the query's keywords in a chunk; return their number."""
    found = 0
    entry, last = chunks.entry[c], chunks.entry[c + 1]
    for t in range(queries.offsets[q], queries.offsets[q + 1]):
        entry = first_not_below(chunks.terms, entry, last, queries.terms[t])
        if entry == last:
            break
        if chunks.terms[entry] == queries.terms[t]:
            lists.entry[found] = entry
            lists.factor[found] = queries.weights[t]
            lists.at[found] = chunks.begin[entry] - chunks.base
            found += 1
    return found


@njit(cache=True)
def _query_chunk(messages, chunks, span, query, q, lists, n, best, scratch):
    """Offer the messages of a chunk.

    A message that is only in the last lists may be unable to enter a full heap, wherever it is. Then these lists are not scanned; they
    are only searched for the messages of the lists before (MaxScore, Turtle and Flood 1995). Keywords are in rising order of frequency,
    so the last lists are the longest.

    :param span: a :class:`_Span`; ``query``: the :class:`_Query` with the number ``q``.
    :param n: number of ``lists``.
    """
    factor, entry, most = lists.factor, lists.entry, chunks.most
    least = lowest(best, q)
    leading = n  # number of lists to scan
    for i in range(n):
        bound = 0.0
        for j in range(i, n):
            bound += factor[j] * most[entry[j]]
        if score(query.alpha, 1.0, bound) <= least:  # equal is not enough: the messages in the heap are newer
            leading = i
            break
    if leading == 1:
        _scan_first_list(messages, chunks, span, query, q, lists, n, best)
    elif leading:
        _scan_lists(messages, chunks, span, query, q, lists, n, leading, best, scratch)


@njit(cache=True)
def _scan_first_list(messages, chunks, span, query, q, lists, n, best):
    """Offer the messages of the first list; search the other lists for them."""
    factor, at, entries = lists.factor, lists.at, lists.entry
    rows, weights, most, begin, length = chunks.rows, chunks.weights, chunks.most, chunks.begin, chunks.length
    m_lon, m_lat, base = messages.lon, messages.lat, chunks.base
    alpha = query.alpha
    first, start, stop, whole = span.first, span.start, span.stop, span.whole
    least = lowest(best, q)
    for p in range(at[0], at[0] + length[entries[0]]):
        row = np.int64(rows[p])
        if not whole and (row < start or row >= stop):
            continue
        text = 0.0 + factor[0] * weights[p]
        bound = text
        for j in range(1, n):
            bound += factor[j] * most[entries[j]]
        if score(alpha, 1.0, bound) < least:
            continue
        near = _nearness(m_lat[first + row], m_lon[first + row], query)
        if score(alpha, near, bound) < least:
            continue
        for j in range(1, n):  # rows rise: continue the search where the last one ended
            entry = entries[j]
            end = begin[entry] - base + length[entry]
            at[j] = first_not_below(rows, at[j], end, row)
            if at[j] < end and rows[at[j]] == row:
                text += factor[j] * weights[at[j]]
        s = score(alpha, near, text)
        if s >= least and _counts(messages, first + row, query):
            least = offer(best, q, s, first + row)


@njit(cache=True)
def _scan_lists(messages, chunks, span, query, q, lists, n, leading, best, scratch):
    """Offer the messages of the first ``leading`` lists; search the other lists for them."""
    factor, at, entries = lists.factor, lists.at, lists.entry
    rows, weights, most, length = chunks.rows, chunks.weights, chunks.most, chunks.length
    m_lon, m_lat = messages.lon, messages.lat
    alpha = query.alpha
    first, start, stop, whole = span.first, span.start, span.stop, span.whole
    sums, seen, touched = scratch.sums, scratch.seen, scratch.touched
    scratch.mark[0] += 1
    mark, held = scratch.mark[0], 0
    least = lowest(best, q)
    for j in range(leading):
        for p in range(at[j], at[j] + length[entries[j]]):
            row = np.int64(rows[p])
            if not whole and (row < start or row >= stop):
                continue
            if seen[row] == mark:
                sums[row] += factor[j] * weights[p]
            else:
                seen[row] = mark
                sums[row] = 0.0 + factor[j] * weights[p]
                touched[held] = row
                held += 1
    for i in range(held):
        row = touched[i]
        text = sums[row]
        bound = text
        for j in range(leading, n):
            bound += factor[j] * most[entries[j]]
        if score(alpha, 1.0, bound) < least:
            continue
        near = _nearness(m_lat[first + row], m_lon[first + row], query)
        if score(alpha, near, bound) < least:
            continue
        for j in range(leading, n):
            end = at[j] + length[entries[j]]
            p = first_not_below(rows, at[j], end, row)
            if p < end and rows[p] == row:
                text += factor[j] * weights[p]
        s = score(alpha, near, text)
        if s >= least and _counts(messages, first + row, query):
            least = offer(best, q, s, first + row)
