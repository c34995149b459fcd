"""The checker of writes: crafted dumps with every kind of mistake, and what a plain system writes."""

from __future__ import annotations

import random

import pytest

from dskype.deploy.verification import Inputs, Record, Report
from dskype.deploy.verification.writes import Dump, check_topology_writes, check_writes, delta_place
from tests.deploy.verification.plain_system import PlainSystem

pytestmark = pytest.mark.long


def dump(numbers, topic="out", *, offsets=None, key=b"k", values=None, writer="1-1000-7", **more):
    """Records of one writer with these numbers, in this order."""
    offsets = range(len(numbers)) if offsets is None else offsets
    values = [str(n).encode() for n in numbers] if values is None else values
    return Dump(
        topic, [Record(0, offset, 0, key, value, [("record-id", f"{writer}-{n}".encode())]) for n, offset, value in zip(numbers, offsets, values)], **more
    )


def check(*dumps, **more):
    return check_writes(dumps, Report(), **more)


def texts(report):
    return "\n".join(d.as_text() for d in report.differences)


def test_what_was_written_once_in_order_is_fine():
    report = check(dump([0, 1, 2]), dump([3, 4], topic="other"))
    assert report.ok and not report.notes and report.compared == {"written records": 5}


def test_a_lost_record_is_found_whatever_topic_it_was_for():
    assert "1 records were lost" in texts(check(dump([0, 1, 3])))
    report = check(dump([0, 2], topic="one"), dump([3, 5], topic="other"))
    assert report.counts == {"write": 1} and "2 records were lost" in texts(report) and "1-1000-7-1, 1-1000-7-4" in texts(report)
    assert "1-1000-7-0" in texts(check(dump([1, 2])))


def test_writers_are_looked_at_one_by_one():
    report = check(dump([0, 1]), dump([0, 2], topic="other", writer="1-1000-8"), dump([0], topic="third", writer="2-1000-7"))
    assert report.counts == {"write": 1} and "1-1000-8-1" in texts(report)


def test_records_that_kafka_dropped_are_not_lost_but_no_more_than_those():
    kept = dump([0, 3], offsets=[0, 3], compacted=True)
    report = check(kept)
    assert report.ok and report.unchecked == {"numbers of records that may have been compacted or expired": 2}
    assert "3 records were lost: their numbers are missing, and Kafka has dropped at most 2 records" in texts(check(kept, dump([5], topic="other")))
    assert check(dump([2, 3], offsets=[2, 3])).ok, "the beginning has expired"


def test_equal_repetitions_count_and_unequal_ones_are_found():
    report = check(dump([0, 1, 2, 1, 2, 3]))
    assert report.ok and report.notes == {"records that were written again (record-id)": 2}
    report = check(dump([0, 1, 1], values=[b"a", b"b", b"c"]))
    assert report.counts == {"write": 1} and "two records with the record-id 1-1000-7-1 differ; the other one is out/0 offset 1" in texts(report)
    assert not check(dump([0, 1]), dump([1], topic="other")).ok, "the topic belongs to the record"


def test_offsets_must_be_consistent():
    assert "offset 1 of out/0 has two records" in texts(check(dump([0, 1, 2], offsets=[0, 1, 1])))
    assert check(dump([0, 1, 1], offsets=[0, 1, 1])).ok, "the same record, read twice"
    assert "offsets 1 to 2 of out/0 are missing" in texts(check(dump([0, 1], offsets=[0, 3])))


def version(record):
    return record.key, int(record.value)


def test_versions_of_a_key_do_not_go_back_for_a_reader_who_takes_the_last_occurrence():
    assert check(dump([0, 1, 2], values=[b"1", b"2", b"2"], version=version)).ok
    torn = dump([0, 2, 0, 1, 2], values=[b"1", b"3", b"1", b"2", b"3"], version=version)
    assert check(torn).ok, "a failed sink has written a later record first, and then all of them again"
    report = check(dump([0, 2, 1], values=[b"1", b"3", b"2"], version=version))
    assert report.counts == {"write": 1} and "go back from version 3 to 2" in texts(report)


@pytest.mark.parametrize(("value", "differences"), [(b"same", 0), (b"other", 1)])
def test_a_result_that_was_published_under_two_record_ids_must_say_the_same(value, differences):
    records = [
        Record(0, 0, 0, b"s", b"same", [("record-id", b"1-1-7-0"), ("result-id", b"0-0/3/add/m")]),
        Record(0, 1, 0, b"s", value, [("record-id", b"1-1-8-0"), ("result-id", b"0-0/3/add/m")]),
        Record(0, 2, 0, b"t", b"of another subscription", [("record-id", b"1-1-8-1"), ("result-id", b"0-0/3/add/m")]),
    ]
    report = check(Dump("results", records))
    assert report.counts["write"] == differences and report.notes["records that were published twice (result-id)"] == 1


def test_while_writers_work_only_what_is_surely_written_is_missed():
    reads = dump([0, 2], topic="first"), dump([3, 5], topic="second")
    report = check(*reads, final=False)
    assert "1 records were lost" in texts(report) and "1-1000-7-1" in texts(report)
    assert check(dump([0], topic="first"), dump([2], topic="second"), dump([3], topic="third", writer="1-1000-8"), final=False).ok


@pytest.mark.parametrize(("subscription", "place"), [('"s"', ("0-5", 7)), (r'"a\"/9/b\\"', ("0-5", 7)), ("none", None)])
def test_the_place_of_a_delta_is_in_its_result_id(subscription, place):
    assert delta_place(Record(0, 0, 0, b"", b"", [("result-id", f'0-5/{subscription}/7/add/"m/1"'.encode())])) == place


@pytest.mark.parametrize("topic", ["results", "topk"])
def test_what_a_topology_writes_is_in_order_for_each_subscription(topic):
    def record(number, watermark):
        header = ("result-id", f'0-5/"s"/{watermark}/add/1'.encode()) if topic == "results" else ("version", f"1 0-5 {watermark}".encode())
        return Record(0, number, 0, b"s", b"{}", [("record-id", b"1-1-7-%d" % number), header])

    right, wrong = [record(0, 3), record(1, 3), record(2, 4)], [record(0, 3), record(1, 4), record(2, 3)]
    assert check_topology_writes(Inputs(**{topic: right}), Report()).ok
    assert "go back from version" in texts(check_topology_writes(Inputs(**{topic: wrong}), Report()))


@pytest.mark.parametrize("seed", range(8))
def test_a_right_system_passes_and_every_record_that_it_lacks_is_missed(seed):
    system = PlainSystem({"dskype.window.messages": 20}, seed=seed, partitions=1 + seed % 3).some_traffic(60)
    report = check_topology_writes(system.inputs(), Report())
    assert report.ok, report.as_text(3)
    assert report.compared["written records"] > 100 and report.notes["records that were written again (record-id)"]
    rng = random.Random(seed)
    for topic in ("results", "registrations", "sequence"):
        records = system.topics[topic]
        ids = [dict(r.headers)["record-id"] for r in records]
        numbers = {int(i.rpartition(b"-")[2]): i for i in ids}
        number = rng.choice(sorted(numbers)[:-1])  # without the last record a number less was given: nobody can tell
        system.topics[topic] = [r for r, i in zip(records, ids) if i != numbers[number]]
        assert not check_topology_writes(system.inputs(), Report()).ok
        system.topics[topic] = records
