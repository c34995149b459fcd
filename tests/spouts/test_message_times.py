"""Which messages are late with time windows: the message spout alone, against the plain rule."""

import json
import random

import pytest

from dskype.spouts.kafka import MessageSpout
from dskype.topology import TopologyBuilder
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.tuples import InRecord
from tests import naive

START = 1_700_000_000_000


class Context:
    """What a spout asks its context for; the clock may differ from the broker's.

    :ivar waiting: (topic, partition) -> whether it has records that the spout was not given.
    :ivar asked: how often the brokers were asked for that.
    """

    def __init__(self, skew_ms=0, partitions=1):
        self.now_ms, self.skew_ms = START, skew_ms
        self.waiting, self.asked = {("m", partition): False for partition in range(partitions)}, 0
        builder = TopologyBuilder()
        builder.set_spout("message-spout", MessageSpout("m"))
        self.plan = TopologyPlan.build("t", "t-1-0", {}, builder.create_topology())

    def clock_ms(self):
        return self.now_ms + self.skew_ms

    def broker_ms(self):
        return self.now_ms

    def waiting_partitions(self):
        self.asked += 1
        return dict(self.waiting)

    def get_this_task_id(self):
        return 1

    def get_this_component_id(self):
        return "message-spout"

    def get_component_tasks(self, component):
        return [1]

    def get_this_task_index(self):
        return 0


class Collector:
    def __init__(self):
        self.watermark, self.positions = -1, []

    def emit_batch(self, columns, stream):
        assert min(columns[1]) > self.watermark, "nothing may follow that a watermark has passed"
        self.positions += [int(p) for p in columns[1]]

    def emit_watermark(self, watermark):
        assert watermark > self.watermark
        self.watermark = watermark

    def send_record(self, topic, key, value):
        pass


def opened(conf, skew_ms=0, partitions=1):
    spout, context, collector = MessageSpout("m"), Context(skew_ms, partitions), Collector()
    spout.open({"dskype.window.span.ms": 60_000, **conf}, context, collector)
    return spout, context, collector


def record(offset, own_ms, arrival_ms, partition=0):
    value = json.dumps({"text": "lake", "lat": 0, "lon": 0, "ts": own_ms}).encode()
    return InRecord("m", partition, offset, arrival_ms, None, value, [])


def give(spout, records):
    """Give a spout records of one partition and then let it handle a pulse, as its task does; return the offsets of those that it refuses as late."""
    refused = spout.emit_records(records)
    spout.next_tuple()
    return [r.offset for r, error in refused if error.code == "late"]


@pytest.mark.parametrize("seed", range(30))
def test_what_is_late_follows_the_plain_rule_and_a_replay_finds_the_same(seed):
    rng = random.Random(seed)
    lateness = rng.choice([0, 50, 1000])
    spout, _, collector = opened({"dskype.window.lateness.ms": lateness})
    steps, offset, now = [], 0, START
    for _ in range(20):
        step = []
        for _ in range(rng.randint(0, 6)):
            now += rng.randint(0, 100)
            step.append((now + rng.choice([0, -30, -600, -2_000, 5, 59_000]), now))
        steps.append(step)
    watermarks, late = naive.message_watermarks(steps, lateness)
    found_late = []
    for step, expected in zip(steps, watermarks):
        records = [record(offset + i, own, arrival) for i, (own, arrival) in enumerate(step)]
        again, _, other = opened({"dskype.window.lateness.ms": lateness})  # the same from a snapshot
        again.restore(spout.snapshot())
        other.watermark = collector.watermark
        refused = give(spout, records)
        assert refused == give(again, records) and other.watermark == collector.watermark == expected
        assert spout.snapshot() == again.snapshot()
        found_late += refused
        offset += len(step)
    assert found_late == late
    messages = [message for step in steps for message in step]
    assert all(own < arrival - lateness for own, arrival in (messages[n] for n in late)), "it arrived within the lateness of its own time"


@pytest.mark.parametrize("skew_ms", [0, -3_600_000, 45_000])
def test_when_it_is_quiet_the_watermark_follows_the_clock_up_to_messages_ahead(skew_ms):
    """Whatever our clock shows: only how fast it goes matters."""
    spout, context, collector = opened({"dskype.window.idle.ms": 500, "dskype.window.lateness.ms": 200}, skew_ms)
    give(spout, [record(0, START - 10, START), record(1, START + 30_000, START)])
    assert collector.watermark == START - 201
    for after_ms, expected in (
        (499, START - 201),
        (500, START),
        (700, START),
        (5_700, START + 5_000),
        (30_699, START + 29_999),
        (30_700, START + 30_000),
        (99_000, START + 30_000),
    ):
        context.now_ms = START + after_ms
        spout.next_tuple()
        assert collector.watermark == expected, after_ms


def test_the_backlog_of_one_partition_makes_no_message_of_another_one_late():
    """One partition is read to its end before the other one is begun: what waits there holds the watermark."""
    spout, context, collector = opened({"dskype.window.lateness.ms": 50}, partitions=2)
    first, second = ([record(i, START + 20 * i + 10 * p, START + 20 * i + 10 * p, p) for i in range(100)] for p in range(2))
    context.now_ms, context.waiting["m", 1] = START + 2_000, True
    assert not give(spout, first) and collector.watermark == -1
    assert not give(spout, second[:60]) and collector.watermark == START + 59 * 20 + 10 - 51
    context.waiting["m", 1] = False
    assert not give(spout, second[60:])
    assert collector.watermark == first[-1].timestamp_ms - 51 and len(collector.positions) == 200


def test_a_partition_that_was_read_to_its_end_holds_the_watermark_for_the_idle_time_only():
    spout, context, collector = opened({"dskype.window.lateness.ms": 50, "dskype.window.idle.ms": 300}, partitions=2)
    give(spout, [record(0, START, START, 1)])
    for i in range(1, 15):
        context.now_ms = START + 20 * i
        assert not give(spout, [record(i, context.now_ms, context.now_ms)])
        assert collector.watermark == START - 51 and context.asked == 1, "the other partition may hold messages that arrived meanwhile"
    context.now_ms = START + 300
    assert not give(spout, [record(15, START + 300, START + 300)])
    assert collector.watermark == START + 249 and context.asked == 2, "the brokers have nothing more there"
    context.waiting["m", 1], context.now_ms = True, START + 600
    give(spout, [record(16, START + 600, START + 600)])
    assert collector.watermark == START + 249 and context.asked == 3, "now they have"
    assert not give(spout, [record(1, START + 260, START + 310, 1)])


@pytest.mark.parametrize("batch_ms", [400, 600, 1000, 2000])
def test_while_messages_come_no_batch_is_too_slow(batch_ms):
    """Each batch gives the spout its messages first, and then the pulses of the same time."""
    rng = random.Random(batch_ms)
    spout, context, collector = opened({"dskype.window.lateness.ms": 1000})
    arrivals = range(START, START + 8_000, 20)
    for begin in range(START, START + 8_000, batch_ms):
        arrived = [t for t in arrivals if begin <= t < begin + batch_ms]
        assert not spout.emit_records([record(t - START, t - rng.choice([0, 300]), t) for t in arrived])
        for pulse in range(begin, begin + batch_ms, 20):
            context.now_ms = pulse
            spout.next_tuple()
    assert collector.watermark == max(collector.positions) - 1001 and len(collector.positions) == 400


def test_messages_that_were_not_read_are_no_pause():
    """A spout that has stood still sees pulses of a later time before all messages of an earlier one."""
    spout, context, collector = opened({"dskype.window.lateness.ms": 1000, "dskype.window.idle.ms": 500})
    give(spout, [record(0, START, START)])
    context.now_ms, context.waiting["m", 0] = START + 5_000, True
    for _ in range(3):
        spout.next_tuple()
    assert collector.watermark == START - 1001 and context.asked == 2, "the brokers are not asked at each pulse while messages wait"
    assert not give(spout, [record(1, START - 900, START + 10)])
    context.waiting["m", 0], context.now_ms = False, START + 5_500
    spout.next_tuple()
    assert collector.watermark == START


def test_without_an_answer_of_the_brokers_the_watermark_stands():
    spout, context, collector = opened({"dskype.window.idle.ms": 500}, partitions=2)
    context.waiting.clear()
    give(spout, [record(0, START, START)])
    context.now_ms = START + 5_000
    spout.next_tuple()
    assert collector.watermark == -1
    context.waiting |= {("m", 0): False, ("m", 1): False}
    spout.next_tuple()
    assert collector.watermark == -1, "not asked again at once"
    context.now_ms += 500
    spout.next_tuple()
    assert collector.watermark == START


def test_a_snapshot_of_an_earlier_version_is_read():
    """It has the clock at the last message in place of the partitions."""
    spout, context, collector = opened({"dskype.window.lateness.ms": 50})
    spout.restore([7, START, START + 10, START, START - 51, START])
    give(spout, [record(9, START + 100, START + 100)])
    assert collector.watermark == START + 49 and spout.snapshot()[:2] == [8, START + 100]


def test_with_a_count_window_the_brokers_are_not_asked():
    spout, context, collector = opened({"dskype.window.span.ms": None, "dskype.window.messages": 3}, partitions=2)
    give(spout, [record(0, START, START)])
    assert collector.watermark == 0 and not context.asked
