"""Subscriptions that tasks send each other: epoch and subscription in either order, ends in between, restarts."""

import pytest

from dskype.bolts.ownership.transfers import Transfers
from dskype.bolts.protocol.placements import Epoch, MovePlan, Placement, Send, decode_placement, encode_placement
from dskype.bolts.protocol.reports import Located, ReplicaReport
from dskype.distribution import make_distributor
from dskype.distribution.subscriptions import BooleanSubscription
from dskype.topology.context import Counter
from dskype.topology.core.values import pack_state, unpack_state

CAFE = BooleanSubscription([-10.0, -10.0, 10.0, 10.0], ["and", 3, 9], 7_000, '{"n": 1}')
EPOCH = Epoch(2, [0, 2], float("-inf"), 5, 5, 40, True, [2], [])
KEY = "cafe", "0-17"


class Collector:
    def __init__(self):
        self.sent = []

    def emit_direct(self, task, row, stream):
        self.sent.append((task, stream, row))


def transfers(collector=None):
    return Transfers(collector or Collector(), [20, 21, 22], lambda plan: make_distributor("agrid", 3, None, plan), Counter())


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("epoch_first", [False, True])
def test_a_subscription_begins_when_it_and_its_epoch_are_there(epoch_first, restart):
    one = transfers()
    steps = [lambda: one.expect(*KEY, EPOCH), lambda: one.arrive(*KEY, CAFE.encode())]
    first, second = steps if epoch_first else steps[::-1]
    assert first() is None and len(one) == 1
    if restart:
        state = unpack_state(pack_state(one.snapshot()))
        one = transfers()
        one.restore(state)
    assert second() == Placement(CAFE, EPOCH) and not len(one)


def test_a_subscription_that_ends_on_its_way_does_not_begin():
    one = transfers()
    assert not one.cancel(*KEY), "it is not expected: the task has it, and ends it"
    one.expect(*KEY, EPOCH)
    assert one.cancel(*KEY)
    one.expect("cafe", "0-23", EPOCH)  # the next registration of the same id
    state = unpack_state(pack_state(one.snapshot()))
    one = transfers()
    one.restore(state)
    assert one.arrive(*KEY, CAFE.encode()) is None
    assert one.arrive("cafe", "0-23", CAFE.encode()) == Placement(CAFE, EPOCH)


def test_a_task_locates_subscriptions_by_the_newest_plan_and_sends_them():
    collector = Collector()
    one = transfers(collector)
    assert one.locate("cafe", CAFE) is None
    agrid = make_distributor("agrid", 3)
    one.adopt_plan(2, agrid.merge(0, 1))
    one.adopt_plan(1, agrid.plan())
    expected = make_distributor("agrid", 3, None, agrid.merge(0, 1)).place("cafe", CAFE).tasks
    assert one.locate("cafe", CAFE) == expected != agrid.place("cafe", CAFE).tasks
    restored = transfers()
    restored.restore(unpack_state(pack_state(one.snapshot())))
    assert restored.locate("cafe", CAFE) == expected
    one.send(*KEY, CAFE, [1, 2])
    assert collector.sent == [(task, "transfers", (*KEY, CAFE.encode())) for task in (21, 22)]


@pytest.mark.parametrize("message", [MovePlan(3, {"v": 1}), Send([1, 2]), EPOCH])
def test_messages_travel_as_plain_values(message):
    assert decode_placement(unpack_state(pack_state(encode_placement(message)))) == message


def test_a_report_of_the_place_has_no_subscription():
    report = ReplicaReport(*KEY, 4, "survey", None, Located([0, 2], 3))
    assert ReplicaReport.decode(unpack_state(pack_state(list(report.encode())))) == report


def test_only_tasks_that_lose_cells_give_subscriptions_away():
    before = make_distributor("agrid", 4)
    for _ in range(3):
        number = next(n for n in range(4) if before.grid.neighbours(n))
        plan = before.split(number, (int(before.task_of[number]) + 1) % 4)
        after = make_distributor("agrid", 4, None, plan)
        assert before.giving_tasks(after) == [int(before.task_of[number])]
        assert before.giving_tasks(before) == []
        before = after
    assert before.giving_tasks(make_distributor("agrid", 4, {"granularity": 10})) is None
