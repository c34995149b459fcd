"""Scenarios of Storm's own integration tests: word count, tasks, groupings, ticks, configuration, life of a topology.

After ``TopologyIntegrationTest``, ``TickTupleTest`` and ``GroupingTest`` of Apache Storm.
"""

from collections import Counter

import pytest

from dskype.topology import AlreadyAliveException, BasicBolt, Bolt, Fields, IllegalArgumentException, InvalidTopologyException, Spout, TopologyBuilder, is_tick
from dskype.topology.groupings import CustomStreamGrouping
from dskype.topology.local import LocalCluster
from dskype.topology.testing import (
    IdentityBolt,
    NGrouping,
    TestAggregatesCounter,
    TestConfBolt,
    TestGlobalCount,
    TestPlannerSpout,
    TestWordCounter,
    TestWordSpout,
    TupleCaptureBolt,
)

from .storm_helpers import Keep, Life, Script, captured, fed, running, words

# --- counts -----------------------------------------------------------------------------------------------------------


def word_count(capture, spout):
    builder = TopologyBuilder()
    builder.set_spout("1", spout, 3)
    builder.set_bolt("2", TestWordCounter(), 4).fields_grouping("1", Fields("word"))
    builder.set_bolt("3", TestGlobalCount()).global_grouping("1")
    builder.set_bolt("4", TestAggregatesCounter()).global_grouping("2")
    sink = builder.set_bolt("sink", capture)
    for component in "1234":
        sink.global_grouping(component)
    return builder


def test_words_are_counted_by_word_over_all_and_in_the_aggregate():
    capture = TupleCaptureBolt()
    with running(word_count(capture, words("nathan", "bob", "joey", "nathan")), {"topology.workers": 2}, secs=2):
        assert sorted(captured(capture, "1")) == [["bob"], ["joey"], ["nathan"], ["nathan"]]
        assert sorted(captured(capture, "2")) == [["bob", 1], ["joey", 1], ["nathan", 1], ["nathan", 2]]
        assert captured(capture, "3") == [[1], [2], [3], [4]]
        assert captured(capture, "4") == [[1], [2], [3], [4]]


def test_counters_count_calls_and_deliveries():
    spout = words("a", "b", "a", "c")
    with running(word_count(TupleCaptureBolt(), spout), secs=2) as run:
        assert (run.total("1", "emitted"), run.total("1", "transferred")) == (4, 12)
        assert (run.total("2", "executed"), run.total("2", "acked"), run.total("2", "failed")) == (4, 4, 0)
        assert (run.total("1", "acked"), run.total("1", "failed")) == (4, 0)
        info = run.cluster.get_topology_info("t")["components"]
        assert sorted(info) == ["1", "2", "3", "4", "sink"]
        assert info["2"]["executed"] == 4
        assert spout.is_exhausted()


# --- tasks and executors ----------------------------------------------------------------------------------------------


def test_all_grouping_reaches_six_tasks_in_three_executors():
    def script(tup, collector, count):
        collector.ack(tup)

    builder = TopologyBuilder()
    builder.set_spout("1", words("a"))
    builder.set_bolt("2", Script(script), 3).all_grouping("1").set_num_tasks(6)
    with running(builder, secs=1) as run:
        plan = run.sim.plan
        tasks = run.components("2")
        assert [(b.context.get_this_task_index(), b.count) for b in tasks] == [(i, 1) for i in range(6)]
        assert [last - first + 1 for first, last in plan.executors("2")] == [2, 2, 2]
        assert run.total("1", "transferred") == 6


def test_task_ids_follow_the_order_of_component_ids_with_the_acker_first():
    builder = TopologyBuilder()
    builder.set_bolt("z", Keep(), 2).shuffle_grouping("b")
    builder.set_spout("b", TestWordSpout())
    with running(builder, {"topology.acker.executors": 2}) as run:
        assert run.sim.plan.task_component == {1: "__acker", 2: "__acker", 3: "b", 4: "z", 5: "z"}


def test_ten_tasks_on_three_executors_are_four_three_and_three():
    builder = TopologyBuilder()
    builder.set_spout("1", TestWordSpout())
    builder.set_bolt("2", Keep(), 3).shuffle_grouping("1").set_num_tasks(10)
    with running(builder) as run:
        assert [last - first + 1 for first, last in run.sim.plan.executors("2")] == [4, 3, 3]


def test_rebalance_changes_executors_and_keeps_tasks_and_state():
    spout, tracker = fed("word")
    builder = TopologyBuilder()
    builder.set_spout("1", spout)
    builder.set_bolt("2", TestWordCounter(), 3).fields_grouping("1", Fields("word")).set_num_tasks(6)
    capture = TupleCaptureBolt()
    builder.set_bolt("sink", capture).global_grouping("2")
    with running(builder, secs=1) as run:
        for i in range(12):
            spout.feed([f"w{i % 4}"], i)
        run.advance(1)
        run.cluster.rebalance("t", 0, num_workers=2, executors={"2": 6})
        run.advance(1)
        assert run.sim.plan.num_executors("2") == 6
        assert len(run.components("2")) == 6
        for i in range(12, 20):
            spout.feed([f"w{i % 4}"], i)
        run.advance(1)
        assert Counter(word for word, _ in captured(capture, "2")) == {f"w{i}": 5 for i in range(4)}
        assert max(count for _, count in captured(capture, "2")) == 5
        assert all(tracker.is_acked(i) for i in range(20))


# --- bad topologies ---------------------------------------------------------------------------------------------------


def counting(source="1", fields=Fields("word"), stream="default"):
    builder = TopologyBuilder()
    builder.set_spout("1", TestWordSpout(), 3)
    builder.set_bolt("2", TestWordCounter(), 4).fields_grouping(source, fields, stream)
    return builder.create_topology()


def looping():
    builder = TopologyBuilder()
    builder.set_spout("spout", TestWordSpout())
    builder.set_bolt("a", IdentityBolt(Fields("word"))).shuffle_grouping("spout").shuffle_grouping("b")
    builder.set_bolt("b", Script(lambda tup, collector, count: collector.ack(tup), {"default": Fields("word")})).shuffle_grouping("a")
    return builder.create_topology()


@pytest.mark.parametrize(
    ("topology", "text"),
    [
        (lambda: counting(source="3"), r"Component: \[2\] subscribes from non-existent component \[3\]"),
        (lambda: counting(stream="other"), r"Component: \[2\] subscribes from non-existent stream: \[other\] of component \[1\]"),
        (
            lambda: counting(fields=Fields("none")),
            r"Component: \[2\] subscribes from stream: \[default\] of component \[1\] \+ with non-existent fields: \[none\]",
        ),
    ],
)
def test_a_bad_topology_is_refused_before_anything_runs(topology, text):
    with LocalCluster(simulated=True) as cluster:
        with pytest.raises(InvalidTopologyException, match=text):
            cluster.submit_topology("t", {}, topology())
        assert cluster.get_cluster_info() == []
        cluster.submit_topology("t", {}, counting())


@pytest.mark.parametrize("name", ["", "a/b", "a.b", "a:b", "a\\b"])
def test_a_bad_name_is_refused(name):
    with LocalCluster(simulated=True) as cluster, pytest.raises(InvalidTopologyException, match="is not valid"):
        cluster.submit_topology(name, {}, counting())


def test_a_name_is_taken_until_its_topology_is_removed():
    with LocalCluster(simulated=True) as cluster:
        cluster.submit_topology("t", {}, counting())
        with pytest.raises(AlreadyAliveException, match="t is already alive"):
            cluster.submit_topology("t", {}, counting())
        cluster.kill_topology("t", wait_secs=5)
        with pytest.raises(AlreadyAliveException):
            cluster.submit_topology("t", {}, counting())
        cluster.advance_cluster_time(6)
        cluster.submit_topology("t", {}, counting())


def test_a_topology_submitted_again_under_its_name_starts_afresh():
    with LocalCluster(simulated=True) as cluster:
        for first, second in ("ab", "cd"):
            capture = TupleCaptureBolt()
            with cluster.submit_topology("t", {}, word_count(capture, words(first, second)).create_topology()) as handle:
                cluster.advance_cluster_time(2)
                assert sorted(captured(capture, "2")) == [[first, 1], [second, 1]]
                assert handle.stats.total("2", "executed") == 2


@pytest.mark.parametrize(
    ("conf", "text"),
    [
        ({"topology.debug": "yes"}, r"Field TOPOLOGY_DEBUG must be of type class java.lang.Boolean"),
        ({"topology.message.timeout.secs": 1.5}, "must be an Integer within type range"),
        ({"topology.workers": 0}, "must be a Positive Number"),
        ({"my.key": object()}, "Storm conf is not valid. Must be json-serializable"),
    ],
)
def test_a_bad_configuration_is_refused(conf, text):
    with LocalCluster(simulated=True) as cluster, pytest.raises(IllegalArgumentException, match=text):
        cluster.submit_topology("t", conf, counting())


def test_reserved_ids_and_ids_used_twice_are_refused():
    builder = TopologyBuilder()
    builder.set_spout("__mine", TestWordSpout())
    with LocalCluster(simulated=True) as cluster, pytest.raises(InvalidTopologyException, match="__mine is not a valid component id"):
        cluster.submit_topology("t", {}, builder.create_topology())
    builder = TopologyBuilder()
    builder.set_spout("a", TestWordSpout())
    with pytest.raises(IllegalArgumentException, match="Spout has already been declared for id a"):
        builder.set_bolt("a", Keep())


def test_a_cycle_is_legal_and_warned_of():
    with LocalCluster(simulated=True) as cluster:
        handle = cluster.submit_topology("t", {}, looping())
        assert any('contains cycles in components "a,b"' in w for w in handle.warnings)


# --- system streams and ticks -----------------------------------------------------------------------------------------


def test_subscribing_to_the_system_stream_of_a_component_is_legal_and_brings_nothing():
    capture = TupleCaptureBolt()
    builder = TopologyBuilder()
    builder.set_spout("1", words("a", "b", "c"), 3)
    builder.set_bolt("2", IdentityBolt(Fields("word"))).fields_grouping("1", Fields("word")).global_grouping("1", "__system")
    builder.set_bolt("sink", capture).global_grouping("2")
    with running(builder, {"topology.workers": 2}, secs=1):
        assert sorted(captured(capture, "2")) == [["a"], ["b"], ["c"]]


def test_subscribing_to_the_ticks_of_the_system_component_brings_none_and_is_warned_of():
    builder = TopologyBuilder()
    builder.set_spout("1", words("a"))
    builder.set_bolt("2", Keep()).global_grouping("1").global_grouping("__system", "__tick")
    with running(builder, secs=30) as run:
        assert run.components("2")[0].seen == [("a",)]
        assert any("__tick" in w and "tick.tuple.freq.secs" in w for w in run.handle.warnings)


class Ticks(Bolt):
    def prepare(self, conf, context, collector):
        self.context, self.collector, self.ticks, self.others = context, collector, [], 0

    def execute(self, tup):
        if is_tick(tup):
            self.ticks.append(
                (
                    tup.get_source_component(),
                    tup.get_source_stream_id(),
                    tup.get_source_task(),
                    list(tup.get_fields()),
                    tup.get_value(0),
                    self.context.clock_ms() - 1_000_000_000_000,
                )
            )
        else:
            self.others += 1
        self.collector.ack(tup)


def test_ticks_come_to_every_task_of_the_component_that_asks_and_to_no_other():
    builder = TopologyBuilder()
    builder.set_spout("spout", TestWordSpout())
    builder.set_bolt("ticked", Ticks(), 2).set_num_tasks(3).shuffle_grouping("spout").add_configuration("topology.tick.tuple.freq.secs", 2)
    builder.set_bolt("plain", Ticks()).shuffle_grouping("spout")
    with running(builder, secs=9) as run:
        expected = [("__system", "__tick", -1, ["rate_secs"], 2, ms) for ms in (2000, 4000, 6000, 8000)]
        assert [b.ticks for b in run.components("ticked")] == [expected] * 3
        assert run.components("plain")[0].ticks == []
        assert run.components("plain")[0].others > 80
        assert run.total("ticked", "executed", "__system/__tick") == 12


def test_a_tick_rate_of_the_topology_goes_to_all_bolts_and_a_components_own_is_stronger():
    builder = TopologyBuilder()
    builder.set_spout("spout", TestPlannerSpout())
    builder.set_bolt("a", Ticks()).shuffle_grouping("spout")
    builder.set_bolt("b", Ticks()).shuffle_grouping("spout").add_configuration("topology.tick.tuple.freq.secs", 5)
    with running(builder, {"topology.tick.tuple.freq.secs": 1}, secs=10) as run:
        assert [len(run.components(c)[0].ticks) for c in "ab"] == [10, 2]


def test_basic_bolts_get_ticks_too_and_may_emit_on_them():
    class OnTick(BasicBolt):
        def execute(self, tup, collector):
            collector.emit((tup.get_source_stream_id(),))

        def declare_output_fields(self, declarer):
            declarer.declare("stream")

    builder = TopologyBuilder()
    builder.set_spout("spout", TestPlannerSpout())
    builder.set_bolt("bolt", OnTick()).shuffle_grouping("spout").add_configuration("topology.tick.tuple.freq.secs", 1)
    builder.set_bolt("sink", Keep()).shuffle_grouping("bolt")
    with running(builder, secs=3) as run:
        assert run.components("sink")[0].seen == [("__tick",)] * 3


# --- configuration ----------------------------------------------------------------------------------------------------


def test_a_component_sees_its_own_configuration_over_the_topologys():
    capture = TupleCaptureBolt()
    own = {"fake.config": 123, "topology.max.task.parallelism": 20, "topology.max.spout.pending": 30}
    keys = ("fake.config", "topology.max.task.parallelism", "topology.max.spout.pending", "fake.config2", "of.topology", "missing")
    builder = TopologyBuilder()
    builder.set_spout("1", words(*keys, field="conf"))
    builder.set_bolt("2", TestConfBolt(own)).shuffle_grouping("1").set_max_task_parallelism(2).add_configuration("fake.config2", 987)
    builder.set_bolt("sink", capture).global_grouping("2")
    with running(builder, {"of.topology": [1], "fake.config": "weak"}, secs=1):
        assert dict(captured(capture, "2")) == {
            "fake.config": 123,
            "fake.config2": 987,
            "topology.max.task.parallelism": 2,
            "topology.max.spout.pending": 30,
            "of.topology": [1],
            "missing": None,
        }


# --- groupings in a running topology ----------------------------------------------------------------------------------


def grouped(declare, items, hint=4, tasks=1):
    """Run items through one grouping and return what each task got."""
    builder = TopologyBuilder()
    builder.set_spout("1", words(*items), tasks)
    declare(builder.set_bolt("2", Keep(), hint))
    with running(builder, secs=2) as run:
        assert all(spout.is_exhausted() for spout in run.components("1"))
        return [[value for (value,) in bolt.seen] for bolt in run.components("2")]


def test_shuffle_gives_every_task_the_same_number_of_tuples_from_each_producer():
    items = [f"w{i}" for i in range(240)]
    got = grouped(lambda b: b.shuffle_grouping("1"), items, hint=4, tasks=3)
    assert [len(g) for g in got] == [60] * 4
    assert sorted(sum(got, [])) == sorted(items)


def test_fields_grouping_sends_equal_values_to_one_task_from_every_producer():
    got = grouped(lambda b: b.fields_grouping("1", "word"), [f"w{i % 10}" for i in range(100)], tasks=3)
    homes = Counter(word for g in got for word in set(g))
    assert homes == Counter({f"w{i}": 1 for i in range(10)})
    assert sum(map(len, got)) == 100


def test_global_grouping_sends_everything_to_the_lowest_task():
    assert [len(g) for g in grouped(lambda b: b.global_grouping("1"), "abcdef")] == [6, 0, 0, 0]


def test_none_grouping_sends_every_tuple_somewhere():
    got = grouped(lambda b: b.none_grouping("1"), [str(i) for i in range(200)])
    assert sum(map(len, got)) == 200
    assert all(got)


def test_partial_key_grouping_spreads_one_key_over_two_tasks_equally():
    assert sorted(len(g) for g in grouped(lambda b: b.partial_key_grouping("1", "word"), ["same"] * 100)) == [0, 0, 50, 50]


def test_a_custom_grouping_may_choose_several_tasks_or_none():
    class ByLength(CustomStreamGrouping):
        def prepare(self, context, stream, target_tasks):
            assert stream == ("1", "default")
            self.targets = target_tasks

        def choose_tasks(self, task_id, values):
            return self.targets[: len(values[0])]

    assert grouped(lambda b: b.custom_grouping("1", ByLength()), ["", "a", "bb", "cccc"]) == [["a", "bb", "cccc"], ["bb", "cccc"], ["cccc"], ["cccc"]]
    assert [len(g) for g in grouped(lambda b: b.custom_grouping("1", NGrouping(2)), "abc")] == [3, 3, 0, 0]


def test_local_or_shuffle_stays_in_the_worker_when_it_can():
    def run(workers):
        builder = TopologyBuilder()
        builder.set_spout("1", words(*map(str, range(60))))
        builder.set_bolt("2", Keep(), 4).local_or_shuffle_grouping("1")
        with running(builder, {"topology.workers": workers, "topology.acker.executors": 1}, secs=1) as run:
            plan = run.sim.plan
            home = plan.worker_of(plan.component_tasks("1")[0])
            return [(plan.worker_of(task) == home, len(bolt.seen)) for task, bolt in zip(plan.component_tasks("2"), run.components("2"))]

    assert run(1) == [(True, 15)] * 4
    spread = run(2)
    assert sum(n for local, n in spread if local) == 60
    assert {local for local, _ in spread} == {True, False}


def test_several_bolts_on_one_stream_each_get_their_own_copy():
    builder = TopologyBuilder()
    builder.set_spout("1", words(*"abcd"))
    builder.set_bolt("all", Keep(), 2).all_grouping("1")
    builder.set_bolt("one", Keep(), 2).fields_grouping("1", "word")
    with running(builder, secs=1) as run:
        assert [len(b.seen) for b in run.components("all")] == [4, 4]
        assert sum(len(b.seen) for b in run.components("one")) == 4
        assert (run.total("1", "emitted"), run.total("1", "transferred")) == (4, 12)


# --- life -------------------------------------------------------------------------------------------------------------


class NotedBolt(Keep):
    notes: list[str] = []

    def prepare(self, conf, context, collector):
        super().prepare(conf, context, collector)
        self.notes.append("prepare")

    def cleanup(self):
        self.notes.append("cleanup")


def test_a_topology_submitted_inactive_opens_and_prepares_nothing_before_it_is_activated():
    class Noted(Spout):
        notes: list[str] = []

        def open(self, conf, context, collector):
            self.notes.append("open")

        def next_tuple(self):
            self.notes.append("next_tuple")

        def declare_output_fields(self, declarer):
            declarer.declare("val")

    NotedBolt.notes.clear()
    feeder, tracker = fed("field1")
    builder = TopologyBuilder()
    builder.set_spout("1", feeder)
    builder.set_spout("2", Noted())
    builder.set_bolt("3", NotedBolt()).global_grouping("1")
    with running(builder, {"topology.message.timeout.secs": 10}, active=False, secs=11) as run:
        assert run.handle.status == "INACTIVE"
        feeder.feed(["a"], 1)
        run.advance(9)
        assert Noted.notes == NotedBolt.notes == []
        run.cluster.activate("t")
        run.advance(12)
        assert tracker.is_acked(1)
        assert NotedBolt.notes == ["prepare"]
        assert Noted.notes[:2] == ["open", "next_tuple"]


def test_activate_is_called_on_the_first_start_and_a_deactivated_spout_rests_while_acks_go_on():
    builder = TopologyBuilder()
    builder.set_spout("life", Life(limit=3))
    held = []

    def hold(tup, collector, count):
        held.append(lambda: collector.ack(tup))

    builder.set_bolt("hold", Script(hold)).shuffle_grouping("life")
    builder.set_spout("feeder", (feeder := fed("x")[0]))
    builder.set_bolt("release", Script(lambda tup, collector, count: [release() for release in held])).shuffle_grouping("feeder")
    with running(builder, secs=1) as run:
        (life,) = run.components("life")
        assert life.calls == ["open", "activate", "next_tuple"]
        run.cluster.deactivate("t")
        run.cluster.deactivate("t")
        assert run.handle.status == "INACTIVE"
        run.advance(5)
        assert life.calls == ["open", "activate", "next_tuple", "deactivate"]
        run.cluster.activate("t")
        run.cluster.activate("t")
        feeder.feed(["go"])
        run.advance(5)
        assert life.calls == ["open", "activate", "next_tuple", "deactivate", "activate", "next_tuple"]
    assert life.calls[-1] == "close"


def test_bolts_are_cleaned_up_when_the_topology_is_killed():
    NotedBolt.notes.clear()
    builder = TopologyBuilder()
    builder.set_spout("1", words("a"))
    builder.set_bolt("2", NotedBolt(), 2).shuffle_grouping("1")
    with running(builder, secs=1) as run:
        run.cluster.kill_topology("t", wait_secs=3)
        assert run.handle.status == "KILLED"
        run.advance(2)
        assert NotedBolt.notes == ["prepare", "prepare"]
        run.advance(2)
        assert NotedBolt.notes == ["prepare", "prepare", "cleanup", "cleanup"]
        assert run.cluster.get_cluster_info() == []
