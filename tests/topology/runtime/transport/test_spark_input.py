"""What Spark passes to an executor in real time, over sockets: order, limits, what lies before and below, ends, and what is told to Spark. Without Spark and Kafka."""

from __future__ import annotations

import random
import selectors
import socket
import struct
import time
from types import SimpleNamespace

import pytest

from dskype.topology.runtime.transport import spark_input
from dskype.topology.runtime.transport.spark_input import HELLO, SparkInput
from dskype.topology.runtime.transport.wire import receive
from dskype.topology.tuples import InRecord

END = b"\xc0"


def framed(record: InRecord) -> bytes:
    """Return a record as the sink writes it (ExecutorWriter.java)."""

    def value(kind, data):
        return b"\xc0" if data is None else struct.pack(">BI", kind, len(data)) + data

    headers = record.headers and [part for name, text in record.headers for part in (value(0xDB, name.encode()), value(0xC6, text))]
    begin = struct.pack(">BBqBq", 0x95, 0xD3, record.offset, 0xD3, record.timestamp_ms) + value(0xC6, record.key) + value(0xC6, record.value)
    return begin + (b"\xc0" if headers is None else struct.pack(">BI", 0xDF, len(headers) // 2) + b"".join(headers))


def record(offset: int, value: bytes | None = b"v", partition: int = 0, key: bytes | None = None, headers=None) -> InRecord:
    return InRecord("in", partition, offset, 1_700_000_000_000 + offset, key, value, headers)


class Log:
    """The brokers, which are asked for what lies before."""

    def __init__(self) -> None:
        self.asked: list[tuple] = []

    def read(self, topic, partition, start, stop):
        self.asked.append((topic, partition, start, stop))
        return (record(offset, b"again", partition) for offset in range(start, stop))


class Spark:
    """The writing end of a Spark task."""

    def __init__(self, target: SparkInput, first: int, partition: int = 0) -> None:
        self.socket, other = socket.socketpair()
        self.socket.settimeout(10)
        target.add(other, HELLO.pack(first, partition) + b"in")

    def send(self, *records: InRecord) -> None:
        self.socket.sendall(b"".join(map(framed, records)))


def all_of(target: SparkInput, n: int, most: int = 100) -> list[InRecord]:
    found: list[InRecord] = []
    while len(found) < n:
        found += target.read(1.0, most)
    return found


def test_records_come_as_they_were_sent():
    target = SparkInput(Log(), {("in", 0): 5})
    spark = Spark(target, 5)
    sent = [
        record(5, b""),
        record(6, None, key=b""),
        record(7, b"x" * 300_000, key=b"k" * 70_000),
        record(8, b"v", headers=[]),
        record(9, headers=[("Grüße", b"1"), ("n", None), ("", b"")]),
    ]
    for one in sent[:2]:
        spark.send(one)
    assert all_of(target, 2) == sent[:2]
    spark.socket.setblocking(False)
    rest, found = b"".join(map(framed, sent[2:])), []
    while rest or len(found) < 3:  # more than the socket's buffers hold
        if rest:
            rest = rest[spark.socket.send(rest) :]
        found += target.read(0.01, 100)
    assert found == sent[2:]


@pytest.mark.parametrize("seed", range(5))
def test_any_pieces_of_several_partitions_keep_their_order_and_the_limit(seed):
    rng = random.Random(seed)
    target = SparkInput(Log(), {})
    sparks = [Spark(target, 0, p) for p in range(3)]
    left = [b"".join(framed(record(o, rng.randbytes(rng.randrange(200)), p)) for o in range(40)) for p in range(3)]
    found: list[InRecord] = []
    while len(found) < 120:
        for i in rng.sample(range(3), rng.randrange(4)):
            n = rng.randrange(20)
            sparks[i].socket.sendall(left[i][:n])
            left[i] = left[i][n:]
        most = rng.randrange(1, 9)
        some = target.read(0.0, most)
        assert len(some) <= most
        found += some
    assert [[r.offset for r in found if r.partition == p] for p in range(3)] == [list(range(40))] * 3


def test_what_a_predecessor_did_not_finish_is_read_first_and_what_is_done_is_left_out():
    log = Log()
    target = SparkInput(log, {("in", 0): 3, ("in", 1): 9})
    behind, ahead = Spark(target, 6, 0), Spark(target, 0, 1)
    behind.send(record(6), record(7))
    ahead.send(*(record(i, partition=1) for i in range(12)))
    found = all_of(target, 8, most=2)
    assert [(r.offset, r.value) for r in found if r.partition == 0] == [(3, b"again"), (4, b"again"), (5, b"again"), (6, b"v"), (7, b"v")]
    assert [r.offset for r in found if r.partition == 1] == [9, 10, 11]
    assert log.asked == [("in", 0, 3, 6)]


def test_a_task_that_begins_again_brings_nothing_twice_and_loses_nothing():
    target = SparkInput(Log(), {("in", 0): 0})
    first = Spark(target, 0)
    first.send(record(0), record(1))
    assert [r.offset for r in all_of(target, 2)] == [0, 1]
    first.socket.close()
    assert target.read(0.1, 10) == [] and not len(target)
    second = Spark(target, 0)
    second.send(*(record(i) for i in range(4)))
    assert [r.offset for r in all_of(target, 2)] == [2, 3]


def test_the_end_of_a_batch_is_answered_when_everything_before_is_processed():
    target = SparkInput(Log(), {})
    spark = Spark(target, 0)
    spark.socket.sendall(framed(record(0)) + framed(record(1)) + END)
    assert [r.offset for r in target.read(1.0, 10)] == [0, 1]
    spark.socket.setblocking(False)
    with pytest.raises(BlockingIOError):  # the caller has not processed it yet
        spark.socket.recv(1)
    spark.socket.setblocking(True)
    target.read(0.0, 10)
    assert receive(spark.socket) == b"\x02" and not len(target)
    again = Spark(target, 2)
    again.socket.sendall(END)
    target.read(1.0, 10)
    target.read(0.0, 10)
    assert receive(again.socket) == b"\x02"


def test_a_failure_is_told_to_every_task_and_a_wait_ends_when_somebody_connects(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as calls:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        calls.register(listener, selectors.EVENT_READ)
        target = SparkInput(Log(), {}, calls)
        sparks = [Spark(target, 0, p) for p in range(2)]
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(tmp_path / "s"))
            assert target.read(600.0, 10) == []
            accepted, _ = listener.accept()
            calls.register(accepted, selectors.EVENT_READ)
            assert target.read(0.0, 10) == []
            caller.sendall(b"hello")  # what the caller says first comes later than its call
            assert target.read(600.0, 10) == []
            accepted.close()
        target.fail(b"\x01why")
        assert [bytes(receive(spark.socket)) for spark in sparks] == [b"\x01why"] * 2 and not len(target)


@pytest.mark.parametrize("seed", range(20))
def test_through_ends_of_batches_repetitions_and_successors_each_record_is_processed_once_and_in_order(seed):
    """The input of one task. What was read is processed when more is read; a successor needs what was not processed."""
    rng = random.Random(seed)
    offsets = sorted(rng.sample(range(200), 120))  # transactions leave gaps
    log = [record(offset) for offset in offsets]

    class Brokers:
        def read(self, topic, partition, start, stop):
            return (r for r in log if start <= r.offset < stop)

    begin = at = 0  # of Spark's batch; where Spark is
    processed: list[int] = []
    pending: list[int] = []
    met = set()
    target = SparkInput(Brokers(), {("in", 0): 0})
    spark = Spark(target, 0)

    def read() -> None:
        found = target.read(0.0, rng.randrange(1, 9))
        processed.extend(pending)
        pending[:] = [r.offset for r in found]

    while at < 200 or len(processed) < len(log):
        event = rng.choices(["record", "read", "end", "again", "death"], [8, 6, 1, 0.5, 0.5])[0]
        met.add(event)
        if event == "record" and at < 200:
            spark.send(*(r for r in log if r.offset == at))
            at += 1
        elif event == "read":
            read()
        elif event == "end":
            spark.socket.sendall(END)
            while len(target):
                read()
            assert receive(spark.socket) == b"\x02" and processed[: len(before := [o for o in offsets if o < at])] == before, "Spark may commit this"
            begin, spark = at, Spark(target, at)
        elif event == "again":  # Spark's task begins where the batch began
            spark.socket.close()
            at, spark = begin, Spark(target, begin)
        elif event == "death":
            spark.socket.close()
            pending.clear()
            target = SparkInput(Brokers(), {("in", 0): processed[-1] + 1 if processed else 0})
            spark = Spark(target, at)
    assert processed == offsets and met == {"record", "read", "end", "again", "death"}


@pytest.mark.parametrize(
    ("first", "later", "most", "in_batches"),
    [
        (40, [40, 40, 10, 5], 10_000, [130, 5]),  # it grows while much comes within a pause
        (40, [0, 40], 10_000, [40, 40]),
        (10, [40], 10_000, [10, 40]),  # little comes alone: it is not to wait
        (40, [40, 40, 40], 100, [100, 20, 40]),
        (40, [40] * 8, 10_000, [200, 160]),  # four pauses bring the 150 kB of this test
    ],
)
def test_a_batch_grows_while_spark_has_much_more_up_to_its_limits(monkeypatch, first, later, most, in_batches):
    """What comes later comes in the pauses for which the input waits, and when a batch is done."""
    target = SparkInput(Log(), {})
    spark, sent, coming = Spark(target, 0), 0, [first, *later]

    def arrive(pause_s: float = 0.0) -> None:
        nonlocal sent
        if coming:
            n = coming.pop(0)
            spark.send(*(record(i, b"x" * 978) for i in range(sent, sent + n)))  # 1,004 bytes each
            sent += n

    monkeypatch.setattr(spark_input, "time", SimpleNamespace(monotonic=time.monotonic, sleep=arrive))
    monkeypatch.setattr(spark_input, "_BATCH_BYTES", 150_000)
    batches = []
    while coming or sum(batches) < sent:
        arrive()
        batches.append(len(target.read(0.0, most)))
    assert batches == in_batches and sent == first + sum(later)


@pytest.mark.parametrize(
    ("single", "coming", "most", "in_batches"),
    [
        (True, [1, 3, 2, 0, 4], 100, [6, 4]),  # a pause in which nothing comes ends the batch
        (True, [1] * 9, 100, [5, 4]),  # and so does the time
        (True, [1, 3, 2, 0, 4], 5, [5, 1, 4]),
        (False, [1, 3, 2, 0, 4], 100, [1, 3, 2, 4]),
    ],
)
def test_single_records_that_come_together_are_one_batch(monkeypatch, single, coming, most, in_batches):
    """What comes later comes in the pauses for which the input waits, each half a millisecond, and when a batch is done."""
    target = SparkInput(Log(), {}, single=single)
    spark, sent, now_s = Spark(target, 0), 0, 0.0

    def arrive(pause_s: float = 0.0) -> None:
        nonlocal sent, now_s
        now_s += pause_s
        if coming:
            n = coming.pop(0)
            spark.send(*(record(i) for i in range(sent, sent + n)))
            sent += n

    monkeypatch.setattr(spark_input, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=arrive))
    batches = []
    while coming or sum(batches) < sent:
        arrive()
        batches += [n] if (n := len(target.read(0.0, most))) else []
    assert batches == in_batches


def test_an_executor_that_is_slow_makes_spark_wait():
    """What it has not taken stays in the socket, however often it looks."""
    target = SparkInput(Log(), {})
    spark = Spark(target, 0)
    spark.socket.setblocking(False)
    sent, rest, found = 0, b"".join(framed(record(i, b"x" * 1000)) for i in range(6000)), []
    while len(found) < 60 and sent < 2_000_000:
        try:
            while sent < 2_000_000:
                sent += spark.socket.send(rest[sent : sent + 65536])
        except BlockingIOError:
            found += target.read(0.0, 1)
    assert [r.offset for r in found] == list(range(60)) and sent < 2_000_000
