"""Batches of messages as arrays, for distributors and indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dskype.spouts.areas import columns_to_areas
from dskype.spouts.columns import csr_to_lists, lists_to_csr
from dskype.spouts.streams import Matching, Pairs, Window

__all__ = ["Details", "MessageBatch", "select_lists"]

_FLOATS = frozenset({"lat", "lon", "weights"})


def select_lists(offsets: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Select some of many lists; return (the offsets of the selected lists, the indexes of their values).

    :param offsets: int64[n + 1]; list *i* has the values ``offsets[i]`` to ``offsets[i + 1]``.
    :param rows: int64[], the lists, in any order.
    """
    lengths = offsets[rows + 1] - offsets[rows]
    selected = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths, out=selected[1:])
    return selected, np.arange(selected[-1]) + np.repeat(offsets[rows] - selected[:-1], lengths)


class MessageBatch(NamedTuple):
    """Messages in rising order of (position, seq).

    A window at watermark *w* holds the messages with ``w - extent < position <= w``. For count windows the position is
    the sequence number itself and the extent is ``|W|``; for time windows it is the event time in ms and the extent the span.

    :ivar seq: int64[n], sequence numbers: unique; a higher one is newer and wins ties.
    :ivar position: int64[n], positions in the window.
    :ivar lat: float64[n], degrees.
    :ivar lon: float64[n], degrees.
    :ivar offsets: int64[n + 1]; the keywords of message *i* are ``terms[offsets[i]:offsets[i + 1]]``.
    :ivar terms: int64[], term ids, rising within a message, each once. Negative ids are terms unknown to the vocabulary.
    :ivar weights: float64[], tf-idf weights of the keywords, of unit norm per message.
    :ivar areas: float64[n, 4], west, south, east and north in degrees; west > east crosses the antimeridian. A message that is a
        point has ``[lon, lat, lon, lat]``; ``lat`` and ``lon`` of an area are its centre (:func:`dskype.spouts.areas.centre_of`).
        None: all messages are points.
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
        """Return an empty batch."""
        i, f = np.zeros(0, np.int64), np.zeros(0)
        return cls(i, i, f, f, np.zeros(1, np.int64), i, f)

    @classmethod
    def of(cls, received: Matching | Pairs | Window, *, copy: bool = True) -> MessageBatch:
        """Return the messages in a batch of a stream.

        :param copy: False: the arrays may be read-only views of the frame.
        """
        lat, lon, areas = received.lat, received.lon, None
        if np.ndim(lat) == 2:
            lat, lon, areas = columns_to_areas(lat, lon)
        offsets, terms = lists_to_csr(received.terms, np.int64)
        columns = (received.seq, received.position, lat, lon, offsets, terms, lists_to_csr(received.weights, np.float64)[1])
        convert = np.array if copy else np.asarray
        return cls(*(convert(column, np.float64 if name in _FLOATS else np.int64) for name, column in zip(cls._fields, columns)), areas)

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

    def select(self, rows: np.ndarray) -> MessageBatch:
        """Return the messages at ``rows``, in that order."""
        offsets, index = select_lists(self.offsets, rows)
        areas = None if self.areas is None else self.areas[rows]
        return MessageBatch(self.seq[rows], self.position[rows], self.lat[rows], self.lon[rows], offsets, self.terms[index], self.weights[index], areas)

    def slice(self, start: int, stop: int) -> MessageBatch:
        """Return the messages from ``start`` up to ``stop``, without copying keywords."""
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
        """Return the arrays that a state keeps and the constructor takes: all, but ``areas`` only if there are any."""
        return [column for column in self if column is not None]

    def rectangles(self) -> np.ndarray:
        """Return the rectangles of the messages, float64[n, 4]: ``areas``, or an empty rectangle for each point."""
        return np.stack([self.lon, self.lat, self.lon, self.lat], axis=1) if self.areas is None else self.areas


class Details(NamedTuple):
    """What filters look at beside the terms of messages (:mod:`dskype.spouts.filters`).

    :ivar order_offsets: int64[n + 1]; the words of message *i* in reading order are ``order[order_offsets[i]:order_offsets[i + 1]]``.
    :ivar order: int16[]: indexes of the message's terms; -1 is a word that was left out, -2 the border between two fields of the text.
    :ivar attribute_offsets: int64[n + 1]; the attributes of message *i* are ``attributes[attribute_offsets[i]:attribute_offsets[i + 1]]``.
    :ivar attributes: int64[]: pairs of key and value, rising (:mod:`dskype.spouts.attributes`).
    :ivar prefix_offsets: int64[n + 1]; the beginnings of the words of message *i* are ``prefixes[prefix_offsets[i]:prefix_offsets[i + 1]]``.
    :ivar prefixes: int64[]: terms, rising; empty unless expressions may have prefixes.
    :ivar region_offsets: int64[n + 1]; the region of message *i* is ``regions[region_offsets[i]:region_offsets[i + 1]]``.
    :ivar regions: float64[]: encoded regions (:mod:`dskype.spouts.regions`); empty for points and rectangles.
    """

    order_offsets: np.ndarray
    order: np.ndarray
    attribute_offsets: np.ndarray
    attributes: np.ndarray
    prefix_offsets: np.ndarray
    prefixes: np.ndarray
    region_offsets: np.ndarray
    regions: np.ndarray

    @classmethod
    def empty(cls, n: int = 0) -> Details:
        """Return the details of ``n`` messages without any."""
        none, offsets = np.zeros(0, np.int64), np.zeros(n + 1, np.int64)
        return cls(offsets, np.zeros(0, np.int16), offsets, none, offsets, none, offsets, np.zeros(0))

    @classmethod
    def of(cls, received: Matching | Pairs | Window) -> Details:
        """Return the details in a batch of a stream; those of frames of earlier versions are empty."""
        return cls(
            *lists_to_csr(received.order, np.int16),
            *lists_to_csr(received.attributes, np.int64),
            *lists_to_csr(received.prefixes, np.int64),
            *(cls.empty(len(received.seq))[6:] if isinstance(received, Window) else lists_to_csr(received.region, np.float64)),
        )

    def columns(self) -> dict[str, Any]:
        """Return the columns of a stream that carry the details."""
        return {
            "order": csr_to_lists(self.order_offsets, self.order),
            "attributes": csr_to_lists(self.attribute_offsets, self.attributes),
            "prefixes": csr_to_lists(self.prefix_offsets, self.prefixes),
            "region": csr_to_lists(self.region_offsets, self.regions),
        }

    @classmethod
    def concat(cls, parts: Sequence[Details]) -> Details:
        """Return the details of several batches of messages, one after another."""
        if len(parts) == 1:
            return parts[0]
        joined = [_joined([part[i : i + 2] for part in parts]) for i in (0, 2, 4, 6)]
        return cls(*joined[0], *joined[1], *joined[2], *joined[3])

    def select(self, rows: np.ndarray) -> Details:
        """Return the details of the messages at ``rows``, in that order."""
        found: list[np.ndarray] = []
        for i in (0, 2, 4, 6):
            if not len(self[i + 1]):  # most messages have no region, and no prefixes
                found += np.zeros(len(rows) + 1, np.int64), self[i + 1]
                continue
            offsets, index = select_lists(self[i], rows)
            found += offsets, self[i + 1][index]
        return Details(*found)


def _joined(lists: Sequence[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """Return columns of lists, each (offsets from 0, values), one after another; at least one."""
    starts = np.cumsum([0, *(offsets[-1] for offsets, _ in lists)])
    offsets = [offsets[:-1] + start for (offsets, _), start in zip(lists, starts)]
    return np.concatenate([*offsets, starts[-1:]]).astype(np.int64), np.concatenate([values for _, values in lists])
