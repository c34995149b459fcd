"""Kernels over columns: Java hash codes, and the assignment of rows to tasks. Imports numpy and numba only.

All are compiled lazily, so they accept read-only arrays, and cached on disk. Java's int arithmetic is done in int64 and
cut to 32 bits after every step; the random numbers wrap in uint64. The kernels give the same results without compilation.
"""

from __future__ import annotations

import numpy as np

from dskype.topology.kernel_cache import njit

__all__ = [
    "combine",
    "combine_key_bytes",
    "deal_partial_key",
    "hash_bool",
    "hash_bytes",
    "hash_float64",
    "hash_int64",
    "hash_utf8",
    "random_indices",
    "take_floor_mod",
]

_MASK = np.int64(0xFFFFFFFF)
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)


@njit(cache=True, nogil=True)
def _int32(h):
    """Return the low 32 bits of ``h`` (int64, 0 <= h < 2**32) as a signed number."""
    return np.int32(h - np.int64(0x100000000) if h > np.int64(0x7FFFFFFF) else h)


@njit(cache=True, nogil=True)
def hash_int64(values):
    """Hash like ``Long``.

    :param values: int64[n].
    :returns: int32[n].
    """
    out = np.empty(values.shape[0], np.int32)
    for i in range(values.shape[0]):
        v = values[i]
        out[i] = _int32((v ^ (v >> np.int64(32))) & _MASK)
    return out


@njit(cache=True, nogil=True)
def _hash_bits(values, bits):
    out = np.empty(values.shape[0], np.int32)
    for i in range(values.shape[0]):
        v = bits[i]
        if np.isnan(values[i]):
            v = np.int64(0x7FF8000000000000)
        out[i] = _int32((v ^ (v >> np.int64(32))) & _MASK)
    return out


def hash_float64(values):
    """Hash like ``Double``: all NaNs are equal, signed zeros differ.

    :param values: float64[n].
    :returns: int32[n].
    """
    values = np.ascontiguousarray(values)
    return _hash_bits(values, values.view(np.int64))


@njit(cache=True, nogil=True)
def hash_bool(values):
    """Hash like ``Boolean``.

    :param values: bool[n].
    :returns: int32[n].
    """
    out = np.empty(values.shape[0], np.int32)
    for i in range(values.shape[0]):
        out[i] = 1231 if values[i] else 1237
    return out


@njit(cache=True, nogil=True)
def hash_utf8(offsets, data):
    """Hash UTF-8 strings like ``String``, over their UTF-16 units.

    :param offsets: int32[n + 1] or int64[n + 1], bounds of the strings within ``data``.
    :param data: uint8[m], valid UTF-8.
    :returns: int32[n].
    """
    n = offsets.shape[0] - 1
    low6 = np.int64(0x3F)
    out = np.empty(n, np.int32)
    for i in range(n):
        h = np.int64(0)
        j = np.intp(offsets[i])
        end = np.intp(offsets[i + 1])
        while j < end:
            b = np.int64(data[j])
            if b < 0x80:
                unit = b
                j += 1
            elif b < 0xE0:
                unit = ((b & np.int64(0x1F)) << 6) | (np.int64(data[j + 1]) & low6)
                j += 2
            elif b < 0xF0:
                unit = ((b & np.int64(0x0F)) << 12) | ((np.int64(data[j + 1]) & low6) << 6) | (np.int64(data[j + 2]) & low6)
                j += 3
            else:
                # Beyond U+FFFF: two units, a surrogate pair.
                point = (
                    ((b & np.int64(0x07)) << 18)
                    | ((np.int64(data[j + 1]) & low6) << 12)
                    | ((np.int64(data[j + 2]) & low6) << 6)
                    | (np.int64(data[j + 3]) & low6)
                ) - np.int64(0x10000)
                h = (np.int64(31) * h + np.int64(0xD800) + (point >> 10)) & _MASK
                unit = np.int64(0xDC00) + (point & np.int64(0x3FF))
                j += 4
            h = (np.int64(31) * h + unit) & _MASK
        out[i] = _int32(h)
    return out


@njit(cache=True, nogil=True)
def hash_bytes(offsets, data):
    """Hash byte strings like ``Arrays.hashCode(byte[])``.

    :param offsets: int32[n + 1] or int64[n + 1], bounds of the strings within ``data``.
    :param data: uint8[m].
    :returns: int32[n].
    """
    n = offsets.shape[0] - 1
    out = np.empty(n, np.int32)
    for i in range(n):
        h = np.int64(1)
        for j in range(np.intp(offsets[i]), np.intp(offsets[i + 1])):
            b = np.int64(data[j])
            h = (np.int64(31) * h + b - ((b & np.int64(0x80)) << 1)) & _MASK
        out[i] = _int32(h)
    return out


@njit(cache=True, nogil=True)
def combine(h, hv):
    """Set ``h = 31 * h + hv`` in place, which adds an element to a list hash.

    :param h: int32[n], changed.
    :param hv: int32[n], hashes of the next elements.
    """
    for i in range(h.shape[0]):
        h[i] = _int32((np.int64(31) * np.int64(h[i]) + np.int64(hv[i])) & _MASK)


@njit(cache=True, nogil=True)
def combine_key_bytes(h, hv):
    """Add the four big-endian bytes of ``hv`` to a byte array's hash, in place.

    :param h: int32[n], changed.
    :param hv: int32[n].
    """
    for i in range(h.shape[0]):
        a = np.int64(h[i])
        v = np.int64(hv[i])
        for shift in (24, 16, 8, 0):
            b = (v >> np.int64(shift)) & np.int64(0xFF)
            a = (np.int64(31) * a + b - ((b & np.int64(0x80)) << 1)) & _MASK
        h[i] = _int32(a)


@njit(cache=True, nogil=True)
def take_floor_mod(h, tasks):
    """Return ``tasks[floorMod(h, len(tasks))]``.

    :param h: int32[n].
    :param tasks: int32[m], m >= 1.
    :returns: int32[n].
    """
    m = np.int64(tasks.shape[0])
    out = np.empty(h.shape[0], np.int32)
    for i in range(h.shape[0]):
        r = np.int64(h[i]) % m
        if r < 0:
            r += m
        out[i] = tasks[r]
    return out


@njit(cache=True, nogil=True)
def random_indices(seed, counter, n, bound):
    """Return ``n`` random numbers in [0, bound): those of splitmix64 from number ``counter + 1`` on.

    :param seed: uint64.
    :param counter: uint64, numbers drawn so far.
    :param bound: int64, 1 <= bound < 2**31.
    :returns: int32[n].
    """
    out = np.empty(n, np.int32)
    for i in range(n):
        z = np.uint64(seed + (counter + np.uint64(i) + np.uint64(1)) * _GAMMA)
        z = (z ^ (z >> np.uint64(30))) * _MIX1
        z = (z ^ (z >> np.uint64(27))) * _MIX2
        z = z ^ (z >> np.uint64(31))
        out[i] = np.int32(((z >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))
    return out


@njit(cache=True, nogil=True)
def _java_next_int(state, bound):
    """Return (new state, ``java.util.Random.nextInt(bound)``); all int64, state below 2**48."""
    while True:
        state = np.int64((np.uint64(state) * np.uint64(0x5DEECE66D) + np.uint64(0xB)) & np.uint64((1 << 48) - 1))
        bits = state >> np.int64(17)
        if bound & (bound - np.int64(1)) == 0:
            return state, (bound * bits) >> np.int64(31)
        value = bits % bound
        if bits - value + (bound - np.int64(1)) <= np.int64(0x7FFFFFFF):
            return state, value


@njit(cache=True, nogil=True)
def deal_partial_key(seeds, counts, tasks):
    """Assign each row to the less used of its key's two tasks; ties go to the first.

    :param seeds: int32[n], from :func:`combine_key_bytes`.
    :param counts: int64[m], rows assigned to each task so far; changed.
    :param tasks: int32[m], m >= 1.
    :returns: int32[n] task ids.
    """
    m = np.int64(tasks.shape[0])
    out = np.empty(seeds.shape[0], np.int32)
    for i in range(seeds.shape[0]):
        state = (np.int64(seeds[i]) ^ np.int64(0x5DEECE66D)) & np.int64((1 << 48) - 1)
        state, first = _java_next_int(state, m)
        state, second = _java_next_int(state, m)
        if first == second:
            second = (second + 1) % m
        chosen = second if counts[second] < counts[first] else first
        counts[chosen] += 1
        out[i] = tasks[chosen]
    return out
