"""Tornado on Spark and Kafka: partitions move under a hotspot that moves, and processes are killed in the middle of these moves.

What is in the middle of a move is read from the inboxes of the subscription tasks: a change of the plan has begun when subscriptions come from
another task, and has ended when all distribution tasks have said that theirs have moved.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from kafka import TopicPartition

from dskype.deploy.cli.main import main
from dskype.deploy.demo import places
from dskype.deploy.lab.boolean.records import boolean_records
from dskype.spouts import streams
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.core.frames import DataFrame, decode_frame
from dskype.topology.planning.plan import inbox_topic
from dskype.topology.tuples import column_to_list
from tests.topology.runtime.helpers import alive
from tests.waiting import wait_for

from .harness import topology

pytestmark = pytest.mark.product(seconds=90)

EVALUATORS, ROUTING_UNITS = "subscription-bolt", "distribution-bolt"
TASKS = {EVALUATORS: 3, ROUTING_UNITS: 2}
BOOLEAN, TOPK, RATE = 2_500, 50, 200
HOTSPOTS = {"Europe": (-12.0, 36.0, 40.0, 60.0), "Asia": (68.0, 5.0, 125.0, 45.0), "America": (-125.0, 25.0, -65.0, 55.0)}
ATTEMPTS = 4
"""A move may end before the signal comes; then another one is interrupted."""


class Crowd(threading.Thread):
    """Publishes messages at a steady rate, four of five from the hotspot. They repeat only on a slow machine."""

    def __init__(self, feed: Any, messages: places.Places) -> None:
        super().__init__(daemon=True)
        self._feed, self._over = feed, threading.Event()
        records = messages.records()
        inside = {name: _inside(messages, box) for name, box in HOTSPOTS.items()}
        elsewhere = set(range(len(records))).difference(*inside.values())
        self._elsewhere = itertools.cycle([records[row] for row in sorted(elsewhere)])
        self._pools = {name: itertools.cycle([records[row] for row in rows]) for name, rows in inside.items()}
        self._hot = self._elsewhere
        self.published = 0

    def move_to(self, hotspot: str) -> None:
        """Move the hotspot."""
        self._hot = self._pools[hotspot]

    def run(self) -> None:
        """Publish until the end."""
        while not self._over.wait(0.1):
            for number in range(RATE // 10):
                self._feed.producer.send(self._feed.topics.messages, value=next(self._hot if number % 5 else self._elsewhere))
                self.published += 1

    def end(self) -> int:
        """Stop; return how many messages were published."""
        self._over.set()
        self.join()
        self._feed.producer.flush()
        return self.published

    def __enter__(self) -> Crowd:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _inside(messages: places.Places, box: tuple[float, float, float, float]) -> list[int]:
    west, south, east, north = box
    return ((messages.lon >= west) & (messages.lon <= east) & (messages.lat >= south) & (messages.lat <= north)).nonzero()[0].tolist()


class Event(NamedTuple):
    """What an inbox record of a subscription task says about a change of the plan.

    :ivar kind: ``moved``: a subscription has come from another task; ``done``: all subscriptions of the sender have moved.
    :ivar source: id of the sending task; ``task``: index of the subscription task.
    :ivar subscription: that has moved.
    """

    version: int
    kind: str
    source: int
    task: int
    offset: int
    subscription: str = ""


class Inboxes(threading.Thread):
    """Reads the inboxes of the subscription tasks."""

    def __init__(self, kafka: Any, name: str) -> None:
        super().__init__(daemon=True)
        self._kafka, self._over = kafka, threading.Event()
        self._inboxes = [TopicPartition(inbox_topic(name, EVALUATORS), task) for task in range(TASKS[EVALUATORS])]
        self._versions = Counter[int]()  # by task: of the newest plan
        self.events: list[Event] = []

    def run(self) -> None:
        """Read until the end."""
        consumer = self._kafka.consumer()
        consumer.assign(self._inboxes)
        consumer.seek_to_beginning(*self._inboxes)
        while not self._over.is_set():
            for inbox, records in consumer.poll(timeout_ms=200).items():
                for record in records:
                    frame = decode_frame(record.value)
                    for segment in frame.segments if isinstance(frame, DataFrame) else ():
                        self._read(inbox.partition, record.offset, frame.source_task, segment)
        consumer.close()

    def _read(self, task: int, offset: int, source: int, segment: Any) -> None:
        if segment.stream == streams.Transfers.name:
            names = column_to_list(segment.columns[0])
            self.events += [Event(self._versions[task], "moved", source, task, offset, subscription) for subscription in names]
        elif segment.stream == streams.Placements.name:
            for message in column_to_list(segment.columns[2]):
                if message["type"] == "plan":
                    self._versions[task] = max(self._versions[task], message["version"])
                elif message["type"] == "done":
                    self.events.append(Event(message["version"], "done", source, task, offset))

    def ends(self) -> dict[int, int]:
        """Return the present end of each inbox."""
        consumer = self._kafka.consumer()
        try:
            return {inbox.partition: end for inbox, end in consumer.end_offsets(self._inboxes).items()}
        finally:
            consumer.close()

    def first_move(self, after: int) -> Event | None:
        """Return the first subscription that moved by a later version."""
        return next((event for event in self.events if event.kind == "moved" and event.version > after), None)

    def has_ended(self, version: int) -> bool:
        """Tell whether the subscriptions of all distribution tasks have moved."""
        return len({e.source for e in self.events if (e.version, e.kind) == (version, "done")}) == TASKS[ROUTING_UNITS]

    def __enter__(self) -> Inboxes:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


class Strike(NamedTuple):
    """A process that was killed during a change of the plan.

    :ivar before: subscriptions that had moved by then; ``after``: those that moved later.
    :ivar done: distribution tasks whose subscriptions had all moved before.
    :ivar seconds: from the kill to the end of the change.
    """

    version: int
    component: str
    before: int
    after: int
    done: int
    seconds: float

    @property
    def interrupted(self) -> bool:
        """Whether the change had begun, and went on afterwards."""
        return self.before > 0 and self.after > 0 and self.done < TASKS[ROUTING_UNITS]


class Strikes:
    """Kills processes of a topology in the middle of changes of its plan."""

    def __init__(self, handle: Any, inboxes: Inboxes) -> None:
        self._handle, self._inboxes = handle, inboxes
        self.all: list[Strike] = []

    def _pid(self, component: str, index: int) -> int:
        return self._handle.stats.tasks[self._handle.backend.plan.component_tasks(component)[index]]["pid"]

    def strike(self, after: int, component: str, choose: Callable[[Event], int]) -> Strike:
        """Kill the process of a task when the first subscription has moved by a version above ``after``; wait until that change has ended.

        :param choose: chooses the index of the task.
        """
        first = wait_for(lambda: self._inboxes.first_move(after), 120, f"a move after version {after}")
        index = choose(first)
        pid = self._pid(component, index)
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not alive({pid}), 30, f"the end of process {pid}")
        ends = self._inboxes.ends()
        wait_for(lambda: self._inboxes.has_ended(first.version), 120, f"the end of change {first.version}")
        seconds = round(time.monotonic() - killed, 1)
        wait_for(lambda: self._pid(component, index) != pid, 60, "another process")
        events = [event for event in self._inboxes.events if event.version == first.version]
        before = [event for event in events if event.offset < ends[event.task]]
        early, all_of_them = (
            {(e.task, e.subscription) for e in some if e.kind == "moved"} for some in (before, events)
        )  # a process sends again what it had sent
        found = Strike(first.version, component, len(early), len(all_of_them - early), len({e.source for e in before if e.kind == "done"}), seconds)
        print(found, flush=True)
        self.all.append(found)
        return found


def metric(handle: Any, component: str, name: str) -> set[int]:
    """Return a metric of all tasks of a component."""
    return {handle.stats.tasks[task]["metrics"][name] for task in handle.backend.plan.component_tasks(component)}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Real messages, and a vocabulary."""
    messages = places.places(seed=9, count=40_000)
    file = tmp_path_factory.mktemp("vocabulary") / "places.vocabulary"
    Vocabulary.build(messages.slice(0, 10_000).texts.to_pylist(), Tokenizer()).save(file)
    return messages, str(file)


def test_processes_are_killed_in_the_middle_of_moves_under_a_hotspot_that_moves(cluster, name, world, feed_of):
    messages, vocabulary = world
    conf = {
        "topology.acker.executors": 0,
        "dskype.vocabulary": vocabulary,
        "dskype.window.messages": 1_000,
        "dskype.distributor": "agrid",
        "dskype.distributor.options": {"granularity": 200},
        "dskype.balance": "auto",
        "dskype.balance.period.ms": 1_000,
        "dskype.balance.rest.periods": 1,
        "dskype.balance.cost.min": 200,  # more than the few messages before the first plan by hand cost
    }
    feed = feed_of(cluster.environment.kafka, name, TASKS[EVALUATORS])
    boolean = boolean_records(messages, BOOLEAN, seed=9, km=(100, 2_000), keywords=(1, 1), prefix="b")
    feed.subscribe([*boolean, *places.subscriptions(messages, TOPK, seed=9, k=10)])
    crowd = Crowd(feed, messages.slice(10, len(messages)))

    def change(*words: Any) -> None:
        arguments = ["partition", *map(str, words), "--publish", "-t", name, "--bootstrap-servers", cluster.environment.kafka.bootstrap_servers]
        assert main(arguments) == 0

    with cluster.submit_topology(name, conf, topology(TASKS, name)) as handle, Inboxes(cluster.environment.kafka, name) as inboxes:
        strikes = Strikes(handle, inboxes)
        feed.publish(messages.slice(0, 10).records())
        feed.wait_for(9)
        # By hand. While a task has two partitions, load balancing decides nothing.
        change("split", 2, 0)
        wait_for(lambda: inboxes.has_ended(1), 120, "the end of the split")
        crowd.move_to("Europe")
        with crowd:
            lines = itertools.cycle(((1, 0, 150), (0, 1, 110)))
            for version in range(2, 2 + ATTEMPTS):
                giver, taker, line = next(lines)
                change("shift", giver, taker, "--at", line)
                if strikes.strike(version - 1, EVALUATORS, lambda _, giver=giver: giver).interrupted:
                    break
            assert strikes.all[-1].interrupted, strikes.all
            version += 1
            change("merge", 2, 3)
            wait_for(lambda: inboxes.has_ended(version), 120, "the end of the merger")
            # By load, from now on.
            for hotspot, component, choose in (("Asia", ROUTING_UNITS, lambda _: 0), ("America", EVALUATORS, lambda event: event.task)):
                crowd.move_to(hotspot)
                for _ in range(ATTEMPTS):
                    struck = strikes.strike(version, component, choose)
                    version = struck.version
                    if struck.interrupted:
                        break
                assert struck.interrupted, strikes.all
            published = 10 + crowd.end()
        feed.wait_for(published - 1)
        wait_for(lambda: metric(handle, ROUTING_UNITS, "plan_changing") == {0} == metric(handle, EVALUATORS, "arriving"), 120, "the end of all moves")
        assert len(metric(handle, ROUTING_UNITS, "plan_version")) == 1 and len(strikes.all) >= 3
        plans = [json.loads(record.value)["version"] for record in feed.read(feed.topics.plans)]
        assert max(plans) == metric(handle, ROUTING_UNITS, "plan_version").pop() >= version > 3
        feed.verify(conf, matches=1_000, lists=TOPK)
        assert handle.backend.failure is None


def test_processes_are_killed_while_hybrid_partitioning_is_adjusted_and_a_plan_takes_over(cluster, name, world, feed_of, tmp_path):
    messages, vocabulary = world
    conf = {
        "topology.acker.executors": 0,
        "dskype.vocabulary": vocabulary,
        "dskype.window.messages": 1_000,
        "dskype.distributor": "hybrid",
        "dskype.distributor.options": {"granularity": 200, "sigma": 1.1},
        "dskype.balance": "auto",
        "dskype.balance.period.ms": 1_000,
        "dskype.balance.cost.min": 5,  # most messages are wanted nowhere
        "dskype.balance.tolerance": 0,
        "dskype.balance.beta": 0,
        "dskype.balance.repartition.ms": 0,
    }
    kafka = cluster.environment.kafka
    feed = feed_of(kafka, name, TASKS[EVALUATORS])
    boolean = list(boolean_records(messages, 1_500, seed=10, km=(100, 2_000), keywords=(1, 1), prefix="b"))
    feed.subscribe(boolean[:1_200])
    crowd = Crowd(feed, messages.slice(10, len(messages)))

    def change(*words: str) -> int:
        return main(["partition", *words, "-t", name, "--bootstrap-servers", kafka.bootstrap_servers])

    def index_of(event: Event) -> int:
        return handle.backend.plan.component_tasks(EVALUATORS).index(event.source)

    with cluster.submit_topology(name, conf, topology(TASKS, name)) as handle, Inboxes(kafka, name) as inboxes:
        strikes = Strikes(handle, inboxes)
        feed.publish(messages.slice(0, 10).records())
        feed.wait_for(9)
        crowd.move_to("Europe")
        with crowd:
            # By load: the evaluator that gives is killed when the first subscription has moved.
            version = strikes.strike(0, EVALUATORS, index_of).version
            # By hand: a plan in which every evaluator has what another one has takes over. Load balancing may come first with its own plan.
            file = tmp_path / "plan"

            def publish() -> bool:
                newest = max((json.loads(record.value) for record in feed.read(feed.topics.plans)), key=lambda found: found["version"])
                plan = newest["plan"]
                for zone in plan["zones"]:
                    for part in zone.get("parts", [zone]):
                        part["task"] = (part["task"] + 1) % TASKS[EVALUATORS]
                file.write_text(json.dumps(plan))
                return change("publish", str(file), "--takeover", "0") == 0

            def take_over() -> None:
                wait_for(publish, 60, "a takeover")
                wait_for(lambda: 0 not in metric(handle, ROUTING_UNITS, "placed_by_old_plan"), 120, "both plans")

            take_over()
            feed.subscribe(boolean[1_200:])
            unit = handle.backend.plan.component_tasks(ROUTING_UNITS)[0]
            pid = handle.stats.tasks[unit]["pid"]
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: handle.stats.tasks[unit]["pid"] != pid, 60, "another process")
            assert 0 not in metric(handle, ROUTING_UNITS, "placed_by_old_plan") and metric(handle, ROUTING_UNITS, "plan_changing") == {1}
            for _ in range(ATTEMPTS):
                version = max(version, *metric(handle, ROUTING_UNITS, "plan_version"))
                assert change("finish") == 0
                struck = strikes.strike(version - 1, EVALUATORS, lambda event: event.task)
                assert struck.version == version, strikes.all
                if struck.interrupted:
                    break
                wait_for(lambda: metric(handle, ROUTING_UNITS, "plan_changing") == {0}, 60, "the end of the takeover")
                take_over()
            assert struck.interrupted, strikes.all
            published = 10 + crowd.end()
        feed.wait_for(published - 1)
        wait_for(lambda: metric(handle, ROUTING_UNITS, "plan_changing") == {0} == metric(handle, EVALUATORS, "arriving"), 120, "the end of all moves")
        assert metric(handle, ROUTING_UNITS, "placed_by_old_plan") == {0} and len(metric(handle, ROUTING_UNITS, "plan_version")) == 1
        feed.verify(conf, matches=500)
        assert handle.backend.failure is None
