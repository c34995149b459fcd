"""What a spout task emits, and when."""

import itertools
import random

import pytest

from dskype.topology import Fields, KafkaSpout, Spout, TopologyBuilder
from dskype.topology.core import kafka_spout as spouts
from dskype.topology.core.frames import encode_control, encode_pulse
from dskype.topology.core.kafka_spout import make_spout_task
from dskype.topology.core.spout import ServiceAwayError
from dskype.topology.errors import FatalError, TopologyError
from dskype.topology.planning.plan import TopologyPlan, inbox_topic
from dskype.topology.testing import IdentityBolt
from dskype.topology.tuples import InRecord


class Breaking(Spout):
    """Emits one tuple per call, and raises at the call after ``good`` of them."""

    def __init__(self, good):
        self._good = good

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("x"))

    def open(self, conf, context, collector):
        self._collector, self._calls = collector, 0

    def next_tuple(self):
        self._calls += 1
        if self._calls > self._good:
            raise ValueError("broken")
        self._collector.emit([self._calls])


def make_task(good, now_ms=lambda: 0):
    builder = TopologyBuilder()
    builder.set_spout("spout", Breaking(good))
    builder.set_bolt("bolt", IdentityBolt("x")).shuffle_grouping("spout")
    plan = TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0}, builder.create_topology())
    task = make_spout_task(plan, plan.component_tasks("spout")[0], now_ms, None, None, None)
    task.start()
    return plan, task


def pulse(plan, task, *values):
    topic = inbox_topic(plan.name, "spout")
    task.process([InRecord(topic, 0, task.version + i, 0, None, value) for i, value in enumerate(values)])
    return sum(out.emitted for out in task.outs.values())


def test_a_spout_emits_what_its_pulse_allows():
    plan, task = make_task(1000)
    assert pulse(plan, task, encode_control("activate", 0), encode_pulse(1, 0, 30)) == 30
    assert task.credit == 0


def test_how_long_a_spout_is_asked_follows_from_the_clock_of_the_simulation():
    plan, task = make_task(1000, itertools.count(0, 7).__next__)
    assert pulse(plan, task, encode_control("activate", 0), encode_pulse(1, 0, 30)) == 3 and task.unfinished, "of 20 ms"


def test_what_a_spout_emitted_before_it_broke_is_taken_off_its_credit():
    plan, task = make_task(20)
    assert pulse(plan, task, encode_control("activate", 0), encode_pulse(1, 0, 30)) == 20
    assert task.credit == 10
    assert pulse(plan, task, encode_pulse(2, 0, 5)) == 25
    assert task.credit == 0


@pytest.mark.parametrize("seed", range(10))
def test_records_that_arrive_faster_than_they_may_be_emitted_are_read_again(monkeypatch, seed):
    monkeypatch.setattr(spouts, "_BACKLOG_BYTES", 4_000)
    monkeypatch.setattr(spouts, "_READ_BYTES", 1_500)
    monkeypatch.setattr(spouts, "_READ_RECORDS", 5)
    rng, read = random.Random(seed), []
    topic = {p: [InRecord("t", p, i, 0, None, rng.randbytes(rng.choice((0, 10, 900)))) for i in range(150)] for p in (0, 1)}

    class Everything(KafkaSpout):
        def emit_records(self, records):
            emitted.extend((r.partition, r.offset) for r in records)
            return ()

    def reader(name, partition, start, stop):
        for record in topic[partition][start:stop]:
            read.append(record.offset)
            yield record

    emitted = []
    builder = TopologyBuilder()
    builder.set_spout("spout", Everything("t"))
    builder.set_bolt("bolt", IdentityBolt("x")).shuffle_grouping("spout")
    plan = TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0}, builder.create_topology())
    task = make_spout_task(plan, plan.component_tasks("spout")[0], lambda: 0, reader, None, None)
    task.start()
    send = [encode_control("activate", 0)]
    arrived = {0: 0, 1: 0}
    for number in range(400):
        if rng.random() < 0.5:
            p = rng.choice((0, 1))
            n = rng.randint(0, 20)
            task.process_external(topic[p][arrived[p] : arrived[p] + n])
            arrived[p] = min(150, arrived[p] + n)
        pulse(plan, task, *send, encode_pulse(number, 0, rng.randint(0, 2)))
        send = []
        assert sum(backlog.n_bytes for backlog in task._backlog.values()) <= 4_000 + 1_400 + 2 * (1_500 + 1_300)
    assert read and sorted(emitted) == [(p, i) for p in (0, 1) for i in range(150)]
    assert all(offsets == sorted(offsets) for offsets in ([i for q, i in emitted if q == p] for p in (0, 1)))


# --- failed records, and gaps ------------------------------------------------------------------------------------------


class Log:
    """Records of some partitions of topic t, with gaps; remembers what is read."""

    def __init__(self, *offsets, partitions=1):
        self.records = {p: [InRecord("t", p, offset, 0, None, b"%d" % offset) for offset in offsets] for p in range(partitions)}
        self.reads = []

    def read(self, topic, partition, start, stop):
        self.reads.append((partition, start, stop))
        return (r for r in self.records[partition] if start <= r.offset < stop)


def make_kafka_task(log, conf=None, **options):
    builder = TopologyBuilder()
    builder.set_spout("spout", KafkaSpout("t", **options))
    builder.set_bolt("bolt", IdentityBolt("x")).shuffle_grouping("spout")
    plan = TopologyPlan.build("t", "t-1-0", conf or {}, builder.create_topology())
    task = make_spout_task(plan, plan.component_tasks("spout")[0], lambda: 0, log.read, None, None)
    task.start()
    emitted = []
    emit = task._emit_record

    def note(record):
        emitted.append((record.partition, record.offset))
        emit(record)

    task._emit_record = note
    return plan, task, emitted


def fail_all(task):
    """Fail all trees that are not complete."""
    for tree in [*task._trees.newer.values(), *task._trees.older.values()]:
        task._end_trees([tree], False)
    task._trees.newer.clear()
    task._trees.older.clear()


def test_what_comes_with_gaps_is_not_read_again():
    """Between two records that the query brings one after the other there is nothing: the marker of a transaction, or what was compacted away."""
    log = Log(*range(3, 400, 2))
    plan, task, emitted = make_kafka_task(log)
    pulse(plan, task, encode_control("activate", 0))
    for number, record in enumerate(log.records[0]):
        task.process_external([record])
        pulse(plan, task, encode_pulse(number, 0, 10))
    assert [offset for _, offset in emitted] == list(range(3, 400, 2)) and log.reads == []


def test_after_a_crash_what_had_arrived_and_was_not_emitted_is_read_again_though_there_are_gaps():
    log = Log(*range(0, 40, 2))
    plan, task, emitted = make_kafka_task(log)
    pulse(plan, task, encode_control("activate", 0), encode_pulse(0, 0, 3))
    task.process_external(log.records[0][:10])
    state = task.snapshot()
    _, successor, more = make_kafka_task(log)
    successor.restore(state)
    successor.process_external(log.records[0][10:])  # the query goes on behind what it had brought
    pulse(plan, successor, encode_pulse(1, 0, 100))
    assert [offset for _, offset in emitted + more] == list(range(0, 40, 2))
    assert log.reads == [(0, 5, 39)]


@pytest.mark.long
def test_thousands_of_failed_records_are_read_in_few_reads_and_in_order():
    log = Log(*range(10_000), partitions=2)
    plan, task, emitted = make_kafka_task(log)
    pulse(plan, task, encode_control("activate", 0))
    for p in (0, 1):
        task.process_external(log.records[p])
    pulse(plan, task, encode_pulse(1, 0, 100_000))
    assert len(emitted) == 20_000
    emitted.clear()
    fail_all(task)
    while task._retries:
        pulse(plan, task, encode_pulse(2, 1, 4096))
    assert emitted == [(p, offset) for p in (0, 1) for offset in range(10_000)]
    assert len(log.reads) <= 6


def test_failed_records_that_are_far_apart_are_read_each_for_itself_and_those_between_are_not_emitted():
    log = Log(*range(2000))
    plan, task, emitted = make_kafka_task(log)
    task._max_secs = 60
    pulse(plan, task, encode_control("activate", 0))
    task.process_external(log.records[0])
    pulse(plan, task, encode_pulse(1, 0, 100_000))
    failing = {5, 7, 205, 500, 1900}
    for tree in [t for t in task._trees.newer.values() if t[1][2] in failing]:
        task._end_trees([tree], False)
    emitted.clear()
    pulse(plan, task, encode_pulse(2, 1, 4096))
    assert [offset for _, offset in emitted] == sorted(failing)
    assert log.reads == [(0, 5, 206), (0, 500, 501), (0, 1900, 1901)]


def test_a_turn_that_takes_too_long_leaves_failed_records_to_the_next_one():
    log = Log(*range(1000))
    plan, task, emitted = make_kafka_task(log)
    task._max_secs = -1
    pulse(plan, task, encode_control("activate", 0))
    task.process_external(log.records[0])
    pulse(plan, task, encode_pulse(1, 0, 100_000))
    for tree in [t for t in task._trees.newer.values() if t[1][2] in (1, 500, 900)]:
        task._end_trees([tree], False)
    emitted.clear()
    for number, expected in enumerate(([1], [1, 500], [1, 500, 900])):
        pulse(plan, task, encode_pulse(2 + number, 1, 4096))
        assert [offset for _, offset in emitted] == expected and task.unfinished == (len(expected) < 3)


def test_a_partition_that_cannot_be_read_now_holds_up_no_other():
    log = Log(*range(20), partitions=2)
    plan, task, emitted = make_kafka_task(log)
    state = task.snapshot()
    state |= {"next": [["t", 0, 0], ["t", 1, 0]], "arrived": [["t", 0, 20], ["t", 1, 20]]}
    task.restore(state)
    read, attempts = log.read, []

    def fails(topic, partition, start, stop):
        if partition == 0:
            attempts.append(start)
            raise OSError("the broker is away")
        return read(topic, partition, start, stop)

    task._reader = fails
    pulse(plan, task, encode_control("activate", 0), encode_pulse(1, 0, 100))
    assert emitted == [(1, offset) for offset in range(20)]
    assert "offsets 0 to 19 of t/0 cannot be read again now: OSError: the broker is away" in task.errors.lines[0]["error"]
    pulse(plan, task, encode_pulse(2, 1000, 100))
    assert len(attempts) == len(task.errors.lines) == 1  # an attempt may take long, so the next one waits
    task._reader = read
    pulse(plan, task, encode_pulse(3, 2000, 100))
    assert len(emitted) == 40


def test_what_can_never_be_read_again_ends_the_topology():
    log = Log(*range(20))
    plan, task, _ = make_kafka_task(log)
    state = task.snapshot() | {"next": [["t", 0, 0]], "arrived": [["t", 0, 20]]}
    task.restore(state)

    def unreadable(*_):
        raise FatalError("no codec")

    task._reader = unreadable
    with pytest.raises(FatalError, match="no codec"):
        pulse(plan, task, encode_control("activate", 0), encode_pulse(1, 0, 100))


@pytest.mark.parametrize("is_first", [True, False])
def test_records_wait_where_many_are_emitted_at_once_for_a_service_that_is_away(is_first):
    """An error that a later attempt may not have is none of the records' fault, also where another one came first."""

    class AwayError(TopologyError):
        retriable = True

    class Everything(KafkaSpout):
        def emit_records(self, records):
            if len(records) > 1 and not is_first:
                raise ValueError("one of them")
            raise AwayError("the service is away")

    builder = TopologyBuilder()
    builder.set_spout("spout", Everything("t"))
    builder.set_bolt("bolt", IdentityBolt(KafkaSpout.DEFAULT_FIELDS)).shuffle_grouping("spout")
    plan = TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0}, builder.create_topology())
    task = make_spout_task(plan, plan.component_tasks("spout")[0], lambda: 0, None, None, None)
    task.start()
    task.process_external([InRecord("t", 0, i, 0, None, b"x") for i in range(3)])
    with pytest.raises(ServiceAwayError, match="the service is away") as e:
        pulse(plan, task, encode_control("activate", 0), encode_pulse(1, 0, 30))
    assert e.value.retriable


@pytest.mark.parametrize("batched", [True, False])
def test_a_partition_that_always_has_records_keeps_none_back_of_the_others(batched):
    class OneByOne(KafkaSpout):
        def translate(self, topic, partition, offset, key, value, timestamp_ms, headers):
            emitted.append(partition)
            return [("default", (topic, partition, offset, key, value))]

    class Everything(OneByOne):
        def emit_records(self, records):
            emitted.extend(r.partition for r in records)
            return ()

    emitted = []
    builder = TopologyBuilder()
    builder.set_spout("spout", (Everything if batched else OneByOne)("t"))
    builder.set_bolt("bolt", IdentityBolt(KafkaSpout.DEFAULT_FIELDS)).shuffle_grouping("spout")
    plan = TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0}, builder.create_topology())
    task = make_spout_task(plan, plan.component_tasks("spout")[0], lambda: 0, None, None, None)
    task.start()
    for partition, n in ((0, 1000), (1, 1000), (2, 3)):
        task.process_external([InRecord("t", partition, i, 0, None, b"x") for i in range(n)])
    pulse(plan, task, encode_control("activate", 0), encode_pulse(1, 0, 30))
    assert [emitted.count(partition) for partition in range(3)] == [17, 10, 3], "the others get what one leaves over"
    for number in range(2, 8):
        pulse(plan, task, encode_pulse(number, 0, 1))
    assert [emitted.count(partition) for partition in range(3)] == [20, 13, 3], "each pulse begins with another one"
