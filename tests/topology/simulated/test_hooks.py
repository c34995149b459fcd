"""Task hooks and worker hooks: called at Storm's moments, and refused if they cannot be."""

import pytest

from dskype.topology import BasicBolt, Bolt, FailedException, IllegalArgumentException, InvalidTopologyException, TopologyBuilder
from dskype.topology.core.shared_log import SharedLog
from dskype.topology.flux import load
from dskype.topology.flux.errors import FluxException
from dskype.topology.hooks import TaskHook, WorkerHook

from .storm_helpers import Keep, fed, running

CALLS = SharedLog()


class Recorder(TaskHook):
    """Writes down each call."""

    def prepare(self, conf, context):
        self.name = f"{context.get_this_component_id()}{context.get_this_task_index()}"
        CALLS.append((self.name, "prepare", conf["topology.name"] if "topology.name" in conf else None))

    def cleanup(self):
        CALLS.append((self.name, "cleanup", None))

    def emit(self, info):
        CALLS.append((self.name, "emit", (list(info.values), info.stream, len(info.out_tasks))))

    def spout_ack(self, info):
        assert info.complete_latency_ms >= 0
        CALLS.append((self.name, "spout_ack", info.message_id))

    def spout_fail(self, info):
        assert info.fail_latency_ms >= 0
        CALLS.append((self.name, "spout_fail", info.message_id))

    def bolt_execute(self, info):
        assert info.execute_latency_ms >= 0
        CALLS.append((self.name, "bolt_execute", list(info.tuple.values)))

    def bolt_ack(self, info):
        assert info.process_latency_ms is None or info.process_latency_ms >= 0
        CALLS.append((self.name, "bolt_ack", list(info.tuple.values)))

    def bolt_fail(self, info):
        CALLS.append((self.name, "bolt_fail", list(info.tuple.values)))


class Broken(TaskHook):
    """Raises at the number 7."""

    def bolt_execute(self, info):
        if info.tuple["number"] == 7:
            raise ValueError("seven")


class Doubles(BasicBolt):
    """Emits twice the number; fails 13."""

    def execute(self, tup, collector):
        if tup["number"] == 13:
            raise FailedException
        collector.emit((2 * tup["number"],))

    def declare_output_fields(self, declarer):
        declarer.declare("number")


class WithHook(Bolt):
    """Adds a hook in prepare, and acks its inputs one tuple late."""

    def prepare(self, conf, context, collector):
        context.add_task_hook(Recorder())
        self.collector, self.held = collector, None

    def execute(self, tup):
        if self.held is not None:
            self.collector.ack(self.held)
        self.held = tup


@pytest.fixture(autouse=True)
def calls():
    """Return what returns the calls of a test so far: the values of a method, or without one, all names of methods."""
    start = CALLS.end()

    def get(name, method=None):
        found = [(what, value) for _, (who, what, value) in CALLS.read(start) if who == name]
        return [what for what, _ in found] if method is None else [value for what, value in found if what == method]

    return get


NAMED = f"{__name__}.Recorder"


@pytest.mark.parametrize("ackers", [None, 0])
def test_hooks_named_in_the_configuration_see_every_task(calls, ackers):
    feeder, _ = fed("number")
    builder = TopologyBuilder()
    builder.set_spout("in", feeder)
    builder.set_bolt("twice", Doubles()).shuffle_grouping("in")
    builder.set_bolt("keep", Keep()).all_grouping("twice")
    with running(builder, {"topology.auto.task.hooks": [NAMED], "topology.acker.executors": ackers}) as run:
        feeder.feed([1], "a")
        feeder.feed([13], "b")
        run.advance(1)
        assert calls("in0", "emit") == [([1], "default", 1), ([13], "default", 1)]
        assert calls("twice0", "emit") == [([2], "default", 1)]
        assert calls("twice0", "bolt_execute") == [[1], [13]]
        assert calls("twice0", "bolt_ack") == [[1]] and calls("keep0", "bolt_ack") == [[2]]
        assert calls("twice0", "bolt_fail") == [[13]]
        if ackers is None:
            assert calls("in0", "spout_ack") == ["a"] and calls("in0", "spout_fail") == ["b"]
            assert run.total("twice", "acked") == 1 and run.total("twice", "failed") == 1
        else:
            assert run.total("twice", "acked") == 0  # hooks change no counts
        assert len(calls("keep0", "prepare")) == 1 and calls("keep0", "cleanup") == []
    assert len(calls("keep0", "cleanup")) == 1


def test_a_hook_that_prepare_adds_belongs_to_its_task(calls):
    feeder, tracker = fed("number")
    builder = TopologyBuilder()
    builder.set_spout("in", feeder)
    builder.set_bolt("bolt", WithHook()).shuffle_grouping("in")
    with running(builder) as run:
        for number in (1, 2):
            feeder.feed([number], number)
        run.advance(1)
        assert calls("bolt0", "bolt_execute") == [[1], [2]] and calls("bolt0", "bolt_ack") == [[1]]
        assert tracker.is_acked(1) and not tracker.is_acked(2)
    assert calls("in0") == []


class TimesOut(TaskHook):
    """Writes down how long trees took that have failed."""

    def spout_fail(self, info):
        CALLS.append(("spout", "spout_fail", info.fail_latency_ms))


def test_a_hook_learns_how_long_a_tree_took_that_has_timed_out(calls):
    feeder, tracker = fed("number")
    builder = TopologyBuilder()
    builder.set_spout("in", feeder).add_configuration("topology.auto.task.hooks", [f"{__name__}.TimesOut"])
    builder.set_bolt("bolt", WithHook()).shuffle_grouping("in")  # it holds the last tuple
    with running(builder, {"topology.message.timeout.secs": 3}) as run:
        feeder.feed([1], "held")
        run.advance(10)
        assert tracker.is_failed("held")
        (latency_ms,) = calls("spout", "spout_fail")
        assert 3000 <= latency_ms <= 7000


class AddsLate(Doubles):
    """Adds a hook with its first tuple."""

    def prepare(self, conf, context):
        self.context = context

    def execute(self, tup, collector):
        if not self.context.get_hooks():
            self.context.add_task_hook(Recorder())
        super().execute(tup, collector)


@pytest.mark.parametrize("ackers", [1, 0])
def test_a_hook_that_execute_adds_sees_the_following_tuples(calls, ackers):
    feeder, _ = fed("number")
    builder = TopologyBuilder()
    builder.set_spout("in", feeder)
    builder.set_bolt("twice", AddsLate()).shuffle_grouping("in")
    with running(builder, {"topology.acker.executors": ackers}) as run:
        for number in (1, 2, 3):
            feeder.feed([number], number)
            run.advance(1)
        assert calls("twice0", "bolt_execute") == [[2], [3]]
        assert calls("twice0", "bolt_ack")[-2:] == [[2], [3]]
        assert calls("twice0", "emit")[-2:] == [([4], "default", 0), ([6], "default", 0)]


def test_a_hook_that_raises_counts_as_its_component():
    feeder, _ = fed("number")
    builder = TopologyBuilder()
    builder.set_spout("in", feeder)
    builder.set_bolt("twice", Doubles()).shuffle_grouping("in").add_configuration("topology.auto.task.hooks", [f"{__name__}.Broken"])
    with running(builder) as run:
        for number in (1, 7, 8):
            feeder.feed([number], number)
        run.advance(1)
        assert run.total("twice", "executed") == 3 and "ValueError: seven" in run.errors("twice")[0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere.Hook", "not found"),
        (f"{__name__}.Doubles", "is no TaskHook"),
        ("Recorder", "not found"),
        ("org.example.JavaHook", "Java class that has no replacement"),
    ],
)
def test_a_hook_that_cannot_be_loaded_is_refused_at_submission(name, words):
    builder = TopologyBuilder()
    builder.set_spout("in", fed("number")[0])
    with pytest.raises(InvalidTopologyException, match=words), running(builder, {"topology.auto.task.hooks": [name]}):
        pass


class Starts(WorkerHook):
    """Writes down start and shutdown."""

    def __init__(self, label="worker"):
        self.label = label

    def start(self, conf, context):
        CALLS.append((self.label, "start", (context.get_this_component_id(), context.get_this_worker_port())))

    def shutdown(self):
        CALLS.append((self.label, "shutdown", None))


class Prepares(Keep):
    """Writes down that it is prepared."""

    def prepare(self, conf, context, collector):
        super().prepare(conf, context, collector)
        CALLS.append(("worker", "prepare", "keep"))

    def cleanup(self):
        CALLS.append(("worker", "cleanup", "keep"))


def test_worker_hooks_surround_the_tasks_of_each_executor(calls):
    builder = TopologyBuilder()
    builder.add_worker_hook(Starts())
    feeder, _ = fed("number")
    builder.set_spout("in", feeder)
    builder.set_bolt("keep", Prepares(), 2).set_num_tasks(4).shuffle_grouping("in")
    with running(builder, {"topology.acker.executors": 0}, secs=1):
        pass
    assert sorted(calls("worker", "start")) == [("in", 6700), ("keep", 6700), ("keep", 6700)]
    spout, bolts = ["start"], ["start", "prepare", "prepare"] * 2
    assert calls("worker") == [*spout, *bolts, "shutdown", *["cleanup", "cleanup", "shutdown"] * 2]


def test_only_hooks_can_be_added():
    with pytest.raises(IllegalArgumentException, match="WorkerHook must not be null"):
        TopologyBuilder().add_worker_hook(None)


FLUX = """
name: hooks
config: {{topology.auto.task.hooks: [{hook}]}}
workerHooks:
  - {{id: starts, className: tests.topology.simulated.test_hooks.Starts, constructorArgs: [flux]}}
spouts:
  - {{id: in, className: dskype.FeederSpout, constructorArgs: [[x]]}}
"""


def test_a_flux_file_has_worker_hooks_and_may_name_only_hooks_of_allowed_modules():
    loaded = load(FLUX.format(hook=NAMED), allow_modules=[__name__])
    assert [hook.label for hook in loaded.topology.worker_hooks] == ["flux"] and loaded.warnings == []
    load(FLUX.format(hook="org.apache.storm.hooks.BaseTaskHook"), allow_modules=[__name__])
    with pytest.raises(FluxException, match="topology.auto.task.hooks"):
        load(FLUX.format(hook="subprocess.Popen"), allow_modules=[__name__])
    with pytest.raises(FluxException, match="does not appear to be a worker hook"):
        load(FLUX.format(hook=NAMED).replace("Starts, constructorArgs: [flux]", "Doubles"), allow_modules=[__name__])
