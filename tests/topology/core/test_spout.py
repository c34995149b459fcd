"""What a spout task emits, and when."""

import random

import pytest

from dskype.topology import Fields, KafkaSpout, Spout, TopologyBuilder
from dskype.topology.core import backlog
from dskype.topology.core import spout as spouts
from dskype.topology.core.frames import encode_control, encode_pulse
from dskype.topology.core.spout import make_spout_task
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


def make_task(good):
    builder = TopologyBuilder()
    builder.set_spout("spout", Breaking(good))
    builder.set_bolt("bolt", IdentityBolt("x")).shuffle_grouping("spout")
    plan = TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0}, builder.create_topology())
    task = make_spout_task(plan, plan.component_tasks("spout")[0], lambda: 0, None, None)
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


def test_what_a_spout_emitted_before_it_broke_is_taken_off_its_credit():
    plan, task = make_task(20)
    assert pulse(plan, task, encode_control("activate", 0), encode_pulse(1, 0, 30)) == 20
    assert task.credit == 10
    assert pulse(plan, task, encode_pulse(2, 0, 5)) == 25
    assert task.credit == 0


@pytest.mark.parametrize("seed", range(10))
def test_records_that_arrive_faster_than_they_may_be_emitted_are_read_again(monkeypatch, seed):
    monkeypatch.setattr(spouts, "BACKLOG_BYTES", 4_000)
    monkeypatch.setattr(backlog, "_READ_BYTES", 1_500)
    monkeypatch.setattr(spouts, "READ_RECORDS", 5)
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
    task = make_spout_task(plan, plan.component_tasks("spout")[0], lambda: 0, reader, None)
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
    task = make_spout_task(plan, plan.component_tasks("spout")[0], lambda: 0, None, None)
    task.start()
    for partition, n in ((0, 1000), (1, 1000), (2, 3)):
        task.process_external([InRecord("t", partition, i, 0, None, b"x") for i in range(n)])
    pulse(plan, task, encode_control("activate", 0), encode_pulse(1, 0, 30))
    assert [emitted.count(partition) for partition in range(3)] == [17, 10, 3], "the others get what one leaves over"
    for number in range(2, 8):
        pulse(plan, task, encode_pulse(number, 0, 1))
    assert [emitted.count(partition) for partition in range(3)] == [20, 13, 3], "each pulse begins with another one"
