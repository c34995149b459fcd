"""The parts of a task, each alone: clock, error reports, dead letters, records for other topics, watermarks."""

import pyarrow as pa
import pytest

from dskype.topology import BaseBolt, Spout, TopologyBuilder
from dskype.topology.config import Config
from dskype.topology.core.channels import FrameLimits, Outbox
from dskype.topology.core.dead_letters import DeadLetters, packed
from dskype.topology.core.error_reports import ErrorReports
from dskype.topology.core.frames import decode_frame
from dskype.topology.core.out_streams import make_out_streams
from dskype.topology.core.record_sender import RecordSender
from dskype.topology.core.stats import TaskStats
from dskype.topology.core.task_clock import TaskClock
from dskype.topology.core.values import unpack_state
from dskype.topology.core.watermarks import TaskWatermarks
from dskype.topology.errors import DeadLetter, IllegalArgumentException
from dskype.topology.planning.plan import TopologyPlan

# -- clock ----------------------------------------------------------------------------------------


def test_a_clock_follows_timestamps_and_never_goes_back():
    clock = TaskClock()
    times = []
    for timestamp_ms in (5, 3, 1 << 40, 9):
        clock.advance(timestamp_ms)
        times.append(clock.now_ms)
    assert times == [5, 5, 1 << 40, 1 << 40]


def test_the_clock_of_the_topology_corrects_timestamps_and_limits_them():
    clock = TaskClock()
    clock.tell(1_000_000, 400_000)  # the brokers' clock is 600 s behind
    assert clock.now_ms == 1_000_000 and clock.broker_ms == 400_000
    clock.advance(460_001)
    assert clock.now_ms == 1_000_000, "more than 60 s beyond the first record of the topology's clock"
    clock.advance(460_000)
    assert clock.now_ms == 1_060_000
    clock.tell(1_070_000, 470_000)
    clock.advance(470_000 + 140_001)
    assert clock.now_ms == 1_070_000, "more than two intervals beyond a later one"
    clock.advance(470_000 + 140_000)
    assert clock.now_ms == 1_210_000


def test_a_restored_clock_continues_and_one_of_an_earlier_version_begins_untold():
    clock, again, old = TaskClock(), TaskClock(), TaskClock()
    clock.tell(1_000_000, 400_000)
    state = clock.snapshot()
    again.restore(state)
    old.restore({"clock_ms": state["clock_ms"]})
    for other, now_ms in ((again, 1_000_000), (old, 1_500_000)):
        other.advance(900_000 if other is again else 1_500_000)
        assert other.now_ms == now_ms


# -- error reports --------------------------------------------------------------------------------


def reports(now: list[int]) -> tuple[ErrorReports, TaskStats]:
    stats = TaskStats()
    conf = {Config.TOPOLOGY_ERROR_THROTTLE_INTERVAL_SECS: 10, Config.TOPOLOGY_MAX_ERROR_REPORT_PER_INTERVAL: 2}
    return ErrorReports("c", 3, conf, stats, lambda: now[0]), stats


def test_an_interval_has_so_many_reports_and_all_are_counted():
    now = [100_000]
    errors, stats = reports(now)
    for text in "abcd":
        errors.add(text, suppressed=text == "a")
    assert [line["error"] for line in errors.take()] == ["b", "c"] and stats.errors == 4
    now[0] += 9_999
    errors.add("e", suppressed=False)
    assert not errors.take()
    now[0] += 1
    errors.add(ValueError("f"), suppressed=False)
    assert errors.take() == [{"v": 1, "kind": "error", "component": "c", "task": 3, "time_ms": 110_000, "error": "ValueError: f"}]


def test_reports_are_taken_back_with_the_room_that_they_took():
    errors, _ = reports([100_000])
    errors.add("a", suppressed=False)
    checkpoint = errors.checkpoint()
    errors.add("b", suppressed=False)
    errors.roll_back(checkpoint)
    errors.add("c", suppressed=False)
    assert [line["error"] for line in errors.lines] == ["a", "c"]


# -- dead letters ---------------------------------------------------------------------------------


def test_a_dead_letter_is_cut_and_says_so():
    letters = DeadLetters("t.dead-letters", "c", 3, 10)
    letters.add(b"k" * 5000, b"v" * 11, DeadLetter("why", "code"), "decode", ("in", 1, 7), ("more", "x" * 5000))
    letters.add(None, None, DeadLetter("gone", "lost"), "read", ("in", 0, 0))
    long, empty = letters.take()
    headers = dict(long.headers)
    assert (long.topic, long.key, long.value) == ("t.dead-letters", b"k" * 4096, b"v" * 10)
    assert {name: headers[name] for name in ("error", "code", "offset", "size", "key-size", "truncated")} == {
        "error": b"why",
        "code": b"code",
        "offset": b"7",
        "size": b"11",
        "key-size": b"5000",
        "truncated": b"true",
    }
    assert headers["more"] == b"x" * 4096
    assert empty.value is None and not {"size", "key-size", "truncated"} & dict(empty.headers).keys()
    assert not letters.take()


def test_values_that_cannot_be_packed_become_text():
    class Unshowable:
        def __repr__(self):
            raise RuntimeError

    assert unpack_state(packed((1, "a"))) == [1, "a"]
    assert packed([print]) == b"[<built-in function print>]"
    assert packed([Unshowable()]) == b"a list that cannot be shown"


# -- records --------------------------------------------------------------------------------------


def sender(max_bytes: int = 100) -> tuple[RecordSender, list]:
    refused: list = []
    return RecordSender("c", "9-", max_bytes, lambda *record: refused.append(record)), refused


def test_records_are_numbered_whether_they_come_alone_or_as_columns():
    records, refused = sender()
    assert records.send("out", "key", b"1", [("h", b"x")], partition=2)
    assert records.send_columns("out", None, pa.array([b"2", b"3"]), []) == 2
    assert records.send("out", None, None)
    one, many, last = records.take()
    assert one == ("out", 2, b"key", b"1", [("record-id", b"9-0"), ("h", b"x")])
    assert dict(many.headers)["record-id"].to_pylist() == ["9-1", "9-2"]
    assert last.headers == [("record-id", b"9-3")] and records.sent == 4 and not refused


def test_a_record_that_is_too_large_is_refused_and_takes_no_number():
    records, refused = sender(max_bytes=10)
    assert not records.send("out", b"12345", b"123456")
    assert records.send_columns("out", pa.array([b"k", None, b"m"]), pa.array([b"1", b"2" * 11, b"3"]), []) == 2
    assert refused == [("out", b"12345", b"123456", 11), ("out", None, b"2" * 11, 11)]
    (columns,) = records.take()
    assert columns.values.to_pylist() == [b"1", b"3"] and records.sent == 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("a/b", None, b""), IllegalArgumentException),
        (("..", None, b""), IllegalArgumentException),
        (("out", 1, b""), TypeError),
        (("out", None, b"", [("h", "text")]), TypeError),
        (("out", None, b"", (), -1), TypeError),
    ],
)
def test_what_kafka_does_not_take_is_an_error(arguments, error):
    records, _ = sender()
    with pytest.raises(error):
        records.send(*arguments)
    assert not records.take()


def test_records_are_taken_back_with_their_numbers():
    records, _ = sender()
    records.send("out", None, b"1")
    checkpoint = records.checkpoint()
    records.send("out", None, b"2")
    records.roll_back(checkpoint)
    records.send("out", None, b"3")
    assert [(record.value, record.headers) for record in records.take()] == [(b"1", [("record-id", b"9-0")]), (b"3", [("record-id", b"9-1")])]
    records.send("out", None, b"of prepare")
    records.restore(7)
    assert not records.take() and records.sent == 7


# -- watermarks -----------------------------------------------------------------------------------


class Source(Spout):
    emits_watermarks = True

    def next_tuple(self):
        pass

    def declare_output_fields(self, declarer):
        declarer.declare("x")


class Passes(BaseBolt):
    def execute(self, tup):
        pass

    def declare_output_fields(self, declarer):
        declarer.declare("x")


class Waits(Passes):
    def on_watermark(self, watermark):
        pass


def watermarks() -> tuple[TaskWatermarks, Outbox, list[int]]:
    builder = TopologyBuilder()
    builder.set_spout("source", Source(), 2)
    builder.set_bolt("middle", Passes()).shuffle_grouping("source")
    builder.set_bolt("end", Waits(), 2).all_grouping("middle")
    plan = TopologyPlan.build("t", "t-1-0", {Config.TOPOLOGY_ACKER_EXECUTORS: 0}, builder.create_topology())
    (task,) = plan.component_tasks("middle")
    outs = make_out_streams(plan, task, None)
    outbox = Outbox(task, lambda target: ("inbox", target), FrameLimits(10, 1000, 1000, lambda *tuple_: None))
    return TaskWatermarks(plan, "middle", outs.values()), outbox, plan.component_tasks("source")


def test_the_watermark_of_a_bolt_is_the_lowest_of_all_its_sources():
    marks, _, (first, second) = watermarks()
    assert marks.receive(first, 5) is None
    assert marks.receive(second, 3) == 3
    assert marks.receive(second, 2) is None, "it never falls"
    assert marks.receive(second, 9) == 5
    assert marks.raise_to(5) and not marks.raise_to(5) and not marks.raise_to(4) and marks.own == 5


def test_a_watermark_goes_once_to_those_who_wait_for_it():
    marks, outbox, _ = watermarks()
    marks.send(outbox)
    assert not outbox.flush(suppressed=False)
    marks.raise_to(7)
    for _ in range(2):
        marks.send(outbox)
    assert [[s.watermark for s in decode_frame(record.value).segments] for record in outbox.flush(suppressed=False)] == [[7], [7]]


def test_a_task_that_is_held_gets_the_newest_watermark_behind_what_was_held_back():
    marks, outbox, _ = watermarks()
    first, second = marks._takers
    marks.hold([first])
    marks.raise_to(7)
    marks.send(outbox)
    marks.raise_to(8)
    marks.let_go(outbox, [first])
    marks.raise_to(9)
    marks.send(outbox)

    def sent():
        return {r.partition: [s.watermark for s in decode_frame(r.value).segments] for r in outbox.flush(suppressed=False)}

    assert sent() == {first: [8, 9], second: [7, 9]}
    marks.hold([first, second])
    marks.raise_to(10)
    marks.hold_none()
    marks.send(outbox)
    assert sent() == {first: [10], second: [10]}
