"""Which messages may be refused as late: the judge of the verification, against the plain rule and on cases by hand."""

import random

import pytest

from dskype.deploy.verification.refusals import Accepted, LatenessJudge
from dskype.spouts.settings import Settings
from tests import naive

pytestmark = pytest.mark.long


def judge(accepted, lateness_ms=100, idle_ms=500, task_of=None, complete=True):
    return LatenessJudge(accepted, {0: 1, 1: 1} if task_of is None else task_of, Settings(lateness_ms=lateness_ms, idle_ms=idle_ms), complete=complete)


@pytest.mark.parametrize("seed", range(30))
def test_it_judges_as_the_plain_rule(seed):
    rng = random.Random(seed)
    lateness_ms, idle_ms = rng.choice([0, 50, 1000]), rng.choice([0, 1, 200])
    now, accepted = 10_000, []
    for i in range(40):
        now += rng.choice([0, 1, 20, 300])
        accepted.append(Accepted(rng.randrange(2), i, now, now + rng.choice([0, -30, -600, 900])))
    pairs = sorted((m.arrival_ms, m.own_ms) for m in accepted)
    found = judge(accepted, lateness_ms, idle_ms)
    for _ in range(300):
        arrival = rng.randint(9_900, now + 400)
        own = arrival - rng.choice([0, 1, 30, 50, 51, 600, 999, 1000, 1001, 2000])
        assert found.may_be_late(Accepted(0, 99, arrival, own)) is naive.is_late(own, arrival, pairs, lateness_ms, idle_ms), (own, arrival)


def test_a_message_in_time_may_be_refused_after_a_pause_of_all_partitions_of_its_task_only():
    one, other, late = Accepted(0, 0, 1_000, 1_000), Accepted(1, 0, 1_300, 1_300), Accepted(0, 1, 1_600, 950)
    assert judge([one], 1_000).may_be_late(late) is True
    assert judge([one, other], 1_000).may_be_late(late) is False, "300 ms are no pause"
    assert judge([one, other], 1_000, task_of={0: 1, 1: 2}).may_be_late(late) is True, "another task reads the other partition"
    assert judge([one, other], 1_000, task_of={0: 1, 1: 2}).may_be_late(late._replace(partition=9)) is True, "any task may read a partition without messages"
    assert judge([one], 1_000).may_be_late(late._replace(arrival_ms=1_499)) is False
    assert judge([one], 1_000).may_be_late(late._replace(own_ms=1_001)) is False, "it is newer than what came before the pause"


def test_a_message_that_came_too_late_needs_a_newer_one():
    late = Accepted(0, 5, 2_000, 1_800)
    assert judge([Accepted(0, 0, 1_950, 1_950)]).may_be_late(late) is True
    assert judge([Accepted(0, 0, 1_950, 1_900)]).may_be_late(late) is False
    assert judge([]).may_be_late(late) is False
    assert judge([], complete=False).may_be_late(late) is True


def test_what_is_gone_is_not_judged():
    first = Accepted(0, 7, 1_000, 1_000)
    assert judge([first], complete=False).may_be_late(Accepted(0, 3, 900, 900)) is None
    assert judge([first], complete=False).may_be_late(Accepted(0, 8, 1_010, 1_010)) is False
