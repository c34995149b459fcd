"""Kernels of the executor core: ids of the edges and roots of tuple trees."""

from __future__ import annotations

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


def mix64(x: np.ndarray) -> np.ndarray:
    """Finalize uint64 values as splitmix64 does (Steele, Lea and Flood, OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> _S30)) * _M1
        x = (x ^ (x >> _S27)) * _M2
        return x ^ (x >> _S31)


def stream_ids(key: int, first: int, n: int) -> np.ndarray:
    """Return the ``n`` ids of the sequence ``key`` from number ``first`` on: int64, never 0.

    The same key and number give the same id in every process, so a replay derives the ids of the first execution. Ids
    of different keys or numbers look unrelated, as XOR accounting requires.
    """
    with np.errstate(over="ignore"):
        seeds = mix64(np.array([key & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64) * _GOLDEN + _M1)
        numbers = np.arange(first + 1, first + n + 1, dtype=np.uint64)
        ids = mix64(numbers * _GOLDEN + seeds[0]).view(np.int64)
    ids[ids == 0] = 1
    return ids


def edge_key(source_task: int, target_task: int) -> int:
    """Return the key of a channel's edge ids (task ids below 2**31)."""
    return (source_task << 31 | target_task) << 1


def root_key(spout_task: int) -> int:
    """Return the key of a spout task's root ids."""
    return spout_task << 32 | 1
