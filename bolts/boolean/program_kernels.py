"""Compiled subscriptions, as kernels see them (see :mod:`~dskype.bolts.boolean.programs`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.topology.kernel_cache import njit

__all__ = ["Batch", "contains", "follow_jumps", "overlaps"]


class Batch(NamedTuple):
    """Subscriptions to insert; all arrays are read-only.

    :ivar slots: int64[n].
    :ivar boxes: float64[n, 4].
    :ivar kinds: int8[n].
    :ivar offsets: int64[n + 1], into ``programs``, int64[].
    """

    slots: np.ndarray
    boxes: np.ndarray
    kinds: np.ndarray
    offsets: np.ndarray
    programs: np.ndarray


@njit(cache=True)
def contains(terms, first, last, term):
    """Tell whether ``term`` is among the rising ``terms[first:last]``."""
    end = last
    while first < last:
        middle = (first + last) >> 1
        if terms[middle] < term:
            first = middle + 1
        else:
            last = middle
    return first < end and terms[first] == term


@njit(cache=True)
def follow_jumps(programs, start, end, terms, first, last):
    """Tell whether ``terms[first:last]`` satisfy the steps of a general program, which stand in ``programs[start:end]``."""
    size, at = (end - start) >> 1, np.int64(0)
    while at < size:
        jumps = programs[start + 2 * at + 1]
        at = jumps >> 32 if contains(terms, first, last, programs[start + 2 * at]) else jumps & 0xFFFFFFFF
    return at == size


@njit(cache=True)
def overlaps(box, west, south, east, north):
    """Tell whether two rectangles share a point, borders included; west > east crosses the antimeridian.

    :param box: float64[4].
    """
    if not (box[1] <= north and south <= box[3]):
        return False
    crossing = np.int64(box[0] > box[2]) + np.int64(west > east)
    if crossing == 0:
        return box[0] <= east and west <= box[2]
    return crossing == 2 or box[0] <= east or west <= box[2]
