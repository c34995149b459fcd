"""Boolean subscriptions as columns: millions of them in little memory, made into expressions a call at a time."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dskype.deploy.lab.corpus import Corpus
from dskype.spouts.batch import select_lists

__all__ = ["ALL", "ANY", "KM_PER_DEG", "PAIRS", "REQUIRED_AND_ANY", "BooleanSubscriptions", "boxes_around", "shared_sides_km", "sides_km", "some_terms"]

KM_PER_DEG = 111.195
"""Length of a degree of latitude."""

ALL, ANY, REQUIRED_AND_ANY, PAIRS = 0, 1, 2, 3
"""Shapes of expressions: all terms; any term; the first one and any of the others; any pair of neighbours ((1st and 2nd) or (3rd and 4th) or ...)."""

_ROWS = 100_000
_LEAST_COSINE = 0.01


class BooleanSubscriptions(NamedTuple):
    """Subscriptions in the order of their slots.

    :ivar boxes: float64[n, 4], west, south, east, north in degrees.
    :ivar offsets: int64[n + 1], into ``terms``.
    :ivar terms: int32[], term ids; each once within a subscription.
    :ivar shapes: int8[n]: ``ALL``, ``ANY``, ``REQUIRED_AND_ANY`` or ``PAIRS``.
    """

    boxes: np.ndarray
    offsets: np.ndarray
    terms: np.ndarray
    shapes: np.ndarray

    @property
    def n(self) -> int:
        """The number of subscriptions."""
        return len(self.boxes)

    def first(self, n: int) -> BooleanSubscriptions:
        """Return the first ``n`` of them."""
        return BooleanSubscriptions(self.boxes[:n], self.offsets[: n + 1], self.terms, self.shapes[:n])

    def expressions(self, rows: np.ndarray) -> list[Any]:
        """Return the expressions at ``rows`` as :meth:`dskype.bolts.boolean.BooleanIndex.insert_many` takes them."""
        starts, ends, shapes = self.offsets[rows].tolist(), self.offsets[rows + 1].tolist(), self.shapes[rows].tolist()
        return [_expression(self.terms[start:end].tolist(), shape) for start, end, shape in zip(starts, ends, shapes)]

    def columns(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the terms at ``rows`` as (offsets int64[n + 1], terms int64[])."""
        offsets, index = select_lists(self.offsets, rows)
        return offsets, self.terms[index].astype(np.int64)


def _expression(terms: list[int], shape: int) -> Any:
    if len(terms) == 1:
        return terms[0]
    if shape == ALL:
        return ["and", *terms]
    if shape == ANY:
        return ["or", *terms]
    if shape == REQUIRED_AND_ANY:
        return ["and", terms[0], ["or", *terms[1:]]]
    return ["or", *(["and", *terms[i : i + 2]] for i in range(0, len(terms), 2))]


def boxes_around(lat: np.ndarray, lon: np.ndarray, width_km: np.ndarray, height_km: np.ndarray) -> np.ndarray:
    """Return rectangles around points: float64[n, 4]; those that reach over the antimeridian have west > east."""
    half_lat = height_km / (2 * KM_PER_DEG)
    half_lon = width_km / (2 * KM_PER_DEG * np.maximum(np.cos(np.radians(lat)), _LEAST_COSINE))
    west, east = lon - half_lon, lon + half_lon
    west, east = np.where(west < -180, west + 360, west), np.where(east > 180, east - 360, east)
    everywhere = half_lon >= 180
    west, east = np.where(everywhere, -180.0, west), np.where(everywhere, 180.0, east)
    return np.stack([west, np.maximum(lat - half_lat, -90.0), east, np.minimum(lat + half_lat, 90.0)], axis=1)


def some_terms(rng: np.random.Generator, corpus: Corpus, rows: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draw ``wanted`` terms of each message at ``rows``; a message with fewer gives all of its own.

    :returns: (offsets int64[n + 1], terms int32[], rising within a row).
    """
    counts, parts = [], []
    for start in range(0, len(rows), _ROWS):
        some, most = rows[start : start + _ROWS], wanted[start : start + _ROWS]
        lengths = (corpus.offsets[some + 1] - corpus.offsets[some]).astype(np.int64)
        owner = np.repeat(np.arange(len(some)), lengths)
        begin = np.cumsum(lengths) - lengths
        nth = np.arange(len(owner)) - np.repeat(begin, lengths)
        order = np.lexsort((rng.random(len(owner)), owner))
        chosen = np.sort(order[nth < most[owner]])
        counts.append(np.bincount(owner[chosen], minlength=len(some)))
        parts.append(corpus.terms[corpus.offsets[some][owner[chosen]] + nth[chosen]].astype(np.int32))
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.concatenate(counts), out=offsets[1:])
    return offsets, np.concatenate(parts)


def sides_km(rng: np.random.Generator, n: int, least: float, most: float, log: bool = False) -> np.ndarray:
    """Draw side lengths; uniform, or with a uniform logarithm."""
    return np.exp(rng.uniform(math.log(least), math.log(most), n)) if log else rng.uniform(least, most, n)


def shared_sides_km(share: float, lat: np.ndarray, every_lat: np.ndarray, every_lon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return widths and heights at some latitudes: this share of the sides of the rectangle around all places (Tornado, Table 1)."""
    return share * np.ptp(every_lon) * KM_PER_DEG * np.cos(np.radians(lat)), np.full(len(lat), share * np.ptp(every_lat) * KM_PER_DEG)
