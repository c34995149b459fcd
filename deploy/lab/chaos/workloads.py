"""The workloads: they feed input at a rate, follow the output, and check it."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import json
import logging
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kafka import TopicPartition
from kafka.errors import KafkaError

from dskype.bolts.results import make_store
from dskype.bolts.results.base import Opening
from dskype.deploy.demo import places
from dskype.deploy.lab.chaos.components import expected_sums, paced_key
from dskype.deploy.lab.chaos.store import HangingStore, server_program
from dskype.deploy.lab.chaos.system import System
from dskype.deploy.machine.registry import TOPOLOGIES
from dskype.deploy.verification import Inputs, Record, Report, verify
from dskype.deploy.verification.report import WRITTEN_AGAIN
from dskype.deploy.verification.topics import at_rest
from dskype.deploy.verification.writes import Dump, check_writes, delta_place
from dskype.spouts.settings import Settings
from dskype.spouts.text import Tokenizer
from dskype.spouts.topics import TOPIC_CONFIG, Topics
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.planning.plan import dead_letters_topic
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.reading import read_to_end
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin

__all__ = ["WORKLOADS", "Check", "Dskype", "FaultWorkload", "SumChain"]

log = logging.getLogger(__name__)

_LAG_S = 2.0
_FEED_STEP_S = 0.05
_RATE_SPAN_S = 2.0


class Check(NamedTuple):
    """The result of a check.

    :ivar records: how many different records were checked.
    :ivar repeated: records that were written again, equal to the first.
    :ivar problems: what is wrong, in words; empty: nothing.
    """

    records: int
    repeated: int
    problems: list[str]


class FaultWorkload(ABC):
    """A topology with its input and the check of its output.

    :param rate: input records per second.
    :param planned_s: about how long it will run, in seconds.
    :param seed: of everything random.
    """

    name: str
    modules: tuple[str, ...] = ()
    store: HangingStore | None = None
    """A result store that can hang; None: there is none."""
    followed = False
    """Whether the clients of :mod:`dskype.deploy.lab.chaos.clients` follow it."""

    def __init__(self, rate: float, planned_s: float, seed: int) -> None:
        self.rate, self._rng = rate, random.Random(seed)
        self.fed = 0
        self.others: Callable[[], int] = lambda: 0
        """Returns how many messages clients have published beside the input."""
        self._now_rate = rate
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._kafka: KafkaSettings | None = None
        self._fed_at: deque[tuple[float, int]] = deque()
        self._seen: deque[tuple[float, int]] = deque()
        self._best = 0.0
        self._outputs: list[float] = []

    # -- the topology -----------------------------------------------------------------------------

    @abstractmethod
    def flux(self, folder: Path) -> dict[str, Any]:
        """Return the topology as a Flux document; files that it needs may be written to ``folder``."""

    @abstractmethod
    def topics(self) -> dict[str, tuple[int, dict[str, str]]]:
        """Return the external topics to create: name -> (partitions, configuration)."""

    @contextlib.contextmanager
    def opened(self, folder: Path) -> Iterator[None]:
        """Run servers that the topology needs besides brokers; default: none."""
        yield

    # -- input ------------------------------------------------------------------------------------

    @abstractmethod
    def records(self, n: int) -> list[tuple[str, int | None, bytes | None, bytes]]:
        """Return the next ``n`` records of the input: topic, partition, key, value."""

    def begin(self, system: System) -> None:
        """Create the topics, and start to feed input and to follow the output."""
        self._kafka = system.kafka
        with contextlib.closing(TopicAdmin(system.kafka)) as admin:
            for topic, (partitions, config) in self.topics().items():
                admin.create({topic: partitions}, config)
        for run in (self._feed, self._look):
            thread = threading.Thread(target=run, name=f"chaos{run.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def feed_at(self, rate: float | None) -> None:
        """Set the input rate, records per second; None: the usual rate."""
        self._now_rate = self.rate if rate is None else rate

    def stop_feeding(self) -> None:
        """Stop the input."""
        self._now_rate = 0

    def close(self) -> None:
        """Stop all threads."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=15)

    def _feed(self) -> None:
        producer = self._kafka.producer(delivery_timeout_s=600, linger_ms=5)
        last, due = time.monotonic(), 0.0
        try:
            while not self._stop.wait(_FEED_STEP_S):
                now = time.monotonic()
                due, last = due + self._now_rate * (now - last), now
                n, due = int(due), due - int(due)
                if not n:
                    continue
                futures = [producer.send(topic, value, key=key, partition=partition) for topic, partition, key, value in self.records(n)]
                for future in futures:  # count only records that are in the log
                    future.get()
                self.fed += n
                self._fed_at.append((time.monotonic(), self.fed))
                last = max(last, time.monotonic() - 1)  # do not catch up after an outage of the broker
        except Exception:
            if not self._stop.is_set():
                log.exception("the feeder of the fault suite failed")
        finally:
            producer.close(timeout=5)

    # -- output -----------------------------------------------------------------------------------

    @abstractmethod
    def out_topic(self) -> str:
        """Return the topic that shows progress."""

    @abstractmethod
    def progress(self, record: Any) -> int:
        """Add an output record; return how many input records have been processed so far."""

    def _look(self) -> None:
        done, consumer = 0, None
        position = 0
        while not self._stop.is_set():
            try:
                if consumer is None:
                    consumer = self._kafka.consumer(fetch_max_wait_ms=50)
                    where = TopicPartition(self.out_topic(), 0)
                    consumer.assign([where])
                    consumer.seek(where, position)
                for batch in consumer.poll(timeout_ms=100).values():
                    now = time.monotonic()
                    before = done
                    for record in batch:
                        position = record.offset + 1
                        done = max(done, self.progress(record))
                    if done > before:
                        self._outputs.append(now)
                        self._seen.append((now, done))
                        while len(self._seen) > 2 and now - self._seen[1][0] > _RATE_SPAN_S:
                            self._seen.popleft()
                        if now - self._seen[0][0] > _RATE_SPAN_S / 2:
                            self._best = max(self._best, (done - self._seen[0][1]) / (now - self._seen[0][0]))
            except KafkaError as error:
                log.info("the output cannot be read: %s; trying again", error)
                if consumer is not None:
                    consumer.close()
                consumer = None
                self._stop.wait(0.5)
        if consumer is not None:
            consumer.close()

    @property
    def done(self) -> int:
        """How many input records have been processed."""
        return self._seen[-1][1] if self._seen else 0

    @property
    def newest(self) -> float:
        """When the newest output was seen, by the monotonic clock."""
        return self._outputs[-1] if self._outputs else 0.0

    def longest_silence(self, since: float) -> float:
        """Return the longest time without output from ``since`` (monotonic clock) until now, in seconds."""
        times = [since, *self._outputs[bisect.bisect(self._outputs, since) :], time.monotonic()]
        return max(b - a for a, b in itertools.pairwise(times))

    def capacity(self) -> float:
        """Return the highest output rate so far, records per second, but at least twice the usual input rate."""
        return max(self._best, 2 * self.rate)

    def caught_up(self) -> bool:
        """Tell whether the output is at most two seconds behind the input."""
        until = time.monotonic() - _LAG_S
        while len(self._fed_at) > 1 and self._fed_at[1][0] <= until:
            self._fed_at.popleft()
        return not self._fed_at or self._fed_at[0][0] > until or self.done >= self._fed_at[0][1] + self.others()

    # -- checks -----------------------------------------------------------------------------------

    @abstractmethod
    def complete(self) -> bool:
        """Tell whether all input has been processed; call :meth:`stop_feeding` first."""

    @abstractmethod
    def check(self, *, final: bool) -> Check:
        """Compare the output with the expected one.

        :param final: all input has been processed.
        """


def _plain(records: list[Any]) -> list[Record]:
    return [Record(r.partition, r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in records]


def _problems(report: Report) -> list[str]:
    found = [d.as_text() for d in report.differences[:5]]
    return [*found, *([f"{sum(report.counts.values())} differences in all"] if found else [])]


# -- running sums ---------------------------------------------------------------------------------


class SumChain(FaultWorkload):
    """Two spouts (one generates numbers, one reads them from Kafka), two bolts of running sums in a row, and a KafkaBolt."""

    name = "chain"
    modules = ("dskype.deploy.lab.chaos.components",)
    PARTITIONS, KEYS = 2, 17
    PACED_RATE = 20

    def __init__(self, rate: float, planned_s: float, seed: int) -> None:
        super().__init__(rate, planned_s, seed)
        self._number = itertools.count()
        self._paced = max(1, int(self.PACED_RATE * planned_s * 0.3))
        self._ids: set[bytes] = set()

    def flux(self, folder: Path) -> dict[str, Any]:
        """Return the chain."""
        mine = "dskype.deploy.lab.chaos.components."

        def grouped(source: str, target: str) -> dict[str, Any]:
            return {"from": source, "to": target, "grouping": {"type": "FIELDS", "args": ["key"]}}

        return {
            "name": self.name,
            "config": {"topology.acker.executors": 0, "topology.emulator.snapshot.interval.ms": 2000},
            "spouts": [
                {"id": "paced", "className": f"{mine}PacedNumbers", "constructorArgs": [self._paced, self.PACED_RATE], "parallelism": 1},
                {"id": "fed", "className": f"{mine}FedNumbers", "constructorArgs": [f"{self.name}-in"], "parallelism": 2},
            ],
            "bolts": [
                {"id": "first", "className": f"{mine}RunningSum", "parallelism": 2},
                {"id": "second", "className": f"{mine}RunningSum", "parallelism": 2},
                {"id": "sink", "className": f"{mine}SumWriter", "constructorArgs": [f"{self.name}-out"], "parallelism": 1},
            ],
            "streams": [grouped("paced", "first"), grouped("fed", "first"), grouped("first", "second"), grouped("second", "sink")],
        }

    def topics(self) -> dict[str, tuple[int, dict[str, str]]]:
        """Return the input and the output."""
        return {f"{self.name}-in": (self.PARTITIONS, {}), f"{self.name}-out": (1, {})}

    def records(self, n: int) -> list[tuple[str, int | None, bytes | None, bytes]]:
        """Return numbers; a key is always in the same partition."""
        numbers = [next(self._number) for _ in range(n)]
        return [(f"{self.name}-in", i % self.KEYS % self.PARTITIONS, f"fed-{i % self.KEYS}".encode(), str(i).encode()) for i in numbers]

    def out_topic(self) -> str:
        """Return the sink's topic."""
        return f"{self.name}-out"

    def progress(self, record: Any) -> int:
        """Count the records of fed keys, each once."""
        if record.key.startswith(b"fed"):
            self._ids.add(record.headers[0][1])
        return len(self._ids)

    def complete(self) -> bool:
        """Compare the numbers of records, including those of the spout that generates numbers."""
        if self.done < self.fed:
            return False
        ids = {r.headers[0][1] for r in read_to_end(self._kafka, self.out_topic())}
        return len(ids) >= self._paced + len(read_to_end(self._kafka, f"{self.name}-in"))

    def check(self, *, final: bool) -> Check:
        """Compare the sums of every key in order, and look for lost and repeated records."""
        out = _plain(read_to_end(self._kafka, self.out_topic()))
        numbers: dict[str, list[int]] = {}
        for record in read_to_end(self._kafka, f"{self.name}-in"):
            numbers.setdefault(record.key.decode(), []).append(int(record.value))
        for number in range(self._paced):
            numbers.setdefault(paced_key(number), []).append(number)
        report = check_writes([Dump(self.out_topic(), out, version=lambda r: (r.key, int(r.value)))], Report(), final=final)
        found: dict[str, list[int]] = {}
        once = {r.headers[0][1]: r for r in out}
        for record in once.values():
            found.setdefault(record.key.decode(), []).append(int(record.value))
        problems = _problems(report)
        for key in sorted({*numbers, *found}):
            expected, given = list(expected_sums(numbers.get(key, []))), sorted(found.get(key, []))
            if given != expected[: len(given)]:
                at = next((i for i, (e, g) in enumerate(zip(expected, given)) if e != g), min(len(expected), len(given)))
                problems.append(f"key {key}: output {at} is {given[at]}, expected {expected[at] if at < len(expected) else 'none'}")
            elif final and len(given) < len(expected):
                problems.append(f"key {key}: {len(expected) - len(given)} of {len(expected)} sums are missing at the end")
        if letters := read_to_end(self._kafka, dead_letters_topic(self.name)):
            problems.append(f"{len(letters)} dead letters, the first one: {dict(letters[0].headers).get('error', b'')!r:.200}")
        return Check(len(once), len(out) - len(once), problems)


# -- DSkype ---------------------------------------------------------------------------------------


class Dskype(FaultWorkload):
    """DSkype on the world's places, verified as by ``dskype verify``."""

    name = "dskype"
    followed = True
    WINDOW, SUBSCRIPTIONS, K = 2_000, 400, 5

    def __init__(self, rate: float, planned_s: float, seed: int) -> None:
        super().__init__(rate, planned_s, seed)
        self._topics = Topics.for_topology(self.name)
        count = int(rate * (planned_s + 2_000))  # on a slow machine, start and recovery take far longer than the planned strikes
        world = places.places(seed=seed, count=count)
        self._texts = world.texts.slice(0, 10_000).to_pylist()
        self._messages = iter(world.records())
        self._waiting = deque(places.subscriptions(world.slice(0, 10_000), self.SUBSCRIPTIONS, seed=seed, k=self.K))
        self._waiting.append(("west", json.dumps({"type": "boolean", "bbox": [-10, 35, 30, 60], "expression": 'saint OR san OR (bad AND "am")'}).encode()))
        self._often = self.SUBSCRIPTIONS / max(1.0, rate * planned_s / 3)
        self._known: list[str] = []
        self._matches = ("each", "grouped")[seed % 2]
        self._conf: dict[str, Any] = {}
        self._newest = -1

    def flux(self, folder: Path) -> dict[str, Any]:
        """Return ``dskype.yaml`` with a small window and frequent snapshots."""
        import yaml

        vocabulary = folder / "words.tsv"
        Vocabulary.build(self._texts, Tokenizer()).save(vocabulary)
        document = yaml.safe_load((TOPOLOGIES / "dskype.yaml").read_text())
        self._conf = {"dskype.window.messages": self.WINDOW, "dskype.vocabulary": str(vocabulary), "topology.emulator.snapshot.interval.ms": 3000}
        self._conf["dskype.results.matches"] = self._matches
        if self.store is not None:
            self._conf |= {"dskype.store": "redis", "dskype.store.options": {"url": self.store.url, "topic": True}}
        document["config"] |= self._conf
        return document

    @contextlib.contextmanager
    def opened(self, folder: Path) -> Iterator[None]:
        """Also keep whole lists in Redis if a server is installed."""
        if server_program() is None:
            yield
            return
        with HangingStore(folder / "redis") as self.store:
            yield

    def topics(self) -> dict[str, tuple[int, dict[str, str]]]:
        """Return DSkype's topics."""
        return {getattr(self._topics, name): (1, config) for name, config in TOPIC_CONFIG.items()}

    def records(self, n: int) -> list[tuple[str, int | None, bytes | None, bytes]]:
        """Return messages, and between them some subscriptions: new, unregistered or registered again."""
        found: list[tuple[str, int | None, bytes | None, bytes]] = []
        for _ in range(n):
            if self._waiting and (len(self._known) < self.SUBSCRIPTIONS // 4 or self._rng.random() < self._often):
                id, value = self._waiting.popleft()
                self._known.append(id)
                found.append((self._topics.subscriptions, None, id.encode(), value))
                if self._rng.random() < 0.1:
                    found.append((self._topics.subscriptions, None, self._rng.choice(self._known).encode(), None))
            found.append((self._topics.messages, None, None, next(self._messages)))
        return found

    def out_topic(self) -> str:
        """Return the topic of deltas."""
        return self._topics.results

    def progress(self, record: Any) -> int:
        """Use the watermark of a delta: nearly every message causes some."""
        if (place := delta_place(record)) is not None:
            self._newest = max(self._newest, place[1])
        return self._newest + 1

    def complete(self) -> bool:
        """Tell whether every message is numbered, and there has been no output for some seconds."""
        if time.monotonic() - self.newest < 5:
            return False
        ends = {(record.topic, record.partition): record.offset + 1 for record in read_to_end(self._kafka, self._topics.messages)}
        return at_rest(self._kafka, self.name, ends)

    def check(self, *, final: bool) -> Check:
        """Verify everything that was published."""
        for _attempt in range(5):
            report = verify(Inputs.read(self.name, lambda topic: read_to_end(self._kafka, topic)), Settings.from_conf(self._conf), final=final, writes=True)
            if report.ok:
                break
            time.sleep(2)  # a sink that failed writes its batch again
        problems = _problems(report)
        if final and self.store is not None:
            problems += self._check_store()
        if letters := read_to_end(self._kafka, self._topics.dead_letters):
            problems.append(f"{len(letters)} dead letters, the first one: {dict(letters[0].headers).get('error', b'')!r:.200}")
        return Check(report.compared["written records"], report.notes[WRITTEN_AGAIN], problems)

    def _check_store(self) -> list[str]:
        """Compare Redis with the newest list of every subscription in the topic. Lists that waited during an outage arrive within seconds."""
        newest = {r.key.decode(): r.value for r in read_to_end(self._kafka, self._topics.topk)}
        store = make_store("redis", self._conf["dskype.store.options"])
        store.open(Opening(self.name))
        try:
            for _ in range(20):
                wrong = [id for id, value in newest.items() if (found := store.get(id)) is None or found.value != value]
                if not wrong:
                    return []
                time.sleep(1)
        finally:
            store.close()
        return [f"the store differs from the topic in {len(wrong)} of {len(newest)} subscriptions, for example {wrong[0]!r}"]


WORKLOADS: dict[str, type[FaultWorkload]] = {w.name: w for w in (SumChain, Dskype)}
"""Name -> workload."""
