"""A sample of the recent messages and of the present subscriptions of a distribution task, for plans that follow the load (PS2Stream, section V)."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from dskype.distribution.base import Sample
from dskype.distribution.routing.triggers import routing_terms
from dskype.distribution.subscriptions import BooleanSubscription, Subscription
from dskype.spouts.areas import centres
from dskype.spouts.batch import MessageBatch

__all__ = ["RecentSample", "sample_of"]

_MIX, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


def sample_of(messages: MessageBatch, boxes: np.ndarray, offsets: np.ndarray, terms: np.ndarray) -> Sample:
    """Return a sample of subscriptions of which only rectangles and routing terms are known.

    :param boxes: float64[n, 4], west, south, east, north in degrees; NaN: a top-k subscription.
    :param offsets: int64[n + 1]; the routing terms of subscription *i* are ``terms[offsets[i]:offsets[i + 1]]``, int64[].
    """
    n = len(boxes)
    lat, lon = centres(boxes)
    return Sample(messages, np.ones(n, np.int64), np.zeros(n), lat, lon, offsets, terms, np.ones(len(terms)), np.full(n, -np.inf), np.ones(n), boxes)


class RecentSample:
    """Keeps some of the newest messages, and some of the subscriptions. Both follow from what it is told, so a restored task has the same ones.

    Of messages it keeps every *stride*-th one, and of these the newest. Of subscriptions it keeps those whose id has a hash below a limit. When they are too many without those that have ended, the
    limit is halved. So each present subscription is as likely to be kept as any other, however old it is.

    :param most: how many messages are kept, and how many subscriptions.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._batches: list[MessageBatch] = []
        self._stride = 1
        self._seen = self._kept = self._since = 0  # messages: in all; kept; since the stride was chosen
        self._subscriptions: dict[str, tuple[list[float], list[int]]] = {}  # rectangle and routing terms
        self._below = 1 << 64  # hashes below this are kept

    # -- messages -----------------------------------------------------------------------------------------------------

    def record(self, messages: MessageBatch) -> None:
        """Take messages into account. O(messages that are kept), amortised."""
        rows = np.arange(-self._seen % self._stride, messages.n, self._stride)
        self._seen += messages.n
        self._since += messages.n
        if len(rows):
            self._batches.append(messages.select(rows))
            self._kept += len(rows)
            if self._kept > 2 * self._most:
                self._batches = [self._newest()]
                self._kept = self._batches[0].n

    def _newest(self) -> MessageBatch:
        found = MessageBatch.concat(self._batches) if self._batches else MessageBatch.empty()
        return found.select(np.arange(max(0, found.n - self._most), found.n))

    def choose_stride(self, periods: int) -> None:
        """Choose the stride so that the kept messages span this many periods; to be called after each period."""
        self._stride, self._since = max(1, -(-self._since * periods // self._most)), 0

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def register(self, name: str, subscription: Subscription, present: Callable[[str], bool]) -> None:
        """Take a subscription into account, in place of one with the same name. O(1), amortised.

        :param present: as of :meth:`sample`; this one counts as present.
        """
        if _hash(name) >= self._below:
            return
        box = list(subscription.bbox) if isinstance(subscription, BooleanSubscription) else [np.nan] * 4
        self._subscriptions[name] = box, routing_terms(subscription).tolist()
        if len(self._subscriptions) <= self._most:
            return
        self._subscriptions = {other: one for other, one in self._subscriptions.items() if other == name or present(other)}
        while len(self._subscriptions) > self._most - self._most // 4:  # so that this is not done again for a long time
            self._below >>= 1
            self._subscriptions = {name: one for name, one in self._subscriptions.items() if _hash(name) < self._below}

    # -- both ---------------------------------------------------------------------------------------------------------

    def sample(self, present: Callable[[str], bool]) -> Sample:
        """Return the sample.

        :param present: tells whether a subscription has not ended; those that have are forgotten.
        """
        self._subscriptions = {name: one for name, one in self._subscriptions.items() if present(name)}
        boxes, terms = zip(*self._subscriptions.values()) if self._subscriptions else ((), ())
        offsets = np.cumsum([0, *map(len, terms)]).astype(np.int64)
        return sample_of(self._newest(), np.array(boxes, np.float64).reshape(-1, 4), offsets, np.array([t for one in terms for t in one], np.int64))

    def snapshot(self) -> Any:
        """Return the state as arrays and plain values."""
        kept = self._subscriptions.values()
        boxes, terms = np.array([box for box, _ in kept], np.float64).reshape(-1, 4), [own for _, own in kept]
        return [self._stride, self._seen, self._since, self._below.bit_length(), self._newest().columns(), list(self._subscriptions), boxes, terms]

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._stride, self._seen, self._since, bits, columns, names, boxes, terms = state
        messages = MessageBatch(*map(np.array, columns))
        self._below, self._batches, self._kept = 1 << (bits - 1), [messages], messages.n
        self._subscriptions = {name: (box, list(own)) for name, box, own in zip(names, np.asarray(boxes).tolist(), terms)}


def _hash(name: str) -> int:
    """Return a hash of a name, 64 bits. It is not the one by which streams are grouped, so those of a task's subscriptions are spread evenly."""
    return (zlib.crc32(name.encode()) * _MIX) & _MASK
