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
    """What a spout asks its context for; the clock may differ from the broker's."""

    def __init__(self, skew_ms=0):
        self.now_ms, self.skew_ms = START, skew_ms
        builder = TopologyBuilder()
        builder.set_spout("message-spout", MessageSpout("m"))
        self.plan = TopologyPlan.build("t", "t-1-0", {}, builder.create_topology())

    def clock_ms(self):
        return self.now_ms + self.skew_ms

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


def opened(conf, skew_ms=0):
    spout, context, collector = MessageSpout("m"), Context(skew_ms), Collector()
    spout.open({"dskype.window.span.ms": 60_000, **conf}, context, collector)
    return spout, context, collector


def record(offset, own_ms, arrival_ms):
    value = json.dumps({"text": "lake", "lat": 0, "lon": 0, "ts": own_ms}).encode()
    return InRecord("m", 0, offset, arrival_ms, None, value, [])


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
        refused = [r.offset for r, error in spout.emit_records(records) if error.code == "late"]
        assert refused == [r.offset for r, _ in again.emit_records(records)] and other.watermark == collector.watermark == expected
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
    spout.emit_records([record(0, START - 10, START), record(1, START + 30_000, START)])
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
