"""Read a topology's topics, and tell whether the topology has come to rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from kafka import TopicPartition

from dskype.deploy.client.records import json_object
from dskype.deploy.metrics.progress import Progress
from dskype.deploy.verification.inputs import INPUT_TOPICS, Inputs, header
from dskype.deploy.verification.reading import UnusableRecord
from dskype.deploy.verification.replay import handled_until, message_in
from dskype.spouts.topics import Topics
from dskype.topology.runtime.kafka.reading import read_ahead, read_to_end
from dskype.topology.runtime.nimbus.nimbus_topic import observe

if TYPE_CHECKING:
    from dskype.spouts.settings import Settings
    from dskype.topology.runtime.kafka.clients import KafkaSettings

__all__ = ["at_rest", "count_pending", "read_inputs", "wait_until_rest"]

_LOOK_S = 0.5
_REST_S = 3.0


def read_inputs(
    kafka: KafkaSettings,
    topology: str,
    progress: Callable[[str], None] = lambda _: None,
    source: str | None = None,
    message_topics: Sequence[str] | None = None,
) -> Inputs:
    """Read a topology's topics to their present end.

    :param source: the topology whose messages and subscriptions it reads; None: its own.
    :param message_topics: the topics of messages in the order of the message spout; None: that of ``source`` alone.
    :raises KafkaTimeoutError: the brokers do not answer.
    """

    def read(topic: str) -> list[Any]:
        progress(f"reading {topic}")
        return read_to_end(kafka, topic)

    return Inputs.read(topology, read, source, message_topics)


def wait_until_rest(
    kafka: KafkaSettings,
    topology: str,
    settings: Settings,
    timeout_s: float,
    progress: Callable[[str], None],
    source: str | None = None,
    message_topics: Sequence[str] | None = None,
) -> str:
    """Wait until the topics do not change, every message and every subscription has been handled, and no task of a running topology has anything to do.

    :param source: as in :func:`read_inputs`; ``message_topics`` likewise.

    Topics that stand still say little by themselves: nothing comes from a host that was lost until Spark gives it up.

    :returns: what was still to be done after ``timeout_s``; "" if nothing was.
    """
    topics = Topics.for_topology(topology, source)
    message_topics = tuple(message_topics or (topics.messages,))
    names = [*(getattr(topics, name) for name in INPUT_TOPICS[:-1]), *message_topics]
    rest_s = max(_REST_S, 2 + 2 * settings.topk_pause_max_ms / 1000)
    deadline = time.monotonic() + timeout_s
    before, since, left = None, time.monotonic(), "its topics change"
    with ExitStack() as opened:
        tasks = opened.enter_context(closing(Progress(kafka, topology))) if is_alive(kafka, topology) else None
        versions: dict[int, int] = {}
        while True:
            ends, now = _ends(kafka, names), time.monotonic()
            if ends != before:
                before, since, left = ends, now, "its topics change"
                versions = {} if tasks is None else tasks.versions()
            elif now - since >= rest_s:
                left = _left(kafka, topology, settings, {where: end for where, end in ends.items() if where[0] in message_topics}, source, message_topics)
                left = left or (tasks.left(versions) if tasks is not None and is_alive(kafka, topology) else "")
                if not left:
                    return ""
                since = now
            if now >= deadline:
                return left
            progress(f"waiting for {topology} to come to rest: {sum(ends.values()):,} records, {left}")
            time.sleep(min(_LOOK_S, max(deadline - now, 0.01)))


def is_alive(kafka: KafkaSettings, topology: str) -> bool:
    """Tell whether a topology's driver lives."""
    seen = observe(kafka).get(topology)
    return seen is not None and seen.alive


def _left(kafka: KafkaSettings, topology: str, settings: Settings, ends: dict[tuple[str, int], int], source: str | None, message_topics: Sequence[str]) -> str:
    """Say what a topology whose topics stand still has yet to do; "" if it rests."""
    if not at_rest(kafka, topology, ends, source, message_topics):
        return "messages wait"
    if pending := count_pending(kafka, topology, source):
        return "1 subscription is pending" if pending == 1 else f"{pending:,} subscriptions are pending"
    newest_ms = max(_last_time_ms(kafka, topic, settings, topology) for topic in message_topics)
    rests = time.time_ns() // 1_000_000 - settings.idle_ms - settings.lateness_ms > newest_ms
    return "" if rests else "the time of a message has not come"


def count_pending(kafka: KafkaSettings, topology: str, source: str | None = None) -> int:
    """Return how many subscriptions have been registered or removed, and the topology has not said that it has done so.

    :param source: the topology whose subscriptions it reads; None: its own.
    """
    topics = Topics.for_topology(topology, source)
    newest = {record.key: record for record in sorted(read_to_end(kafka, topics.subscriptions), key=lambda r: (r.timestamp_ms, r.partition, r.offset))}
    ended: set[str] = set()
    active: dict[Any, set[str]] = {}
    for event in read_to_end(kafka, topics.registrations):
        value = json_object(event.value) or {}
        if value.get("event") == "updated":  # ends the registration before it
            ended |= active.get(event.key, set())
        if value.get("event") in ("active", "updated"):
            active.setdefault(event.key, set()).add(value.get("registration"))
        elif value.get("event") == "removed":
            ended.add(value.get("registration"))
    letters = read_to_end(kafka, topics.dead_letters)
    refused = {f"{header(letter, 'partition')}-{header(letter, 'offset')}" for letter in letters if header(letter, "topic") == topics.subscriptions}
    now_ms, found = time.time_ns() // 1_000_000, 0
    for key, record in newest.items():
        if record.value is None:
            found += not active.get(key, set()) <= ended
        elif f"{record.partition}-{record.offset}" not in active.get(key, set()) | ended | refused:
            ttl_s = (json_object(record.value) or {}).get("ttl_s")
            found += not (isinstance(ttl_s, (int, float)) and record.timestamp_ms + ttl_s * 1000 < now_ms)
    return found


def _last_time_ms(kafka: KafkaSettings, topic: str, settings: Settings, topology: str) -> int:
    """With time windows, return the newest time of a message that is ahead of its arrival, else 0: such a message waits for its time."""
    newest = 0
    for record in read_to_end(kafka, topic) if settings.window_kind == "time" else ():
        try:
            ts = message_in(record, topic, settings, topology).ts
        except UnusableRecord:
            continue
        if ts is not None and newest < ts <= record.timestamp_ms + settings.ahead_ms:
            newest = ts
    return newest


def _ends(kafka: KafkaSettings, names: list[str]) -> dict[tuple[str, int], int]:
    with closing(kafka.consumer(allow_auto_create_topics=False)) as consumer:
        partitions = [TopicPartition(t, p) for t in names for p in sorted(consumer.partitions_for_topic(t) or ())]
        return {(tp.topic, tp.partition): end for tp, end in consumer.end_offsets(partitions).items()} if partitions else {}


def at_rest(
    kafka: KafkaSettings, topology: str, ends: dict[tuple[str, int], int], source: str | None = None, message_topics: Sequence[str] | None = None
) -> bool:
    """Tell whether every message has been numbered or refused.

    :param ends: (topic of messages, partition) -> next offset.
    :param source: as in :func:`read_inputs`; ``message_topics`` likewise.
    """
    topics = Topics.for_topology(topology)
    sequence, letters = read_to_end(kafka, topics.sequence), read_to_end(kafka, topics.dead_letters)
    inputs = Inputs(topology=topology, source=source, message_topics=message_topics, sequence=sequence, dead_letters=letters)
    inputs.newest_run()
    handled = handled_until(inputs)
    positions = {where: handled.get(inputs.partition_of(*where) or 0, -1) + 1 for where in ends}
    with closing(kafka.consumer(allow_auto_create_topics=False)) as consumer:
        return all(ahead >= min(end, ends[where]) for where, (ahead, end) in read_ahead(consumer, positions).items())
