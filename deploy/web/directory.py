"""What is known of the registered subscriptions: their topics are read once, and continued from there with each question.

Kept are places and numbers, and whose it is, some 300 bytes for each subscription, and 200 more where tenants are told apart; records are fetched by their places when they are asked for.
"""

from __future__ import annotations

import math
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kafka import TopicPartition
from sortedcontainers import SortedDict, SortedSet

from dskype.bolts.results.base import Stored, supersedes
from dskype.bolts.results.events import LISTS, METAS
from dskype.bolts.results.kafka_store import stored_of
from dskype.deploy.client.dead_letters import DeadLetter
from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.client.records import Registered, TopK, json_object
from dskype.deploy.client.topic_reader import UnknownTopicError
from dskype.spouts.tenants import DEFAULT_TENANT, is_tenant
from dskype.topology.runtime.kafka.clients import KafkaTimeoutError
from dskype.topology.ui.budget import check_wanted, holding

__all__ = ["Directory", "Entry", "Selection"]

_PATIENCE_S = 10.0
_POLL_MS = 200
_NEAR = 500
"""Records that are read and thrown away rather than sought past."""
_OFFSET_BITS = 44
_NOWHERE = -1
_EVENTS = {"active": 1, "updated": 1, "removed": 2}
_NAMES = {1: "active", 2: "removed"}
_LIMITS = (*LISTS, *METAS)
_COLUMNS = ("subscription", "event", "watermark", "limit", "limited_ms", "refusal", "list", "list_kept", "list_run", "list_registration", "list_watermark")
"""Of each subscription: the place of its record; the newest event of that registration, and its watermark; the number of the setting that has limited it, and when
that was told; the place of the dead letter that refuses it; and the newest record of its published list: its place, whether it has a list, and its version."""


class Selection(NamedTuple):
    """A page of ids, in order.

    :ivar total: how many ids there are with the prefix.
    :ivar more: whether there are further ones behind the last id of the page.
    """

    ids: list[str]
    total: int
    more: bool


class Entry(NamedTuple):
    """What is known of a subscription.

    :ivar refused: why the topology has refused it; None if it has not.
    :ivar topk: the newest list that was published in the topic of lists; None if there is none.
    """

    registered: Registered
    refused: str | None
    topk: TopK | None


class Directory:
    """The registered subscriptions of a topology.

    :param client: of the topology.
    :param wait_s: how long a question may wait while the topics are read for another one.
    :param tenants: see ``tenants``.
    :param states: whether it is wanted what became of subscriptions; otherwise only their own topic is read.
    :ivar tenants: whether tenants are told apart.
    """

    def __init__(self, client: PubSub, wait_s: float = math.inf, *, tenants: bool = False, states: bool = True) -> None:
        self._client, self._wait_s, self._lock, self.tenants, self._states = client, wait_s, threading.Lock(), tenants, states
        topics = client.topics
        self._takes: dict[str, Callable[[Any], None]] = {
            topics.subscriptions: self._take_subscription,
            topics.registrations: self._take_event,
            topics.dead_letters: self._take_refusal,
            topics.topk: self._take_list,
        }
        self._clear()

    def _clear(self) -> None:
        self._rows: SortedDict = SortedDict()  # id -> its place in the columns
        self._of = {name: array("q") for name in _COLUMNS}
        self._free: list[int] = []
        self._owners: dict[
            str, tuple[str, int]
        ] = {}  # id -> the tenant that it belongs to, or did when it was removed, and the place of its first record since then
        self._owned: dict[str, SortedSet] = {}  # tenant -> ids of its registered subscriptions
        self._at: dict[TopicPartition, int] = {}

    def unknown(self, ids: Iterable[str], tenant: str | None = None) -> list[str]:
        """Return which ids are not registered, in order.

        :param tenant: as those of this tenant; None: at all.
        :raises KafkaTimeoutError: the topics could not be read to their ends.
        """
        with holding(self._lock, math.inf):
            self._renew()
            rows = self._rows_of(tenant)
            return sorted(id for id in set(ids) if id not in rows)

    def owner(self, id: str) -> str | None:
        """Return the tenant of a registered subscription; None: there is none of this id.

        :raises KafkaTimeoutError: the topics could not be read to their ends.
        :raises BusyError: they are being read for others.
        """
        with holding(self._lock, self._wait_s):
            self._renew()
            return self._owners[id][0] if id in self._rows else None

    def owned(self, tenant: str, registrations: Sequence[tuple[str, str]]) -> list[bool]:
        """Tell of each subscription and registration whether it is a tenant's: it has been since then, without a break.

        :raises KafkaTimeoutError: the topics could not be read to their ends.
        """
        with holding(self._lock, math.inf):
            places = [_place_of(registration) for _, registration in registrations]
            topic = self._client.topics.subscriptions
            if any(at is not None and self._at.get(TopicPartition(topic, at >> _OFFSET_BITS), 0) <= at & ((1 << _OFFSET_BITS) - 1) for at in places):
                self._renew()
            return [at is not None and self._is_owned(tenant, id, at) for (id, _), at in zip(registrations, places)]

    def _is_owned(self, tenant: str, id: str, at: int) -> bool:
        owner, since = self._owners.get(id, ("", 0))
        return owner == tenant and at >= since and at >> _OFFSET_BITS == since >> _OFFSET_BITS

    def _rows_of(self, tenant: str | None) -> Any:
        return self._rows if tenant is None else self._owned.get(tenant, SortedSet())

    def select(self, prefix: str, after: str, limit: int, tenant: str | None = None) -> Selection:
        """Return the first ids with a prefix that come behind an id.

        :param tenant: only those of this tenant; None: of all.
        :raises KafkaTimeoutError: the topics could not be read to their ends.
        :raises BusyError: they are being read for others.
        """
        with holding(self._lock, self._wait_s):
            self._renew()
            rows = self._rows_of(tenant)
            first, stop = rows.bisect_left(prefix), rows.bisect_left(_behind(prefix)) if _behind(prefix) else len(rows)
            start = max(first, rows.bisect_right(after))
            found = list(rows.islice(start, min(stop, start + limit)))
            return Selection(found, stop - first, start + limit < stop)

    def entries(self, ids: Sequence[str], *, lists: bool = False, tenant: str | None = None) -> list[Entry]:
        """Return what is known of those of some subscriptions that are registered.

        :param lists: whether their published lists are wanted.
        :param tenant: only those of this tenant; None: of all.
        :raises KafkaTimeoutError: the topics could not be read to their ends.
        :raises BusyError: they are being read for others.
        """
        with holding(self._lock, self._wait_s):
            self._renew()
            known = self._rows_of(tenant)
            rows = {id: self._rows[id] for id in ids if id in known}
            topics = self._client.topics
            wanted = [(topics.subscriptions, self._of["subscription"][row]) for row in rows.values()]
            wanted += [(topics.dead_letters, at) for row in rows.values() if (at := self._of["refusal"][row]) != _NOWHERE]
            wanted += [(topics.topk, self._of["list"][row]) for row in rows.values() if lists and self._of["list_kept"][row]]
            records = self._records(wanted)
            return [entry for id, row in rows.items() if (entry := self._entry(id, row, records)) is not None]

    def _entry(self, id: str, row: int, records: Mapping[tuple[str, int], Any]) -> Entry | None:
        topics, of = self._client.topics, self._of
        record = records.get((topics.subscriptions, of["subscription"][row]))
        if record is None or record.value is None:  # a newer one has just taken its place
            return None
        registered = Registered(id, _text(of["subscription"][row]), record.timestamp, record.value, json_object(record.value))
        if of["limit"][row] != _NOWHERE:
            registered = replace(registered, limit=_LIMITS[of["limit"][row]], limited_ms=of["limited_ms"][row])
        state = (_NAMES[of["event"][row]], of["watermark"][row]) if of["event"][row] else None
        registered = registered.with_status(state, time.time_ns() // 1_000_000)
        letter = records.get((topics.dead_letters, of["refusal"][row])) if registered.status == "pending" else None
        newest = records.get((topics.topk, of["list"][row]))
        return Entry(registered, None if letter is None else DeadLetter.from_record(letter).error, None if newest is None else TopK.from_json(newest.value))

    # -- reading on -------------------------------------------------------------------------------------------------------

    def _renew(self) -> None:
        """Read what is new. An event follows its subscription's record, so where the events end is asked first, and they are read last."""
        self._client.require(self._client.topics.subscriptions)
        with self._client.reader() as consumer:
            causes, effects = self._partitions(consumer, [self._client.topics.subscriptions]), self._partitions(consumer, self._present_effects())
            ends = consumer.end_offsets(effects) if effects else {}
            ends_of_causes = consumer.end_offsets(causes)
            if any(self._at.get(where, 0) > end for where, end in {**ends, **ends_of_causes}.items()):  # topics were made anew
                self._clear()
            self._read(consumer, ends_of_causes)
            self._read(consumer, ends)

    def _present_effects(self) -> list[str]:
        present = []
        for topic in list(self._takes)[1:] if self._states else ():
            try:
                self._client.require(topic)
                present.append(topic)
            except UnknownTopicError:
                continue
        return present

    @staticmethod
    def _partitions(consumer: Any, topics: Iterable[str]) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic in topics for number in sorted(consumer.partitions_for_topic(topic) or ())]

    def _read(self, consumer: Any, ends: Mapping[TopicPartition, int]) -> None:
        ends = {where: end for where, end in ends.items() if self._at.get(where, 0) < end}
        if not ends:
            return
        consumer.assign(list(ends))
        for where, first in consumer.beginning_offsets(list(ends)).items():
            consumer.seek(where, max(first, self._at.get(where, 0)))
        heard_s = time.monotonic()
        while any(consumer.position(where) < end for where, end in ends.items()):
            check_wanted()  # what was read so far stays
            batch = consumer.poll(timeout_ms=_POLL_MS)
            for where, records in batch.items():
                take, end = self._takes[where.topic], ends[where]
                for record in records:
                    if record.offset < end:
                        take(record)
                        self._at[where] = record.offset + 1
            if batch:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > _PATIENCE_S:
                raise KafkaTimeoutError(f"topic {next(iter(ends)).topic} could not be read to its end: nothing came for {_PATIENCE_S:g} s")
        self._at.update(ends)

    def _take_subscription(self, record: Any) -> None:
        id = (record.key or b"").decode(errors="replace")
        row = self._rows.get(id)
        if record.value is None:
            if row is not None:
                del self._rows[id]
                self._free.append(row)
                if self.tenants:
                    self._owned[self._owners[id][0]].discard(id)
            return
        if self.tenants:
            self._take_owner(id, record)
        if row is None:
            row = self._rows[id] = self._free.pop() if self._free else self._new_row()
            self._of["list"][row], self._of["list_kept"][row] = _NOWHERE, 0
        of = self._of
        of["subscription"][row], of["event"][row], of["refusal"][row], of["limit"][row] = _place(record.partition, record.offset), 0, _NOWHERE, _NOWHERE

    def _take_owner(self, id: str, record: Any) -> None:
        fields = json_object(record.value) if b'"tenant"' in record.value else None
        named = None if fields is None else fields.get("tenant")
        tenant = str(named) if is_tenant(named) else DEFAULT_TENANT
        before = self._owners.get(id)
        if before is None or before[0] != tenant:
            self._owners[id] = tenant, _place(record.partition, record.offset)
            if before is not None:
                self._owned[before[0]].discard(id)
        self._owned.setdefault(tenant, SortedSet()).add(id)

    def _new_row(self) -> int:
        for column in self._of.values():
            column.append(_NOWHERE)
        return len(self._of["subscription"]) - 1

    def _take_event(self, record: Any) -> None:
        value = json_object(record.value) or {}
        id, event, watermark = value.get("subscription"), value.get("event"), value.get("watermark")
        row = self._rows.get(id) if isinstance(id, str) else None
        if row is None or _text(self._of["subscription"][row]) != value.get("registration") or type(watermark) is not int:
            return
        if event == "limited" and value.get("limit") in _LIMITS:
            self._of["limit"][row], self._of["limited_ms"][row] = _LIMITS.index(value["limit"]), record.timestamp
        if event not in _EVENTS:
            return
        self._of["event"][row], self._of["watermark"][row] = _EVENTS[event], watermark

    def _take_refusal(self, record: Any) -> None:
        letter = DeadLetter.from_record(record)
        row = self._rows.get((record.key or b"").decode(errors="replace"))
        if row is None or letter.topic != self._client.topics.subscriptions or self._of["refusal"][row] != _NOWHERE:
            return
        if _text(self._of["subscription"][row]) == f"{letter.partition}-{letter.offset}":
            self._of["refusal"][row] = _place(record.partition, record.offset)

    def _take_list(self, record: Any) -> None:
        row, of = self._rows.get((record.key or b"").decode(errors="replace")), self._of
        if row is None:
            return
        try:
            found = stored_of(record)
            registration = _place(*map(int, found.registration.split("-")))
        except (KeyError, ValueError, AttributeError):  # not a record of the product
            return
        if of["list"][row] != _NOWHERE:
            value = b"" if of["list_kept"][row] else None
            if not supersedes(found, Stored(_text(of["list_registration"][row]), of["list_watermark"][row], value, of["list_run"][row])):
                return
        of["list"][row], of["list_kept"][row] = _place(record.partition, record.offset), int(found.value is not None)
        of["list_run"][row], of["list_registration"][row], of["list_watermark"][row] = found.run, registration, found.watermark

    # -- fetching ---------------------------------------------------------------------------------------------------------

    def _records(self, wanted: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Any]:
        """Return (topic, place) -> record, of those that Kafka still has."""
        by_partition: dict[TopicPartition, set[int]] = {}
        for topic, place in wanted:
            by_partition.setdefault(TopicPartition(topic, place >> _OFFSET_BITS), set()).add(place & ((1 << _OFFSET_BITS) - 1))
        found = {}
        with self._client.reader() as consumer:
            for where, offsets in sorted(by_partition.items()):
                for record in _fetched(consumer, where, sorted(offsets)):
                    found[where.topic, _place(where.partition, record.offset)] = record
        return found


def _fetched(consumer: Any, where: TopicPartition, offsets: Sequence[int]) -> list[Any]:
    consumer.assign([where])
    first = consumer.beginning_offsets([where])[where]
    left, found = [offset for offset in offsets if offset >= first], []
    if left:
        consumer.seek(where, left[0])
    heard_s = time.monotonic()
    while left:
        check_wanted()
        records = consumer.poll(timeout_ms=_POLL_MS, max_records=_NEAR).get(where, ())
        wanted = set(left)
        found += [record for record in records if record.offset in wanted]
        position = consumer.position(where)
        left = [offset for offset in left if offset >= position]
        if left and left[0] > position + _NEAR:
            consumer.seek(where, left[0])
        if records:
            heard_s = time.monotonic()
        elif time.monotonic() - heard_s > _PATIENCE_S:
            raise KafkaTimeoutError(f"topic {where.topic} could not be read: nothing came for {_PATIENCE_S:g} s")
    return found


def _place(partition: int, offset: int) -> int:
    return partition << _OFFSET_BITS | offset


def _place_of(registration: str) -> int | None:
    """Return the place that a registration names; None: it names none."""
    partition, _, offset = registration.partition("-")
    return _place(int(partition), int(offset)) if partition.isdecimal() and offset.isdecimal() else None


def _text(place: int) -> str:
    """Return a place as it names a registration."""
    return f"{place >> _OFFSET_BITS}-{place & ((1 << _OFFSET_BITS) - 1)}"


def _behind(prefix: str) -> str:
    """Return the least text that is behind all texts with a prefix; "" if there is none."""
    prefix = prefix.rstrip("\U0010ffff")
    return prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else ""
