"""Event loggers get the sample of tuples that was asked for; metrics consumers get the metrics of all tasks."""

import logging

import pytest

from dskype.topology import BasicBolt, Config, IllegalArgumentException, InvalidTopologyException, Spout, TopologyBuilder
from dskype.topology.core.shared_log import SharedLog
from dskype.topology.events import EventInfo, EventLogger
from dskype.topology.metrics_consumers import MetricsConsumer
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.faults import Faults
from dskype.topology.simulated.faulty import simulate
from dskype.topology.simulated.log import MemoryLog

from .storm_helpers import Keep, fed, running

SEEN = SharedLog()


class Records(EventLogger):
    """Writes events down."""

    def prepare(self, conf, arguments, context):
        self.label = arguments.get("label")

    def log(self, event):
        SEEN.append((self.label, event.component, list(event.values), event.message_id))

    def close(self):
        SEEN.append((self.label, "closed", [], None))


class Doubles(BasicBolt):
    """Emits twice the number, and measures."""

    def prepare(self, conf, context):
        self.counter = context.register_counter("doubled")
        context.register_metric("since", Since())

    def execute(self, tup, collector):
        self.counter.inc()
        collector.emit((2 * tup["number"],))

    def declare_output_fields(self, declarer):
        declarer.declare("number")


class Since:
    """Counts how often it was read."""

    def __init__(self):
        self.times = 0

    def get_value_and_reset(self):
        self.times += 1
        return self.times


@pytest.fixture(autouse=True)
def seen():
    """Return what a test has written down so far."""
    start = SEEN.end()
    return lambda: [value for _, value in SEEN.read(start)]


def chain(feeder):
    builder = TopologyBuilder()
    builder.set_spout("in", feeder)
    builder.set_bolt("twice", Doubles()).shuffle_grouping("in")
    builder.set_bolt("keep", Keep(), 2).shuffle_grouping("twice")
    return builder


LOGGED = {Config.TOPOLOGY_EVENTLOGGER_EXECUTORS: 1, Config.TOPOLOGY_EVENT_LOGGER_REGISTER: [{"class": f"{__name__}.Records", "arguments": {"label": "a"}}]}


def test_events_are_logged_while_debugging_is_on(seen):
    feeder, tracker = fed("number")
    with running(chain(feeder), LOGGED, secs=1) as run:
        feeder.feed([1], "one")
        run.advance(1)
        assert seen() == []
        run.cluster.debug("t", 100)
        feeder.feed([2], "two")
        run.advance(1)
        events = seen()
        assert [e[:3] for e in events] == [("a", "in", [2]), ("a", "twice", [4])]
        assert events[0][3] == "two" and len(events[1][3]) == 1  # the root of its tree
        run.cluster.debug("t", 0, "in")
        feeder.feed([3], "three")
        run.advance(1)
        assert [e[1:3] for e in seen()[2:]] == [("twice", [6])]
        assert run.cluster.manager.get("t").state.debug == {"": 100.0, "in": 0.0}
        assert all(tracker.is_acked(i) for i in ("one", "two", "three"))
    assert seen()[-1][1] == "closed"


def test_what_is_switched_on_before_the_first_activation_holds_from_then_on(seen):
    feeder, _ = fed("number")
    with running(chain(feeder), LOGGED, active=False) as run:
        run.cluster.debug("t", 100, "twice")
        run.cluster.activate("t")
        feeder.feed([1])
        run.advance(1)
        assert [e[1:3] for e in seen()] == [("twice", [2])]


def test_a_percentage_of_tuples_is_logged(seen):
    feeder, _ = fed("number")
    with running(chain(feeder), LOGGED, secs=1) as run:
        run.cluster.debug("t", 10, "in")
        for number in range(2000):
            feeder.feed([number], None)
        run.advance(3)
        assert run.total("in", "emitted", "default") == 2000
        assert 140 < len(seen()) < 260


def test_as_many_event_loggers_as_workers_are_event_loggers_too(seen):
    feeder, _ = fed("number")
    with running(chain(feeder), {**LOGGED, Config.TOPOLOGY_EVENTLOGGER_EXECUTORS: None}, secs=1) as run:
        run.cluster.debug("t", 100, "in")
        feeder.feed([1])
        run.advance(1)
        assert [e[1:3] for e in seen()] == [("in", [1])]


def test_without_event_loggers_debugging_is_refused():
    feeder, _ = fed("number")
    with running(chain(feeder)) as run, pytest.raises(IllegalArgumentException, match="has no event loggers"):
        run.cluster.debug("t", 10)
    with running(chain(fed("number")[0]), LOGGED) as run:
        with pytest.raises(InvalidTopologyException, match="nobody is not a component"):
            run.cluster.debug("t", 10, "nobody")
        with pytest.raises(IllegalArgumentException, match="between 0 and 100"):
            run.cluster.debug("t", 101)


def test_the_default_event_logger_writes_lines_in_the_log(caplog):
    feeder, _ = fed("number")
    with caplog.at_level(logging.INFO, "dskype.events"), running(chain(feeder), {Config.TOPOLOGY_EVENTLOGGER_EXECUTORS: 2}, secs=1) as run:
        run.cluster.debug("t", 100, "in")
        feeder.feed([1], "one")
        run.advance(1)
    assert [r.message.split(",", 1)[1] for r in caplog.records if r.name == "dskype.events"] == ["in,4,one,[1]"]
    assert str(EventInfo(0, "c", 1, None, (1, "x"))) == "1970-01-01T00:00:00.000000Z,c,1,,[1, 'x']"


def test_topology_debug_logs_each_emit(caplog):
    feeder, _ = fed("number")
    with caplog.at_level(logging.INFO), running(chain(feeder), {Config.TOPOLOGY_DEBUG: True}) as run:
        feeder.feed([1], "one")
        run.advance(1)
    assert "Emitting: in default [1]" in caplog.text and "Emitting: twice default [2]" in caplog.text


class Numbers(Spout):
    """Emits 0..199, some for each 100 ms."""

    def open(self, conf, context, collector):
        self.collector, self.context, self.next, self.begin = collector, context, 0, None

    def next_tuple(self):
        now = self.context.clock_ms()
        self.begin = now if self.begin is None else self.begin
        while self.next < min(200, (now - self.begin) // 10):
            self.collector.emit((self.next,), message_id=self.next)
            self.next += 1

    def snapshot(self):
        return [self.next, self.begin]

    def restore(self, state):
        self.next, self.begin = state

    def declare_output_fields(self, declarer):
        declarer.declare("number")


class Mark(EventLogger):
    """Writes the events of bolts down."""

    def log(self, event):
        if event.component == "twice":
            SEEN.append(event.values[0])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_the_sample_is_the_same_whatever_fails(seen, seed):
    samples = []
    for faults in (Faults(), Faults.heavy()):
        before = len(seen())
        conf = {**LOGGED, Config.TOPOLOGY_EVENT_LOGGER_REGISTER: [{"class": f"{__name__}.Mark"}], "topology.emulator.snapshot.interval.ms": 200}
        now = [1_000_000]
        plan = TopologyPlan.build("t", "t-1-0", conf, chain(Numbers()).create_topology())
        sim = simulate(plan, MemoryLog(lambda now=now: now[0]), lambda now=now: now[0], seed=seed, faults=faults)
        sim.activate()
        sim.debug({"twice": 20.0})
        for _ in range(40):
            sim.tick_clock()
            sim.run_until_quiet()
            now[0] += 100
        samples.append(set(seen()[before:]))
        assert sim.dead_letters() == []
    assert samples[0] == samples[1] and 20 < len(samples[0]) < 60


# --- metrics consumers ------------------------------------------------------------------------------------------------


class Collects(MetricsConsumer):
    """Writes data points down."""

    def prepare(self, conf, argument, context, report_error):
        self.argument = argument

    def handle_data_points(self, task_info, data_points):
        SEEN.append((self.argument, task_info.src_component_id, task_info.update_interval_secs, dict(data_points)))

    def cleanup(self):
        SEEN.append(("cleaned", "", 0, {}))


def collecting(**more):
    conf = Config({Config.TOPOLOGY_BUILTIN_METRICS_BUCKET_SIZE_SECS: 2})
    conf.register_metrics_consumer(f"{__name__}.Collects", "argument")
    conf[Config.TOPOLOGY_METRICS_CONSUMER_REGISTER][0].update(more)
    return conf


def test_a_consumer_gets_the_metrics_of_all_tasks(seen):
    feeder, _ = fed("number")
    with running(chain(feeder), collecting(), secs=1) as run:
        for number in range(3):
            feeder.feed([number], number)
        run.advance(1.5)
        points = {component: found for _, component, _, found in seen()}
        assert set(points) == {"in", "twice", "keep", "__acker"}
        assert {(argument, secs) for argument, _, secs, _ in seen()} == {("argument", 2)}
        assert points["in"]["__emit-count"]["default"] == 3 and points["in"]["__ack-count"] == {"default": 3}
        assert points["twice"]["__execute-count"] == {"in:default": 3} and points["twice"]["doubled"] == 3
        assert points["twice"]["since"] == 1  # reports do not read it as well
        assert points["twice"]["__execute-latency"] > 0
        feeder.feed([4], 4)
        run.advance(2)
        points = {component: found for _, component, _, found in seen()[len(points) + 1 :]}
        assert points["twice"]["__execute-count"] == {"in:default": 1} and points["twice"]["doubled"] == 4  # user metrics are as they are
        assert run.sim.stats.tasks[run.sim.plan.component_tasks("twice")[0]]["metrics"]["doubled"] == 4
    assert seen()[-1][0] == "cleaned"


def test_names_are_filtered_and_maps_expanded(seen):
    feeder, _ = fed("number")
    with running(chain(feeder), collecting(whitelist=["^__emit"], expandMapType=True, metricNameSeparator="/"), secs=1) as run:
        feeder.feed([1], None)
        run.advance(1.5)
        assert [found for _, component, _, found in seen() if component == "twice"] == [{"__emit-count/default": 1}]
        assert sorted(c for _, c, _, _ in seen()) == ["in", "twice"]  # others have nothing to tell
    with pytest.raises(InvalidTopologyException, match="whitelist and a blacklist"), running(chain(feeder), collecting(whitelist=["a"], blacklist=["b"])):
        pass


def test_storms_logging_consumer_writes_lines(caplog):
    feeder, _ = fed("number")
    conf = Config({Config.TOPOLOGY_BUILTIN_METRICS_BUCKET_SIZE_SECS: 1})
    conf.register_metrics_consumer("org.apache.storm.metric.LoggingMetricsConsumer")
    with caplog.at_level(logging.INFO, "dskype.metrics"), running(chain(feeder), conf) as run:
        feeder.feed([1], None)
        run.advance(1.5)
        (line,) = [r.message for r in caplog.records if ":twice" in r.message and "doubled" in r.message]
        assert line.split("\t")[2] == f"{run.sim.plan.component_tasks('twice')[0]:3}:twice      " and line.endswith("1")


def test_a_consumer_that_cannot_be_loaded_is_refused():
    conf = Config()
    conf.register_metrics_consumer("org.example.Graphite")
    with pytest.raises(InvalidTopologyException, match="names a Java class that has no replacement"), running(chain(fed("number")[0]), conf):
        pass
