"""KafkaSpout and KafkaBolt on the simulated log."""

import json
from collections import Counter

import pytest

from dskype.topology import Bolt, DeadLetter, Fields, IllegalArgumentException, InvalidTopologyException, KafkaBolt, KafkaSpout, TopologyBuilder
from dskype.topology.config import TRANSPORTS
from dskype.topology.local import LocalCluster
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.faults import Faults
from dskype.topology.simulated.faulty import simulate
from dskype.topology.simulated.log import MemoryLog
from tests.tiers import seeds

from .storm_helpers import Keep, Run, Script


def topology(spout, bolt, spout_tasks=1, bolt_tasks=1):
    builder = TopologyBuilder()
    builder.set_spout("in", spout, spout_tasks)
    builder.set_bolt("out", bolt, bolt_tasks).shuffle_grouping("in")
    return builder.create_topology()


def write(cluster, topic, *values, partition=0, key=None):
    for value in values:
        cluster.log.append(topic, partition, key, value if value is None or isinstance(value, bytes) else json.dumps(value).encode())


def started(cluster, spout, bolt, conf=None, secs=1.0, **kwargs):
    run = Run(cluster, "t", cluster.submit_topology("t", conf or {}, topology(spout, bolt, **kwargs)))
    if secs:
        run.advance(secs)
    return run


def committed(run):
    """Return topic, partition -> lowest offset that is not settled, as the statistics report it."""
    return {(t, p): c for task in run.sim.stats.tasks.values() for t, p, _, c in task.get("kafka", ())}


# --- many records at once ---------------------------------------------------------------------------------------------


class KeepAlways(Keep):
    """Keeps its inputs over crashes, too."""

    def snapshot(self):
        return [list(row) for row in self.seen]

    def restore(self, state):
        self.seen = [tuple(row) for row in state]


class Sums(KafkaSpout):
    """Emits numbers as columns, with the sum of all numbers so far: a spout that keeps state."""

    def __init__(self, topic):
        super().__init__(topic, outputs=Fields("number", "sum"))

    def open(self, conf, context, collector):
        self.collector, self.sum, self.calls = collector, 0, []

    def emit_records(self, records):
        values = [json.loads(r.value) for r in records]
        good = [v for v in values if isinstance(v, int)]
        self.calls.append(len(records))
        if good:
            sums = [self.sum + sum(good[: i + 1]) for i in range(len(good))]
            self.sum = sums[-1]
            self.collector.emit_batch([good, sums])
        return [(r, DeadLetter("no number", "no-number")) for r, v in zip(records, values) if not isinstance(v, int)]

    def snapshot(self):
        return self.sum

    def restore(self, state):
        self.sum = state


def test_a_spout_may_take_many_records_at_once():
    with LocalCluster(simulated=True) as cluster:
        write(cluster, "n", *range(5), "x", 5)
        run = started(cluster, Sums("n"), Keep(), {"topology.acker.executors": 0})
        assert run.components("out")[0].seen == [(0, 0), (1, 1), (2, 3), (3, 6), (4, 10), (5, 15)]
        assert run.components("in")[0].calls == [7]
        assert [(x["offset"], x["error"], x["code"]) for x in run.dead_letters()] == [("5", "no number", "no-number")]
        assert committed(run) == {("n", 0): 7}


def test_a_record_that_breaks_emit_records_is_found_and_the_others_are_emitted():
    with LocalCluster(simulated=True) as cluster:
        write(cluster, "n", 1, b"{", 2)
        run = started(cluster, Sums("n"), Keep(), {"topology.acker.executors": 0})
        assert [number for number, _ in run.components("out")[0].seen] == [1, 2]
        assert [x["offset"] for x in run.dead_letters()] == ["1"]


def test_emit_records_needs_a_topology_without_ackers():
    with (
        LocalCluster(simulated=True) as cluster,
        pytest.raises(InvalidTopologyException, match="emit_records emits untracked tuples.*legal: topology.acker.executors: 0"),
    ):
        cluster.submit_topology("t", {}, topology(Sums("n"), Keep()))


@pytest.mark.parametrize("seed", seeds(30))
def test_a_spout_with_state_gives_the_same_after_crashes(seed):
    time_ms = [0]
    log = MemoryLog(lambda: time_ms[0])
    conf = {"topology.acker.executors": 0, "topology.emulator.transport": TRANSPORTS[seed % 2]}
    plan = TopologyPlan.build("t", "t-1-0", conf, topology(Sums("n"), KeepAlways()))
    sim = simulate(plan, log, lambda: time_ms[0], seed=seed, faults=Faults.heavy())
    sim.activate()
    for number in range(40):
        log.append("n", 0, None, json.dumps(number).encode())
        time_ms[0] += 100
        sim.tick_clock()
        sim.run(3)
    for _ in range(3):  # what a crashed spout has emitted last comes with its next pulse
        time_ms[0] += 1000
        sim.tick_clock()
        sim.run_until_quiet()
    assert sim.components("out")[0].seen == [(n, n * (n + 1) // 2) for n in range(40)]


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_kafka_spout_emits_whole_records_by_default():
    with LocalCluster(simulated=True) as cluster:
        write(cluster, "orders", "a", key=b"k")
        write(cluster, "orders", "b", partition=1)
        run = started(cluster, KafkaSpout("orders"), Keep())
        write(cluster, "orders", "c")
        run.advance(1)
        assert sorted(run.components("out")[0].seen) == [("orders", 0, 0, b"k", b'"a"'), ("orders", 0, 1, None, b'"c"'), ("orders", 1, 0, None, b'"b"')]
        assert committed(run) == {("orders", 0): 2, ("orders", 1): 1}


def split(topic, partition, offset, key, value, timestamp_ms, headers):
    """One tuple per word; no words drop the record."""
    line = json.loads(value)
    if not isinstance(line, str):
        raise DeadLetter(f"not a line: {line}")
    return [("default", (word, offset)) for word in line.split()]


def test_translate_makes_any_number_of_tuples_and_bad_records_become_dead_letters():
    with LocalCluster(simulated=True) as cluster:
        write(cluster, "lines", "one two", 7, "", b"{", "three", None)
        run = started(cluster, KafkaSpout("lines", translator=split, outputs=Fields("word", "offset")), Keep())
        assert run.components("out")[0].seen == [("one", 0), ("two", 0), ("three", 4)]
        letters = run.dead_letters()
        assert [(x["offset"], x["stage"], x["topic"], x["partition"]) for x in letters] == [(o, "translate", "lines", "0") for o in ("1", "3", "5")]
        assert letters[0]["error"] == "not a line: 7"
        assert letters[1]["error"].startswith("JSONDecodeError")
        assert run.sim.dead_letters()[0].value == b"7"
        assert run.total("in", "dead_letters") == 3
        assert committed(run) == {("lines", 0): 6}


def test_a_subclass_may_translate_into_several_streams():
    class Sorter(KafkaSpout):
        def translate(self, topic, partition, offset, key, value, timestamp_ms, headers):
            number = json.loads(value)
            return [("even" if number % 2 == 0 else "odd", (number, timestamp_ms))]

        def declare_output_fields(self, declarer):
            declarer.declare_stream("even", Fields("n", "ms"))
            declarer.declare_stream("odd", Fields("n", "ms"))

    builder = TopologyBuilder()
    builder.set_spout("in", Sorter("numbers"))
    builder.set_bolt("even", Keep()).shuffle_grouping("in", "even")
    builder.set_bolt("odd", Keep()).shuffle_grouping("in", "odd")
    with LocalCluster(simulated=True, start_ms=5000) as cluster:
        write(cluster, "numbers", 1, 2, 3, 4)
        run = Run(cluster, "t", cluster.submit_topology("t", {}, builder.create_topology()))
        run.advance(1)
        assert run.components("even")[0].seen == [(2, 5000), (4, 5000)]
        assert run.components("odd")[0].seen == [(1, 5000), (3, 5000)]


@pytest.mark.parametrize(("values", "text"), [(("default", (1, 2)), "Expected 5 fields but got 2 fields"), (("nowhere", (1,)), "Unknown stream ID: nowhere")])
def test_a_translation_that_cannot_be_emitted_makes_a_dead_letter_and_the_rest_goes_on(values, text):
    def translate(topic, partition, offset, key, value, timestamp_ms, headers):
        return [values] if value == b'"bad"' else [("default", (topic, partition, offset, key, value))]

    with LocalCluster(simulated=True) as cluster:
        write(cluster, "in", "a", "bad", "b")
        run = started(cluster, KafkaSpout("in", translator=translate), Keep())
        assert [v[4] for v in run.components("out")[0].seen] == [b'"a"', b'"b"']
        (letter,) = run.dead_letters()
        assert text in letter["error"] and letter["offset"] == "1"
        assert committed(run) == {("in", 0): 3}


@pytest.mark.parametrize(
    ("strategy", "expected"), [("EARLIEST", ["old", "new"]), ("LATEST", ["new"]), ("UNCOMMITTED_EARLIEST", ["old", "new"]), ("UNCOMMITTED_LATEST", ["new"])]
)
def test_the_first_poll_strategy_says_where_to_start(strategy, expected):
    with LocalCluster(simulated=True) as cluster:
        write(cluster, "in", "old")
        run = started(cluster, KafkaSpout("in", first_poll_strategy=strategy), Keep())
        write(cluster, "in", "new")
        run.advance(1)
        assert [json.loads(v[4]) for v in run.components("out")[0].seen] == expected


def test_a_pattern_takes_the_topics_that_match_also_those_that_come_later():
    with LocalCluster(simulated=True) as cluster:
        write(cluster, "log-a", "a")
        write(cluster, "other", "no")
        run = started(cluster, KafkaSpout(pattern="log-.*"), Keep())
        write(cluster, "log-b", "b", partition=1)
        run.advance(1)
        assert sorted(v[:3] for v in run.components("out")[0].seen) == [("log-a", 0, 0), ("log-b", 1, 0)]


def test_partitions_that_come_later_are_read_from_their_beginning():
    with LocalCluster(simulated=True) as cluster:
        run = started(cluster, KafkaSpout("in", first_poll_strategy="LATEST"), Keep())
        write(cluster, "in", "a")
        write(cluster, "in", "b", partition=2)
        run.advance(1)
        assert sorted(v[1] for v in run.components("out")[0].seen) == [0, 2]


def test_partitions_are_dealt_out_over_the_tasks():
    with LocalCluster(simulated=True) as cluster:
        for partition in range(6):
            write(cluster, "in", *range(5), partition=partition)
        run = started(cluster, KafkaSpout("in"), Keep(), spout_tasks=3)
        assert [t["emitted"]["default"] for t in run.sim.stats.tasks.values() if t["component"] == "in"] == [10, 10, 10]
        assert len(run.components("out")[0].seen) == 30


# --- acks, fails and commits ------------------------------------------------------------------------------------------


def test_a_failed_record_is_emitted_again_and_holds_the_committed_position_back():
    def fail_first(tup, collector, count):
        if tup["offset"] == 1 and count <= 4:
            collector.fail(tup)
        elif tup["offset"] == 2 and count <= 4:
            held.append(tup)
        else:
            collector.ack(tup)

    held = []
    with LocalCluster(simulated=True) as cluster:
        write(cluster, "in", *"abcd")
        run = started(cluster, KafkaSpout("in"), Script(fail_first), {"topology.message.timeout.secs": 5})
        assert run.components("out")[0].count == 5
        assert committed(run) == {("in", 0): 2}
        run.advance(12)
        assert run.components("out")[0].count == 6
        assert committed(run) == {("in", 0): 4}
        assert (run.total("in", "acked"), run.total("in", "failed")) == (4, 2)


class Told(KafkaSpout):
    """Logs acks and fails."""

    def open(self, conf, context, collector):
        self.told = []

    def ack(self, msg_id):
        self.told.append(("ack", msg_id))

    def fail(self, msg_id):
        self.told.append(("fail", msg_id))


def test_ack_and_fail_of_a_subclass_get_topic_partition_and_offset():
    with LocalCluster(simulated=True) as cluster:
        write(cluster, "in", "a", "b")
        run = started(cluster, Told("in"), Script(lambda tup, collector, count: collector.fail(tup) if count == 1 else collector.ack(tup)))
        assert run.components("in")[0].told == [("fail", ("in", 0, 0)), ("ack", ("in", 0, 1)), ("ack", ("in", 0, 0))]


def test_a_record_of_several_tuples_is_settled_when_all_of_them_are():
    """The first attempt fails in one tuple, and its other tuple is acked late: that must not settle the second attempt."""

    def script(tup, collector, count):
        if count == 1:
            held.append(tup)
        elif count == 2:
            collector.fail(tup)
        elif count == 3:
            collector.ack(held.pop())
            collector.ack(tup)
        elif count == 4:
            held.append(tup)
        else:
            collector.ack(held.pop())
            collector.ack(tup)

    held = []
    with LocalCluster(simulated=True) as cluster:
        write(cluster, "in", "one two")
        run = started(cluster, Told("in", translator=split, outputs=Fields("word", "offset")), Script(script))
        assert run.components("out")[0].count == 4
        assert committed(run) == {("in", 0): 0}
        assert run.components("in")[0].told == [("fail", ("in", 0, 0))]
        write(cluster, "in", "three")
        run.advance(1)
        assert committed(run) == {("in", 0): 2}
        assert run.components("in")[0].told == [("fail", ("in", 0, 0)), ("ack", ("in", 0, 0)), ("ack", ("in", 0, 1))]


def test_a_record_that_fails_in_all_its_tuples_is_emitted_again_once():
    with LocalCluster(simulated=True) as cluster:
        write(cluster, "in", "one two")
        run = started(
            cluster,
            KafkaSpout("in", translator=split, outputs=Fields("word", "offset")),
            Script(lambda tup, collector, count: collector.fail(tup) if count <= 2 else collector.ack(tup)),
        )
        assert run.components("out")[0].count == 4
        assert committed(run) == {("in", 0): 1}


def test_a_record_that_cannot_be_translated_the_second_time_is_settled_as_a_dead_letter():
    class Moody(KafkaSpout):
        def open(self, conf, context, collector):
            self.calls = 0

        def translate(self, *record):
            self.calls += 1
            if self.calls == 2:
                raise DeadLetter("not again")
            return super().translate(*record)

    with LocalCluster(simulated=True) as cluster:
        write(cluster, "in", "a")
        run = started(cluster, Moody("in"), Script(lambda tup, collector, count: collector.fail(tup)))
        assert [x["error"] for x in run.dead_letters()] == ["not again"]
        assert committed(run) == {("in", 0): 1}


@pytest.mark.parametrize("guarantee", ["AT_MOST_ONCE", "NO_GUARANTEE"])
def test_without_the_guarantee_nothing_is_tracked(guarantee):
    with LocalCluster(simulated=True) as cluster:
        write(cluster, "in", "a")
        run = started(cluster, KafkaSpout("in", processing_guarantee=guarantee), Script(lambda tup, collector, count: collector.fail(tup)), secs=3)
        assert run.components("out")[0].count == 1
        assert committed(run) == {("in", 0): 1}


def test_max_spout_pending_bounds_what_is_read():
    with LocalCluster(simulated=True) as cluster:
        write(cluster, "in", *range(100))
        run = started(cluster, KafkaSpout("in"), Script(lambda tup, collector, count: None), {"topology.max.spout.pending": 7})
        assert run.components("out")[0].count == 7
        assert committed(run) == {("in", 0): 0}


def test_a_deactivated_kafka_spout_reads_on_later():
    with LocalCluster(simulated=True) as cluster:
        run = started(cluster, KafkaSpout("in"), Keep())
        cluster.deactivate("t")
        write(cluster, "in", *"abc")
        run.advance(2)
        assert run.components("out")[0].seen == []
        cluster.activate("t")
        run.advance(1)
        assert len(run.components("out")[0].seen) == 3


# --- writing ----------------------------------------------------------------------------------------------------------


class Messages(Bolt):
    """Turns records into inputs of a KafkaBolt."""

    def prepare(self, conf, context, collector):
        self.collector = collector

    def execute(self, tup):
        number = json.loads(tup["value"])
        self.collector.emit((f"k{number}", number if number == 3 else f"m{number}", None if number == 2 else "even" if number % 2 == 0 else "odd"), anchors=tup)
        self.collector.ack(tup)

    def snapshot(self):
        return None

    def restore(self, state):
        pass

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("key", "message", "topic"))


def writing(bolt):
    builder = TopologyBuilder()
    builder.set_spout("in", Told("in"))
    builder.set_bolt("messages", Messages()).shuffle_grouping("in")
    builder.set_bolt("kafka", bolt).shuffle_grouping("messages")
    return builder.create_topology()


def test_a_kafka_bolt_writes_key_and_message_and_acks():
    with LocalCluster(simulated=True) as cluster:
        write(cluster, "in", 0, 1, 4)
        run = Run(cluster, "t", cluster.submit_topology("t", {}, writing(KafkaBolt("out"))))
        run.advance(1)
        assert [(r.key, r.value) for r in cluster.log.records("out")] == [(b"k0", b"m0"), (b"k1", b"m1"), (b"k4", b"m4")]
        assert [what for what, _ in run.components("in")[0].told] == ["ack"] * 3
        assert run.total("kafka", "acked") == 3


def test_a_tuple_may_name_its_topic_and_one_without_a_topic_is_acked_and_not_written():
    with LocalCluster(simulated=True) as cluster:
        write(cluster, "in", 0, 1, 2)
        run = Run(cluster, "t", cluster.submit_topology("t", {}, writing(KafkaBolt(topic_field="topic"))))
        run.advance(1)
        assert [r.value for r in cluster.log.records("even")] == [b"m0"]
        assert [r.value for r in cluster.log.records("odd")] == [b"m1"]
        assert [what for what, _ in run.components("in")[0].told] == ["ack"] * 3


def test_a_message_that_cannot_be_written_fails_at_once_and_is_reported():
    with LocalCluster(simulated=True) as cluster:
        write(cluster, "in", 1, 3, 4)
        run = Run(cluster, "t", cluster.submit_topology("t", {"topology.max.spout.pending": 10}, writing(KafkaBolt("out"))))
        run.advance(0.1)
        assert [r.value for r in cluster.log.records("out")] == [b"m1", b"m4"]
        assert ("fail", ("in", 0, 1)) in run.components("in")[0].told
        assert "A Kafka key or value is bytes, str or None" in run.errors("kafka")[0]
        assert "A Kafka key or value is bytes, str or None" in run.dead_letters()[0]["error"]


def test_a_kafka_bolt_needs_a_topic():
    with pytest.raises(IllegalArgumentException, match="needs a topic"):
        KafkaBolt()


# --- faults -----------------------------------------------------------------------------------------------------------


class Moody(Bolt):
    """Fails every fifth record at its first attempt."""

    def prepare(self, conf, context, collector):
        self.collector, self.known = collector, []

    def execute(self, tup):
        if tup["offset"] % 5 == 3 and tup["offset"] not in self.known:
            self.known.append(tup["offset"])
            self.collector.fail(tup)
            return
        self.collector.emit((str(tup["offset"]), tup["value"]), anchors=tup)
        self.collector.ack(tup)

    def snapshot(self):
        return self.known

    def restore(self, state):
        self.known = list(state)

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("key", "message"))


@pytest.mark.parametrize("seed", seeds(80))
def test_every_record_is_written_exactly_once_by_id_under_faults(seed):
    builder = TopologyBuilder()
    builder.set_spout("in", KafkaSpout("in", first_poll_strategy="LATEST"), 2)
    builder.set_bolt("moody", Moody()).global_grouping("in")
    builder.set_bolt("kafka", KafkaBolt("out"), 2).fields_grouping("moody", Fields("key"))
    now = [1_000_000]
    conf = {"topology.emulator.snapshot.interval.ms": 300, "topology.max.spout.pending": 4, "topology.emulator.transport": TRANSPORTS[seed % 2]}
    plan = TopologyPlan.build("t", "t-1-0", conf, builder.create_topology())
    log = MemoryLog(lambda: now[0])
    log.append("in", 0, None, b"old")
    sim = simulate(plan, log, lambda: now[0], seed=seed, faults=Faults.heavy())
    sim.activate()
    for step in range(40):
        if step in (1, 3):  # then there are no further records, on which waiting ones must not depend
            for number in range(30):
                log.append("in", number % 3, None, f"{number % 3}/{number // 3}/{step}".encode())
        sim.tick_clock()
        sim.run_until_quiet()
        now[0] += 200
    once = {dict(r.headers)["record-id"]: r.value for r in log.records("out")}
    assert Counter(once.values()) == Counter(f"{p}/{n}/{s}".encode() for p in range(3) for n in range(10) for s in (1, 3))
    positions = {(t, p): c for task in sim.stats.tasks.values() for t, p, _, c in task.get("kafka", ())}
    assert sorted(positions.values()) == [20, 20, 21]
    assert sim.dead_letters() == []
