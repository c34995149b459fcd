"""Helpers of the tests on Spark and Kafka: topics, records, processes."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from kafka import TopicPartition
from kafka.errors import RetriableError

from dskype.topology import KafkaSpout, TopologyBuilder
from dskype.topology.core.stats import TopologyStats
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.driver.committer import Committer
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.reading import read_to_end
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from dskype.topology.tuples import InRecord
from tests.waiting import wait_for


def freeze(pid: int) -> None:
    """Stop a process with SIGSTOP, and return when it stands still: on a busy machine its threads go on until the first of them is told."""
    os.kill(pid, signal.SIGSTOP)
    wait_for(
        lambda: all(stat.read_text().rpartition(")")[2].split()[0] in "TtZX" for stat in Path(f"/proc/{pid}/task").glob("*/stat")),
        30,
        f"the standstill of {pid}",
    )


# -- topics ---------------------------------------------------------------------------------------


def make_topic(kafka: KafkaSettings, topic: str, partitions: int = 1) -> str:
    """Make a topic and return its name."""
    admin = TopicAdmin(kafka)
    try:
        admin.create({topic: partitions}, {})
    finally:
        admin.close()
    return topic


def existing_topics(kafka: KafkaSettings, prefix: str) -> set[str]:
    """Return the names of the topics that begin with ``prefix``."""
    consumer = kafka.consumer()
    try:
        return {topic for topic in consumer.topics() if topic.startswith(prefix)}
    finally:
        consumer.close()


def headers(record: InRecord) -> dict[str, str]:
    """Return a record's headers as text."""
    return {key: value.decode() for key, value in record.headers}


def output(kafka: KafkaSettings, topic: str) -> dict[str, InRecord]:
    """Return the de-duplicated records of a topic by record id; repetitions must be equal."""
    found: dict[str, InRecord] = {}
    for record in read_to_end(kafka, topic):
        first = found.setdefault(headers(record)["record-id"], record)
        assert first.value == record.value, "one record id, two values"
    return found


def await_output(kafka: KafkaSettings, topic: str, n: int, limit_s: float, what: str) -> dict[str, InRecord]:
    """Return the de-duplicated records of a topic when there are ``n``; wait as :func:`~tests.waiting.wait_for` does.

    Until the topic is long enough, one client asks for its length alone: reading it over and over again would take time from what is waited for.
    """
    least = n
    with contextlib.closing(kafka.consumer()) as consumer:

        def found() -> dict[str, InRecord] | None:
            nonlocal least
            partitions = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()]
            if (length := sum(consumer.end_offsets(partitions).values())) < least:
                return None
            least = length + 1  # some are repeated
            records = output(kafka, topic)
            return records if len(records) >= n else None

        return wait_for(found, limit_s, what)


def longest_gap_s(records: dict[str, InRecord], since_ms: float, until_ms: float = inf) -> float:
    """Return the longest time without an output record that ends after ``since_ms`` and begins before ``until_ms``, in seconds."""
    times = sorted(r.timestamp_ms for r in records.values())
    return max((b - a for a, b in itertools.pairwise(times) if b > since_ms and a < until_ms), default=0) / 1000


def count_records(kafka: KafkaSettings, topic: str) -> int:
    """Return how many records a topic has had, without reading them."""
    consumer = kafka.consumer()
    try:
        return sum(consumer.end_offsets([TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()]).values())
    finally:
        consumer.close()


def driver_state(plan: TopologyPlan, kafka: Any, stats: TopologyStats, told: list[str]) -> Any:
    """Return what a committer sees of a driver with the term 1 that nobody replaces; ``told`` gets the errors that it reports."""
    reports = SimpleNamespace(add_error=lambda component, text, part: told.append(text))
    return SimpleNamespace(plan=plan, kafka=kafka, stats=stats, reports=reports, tenure=SimpleNamespace(term=1, is_over=lambda: False))


def committer(kafka: KafkaSettings, topic: str, group: str, told: list[str]) -> Committer:
    """Return a committer, started, of a topology whose only task has settled the first two records of a topic and reports that under the term 1."""
    builder = TopologyBuilder()
    builder.set_spout("in", KafkaSpout(topic, kafka_options={"group.id": group}, offset_commit_period_ms=100))
    stats = TopologyStats()
    stats.tasks[1] = {"component": "in", "term": 1, "kafka": [[topic, 0, 3, 2]]}
    made = Committer(driver_state(TopologyPlan.build(topic, f"{topic}-1-0", {}, builder.create_topology()), kafka, stats, told))
    made.start()
    return made


def committed(kafka: KafkaSettings, group: str) -> dict[str, int]:
    """Return topic -> offset that a group has committed for its partition 0, as ``kafka-consumer-groups.sh --describe`` shows it; {} if it has no coordinator yet."""
    with contextlib.closing(kafka.admin()) as admin, contextlib.suppress(RetriableError):
        return {tp.topic: found.offset for tp, found in admin.list_group_offsets(group)[group].items()}
    return {}


# -- processes ------------------------------------------------------------------------------------


class Process(NamedTuple):
    pid: int
    parent: int
    name: str
    command: str


def descendants(root: int | None = None) -> dict[int, Process]:
    """Return the running processes below ``root`` (default: this process), without zombies."""
    found: dict[int, tuple[int, str]] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", errors="replace") as file:
                stat = file.read()
        except OSError:
            continue
        rest = stat[stat.rindex(")") + 2 :].split(maxsplit=2)
        if rest[0] != "Z":
            found[int(name)] = (int(rest[1]), stat[stat.index("(") + 1 : stat.rindex(")")])
            children[int(rest[1])].append(int(name))
    below: dict[int, Process] = {}
    left = children[root or os.getpid()]
    while left:
        pid = left.pop()
        left += children[pid]
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            below[pid] = Process(pid, *found[pid], file.read().replace(b"\0", b" ").decode(errors="replace"))
    return below


def daemons(root: int | None = None) -> list[Process]:
    """Return the Python daemons of Spark."""
    below = descendants(root)
    # Workers have the same command line; the daemon's parent is the JVM.
    virtual_machines = {p.pid for p in below.values() if p.name == "java"}
    return [p for p in below.values() if "dskype.topology.runtime.processes.daemon" in p.command and p.parent in virtual_machines]


def supervisors(root: int | None = None) -> list[Process]:
    """Return the supervisors."""
    return [p for p in descendants(root).values() if p.name == "dskype-superv"]


def executors(component: str | None = None, root: int | None = None) -> list[Process]:
    """Return the resident executors of one component or of all, without the forks that write snapshots."""
    zygotes = {p.pid for p in supervisors(root)}
    return [p for p in descendants(root).values() if p.parent in zygotes and p.name.startswith("dsk:") and component in (None, p.name.removeprefix("dsk:"))]


def kill(find: Callable[[], Sequence[Process]], what: str = "a process to kill") -> None:
    """Kill the processes that ``find`` returns; if there is none now, as one has just ended and its successor is still to come, wait for it."""

    def struck() -> int:
        found = 0
        for process in find():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
                found += 1
        return found

    wait_for(struck, 120, what)


def stand_still(find: Callable[[], Sequence[Process]], seconds: float) -> None:
    """Stop the processes that ``find`` returns with SIGSTOP, and let them continue after some seconds."""
    stopped = wait_for(find, 120, "a process to stop")
    for sign, wait_s in ((signal.SIGSTOP, seconds), (signal.SIGCONT, 0)):
        for process in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, sign)
        time.sleep(wait_s)


def alive(pids: set[int]) -> set[int]:
    """Return those of the processes that still run, without zombies."""
    found = set()
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        if stat[stat.rindex(")") + 2] != "Z":
            found.add(pid)
    return found
