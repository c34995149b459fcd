"""The helpers for tests, run on the simulated transport."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections import Counter

import pytest

from dskype.topology import testing
from dskype.topology.builder import TopologyBuilder
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.fields import Fields
from dskype.topology.local import LocalCluster
from dskype.topology.simulated.faults import Faults


def run(builder: TopologyBuilder, secs: float = 3, conf: dict | None = None, **options) -> None:
    with LocalCluster(simulated=True, **options) as cluster:
        cluster.submit_topology("t", conf or {}, builder.create_topology())
        cluster.advance_cluster_time(secs)


def values(capture: testing.TupleCaptureBolt, component: str) -> list[list]:
    return [t.values for t in capture.get_results().get(component, [])]


@pytest.mark.long
def test_a_shared_log_is_read_and_written_by_copies_and_by_other_processes() -> None:
    shared = testing.SharedLog()
    shared.append({"a": [1, None, b"x"]})
    for twin in (copy.deepcopy(shared), pickle.loads(pickle.dumps(shared))):
        twin.append(2.5)
    code = "import pickle, sys; pickle.load(sys.stdin.buffer).append('from afar')"
    subprocess.run([sys.executable, "-c", code], input=pickle.dumps(shared), check=True)
    assert shared.values() == [{"a": [1, None, b"x"]}, 2.5, 2.5, "from afar"]
    positions = [position for position, _ in shared.read()]
    assert positions[-1] == shared.end()
    assert [v for _, v in shared.read(positions[2])] == ["from afar"]


def test_a_half_written_value_is_not_read() -> None:
    shared = testing.SharedLog()
    shared.append("whole")
    os.write(shared._fd(), b"\x10\x00\x00\x00abc")
    assert shared.values() == ["whole"]


def test_a_fed_tuple_is_emitted_and_acked_and_the_tracker_counts_it() -> None:
    spout, tracker, capture = testing.FeederSpout(["word"]), testing.AckTracker(), testing.TupleCaptureBolt()
    spout.set_ack_fail_delegate(tracker)
    builder = TopologyBuilder()
    builder.set_spout("feeder", spout)
    builder.set_bolt("capture", capture).shuffle_grouping("feeder")
    with LocalCluster(simulated=True) as cluster:
        spout.feed(["before"])
        cluster.submit_topology("t", {}, builder.create_topology())
        cluster.advance_cluster_time(1)
        assert tracker.get_num_acks() == 1
        tracker.reset_num_acks()
        spout.feed(["a"])
        spout.feed(["b"])
        cluster.advance_cluster_time(1)
    assert values(capture, "feeder") == [["before"], ["a"], ["b"]]
    assert tracker.get_num_acks() == 2


def test_a_map_tracker_knows_which_ids_were_acked_and_which_timed_out() -> None:
    spout, tracker = testing.FeederSpout("word"), testing.AckFailMapTracker()
    spout.set_ack_fail_delegate(tracker)
    builder = TopologyBuilder()
    builder.set_spout("feeder", spout)
    builder.set_bolt("silent", testing.TestPlannerBolt()).shuffle_grouping("feeder")
    spout.feed(["x"], "lost")
    run(builder, 12, {"topology.message.timeout.secs": 5})
    assert tracker.is_failed("lost")
    assert not tracker.is_acked("lost")


def test_a_tuple_that_is_fed_without_an_id_is_not_tracked() -> None:
    spout, tracker, capture = testing.FeederSpout(["word"]), testing.AckTracker(), testing.TupleCaptureBolt()
    spout.set_ack_fail_delegate(tracker)
    builder = TopologyBuilder()
    builder.set_spout("feeder", spout)
    builder.set_bolt("capture", capture).shuffle_grouping("feeder")
    spout.feed(["untracked"], None)
    spout.feed(["tracked"])
    run(builder, 2, {})
    assert values(capture, "feeder") == [["untracked"], ["tracked"]]
    assert tracker.get_num_acks() == 1


def test_feeding_the_wrong_number_of_values_is_refused() -> None:
    with pytest.raises(IllegalArgumentException, match=r"Expected 2 values but got 1. given: \['a'\]"):
        testing.FeederSpout(Fields("a", "b")).feed(["a"])


@pytest.mark.parametrize("tasks", [1, 3])
def test_fixed_tuples_are_emitted_once_each_over_all_tasks(tasks: int) -> None:
    spout, capture = testing.FixedTupleSpout([[i] for i in range(10)], "n"), testing.TupleCaptureBolt()
    builder = TopologyBuilder()
    builder.set_spout("fixed", spout, tasks)
    builder.set_bolt("capture", capture).global_grouping("fixed")
    assert not spout.is_exhausted()
    run(builder)
    assert sorted(values(capture, "fixed")) == [[i] for i in range(10)]
    assert (spout.get_num_acked(), spout.get_num_failed(), spout.is_exhausted()) == (10, 0, True)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_crashes_and_repeated_batches_neither_lose_nor_repeat_a_captured_tuple(seed: int) -> None:
    spout, capture = testing.FixedTupleSpout([[f"w{i % 7}"] for i in range(60)], "word"), testing.TupleCaptureBolt()
    builder = TopologyBuilder()
    builder.set_spout("fixed", spout, 2)
    builder.set_bolt("count", testing.TestWordCounter(), 2).fields_grouping("fixed", "word")
    builder.set_bolt("capture", capture).global_grouping("count")
    run(builder, 10, seed=seed, faults=Faults(**dict.fromkeys(Faults.__dataclass_fields__, 0.05)))
    counted = sorted(map(tuple, values(capture, "count")))
    totals = Counter(f"w{i % 7}" for i in range(60))
    assert counted == sorted((word, n) for word, total in totals.items() for n in range(1, total + 1))


@pytest.mark.long
def test_the_word_spout_emits_its_five_words_untracked() -> None:
    capture = testing.TupleCaptureBolt()
    builder = TopologyBuilder()
    builder.set_spout("words", testing.TestWordSpout(interval_ms=0))
    builder.set_bolt("capture", capture).shuffle_grouping("words")
    run(builder, 0.5)
    words = {v[0] for v in values(capture, "words")}
    assert words == set(testing.TestWordSpout.WORDS)


def test_a_spout_that_is_not_distributed_gets_one_task() -> None:
    for spout in (testing.TestWordSpout(False), testing.TestPlannerSpout(False), testing.TestPlannerSpout(Fields("a"), False)):
        assert spout.get_component_configuration() == {"topology.max.task.parallelism": 1}
    assert testing.TestPlannerSpout(True).get_output_fields() == Fields("field1", "field2")


def test_global_and_aggregate_counts_add_up_as_in_storms_word_count_test() -> None:
    words = [["nathan"], ["bob"], ["joey"], ["nathan"]]
    capture = testing.TupleCaptureBolt()
    builder = TopologyBuilder()
    builder.set_spout("1", testing.FixedTupleSpout(words, "word"))
    builder.set_bolt("2", testing.TestWordCounter(), 4).fields_grouping("1", "word")
    builder.set_bolt("3", testing.TestGlobalCount()).global_grouping("1")
    builder.set_bolt("4", testing.TestAggregatesCounter()).global_grouping("2")
    bolt = builder.set_bolt("capture", capture)
    for source in "234":
        bolt.global_grouping(source)
    run(builder)
    assert sorted(values(capture, "2")) == [["bob", 1], ["joey", 1], ["nathan", 1], ["nathan", 2]]
    assert values(capture, "3") == [[1], [2], [3], [4]]
    assert values(capture, "4") == [[1], [2], [3], [4]]


def test_the_conf_bolt_answers_with_its_own_configuration_first() -> None:
    capture = testing.TupleCaptureBolt()
    builder = TopologyBuilder()
    builder.set_spout("keys", testing.FixedTupleSpout([["topology.debug"], ["my.key"], ["none"]], "key"))
    builder.set_bolt("conf", testing.TestConfBolt({"my.key": 7})).shuffle_grouping("keys")
    builder.set_bolt("capture", capture).shuffle_grouping("conf")
    run(builder, conf={"my.key": 1, "topology.debug": True})
    assert values(capture, "conf") == [["topology.debug", True], ["my.key", 7], ["none", None]]


def test_the_n_grouping_takes_the_lowest_tasks() -> None:
    grouping = testing.NGrouping(2)
    grouping.prepare(None, None, [4, 5, 6, 7])
    assert list(grouping.choose_tasks(1, ["x"])) == [4, 5]


def test_events_stay_in_order_between_two_tasks() -> None:
    spout, capture = testing.TestEventLogSpout(40), testing.TupleCaptureBolt()
    builder = TopologyBuilder()
    builder.set_spout("events", spout, 2)
    builder.set_bolt("check", testing.TestEventOrderCheckBolt(), 2).fields_grouping("events", "source")
    builder.set_bolt("capture", capture).global_grouping("check")
    run(builder, 5)
    assert len(values(capture, "check")) == 40
    assert spout.is_exhausted()


def test_the_identity_bolt_and_the_bytes_counter_pass_values_on() -> None:
    capture = testing.TupleCaptureBolt()
    builder = TopologyBuilder()
    builder.set_spout("s", testing.FixedTupleSpout([[b"a"], [b"a"]], "word"))
    builder.set_bolt("same", testing.IdentityBolt("word")).shuffle_grouping("s")
    builder.set_bolt("count", testing.TestWordBytesCounter()).shuffle_grouping("same")
    builder.set_bolt("capture", capture).shuffle_grouping("count")
    run(builder)
    assert values(capture, "count") == [["a", 1], ["a", 2]]
