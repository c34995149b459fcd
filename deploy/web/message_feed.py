"""The newest messages: a sample of them for the live map, and the place and text of a result's message."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from kafka.errors import KafkaError

from dskype.deploy.client.follower import Follower
from dskype.deploy.client.records import json_object
from dskype.deploy.web.findings import id_text
from dskype.deploy.web.tail import Tail
from dskype.spouts.areas import centre_of
from dskype.topology.errors import TopologyError
from dskype.topology.ui.events import Event

__all__ = ["Listener", "MessageFollower", "MessageTail", "message_of"]

KEPT = 20_000
"""Messages that are remembered, the newest ones."""
SAMPLE = 100
"""Messages of one event of the map, at most."""
_EVERY_S = 0.5
_QUIET_S = 15.0
_TEXT, _ID = 300, 512
_LOOK_S, _PATIENCE_S = 0.02, 1.0


def message_of(record: Any) -> dict[str, Any] | None:
    """Return id, text, latitude and longitude (of an area its centre, and its ``bbox``) of a record of messages; None if it has none, or an id that is none."""
    value = json_object(record.value)
    if value is None:
        return None
    try:
        box = [float(x) for x in value["bbox"]] if "bbox" in value else None
        lat, lon = centre_of(*box) if box is not None else (float(value["lat"]), float(value["lon"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    if not (-90 <= lat <= 90 and -180 <= lon <= 180):  # so neither NaN nor infinite
        return None
    text, id = value.get("text"), value.get("id")
    if not (id is None or (type(id) is int and -(1 << 63) <= id < 1 << 63) or (isinstance(id, str) and len(id) <= _ID)):  # many are remembered
        return None
    id = f"{record.partition}-{record.offset}" if id is None else id
    found = {"id": id, "message_id": id_text(id), "text": text[:_TEXT] if isinstance(text, str) else "", "lat": lat, "lon": lon}
    return found if box is None else {**found, "bbox": box}


class Listener:
    """Keeps a :class:`MessageTail` reading, for those who ask it what messages are.

    :param ended: called, with the tail's lock, when the tail has stopped.
    """

    def __init__(self, ended: Callable[[], None]) -> None:
        self.end = ended

    def offer(self, messages: Sequence[Mapping[str, Any]], new: int) -> None:
        """Take nothing."""


class MessageTail(Tail["MessageFollower | Listener"]):
    """Reads new messages, and remembers the newest ones.

    :param kept: how many.
    """

    def __init__(self, open_follower: Callable[[], Follower], name: str, kept: int = KEPT) -> None:
        super().__init__(open_follower, f"messages of {name}")
        self._kept = kept
        self._known: OrderedDict[str, Mapping[str, Any]] = OrderedDict()

    def _take(self, records: Sequence[Any]) -> None:
        found = [message for record in records if (message := message_of(record)) is not None]
        for message in found:
            name = json.dumps(message["id"])
            self._known[name] = message
            self._known.move_to_end(name)
        while len(self._known) > self._kept:
            self._known.popitem(last=False)
        new = sum(record.offset >= self._begun_at.get((record.topic, record.partition), 0) for record in records)
        for member in self._members:
            member.offer(found, min(new, len(found)))

    def _dropped(self, member: MessageFollower | Listener) -> None:
        member.end()

    async def wait_for_messages_of(self, results: Sequence[Mapping[str, Any]]) -> None:
        """Wait until the messages of results are known, or are none that were just on their way.

        A result may be read before its message, which was written earlier: a poll that begins after the result was read finds it.
        """
        wanted = {json.dumps(result.get("message")) for result in results}
        last_poll, deadline = self._polls + 2, time.monotonic() + _PATIENCE_S
        while not all(name in self._known for name in wanted) and self._polls < last_poll and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_S)

    def describe(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return a result with text and place of its message, if the message is known."""
        message = self._known.get(json.dumps(result.get("message")))
        return result if message is None else {**result, **{name: value for name, value in message.items() if name not in ("id", "message_id")}}


class MessageFollower:
    """What one map shows; an :class:`~dskype.topology.ui.events.EventSource`.

    Twice a second it gets at most :data:`SAMPLE` messages, drawn evenly from all that have come, and their number. A client that takes them slowly
    gets the same number less often.

    :param tail: reads for all.
    :param pool: runs what blocks.
    :ivar closed: whether the client has gone.
    """

    def __init__(self, tail: MessageTail, pool: Executor) -> None:
        self._tail, self._pool = tail, pool
        self._sample: list[Mapping[str, Any]] = []
        self._seen = self._new = 0
        self._random = random.Random(0)
        self.closed = self._joined = self._ended = False

    def offer(self, messages: Sequence[Mapping[str, Any]], new: int) -> None:
        """Draw from messages (reservoir sampling); called by the tail, with its lock.

        :param new: how many of them were not there when the tail began to read.
        """
        self._new += new
        for message in messages:
            self._seen += 1
            if len(self._sample) < SAMPLE:
                self._sample.append(message)
            elif (place := self._random.randrange(self._seen)) < SAMPLE:
                self._sample[place] = message

    def end(self) -> None:
        """Note that the tail has stopped."""
        self._ended = True

    async def next(self) -> Sequence[Event] | None:
        """Return an event ``messages`` with the newest messages; [] after some seconds without any."""
        if not self._joined:
            self._joined = True
            try:
                await asyncio.get_running_loop().run_in_executor(self._pool, self._join)
            except (KafkaError, OSError, TopologyError):
                return None
            return [Event("following", {})]
        for _ in range(int(_QUIET_S / _EVERY_S)):
            await asyncio.sleep(_EVERY_S)
            with self._tail.lock:
                sample, seen, new = self._sample, self._seen, self._new
                self._sample, self._seen, self._new = [], 0, 0
            if seen:
                return [Event("messages", {"seen": seen, "new": new, "messages": sample})]
            if self._ended:
                return None
        return []

    def _join(self) -> None:
        self._tail.join(self)
        if self.closed:  # meanwhile
            self._tail.leave(self)

    def close(self) -> None:
        """Leave the tail."""
        self.closed = True
        self._tail.leave(self)
