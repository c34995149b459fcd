"""What was published, decoded: registrations and their events, whole lists, deltas and matches."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dskype.deploy.verification.inputs import Inputs, Record, header, source_of_record, where
from dskype.deploy.verification.replay import History, Place, Unregistered
from dskype.deploy.verification.report import Report
from dskype.spouts.records import BooleanSubscription, TopkSubscription

__all__ = ["Changes", "Lists", "Matches", "Registration", "Registry"]

_EXPECTED = {"state": ("subscription", "registration", "watermark", "topk"), "delta": ("subscription", "watermark", "op", "message"),
             "event": ("subscription", "registration", "event", "watermark")}


@dataclass(slots=True, eq=False)
class Registration:
    """A record of the subscriptions topic, and what became of it.

    :ivar number: among all that are looked at.
    :ivar arrival_ms: Kafka's timestamp.
    :ivar active, removed: watermarks of its events; None: there is none (yet).
    :ivar current: no later record of the subscription.
    :ivar ended: a later one takes its place, or unregisters it.
    """

    number: int
    name: str
    place: Place
    subscription: TopkSubscription | BooleanSubscription
    arrival_ms: int
    active: int | None = None
    removed: int | None = None
    current: bool = False
    meta: Any = None

    @property
    def is_topk(self) -> bool:
        """A top-k subscription, or a boolean one."""
        return isinstance(self.subscription, TopkSubscription)

    @property
    def expires_ms(self) -> int | None:
        """A message counts if it arrived earlier; None: all do."""
        ttl_s = None if self.is_topk else self.subscription.ttl_s
        return None if ttl_s is None else self.arrival_ms + round(ttl_s * 1000)


def decode(record: Record, kind: str, topic: str, report: Report) -> dict[str, Any] | None:
    """Return a published record as a dict; report what is none."""
    try:
        value = json.loads(record.value or b"")
        if value["v"] == 1 and type(value["watermark"]) is int and all(name in value for name in _EXPECTED[kind]) \
                and (record.key or b"").decode() == value["subscription"]:
            return value
        text = "its key is not its subscription" if (record.key or b"").decode(errors="replace") != value.get("subscription") else "a field is missing or not what it must be"
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        text = f"{type(error).__name__}: {error}"
    report.differ("format", f"a record of {topic} cannot be used: {text}", where=where(topic, record), details=(f"{record.value!r:.300}",))
    return None


class Registry:
    """The registrations, by name ``<partition>-<offset>``.

    :param parsed: see :func:`~dskype.deploy.verification.replay.parse_subscriptions`.
    :param wanted: ids to look at; None: all.
    """

    def __init__(self, inputs: Inputs, parsed: Mapping[Place, Any], report: Report, wanted: Collection[str] | None) -> None:
        self._inputs, self._parsed, self._report, self._wanted = inputs, parsed, report, wanted
        self.by_name: dict[str, Registration] = {}
        self.all: list[Registration] = []
        self.last: dict[str, Registration | None] = {}
        """Subscription -> its current registration; None: it was unregistered."""
        self.partitions: dict[str, set[int]] = {}
        self._ends = {p: o for p, o in parsed}
        self._gone: set[str] = set()
        self._by_subscription: dict[str, list[Registration]] = {}
        for record in inputs.subscriptions:
            self._add(record)

    def _add(self, record: Record) -> None:
        place = record.partition, record.offset
        found = self._parsed[place]
        if isinstance(found, str) or (self._wanted is not None and found.id not in self._wanted):
            return
        self.partitions.setdefault(found.id, set()).add(record.partition)
        before = self.last.get(found.id)
        if before is not None:
            before.current = False
        if isinstance(found, Unregistered):
            self.last[found.id] = None
            return
        registration = Registration(len(self.all), f"{place[0]}-{place[1]}", place, found, record.timestamp_ms, current=True,
                                    meta=None if found.meta is None else json.loads(found.meta))
        self.all.append(registration)
        self.by_name[registration.name] = self.last[found.id] = registration
        self._by_subscription.setdefault(found.id, []).append(registration)

    def skips(self, record: Record) -> bool:
        """Tell whether a published record is of a subscription that is not looked at."""
        return self._wanted is not None and (record.key or b"").decode(errors="replace") not in self._wanted

    def find(self, name: Any, subscription: str, kind: str, topic: str, record: Record) -> Registration | None:
        """Return the registration that a published record speaks of; None (and say why) if it cannot be compared.

        :param kind: ``topk`` | ``boolean`` | ``any``: what it must be.
        """
        found = self.by_name.get(name)
        if found is not None:
            if found.subscription.id == subscription and (kind == "any" or found.is_topk == (kind == "topk")):
                return found
            text = f"is of registration {name}, which is {found.subscription.id!r}" if found.subscription.id != subscription else \
                f"is of registration {name}, which is not a {'top-k' if kind == 'topk' else kind} subscription"
        else:
            try:
                place = tuple(map(int, name.split("-")))
                if len(place) == 2 and place not in self._parsed and place[1] <= self._ends.get(place[0], -1):
                    self._gone.add(name)
                    self._report.unchecked["results of registrations whose record has been compacted away"] += 1
                    return None
            except (ValueError, AttributeError):
                pass
            text = f"names {name!r}, which is no registration"
        self._report.differ("format", f"a record of {topic} {text}", where=where(topic, record), subscription=subscription, details=(f"{record.value!r:.300}",))
        return None

    # -- events ---------------------------------------------------------------------------------------------------------

    def read_events(self) -> None:
        """Take the events in; check that each registration has each at most once, in order."""
        topic, report, known = self._inputs.topics.registrations, self._report, set()
        for record in self._inputs.registrations:
            if self.skips(record) or (value := decode(record, "event", topic, report)) is None:
                continue
            found = self.find(value["registration"], value["subscription"], "any", topic, record)
            if found is None:
                continue
            event, watermark = value["event"], value["watermark"]
            identity = (found.name, event, watermark)
            if identity in known:
                report.notes["repeated registration events"] += 1
                continue
            known.add(identity)
            report.compared["registration events"] += 1
            self._take(found, event, watermark, where(topic, record))

    def _take(self, found: Registration, event: str, watermark: int, place: str) -> None:
        about = {"where": place, "subscription": found.subscription.id, "registration": found.name, "watermark": watermark}
        name = f"registration {found.name} of {found.subscription.id!r}"
        if event not in ("active", "removed"):
            self._report.differ("registration", f"{name} has an unknown event {event!r}", **about)
        elif getattr(found, event) is not None:
            self._report.differ("registration", f"{name} became {event} twice: at watermark {getattr(found, event)} and at {watermark}", **about)
        elif event == "active":
            if found.removed is not None:
                self._report.differ("registration", f"{name} became active (at watermark {watermark}) after it was removed (at {found.removed})", **about)
            found.active = watermark
        else:
            found.removed = watermark
            if found.active is None:
                self._report.differ("registration", f"{name} was removed (at watermark {watermark}) and never became active", **about)
            elif watermark < found.active:
                self._report.differ("registration", f"{name} was removed at watermark {watermark}, before it became active at {found.active}", **about)

    def check_order(self, final: bool, newest: int, now_ms: int | None, must: bool) -> None:
        """Check that a registration ends before the next one of its subscription begins.

        :param final: nothing more will come: what is registered must be active, what is not must have been removed.
        :param newest: position of the newest message.
        :param now_ms: the newest message's arrival, by which a ttl may be over.
        :param must: registrations that have no events are wrong, too.
        """
        for id, registrations in self._by_subscription.items():
            if len(self.partitions[id]) > 1:
                self._report.unchecked["subscriptions with records in several partitions, whose order is not known"] += 1
                continue
            before: Registration | None = None
            for found in registrations:
                if before is not None and found.active is not None:
                    if before.removed is None:
                        self._wrong(found, f"became active at watermark {found.active}, but {before.name} before it was not removed")
                    elif before.removed > found.active:
                        self._wrong(found, f"became active at watermark {found.active}, but {before.name} before it was removed at {before.removed} only")
                before = found if found.active is not None else before
                for event, watermark in (("active", found.active), ("removed", found.removed)):
                    if watermark is not None and watermark > newest:
                        self._wrong(found, f"became {event} at watermark {watermark}, but the newest message is at {newest}")
                ended = not found.current
                if final and ended and found.active is not None and found.removed is None:
                    self._wrong(found, "was replaced or unregistered, but never removed")
                elif not ended and found.removed is not None and not self._expired(found, now_ms):
                    self._wrong(found, f"was removed at watermark {found.removed}, but nobody unregistered it")
                elif final and must and not ended and found.active is None:
                    self._wrong(found, "never became active")
                elif not ended and found.active is None:
                    self._report.unchecked["subscriptions are not active yet"] += 1

    @staticmethod
    def _expired(found: Registration, now_ms: int | None) -> bool:
        return found.expires_ms is not None and now_ms is not None and found.expires_ms <= now_ms

    def _wrong(self, found: Registration, text: str) -> None:
        self._report.differ("registration", f"registration {found.name} of {found.subscription.id!r} {text}", subscription=found.subscription.id,
                            registration=found.name)


@dataclass
class Lists:
    """Published lists, n of them, in the order of the log.

    :ivar registration: int64[n], its number.
    :ivar watermark: int64[n].
    :ivar offsets: int64[n + 1]: list *i* is rows ``offsets[i]`` to ``offsets[i + 1]`` of code and score.
    :ivar places: n records (partition, offset).
    :ivar last: subscription -> its last record: a list's number, or None for a null value.
    """

    registration: np.ndarray
    watermark: np.ndarray
    offsets: np.ndarray
    code: np.ndarray
    score: np.ndarray
    places: list[Place]
    last: dict[str, int | None]

    @classmethod
    def read(cls, inputs: Inputs, registry: Registry, history: History, report: Report, progress: Callable[[str], None]) -> Lists:
        """Decode the topic of whole lists."""
        topic, records, codes = inputs.topics.topk, inputs.topk, history.codes
        registration, watermark, offsets, code, score = array("q"), array("q"), array("q", [0]), array("q"), array("d")
        places: list[Place] = []
        last: dict[str, int | None] = {}
        for i, record in enumerate(records):
            if not i % 20_000:
                progress(f"decoding lists {i:,} of {len(records):,}")
            if registry.skips(record):
                continue
            if record.value is None:
                last[(record.key or b"").decode(errors="replace")] = None
                continue
            value = decode(record, "state", topic, report)
            found = None if value is None else registry.find(value["registration"], value["subscription"], "topk", topic, record)
            if found is None:
                continue
            try:
                entries = [(codes.setdefault(e["message"], len(codes)), float(e["score"])) for e in value["topk"]]
            except (TypeError, KeyError, ValueError):
                report.differ("format", f"a list of {topic} cannot be read", where=where(topic, record), details=(f"{record.value!r:.300}",))
                continue
            last[found.subscription.id] = len(places)
            registration.append(found.number)
            watermark.append(value["watermark"])
            places.append((record.partition, record.offset))
            for number, points in entries:
                code.append(number)
                score.append(points)
            offsets.append(len(code))
        return cls(_ints(registration), _ints(watermark), _ints(offsets), _ints(code), np.array(score, np.float64), places, last)


@dataclass
class Changes:
    """Published changes of lists, each once, by registration, then in the order of the log.

    :ivar registration, watermark, code, rank: int64[n].
    :ivar op: int8[n], 0 add, 1 remove.
    :ivar score: float64[n], of an add.
    :ivar open: bool[n]: no later watermark of the same writer was read, or no other registration: more of the same may follow.
    """

    registration: np.ndarray
    watermark: np.ndarray
    op: np.ndarray
    code: np.ndarray
    score: np.ndarray
    rank: np.ndarray
    partition: np.ndarray
    offset: np.ndarray
    open: np.ndarray


@dataclass
class Matches:
    """Published matches, each once, in the order of the log.

    :ivar registration, watermark, code: int64[n].
    """

    registration: np.ndarray
    watermark: np.ndarray
    code: np.ndarray
    partition: np.ndarray
    offset: np.ndarray


@dataclass
class _Columns:
    registration: array[int] = field(default_factory=lambda: array("q"))
    watermark: array[int] = field(default_factory=lambda: array("q"))
    op: array[int] = field(default_factory=lambda: array("q"))
    code: array[int] = field(default_factory=lambda: array("q"))
    score: array[float] = field(default_factory=lambda: array("d"))
    rank: array[int] = field(default_factory=lambda: array("q"))
    partition: array[int] = field(default_factory=lambda: array("q"))
    offset: array[int] = field(default_factory=lambda: array("q"))
    source: array[int] = field(default_factory=lambda: array("q"))


_OPS = {"add": 0, "remove": 1, "match": 2}


def read_deltas(inputs: Inputs, registry: Registry, history: History, report: Report, progress: Callable[[str], None]) -> tuple[Changes, Matches]:
    """Decode the topic of results; what was written several times counts once (``result-id``)."""
    topic, records, codes = inputs.topics.results, inputs.results, history.codes
    lists, filters = _Columns(), _Columns()
    known: dict[str, bytes | None] = {}
    sources: dict[tuple[int, str], int] = {}
    for i, record in enumerate(records):
        if not i % 20_000:
            progress(f"decoding deltas {i:,} of {len(records):,}")
        if registry.skips(record):
            continue
        identity = header(record, "result-id")
        if identity is None:
            report.differ("format", f"a record of {topic} has no header result-id", where=where(topic, record), details=(f"{record.value!r:.300}",))
            continue
        if identity in known:
            report.notes["repeated deltas"] += 1
            if known[identity] != record.value:
                report.differ("format", f"two records of {topic} with the result-id {identity} differ", where=where(topic, record),
                              expected=known[identity].decode(), published=(record.value or b"").decode(errors="replace"))
            continue
        known[identity] = record.value
        value = decode(record, "delta", topic, report)
        if value is None:
            continue
        op = _OPS.get(value["op"])
        found = registry.find(identity.partition("/")[0], value["subscription"], "boolean" if op == 2 else "topk", topic, record)
        if found is None:
            continue
        rank, score = (value.get("rank"), value.get("score")) if op == 0 else (0, 0.0)
        if op is None or type(rank) is not int or type(score) not in (float, int) or type(value["message"]) not in (str, int) or value.get("meta") != found.meta:
            report.differ("format", f"a record of {topic} has a field that is not what it must be (op, rank, score, message or meta)",
                          where=where(topic, record), details=(f"{record.value!r:.300}",))
            continue
        to = filters if op == 2 else lists
        to.registration.append(found.number)
        to.watermark.append(value["watermark"])
        to.code.append(codes.setdefault(value["message"], len(codes)))
        to.partition.append(record.partition)
        to.offset.append(record.offset)
        if op != 2:
            to.op.append(op)
            to.score.append(score)
            to.rank.append(rank)
            to.source.append(sources.setdefault((record.partition, source_of_record(record)), len(sources)))
    return _changes(lists, len(sources)), Matches(*map(_ints, (filters.registration, filters.watermark, filters.code, filters.partition, filters.offset)))


def _changes(columns: _Columns, sources: int) -> Changes:
    registration, watermark, source = _ints(columns.registration), _ints(columns.watermark), _ints(columns.source)
    newest = np.full(sources, np.iinfo(np.int64).min)
    np.maximum.at(newest, source, watermark)
    latest = np.full(sources, -1)
    latest[source] = np.arange(len(source))      # of several, the last one stays
    order = np.argsort(registration, kind="stable")
    # Writers write in the order of watermarks, or registration after registration.
    is_open = (watermark == newest[source]) | (watermark == watermark[latest[source]]) & (registration == registration[latest[source]])
    take = lambda column: _ints(column)[order]     # noqa: E731
    return Changes(registration[order], watermark[order], take(columns.op).astype(np.int8), take(columns.code), np.array(columns.score, np.float64)[order],
                   take(columns.rank), take(columns.partition), take(columns.offset), is_open[order])


def _ints(values: array[int]) -> np.ndarray:
    return np.array(values, np.int64)
