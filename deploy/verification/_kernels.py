"""The compiled brute-force oracle: scores of all messages with a common keyword, and the best k at each queried watermark.

It does not use the indexes of the bolts, because it checks them. Messages are rows in rising (position, seq); a *candidate* is a row that shares
a keyword with the subscription in question.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.topology.kernel_cache import njit

TOLERANCE = 1e-9
FAINT = 1.0 / 4294967296.0
"""With a half-life, scores below count as this."""

STATE, GROUP, FOLD, WITHDRAWN, ADOPT, TAIL = 0, 1, 2, 3, 4, 5
"""Kinds of queries. STATE: a published list. The others are the deltas of one watermark. GROUP: fold and compare them; FOLD: only fold them;
WITHDRAWN: they must empty the list; ADOPT: earlier deltas are unknown, so start with the oracle's list; TAIL: further deltas may follow."""

EQUAL, DIFFERS, REMOVED_UNKNOWN, ADDED_TWICE, WRONG_RANK, NOT_WITHDRAWN, AMBIGUOUS, UNFINISHED, FOLLOWS = 0, 1, 2, 3, 4, 5, 6, 7, 8
"""Verdicts. AMBIGUOUS: two messages of the list have the same id, so a delta may mean either. UNFINISHED: wrong, but more deltas may follow.
FOLLOWS: deltas after wrong ones."""

TIES, JUMPED = 0, 1
"""Columns of the counts: equal scores in another order; changes of the list without a delta of their own."""

_PTR, _LEFT, _SIZE, _EXPIRY, _CHANGES, _CHANGED, _NOW = 0, 1, 2, 3, 4, 5, 6
_NEVER = np.int64(1 << 62)


class MessageRows(NamedTuple):
    """Messages, n rows in rising (position, seq), and for each term the rows that contain it.

    :ivar position: int64[n].
    :ivar lat, lon: float64[n], degrees.
    :ivar code: int64[n], a number for each message id.
    :ivar repeated: bool[n], whether other rows have the same id.
    :ivar leave: int64[n], from which position on a message does not count any more: it has left the window, or was the state of an object and has ended.
    :ivar offsets: int64[terms + 1]; term *t* is in ``rows[offsets[t]:offsets[t + 1]]``, rising.
    :ivar rows, weights: int64[], float64[].
    :ivar extent: of the window.
    :ivar diagonal_deg: of the data space.
    :ivar half_life_ms: after how long a message counts half as much; 0: its age does not count.
    :ivar tolerance: scores that differ by less are equal.
    """

    position: np.ndarray
    lat: np.ndarray
    lon: np.ndarray
    code: np.ndarray
    repeated: np.ndarray
    leave: np.ndarray
    offsets: np.ndarray
    rows: np.ndarray
    weights: np.ndarray
    extent: int
    diagonal_deg: float
    half_life_ms: float
    tolerance: float


class Subscriptions(NamedTuple):
    """Top-k subscriptions, m of them.

    :ivar k: int64[m].
    :ivar alpha, lat, lon: float64[m].
    :ivar offsets: int64[m + 1], into ``terms`` (numbers as in :class:`MessageRows`, in the order of term ids) and ``weights``.
    :ivar scale_m: float64[m], of distances in metres; 0: they are in degrees.
    :ivar start: int64[m], watermark of the first list, from which changes are counted.
    :ivar filtered: bool[m], whether only some rows count: ``allowed[allowed_offsets[i]:allowed_offsets[i + 1]]``, int64[], rising.
    """

    k: np.ndarray
    alpha: np.ndarray
    lat: np.ndarray
    lon: np.ndarray
    offsets: np.ndarray
    terms: np.ndarray
    weights: np.ndarray
    scale_m: np.ndarray
    start: np.ndarray
    filtered: np.ndarray
    allowed_offsets: np.ndarray
    allowed: np.ndarray


class Queries(NamedTuple):
    """Published lists and groups of deltas, by subscription and rising watermark.

    :ivar offsets: int64[m + 1].
    :ivar watermark: int64[].
    :ivar kind: int8[].
    :ivar first, last: int64[], rows of entries (STATE) or of deltas (other kinds).
    """

    offsets: np.ndarray
    watermark: np.ndarray
    kind: np.ndarray
    first: np.ndarray
    last: np.ndarray


class Published(NamedTuple):
    """The entries of lists (``code``, ``score``), in rank order; and the deltas (``op*``; op 0 is add, 1 is remove), in the order of the log."""

    code: np.ndarray
    score: np.ndarray
    op: np.ndarray
    op_code: np.ndarray
    op_score: np.ndarray
    op_rank: np.ndarray


@njit(cache=True, inline="always")
def own_score(alpha, dx, dy, diagonal_deg, text):
    """Return the score of a message (dx, dy) degrees away. It is written once more here, because what it judges must not compute it."""
    return alpha * (1.0 - np.sqrt(dx * dx + dy * dy) / diagonal_deg) + (1.0 - alpha) * text


@njit(cache=True)
def distance_m(lat, lon, other_lat, other_lon):
    """Return the great-circle distance of two places in degrees: twice the angle whose tangent is half the chord over what is left to the opposite side."""
    turn = np.pi / 180.0
    across, up, middle = (lon - other_lon) * turn / 2.0, (lat - other_lat) * turn / 2.0, (lat + other_lat) * turn / 2.0
    half_chord = np.sqrt(np.sin(up) ** 2 * np.cos(across) ** 2 + np.cos(middle) ** 2 * np.sin(across) ** 2)
    rest = np.sqrt(np.cos(up) ** 2 * np.cos(across) ** 2 + np.sin(middle) ** 2 * np.sin(across) ** 2)
    return 2.0 * 6_371_008.8 * np.arctan2(half_chord, rest)


@njit(cache=True)
def _candidates(sub, rows, subs, low, high, stamp, seen, text, found, scores):
    """Find the rows in [low, high) with a common term, in rising order, and their scores; return how many there are."""
    n, lists = 0, 0
    for t in range(subs.offsets[sub], subs.offsets[sub + 1]):
        term, weight = subs.terms[t], subs.weights[t]
        begin, end = rows.offsets[term], rows.offsets[term + 1]
        at = begin + np.searchsorted(rows.rows[begin:end], low)
        before = n
        while at < end and rows.rows[at] < high:
            row = rows.rows[at]
            if seen[row] != stamp:
                seen[row] = stamp
                text[row] = 0.0
                found[n] = row
                n += 1
            text[row] += weight * rows.weights[at]
            at += 1
        if n > before:
            lists += 1
    if lists > 1:
        if n * 16 > high - low:
            n = 0
            for row in range(low, high):
                if seen[row] == stamp:
                    found[n] = row
                    n += 1
        else:
            found[:n].sort()
    alpha, lat, lon = subs.alpha[sub], subs.lat[sub], subs.lon[sub]
    for i in range(n):
        row = found[i]
        dx, dy = rows.lon[row] - lon, rows.lat[row] - lat
        scores[i] = own_score(alpha, dx, dy, rows.diagonal_deg, text[row])
        if subs.scale_m[sub] > 0.0:
            near = max(0.0, 1.0 - distance_m(lat, lon, rows.lat[row], rows.lon[row]) / subs.scale_m[sub])
            scores[i] = alpha * near + (1.0 - alpha) * text[row]
        if rows.half_life_ms > 0.0:
            scores[i] = np.log2(max(scores[i], FAINT)) + rows.position[row] / rows.half_life_ms
    return n


@njit(cache=True)
def _keep_allowed(n, found, scores, allowed):
    """Keep those of ``n`` candidates, which rise, that are among the rising ``allowed``; return how many these are."""
    kept, at = 0, 0
    for i in range(n):
        while at < len(allowed) and allowed[at] < found[i]:
            at += 1
        if at < len(allowed) and allowed[at] == found[i]:
            found[kept], scores[kept] = found[i], scores[i]
            kept += 1
    return kept


@njit(cache=True)
def _enter(candidate, scores, buffer, state, limit):
    """Insert a candidate that is newer than all in the buffer; return its place, or -1 if it is left out.

    ``limit[0]`` is the best score of the window's candidates that have been left out.
    """
    score, size = scores[candidate], state[_SIZE]
    if score < limit[0]:
        return -1
    i = size
    while i > 0 and scores[buffer[i - 1]] <= score:
        i -= 1
    if size == len(buffer):
        if i == size:
            limit[0] = score
            return -1
        limit[0] = scores[buffer[size - 1]]
        size -= 1
    for j in range(size, i, -1):
        buffer[j] = buffer[j - 1]
    buffer[i] = candidate
    state[_SIZE] = size + 1
    return i


@njit(cache=True)
def _from_scratch(rows, found, scores, buffer, state, limit, watermark):
    """Fill the buffer with the best candidates of the window that ends at ``watermark``."""
    while state[_LEFT] < state[_PTR] and rows.position[found[state[_LEFT]]] <= watermark - rows.extent:
        state[_LEFT] += 1
    state[_SIZE], limit[0] = 0, -np.inf
    for candidate in range(state[_LEFT], state[_PTR]):
        if rows.leave[found[candidate]] > watermark:
            _enter(candidate, scores, buffer, state, limit)
    _next_expiry(rows.leave, found, buffer, state)


@njit(cache=True)
def _next_expiry(leave, found, buffer, state):
    state[_EXPIRY] = _NEVER
    for i in range(state[_SIZE]):
        state[_EXPIRY] = min(state[_EXPIRY], leave[found[buffer[i]]])


@njit(cache=True)
def _advance(n, k, rows, found, scores, buffer, state, limit, watermark):
    """Advance to ``watermark``: the first k entries of the buffer become the best k of the window that ends there."""
    while True:
        arrival = rows.position[found[state[_PTR]]] if state[_PTR] < n else _NEVER
        now = min(arrival, state[_EXPIRY])
        if now > watermark:
            break
        changed = False
        if state[_EXPIRY] <= now:
            size = 0
            for i in range(state[_SIZE]):
                if rows.leave[found[buffer[i]]] > now:
                    buffer[size] = buffer[i]
                    size += 1
                elif i < k:
                    changed = True
            state[_SIZE] = size
            _next_expiry(rows.leave, found, buffer, state)
        while state[_PTR] < n and rows.position[found[state[_PTR]]] == now:
            until = rows.leave[found[state[_PTR]]]
            place = _enter(state[_PTR], scores, buffer, state, limit) if until > now else np.int64(-1)
            if place >= 0:
                state[_EXPIRY] = min(state[_EXPIRY], until)
                changed |= place < k
            state[_PTR] += 1
        if state[_SIZE] < k and limit[0] > -np.inf:
            _from_scratch(rows, found, scores, buffer, state, limit, now)
        if changed:
            state[_CHANGES] += 1
            state[_CHANGED] = now
    state[_NOW] = watermark
    while state[_LEFT] < state[_PTR] and rows.position[found[state[_LEFT]]] <= watermark - rows.extent:
        state[_LEFT] += 1


@njit(cache=True)
def _in_window(code, score, rows, found, scores, state):
    """Count the window's candidates with an id and (about) a score."""
    n = 0
    for i in range(state[_LEFT], state[_PTR]):
        if rows.code[found[i]] == code and abs(scores[i] - score) <= rows.tolerance and rows.leave[found[i]] > state[_NOW]:
            n += 1
    return n


@njit(cache=True)
def _same(codes, values, k, rows, found, scores, buffer, state):
    """Compare a list with the best k; return -1 if it differs, else how many ids stand in another order of equal scores."""
    size = min(k, state[_SIZE])
    if len(codes) != size:
        return -1
    ties = 0
    for i in range(size):
        at = buffer[i]
        if not abs(values[i] - scores[at]) <= rows.tolerance:
            return -1
        if codes[i] != rows.code[found[at]]:
            ties += 1
            if _in_window(codes[i], scores[at], rows, found, scores, state) == 0:
                return -1
    if ties:
        for i in range(size):
            times = 0
            for j in range(size):
                times += codes[j] == codes[i]
            if times > 1 and times > _in_window(codes[i], values[i], rows, found, scores, state):
                return -1
    return ties


@njit(cache=True)
def _ambiguous(k, rows, found, buffer, state):
    """Tell whether two messages of the list have the same id."""
    size = min(k, state[_SIZE])
    for i in range(size):
        row = found[buffer[i]]
        if rows.repeated[row]:
            for j in range(i):
                if rows.code[found[buffer[j]]] == rows.code[row]:
                    return True
    return False


@njit(cache=True)
def _fold(first, last, published, codes, values, size, swallowed):
    """Apply deltas to a list kept by falling score; return (verdict, size)."""
    for at in range(first, last):
        if swallowed[at - first]:
            swallowed[at - first] = False
            continue
        code, place = published.op_code[at], -1
        for i in range(size):
            if codes[i] == code:
                place = i
                break
        if published.op[at] == 0:
            if place >= 0:
                # Another message with the same id may leave at this watermark, and its delta comes later.
                later = at + 1
                while later < last and not (published.op[later] == 1 and published.op_code[later] == code and not swallowed[later - first]):
                    later += 1
                if later == last:
                    return ADDED_TWICE, size
                swallowed[later - first] = True
                size = _remove(codes, values, size, place)
            score, i = published.op_score[at], size
            while i > 0 and values[i - 1] < score:
                codes[i], values[i] = codes[i - 1], values[i - 1]
                i -= 1
            codes[i], values[i] = code, score
            size += 1
        elif place < 0:
            return REMOVED_UNKNOWN, size
        else:
            size = _remove(codes, values, size, place)
    return EQUAL, size


@njit(cache=True)
def _remove(codes, values, size, place):
    for i in range(place, size - 1):
        codes[i], values[i] = codes[i + 1], values[i + 1]
    return size - 1


@njit(cache=True)
def _right_ranks(first, last, k, published, rows, found, scores, buffer, state):
    size = min(k, state[_SIZE])
    for at in range(first, last):
        if published.op[at] == 0:
            rank, score = published.op_rank[at], published.op_score[at]
            if rank < 1 or rank > size or not abs(scores[buffer[rank - 1]] - score) <= rows.tolerance:
                return False
            code = published.op_code[at]
            if rows.code[found[buffer[rank - 1]]] != code and _in_window(code, score, rows, found, scores, state) == 0:
                return False
    return True


@njit(cache=True, nogil=True)
def check(begin, end, rows, subs, queries, published, verdicts, counts):
    """Compare everything that was published for the subscriptions ``begin`` to ``end``.

    :param rows: :class:`MessageRows`; ``subs``: :class:`Subscriptions`; ``queries``: :class:`Queries`; ``published``: :class:`Published`.
    :param verdicts: int8[queries], out.
    :param counts: int64[subscriptions, 2], out: ``TIES`` and ``JUMPED``.
    """
    n = len(rows.position)
    seen = np.zeros(n, np.int64)
    text, found, scores = np.zeros(n), np.zeros(n, np.int64), np.zeros(n)
    state, limit = np.zeros(7, np.int64), np.zeros(1)
    for sub in range(begin, end):
        first_query, last_query = queries.offsets[sub], queries.offsets[sub + 1]
        if first_query == last_query:
            continue
        k, extent = subs.k[sub], rows.extent
        start = queries.watermark[first_query]
        if subs.start[sub] < start:
            start = subs.start[sub]
        low = np.searchsorted(rows.position, start - extent, side="right")
        high = np.searchsorted(rows.position, queries.watermark[last_query - 1], side="right")
        m = _candidates(sub, rows, subs, low, high, sub - begin + 1, seen, text, found, scores)
        if subs.filtered[sub]:
            m = _keep_allowed(m, found, scores, subs.allowed[subs.allowed_offsets[sub] : subs.allowed_offsets[sub + 1]])
        buffer = np.zeros(max(2 * k, k + 8), np.int64)
        state[:] = 0
        while state[_PTR] < m and rows.position[found[state[_PTR]]] <= start:
            state[_PTR] += 1
        _from_scratch(rows, found, scores, buffer, state, limit, start)
        ops, most = 0, 0
        for q in range(first_query, last_query):
            if queries.kind[q] != STATE:
                ops += queries.last[q] - queries.first[q]
                most = max(most, queries.last[q] - queries.first[q])
        codes, values = np.zeros(k + ops + 1, np.int64), np.zeros(k + ops + 1)
        swallowed = np.zeros(most, np.bool_)
        size, broken, counted = 0, EQUAL, 0
        for q in range(first_query, last_query):
            watermark, kind, first, last = queries.watermark[q], queries.kind[q], queries.first[q], queries.last[q]
            _advance(m, k, rows, found, scores, buffer, state, limit, watermark)
            if kind == STATE:
                ties = _same(published.code[first:last], published.score[first:last], k, rows, found, scores, buffer, state)
                if ties < 0:
                    verdicts[q] = DIFFERS
                else:
                    counts[sub, TIES] += ties
                continue
            if broken != EQUAL:
                verdicts[q] = broken
                continue
            if kind != FOLD and kind != ADOPT and _ambiguous(k, rows, found, buffer, state):
                verdicts[q] = broken = AMBIGUOUS
                continue
            if kind == ADOPT:
                size = min(k, state[_SIZE])
                for i in range(size):
                    codes[i], values[i] = rows.code[found[buffer[i]]], scores[buffer[i]]
                counted = state[_CHANGES]
                continue
            verdict, size = _fold(first, last, published, codes, values, size, swallowed)
            if verdict == EQUAL and kind == WITHDRAWN:
                verdict = EQUAL if size == 0 else NOT_WITHDRAWN
            elif verdict == EQUAL and kind != FOLD:
                ties = _same(codes[:size], values[:size], k, rows, found, scores, buffer, state)
                verdict = DIFFERS if ties < 0 else EQUAL
            if verdict == EQUAL and kind != FOLD and not _right_ranks(first, last, k, published, rows, found, scores, buffer, state):
                verdict = WRONG_RANK
            if verdict != EQUAL and kind == TAIL:
                verdict = UNFINISHED
            verdicts[q] = verdict
            if verdict != EQUAL:
                broken = FOLLOWS
            counts[sub, JUMPED] += state[_CHANGES] - counted - (1 if state[_CHANGED] == watermark and state[_CHANGES] > counted else 0)
            counted = state[_CHANGES]
