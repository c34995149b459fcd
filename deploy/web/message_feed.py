"""The newest messages: a sample of them for the live map, and the place and text of a result's message."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

from kafka.errors import KafkaError

from dskype.deploy.client.follower import Follower
from dskype.deploy.client.message_topics import MessageTopics
from dskype.deploy.client.records import json_object
from dskype.deploy.web.drafts import Newest
from dskype.deploy.web.findings import id_text
from dskype.deploy.web.tail import Tail
from dskype.spouts.areas import centre_of
from dskype.spouts.record_values import RecordError, object_id
from dskype.spouts.records import message_of_deletion
from dskype.spouts.regions import bounding_box, parse_region
from dskype.spouts.text import BORDER
from dskype.topology.errors import IllegalArgumentException, TopologyError
from dskype.topology.ui.events import Event

__all__ = ["Listener", "MessageFollower", "MessageTail", "message_of"]

KEPT = 20_000
"""Messages that are remembered, the newest ones."""
SAMPLE = 100
"""Messages of one event of the map, at most."""
_EVERY_S = 0.5
_WINDOWS = 16
_QUIET_S = 15.0
_TEXT, _ID = 300, 512
_LOOK_S, _PATIENCE_S = 0.02, 1.0


def message_of(record: Any, topics: MessageTopics | None = None) -> dict[str, Any] | None:
    """Return id, text, latitude and longitude (of an area its centre, and its ``bbox``) of a record of messages; None if it has none, or an id that is none.

    The state of an object also has ``object``. Where one ends, ``gone`` is true in place of text and place.

    :param topics: those of the topology; None: its own alone.
    """
    try:
        return _message_of(record, topics)
    except RecordError:
        return None


def _message_of(record: Any, topics: MessageTopics | None) -> dict[str, Any] | None:
    if topics is not None and topics.objects and record.value is None:
        ended, name = message_of_deletion(record.key, topics.limits).object, topics.default_id(record.topic, record.partition, record.offset)
        return {"id": name, "message_id": name, "object": ended, "gone": True}
    value, default = json_object(record.value), f"{record.partition}-{record.offset}"
    if topics is not None:
        default = topics.default_id(record.topic, record.partition, record.offset)
        if topics.is_mapped(record.topic):
            value = _mapped(record, topics)
    if value is None:
        return None
    text, id = value.get("text"), value.get("id")
    if not (id is None or (type(id) is int and -(1 << 63) <= id < 1 << 63) or (isinstance(id, str) and len(id) <= _ID)):  # many are remembered
        return None
    id = default if id is None else id
    found: dict[str, Any] = {"id": id, "message_id": id_text(id)}
    if topics is not None and topics.objects and "object" in value:
        found["object"] = object_id(value["object"], topics.limits.id_max_bytes)
        if value.get("deleted") is True:
            return {**found, "gone": True}
    try:
        box = _box_of(value)
        lat, lon = centre_of(*box) if box is not None else (float(value["lat"]), float(value["lon"]))
    except (KeyError, TypeError, ValueError, OverflowError, IllegalArgumentException):
        return None
    if not (-90 <= lat <= 90 and -180 <= lon <= 180):  # so neither NaN nor infinite
        return None
    if isinstance(text, dict):  # of fields
        text = "  ".join(part for part in text.values() if isinstance(part, str))
    found |= {"text": text.replace(BORDER, "  ")[:_TEXT] if isinstance(text, str) else "", "lat": lat, "lon": lon}
    return found if box is None else {**found, "bbox": box}


def _box_of(value: Mapping[str, Any]) -> list[float] | None:
    """Return the rectangle of an area, None of a point."""
    if "region" in value:
        return [*bounding_box(parse_region(value["region"]))]
    return [float(x) for x in value["bbox"]] if "bbox" in value else None


def _mapped(record: Any, topics: MessageTopics) -> dict[str, Any]:
    """Return the message of a record of another form as one of the own form.

    :raises RecordError: it is refused.
    """
    message = topics.read(record.topic, record.value)
    place = {"lat": message.lat, "lon": message.lon} if message.bbox is None else {"bbox": message.bbox}
    thing = {} if message.object is None else {"object": message.object, "deleted": message.deleted}
    return {"id": None if message.id is None else json.loads(message.id), "text": message.text, **place, **thing}


class Listener:
    """Keeps a :class:`MessageTail` reading, for those who ask it what messages are.

    :param ended: called, with the tail's lock, when the tail has stopped.
    """

    def __init__(self, ended: Callable[[], None]) -> None:
        self.end = ended


class _Window:
    """A sample of the messages of some time, drawn evenly from them (reservoir sampling).

    :ivar seen: how many messages there were.
    :ivar new: how many of them were not there when the tail began to read.
    """

    def __init__(self) -> None:
        self.sample: list[Mapping[str, Any]] = []
        self.seen = self.new = 0

    def add(self, messages: Sequence[Mapping[str, Any]], new: int, draw: random.Random) -> None:
        """Draw from further messages."""
        self.new += new
        for message in messages:
            self.seen += 1
            if len(self.sample) < SAMPLE:
                self.sample.append(message)
            elif (place := draw.randrange(self.seen)) < SAMPLE:
                self.sample[place] = message


class _Look(NamedTuple):
    """What a map has been shown: the windows up to a number, in which so many messages were seen, and so many were new."""

    number: int
    seen: int
    new: int


class MessageTail(Tail["MessageFollower | Listener"]):
    """Reads new messages, and remembers the newest ones.

    :param kept: how many.
    :param topics: returns the topics of messages; default: the topology's own alone.
    :param is_current: as in :class:`~dskype.deploy.web.tail.Tail`.
    :ivar newest: their records, fewer.
    """

    def __init__(
        self,
        open_follower: Callable[[], Follower],
        name: str,
        kept: int = KEPT,
        topics: Callable[[], MessageTopics | None] = lambda: None,
        is_current: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(open_follower, f"messages of {name}", is_current)
        self._kept, self._topics = kept, topics
        self.newest = Newest()
        self._known: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
        self._random = random.Random(0)
        self._window, self._closed_windows = _Window(), deque[_Window](maxlen=_WINDOWS)
        self._window_s, self._number = time.monotonic(), 0
        self._seen_before = self._new_before = 0  # in windows that are forgotten

    def _take(self, records: Sequence[Any]) -> None:
        self.newest.add(records)
        topics = self._topics()
        found = [message for record in records if (message := message_of(record, topics)) is not None]
        for message in found:
            name = json.dumps(message["id"])
            self._known[name] = message
            self._known.move_to_end(name)
        while len(self._known) > self._kept:
            self._known.popitem(last=False)
        new = sum(record.offset >= self._begun_at.get((record.topic, record.partition), 0) for record in records)
        self._window.add(found, min(new, len(found)), self._random)

    def looked(self, since: _Look) -> tuple[_Look, list[Mapping[str, Any]]]:
        """Return the present look at the messages, and a sample of those that have come since another look; at most :data:`SAMPLE`.

        All maps share the samples, so that a message costs the same however many maps there are. Call it with the lock.
        """
        if self._window.seen and time.monotonic() - self._window_s >= _EVERY_S / 2:
            if len(self._closed_windows) == _WINDOWS:
                self._seen_before += self._closed_windows[0].seen
                self._new_before += self._closed_windows[0].new
            self._closed_windows.append(self._window)
            self._window, self._window_s, self._number = _Window(), time.monotonic(), self._number + 1
        missed = list(self._closed_windows)[max(0, len(self._closed_windows) - (self._number - since.number)) :]
        now = _Look(
            self._number,
            self._seen_before + sum(window.seen for window in self._closed_windows),
            self._new_before + sum(window.new for window in self._closed_windows),
        )
        if sum(len(window.sample) for window in missed) <= SAMPLE:
            return now, [message for window in missed for message in window.sample]
        seen = max(1, sum(window.seen for window in missed))
        return now, [message for window in missed for message in self._random.sample(window.sample, min(len(window.sample), SAMPLE * window.seen // seen))]

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

    Twice a second it gets at most :data:`SAMPLE` messages, drawn from all that have come, and their number. A client that takes them slowly
    gets the same number less often.

    :param tail: reads for all.
    :param pool: runs what blocks.
    :ivar closed: whether the client has gone.
    """

    def __init__(self, tail: MessageTail, pool: Executor) -> None:
        self._tail, self._pool = tail, pool
        self._look = _Look(0, 0, 0)
        self.closed = self._joined = self._ended = False

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
            before = self._look
            with self._tail.lock:
                self._look, sample = self._tail.looked(before)
            if self._look.seen > before.seen:
                return [Event("messages", {"seen": self._look.seen - before.seen, "new": self._look.new - before.new, "messages": sample})]
            if self._ended:
                return None
        return []

    def _join(self) -> None:
        with self._tail.lock:
            self._look = self._tail.looked(_Look(0, 0, 0))[0]
        self._tail.join(self)
        if self.closed:  # meanwhile
            self._tail.leave(self)

    def close(self) -> None:
        """Leave the tail."""
        self.closed = True
        self._tail.leave(self)
