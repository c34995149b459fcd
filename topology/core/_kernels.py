"""Kernels of the executor core: ids of the edges and roots of tuple trees."""

from __future__ import annotations

import numpy as np

_MASK = 0xFFFFFFFFFFFFFFFF
_GOLDEN, _M1, _M2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_ARRAY_GOLDEN, _ARRAY_M1, _ARRAY_M2 = np.uint64(_GOLDEN), np.uint64(_M1), np.uint64(_M2)
_FEW = 8
"""Up to so many values, Python's integers are faster than arrays."""
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


def mix64(x: np.ndarray) -> np.ndarray:
    """Finalize uint64 values as splitmix64 does (Steele, Lea and Flood, OOPSLA 2014)."""
    x = (x ^ (x >> _S30)) * _ARRAY_M1
    x = (x ^ (x >> _S27)) * _ARRAY_M2
    return x ^ (x >> _S31)


def _mix_one(x: int) -> int:
    """Return what :func:`mix64` makes of one value. For a single one, Python's integers are faster than arrays."""
    x = ((x ^ (x >> 30)) * _M1) & _MASK
    x = ((x ^ (x >> 27)) * _M2) & _MASK
    return x ^ (x >> 31)


def stream_ids(key: int, first: int, n: int) -> np.ndarray:
    """Return the ``n`` ids of the sequence ``key`` from number ``first`` on: int64, never 0.

    The same key and number give the same id in every process, so a replay derives the ids of the first execution. Ids
    of different keys or numbers look unrelated, as XOR accounting requires.
    """
    seed = _mix_one(((key & _MASK) * _GOLDEN + _M1) & _MASK)
    if n <= _FEW:
        return np.array([_mix_one((number * _GOLDEN + seed) & _MASK) or 1 for number in range(first + 1, first + n + 1)], np.uint64).view(np.int64)
    numbers = np.arange(first + 1, first + n + 1, dtype=np.uint64)
    ids = mix64(numbers * _ARRAY_GOLDEN + np.uint64(seed)).view(np.int64)
    ids[ids == 0] = 1
    return ids


def edge_key(source_task: int, target_task: int) -> int:
    """Return the key of a channel's edge ids (task ids below 2**31)."""
    return (source_task << 31 | target_task) << 1


def root_key(spout_task: int) -> int:
    """Return the key of a spout task's root ids."""
    return spout_task << 32 | 1
