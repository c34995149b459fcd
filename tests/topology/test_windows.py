"""Windowed bolts alone: the eight kinds of windows, event time, validation and state, against plain oracles."""

import random

import pytest

from dskype.topology import Bolt, Fields, IllegalArgumentException, Spout, StreamMeta, TopologyBuilder, TopologyPlan, Tuple
from dskype.topology.context import TopologyContext
from dskype.topology.core.values import pack_state, unpack_state
from dskype.topology.windows import Count, Duration, TupleWindow, WindowedBolt
from tests import naive

SECOND = 1000


class Numbers(Spout):
    def next_tuple(self):
        pass

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("value", "ts"))
        declarer.declare_stream("other", Fields("value", "ts"))


class Collect(WindowedBolt):
    """Keeps every window; has state, too."""

    def prepare(self, conf, context, collector):
        self.collector, self.windows, self.explode = collector, [], False

    def execute(self, window: TupleWindow):
        def values(tuples):
            return [t["value"] for t in tuples]

        self.windows.append(
            (window.get_start_timestamp(), window.get_end_timestamp(), values(window.get()), values(window.get_new()), values(window.get_expired()))
        )
        self.collector.emit((len(window),))
        if self.explode:
            raise RuntimeError("window")

    def snapshot(self):
        return len(self.windows)

    def restore(self, state):
        self.restored = state

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("n"))


class Collector:
    """Records the bolt's calls."""

    def __init__(self):
        self.acked, self.emitted = [], []

    def ack(self, tup):
        self.acked.append(tup["value"])

    def emit(self, values, stream="default", anchors=None):
        anchors = [anchors] if isinstance(anchors, Tuple) else list(anchors)
        self.emitted.append((stream, list(values), [t["value"] for t in anchors]))
        return []

    fail = reset_timeout = report_error = send_record = emit_watermark = emit_direct = None


class Harness:
    """One task of a windowed bolt, fed by hand."""

    def __init__(self, bolt, conf=None, streams=("default",)):
        builder = TopologyBuilder()
        builder.set_spout("numbers", Numbers())
        declarer = builder.set_bolt("window", bolt)
        for stream in streams:
            declarer.global_grouping("numbers", stream)
        self.plan = TopologyPlan.build("t", "t-1-0", conf, builder.create_topology())
        self.now, self.count = 0, 0
        self.collector = Collector()
        self.executor = self.made()

    def made(self):
        executor = self.plan.spec("window").obj
        context = TopologyContext(self.plan, self.plan.component_tasks("window")[0])
        context.clock_ms = lambda: self.now
        executor.prepare(self.plan.component_conf("window"), context, self.collector)
        return executor

    def feed(self, value, ts=None, *, stream="default", root=None):
        meta = StreamMeta("numbers", 1, stream, Fields("value", "ts"))
        self.count += 1
        self.executor.execute(Tuple((value, ts), meta, None if root is None else (root, self.count)))

    def clock(self, now=None):
        self.now = self.now if now is None else now
        self.executor.on_clock()

    @property
    def windows(self):
        return self.executor.bolt.windows

    @property
    def contents(self):
        return [w[2] for w in self.windows]


def minutes_of(text):
    """'6:00:03' -> milliseconds of the day."""
    hours, minutes, seconds = map(int, text.split(":"))
    return ((hours * 60 + minutes) * 60 + seconds) * SECOND


# --- windows by count -------------------------------------------------------------------------------------------------


def test_a_sliding_count_window_holds_the_last_tuples():
    harness = Harness(Collect().with_window(Count(4), Count(2)))
    for i in range(1, 8):
        harness.feed(i)
    assert harness.contents == [[1, 2], [1, 2, 3, 4], [3, 4, 5, 6]]


def test_a_window_tells_what_is_new_and_what_has_expired():
    harness = Harness(Collect().with_window(Count(3), Count(2)))
    for i in range(1, 7):
        harness.feed(i)
    assert [w[2:] for w in harness.windows] == [([1, 2], [1, 2], []), ([2, 3, 4], [3, 4], [1]), ([4, 5, 6], [5, 6], [2, 3])]


def test_a_tumbling_count_window_holds_every_tuple_once():
    harness = Harness(Collect().with_tumbling_window(Count(3)))
    for i in range(8):
        harness.feed(i)
    assert harness.contents == [[0, 1, 2], [3, 4, 5]]


def test_a_count_window_slides_with_every_tuple_by_default():
    harness = Harness(Collect().with_window(Count(2)))
    for i in range(3):
        harness.feed(i)
    assert harness.contents == [[0], [0, 1], [1, 2]]


def test_a_window_by_count_has_an_end_but_no_start():
    harness = Harness(Collect().with_tumbling_window(Count(1)))
    harness.now = 77
    harness.feed("x")
    assert harness.windows[0][:2] == (None, 77)


@pytest.mark.parametrize("seed", range(20))
def test_count_windows_equal_the_oracle(seed):
    rng = random.Random(seed)
    length, slide, n = rng.randint(1, 40), rng.randint(1, 40), rng.randint(0, 300)
    harness = Harness(Collect().with_window(Count(length), Count(slide)))
    for i in range(n):
        harness.feed(i)
    assert harness.contents == naive.count_windows(range(n), length, slide)


# --- windows by duration, time of arrival -----------------------------------------------------------------------------


def test_the_first_slide_of_a_duration_window_comes_after_one_interval():
    bolt = Collect().with_window(Duration.of_seconds(3), Duration.of_seconds(2))
    harness = Harness(bolt)
    assert harness.executor.clock_interval_ms(harness.plan.component_conf("window")) == 2 * SECOND
    for second in range(8):
        if second and second % 2 == 0:
            harness.clock(second * SECOND)
        harness.now = second * SECOND
        harness.feed(second)
    assert harness.contents == [[0, 1], [1, 2, 3], [3, 4, 5]]


def test_what_arrives_in_the_millisecond_of_the_slide_belongs_to_the_next_window():
    harness = Harness(Collect().with_tumbling_window(Duration.of_seconds(1)))
    harness.now = 999
    harness.feed("before")
    harness.now = 1000
    harness.feed("at")
    harness.clock(1000)
    harness.clock(2000)
    assert harness.contents == [["before"], ["at"]]
    assert harness.windows[0][:2] == (-1, 999)


def test_timers_that_are_late_leave_no_gap_between_tumbling_windows():
    harness = Harness(Collect().with_tumbling_window(Duration.of_seconds(1)))
    timers = (1000, 2350, 3000, 4010)
    for ms in range(0, 4011, 10):
        if ms in timers:
            harness.clock(ms)
        harness.now = ms
        harness.feed(ms)
    assert [(w[0], w[-1]) for w in harness.contents] == [(0, 990), (1000, 2340), (2350, 2990), (3000, 4000)]


@pytest.mark.parametrize("seed", range(20))
def test_duration_windows_equal_the_oracle(seed):
    rng = random.Random(seed)
    length, slide = rng.randint(1, 12) * 250, rng.randint(1, 12) * 250
    harness = Harness(Collect().with_window(Duration(length), Duration(slide)))
    arrivals = sorted((rng.randrange(20_000), i) for i in range(rng.randint(0, 250)))
    events = [(ms, 1, i) for ms, i in arrivals] + [(ms, 0, None) for ms in range(slide, 20_001, slide)]
    for ms, is_tuple, item in sorted(events, key=lambda e: e[:2]):
        harness.now = ms
        harness.feed(item) if is_tuple else harness.clock()
    assert harness.contents == naive.time_windows(arrivals, length, slide, 20_000)


def test_a_count_window_may_slide_by_time():
    harness = Harness(Collect().with_window(Count(2), Duration.of_seconds(1)))
    for i in range(3):
        harness.feed(i)
    harness.clock(1000)
    harness.feed(3)
    harness.clock(2000)
    assert harness.contents == [[1, 2], [2, 3]]


def test_a_duration_window_may_slide_by_count():
    harness = Harness(Collect().with_window(Duration.of_seconds(1), Count(2)))
    for second in range(6):
        harness.now = second * 600
        harness.feed(second)
    assert harness.contents == [[0, 1], [2, 3], [4, 5]]
    assert harness.executor.clock_interval_ms(harness.plan.component_conf("window")) is None


# --- event time -------------------------------------------------------------------------------------------------------


def storms_example():
    bolt = Collect().with_window(Duration.of_seconds(20), Duration.of_seconds(10))
    return Harness(bolt.with_timestamp_field("ts").with_lag(Duration.of_seconds(5)).with_watermark_interval(Duration.of_seconds(1)))


def test_the_worked_example_of_storms_documentation_gives_its_six_windows():
    harness = storms_example()
    assert harness.executor.clock_interval_ms(harness.plan.component_conf("window")) == 1000
    for name, time in dict(e1="6:00:03", e2="6:00:05", e3="6:00:07", e4="6:00:18", e5="6:00:26", e6="6:00:36").items():
        harness.feed(name, minutes_of(time))
    harness.clock(minutes_of("9:00:01"))
    assert [(w[0], w[1], w[2]) for w in harness.windows] == [
        (minutes_of("5:59:50"), minutes_of("6:00:10"), ["e1", "e2", "e3"]),
        (minutes_of("6:00:00"), minutes_of("6:00:20"), ["e1", "e2", "e3", "e4"]),
        (minutes_of("6:00:10"), minutes_of("6:00:30"), ["e4", "e5"]),
    ]
    for name, time in dict(e7="8:00:25", e8="8:00:26", e9="8:00:27", e10="8:00:39").items():
        harness.feed(name, minutes_of(time))
    harness.clock(minutes_of("9:00:02"))
    assert [(w[0], w[1], w[2]) for w in harness.windows[3:]] == [
        (minutes_of("6:00:20"), minutes_of("6:00:40"), ["e5", "e6"]),
        (minutes_of("6:00:30"), minutes_of("6:00:50"), ["e6"]),
        (minutes_of("8:00:10"), minutes_of("8:00:30"), ["e7", "e8", "e9"]),
    ]


def test_late_tuples_are_counted_and_acked_and_in_no_window():
    harness = storms_example()
    harness.feed("a", 60_000)
    harness.clock()
    harness.feed("late", 54_999)
    harness.feed("in time", 55_000)
    harness.feed("b", 90_000)
    harness.clock()
    assert "late" not in sum(harness.contents, []) and "in time" in sum(harness.contents, [])
    assert harness.collector.acked[0] == "late"
    assert harness.executor.late_tuples == 1


def test_late_tuples_go_to_their_stream_when_there_is_one():
    bolt = Collect().with_tumbling_window(Duration.of_seconds(1)).with_timestamp_field("ts").with_late_tuple_stream("late")
    harness = Harness(bolt)
    assert harness.plan.spec("window").outputs["late"].fields == Fields("late_tuple")
    harness.feed("a", 5000)
    harness.clock()
    harness.feed("b", 3000)
    stream, (tup,), anchors = harness.collector.emitted[-1]
    assert (stream, tup["value"], tup["ts"], anchors) == ("late", "b", 3000, ["b"])


def test_the_watermark_waits_for_every_input_stream():
    bolt = Collect().with_tumbling_window(Duration.of_seconds(1)).with_timestamp_field("ts")
    harness = Harness(bolt, streams=("default", "other"))
    harness.feed("a", 900)
    harness.feed("b", 3000)
    harness.clock()
    assert harness.windows == []
    harness.feed("c", 1000, stream="other")
    harness.clock()
    assert harness.contents == [["a", "c"]]


@pytest.mark.parametrize("seed", range(30))
def test_event_time_windows_equal_the_oracle(seed):
    rng = random.Random(seed)
    slide, length, lag = rng.randint(1, 8) * 100, rng.randint(1, 16) * 100, rng.choice((0, 100, 700))
    harness = Harness(Collect().with_window(Duration(length), Duration(slide)).with_timestamp_field("ts").with_lag(Duration(lag)))
    ts, item, steps = rng.randrange(1, 5000), 0, []
    for _ in range(rng.randint(1, 25)):
        step = []
        for _ in range(rng.randint(0, 12)):
            ts += rng.choice((0, 1, 30, 100, 100, 900)) if rng.random() < 0.97 else 20_000
            step.append((max(0, ts - rng.randint(0, 2 * lag + 60)), item))  # some out of order by more than the lag
            item += 1
        steps.append(step)
    for step in steps:
        for event_ts, value in step:
            harness.feed(value, event_ts)
        harness.clock()
    windows, late = naive.event_time_windows(steps, length, slide, lag)
    assert [(w[1], w[2]) for w in harness.windows] == windows
    assert harness.executor.late_tuples == len(late)


@pytest.mark.parametrize("seed", range(20))
def test_count_windows_in_event_time_equal_the_oracle(seed):
    rng = random.Random(seed)
    length, slide, lag = rng.randint(1, 9), rng.randint(1, 9), rng.choice((0, 50))
    harness = Harness(Collect().with_window(Count(length), Count(slide)).with_timestamp_field("ts").with_lag(Duration(lag)))
    stamps = sorted(rng.sample(range(1, 5000), 150))
    for ts in stamps:
        harness.feed(ts, ts)
        if rng.random() < 0.2:
            harness.clock()
    harness.clock()
    assert harness.contents == naive.event_count_windows(stamps, length, slide, stamps[-1] - lag)


def test_a_timestamp_extractor_may_be_any_callable():
    bolt = Collect().with_tumbling_window(Duration.of_seconds(1)).with_timestamp_extractor(lambda t: t["value"] * 10)
    harness = Harness(bolt)
    for value in (10, 50, 150, 250):
        harness.feed(value)
    harness.clock()
    assert harness.contents == [[10, 50], [150]]


def test_an_empty_timestamp_names_the_field():
    harness = storms_example()
    with pytest.raises(IllegalArgumentException, match="timestamp field 'ts' is empty.*'numbers'"):
        harness.feed("x", None)


# --- acks, anchors and exceptions -------------------------------------------------------------------------------------


def test_tuples_are_acked_when_they_leave_the_window_and_emits_are_anchored_to_all_of_it():
    harness = Harness(Collect().with_window(Count(2), Count(1)))
    for i in range(3):
        harness.feed(i)
    assert harness.collector.acked == [0]
    assert harness.collector.emitted == [("default", [1], [0]), ("default", [2], [0, 1]), ("default", [2], [1, 2])]


def test_tuples_that_no_window_will_hold_are_acked_before_the_next_slide():
    harness = Harness(Collect().with_window(Count(2), Count(1000)))
    for i in range(150):
        harness.feed(i)
    assert harness.windows == []
    assert len(harness.collector.acked) == 98


def test_after_an_exception_tracked_tuples_of_the_window_are_dropped_without_an_ack():
    harness = Harness(Collect().with_window(Count(4), Count(2)))
    harness.executor.bolt.explode = True
    harness.feed("untracked")
    with pytest.raises(RuntimeError):
        harness.feed("tracked", root=5)
    harness.executor.bolt.explode = False
    for value in "cdef":
        harness.feed(value)
    assert harness.contents == [["untracked", "tracked"], ["untracked", "c", "d"], ["c", "d", "e", "f"]]
    assert harness.collector.acked == ["untracked"]


def test_a_window_that_raised_does_not_come_again_in_event_time():
    harness = storms_example()
    for second in (3, 13, 23, 60):
        harness.feed(second, second * SECOND)
    harness.executor.bolt.explode = True
    with pytest.raises(RuntimeError):
        harness.clock()
    harness.executor.bolt.explode = False
    harness.clock()
    assert [w[1] for w in harness.windows] == [10_000, 20_000, 30_000, 40_000]


# --- validation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bolt", "conf", "text"),
    [
        (lambda: Collect(), {}, "Window length is not specified"),
        (
            lambda: Collect().with_window(Duration.of_seconds(25), Duration.of_seconds(6)),
            {},
            r"Window duration \(length \+ sliding interval\) value 31000 is more than topology.message.timeout.secs value 30000",
        ),
        (
            lambda: Collect().with_window(Count(8), Count(3)),
            {"topology.max.spout.pending": 10},
            r"Window count \(length \+ sliding interval\) value 11 is more than topology.max.spout.pending value 10",
        ),
        (lambda: Collect().with_window(Count(8)).with_late_tuple_stream("late"), {}, "Late tuple stream can be defined only when specifying a timestamp field"),
    ],
)
def test_a_bad_window_is_refused_when_the_bolt_is_prepared(bolt, conf, text):
    with pytest.raises(IllegalArgumentException, match=text) as caught:
        Harness(bolt(), conf)
    assert "'window'" in str(caught.value)


def test_windows_may_be_as_long_as_the_timeout_and_longer_without_timeouts():
    Harness(Collect().with_window(Duration.of_seconds(25), Duration.of_seconds(5)))
    Harness(Collect().with_window(Duration.of_seconds(60)), {"topology.enable.message.timeouts": False})
    Harness(Collect().with_window(Count(7), Count(3)), {"topology.max.spout.pending": 10})


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Collect().with_window(Count(0)), r"Window length must be positive \[Count\{value=0\}\]"),
        (lambda: Collect().with_window(Count(3), Duration(0)), r"Sliding interval must be positive \[Duration\{value=0\}\]"),
        (lambda: Collect().with_window(10), "must be a Count or a Duration"),
        (lambda: Duration(-1), "Duration cannot be negative"),
        (lambda: Duration.of_days(30), "Duration is too long"),
        (lambda: Duration(1.5), "whole number of milliseconds"),
        (lambda: Collect().with_timestamp_field("a").with_timestamp_field("b"), "already configured with a timestamp extractor"),
        (lambda: Collect().with_late_tuple_stream(None), "Cannot set late tuple stream id to null"),
        (lambda: Collect().with_lag(5), "max.lag.ms must be a Duration"),
    ],
)
def test_bad_arguments_are_refused_at_the_call(call, text):
    with pytest.raises(IllegalArgumentException, match=text):
        call()


def test_units_of_durations():
    assert [d.value for d in (Duration.of(5), Duration.of_seconds(0.5), Duration.seconds(2), Duration.minutes(2), Duration.hours(1), Duration.days(1))] == [
        5,
        500,
        2000,
        120_000,
        3_600_000,
        86_400_000,
    ]


def test_the_configuration_of_a_component_may_set_its_window():
    harness = Harness(
        Collect(),
        {"topology.bolts.window.length.count": 2, "topology.bolts.window.sliding.interval.count": 2, "topology.bolts.tuple.timestamp.field.name": "ts"},
    )
    for ts in (1, 2, 3, 4):
        harness.feed(ts, ts)
    harness.clock()
    assert harness.contents == [[1, 2], [3, 4]]


def test_a_later_window_replaces_an_earlier_one():
    bolt = Collect().with_window(Count(2), Count(1)).with_tumbling_window(Duration.of_seconds(1))
    assert bolt.get_component_configuration() == {"topology.bolts.window.length.duration.ms": 1000, "topology.bolts.window.sliding.interval.duration.ms": 1000}


# --- state ------------------------------------------------------------------------------------------------------------

FORMS = {
    "count": lambda: Collect().with_window(Count(7), Count(3)),
    "time": lambda: Collect().with_window(Duration(900), Duration(400)),
    "time by count": lambda: Collect().with_window(Duration(900), Count(3)),
    "count by time": lambda: Collect().with_window(Count(5), Duration(400)),
    "event time": lambda: Collect().with_window(Duration(900), Duration(400)).with_timestamp_field("ts").with_lag(Duration(100)),
    "event count": lambda: Collect().with_window(Count(7), Count(3)).with_timestamp_field("ts"),
}


@pytest.mark.parametrize("form", sorted(FORMS))
def test_a_restored_bolt_goes_on_as_if_nothing_had_happened(form):
    def run(restarts):
        rng = random.Random(form)
        harness, seen = Harness(FORMS[form]()), []
        for i in range(250):
            if i in restarts:
                seen += harness.windows
                state = unpack_state(pack_state(harness.executor.snapshot()))
                harness.executor = harness.made()
                harness.executor.restore(state)
                assert harness.executor.bolt.restored == state["user"]
            harness.now += rng.randint(0, 120)
            harness.feed(i, harness.now + rng.randint(-90, 0) if "ts" not in form else harness.now)
            if i % 4 == 0 and harness.executor.clock_interval_ms(harness.plan.component_conf("window")):
                harness.clock()
        return seen + harness.windows, harness.collector.acked, harness.collector.emitted, harness.executor.late_tuples

    plain = run(())
    assert len(plain[0]) > 10
    assert run((20, 21, 90, 170)) == plain


def test_anchors_of_held_tuples_survive_a_snapshot():
    harness = Harness(Collect().with_window(Count(5), Count(5)))
    harness.feed("a", 1, root=99)
    state = unpack_state(pack_state(harness.executor.snapshot()))
    harness.executor = harness.made()
    harness.executor.restore(state)
    (event,) = harness.executor._manager.queue
    assert event.tup.get_message_id() == (99, 1)


def test_a_windowed_bolt_runs_inside_an_ordinary_bolt():
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("window", Collect().with_tumbling_window(Count(2)), 2).shuffle_grouping("numbers")
    spec = builder.create_topology().components["window"]
    assert isinstance(spec.obj, Bolt)
    assert spec.conf == {"topology.bolts.window.length.count": 2, "topology.bolts.window.sliding.interval.count": 2}
