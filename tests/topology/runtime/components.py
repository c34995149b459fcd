"""Components of the tests on Spark and Kafka."""

from __future__ import annotations

import time
from collections import Counter

from dskype.topology import BasicBolt, Bolt, Fields, Spout, StormTopology, TopologyBuilder, is_tick

KEYS = 17


class PacedNumbers(Spout):
    """Emits (i, i % KEYS) for i = 0 .. total-1, at ``rate`` per second of its own time.

    :param rate: numbers per second; 0 for no limit.
    :param tracked: emit with message ids.
    """

    def __init__(self, total: int, rate: float = 0, tracked: bool = False) -> None:
        self.total, self.rate, self.tracked = total, rate, tracked

    def open(self, conf, context, collector):
        self.collector, self.next = collector, 0
        self.began = None

    def next_tuple(self):
        if self.began is None:
            self.began, self.first = time.monotonic(), self.next
        due = self.next - self.first < self.rate * (time.monotonic() - self.began) if self.rate else True
        if due and self.next < self.total:
            self.collector.emit((self.next, self.next % KEYS), message_id=self.next if self.tracked else None)
            self.next += 1

    def snapshot(self):
        return self.next

    def restore(self, state):
        self.next = state

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("number", "key"))


class RunningSum(BasicBolt):
    """Sums numbers by key and emits the sum so far; a tuple that is lost or counted twice changes all later sums."""

    def prepare(self, conf, context):
        self.sums = {}

    def execute(self, tup, collector):
        number, key = tup["number"], tup["key"]
        self.sums[key] = self.sums.get(key, 0) + number
        collector.emit((self.sums[key], key))

    def snapshot(self):
        return self.sums

    def restore(self, state):
        self.sums = dict(state)

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("number", "key"))


class Recorder(Bolt):
    """Writes the values of every input to a topic as text, and acks it."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def prepare(self, conf, context, collector):
        self.collector = collector

    def execute(self, tup):
        if not is_tick(tup):
            self.collector.send_record(self.topic, None, repr(tuple(tup.values)).encode())
        self.collector.ack(tup)


def magic_number(topic, partition, offset, key, value, timestamp_ms, headers):
    """Translate records: the byte ``N`` and a number; an exception for everything else."""
    if value[0] != ord("N"):
        raise ValueError(f"the record does not begin with the byte N; given: {value[:4]!r}")
    return [("default", (int(value[1:]),))]


def sum_chain(out: str, total: int, rate: float) -> tuple[StormTopology, dict]:
    """Return spout -> running sum -> running sum of these -> recorder, with a configuration."""
    builder = TopologyBuilder()
    builder.set_spout("numbers", PacedNumbers(total, rate))
    builder.set_bolt("first", RunningSum(), 2).set_num_tasks(3).fields_grouping("numbers", Fields("key"))
    builder.set_bolt("second", RunningSum(), 2).fields_grouping("first", Fields("key"))
    builder.set_bolt("sink", Recorder(out)).global_grouping("second")
    return builder.create_topology(), {"topology.acker.executors": 0, "topology.emulator.snapshot.interval.ms": 1000}


def sums_expected(total: int) -> Counter[bytes]:
    """Return the output that :func:`sum_chain` must write."""
    first, second, found = Counter(), Counter(), Counter()
    for number in range(total):
        key = number % KEYS
        first[key] += number
        second[key] += first[key]
        found[repr((second[key], key)).encode()] += 1
    return found


class Diary:
    """A file to which components on this machine append lines."""

    def __init__(self, path) -> None:
        self.path = str(path)

    def note(self, line: str) -> None:
        """Append a line; one write, so lines of different processes do not mix."""
        with open(self.path, "ab", buffering=0) as file:
            file.write(f"{line}\n".encode())

    def lines(self) -> list[str]:
        """Return all lines."""
        try:
            with open(self.path, encoding="utf-8") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []


class DiarySpout(PacedNumbers):
    """Logs its lifecycle, acks and fails."""

    def __init__(self, diary: Diary, total: int, rate: float = 0) -> None:
        super().__init__(total, rate, tracked=True)
        self.diary = diary

    def open(self, conf, context, collector):
        super().open(conf, context, collector)
        self.diary.note("spout open")

    def activate(self):
        self.diary.note("spout activate")

    def deactivate(self):
        self.diary.note("spout deactivate")

    def close(self):
        self.diary.note("spout close")

    def ack(self, msg_id):
        self.diary.note(f"ack {msg_id}")

    def fail(self, msg_id):
        self.diary.note(f"fail {msg_id}")


class DiaryBolt(Bolt):
    """Logs its lifecycle and ticks, and acks its inputs."""

    def __init__(self, diary: Diary) -> None:
        self.diary = diary

    def prepare(self, conf, context, collector):
        self.collector = collector
        self.diary.note("bolt prepare")

    def execute(self, tup):
        if is_tick(tup):
            self.diary.note("bolt tick")
        self.collector.ack(tup)

    def cleanup(self):
        self.diary.note("bolt cleanup")


class Split(Bolt):
    """Emits each number on two streams, anchored, and acks it; it fails every number with remainder 5 of 11."""

    def prepare(self, conf, context, collector):
        self.collector = collector

    def execute(self, tup):
        self.collector.emit((tup["number"],), stream="left", anchors=tup)
        self.collector.emit((tup["number"],), stream="right", anchors=tup)
        (self.collector.fail if tup["number"] % 11 == 5 else self.collector.ack)(tup)

    def declare_output_fields(self, declarer):
        declarer.declare_stream("left", Fields("number"))
        declarer.declare_stream("right", Fields("number"))


class Breaks(Bolt):
    """Raises on one number, and emits the others."""

    def __init__(self, number: int, diary: Diary) -> None:
        self.number, self.diary = number, diary

    def prepare(self, conf, context, collector):
        self.collector = collector
        self.diary.note("breaks prepare")

    def execute(self, tup):
        if tup["number"] == self.number:
            raise ValueError(f"I do not like {self.number}")
        self.collector.emit((tup["number"],), anchors=tup)
        self.collector.ack(tup)

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("number"))


class WordSpout(Spout):
    """Emits the words of a text, ``times`` over."""

    def __init__(self, text: str, times: int) -> None:
        self.words, self.left = text.split() * times, 0

    def open(self, conf, context, collector):
        self.collector, self.left = collector, list(self.words)

    def next_tuple(self):
        if self.left:
            self.collector.emit((self.left.pop(),))

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("word"))


class WordCount(BasicBolt):
    """Counts words and emits (word, count)."""

    def prepare(self, conf, context):
        self.counts = {}

    def execute(self, tup, collector):
        count = self.counts[tup["word"]] = self.counts.get(tup["word"], 0) + 1
        collector.emit((tup["word"], count))

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("word", "count"))
