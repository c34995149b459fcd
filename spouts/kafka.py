"""The spouts of DSkype: they read the input topics, check the records and number the messages."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dskype.spouts import streams
from dskype.spouts.analyzer_settings import synonym_files
from dskype.spouts.areas import areas_to_columns
from dskype.spouts.columns import csr_to_lists, empty_lists, lists_to_csr
from dskype.spouts.costs import CostCeiling
from dskype.spouts.input_mapping import MessageReader
from dskype.spouts.record_values import RecordError, encode_json
from dskype.spouts.records import Message, areas_of, encode_attributes, message_of_deletion, parse_key, parse_plan, parse_subscription
from dskype.spouts.result_fields import FIELDS_OMITTED
from dskype.spouts.searches import parse_search
from dskype.spouts.settings import Settings
from dskype.spouts.tenants import tenant_in
from dskype.spouts.topics import Topics, topic_config
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.components import KafkaSpout
from dskype.topology.errors import DeadLetter, InvalidTopologyException, explain

__all__ = ["MessageSpout", "SubscriptionSpout"]

_NO_TIME = -1
_ALWAYS = (1 << 53) - 1
"""Time of the end of an object that names none: no state is newer, whatever the clock says that it was sent by."""


class MessageSpout(KafkaSpout):
    """Reads messages, gives each its sequence number and emits them as columns on stream ``messages``; those that are states of objects on ``updates``.

    With ``dskype.objects`` a record without a value ends the object in its key.

    Topics whose records have another form need an input mapping, ``dskype.input.*``. Records of the topology's own topic of messages have DSkype's own form.

    The topic ``<topology>.sequence`` records which message got which number, so that the order can be replayed:
    ``{"v": 1, "task": t, "first": seq, "partition": p, "offset": o, "n": n}``, with ``"step"`` above 1 where several tasks
    number in turns, and ``"topic"`` where it is not the first one. A message that cannot be used gets no number; it becomes a dead letter.

    A count window needs one task: the last |W| numbers are only a window if the numbers are dense. A time window allows as many
    tasks as the topic has partitions; a task that reads nothing would hold the watermark back.

    With a time window, the watermark of a task is the time of its newest message, minus the lateness, minus 1 ms, because more messages
    of the same millisecond may follow. A message from the future counts with its arrival here: one fast clock must not make everyone
    else's messages late. The watermark is not above the arrival up to which every partition of the task has been read, minus the same. So while
    messages keep coming, no message is late that arrives within the lateness of its own time, in whatever order the partitions are read.
    A partition from which nothing has come for ``dskype.window.idle.ms`` has been read up to the newest arrival if the brokers have nothing more there.

    When no message has arrived for ``dskype.window.idle.ms``, and the brokers have none that was not read, the watermark catches up with the newest
    message. For messages from the future it follows the clock, behind it by the idle time and the lateness, until it reaches them.

    :param topics: the topic (or topics) of messages, e.g. ``dskype.messages``. A message without an id is called ``<partition>-<offset>`` in results if it is
        from the first one, ``<topic>-<partition>-<offset>`` if it is from another.
    :param kafka_options: see :class:`KafkaSpout`.
    """

    emits_watermarks = True

    def __init__(self, topics: str | Sequence[str], kafka_options: Mapping[str, Any] | None = None) -> None:
        super().__init__(
            topics, kafka_options=kafka_options, first_poll_strategy="EARLIEST", outputs={s.name: s.fields for s in (streams.Messages, streams.Updates)}
        )

    def declare_output_fields(self, declarer: Any) -> None:
        """Declare the streams ``messages`` and ``updates``."""
        streams.Messages.declare(declarer)
        streams.Updates.declare(declarer)

    def check_topology(self, component_id: str, conf: Mapping[str, Any], topology: Any) -> None:
        """Check the settings; refuse several tasks with a count window, and mappings of topics that are not read."""
        super().check_topology(component_id, conf, topology)
        settings = Settings.from_conf(conf)
        if unknown := sorted(settings.inputs.keys() - set(self.topics)):
            raise InvalidTopologyException(
                "dskype.input.topics has a topic that the spout does not read.", given=unknown[0], legal=", ".join(self.topics), component=component_id
            )
        spec = topology.components[component_id]
        tasks = spec.conf.get("topology.tasks") or spec.parallelism_hint or 1
        if settings.window_kind == "count" and tasks > 1:
            raise InvalidTopologyException(
                "A count window is the last |W| sequence numbers, and only one task can number all messages.",
                given=f"{tasks} tasks",
                legal="1 task, or a time window (dskype.window.span.ms)",
                hint="one task numbers far more messages than the rest can match",
                component=component_id,
            )

    def external_topics(self, topology: str, conf: Mapping[str, Any]) -> dict[str, dict[str, str]]:
        """Return the topics of messages and the topic of the sequence; refuse a mapping of the topology's own topic of messages."""
        settings = Settings.from_conf(conf)
        config = topic_config(settings)
        if (own := Topics.for_topology(topology).messages) in settings.inputs:
            raise InvalidTopologyException(
                "Records of the topology's own topic of messages have DSkype's own form, so that every client can write them.",
                given=f"dskype.input.topics: {own}",
                hint="send records of another form to another topic, and add it to the topics of the message spout",
            )
        return {**dict.fromkeys(self.topics, config["messages"]), Topics.for_topology(topology).sequence: config["sequence"]}

    def open(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Read the settings and begin at number 0."""
        self._settings = Settings.from_conf(conf)
        self._context, self._collector = context, collector
        topics = Topics.for_topology(context.plan.name)
        self._topic = topics.sequence
        self._readers = {topic: MessageReader(self._settings, self._settings.mapping_of(topic, topics.messages)) for topic in self.topics}
        self._read_fields = None if self._settings.result_fields is None else self._settings.result_fields.reader()
        if self._read_fields is not None:
            self._fields_omitted = context.register_counter("omitted_fields")
        self._task = context.get_this_task_id()
        self._step = len(context.get_component_tasks(context.get_this_component_id()))
        self._index = context.get_this_task_index()
        self._numbered = 0
        self._newest = self._newest_ahead = self._newest_arrival = self._watermark = _NO_TIME
        self._read: dict[tuple[str, int], int] = {}  # (topic, partition) -> arrival up to which it has been read
        self._moved_ms: dict[tuple[str, int], int] = {}  # the task's clock when that was found
        self._partitions_known = False
        self._ask_at_ms = 0  # before, the brokers are not asked again whether messages wait

    def emit_records(self, records: Sequence[Any]) -> list[tuple[Any, DeadLetter]]:
        """Parse, number and emit; see :meth:`KafkaSpout.emit_records`."""
        settings = self._settings
        timed = settings.window_kind == "time"
        if not records:
            return []
        reader, read_fields = self._readers[records[0].topic], self._read_fields
        good: list[tuple[Any, Any, int]] = []
        attributes: list[list[int]] = []
        fields: list[str] = []
        refused: list[tuple[Any, DeadLetter]] = []
        for record in records:
            try:
                if record.value is None and settings.objects:
                    message, own, original = message_of_deletion(record.key, settings.limits), {}, {}
                elif read_fields is None:
                    message = reader.read(record.value)
                else:
                    message, own, original = reader.read_whole(record.value)
                position = self._event_time_ms(message, record) if timed else 0
                attributes.append([] if message.deleted else encode_attributes(settings.attributes, message))
                if read_fields is not None:
                    fields.append("" if message.deleted else read_fields(message, own, original, record.timestamp_ms))
            except RecordError as error:
                refused.append((record, reader.located(error)))
                continue
            good.append((record, message, position))
        if good:
            self._emit(good, attributes, fields, timed)
        if timed:
            self._note_read((records[0].topic, records[0].partition), max(record.timestamp_ms for record in records))
            self._follow()
        return refused

    def _note_read(self, key: tuple[str, int], arrival_ms: int) -> None:
        self._read[key] = max(arrival_ms, self._read.get(key, _NO_TIME))
        self._moved_ms[key] = self._context.clock_ms()

    def _event_time_ms(self, message: Any, record: Any) -> int:
        ts = record.timestamp_ms if message.ts is None else message.ts
        if ts <= self._watermark:
            raise RecordError(f"the message is late: its time must be after {self._watermark}; given: {ts}; hint: dskype.window.lateness.ms", "late")
        if ts > record.timestamp_ms + self._settings.ahead_ms:
            raise RecordError(
                f"the message's time is more than {self._settings.ahead_ms} ms ahead of its arrival at {record.timestamp_ms}; given: {ts}", "early"
            )
        return ts

    def _emit(self, good: list[tuple[Any, Any, int]], attributes: list[list[int]], fields: list[str], timed: bool) -> None:
        n = len(good)
        first = self._numbered
        seq = (first + np.arange(n, dtype=np.int64)) * self._step + self._index
        position = np.array([p for _, _, p in good], np.int64) if timed else seq
        topic = good[0][0].topic
        place = "" if topic == self.topics[0] else f"{topic}-"
        ids = [m.id if m.id is not None else f'"{place}{r.partition}-{r.offset}"' for r, m, _ in good]
        if self._settings.objects:
            ids = [id if m.object is None else f'{id},"object":{encode_json(m.object)}' for id, (_, m, _) in zip(ids, good)]
        if fields:
            ids = [id + behind for id, behind in zip(ids, fields, strict=True)]
            self._fields_omitted.inc(fields.count(FIELDS_OMITTED))
        lat, lon = _places([m for _, m, _ in good])
        arrival_ms = np.array([r.timestamp_ms for r, _, _ in good], np.int64)
        messages = streams.Messages(
            seq=seq,
            position=position,
            id=pa.array(ids, pa.string()),
            lat=lat,
            lon=lon,
            text=pa.array([m.text for _, m, _ in good], pa.string()),
            arrival_ms=arrival_ms,
            attributes=csr_to_lists(*lists_to_csr(attributes, np.int64)) if self._settings.attributes else empty_lists(n, np.int64),
            region=csr_to_lists(*lists_to_csr([m.region for _, m, _ in good], np.float64)) if any(m.region for _, m, _ in good) else empty_lists(n, np.float64),
        )
        if self._settings.objects:
            self._emit_objects(messages, [m for _, m, _ in good], arrival_ms)
        else:
            messages.emit_batch(self._collector)
        self._numbered += n
        self._write_runs(good, first)
        if timed:
            arrival = np.array([r.timestamp_ms for r, _, _ in good], np.int64)
            self._newest = max(self._newest, int(np.minimum(position, arrival).max()))
            self._newest_ahead = max(self._newest_ahead, int(position.max()))
            self._newest_arrival = max(self._newest_arrival, int(arrival.max()))
        else:
            self._advance(int(seq[-1]))

    def _emit_objects(self, messages: streams.Messages, parsed: Sequence[Message], arrival_ms: np.ndarray) -> None:
        """Emit those of the messages that are states of objects on ``updates``, and the others on ``messages``."""
        rows = np.array([i for i, message in enumerate(parsed) if message.object is not None], np.int64)
        if len(rows) < len(parsed):
            messages.take(np.setdiff1d(np.arange(len(parsed)), rows, assume_unique=True)).emit_batch(self._collector)
        if len(rows):
            found = [parsed[i] for i in rows.tolist()]
            times_ms = [(_ALWAYS if message.deleted else at) if message.ts is None else message.ts for message, at in zip(found, arrival_ms[rows].tolist())]
            streams.Updates(
                **dict(zip(messages.fields.names, messages.take(rows).values())),
                object=pa.array([message.object for message in found], pa.string()),
                time_ms=np.array(times_ms, np.int64),
                deleted=np.array([message.deleted for message in found], np.int8),
            ).emit_batch(self._collector)

    def _follow(self) -> None:
        """Raise the watermark as far as the newest message allows, and the partitions that may have older ones."""
        if self._partitions_known:
            self._advance(min(self._newest, *self._read.values()) - self._settings.lateness_ms - 1)

    def _advance(self, watermark: int) -> None:
        if watermark > self._watermark:
            self._watermark = watermark
            self._collector.emit_watermark(watermark)

    def _write_runs(self, good: list[tuple[Any, Any, int]], first: int) -> None:
        topic, partition = good[0][0].topic, good[0][0].partition
        offsets = np.array([r.offset for r, _, _ in good], np.int64)
        cuts = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), len(good)]
        for start, stop in itertools.pairwise(cuts):
            run = {
                "v": 1,
                "task": self._task,
                "first": (first + start) * self._step + self._index,
                "partition": partition,
                "offset": int(offsets[start]),
                "n": stop - start,
            }
            if self._step > 1:
                run["step"] = self._step
            if topic != self.topics[0]:
                run["topic"] = topic
            self._collector.send_record(self._topic, None, json.dumps(run).encode())

    def next_tuple(self) -> None:
        """Let the watermark catch up with the newest message when no message has come for a while (time windows)."""
        settings, clock_ms = self._settings, self._context.clock_ms()
        if settings.window_kind != "time" or self._newest_ahead <= self._watermark:
            return
        # By the brokers' clock, which stamps arrivals: this machine's clock may differ. Others of the same millisecond may follow.
        over_ms = self._context.broker_ms() - max(1, settings.idle_ms)
        end = max(self._newest, min(self._newest_ahead, over_ms - settings.lateness_ms))
        pause = over_ms >= self._newest_arrival and end > self._watermark
        if clock_ms < self._ask_at_ms or (self._partitions_known and not pause and not self._is_held(clock_ms)):
            return
        waiting = self._context.waiting_partitions()
        for key, waits in waiting.items():
            # What comes there from now on arrives later than all that was read before the brokers were asked.
            self._note_read(key, _NO_TIME if waits else self._newest_arrival)
        self._partitions_known = self._partitions_known or bool(waiting)
        read_all = bool(waiting) and not any(waiting.values())
        if not read_all:
            self._ask_at_ms = clock_ms + settings.idle_ms
        if pause and read_all:
            self._advance(end)
        else:
            self._follow()

    def _is_held(self, clock_ms: int) -> bool:
        """Tell whether a partition from which nothing has come for a while holds the watermark."""
        return any(arrival_ms < self._newest and clock_ms - self._moved_ms[key] >= self._settings.idle_ms for key, arrival_ms in self._read.items())

    def snapshot(self) -> Any:
        """Return the next number and the times that the watermark depends on."""
        read = [[*key, arrival_ms, self._moved_ms[key]] for key, arrival_ms in self._read.items()]
        return [self._numbered, self._newest, self._newest_ahead, self._newest_arrival, self._watermark, read]

    def restore(self, state: Any) -> None:
        """Continue numbering from a snapshot; those of earlier versions have a time in place of the partitions."""
        self._numbered, self._newest, self._newest_ahead, self._newest_arrival, self._watermark, read = state
        for topic, partition, arrival_ms, moved_ms in read if isinstance(read, list) else ():
            self._read[topic, partition], self._moved_ms[topic, partition] = arrival_ms, moved_ms


def _places(messages: Sequence[Message]) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns ``lat`` and ``lon`` of messages, some of which may be areas."""
    lat, lon = np.array([m.lat for m in messages], np.float64), np.array([m.lon for m in messages], np.float64)
    return areas_to_columns(lat, lon, areas_of(messages))


class SubscriptionSpout(KafkaSpout):
    """Reads registrations and emits them on stream ``subscriptions``: id, registration, and the record (None unregisters).

    The registration ``<partition>-<offset>`` names the record in its topic, so that results say which version of a subscription they belong to.

    Plans of the distributor (``{"v": 1, "version": int, "plan": {...}}``, see :func:`~dskype.spouts.topics.topic_config`) are emitted on
    stream ``plans``. The distribution bolt decides whether it can use them.

    :param topics: the topic of subscriptions, e.g. ``dskype.subscriptions``.
    :param kafka_options: see :class:`KafkaSpout`.
    :param plans: the topic of plans, e.g. ``dskype.plans``; None: the plan never changes.
    :param searches: the topic of searches, e.g. ``dskype.searches``; None: the window cannot be searched.
    """

    def __init__(
        self, topics: str | Sequence[str], kafka_options: Mapping[str, Any] | None = None, plans: str | None = None, searches: str | None = None
    ) -> None:
        names = [topics] if isinstance(topics, str) else list(topics)
        super().__init__(
            [*names, *(name for name in (plans, searches) if name)],
            kafka_options=kafka_options,
            first_poll_strategy="EARLIEST",
            outputs={stream.name: stream.fields for stream in (streams.Subscriptions, streams.Plans, streams.Searches)},
        )
        self._plans, self._searches = plans, searches

    def check_topology(self, component_id: str, conf: Mapping[str, Any], topology: Any) -> None:
        """Check the settings, and that searches are taken."""
        super().check_topology(component_id, conf, topology)
        Settings.from_conf(conf)
        if self._searches and not any((component_id, streams.Searches.name) in spec.inputs for spec in topology.components.values()):
            legal = "searches: SHUFFLE, to the distribution bolt; lookups: ALL, from there to the message bolt"
            raise InvalidTopologyException(
                explain("The spout reads searches, and nothing takes them.", given=self._searches, legal=legal, component=component_id)
            )

    def files(self, conf: Mapping[str, Any]) -> dict[tuple[str, ...], str]:
        """Return the files of synonyms, and the vocabulary if the costs of subscriptions are limited."""
        settings = Settings.from_conf(conf)
        limited = settings.vocabulary and settings.cost_ceiling is not None
        return synonym_files(conf) | ({("dskype.vocabulary",): settings.vocabulary} if limited else {})

    def external_topics(self, topology: str, conf: Mapping[str, Any]) -> dict[str, dict[str, str]]:
        """Return the topics of subscriptions and plans."""
        config = topic_config(Settings.from_conf(conf))
        own = {self._plans: "plans", self._searches: "searches"}
        return {name: config[own.get(name, "subscriptions")] for name in self.topics}

    def open(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Read the settings, and the vocabulary if costs are limited."""
        self._settings = Settings.from_conf(conf)
        self._tokenizer = self._settings.analyzer()
        self._ceiling = CostCeiling(self._settings, Vocabulary.load)
        self._collector = collector
        if self._searches:
            self._begin_searches(context)

    def emit_records(self, records: Sequence[Any]) -> list[tuple[Any, DeadLetter]]:
        """Parse and emit; see :meth:`KafkaSpout.emit_records`."""
        if records and records[0].topic == self._plans:
            return self._emit_plans(records)
        if records and records[0].topic == self._searches:
            return self._emit_searches(records)
        settings, rows, refused = self._settings, [], []
        reading = settings.reading
        for record in records:
            registration = f"{record.partition}-{record.offset}"
            try:
                if record.value is None:
                    rows.append(streams.Subscriptions(subscription=parse_key(record.key, settings.limits), registration=registration, record=None))
                    continue
                parsed = parse_subscription(record.key, record.value, tokenizer=self._tokenizer, **reading)
                if (warning := self._ceiling.check(parsed)) is not None:
                    self._collector.report_error(warning)
            except RecordError as error:
                refused.append((record, error))
                continue
            entry = parsed.to_record()
            if entry.get("ttl_s") is not None:
                entry["expires_ms"] = record.timestamp_ms + round(entry["ttl_s"] * 1000)
            if settings.tenants:
                tenant = tenant_in(settings.tenants, parsed.tenant)
                quota = settings.tenants[tenant]
                entry["quota"] = [tenant, quota.max_subscriptions, quota.max_registrations_per_s, record.timestamp_ms]
            rows.append(streams.Subscriptions(subscription=parsed.id, registration=registration, record=entry))
        for row in rows:
            row.emit(self._collector)
        return refused

    def _emit_plans(self, records: Sequence[Any]) -> list[tuple[Any, DeadLetter]]:
        refused: list[tuple[Any, DeadLetter]] = []
        rows = []
        for record in records:
            try:
                version, plan = parse_plan(record.value)
                rows.append(streams.Plans(version=version, plan=plan))
            except RecordError as error:
                refused.append((record, error))
        for row in rows:
            row.emit(self._collector)
        return refused

    def _begin_searches(self, context: Any) -> None:
        self._context, self._answers = context, Topics.for_topology(context.plan.name).answers
        self._counts = {name: context.register_counter(name) for name in ("searches", "refused_searches", "expired_searches")}
        tasks, most = len(context.get_component_tasks(context.get_this_component_id())), self._settings.searches_per_s
        self._most = None if most is None else max(1, most // tasks)  # an equal share of what the topology may take
        self._second, self._taken = -1, 0  # of the brokers' clock, and how many searches were taken in it

    def _emit_searches(self, records: Sequence[Any]) -> list[tuple[Any, DeadLetter]]:
        """Emit searches that somebody still waits for, and answer those that are refused."""
        settings, rows, refused = self._settings, [], []
        for record in records:
            now_ms = self._context.broker_ms()
            try:
                search = parse_search(record.key, record.value, settings, self._tokenizer)
            except RecordError as error:
                refused.append((record, error))
                self._refuse_search(record.key, str(error), error.code)
                continue
            if record.timestamp_ms + search.timeout_ms <= now_ms:
                self._counts["expired_searches"].inc()
                continue
            self._second, before = now_ms // 1000, self._second
            self._taken = 1 if self._second != before else self._taken + 1
            if self._most is not None and self._taken > self._most:
                legal, hint = f"{settings.searches_per_s} in a second (dskype.search.per.second)", "try again in a second"
                self._refuse_search(record.key, explain("There are too many searches.", given="one more", legal=legal, hint=hint), "too-many")
                continue
            rows.append(streams.Searches(search=search.subscription.id, record={**search.subscription.to_record(), "k": search.k}))
        for row in rows:
            row.emit(self._collector)
        self._counts["searches"].inc(len(rows))
        return refused

    def _refuse_search(self, key: bytes | None, error: str, code: str) -> None:
        self._counts["refused_searches"].inc()
        value = {"v": 1, "search": (key or b"").decode(errors="replace"), "error": error, "code": code}
        self._collector.send_record(self._answers, key, json.dumps(value).encode())

    def snapshot(self) -> Any:
        """Return None: this spout keeps no state."""
        return None

    def restore(self, state: Any) -> None:
        """Do nothing."""
