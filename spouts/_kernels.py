"""Kernels for texts and vocabularies. They work on UTF-8 bytes, many documents per call.

A table of terms is three arrays: ``blob`` uint8[] holds the terms one after another, term *i* is ``blob[offsets[i]:offsets[i + 1]]``
(``offsets`` unsigned or int64, n + 1), and ``slots`` uint32[2^m] is an open-addressing hash table with linear probing. A slot is 0 when it is
free; otherwise its low bits hold the term's number + 1, and the bits above them a piece of the term's hash.
"""

from __future__ import annotations

import numpy as np

from dskype.topology.kernel_cache import njit

__all__ = ["fill_table", "find_terms", "fold_texts", "parse_lines", "rank_words", "term_ids", "weigh_rows"]


@njit(cache=True)
def _hash(data, start, end):
    h = np.uint64(0xCBF29CE484222325)
    for i in range(start, end):
        h = (h ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    h = (h ^ (h >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    return h ^ (h >> np.uint64(33))


@njit(cache=True)
def _bits(n):
    bits = 1
    while (1 << bits) <= n:
        bits += 1
    return bits


@njit(cache=True)
def _find(data, start, end, h, blob, offsets, slots, bits):
    """Return (number of the term ``data[start:end]`` or -1, its slot or the free slot for it)."""
    mask = np.int64(len(slots) - 1)
    low = (np.int64(1) << bits) - 1
    piece = (np.int64(h >> np.uint64(32)) << bits) & np.int64(0xFFFFFFFF)
    at = np.int64(h & np.uint64(0x7FFFFFFF)) & mask
    while slots[at] != 0:
        slot = np.int64(slots[at])
        if slot & ~low == piece:
            term = (slot & low) - 1
            first = np.int64(offsets[term])
            if np.int64(offsets[term + 1]) - first == end - start:
                i = 0
                while start + i < end and blob[first + i] == data[start + i]:
                    i += 1
                if start + i == end:
                    return term, at
        at = (at + 1) & mask
    return np.int64(-1), at


@njit(cache=True)
def fill_table(blob, offsets, slots):
    """Enter all terms into the empty ``slots``; return the number of the first term that occurs a second time, or -1."""
    n = len(offsets) - 1
    bits = _bits(n)
    for term in range(n):
        start, end = np.int64(offsets[term]), np.int64(offsets[term + 1])
        h = _hash(blob, start, end)
        found, at = _find(blob, start, end, h, blob, offsets, slots, bits)
        if found >= 0:
            return term
        slots[at] = np.uint32(((np.int64(h >> np.uint64(32)) << bits) & np.int64(0xFFFFFFFF)) | (term + 1))
    return -1


_IV = np.array(
    [
        0x6A09E667F3BCC908,
        0xBB67AE8584CAA73B,
        0x3C6EF372FE94F82B,
        0xA54FF53A5F1D36F1,
        0x510E527FADE682D1,
        0x9B05688C2B3E6C1F,
        0x1F83D9ABFB41BD6B,
        0x5BE0CD19137E2179,
    ],
    np.uint64,
)
_SIGMA = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    ],
    np.int64,
)


@njit(cache=True)
def _rotate(x, n):
    return (x >> np.uint64(n)) | (x << np.uint64(64 - n))


@njit(cache=True)
def _mix(a, b, c, d, x, y):
    a = a + b + x
    d = _rotate(d ^ a, 32)
    c = c + d
    b = _rotate(b ^ c, 24)
    a = a + b + y
    d = _rotate(d ^ a, 16)
    c = c + d
    return a, _rotate(b ^ c, 63), c, d


@njit(cache=True)
def _compress(h, m, read, last):
    """Mix a block, ``m`` uint64[16], into the state ``h`` uint64[8] of BLAKE2b; ``read`` is how many bytes it ends after. Apart from the bytes, because their arrays are of two types."""
    v0, v1, v2, v3, v4, v5, v6, v7 = h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]
    v8, v9, v10, v11 = _IV[0], _IV[1], _IV[2], _IV[3]
    v12, v13, v14, v15 = _IV[4] ^ np.uint64(read), _IV[5], ~_IV[6] if last else _IV[6], _IV[7]
    for r in range(12):
        s = _SIGMA[r % 10]
        v0, v4, v8, v12 = _mix(v0, v4, v8, v12, m[s[0]], m[s[1]])
        v1, v5, v9, v13 = _mix(v1, v5, v9, v13, m[s[2]], m[s[3]])
        v2, v6, v10, v14 = _mix(v2, v6, v10, v14, m[s[4]], m[s[5]])
        v3, v7, v11, v15 = _mix(v3, v7, v11, v15, m[s[6]], m[s[7]])
        v0, v5, v10, v15 = _mix(v0, v5, v10, v15, m[s[8]], m[s[9]])
        v1, v6, v11, v12 = _mix(v1, v6, v11, v12, m[s[10]], m[s[11]])
        v2, v7, v8, v13 = _mix(v2, v7, v8, v13, m[s[12]], m[s[13]])
        v3, v4, v9, v14 = _mix(v3, v4, v9, v14, m[s[14]], m[s[15]])
    h[0] ^= v0 ^ v8
    h[1] ^= v1 ^ v9
    h[2] ^= v2 ^ v10
    h[3] ^= v3 ^ v11
    h[4] ^= v4 ^ v12
    h[5] ^= v5 ^ v13
    h[6] ^= v6 ^ v14
    h[7] ^= v7 ^ v15


@njit(cache=True)
def _unknown_id(data, start, end, h, m):
    """Return -(1 + the first 62 bits of BLAKE2b (RFC 7693, digest of 8 bytes) of ``data[start:end]``); ``h`` uint64[8] and ``m`` uint64[16] are scratch."""
    h[:] = _IV
    h[0] ^= np.uint64(0x01010008)
    at, last = start, False
    while not last:
        last = end - at <= 128
        stop = end if last else at + 128
        m[:] = 0
        for i in range(at, stop):
            m[(i - at) >> 3] |= np.uint64(data[i]) << np.uint64(8 * ((i - at) & 7))
        _compress(h, m, stop - start, last)
        at = stop
    big = np.uint64(0)
    for i in range(8):
        big = (big << np.uint64(8)) | ((h[0] >> np.uint64(8 * i)) & np.uint64(255))
    return -1 - np.int64(big >> np.uint64(2))


@njit(cache=True)
def find_terms(data, ends, blob, offsets, slots):
    """Return the ids of the terms in ``data``, which follow one another; term *i* ends at ``ends[i]`` (int64[n])."""
    bits = _bits(len(offsets) - 1)
    ids = np.empty(len(ends), np.int64)
    h, m = np.empty(8, np.uint64), np.empty(16, np.uint64)
    start = np.int64(0)
    for i in range(len(ends)):
        ids[i] = _find(data, start, ends[i], _hash(data, start, ends[i]), blob, offsets, slots, bits)[0]
        if ids[i] < 0:
            ids[i] = _unknown_id(data, start, ends[i], h, m)
        start = ends[i]
    return ids


@njit(cache=True)
def _point(data, at, size):
    """Return the code point in ``size`` (2 or 3) bytes of UTF-8, or -1 if they are malformed."""
    point = np.int64(data[at]) & (31 if size == 2 else 15)
    for i in range(at + 1, at + size):
        if data[i] & 0xC0 != 0x80:
            return -1
        point = (point << 6) | np.int64(data[i] & 0x3F)
    return point if point >= (0x80 if size == 2 else 0x800) else -1


@njit(cache=True)
def fold_texts(data, starts, ends, characters):
    """Fold each text that can be folded character by character.

    :param data: uint8[], UTF-8; text *i* is ``data[starts[i]:ends[i]]``.
    :param characters: int32[65536], what each character becomes: see ``text.folded_characters``.
    :returns: (folded uint8[], stops int64[n], counts int64[n], simple bool[n]): text *i* becomes ``folded[starts[i]:stops[i]]``, tokens with
        spaces between them, and ``text.BORDER`` where the text has it: ``counts[i]`` tokens and borders. Where ``simple[i]`` is False, the
        tokenizer has to cut the text.
    """
    n = len(starts)
    folded, stops, counts, simple = np.empty(len(data), np.uint8), starts.copy(), np.zeros(n, np.int64), np.ones(n, np.bool_)
    for i in range(n):
        at, to, end = starts[i], starts[i], ends[i]
        inside = False
        while at < end:
            point, size = np.int64(data[at]), 1
            if point >= 128:
                size = 2 if point < 0xE0 else 3
                point = _point(data, at, size) if 0xC2 <= point < 0xF0 and at + size <= end else -1
            point = np.int64(characters[point]) if point >= 0 else -1
            if point == -1:
                simple[i] = False
                break
            at += size
            if point >= 65536:  # text.MARK
                point = point - 65536 if inside else 0
            if point <= 0:
                if point == 0:
                    border = data[at - 1] == 31  # text.BORDER
                    folded[to] = 31 if border else 32
                    to += 1
                    counts[i] += border
                    inside = False
                continue
            counts[i] += not inside
            inside = True
            if point < 128:
                folded[to] = point
                to += 1
            elif point < 2048:
                folded[to], folded[to + 1] = 192 | (point >> 6), 128 | (point & 63)
                to += 2
            else:
                folded[to], folded[to + 1], folded[to + 2] = 224 | (point >> 12), 128 | ((point >> 6) & 63), 128 | (point & 63)
                to += 3
        stops[i] = to
    return folded, stops, counts, simple


@njit(cache=True)
def term_ids(folded, starts, ends, room, blob, offsets, slots, stop_blob, stop_offsets, stop_slots):
    """Look up the tokens of texts.

    :param folded, starts, ends: uint8[], int64[n], int64[n], tokens with spaces or borders between them: text *i* is ``folded[starts[i]:ends[i]]``.
    :param room: int64[n + 1], rising; text *i* has ``room[i + 1] - room[i]`` tokens and borders.
    :returns: (ids int64[], counts int64[n], order int16[]): the term ids of text *i* are ``ids[room[i]:room[i] + counts[i]]``, in order, without
        stop words. ``order[room[i]:room[i + 1]]`` says what follows what: 0 a term, -1 a stop word, -2 a border.
    """
    bits, stop_bits = _bits(len(offsets) - 1), _bits(len(stop_offsets) - 1)
    stops = len(stop_offsets) > 1
    ids, counts, order = np.empty(room[-1], np.int64), np.zeros(len(starts), np.int64), np.zeros(room[-1], np.int16)
    scratch, words = np.empty(8, np.uint64), np.empty(16, np.uint64)
    for i in range(len(starts)):
        to, place, j, end = room[i], room[i], starts[i], ends[i]
        while j < end:
            if folded[j] <= 32:
                if folded[j] == 31:
                    order[place] = -2
                    place += 1
                j += 1
                continue
            first = j
            h = np.uint64(0xCBF29CE484222325)
            while j < end and folded[j] > 32:
                h = (h ^ np.uint64(folded[j])) * np.uint64(0x100000001B3)
                j += 1
            h = (h ^ (h >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
            h ^= h >> np.uint64(33)
            place += 1
            if stops and _find(folded, first, j, h, stop_blob, stop_offsets, stop_slots, stop_bits)[0] >= 0:
                order[place - 1] = -1
                continue
            term = _find(folded, first, j, h, blob, offsets, slots, bits)[0]
            ids[to] = term if term >= 0 else _unknown_id(folded, first, j, scratch, words)
            to += 1
        counts[i] = to - room[i]
    return ids, counts, order


@njit(cache=True)
def rank_words(ids, room, order, offsets, terms):
    """Replace each 0 of ``order`` by the place of its term among the text's rising terms.

    :param ids, room, order: as from :func:`term_ids`, in reading order.
    :param offsets, terms: int64[n + 1], int64[], as from :func:`weigh_rows`: each text has at most 32,768 terms.
    """
    for i in range(len(offsets) - 1):
        first, last, word = offsets[i], offsets[i + 1], room[i]
        for place in range(room[i], room[i + 1]):
            if order[place] < 0:
                continue
            term = ids[word]
            word += 1
            if last - first <= 32:  # counting them all takes vector instructions, and is faster than a search
                rank = 0
                for k in range(first, last):
                    rank += terms[k] < term
            else:
                low, high = first, last
                while low < high:
                    middle = (low + high) >> 1
                    if terms[middle] < term:
                        low = middle + 1
                    else:
                        high = middle
                rank = low - first
            order[place] = rank


@njit(cache=True)
def weigh_rows(ids, room, counts, df, documents):
    """Return the weighted documents (offsets int64[n + 1], terms int64[], weights float64[]).

    Weight = tf * ln(1 + N / df), divided by the Euclidean norm, which is summed in rising order of the term ids; df of a negative id is 1.

    :param ids: int64[], sorted in place; those of document *i* are ``ids[room[i]:room[i] + counts[i]]``.
    :param df: int32[V]; ``documents``: N.
    """
    n = len(counts)
    out = np.zeros(n + 1, np.int64)
    for i in range(n):
        first, end = room[i], room[i] + counts[i]
        if counts[i] > 40:
            ids[first:end].sort()
        else:
            for j in range(first + 1, end):
                x, k = ids[j], j
                while k > first and ids[k - 1] > x:
                    ids[k] = ids[k - 1]
                    k -= 1
                ids[k] = x
        distinct = 0
        for j in range(first, end):
            distinct += j == first or ids[j] != ids[j - 1]
        out[i + 1] = out[i] + distinct
    terms, weights = np.empty(out[n], np.int64), np.empty(out[n], np.float64)
    for i in range(n):
        j, end, to = room[i], room[i] + counts[i], out[i]
        total = 0.0
        while j < end:
            term, first = ids[j], j
            while j < end and ids[j] == term:
                j += 1
            frequency = np.float64(df[term]) if term >= 0 else 1.0
            weight = np.float64(j - first) * np.log(1.0 + documents / frequency)
            terms[to], weights[to] = term, weight
            total += weight * weight
            to += 1
        norm = np.sqrt(total)
        for k in range(out[i], to):
            weights[k] /= norm
    return out, terms, weights


@njit(cache=True)
def parse_lines(data, n, documents):
    """Read the ``n`` lines ``term<TAB>df`` of a vocabulary.

    :param data: uint8[], each line ended by a line feed.
    :returns: (blob, offsets int64[n + 1], df int32[n], error, line): ``error`` is 0, or says what is wrong with
        ``line`` (from 0): 1 the term, 2 the number, 3 a df outside 1..documents, 4 the order.
    """
    blob, offsets, df = np.empty(len(data), np.uint8), np.zeros(n + 1, np.int64), np.zeros(n, np.int32)
    at = to = np.int64(0)
    for line in range(n):
        first = to
        while data[at] != 9 and data[at] != 10:
            c = data[at]
            if not (c >= 128 or 97 <= c <= 122 or 48 <= c <= 57):
                return blob, offsets, df, 1, line
            blob[to] = c
            to += 1
            at += 1
        if to == first:
            return blob, offsets, df, 1, line
        offsets[line + 1] = to
        if data[at] == 10:
            return blob, offsets, df, 2, line
        at += 1
        value, digits = np.int64(0), 0
        while data[at] != 10:
            if not 48 <= data[at] <= 57 or digits == 10 or (digits > 0 and value == 0):
                return blob, offsets, df, 2, line
            value = value * 10 + (np.int64(data[at]) - 48)
            digits += 1
            at += 1
        at += 1
        if digits == 0:
            return blob, offsets, df, 2, line
        if value < 1 or value > documents or value > 2147483647:
            return blob, offsets, df, 3, line
        df[line] = value
        if line > 0:
            if value < df[line - 1]:
                return blob, offsets, df, 4, line
            if value == df[line - 1]:
                i, before = first, offsets[line - 1]
                while i < to and before < first and blob[i] == blob[before]:
                    i += 1
                    before += 1
                if i == to or (before < first and blob[i] < blob[before]):
                    return blob, offsets, df, 4, line
    return blob, offsets, df, 0, -1
