"""Unreadable records, and tuples that cannot be sent: each becomes one dead letter, and the rest is exact."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from kafka import KafkaProducer

from dskype.topology import Fields, KafkaSpout, Spout, TopologyBuilder
from dskype.topology.config import TRANSPORTS, Config
from dskype.topology.core.frames import encode_data, encode_segment
from dskype.topology.planning.plan import dead_letters_topic, inbox_topic
from dskype.topology.runtime.kafka.reading import read_to_end
from tests.waiting import wait_for

from .components import Recorder, magic_number, sum_chain, sums_expected
from .helpers import await_output, headers, make_topic


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_bad_records_in_an_inbox_are_dead_letters_and_change_nothing(cluster, name, transport):
    kafka, total = cluster.environment.kafka, 4_000
    out = make_topic(kafka, f"{name}-out")
    topology, conf = sum_chain(out, total, 2_000)
    with cluster.submit_topology(name, {**conf, Config.TOPOLOGY_EMULATOR_TRANSPORT: transport}, topology) as handle:
        driver = handle.backend
        driver.wait_until(lambda stats: stats.total("sink", "executed") > total // 10, 60)
        inbox = inbox_topic(name, "first")
        (spout,) = driver.plan.component_tasks("numbers")
        good = encode_data(spout, 0, [encode_segment("default", 2, [[1, 2], [1, 2]], None)])
        wrong_arity = encode_data(spout, 0, [encode_segment("default", 2, [[1, 2]], None)])
        bad = {(0, good[:-3]), (1, wrong_arity), (2, b"\xc1 no frame at all"), (0, None), (1, b"")}
        producer = kafka.producer()
        for partition, value in bad:
            producer.send(inbox, key=b"key", value=value, partition=partition)
        producer.close(timeout=30)
        driver.wait_until(lambda stats: stats.total("sink", "executed") >= total, 60)
        records = await_output(kafka, out, total, 60, "the last record")
        assert Counter(r.value for r in records.values()) == sums_expected(total)
        letters = wait_for(lambda: len(found := read_to_end(kafka, dead_letters_topic(name))) >= len(bad) and found, 60, "dead letters")
        assert {(int(headers(r)["partition"]), r.value) for r in letters} == bad
        assert len(letters) == len(bad)
        for letter in letters:
            assert (headers(letter)["topic"], headers(letter)["component"], headers(letter)["stage"]) == (inbox, "first", "decode")
            assert headers(letter)["error"] and headers(letter)["offset"].isdigit()
        assert handle.stats.total("first", "dead_letters") == len(bad)
        assert any("decode" in e["error"] for e in handle.stats.errors)
        assert not driver.state.reports.restarts


class Oversized(Spout):
    """Emits ten tuples; one of them is too large for any record."""

    def open(self, conf, context, collector):
        self.collector, self.next = collector, 0

    def next_tuple(self):
        if self.next < 10:
            self.collector.emit((self.next, "x" * (9 << 20 if self.next == 4 else 10)))
            self.next += 1

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("number", "text"))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_tuple_that_is_too_large_is_a_dead_letter_and_the_others_arrive(cluster, name, transport):
    kafka = cluster.environment.kafka
    out = make_topic(kafka, f"{name}-out")
    builder = TopologyBuilder()
    builder.set_spout("source", Oversized())
    builder.set_bolt("sink", Recorder(out)).shuffle_grouping("source")
    with cluster.submit_topology(name, {Config.TOPOLOGY_EMULATOR_TRANSPORT: transport}, builder.create_topology()) as handle:
        records = await_output(kafka, out, 9, 60, "nine records")
        assert Counter(r.value for r in records.values()) == Counter(repr((i, "x" * 10)).encode() for i in range(10) if i != 4)
        (letter,) = wait_for(lambda: read_to_end(kafka, dead_letters_topic(name)), 60, "the dead letter")
        assert (headers(letter)["component"], headers(letter)["stage"], headers(letter)["stream"]) == ("source", "emit", "default")
        handle.backend.wait_until(lambda stats: stats.total("source", "dead_letters") == 1, 60)
        assert not handle.backend.state.reports.restarts


POISON = {
    "null": None,
    "empty": b"",
    "wrong magic": b"\x00\x00\x00\x00\x07N1",
    "not UTF-8": b"N\xff",
    "10 MiB": b"x" + random.Random(7).randbytes(10 << 20),
    "20 MiB in 20 KiB": b"\0" * (20 << 20),
}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_poison_records_of_a_kafka_topic_are_one_dead_letter_each_and_everything_behind_them_is_processed(cluster, name, transport):
    kafka = cluster.environment.kafka
    source, out = make_topic(kafka, f"{name}-in"), make_topic(kafka, f"{name}-out")
    builder = TopologyBuilder()
    builder.set_spout("source", KafkaSpout(source, translator=magic_number, outputs=Fields("number")))
    builder.set_bolt("sink", Recorder(out)).shuffle_grouping("source")
    offsets = {}
    conf = {"topology.acker.executors": 0, Config.TOPOLOGY_EMULATOR_TRANSPORT: transport}
    with cluster.submit_topology(name, conf, builder.create_topology()) as handle:
        for number, (which, value) in enumerate(POISON.items()):
            producer = KafkaProducer(**kafka.arguments(), compression_type="gzip" if " in " in which else None, max_request_size=64 << 20)
            producer.send(source, value=b"N%d" % number, partition=0)
            offsets[str(producer.send(source, key=which.encode(), value=value, partition=0).get(timeout=30).offset)] = which
            producer.close(timeout=30)
        with kafka.producer() as producer:
            producer.send(source, value=b"N%d" % len(POISON), partition=0)
        records = await_output(kafka, out, len(POISON) + 1, 60, "what stands behind the poison records")
        assert Counter(r.value for r in records.values()) == Counter(repr((i,)).encode() for i in range(len(POISON) + 1))
        letters = wait_for(lambda: len(found := read_to_end(kafka, dead_letters_topic(name))) >= len(POISON) and found, 60, "the dead letters")
        assert {headers(letter)["offset"]: letter.key.decode() for letter in letters} == offsets and len(letters) == len(POISON)
        for letter in letters:
            found, value = headers(letter), POISON[letter.key.decode()]
            assert (found["topic"], found["stage"], found["component"]) == (source, "translate", "source")
            assert letter.value == (value and value[:65536])
            assert (found.get("size"), "truncated" in found) == (None if value is None else str(len(value)), len(value or b"") > 65536)
        assert handle.stats.total("source", "dead_letters") == len(POISON)
        assert not handle.backend.state.reports.restarts
