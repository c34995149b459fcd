"""Trees of tuples: acked exactly when complete, failed explicitly or by timeout; and untracked tuples."""

import pytest

from dskype.topology import BasicBolt, FailedException, Fields, IllegalArgumentException, ReportedFailedException, Spout, TopologyBuilder
from dskype.topology.testing import IdentityBolt, TestPlannerBolt

from .storm_helpers import AckBolt, AckTrackingFeeder, AggBolt, BranchingBolt, Keep, Life, Loose, Script, fed, running

# --- complete trees ---------------------------------------------------------------------------------------------------


def test_trees_of_several_spouts_are_acked_exactly_when_they_are_complete():
    feeders = [AckTrackingFeeder("num") for _ in range(3)]
    one, two, three = feeders
    builder = TopologyBuilder()
    for name, feeder, branches in zip("123", feeders, (2, 4, 1)):
        builder.set_spout(name, feeder.spout)
        builder.set_bolt(str(int(name) + 3), BranchingBolt(branches)).shuffle_grouping(name)
    builder.set_bolt("7", AggBolt(3)).shuffle_grouping("4").shuffle_grouping("5").shuffle_grouping("6")
    builder.set_bolt("8", BranchingBolt(2)).shuffle_grouping("7")
    builder.set_bolt("9", AckBolt()).shuffle_grouping("8")
    with running(builder, secs=11) as run:

        def after(*fed):
            for feeder in fed:
                feeder.feed(1)
            run.advance(1)
            return [feeder.new_acks() for feeder in feeders]

        assert after(one) == [0, 0, 0]  # 2 wait
        assert after(two) == [1, 1, 0]  # 2 + 4: two aggregates, none waits
        assert after(one) == [0, 0, 0]  # 2 wait
        assert after(one) == [1, 0, 0]  # an aggregate of 3, one of the second tree's waits
        assert after(three) == [0, 0, 0]  # 2 wait
        assert after(two) == [1, 1, 1]  # 6: all done
        assert after(one, two, three)[1] <= 1


def test_a_tree_with_branches_is_acked_when_all_of_them_are():
    feeder = AckTrackingFeeder("num")
    builder = TopologyBuilder()
    builder.set_spout("1", feeder.spout)
    builder.set_bolt("2", IdentityBolt(Fields("num"))).shuffle_grouping("1")
    builder.set_bolt("3", IdentityBolt(Fields("num"))).shuffle_grouping("1")
    builder.set_bolt("4", AggBolt(4)).shuffle_grouping("2").shuffle_grouping("3")
    with running(builder, secs=11) as run:
        feeder.feed(1)
        run.advance(1)
        assert feeder.new_acks() == 0
        feeder.feed(1)
        run.advance(1)
        assert feeder.new_acks() == 2


def test_anchoring_twice_to_the_same_tuple_is_legal():
    def twice(tup, collector, count):
        collector.emit((1,), anchors=[tup, tup])
        collector.ack(tup)

    feeder = AckTrackingFeeder("num")
    builder = TopologyBuilder()
    builder.set_spout("1", feeder.spout)
    builder.set_bolt("2", Script(twice, {"default": Fields("num")})).shuffle_grouping("1")
    builder.set_bolt("3", AckBolt()).shuffle_grouping("2")
    with running(builder, secs=11) as run:
        for n in (1, 3):
            for _ in range(n):
                feeder.feed(1)
            run.advance(1)
            assert feeder.new_acks() == n


def test_every_copy_of_an_all_grouping_is_an_edge_of_its_own():
    def ack_unless_last(tup, collector, count):
        if tup["num"] != 2:
            collector.ack(tup)

    feeder, tracker = fed("num")
    builder = TopologyBuilder()
    builder.set_spout("1", feeder)
    builder.set_bolt("2", AckBolt(), 3).all_grouping("1")
    builder.set_bolt("3", Script(ack_unless_last), 2).all_grouping("1")
    with running(builder, secs=1) as run:
        for i in range(4):
            feeder.feed([i], i)
        run.advance(2)
        assert [tracker.is_acked(i) for i in range(4)] == [True, True, False, True]


def test_a_tracked_tuple_that_nobody_subscribes_to_is_acked():
    feeder, tracker = fed("num")
    builder = TopologyBuilder()
    builder.set_spout("1", feeder)
    builder.set_bolt("2", AckBolt()).shuffle_grouping("1", "__system")
    with running(builder) as run:
        feeder.feed([1], "a")
        run.advance(1)
        assert tracker.is_acked("a")


def test_message_ids_come_back_as_the_same_objects_to_the_same_task():
    class Id:
        pass

    class Identified(Spout):
        def open(self, conf, context, collector):
            self.collector, self.sent, self.back = collector, [], []

        def next_tuple(self):
            if len(self.sent) < 5:
                self.sent.append(Id())
                self.collector.emit((1,), message_id=self.sent[-1])

        def ack(self, msg_id):
            self.back.append(msg_id)

        def declare_output_fields(self, declarer):
            declarer.declare("n")

    builder = TopologyBuilder()
    builder.set_spout("1", Identified(), 2)
    builder.set_bolt("2", AckBolt(), 2).shuffle_grouping("1")
    with running(builder, secs=1) as run:
        for spout in run.components("1"):
            assert len(spout.back) == 5
            assert set(map(id, spout.back)) == set(map(id, spout.sent))


def test_spouts_may_emit_from_ack_and_fail():
    class Echo(Life):
        def ack(self, msg_id):
            super().ack(msg_id)
            if msg_id < 3:
                self.collector.emit((msg_id + 1,), message_id=msg_id + 1)

    builder = TopologyBuilder()
    builder.set_spout("1", Echo(limit=1))
    builder.set_bolt("2", AckBolt()).shuffle_grouping("1")
    with running(builder, secs=1) as run:
        assert run.components("1")[0].done == [("ack", i) for i in range(4)]


# --- not tracked ------------------------------------------------------------------------------------------------------


def test_unanchored_emits_leave_the_tree():
    def loose(tup, collector, count):
        collector.emit((tup["num"],))
        collector.ack(tup)

    feeder, tracker = fed("num")
    builder = TopologyBuilder()
    builder.set_spout("1", feeder)
    builder.set_bolt("2", Script(loose, {"default": Fields("num")})).shuffle_grouping("1")
    builder.set_bolt("3", TestPlannerBolt()).shuffle_grouping("2")
    with running(builder, secs=1) as run:
        feeder.feed([1], "a")
        run.advance(1)
        assert tracker.is_acked("a")
        assert run.total("3", "executed") == 1


def test_tuples_without_a_message_id_are_never_acked_nor_failed():
    builder = TopologyBuilder()
    builder.set_spout("1", Loose(limit=5))
    builder.set_bolt("2", Script(lambda tup, collector, count: collector.ack(tup) if count % 2 else collector.fail(tup))).shuffle_grouping("1")
    with running(builder, {"topology.message.timeout.secs": 5}, secs=20) as run:
        assert run.components("1")[0].done == []
        assert (run.total("1", "acked"), run.total("1", "failed")) == (0, 0)
        assert (run.total("2", "acked"), run.total("2", "failed")) == (3, 2)


def test_without_ackers_every_tuple_is_acked_at_once_and_bolts_count_no_acks():
    def either(tup, collector, count):
        collector.emit((count,), anchors=tup)
        collector.ack(tup) if count % 2 else collector.fail(tup)

    builder = TopologyBuilder()
    builder.set_spout("1", Life(limit=4))
    builder.set_bolt("2", Script(either, {"default": Fields("num")})).shuffle_grouping("1")
    builder.set_bolt("3", TestPlannerBolt()).shuffle_grouping("2")
    with running(builder, {"topology.acker.executors": 0, "topology.max.spout.pending": 1, "topology.message.timeout.secs": 1}, secs=5) as run:
        assert run.components("1")[0].done == [("ack", i) for i in range(4)]
        assert (run.total("1", "acked"), run.total("1", "failed")) == (4, 0)
        assert (run.total("2", "acked"), run.total("2", "failed")) == (0, 0)
        assert "__acker" not in run.sim.plan.component_ids


# --- failures ---------------------------------------------------------------------------------------------------------


def failing(script, conf=None, secs=0, **kwargs):
    feeder, tracker = fed("num")
    builder = TopologyBuilder()
    builder.set_spout("1", feeder)
    builder.set_bolt("2", script if not callable(script) else Script(script)).global_grouping("1")
    return feeder, tracker, running(builder, conf, secs=secs, **kwargs)


def test_a_bolt_fails_a_tree_at_once_and_storm_never_emits_again():
    feeder, tracker, topology = failing(lambda tup, collector, count: collector.fail(tup))
    with topology as run:
        feeder.feed([1], "a")
        run.advance(0.5)
        assert tracker.is_failed("a")
        run.advance(120, 1)
        assert run.total("1", "emitted", "default") == 1
        assert (run.total("1", "failed"), run.total("2", "failed"), run.total("2", "executed")) == (1, 1, 1)


def test_one_failed_branch_fails_all_roots_of_its_tuple_once():
    def join(tup, collector, count):
        held.append(tup)
        if len(held) == 2:
            collector.emit((0,), anchors=held)
            for each in held:
                collector.ack(each)

    held = []
    builder = TopologyBuilder()
    builder.set_spout("1", Life(limit=2))
    builder.set_bolt("2", Script(join, {"default": Fields("num")})).global_grouping("1")
    builder.set_bolt("3", Script(lambda tup, collector, count: collector.fail(tup))).all_grouping("2")
    builder.set_bolt("4", AckBolt()).all_grouping("2")
    with running(builder, {"topology.message.timeout.secs": 5}, secs=20) as run:
        assert sorted(run.components("1")[0].done) == [("fail", 0), ("fail", 1)]


def ack_odd(tup, collector, count):
    if count % 2:
        collector.ack(tup)


def test_a_forgotten_ack_fails_by_timeout_between_one_and_two_timeouts():
    feeder, tracker, topology = failing(ack_odd, {"topology.message.timeout.secs": 10}, secs=11)
    with topology as run:
        for i, value in enumerate("abc", 1):
            feeder.feed([value], i)
        run.advance(9)
        assert tracker.is_acked(1) and tracker.is_acked(3)
        assert not tracker.is_failed(2)
        run.advance(12)
        assert tracker.is_failed(2)


@pytest.mark.parametrize("start", range(0, 10, 3))
def test_wherever_it_starts_a_timeout_takes_between_one_and_two_times_as_long(start):
    feeder, tracker, topology = failing(TestPlannerBolt(), {"topology.message.timeout.secs": 10}, secs=20 + start)
    with topology as run:
        feeder.feed([1], "a")
        run.advance(10)
        assert not tracker.is_failed("a")
        run.advance(10.5)
        assert tracker.is_failed("a")


def test_a_late_ack_is_ignored():
    held = []

    def late(tup, collector, count):
        held.append(tup)
        if count == 2:
            collector.ack(held[0])
            collector.ack(tup)

    feeder, tracker, topology = failing(late, {"topology.message.timeout.secs": 5})
    with topology as run:
        feeder.feed([1], "a")
        run.advance(15)
        assert tracker.is_failed("a")
        feeder.feed([2], "b")
        run.advance(15)
        assert tracker.is_acked("b")
        assert not tracker.is_acked("a")
        assert (run.total("1", "acked"), run.total("1", "failed")) == (1, 1)


def test_reset_timeout_starts_the_timeout_anew():
    held = []

    def resetting(tup, collector, count):
        if count == 1:
            held.append(tup)
        elif count == 2:
            collector.reset_timeout(held[0])
        elif count == 5:
            collector.ack(held[0])
            collector.ack(tup)
        else:
            collector.reset_timeout(held[0])
            collector.ack(tup)

    feeder, tracker, topology = failing(resetting, {"topology.message.timeout.secs": 10})
    with topology as run:
        feeder.feed(["a"], 1)
        feeder.feed(["b"], 2)
        run.advance(9)
        feeder.feed(["c"], 3)
        run.advance(0.5)
        assert tracker.is_acked(3)
        run.advance(8.5)
        feeder.feed(["d"], 4)
        run.advance(0.5)
        assert tracker.is_acked(4)
        run.advance(2)
        assert tracker.is_failed(2)
        feeder.feed(["e"], 5)
        run.advance(0.5)
        assert tracker.is_acked(5) and tracker.is_acked(1)
        assert not tracker.is_failed(1)


def test_with_timeouts_switched_off_nothing_times_out_and_a_very_late_ack_still_counts():
    held = []

    def very_late(tup, collector, count):
        held.append(tup)
        if count == 2:
            for each in held:
                collector.ack(each)

    feeder, tracker, topology = failing(very_late, {"topology.message.timeout.secs": 2, "topology.enable.message.timeouts": False})
    with topology as run:
        feeder.feed([1], "a")
        run.advance(60, 1)
        assert not tracker.is_failed("a")
        feeder.feed([2], "b")
        run.advance(1)
        assert tracker.is_acked("a") and tracker.is_acked("b")


# --- max spout pending ------------------------------------------------------------------------------------------------


def test_max_spout_pending_bounds_the_unfinished_trees_of_an_executor_by_its_tasks():
    builder = TopologyBuilder()
    builder.set_spout("1", Life(limit=100), 2).set_num_tasks(4).set_max_spout_pending(3)
    builder.set_bolt("2", TestPlannerBolt()).shuffle_grouping("1")
    with running(builder, secs=2) as run:
        plan = run.sim.plan
        emitted = dict(zip(plan.component_tasks("1"), (s.emitted for s in run.components("1"))))
        per_executor = [sum(emitted[t] for t in range(first, last + 1)) for first, last in plan.executors("1")]
        assert per_executor == [6, 6]


def test_at_the_bound_acks_still_come_and_open_it_again():
    builder = TopologyBuilder()
    builder.set_spout("1", Life(limit=50)).set_max_spout_pending(2)
    builder.set_bolt("2", AckBolt()).shuffle_grouping("1")
    with running(builder, secs=1) as run:
        (spout,) = run.components("1")
        assert (spout.emitted, len(spout.done)) == (50, 50)


def test_max_spout_pending_has_no_effect_on_untracked_tuples():
    builder = TopologyBuilder()
    builder.set_spout("1", Loose(limit=50)).set_max_spout_pending(2)
    builder.set_bolt("2", TestPlannerBolt()).shuffle_grouping("1")
    with running(builder, secs=1) as run:
        assert run.components("1")[0].emitted == 50


# --- basic bolts ------------------------------------------------------------------------------------------------------


class Picky(BasicBolt):
    """Fails 1 quietly, 2 with a report, and raises on 3."""

    def __init__(self):
        self.prepared = []

    def prepare(self, conf, context):
        self.executed = []

    def execute(self, tup, collector):
        self.executed.append(tup["num"])
        if tup["num"] == 1:
            raise FailedException("quiet")
        if tup["num"] == 2:
            raise ReportedFailedException("loud")
        if tup["num"] == 3:
            raise ValueError("broken")
        collector.emit((tup["num"],))

    def declare_output_fields(self, declarer):
        declarer.declare("num")


def test_basic_bolts_anchor_and_ack_and_fail_by_exception():
    feeder, tracker = fed("num")
    builder = TopologyBuilder()
    builder.set_spout("1", feeder)
    builder.set_bolt("2", Picky()).shuffle_grouping("1")
    builder.set_bolt("3", Keep()).shuffle_grouping("2")
    with running(builder, {"topology.message.timeout.secs": 10}) as run:
        for i in range(5):
            feeder.feed([i], i)
        run.advance(1)
        assert [tracker.is_acked(i) for i in range(5)] == [True, False, False, False, True]
        assert [tracker.is_failed(i) for i in range(5)] == [False, True, True, False, False]
        errors = run.errors("2")
        assert any("loud" in e for e in errors) and not any("quiet" in e for e in errors)
        assert run.components("2")[0].executed == [4]  # created again after the tuple on which it raised
        run.advance(20)
        assert tracker.is_failed(3)
        assert run.components("3")[0].seen == [(0,), (4,)]


# --- direct streams and emits that are refused ------------------------------------------------------------------------


def emitted(script, streams, direct=(), subscribe=None, hint=2):
    """Run one tuple through ``script``; return what it returned, the sinks' inputs, and the errors."""
    feeder, _ = fed("num")
    builder = TopologyBuilder()
    builder.set_spout("1", feeder)
    builder.set_bolt("2", Script(script, streams, direct)).shuffle_grouping("1")
    subscribe(builder.set_bolt("3", Keep(), hint))
    with running(builder) as run:
        feeder.feed([7])
        run.advance(1)
        return run.components("2")[0].returned, [b.seen for b in run.components("3")], run.errors("2")


DIRECT = {"streams": {"d": Fields("n")}, "direct": ("d",), "subscribe": lambda b: b.direct_grouping("2", "d")}


def test_emit_direct_reaches_the_task_that_is_named():
    def script(tup, collector, count):
        return collector.emit_direct(4, (tup["num"],), stream="d")  # tasks: 1 spout, 2 bolt, 3 and 4 sinks, 5 acker

    assert emitted(script, **DIRECT) == ([[4]], [[], [(7,)]], [])


def test_a_regular_emit_on_a_direct_stream_is_refused():
    _, seen, errors = emitted(lambda tup, collector, count: collector.emit((1,), stream="d"), **DIRECT)
    assert seen == [[], []]
    assert "Cannot do regular emit to direct stream" in errors[0]


def test_emit_direct_to_a_task_with_a_regular_grouping_is_refused():
    _, seen, errors = emitted(
        lambda tup, collector, count: collector.emit_direct(4, (1,), stream="d"), {"d": Fields("n")}, ("d",), lambda b: b.shuffle_grouping("2", "d")
    )
    assert seen == [[], []]
    assert "Cannot emitDirect to a task expecting a regular grouping" in errors[0]


def test_emit_direct_to_a_component_that_does_not_subscribe_is_dropped():
    returned, seen, errors = emitted(lambda tup, collector, count: collector.emit_direct(1, (1,), stream="d"), **DIRECT)
    assert (returned, seen, errors) == ([[]], [[], []], [])


@pytest.mark.parametrize(
    ("values", "stream", "text"),
    [
        ((1,), "nowhere", "Unknown stream ID: nowhere"),
        ((1, 2), "default", "Tuple created with wrong number of fields. Expected 1 fields but got 2 fields"),
        ((), "default", "Expected 1 fields but got 0 fields"),
        ("text", "default", "expected a list or tuple of values"),
        ("tuple", (1,), "hint: the order is emit(values, stream, anchors=...), which differs from Java's"),
        ("tuple", [1], "Unknown stream ID: [1] (component '2'); given: [1]; legal: default; hint: the order is"),
    ],
)
def test_a_wrong_emit_says_what_is_wrong(values, stream, text):
    _, seen, errors = emitted(
        lambda tup, collector, count: collector.emit(values, stream=stream), {"default": Fields("n")}, (), lambda b: b.shuffle_grouping("2")
    )
    assert seen == [[], []]
    assert text in errors[0]
    assert "'2'" in errors[0]


def test_emit_returns_the_tasks_of_all_subscribers():
    feeder, _ = fed("num")
    builder = TopologyBuilder()
    builder.set_spout("1", feeder)
    builder.set_bolt("2", Script(lambda tup, collector, count: collector.emit((1,)), {"default": Fields("n")})).shuffle_grouping("1")
    builder.set_bolt("3", Keep(), 2).all_grouping("2")
    builder.set_bolt("4", Keep(), 2).global_grouping("2")
    with running(builder) as run:
        feeder.feed([7])
        run.advance(1)
        plan = run.sim.plan
        assert run.components("2")[0].returned == [plan.component_tasks("3") + plan.component_tasks("4")[:1]]


def test_the_errors_of_a_spouts_emit_are_reported_and_the_spout_goes_on():
    class Wrong(Life):
        def next_tuple(self):
            if self.emitted == 0 and not wrong:
                wrong.append(1)
                self.collector.emit((1, 2))
            super().next_tuple()

    wrong = []
    builder = TopologyBuilder()
    builder.set_spout("1", Wrong(limit=2))
    builder.set_bolt("2", Keep()).shuffle_grouping("1")
    with running(builder, secs=1) as run:
        assert "Expected 1 fields but got 2 fields" in run.errors("1")[0]
        assert run.components("2")[0].seen == [(0,), (1,)]
        with pytest.raises(IllegalArgumentException):
            run.components("1")[0].collector.emit((1, 2))
