"""Executors that have been given up by Spark write nothing once another one has the leases of their tasks."""

from __future__ import annotations

import pytest

from dskype.topology.core.snapshots import FencedError, MemorySnapshotStore
from dskype.topology.runtime.leases import Leases, SupersededError


class Shared:
    """A store and a clock that executors share."""

    def __init__(self):
        self.store, self.now, self.reads = MemorySnapshotStore(3), 0.0, 0
        read = self.store.read_document

        def counted(name):
            self.reads += 1
            return read(name)

        self.store.read_document = counted

    def sleep(self, seconds):
        self.now += seconds

    def leases(self, owner, home="here", epoch=1, tasks=(3, 4)):
        found = Leases(self.store, tasks, owner=owner, home=home, epoch=epoch, clock=lambda: self.now)
        found.take(self.sleep)
        return found


@pytest.fixture
def shared():
    return Shared()


def test_the_first_executor_does_not_wait_and_asks_the_store_every_two_seconds_at_most(shared):
    leases = shared.leases("a")
    assert shared.now == 0.0
    leases.check()
    before = shared.reads
    for _ in range(10):
        shared.sleep(0.19)
        leases.check()
    assert shared.reads == before
    shared.sleep(0.2)
    leases.check()
    assert shared.reads == before + 2  # one for each task


def test_an_executor_that_stood_still_ends_and_its_successor_begins_when_it_cannot_write_any_more(shared):
    first = shared.leases("a", home="one")
    first.check()
    shared.sleep(1.0)
    second = shared.leases("b", home="two", tasks=(4, 5))  # after a rebalance
    assert shared.now > 3.0
    second.check()
    with pytest.raises(SupersededError, match=r"(?s)task 4.*given: 'b'"):
        first.check()


def test_a_successor_under_the_same_supervisor_does_not_wait(shared):
    shared.leases("a")
    shared.leases("b").check()
    assert shared.now == 0.0


def test_who_has_given_tasks_back_is_not_waited_for(shared):
    shared.leases("a", home="one").release()
    shared.leases("b", home="two").check()
    assert shared.now == 0.0


def test_giving_back_what_another_one_has_taken_changes_nothing(shared):
    first = shared.leases("a", home="one")
    second = shared.leases("b", home="two")
    first.release()
    shared.sleep(3.0)
    second.check()


def test_a_lease_of_an_earlier_start_counts_for_nothing_and_its_executor_is_refused(shared):
    old, new = (Leases(shared.store, [3], owner=f"of {epoch}", home=f"{epoch}", epoch=epoch, clock=lambda: shared.now) for epoch in (1, 2))
    old.take(shared.sleep)
    new.take(shared.sleep)
    shared.store.write_document("lease-3", old._own)  # it was about to when the later start came
    new.check()
    with pytest.raises(FencedError, match="of 2"):
        old.check()
    with pytest.raises(FencedError):
        shared.leases("late", epoch=1, tasks=(3,))
