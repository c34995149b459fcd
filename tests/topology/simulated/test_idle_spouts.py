"""A spout that had nothing to emit is asked again, and what it then emits is a batch."""

import pytest

from dskype.topology import Fields, Spout, TopologyBuilder
from dskype.topology.core.frames import encode_control
from dskype.topology.testing import FeederSpout, IdentityBolt

from .test_owners import Hosts, emitted


def hosts(folder, spout):
    builder = TopologyBuilder()
    builder.set_spout("feeder", spout)
    builder.set_bolt("bolt", IdentityBolt("x")).shuffle_grouping("feeder")
    made = Hosts(folder, "feeder", builder.create_topology(), {})
    made.log.append(made.inbox, 0, None, encode_control("activate", 1_000_000))
    made.pulse(1, credit=10)
    return made


@pytest.fixture
def feeder():
    return FeederSpout("x")


def test_a_spout_that_may_not_emit_is_not_asked(tmp_path, feeder):
    made = hosts(tmp_path, feeder)
    executor = made.start("a")
    executor.handle(0, made.records())
    made.log.append(made.inbox, 0, None, encode_control("deactivate", 1_000_000))
    executor.handle(1, made.records(2))
    assert not executor.askable
    made.log.append(made.inbox, 0, None, encode_control("activate", 1_000_000))
    made.pulse(2, credit=0)  # back-pressure
    executor.handle(2, made.records(3))
    assert not executor.askable


def test_a_process_that_reads_its_inboxes_itself_needs_no_record_to_release_tuples(tmp_path, feeder):
    made = hosts(tmp_path, feeder)
    first = made.start("a")
    assert not first.askable  # no batch has come: another process may be ahead
    first.handle(0, made.records())
    assert first.emit(1) is None
    feeder.feed(["a"])
    assert [row for *_, row in emitted(first.emit(1))] == [("a",)]
    assert first.askable and first.emit(2) is None
    feeder.feed(["b"])
    lost = first.emit(2)  # and this process dies before Kafka has it
    second = made.start("b")
    made.pulse(2, credit=5)
    assert emitted(second.handle(1, made.records(2))) == emitted(lost)


class Broken(Spout):
    calls = 0

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("x"))

    def open(self, conf, context, collector):
        pass

    def next_tuple(self):
        Broken.calls += 1
        if Broken.calls > 1:
            raise ValueError("broken")


def test_a_spout_that_raises_between_its_pulses_has_its_error_released(tmp_path):
    Broken.calls = 0
    made = hosts(tmp_path, Broken())
    executor = made.start("a")
    executor.handle(0, made.records())
    executor.emit(1)
    assert not executor.askable, "not before its next pulse"
    assert Broken.calls == 2
    assert b"ValueError: broken" in executor.report()[0].value
