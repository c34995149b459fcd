"""Components and helpers of the scenario tests, like those of Storm's own integration tests."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import Any

from dskype.topology import Bolt, Fields, Spout, TopologyBuilder, is_tick
from dskype.topology.local import LocalCluster
from dskype.topology.testing import AckFailMapTracker, AckTracker, FeederSpout, FixedTupleSpout, TupleCaptureBolt


class Run:
    """A topology on a simulated cluster of its own."""

    def __init__(self, cluster: LocalCluster, name: str, handle: Any) -> None:
        self.cluster, self.name, self.handle = cluster, name, handle
        self.sim = handle.backend

    def advance(self, secs: float, increment_secs: float = 0.1) -> None:
        """Advance the time."""
        self.cluster.advance_cluster_time(secs, increment_secs)

    def components(self, component: str) -> list[Any]:
        """Return the instances of a component's tasks."""
        return self.sim.components(component)

    def total(self, component: str, counter: str, stream: str | None = None) -> int:
        """Return a counter of a component, over its tasks."""
        return self.sim.stats.total(component, counter, stream)

    def errors(self, component: str) -> list[str]:
        """Return the errors a component reported."""
        return [e["error"] for e in self.sim.stats.errors if e["component"] == component]

    def dead_letters(self) -> list[dict[str, str]]:
        """Return the headers of the dead letters."""
        return [{key: value.decode() for key, value in record.headers} for record in self.sim.dead_letters()]


@contextmanager
def running(builder: TopologyBuilder, conf: Mapping[str, Any] | None = None, *, secs: float = 0, active: bool = True, **options: Any):
    """Submit a topology to a new simulated cluster, let ``secs`` pass, and yield the run."""
    conf = {"topology.emulator.pulse.idle.interval.ms": 100, **(conf or {})}
    with LocalCluster(simulated=True, **options) as cluster:
        run = Run(cluster, "t", cluster.submit_topology("t", conf, builder.create_topology(), active=active))
        if secs:
            run.advance(secs)
        yield run


def fed(*fields: str) -> tuple[FeederSpout, AckFailMapTracker]:
    """Return a spout to feed, and a tracker of which of its trees are complete or failed."""
    spout, tracker = FeederSpout(Fields(*fields)), AckFailMapTracker()
    spout.set_ack_fail_delegate(tracker)
    return spout, tracker


class AckTrackingFeeder:
    """A spout to feed, with the number of acks since the last query."""

    def __init__(self, *fields: str) -> None:
        self.spout, self._tracker = FeederSpout(Fields(*fields)), AckTracker()
        self.spout.set_ack_fail_delegate(self._tracker)

    def feed(self, *values: Any) -> None:
        self.spout.feed(list(values))

    def new_acks(self) -> int:
        count = self._tracker.get_num_acks()
        self._tracker.reset_num_acks()
        return count


def words(*values: str, field: str = "word") -> FixedTupleSpout:
    """Return a spout that emits the words once, tracked."""
    return FixedTupleSpout([[value] for value in values], Fields(field))


def captured(capture: TupleCaptureBolt, component: str) -> list[list[Any]]:
    """Return the values that a component has emitted."""
    return [t.values for t in capture.get_results().get(component, [])]


class Keep(Bolt):
    """Keeps its inputs in ``seen`` and acks them."""

    def prepare(self, conf, context, collector):
        self.conf, self.context, self.collector, self.seen = conf, context, collector, []

    def execute(self, tup):
        self.seen.append(tuple(tup.values))
        self.collector.ack(tup)


class Remember(Keep):
    """Keeps its inputs through crashes."""

    def snapshot(self):
        return self.seen

    def restore(self, state):
        self.seen = [tuple(v) for v in state]


class BranchingBolt(Bolt):
    """Emits 0..n-1 for each input, anchored."""

    def __init__(self, branches: int) -> None:
        self.branches = branches

    def prepare(self, conf, context, collector):
        self.collector = collector

    def execute(self, tup):
        for i in range(self.branches):
            self.collector.emit((i,), anchors=tup)
        self.collector.ack(tup)

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("num"))


class AggBolt(Bolt):
    """Waits for ``amount`` inputs, emits one tuple anchored to all of them, and acks them."""

    def __init__(self, amount: int) -> None:
        self.amount = amount

    def prepare(self, conf, context, collector):
        self.collector, self.waiting = collector, []

    def execute(self, tup):
        self.waiting.append(tup)
        if len(self.waiting) == self.amount:
            self.collector.emit((1,), anchors=self.waiting)
            for held in self.waiting:
                self.collector.ack(held)
            self.waiting = []

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("num"))


class AckBolt(Bolt):
    """Acks its inputs."""

    def prepare(self, conf, context, collector):
        self.collector = collector

    def execute(self, tup):
        self.collector.ack(tup)


class Script(Bolt):
    """Calls ``script(tup, collector, count)`` for each input, with a count from 1; ticks are ignored.

    :param streams: stream -> fields that it declares; direct streams by ``direct``.
    """

    def __init__(self, script, streams: Mapping[str, Fields] | None = None, direct: tuple[str, ...] = ()) -> None:
        self.script, self.streams, self.direct = script, dict(streams or {}), direct

    def prepare(self, conf, context, collector):
        self.collector, self.context, self.count, self.returned = collector, context, 0, []

    def execute(self, tup):
        if not is_tick(tup):
            self.count += 1
            self.returned.append(self.script(tup, self.collector, self.count))

    def declare_output_fields(self, declarer):
        for stream, fields in self.streams.items():
            declarer.declare_stream(stream, fields, stream in self.direct)


class Life(Spout):
    """Logs its lifecycle; emits ``limit`` numbers, tracked."""

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit

    def open(self, conf, context, collector):
        self.calls, self.collector, self.emitted, self.done = ["open"], collector, 0, []

    def activate(self):
        self.calls.append("activate")

    def deactivate(self):
        self.calls.append("deactivate")

    def next_tuple(self):
        if self.calls[-1] != "next_tuple":
            self.calls.append("next_tuple")
        if self.emitted < self.limit:
            self.collector.emit((self.emitted,), message_id=self.emitted)
            self.emitted += 1

    def ack(self, msg_id):
        self.done.append(("ack", msg_id))

    def fail(self, msg_id):
        self.done.append(("fail", msg_id))

    def close(self):
        self.calls.append("close")

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("number"))


class Loose(Life):
    """Emits tuples without message ids."""

    def next_tuple(self):
        if self.emitted < self.limit:
            self.collector.emit((self.emitted,))
            self.emitted += 1
