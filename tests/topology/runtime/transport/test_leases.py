"""Executors that have been given up by Spark write nothing once another one has the leases of their tasks."""

from __future__ import annotations

import heapq
import itertools
import random
import threading

import pytest

from dskype.topology.core.snapshots import FencedError, MemorySnapshotStore
from dskype.topology.runtime.transport.leases import Leases, SupersededError


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
        found = self.made(owner, home, epoch, tasks)
        found.take()
        return found

    def made(self, owner, home, epoch, tasks):
        return Leases(self.store, tasks, owner=owner, home=home, epoch=epoch, clock=lambda: self.now, sleep=self.sleep)


@pytest.fixture
def shared():
    return Shared()


def test_the_first_executor_waits_half_a_second_and_asks_the_store_every_two_seconds_at_most(shared):
    leases = shared.leases("a")
    assert shared.now == 0.5
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
    before = shared.now
    shared.leases("b").check()
    assert shared.now == before


def test_who_has_given_tasks_back_is_not_waited_for(shared):
    shared.leases("a", home="one").release()
    before = shared.now
    shared.leases("b", home="two").check()
    assert shared.now == before + 0.5


def test_giving_back_what_another_one_has_taken_changes_nothing(shared):
    first = shared.leases("a", home="one")
    second = shared.leases("b", home="two")
    kept = [shared.store.read_document(f"lease-{task}") for task in (3, 4)]
    first.release()
    assert [shared.store.read_document(f"lease-{task}") for task in (3, 4)] == kept
    shared.sleep(3.0)
    second.check()
    with pytest.raises(SupersededError, match=r"(?s)task 3.*given: 'b'"):
        first.check()


def test_a_lease_of_an_earlier_start_counts_for_nothing_and_its_executor_is_refused(shared):
    old, new = (shared.made(f"of {epoch}", f"{epoch}", epoch, [3]) for epoch in (1, 2))
    old.take()
    new.take()
    shared.store.write_document("lease-3", old._own)  # it was about to when the later start came
    before = shared.now
    new.check()
    assert shared.now > before + 2.0  # it may have begun
    with pytest.raises(FencedError, match="of 2"):
        old.check()
    with pytest.raises(FencedError):
        shared.leases("late", epoch=1, tasks=(3,))


class Hosts:
    """Executors that use one store at the same time, each in a thread. One runs until it waits; the next one is that whose wait ends first.

    :ivar permitted: (from, until, owner), when an executor may write.
    :ivar refused: owners that were told to end.
    """

    def __init__(self, seed, tasks):
        self.random, self.now, self._order, self._tasks = random.Random(seed), 0.0, itertools.count(), tasks
        self.documents, self.permitted, self.refused = {}, [], set()
        self._waiting, self._turn = [], threading.Semaphore(0)

    def pause(self, seconds):
        own = threading.Semaphore(0)
        heapq.heappush(self._waiting, (self.now + seconds, next(self._order), own))
        self._turn.release()
        own.acquire()

    def request(self):
        self.pause(self.random.choice((0.001, 0.1, 2.0)) * self.random.random())

    def read_document(self, name):
        self.request()
        found = self.documents.get(name)
        self.request()
        return found

    def write_document(self, name, data):
        self.request()
        self.documents[name] = data
        self.request()

    def start(self, owner, begin_s, epoch):
        """Start an executor at a time."""
        threading.Thread(target=self._run, args=(owner, begin_s, epoch), daemon=True).start()
        self._turn.acquire()

    def _run(self, owner, begin_s, epoch):
        self.pause(begin_s)
        leases = Leases(self, self._tasks, owner=owner, home=owner, epoch=epoch, clock=lambda: self.now, sleep=self.pause)
        try:
            leases.take()
            while self.now < 15.0:
                self.pause(self.random.random())
                leases.check()
                self.permitted.append((self.now, leases._until, owner))
        except (SupersededError, FencedError):
            self.refused.add(owner)
        self._turn.release()

    def run(self):
        """Let all executors run until they end."""
        while self._waiting:
            self.now, _, woken = heapq.heappop(self._waiting)
            woken.release()
            self._turn.acquire()


@pytest.mark.parametrize("tasks", [[3], [3, 4]])
@pytest.mark.parametrize("latest_s", [0.01, 2.0])
def test_of_executors_that_start_together_never_two_may_write(latest_s, tasks):
    for seed in range(40):
        hosts = Hosts(seed, tasks)
        epochs = {owner: hosts.random.choice((1, 1, 2)) for owner in "abc"}
        for owner, epoch in epochs.items():
            hosts.start(owner, latest_s * hosts.random.random(), epoch)
        hosts.run()
        for (_, until, owner), (since, _, other) in itertools.pairwise(sorted(hosts.permitted)):
            assert owner == other or since >= until, (seed, owner, other)
        left = epochs.keys() - hosts.refused
        assert all(epochs[owner] == max(epochs.values()) for owner in left)
        assert len(left) == 1 or (len(tasks) == 2 and not left), "of two tasks each of two executors may have got one"


def test_an_executor_that_was_replaced_saves_no_snapshot(shared):
    former = shared.leases("former", home="there")
    former.check()
    former.confirm()
    shared.leases("successor")
    with pytest.raises(SupersededError, match=r"task 3; nothing was saved.*successor"):
        former.confirm()
    shared.store.remove_document("lease-3")
    with pytest.raises(SupersededError, match="nobody"):
        former.confirm()
