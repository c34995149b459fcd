"""Which subscriptions are registered: read once from their topic, and continued from there with each question."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from dskype.deploy.client.follower import Follower
from dskype.deploy.client.pubsub import PubSub
from dskype.topology.runtime.kafka import KafkaTimeoutError

__all__ = ["Directory", "Selection"]

_FRESH_S = 1.0
_PATIENCE_S = 10.0


class Selection(NamedTuple):
    """A page of ids, in order.

    :ivar total: how many ids there are with the prefix.
    :ivar more: whether there are further ones behind the last id of the page.
    """

    ids: list[str]
    total: int
    more: bool


class Directory:
    """The ids of a topology's registered subscriptions. Memory: some 150 bytes for each.

    :param client: of the topology.
    """

    def __init__(self, client: PubSub) -> None:
        self._client, self._lock = client, threading.Lock()
        self._ids: set[str] = set()
        self._at: dict[tuple[str, int], int] = {}
        self._read_s = 0.0

    def unknown(self, ids: Iterable[str]) -> list[str]:
        """Return which ids are not registered, in order. It reads what is new in the topic of subscriptions; at the first time that is all of it.

        :raises KafkaTimeoutError: the topic could not be read to its end.
        """
        with self._lock:
            self._renew()
            return sorted(set(ids) - self._ids)

    def select(self, prefix: str, after: str, limit: int) -> Selection:
        """Return the first ids with a prefix that come behind an id.

        :raises KafkaTimeoutError: the topic could not be read to its end.
        """
        with self._lock:
            self._renew()
            having = [id for id in self._ids if id.startswith(prefix)] if prefix else self._ids
            found = heapq.nsmallest(limit + 1, (id for id in having if id > after))
            return Selection(found[:limit], len(having), len(found) > limit)

    def _renew(self) -> None:
        if time.monotonic() - self._read_s < _FRESH_S:
            return
        topic = self._client.topics.subscriptions
        self._client.require(topic)
        follower = Follower(self._client.kafka, [topic], self._at)
        try:
            if any(follower.positions().get(where, -1) < at for where, at in self._at.items()):  # the topic was made anew
                self._ids.clear()
            heard_s = time.monotonic()
            while not follower.at_end():
                for record in follower.poll():
                    self._note(record)
                    heard_s = time.monotonic()
                if time.monotonic() - heard_s > _PATIENCE_S:
                    raise KafkaTimeoutError(f"topic {topic} could not be read to its end: nothing came for {_PATIENCE_S:g} s")
            self._at, self._read_s = follower.positions(), time.monotonic()
        finally:
            follower.close()

    def _note(self, record: Any) -> None:
        id = (record.key or b"").decode(errors="replace")
        if record.value is None:
            self._ids.discard(id)
        else:
            self._ids.add(id)
