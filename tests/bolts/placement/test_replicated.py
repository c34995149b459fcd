"""Placements, epochs and plans of a distribution task: reports that come late, in any order, or not at all."""

import numpy as np
import pytest

from dskype.bolts.placement.plans import Plans, union_of
from dskype.bolts.placement.replicated import ReplicatedPlacement
from dskype.bolts.protocol.reports import ReplicaReport
from dskype.distribution import Distributor, Placed
from dskype.distribution.subscriptions import BooleanSubscription, TopkSubscription
from dskype.spouts.batch import MessageBatch
from dskype.topology.core.values import pack_state, unpack_state
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.groupings import RowTasks

TASKS = [20, 21, 22, 23]
ALWAYS, MESSAGES_PER_MOVE, MOST = 32, 32, 512
"""docs/decisions/0112-leave-room-for-messages-while-a-plan-changes.md: a task moves 32 subscriptions at a time, and one more for each 32 messages that it routes, at most 512."""
WINDOW = 100


class Plain(Distributor):
    """Keyword *t* lives on task ``plan["of"][t]``; the guard is 0.5 where a placement leaves keywords out. A threshold above it asks for the first one only."""

    name = "plain"

    def __init__(self, plan):
        if "of" not in plan:
            raise IllegalArgumentException("no plan")
        super().__init__(len(TASKS))
        self._plan = plan

    @classmethod
    def learn(cls, tasks, sample, options=None):
        raise NotImplementedError

    def place(self, name, subscription, threshold=None):
        of = [self._plan["of"][t] for t in (subscription.terms if isinstance(subscription, TopkSubscription) else subscription.expression[1:])]
        first = threshold is None or threshold > 0.5
        tasks = set(of[:1]) if first else set(of)
        return Placed(sorted(tasks), 0.5 if set(of) - tasks else -np.inf)

    def message_tasks(self, messages):
        return RowTasks(np.arange(messages.n), np.array([self._plan["of"][0]] * messages.n, np.int32))

    def plan(self):
        return self._plan


class Context:
    def __init__(self):
        self.counters, self.gauges = {}, {}

    def register_counter(self, name):
        from dskype.topology.context import Counter

        return self.counters.setdefault(name, Counter())

    def register_gauge(self, name, function):
        self.gauges[name] = function


class Collector:
    def __init__(self):
        self.sent, self.told, self.errors = [], [], []

    def emit_direct(self, task, row, stream):
        self.sent.append((task, *row))

    def emit(self, row, stream):
        self.told.append(row)

    def report_error(self, error):
        self.errors.append(error)

    def taken(self):
        sent, self.sent = self.sent, []
        return sent


def made(of=(0, 1, 2)):
    collector, context = Collector(), Context()
    return ReplicatedPlacement(Plans(Plain({"of": list(of)}), Plain), TASKS, collector, context, WINDOW), collector, context


def topk(*terms):
    return TopkSubscription(3, 0.5, 0.0, 0.0, list(terms), [1.0] * len(terms), None)


def report(placer, subscription, registration, epoch, kind, theta, placement, task):
    """Have a report handled as it comes from a task; ``placement`` is what the task was sent."""
    given = None if placement is None else {"guard": 0.5, "plan": 0} | placement
    placer.handle_report(ReplicaReport.decode((subscription, registration, epoch, kind, theta, given)), task)


def sent(collector):
    """Return (task, type, epoch, tasks, guard) of what was sent."""
    return [(task, p["type"], p.get("epoch"), p.get("tasks"), p.get("guard")) for task, _, _, p in collector.taken()]


def whole(collector_row):
    return dict(collector_row[3].items())


def test_before_any_message_all_tasks_get_a_subscription_and_later_the_first_one():
    placer, collector, _ = made()
    placer.register("a", "0-0", topk(0, 1))
    assert sent(collector) == [(20, "topk", 1, [0, 1], -np.inf), (21, "topk", 1, [0, 1], -np.inf)]
    placer.epochs.watermark = 5
    placer.register("b", "0-1", topk(0, 1))
    assert sent(collector) == [(20, "topk", 1, [0], 0.5)]
    assert collector.told == [
        ("a", "0-0", "begin", {"topk": True, "at": -1, "updated": False}),
        ("b", "0-1", "begin", {"topk": True, "at": 5, "updated": False}),
    ]


def short():
    """Return a placer with one subscription on one task, and its placement."""
    placer, collector, context = made()
    placer.epochs.watermark = 5
    placer.register("s", "0-7", topk(0, 1))
    return placer, collector, context, whole(collector.taken()[0])


def test_a_short_replica_brings_another_epoch_and_an_old_report_nothing():
    placer, collector, context, placement = short()
    report(placer, "s", "0-7", 1, "short", 0.4, placement, 20)
    assert sent(collector) == [(20, "epoch", 2, [0, 1], -np.inf), (21, "topk", 2, [0, 1], -np.inf)]
    for registration, epoch in (("0-7", 1), ("0-6", 2), ("0-8", 2)):
        report(placer, "s", registration, epoch, "short", 0.1, placement, 20)
    assert not collector.taken() and context.counters["reallocations"].get_count() == 1
    assert context.gauges["replicas"]() == 2


def test_an_unregistration_reaches_all_tasks_and_reports_that_cross_it_are_ignored():
    placer, collector, context, placement = short()
    report(placer, "s", "0-7", 1, "short", 0.4, placement, 20)
    collector.taken()
    placer.unregister("s")
    assert sent(collector) == [(20, "end", None, None, None), (21, "end", None, None, None)]
    assert collector.told[-1] == ("s", "0-7", "end", {"topk": True, "at": 5, "tasks": [20, 21], "replaced": False, "updated": False})
    report(placer, "s", "0-7", 2, "short", 0.1, placement, 21)
    report(placer, "s", "0-7", 2, "ready", None, None, 21)
    placer.unregister("s")
    assert not collector.taken() and context.counters["unknown_unregistered"].get_count() == 1


def test_a_replacement_ends_the_one_before_first():
    placer, collector, _, placement = short()
    placer.register("s", "0-9", topk(2))
    assert [(task, registration, p["type"]) for task, _, registration, p in collector.taken()] == [(20, "0-7", "end"), (22, "0-9", "topk")]
    assert [(row[1], row[2]) for row in collector.told] == [("0-7", "begin"), ("0-7", "end"), ("0-9", "begin")] and collector.told[1][3]["replaced"]
    report(placer, "s", "0-7", 1, "short", 0.1, placement, 20)
    assert not collector.taken()


def answer(placer, collector, theta=0.9):
    """Let the tasks answer surveys; returns what was sent else, in order."""
    others = []
    for task, name, registration, p in collector.taken():
        if p["type"] == "survey":
            entry = placer.epochs.registry.get(name)
            report(placer, name, registration, entry.epoch, "survey", theta, topk(0, 1).encode(), task)
        else:
            others.append((task, p["type"], p.get("epoch"), p.get("tasks")))
    return others


def test_a_change_of_plan_moves_in_two_epochs_and_then_drops_the_old_routes():
    placer, collector, context, _ = short()
    one = MessageBatch(*(np.array([9]) for _ in range(2)), *(np.zeros(1) for _ in range(2)), np.array([0, 0]), np.zeros(0, np.int64), np.zeros(0))
    assert placer.routes(one).tasks.tolist() == [0]
    placer.enqueue_plan(1, {"of": [2, 1, 2]})
    assert placer.routes(one).tasks.tolist() == [0, 2]
    markers = [row for row in collector.sent if row[3]["type"] == "plan"]
    assert [(task, p["version"], p["high"]) for task, _, _, p in markers] == [(task, 1, 9) for task in TASKS]
    assert answer(placer, collector)[len(TASKS) :] == []
    assert sent(collector) == [(20, "epoch", 2, [0, 2], 0.5), (22, "topk", 2, [0, 2], 0.5)]
    state = unpack_state(pack_state(placer.snapshot()))  # a crash on the way
    placer, collector, context = made()
    placer.restore(state)
    placer.enqueue_plan(2, {"of": [3, 3, 3]})  # waits for the change before
    placer.enqueue_plan(2, {"of": [1, 1, 1]})  # is not new
    placer.drop_old_routes(1, -1)  # not yet
    assert not collector.taken()
    report(placer, "s", "0-7", 2, "ready", None, None, 22)
    found = sent(collector)
    assert found[:2] == [(20, "epoch", 3, [2], 0.5), (22, "epoch", 3, [2], 0.5)] and [what for _, what, *_ in found[2:]] == ["done"] * 4
    assert placer.routes(one).tasks.tolist() == [0, 2]
    placer.drop_old_routes(1, -1)
    assert {p["version"] for *_, p in collector.sent if p["type"] == "plan"} == {2}
    assert placer.routes(one).tasks.tolist() == [2, 3]


def routed(placer, n):
    """Have ``n`` messages routed."""
    number = np.arange(n)
    placer.routes(MessageBatch(number, number, np.zeros(n), np.zeros(n), np.zeros(n + 1, np.int64), np.zeros(0, np.int64), np.zeros(0)))


@pytest.mark.long
def test_a_change_of_plan_leaves_room_for_messages():
    placer, collector, context = made()
    for number in range(600):
        placer.register(f"s{number}", f"0-{number}", topk(0, 1))
    collector.taken()
    routed(placer, 100_000)  # before the change: they do not count
    placer.enqueue_plan(1, {"of": [0, 1, 2]})

    def surveyed():
        return [name for _, name, _, p in collector.taken() if p["type"] == "survey"]

    def answered(name):
        report(placer, name, placer.epochs.registry.get(name).registration, 1, "survey", None, topk(0, 1).encode(), 20)

    first = surveyed()
    assert len(first) == ALWAYS
    routed(placer, 10 * MESSAGES_PER_MOVE)
    assert not surveyed()  # a report lets more begin
    answered(first[0])
    assert len(surveyed()) == 10
    routed(placer, 100 * MOST * MESSAGES_PER_MOVE)
    state = unpack_state(pack_state(placer.snapshot()))  # a crash on the way
    placer, collector, context = made()
    placer.restore(state)
    answered(first[1])
    assert len(surveyed()) == MOST - (ALWAYS + 10 - 2)


def test_a_plan_that_makes_no_sense_is_refused_and_the_next_one_is_taken():
    placer, collector, context = made()
    placer.enqueue_plan(1, {})
    assert len(collector.errors) == 1 and "plan 1" in collector.errors[0] and not collector.taken()
    placer.enqueue_plan(2, {"of": [1, 1, 1]})
    assert [p["type"] for *_, p in collector.taken()] == ["plan"] * 4 + ["done"] * 4
    assert context.counters["plan_changes"].get_count() == 1 and context.counters["plans_refused"].get_count() == 1


def test_while_a_plan_changes_new_subscriptions_live_where_either_puts_them():
    placer, collector, _ = made()
    placer.epochs.watermark = 3
    placer.enqueue_plan(1, {"of": [2, 1, 2]})
    collector.taken()
    placer.register("n", "0-1", topk(0))
    assert sent(collector) == [(20, "topk", 1, [0, 2], -np.inf), (22, "topk", 1, [0, 2], -np.inf)]
    placer.drop_old_routes(1, -1)
    placer.register("m", "0-2", topk(0))
    assert sent(collector) == [(22, "topk", 1, [2], -np.inf)]


def reviewed(terms=(0, 1)):
    """Return a placer that reviews the one subscription it has, on all tasks of its keywords, and the placement."""
    placer, collector, context = made()
    placer.register("s", "0-7", topk(*terms))
    placement = whole(collector.taken()[0])
    placer.advance(3)
    placer.advance(WINDOW + 2)
    assert not collector.taken()
    placer.advance(WINDOW + 3)
    assert sent(collector) == [(TASKS[i], "survey", None, None, None) for i in placement["tasks"]]
    return placer, collector, context, placement


def test_a_subscription_that_needs_fewer_tasks_begins_again_on_those():
    placer, collector, context, placement = reviewed((0, 1, 2))
    for task, theta in ((22, None), (20, -np.inf)):
        report(placer, "s", "0-7", 1, "survey", theta, placement, task)
    assert not collector.taken()
    state = unpack_state(pack_state(placer.snapshot()))  # a crash on the way
    placer, collector, context = made()
    placer.restore(state)
    report(placer, "s", "0-7", 1, "survey", 0.9, placement, 21)
    assert sent(collector) == [
        (20, "epoch", 2, [1, 2], np.inf),
        (21, "epoch", 2, [1, 2], np.inf),
        (22, "epoch", 2, [1, 2], np.inf),
        (20, "topk", 3, [0], 0.5),
        (21, "epoch", 3, [0], 0.5),
        (22, "epoch", 3, [0], 0.5),
    ]
    assert context.counters["shrunk"].get_count() == 1 and context.gauges["replicas"]() == 1
    report(placer, "s", "0-7", 2, "short", 0.9, placement, 21)  # no floor is above the guard of the first epoch
    assert not collector.taken()
    report(placer, "s", "0-7", 3, "short", 0.4, placement, 20)  # what it found is worse: it grows again
    assert sent(collector) == [(20, "epoch", 4, [0, 1, 2], -np.inf), (21, "topk", 4, [0, 1, 2], -np.inf), (22, "topk", 4, [0, 1, 2], -np.inf)]


@pytest.mark.parametrize("theta", [None, -np.inf, 0.4])
def test_a_subscription_that_needs_all_its_tasks_keeps_them(theta):
    placer, collector, context, placement = reviewed()
    for task in (20, 21):
        report(placer, "s", "0-7", 1, "survey", theta, placement, task)
    assert not collector.taken() and not placer.reviews.asked and context.gauges["moving"]() == 0


def test_a_review_ends_with_another_epoch_an_unregistration_or_a_plan():
    for change in (
        lambda placer, placement: report(placer, "s", "0-7", 1, "short", -np.inf, placement, 20),
        lambda placer, _: placer.unregister("s"),
        lambda placer, _: placer.enqueue_plan(1, {"of": [0, 1, 2]}),
    ):
        placer, collector, context, placement = reviewed()
        report(placer, "s", "0-7", 1, "survey", 0.9, placement, 20)
        change(placer, placement)
        collector.taken()
        report(placer, "s", "0-7", 1, "survey", 0.9, placement, 21)
        assert not placer.reviews.asked and context.counters["shrunk"].get_count() == 0


def test_reviews_become_rarer_and_leave_out_those_that_cannot_shrink():
    placer, collector, _ = made()
    for number, terms in enumerate([(0, 1), (0,), (1, 2)]):
        placer.register(f"s{number}", f"0-{number}", topk(*terms))
    placer.register("filter", "0-9", BooleanSubscription([0, 0, 1, 1], ["and", 0, 1], None, None))
    collector.taken()
    begun, asked = [], set()
    for watermark in range(0, 200 * WINDOW, WINDOW // 2):
        placer.advance(watermark)
        surveys = [(name, p["type"]) for _, name, _, p in collector.taken()]
        if surveys:
            begun.append(watermark // WINDOW)
            asked.update(name for name, _ in surveys)
            for name, tasks in [(name, list(review.waits_for)) for name, review in placer.reviews.asked.items()]:
                for index in tasks:
                    report(placer, name, placer.epochs.registry.get(name).registration, 1, "survey", None, topk(0, 1).encode(), TASKS[index])
    assert begun == [1, 3, 7, 15, 31, 63, 127, 191] and asked == {"s0", "s2"}


def test_many_subscriptions_are_reviewed_some_at_a_time():
    placer, collector, _ = made()
    n = 3 * MOST
    for number in range(n):
        placer.register(f"s{number}", f"0-{number}", topk(0, 1))
    collector.taken()
    placer.advance(0)
    placer.advance(WINDOW)
    answered = 0
    while asked := collector.taken():
        assert len(placer.reviews.asked) <= MOST
        for task, name, registration, p in asked:
            assert p["type"] == "survey"
            report(placer, name, registration, 1, "survey", -np.inf, topk(0, 1).encode(), task)
            answered += 1
    assert answered == 2 * n and not placer.reviews.waiting


@pytest.mark.parametrize("other", [None, RowTasks(np.array([0, 1, 1]), np.array([3, 0, 2], np.int32))])
def test_routes_of_two_plans_are_put_together(other):
    found = union_of(RowTasks(np.array([0, 0, 2]), np.array([1, 3, 0], np.int32)), other, 4)
    if other is None:
        assert found is None
        return
    assert list(zip(found.rows.tolist(), found.tasks.tolist())) == [(0, 1), (0, 3), (1, 0), (1, 2), (2, 0)] and found.tasks.dtype == np.int32
