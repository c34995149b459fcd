"""Many messages as arrays: what distributors and indexes work on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["MessageBatch"]


class MessageBatch(NamedTuple):
    """Messages in rising order of (position, seq).

    A window at watermark *w* holds the messages with ``w - extent < position <= w``. For count windows the position is
    the sequence number itself and the extent is |W|; for time windows it is the event time in ms and the extent the span.

    :ivar seq: int64[n], the message's sequence number: unique, breaks ties (a higher one is newer).
    :ivar position: int64[n], where it stands for the window.
    :ivar lat: float64[n], degrees.
    :ivar lon: float64[n], degrees.
    :ivar offsets: int64[n + 1]; the keywords of message *i* are ``terms[offsets[i]:offsets[i + 1]]``.
    :ivar terms: int64[], term ids, rising within a message, each once. Negative ids are terms unknown to the vocabulary.
    :ivar weights: float64[], their tf-idf weights, of unit norm per message.
    :ivar areas: float64[n, 4], west, south, east and north in degrees; west > east crosses the antimeridian. A message that is
        a point has ``[lon, lat, lon, lat]``; ``lat`` and ``lon`` of one that is an area are its centre
        (:func:`dskype.spouts.areas.centre_of`). None: every message is a point.
    """

    seq: np.ndarray
    position: np.ndarray
    lat: np.ndarray
    lon: np.ndarray
    offsets: np.ndarray
    terms: np.ndarray
    weights: np.ndarray
    areas: np.ndarray | None = None

    @classmethod
    def empty(cls) -> MessageBatch:
        """Return a batch of no messages."""
        i, f = np.zeros(0, np.int64), np.zeros(0)
        return cls(i, i, f, f, np.zeros(1, np.int64), i, f)

    @classmethod
    def concat(cls, batches: Sequence[MessageBatch]) -> MessageBatch:
        """Return the messages of several batches, one after another."""
        if len(batches) == 1:
            return batches[0]
        if not batches:
            return cls.empty()
        starts = np.cumsum([0, *(b.offsets[-1] - b.offsets[0] for b in batches)])
        offsets = [b.offsets[:-1] - b.offsets[0] + start for b, start in zip(batches, starts)]
        whole = [np.concatenate([b[i] for b in batches]) for i in range(4)]
        terms, weights = (np.concatenate([b[i][b.offsets[0] : b.offsets[-1]] for b in batches]) for i in (5, 6))
        areas = None if all(b.areas is None for b in batches) else np.concatenate([b.rectangles() for b in batches])
        return cls(*whole, np.concatenate([*offsets, starts[-1:]]).astype(np.int64), terms, weights, areas)

    @property
    def n(self) -> int:
        """The number of messages."""
        return len(self.seq)

    def take(self, rows: np.ndarray) -> MessageBatch:
        """Return the messages at ``rows``, in that order."""
        lengths = np.diff(self.offsets)[rows]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        index = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths)
        areas = None if self.areas is None else self.areas[rows]
        return MessageBatch(self.seq[rows], self.position[rows], self.lat[rows], self.lon[rows], offsets, self.terms[index], self.weights[index], areas)

    def slice(self, start: int, stop: int) -> MessageBatch:
        """Return the messages ``start`` to ``stop`` without copying keywords."""
        return MessageBatch(
            self.seq[start:stop],
            self.position[start:stop],
            self.lat[start:stop],
            self.lon[start:stop],
            self.offsets[start : stop + 1],
            self.terms,
            self.weights,
            None if self.areas is None else self.areas[start:stop],
        )

    def columns(self) -> list[np.ndarray]:
        """Return the arrays, ``areas`` only if there are any: what a state keeps, and what the constructor takes."""
        return [column for column in self if column is not None]

    def rectangles(self) -> np.ndarray:
        """Return where the messages are as float64[n, 4]: ``areas``, or a rectangle without extent for each point."""
        return np.stack([self.lon, self.lat, self.lon, self.lat], axis=1) if self.areas is None else self.areas
