"""A client of DSkype: register subscriptions, publish messages, read the results.

>>> from dskype import PubSub
>>> with PubSub("127.0.0.1:9092") as dskype:                                            # doctest: +SKIP
...     dskype.subscribe("lake-park", text="lake park", lat=43.04, lon=-87.9, k=10, alpha=0.5)
...     dskype.publish(text="Coffee by the lake in the park", lat=43.05, lon=-87.88)
...     for change in dskype.results(follow=10):
...         print(change.op, change.rank, change.message)

Everything goes through the topics of a topology, so the topology may also start later: records wait in its topics.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Self, cast

from kafka.errors import KafkaError

from dskype.bolts.results import make_store
from dskype.bolts.results.base import Opening
from dskype.deploy.client.dead_letters import DeadLetter
from dskype.deploy.client.follower import Follower, Once
from dskype.deploy.client.message_topics import MessageTopics, message_topics
from dskype.deploy.client.names import TopicNames
from dskype.deploy.client.records import Registered, Result, TopK, changed_fields, encoded, given_fields, json_object, listed, rest_of_life, subscription_type
from dskype.deploy.client.searches import search_window
from dskype.deploy.client.topic_reader import TopicReader
from dskype.spouts.costs import CostCeiling
from dskype.spouts.record_values import refusal
from dskype.spouts.records import RecordError, encode_attributes, parse_key, parse_message, parse_subscription
from dskype.spouts.settings import Settings
from dskype.spouts.topics import PLAN_KEY
from dskype.topology.core.redaction import hidden_paths
from dskype.topology.core.steady_clock import AttentiveClock
from dskype.topology.errors import IllegalArgumentException, TopologyError
from dskype.topology.runtime.kafka.clients import KafkaSettings, KafkaTimeoutError
from dskype.topology.runtime.kafka.record_producer import Delivery, RecordProducer, Stored
from dskype.topology.runtime.nimbus.nimbus_topic import NIMBUS_TOPIC, conf_of, load_states

__all__ = ["PendingError", "PubSub", "SendError"]

_LEAST_PATIENCE_S, _LOOK_S, _KEPT_FAILURES = 1.0, 0.2, 10


class PendingError(TopologyError):
    """A subscription is not active yet."""

    retriable = True


class SendError(TopologyError):
    """Records did not reach Kafka."""

    retriable = True


class PubSub(TopicReader):
    """A client of one DSkype topology.

    Sending returns at once; :meth:`flush` and the end of a ``with`` block wait until Kafka has everything, and raise an error if it does not.
    When Kafka has stored nothing for the client's patience, sending raises an error, too, and goes on by itself when Kafka stores records again.
    A client may be used by several threads.

    :param kafka: ``host:port,...``, or full settings.
    :param name: the topology's name: the prefix of its topics.
    :param conf: the configuration ``dskype.*`` to check records by; default: the running topology's, else the defaults.
    :param timeout_s: how long the brokers may take to answer. Default 30.
    :param names: remembers which topics there are; clients may share it. Default: they are asked for whenever a topic seems to be missing.
    :param message_topics: the topics of messages in the order of the message spout; default: those of the running topology.
    :param patience_s: after how many seconds a record that the brokers have not taken is given up, and counted as failed. Default: ``timeout_s``.
    """

    def __init__(
        self,
        kafka: KafkaSettings | str,
        name: str = "dskype",
        *,
        conf: Mapping[str, Any] | None = None,
        timeout_s: float = 30,
        patience_s: float | None = None,
        names: TopicNames | None = None,
        message_topics: Sequence[str] | None = None,
    ) -> None:
        super().__init__(KafkaSettings(kafka) if isinstance(kafka, str) else kafka, name, timeout_s, names)
        self._conf = conf
        self._patience_s = max(timeout_s if patience_s is None else patience_s, _LEAST_PATIENCE_S)
        self._settled = threading.Condition(self._lock)  # a record has been stored, or was given up
        self._producer: RecordProducer | None = None
        self._settings: Any = None
        self._given_topics = message_topics
        self._message_topics: MessageTopics | None = None
        self._analyzer: Any = None
        self._ceiling: CostCeiling | None = None
        self._failures: list[BaseException] = []
        self._ended = threading.Event()  # ends the iterators that follow
        self.sent = self.stored = self.failed = 0
        """Records that were sent; those that Kafka has; those that it refused or did not take in time. The rest is on its way."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.close(check=kind is None)

    def close(self, check: bool = True) -> None:
        """Send waiting records, close the connections, and end the iterators that follow results, also in other threads.

        :param check: wait for what is on its way, and raise an error if a record is not stored; otherwise it is given up after a second.
        :raises SendError: Kafka does not have everything that was sent; the text says how much it has.
        """
        try:
            if check:
                self.flush()
        finally:
            with self._lock:
                producer, self._producer = self._producer, None
                self._ended.set()
                self._ended = threading.Event()
            self._close_readers()
            if producer is not None:
                producer.close(timeout=0 if check else 1)

    # -- configuration -------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> Any:
        """The :class:`~dskype.spouts.settings.Settings` that records are checked by."""
        with self._lock:
            if self._settings is None:
                conf = self.running_conf() or {} if self._conf is None else self._conf
                self._settings = Settings.from_conf(conf)
            return self._settings

    @property
    def analyzer(self) -> Any:
        """What makes words of texts in this topology: a :class:`~dskype.spouts.text.Tokenizer`."""
        if self._analyzer is None:
            self._analyzer = self.settings.analyzer()
        return self._analyzer

    def running(self) -> dict[str, Any] | None:
        """Return the topology's record in the nimbus topic (``topology/runtime/nimbus/nimbus_topic.py``); None if there is none."""
        return load_states(self.kafka).get(self.name) if self._exists(NIMBUS_TOPIC) else None

    @property
    def message_topics(self) -> MessageTopics:
        """The topics of messages that the topology reads, and what their records say."""
        settings = self.settings
        with self._lock:
            if self._message_topics is None:
                names = message_topics(self.running(), self.name, settings) if self._given_topics is None else self._given_topics
                self._message_topics = MessageTopics(names, settings, self.topics.messages)
            return self._message_topics

    def running_conf(self) -> dict[str, Any] | None:
        """Return the configuration of the topology as its tasks see it; None if there is no topology of that name."""
        record = self.running()
        return None if record is None else conf_of(record)

    def parse_subscription(self, key: bytes, value: bytes) -> Any:
        """Parse a subscription and check it as the topology does.

        :raises RecordError: the topology would refuse it.
        """
        settings = self.settings
        if self._ceiling is None:
            self._ceiling = CostCeiling(settings)
        parsed = parse_subscription(key, value, tokenizer=self.analyzer, **settings.reading)
        self._ceiling.check(parsed)
        return parsed

    def parse_message(self, value: bytes, objects: bool = False) -> Any:
        """Parse a message and check it as the topology does, except for its time.

        :param objects: it may be a state of an object, whatever the topology's settings say.
        :raises RecordError: the topology would refuse it.
        """
        settings = self.settings
        parsed = parse_message(value, space=settings.space, limits=settings.limits, text_fields=settings.text_fields, objects=objects or settings.objects)
        if not parsed.deleted:
            encode_attributes(settings.attributes, parsed)
        return parsed

    # -- sending -------------------------------------------------------------------------------------------------------

    def subscribe(self, id: str | None = None, *, wait: bool = False, **fields: Any) -> str:
        """Register a subscription, or register it again.

        :param id: any text; default: a generated one.
        :param wait: wait until Kafka has it.
        :param fields: those of its record, as :meth:`subscribe_topk` (or ``min_score`` in place of ``k``) and :meth:`subscribe_boolean` have them. ``type`` follows from the others.
        :returns: the id.
        :raises RecordError: the subscription is invalid; the text says why.
        :raises SendError: ``wait`` is True, and Kafka did not take it.
        """
        id = uuid.uuid4().hex if id is None else id
        key, value = _key(id), encoded({"type": subscription_type(fields), **fields}, "a subscription")
        self.parse_subscription(key, value)
        self._stored(self.send_subscription(key, value), "subscription", wait)
        return id

    def subscribe_topk(
        self,
        id: str | None = None,
        *,
        lat: float,
        lon: float,
        text: str | None = None,
        keywords: Sequence[str] | None = None,
        k: int = 10,
        alpha: float = 0.5,
        distance: str | None = None,
        scale_m: float | None = None,
        where: str | None = None,
        ttl_s: float | None = None,
        wait: bool = False,
        **more: Any,
    ) -> str:
        """Register a subscription for the best messages near a place.

        :param lat: degrees, and ``lon`` alike: the place.
        :param text: the words to look for, or ``keywords``: a list of them; one of the two.
        :param k: how many messages. Default 10.
        :param alpha: the weight of nearness against words, 0 to 1. Default 0.5.
        :param distance: what nearness is measured in: ``"degrees"`` (the default; over the diagonal of the data space), or ``"metres"``, with ``scale_m``.
        :param scale_m: nearness is 1 at the place, and 0 from this distance on.
        :param where: an expression (docs/concepts/boolean.md) that messages have to satisfy. Default: all count.
        :param ttl_s: how long it lives, in seconds. Default: until it is unregistered.
        :param more: further fields of the record: ``meta``, any JSON value, comes back with the results.
        :returns: the id; for the rest see :meth:`subscribe`.
        """
        fields = {"text": text, "keywords": listed(keywords), "lat": lat, "lon": lon, "k": k, "alpha": alpha, "where": where}
        fields |= {"distance": distance, "scale_m": scale_m, "ttl_s": ttl_s}
        return self.subscribe(id, wait=wait, type="topk", **given_fields(fields), **more)

    def subscribe_boolean(
        self,
        id: str | None = None,
        *,
        expression: str | None = None,
        keywords: Sequence[str] | None = None,
        bbox: Sequence[float] | None = None,
        region: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        ttl_s: float | None = None,
        inside: bool | None = None,
        wait: bool = False,
        **more: Any,
    ) -> str:
        """Register a subscription for every message that satisfies an expression.

        :param expression: what texts and attributes have to satisfy, for example ``'coffee AND NOT decaf AND price < 5'``
            (docs/concepts/boolean.md), or ``keywords``: a list of words that must all occur. None of the two: any message in ``bbox``.
        :param bbox: west, south, east, north in degrees; west > east crosses the antimeridian. Default: everywhere.
        :param region: in place of ``bbox``: ``{"center": {"lat": ..., "lon": ...}, "radius_m": ...}``, a GeoJSON Polygon or MultiPolygon, or a list of these.
        :param ttl_s: how long it lives, in seconds. Default: until it is unregistered.
        :param inside: whether updates of objects that stay in are reported, too (docs/concepts/objects.md). Default: only ``enter`` and ``leave`` are.
        :param more: further fields of the record: ``meta``, any JSON value, comes back with the results; ``initial``, True or a number: what matches already comes, too (docs/concepts/boolean.md).
        :returns: the id; for the rest see :meth:`subscribe`.
        """
        fields = {"expression": expression, "keywords": listed(keywords), "bbox": listed(bbox), "region": region, "ttl_s": ttl_s, "inside": inside}
        return self.subscribe(id, wait=wait, type="boolean", **given_fields(fields), **more)

    def move(self, id: str, *, wait: bool = False, **changes: Any) -> None:
        """Change a registered subscription. Its results go on: only what really changes is published.

        :param changes: fields of its record, as :meth:`subscribe_topk` and :meth:`subscribe_boolean` have them; None takes one away. What is left of its ``ttl_s`` stays.
        :param wait: wait until Kafka has it.
        :raises IllegalArgumentException: there is no such subscription. For the rest see :meth:`subscribe`.
        """
        self.flush()
        found = self.subscription(id)
        fields = None if found is None or found.fields is None else rest_of_life(found.fields, found.registered_ms, time.time_ns() // 1_000_000)
        if fields is None:
            raise IllegalArgumentException("There is no such subscription.", given=id, hint="subscribe() registers one")
        self.subscribe(id, wait=wait, **changed_fields(fields, changes))

    def unsubscribe(self, id: str, *, wait: bool = False) -> None:
        """Remove a subscription; an unknown id is not an error.

        :param wait: wait until Kafka has it.
        :raises RecordError: no subscription can have this id; the text says why.
        :raises SendError: ``wait`` is True, and Kafka did not take it.
        """
        key = _key(id)
        parse_key(key)
        self._stored(self.send_subscription(key, None), "end of the subscription", wait)

    def _stored(self, sent: Delivery, what: str, wait: bool) -> Stored | None:
        """Wait for the place of a record that was sent; None if it is not waited for."""
        try:
            return sent.get() if wait else None
        except KafkaError as ex:
            raise SendError(f"the {what} did not reach Kafka: {ex}") from ex

    def publish(
        self,
        *,
        text: str | Mapping[str, str],
        lat: float | None = None,
        lon: float | None = None,
        bbox: Sequence[float] | None = None,
        region: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        attributes: Mapping[str, Any] | None = None,
        id: str | int | None = None,
        ts: int | None = None,
        object: str | int | None = None,
        wait: bool = False,
    ) -> str | int | None:
        """Publish a message: a point, with ``lat`` and ``lon``, or an area, with ``bbox`` or ``region``.

        :param text: where texts have fields, a map of their names to texts.
        :param bbox: west, south, east, north in degrees; west > east crosses the antimeridian. Boolean subscriptions match it when the
            rectangles overlap; for top-k subscriptions it lies at its centre.
        :param region: as in :meth:`subscribe_boolean`.
        :param attributes: name -> value, of the types that ``dskype.attributes`` of the topology declares; others are ignored.
        :param id: its id in results; default: ``"<partition>-<offset>"`` of its record.
        :param ts: its time, epoch ms; default: its arrival. Used by time windows.
        :param object: the object whose newest state it is (docs/concepts/objects.md; ``dskype.objects: true`` of the topology). Updates of an object keep their order.
        :param wait: wait until Kafka has it.
        :returns: the message's id; None if it has only the default id and ``wait`` is False.
        :raises RecordError: the message is invalid.
        :raises SendError: ``wait`` is True, and Kafka did not take it.
        """
        fields = {"id": id, "text": text, "lat": lat, "lon": lon, "bbox": listed(bbox), "region": region, "attributes": attributes, "ts": ts}
        value = encoded(given_fields(fields | {"object": object}), "a message")
        self.parse_message(value, object is not None)
        return self._named(id, self.send_message(value, object=object), "message", wait)

    def delete_object(self, object: str | int, *, id: str | int | None = None, ts: int | None = None, wait: bool = False) -> str | int | None:
        """End an object: subscriptions that it is in report ``leave``. An unknown one is no error.

        :param object: its id.
        :param id: of the message that says so; default: ``"<partition>-<offset>"`` of its record.
        :param ts: when it ends, epoch ms; default: when the record arrives.
        :param wait: wait until Kafka has it.
        :returns: the message's id; None if it has only the default id and ``wait`` is False.
        :raises RecordError: no object can have this id, or ``id`` or ``ts`` is none; the text says why.
        :raises SendError: ``wait`` is True, and Kafka did not take it.
        """
        value = encoded(given_fields({"id": id, "ts": ts, "object": object, "deleted": True}), "the end of an object")
        self.parse_message(value, True)
        return self._named(id, self.send_message(None if id is ts is None else value, object=object), "end of the object", wait)

    def _named(self, id: str | int | None, sent: Delivery, what: str, wait: bool) -> str | int | None:
        """Return the id of a message that was sent; None if it has only the default id, which is not known without waiting."""
        stored = self._stored(sent, what, wait)
        return id if stored is None or id is not None else self.message_topics.default_id(stored.topic, stored.partition, stored.offset)

    def send_message(self, value: bytes | None, partition: int | None = None, object: str | int | None = None) -> Delivery:
        """Send bytes to the topic of messages, unchecked; return what becomes of them.

        :param partition: of the topic; None: any, with an object the one that its id leads to.
        :param object: the object whose state it is, which is the record's key; with None in place of the bytes, the object ends.
        """
        return self._send(self.topics.messages, None if object is None else str(object).encode(errors="surrogatepass"), value, partition)

    def send_subscription(self, key: bytes, value: bytes | None) -> Delivery:
        """Send bytes to the topic of subscriptions, unchecked; None unregisters. Return what becomes of them."""
        return self._send(self.topics.subscriptions, key, value)

    search = search_window

    def send_plan(self, value: bytes) -> Delivery:
        """Send a distribution plan to its topic, unchecked; return what becomes of it."""
        return self._send(self.topics.plans, PLAN_KEY, value)

    @property
    def waiting(self) -> int:
        """How many records are on their way."""
        with self._lock:
            return self.sent - self.stored - self.failed

    @property
    def silent_s(self) -> float:
        """For how many seconds records have been sent and Kafka has stored none; 0.0 if it has since."""
        producer = self._producer
        return 0.0 if producer is None else producer.silent_s

    def flush(self) -> None:
        """Wait until Kafka has everything that was sent.

        :raises SendError: it does not: records were given up since the last call, or none was stored for ``timeout_s``. The text says how many are
            missing, and the first reason.
        """
        timeout_s, left, deadline = max(self._timeout_s, _LEAST_PATIENCE_S), -1, 0.0
        with self._settled:
            while (now_left := self.waiting) and (now_left != left or time.monotonic() < deadline):
                if now_left != left:
                    left, deadline = now_left, time.monotonic() + timeout_s
                self._settled.wait(_LOOK_S)
        with self._lock:
            failures, self._failures = self._failures, []
            left = self.waiting
        if failures:
            raise SendError(f"{self.failed} of {self.sent} records did not reach Kafka; the first: {failures[0]}")
        if left:
            raise SendError(f"Kafka did not take everything within {self._timeout_s:g} s; {self.stored} of {self.sent} records are stored")

    def _send(self, topic: str, key: bytes | None, value: bytes | None, partition: int | None = None) -> Delivery:
        self.require(topic)
        with self._lock:
            if self._producer is None:
                # A short linger lets records share requests.
                self._producer = self.kafka.producer(delivery_timeout_s=self._patience_s, linger_ms=5)
            producer = self._producer
        # One record at a time tries whether Kafka stores records again.
        if producer.silent_s > self._patience_s and self.waiting:
            raise SendError(f"Kafka has stored nothing for {producer.silent_s:.0f} s; {self.stored} of {self.sent} records are stored")
        with self._lock:
            self.sent += 1
        sent = producer.send(topic, value, key=key, partition=partition)
        sent.add_done_callback(self._note)
        return sent

    def _note(self, sent: Future[Stored]) -> None:
        """Count what has become of a record."""
        error = sent.exception()
        with self._lock:
            if error is None:
                self.stored += 1
            else:
                self.failed += 1
                if len(self._failures) < _KEPT_FAILURES:
                    self._failures.append(error)
            self._settled.notify_all()

    # -- reading -------------------------------------------------------------------------------------------------------

    def subscriptions(self, type: str | None = None, ids: Iterable[str] | None = None) -> list[Registered]:
        """Return the registered subscriptions, by id, with their states.

        Reads two topics to their ends, and keeps all subscriptions in memory.

        :param type: only those of this type: ``topk`` or ``boolean``.
        :param ids: only these.
        """
        wanted = None if ids is None else set(ids)
        found: dict[str, Registered] = {}
        for record in self.scan(self.topics.subscriptions):
            id = (record.key or b"").decode(errors="replace")
            if wanted is not None and id not in wanted:
                continue
            if record.value is None:
                found.pop(id, None)
            else:
                found[id] = Registered(id, f"{record.partition}-{record.offset}", record.timestamp, record.value, json_object(record.value))
        if type is not None:
            found = {id: r for id, r in found.items() if r.type == type}
        states = self._states(found)
        now_ms = time.time_ns() // 1_000_000
        return [found[id].with_status(states.get(id), now_ms) for id in sorted(found)]

    def subscription(self, id: str) -> Registered | None:
        """Return one subscription, or None."""
        return next(iter(self.subscriptions(ids=[id])), None)

    def _states(self, registered: dict[str, Registered]) -> dict[str, tuple[str, int]]:
        """Return id -> (event, watermark): the newest event of the newest registration; note in ``registered`` which limits its author was told of."""
        states: dict[str, tuple[str, int]] = {}
        if not registered or not self._exists(self.topics.registrations):
            return states
        for record in self.scan(self.topics.registrations):
            value = json_object(record.value)
            if value is None:
                continue
            id = value.get("subscription")
            if isinstance(id, str) and id in registered and registered[id].registration == value.get("registration"):
                if value.get("event") == "limited":
                    registered[id] = replace(registered[id], limit=str(value.get("limit")), limited_ms=record.timestamp)
                else:
                    states[id] = str(value.get("event")), cast("int", value.get("watermark"))
        return states

    def topk(self, id: str) -> TopK | None:
        """Return the newest published top-k list of a subscription; None if there is none (yet).

        It comes from the topology's store (``dskype.store``). A list is written at most every ``dskype.results.topk.interval.ms``, so it may lag
        behind the results by that much; a very long one is written less often (``dskype.results.topk.bytes.per.second``).

        :raises StoreUnavailable: the store does not answer.
        :raises IllegalArgumentException: the store needs a secret that is not given.
        """
        if hidden := hidden_paths(self.settings.store_options):
            raise IllegalArgumentException(
                "The running topology does not publish its secrets.",
                given=f"dskype.store.options without {', '.join(hidden)}",
                hint='pass them: -c \'dskype.store.options={"password": "${ENV-NAME}", ...}\', or --config FILE',
            )
        store = make_store(self.settings.store, self.settings.store_options)
        if store.in_log:
            self.require(self.topics.topk)
        with contextlib.closing(store):
            store.open(Opening(self.name, kafka=self.kafka))
            found = store.get(id)
        return None if found is None else TopK.from_json(found.value)

    def await_active(self, ids: str | Iterable[str], timeout_s: float = 600) -> None:
        """Wait until the topology matches subscriptions; everything that was sent before is stored then.

        The first subscriptions of a topology that starts may take minutes: on a machine that has not run this version before, it compiles first.
        Each look reads the topics of subscriptions, registrations and dead letters to their ends.

        :param timeout_s: how long to wait. Default 600.
        :raises IllegalArgumentException: there is no such subscription.
        :raises RecordError: the topology has refused one; the text says why.
        :raises PendingError: one is still pending after ``timeout_s``; it may become active later.
        """
        wanted = [ids] if isinstance(ids, str) else list(ids)
        self.flush()
        deadline, pause_s = time.monotonic() + timeout_s, 0.2
        while True:
            found = {registered.id: registered for registered in self.subscriptions(ids=wanted)}
            if missing := sorted(set(wanted) - found.keys()):
                raise IllegalArgumentException("There is no such subscription.", given=missing[0], hint="subscribe() registers one")
            pending = {registered.registration: id for id, registered in found.items() if registered.status == "pending"}
            if not pending:
                return
            for registration, reason in self.refusals(pending).items():
                raise RecordError(f"The topology has refused subscription {pending[registration]!r}: {reason}", "refused")
            if time.monotonic() > deadline:
                raise PendingError(
                    f"{len(pending)} of {len(found)} subscriptions are still pending after {timeout_s:g} s.",
                    given=sorted(pending.values())[0],
                    hint=f"'dskype list' says whether topology {self.name!r} runs, and what it waits for",
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 5)

    def refusal(self, registration: str) -> str | None:
        """Return why the topology refused a subscription's record; None if it has not refused it (yet)."""
        return self.refusals([registration]).get(registration)

    def refusals(self, registrations: Iterable[str]) -> dict[str, str]:
        """Return registration -> why the topology refused that record, for those that it has refused. Reads the dead letters once."""
        wanted, found = set(registrations), dict[str, str]()
        if not wanted or not self._exists(self.topics.dead_letters):
            return found
        for record in self.scan(self.topics.dead_letters):
            letter = DeadLetter.from_record(record)
            if letter.topic == self.topics.subscriptions and (place := f"{letter.partition}-{letter.offset}") in wanted:
                found.setdefault(place, letter.error)
        return found

    def results(self, *, subscriptions: Iterable[str] | None = None, start: str = "beginning", follow: bool | float = False) -> Iterator[Result]:
        """Return an iterator over results, each once, in order for each subscription. ``now`` is the time of the call, not of the first iteration.

        If matches are grouped, each one is a result here, too; they come in the order of messages within a partition.

        :param subscriptions: only results of these ids.
        :param start: ``beginning`` or ``now``.
        :param follow: False: only present results; True: until this client is closed; a number: until none has come for that many seconds.
        :raises UnknownTopicError: the topology has never run.
        :raises KafkaTimeoutError: of the present results, nothing comes for ``timeout_s`` although there is more.
        """
        topics = self.result_topics()
        wanted = None if subscriptions is None else {subscriptions} if isinstance(subscriptions, str) else set(subscriptions)
        return self._results(Follower(self.kafka, topics, start), wanted, follow, self._ended)

    def result_topics(self) -> list[str]:
        """Return the topics of deltas and matches: where matches are grouped they have one of their own.

        :raises UnknownTopicError: the topology has not run yet.
        """
        self.require(self.topics.results)
        return [self.topics.results, *([self.topics.matches] if self._exists(self.topics.matches) else [])]

    def _results(self, follower: Follower, wanted: set[str] | None, follow: bool | float, ended: threading.Event) -> Iterator[Result]:
        quiet = AttentiveClock(gap_s=1.0)  # the program may have been stopped, or busy with what it got
        once, heard_s = Once(), 0.0
        limit_s = math.inf if follow is True else follow or self._timeout_s
        try:
            while not ended.is_set() if follow else not follower.at_end():
                records, now_s = follower.poll(0.2), quiet.look()
                if records:
                    heard_s = now_s
                elif now_s - heard_s > limit_s:
                    if not follow:
                        raise KafkaTimeoutError(f"the results could not be read to their end: nothing came for {self._timeout_s:g} s")
                    return
                for record in records:
                    found = Result.all_of(record, wanted)
                    if found and once.first(found[0].result_id):  # of a record with several, the first one stands for all
                        yield from found
        finally:
            follower.close()


def _key(id: Any) -> bytes:
    """Return the id of a subscription as a record's key, whose check refuses halves of surrogate pairs."""
    if not isinstance(id, str):
        raise refusal("no-key", "Expected the id of a subscription as a text", repr(id))
    return id.encode(errors="surrogatepass")
