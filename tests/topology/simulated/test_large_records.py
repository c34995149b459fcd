"""Records and texts that are too large or cannot be encoded: each is reported or becomes a dead letter that a sink accepts."""

import json

import pyarrow as pa
import pytest

from dskype.topology import BasicBolt, Bolt, Fields, KafkaBolt, KafkaSpout, TopologyBuilder
from dskype.topology.core.frames import OutRecord
from dskype.topology.local import LocalCluster
from dskype.topology.simulated.log import MAX_RECORD_BYTES, MemoryLog, RecordTooLargeError

from .storm_helpers import Keep, Life, Run, running

LETTER = 65536


def refuse(topic, partition, offset, key, value, timestamp_ms, headers):
    """Accepts numbers only."""
    return [("default", (json.loads(value),))]


def reading(cluster, conf=None, bolt=None):
    builder = TopologyBuilder()
    builder.set_spout("in", KafkaSpout("in", translator=refuse, outputs=Fields("n")))
    builder.set_bolt("out", bolt or Keep()).shuffle_grouping("in")
    run = Run(cluster, "t", cluster.submit_topology("t", conf or {}, builder.create_topology()))
    run.advance(1)
    return run


def test_the_simulated_sink_refuses_what_a_broker_refuses():
    log = MemoryLog(lambda: 0)
    log.write(OutRecord("t", 0, None, b"x" * (MAX_RECORD_BYTES - 100)))
    with pytest.raises(RecordTooLargeError, match="16777216"):
        log.write(OutRecord("t", 0, b"k" * 100, b"x" * MAX_RECORD_BYTES))


@pytest.mark.parametrize("size", [LETTER, LETTER + 1, 20 << 20])
def test_a_dead_letter_holds_the_beginning_of_a_large_record_and_says_its_size(size):
    with LocalCluster(simulated=True) as cluster:
        for value in (b"1", b"x" * size, b"2"):
            cluster.log.append("in", 0, b"key", value)
        run = reading(cluster)
        assert run.components("out")[0].seen == [(1,), (2,)]
        (letter,) = run.sim.dead_letters()
        headers = dict(letter.headers)
        assert letter.value == b"x" * min(size, LETTER) and letter.key == b"key"
        assert (headers["size"], headers.get("truncated")) == (str(size).encode(), b"true" if size > LETTER else None)
        assert (headers["topic"], headers["offset"], headers["stage"]) == (b"in", b"1", b"translate")


@pytest.mark.long
def test_keys_and_errors_of_dead_letters_are_cut_too():
    def complain(topic, partition, offset, key, value, timestamp_ms, headers):
        raise ValueError("e" * (20 << 20))

    builder = TopologyBuilder()
    builder.set_spout("in", KafkaSpout("in", translator=complain, outputs=Fields("n")))
    builder.set_bolt("out", Keep()).shuffle_grouping("in")
    with LocalCluster(simulated=True) as cluster:
        cluster.log.append("in", 0, b"k" * (20 << 20), b"value")
        run = Run(cluster, "t", cluster.submit_topology("t", {}, builder.create_topology()))
        run.advance(1)
        (letter,) = run.sim.dead_letters()
        headers = dict(letter.headers)
        assert letter.key == b"k" * 4096 and letter.value == b"value"
        assert (headers["size"], headers["key-size"], headers["truncated"]) == (b"5", str(20 << 20).encode(), b"true")
        assert headers["error"].startswith(b"ValueError: eee") and len(headers["error"]) <= 4096
        (error,) = run.errors("in")
        assert len(error) < 20_000


def test_the_limit_of_dead_letters_is_a_setting():
    with LocalCluster(simulated=True) as cluster:
        cluster.log.append("in", 0, None, b"x" * 100)
        run = reading(cluster, {"topology.emulator.dead.letters.max.bytes": 10})
        (letter,) = run.sim.dead_letters()
        assert letter.value == b"x" * 10 and dict(letter.headers)["size"] == b"100"


def test_a_null_record_is_a_null_dead_letter_without_a_size():
    with LocalCluster(simulated=True) as cluster:
        cluster.log.append("in", 0, b"k", None)
        (letter,) = reading(cluster).sim.dead_letters()
        assert letter.value is None and "size" not in dict(letter.headers)


class Says(BasicBolt):
    """Raises an exception with a given text."""

    def __init__(self, text):
        self.text = text

    def execute(self, tup, collector):
        if tup[0] == 1:
            raise ValueError(self.text)


class Unspeakable:
    """Cannot be turned into text."""

    def __str__(self):
        raise ValueError("no text")

    __repr__ = __str__


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "header"),
    [("\ud800 alone", b"ValueError: \\ud800 alone"), ("x" * (20 << 20), b"ValueError: xxxx"), (Unspeakable(), b"ValueError: ")],
    ids=["surrogate", "20 MiB", "no text"],
)
def test_whatever_an_exception_says_its_tuple_is_one_dead_letter(text, header):
    builder = TopologyBuilder()
    builder.set_spout("1", Life(limit=3))
    builder.set_bolt("2", Says(text)).shuffle_grouping("1")
    with running(builder, {"topology.acker.executors": 0}, secs=1) as run:
        (letter,) = run.sim.dead_letters()
        assert dict(letter.headers)["error"].startswith(header)
        assert run.total("2", "executed") == 3
        assert len(run.errors("2")) == 1 and len(run.errors("2")[0]) < 20_000


class Sends(Bolt):
    """Sends every number as a record of that many bytes."""

    def __init__(self, sizes, columns=False):
        self.sizes, self.columns = sizes, columns

    def prepare(self, conf, context, collector):
        self.collector = collector

    def execute(self, tup):
        size = self.sizes[tup[0]]
        if self.columns:
            sent = self.collector.send_records("out", pa.array([b"a", b"b", b"c"]), pa.array([b"1", b"x" * size, b"3"]), [("h", pa.array(["x", "y", "z"]))])
            assert sent == (3 if size < 8 << 20 else 2)
        else:
            self.collector.send_record("out", b"k", b"x" * size, [("h", b"v")])
        self.collector.ack(tup)


@pytest.mark.parametrize("columns", [False, True])
def test_a_record_that_is_too_large_to_be_sent_is_a_dead_letter_and_the_others_are_sent(columns):
    builder = TopologyBuilder()
    builder.set_spout("1", Life(limit=3))
    builder.set_bolt("2", Sends([5, 20 << 20, 6], columns)).shuffle_grouping("1")
    with running(builder, secs=1) as run:
        records = run.sim.log.records("out")
        assert [len(r.value) for r in records] == ([1, 5, 1, 1, 1, 1, 6, 1] if columns else [5, 6])
        assert [dict(r.headers)["record-id"].rpartition(b"-")[2] for r in records] == [str(i).encode() for i in range(len(records))]
        (letter,) = run.sim.dead_letters()
        headers = dict(letter.headers)
        assert (headers["stage"], headers["target"], headers["size"], headers["truncated"]) == (b"send", b"out", str(20 << 20).encode(), b"true")
        assert letter.key == (b"b" if columns else b"k") and letter.value == b"x" * LETTER
        assert b"at most 8388608" in headers["error"] and b"topology.emulator.record.max.bytes" in headers["error"]
        assert any("cannot be sent" in e for e in run.errors("2"))
        assert [done for done, _ in run.components("1")[0].done] == ["ack"] * 3


def test_a_kafka_bolt_fails_a_tuple_whose_record_is_too_large():
    class Enlarge(KafkaBolt):
        def translate(self, tup):
            return self.topic, None, b"x" * (20 << 20 if tup[0] == 1 else 1), []

    builder = TopologyBuilder()
    builder.set_spout("1", Life(limit=3))
    builder.set_bolt("2", Enlarge("out")).shuffle_grouping("1")
    with running(builder, secs=1) as run:
        assert len(run.sim.log.records("out")) == 2
        assert sorted(run.components("1")[0].done) == [("ack", 0), ("ack", 2), ("fail", 1)]
        assert len(run.sim.dead_letters()) == 1


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (("no topic!", None, b"v"), "invalid name of a topic"),
        ((None, None, b"v"), "invalid name of a topic"),
        (("t", 5, b"v"), "key"),
        (("t", None, 5), "value"),
        (("t", None, b"v", [("h", 7)]), "header"),
        (("t", None, b"v", [(b"h", b"")]), "header"),
        (("t", None, b"v", (), -1), "partition"),
        (("t", None, "\ud800"), "surrogates"),
    ],
    ids=repr,
)
def test_a_record_that_no_sink_could_write_is_refused_where_it_is_sent(record, words):
    class Wrong(Bolt):
        def prepare(self, conf, context, collector):
            self.collector = collector

        def execute(self, tup):
            self.collector.send_record(*(record if tup[0] == 1 else ("out", None, b"good")))

    builder = TopologyBuilder()
    builder.set_spout("1", Life(limit=3))
    builder.set_bolt("2", Wrong()).shuffle_grouping("1")
    with running(builder, {"topology.acker.executors": 0}, secs=1) as run:
        assert len(run.sim.log.records("out")) == 2
        (letter,) = run.dead_letters()
        assert words in letter["error"] and letter["stage"] == "execute" and letter["component"] == "2"


def test_metrics_that_no_record_can_hold_are_shown_as_such():
    class Measured(Keep):
        def prepare(self, conf, context, collector):
            super().prepare(conf, context, collector)
            context.register_gauge("large", lambda: "x" * (20 << 20))
            context.register_gauge("object", lambda: {1, 2})
            context.register_gauge("array", lambda: pa.array([1]))
            context.register_gauge("good", lambda: {"a": [1, 2.5, None]})

    builder = TopologyBuilder()
    builder.set_spout("1", Life(limit=3))
    builder.set_bolt("2", Measured()).shuffle_grouping("1")
    with running(builder, secs=1) as run:
        (task,) = [t for t in run.sim.stats.tasks.values() if t["component"] == "2"]
        assert task["metrics"]["good"] == {"a": [1, 2.5, None]}
        assert all(task["metrics"][name].startswith("a metric's value") for name in ("large", "object", "array"))


@pytest.mark.long
def test_a_frame_never_outgrows_a_record_whatever_the_settings_say():
    builder = TopologyBuilder()
    builder.set_spout("in", KafkaSpout("in"))
    builder.set_bolt("out", Keep()).shuffle_grouping("in")
    with LocalCluster(simulated=True) as cluster:
        for _ in range(10):
            cluster.log.append("in", 0, None, b"x" * (4 << 20))
        run = Run(cluster, "t", cluster.submit_topology("t", {"topology.emulator.frame.max.bytes": 1 << 30}, builder.create_topology()))
        run.advance(1)
        assert len(run.components("out")[0].seen) == 10
