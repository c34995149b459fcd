"""Leases: which process may write for a task on a cluster.

Spark starts an executor elsewhere when it believes that a host is lost. The host may only have stood still, or have been cut off, and its executors then go on
where they were. Frames that they write do no harm, because receivers drop what they have. But a record of a result would come again, behind newer ones.

So each executor enters itself in the tasks' store as their holder before it begins. Before it writes what a batch has released, it makes sure that it still is the holder,
unless it did so shortly before. A successor waits that long after it has entered itself. From then on every other executor of the task has to look at the store first, and ends.

Documents cannot be compared and written in one step. So two executors that start in the same instant may both find a task free. Both enter themselves, and wait for a moment before
they look again (Fischer's algorithm for mutual exclusion): whoever found the task free has entered itself by then, and the last one that did so is the holder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence

from dskype.topology.core.snapshots import FencedError, SnapshotStore
from dskype.topology.core.steady_clock import boot_s
from dskype.topology.errors import TopologyError

__all__ = ["Leases", "SupersededError"]

_VALID_S = 2.0
"""An executor that has made sure of its leases may write for so long."""
_SLACK_S = 0.2
"""A successor waits longer by this much, because clocks do not run exactly alike."""
_ENTRY_S, _LOOK_S = 0.4, 0.5
"""An executor that finds a task free and enters itself within the first time waits for the second one before it looks again. A slower one waits as long as a successor."""


class SupersededError(TopologyError):
    """Another executor has the lease of a task."""


class Leases:
    """The leases of one executor on its tasks.

    :param store: the topology's store. Nobody else in this process uses it at the same time.
    :param tasks: ids of the executor's tasks.
    :param owner: unique name of this process.
    :param home: name of the supervisor, which ends an executor before it starts its successor.
    :param epoch: number of the query's start; a lease of a later start wins, whenever it was taken.
    :param clock: seconds, which go on while the host is suspended.
    :param sleep: waits for some seconds.
    """

    def __init__(
        self,
        store: SnapshotStore,
        tasks: Sequence[int],
        *,
        owner: str,
        home: str,
        epoch: int,
        clock: Callable[[], float] = boot_s,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store, self._tasks, self._clock, self._sleep = store, list(tasks), clock, sleep
        self._own, self._home, self._epoch = json.dumps([epoch, home, owner]).encode(), home, epoch
        self._until = -1.0

    def take(self) -> None:
        """Take the leases, and wait until no other executor on another host can write for the tasks any more. If two take them at once, :meth:`check` tells which one has them.

        :raises FencedError: the query was started again since.
        """
        began = self._clock()
        former = [self._holder(task) for task in self._tasks]
        for task in self._tasks:
            self._store.write_document(_name(task), self._own)
        late = self._clock() - began >= _ENTRY_S  # another executor that found a task free may have begun before it was entered here
        if any(holder[1] != self._home if holder is not None else late for holder in former):
            self._sleep(_VALID_S + _SLACK_S)
        elif None in former:
            self._sleep(_LOOK_S)

    def check(self) -> None:
        """Make sure that the leases are this executor's, unless this was done within the last seconds. It asks the store, and waits if it has to enter this executor again.

        :raises SupersededError: another executor of the same start has a lease; ``FencedError``: one of a later start has.
        """
        while (now := self._clock()) >= self._until:
            if self._all_own():
                self._until = now + _VALID_S
                return
            self._sleep(_VALID_S + _SLACK_S)  # what was there may have begun

    def confirm(self) -> None:
        """Check in the store that the leases are this executor's now, however short ago it has done so. It enters nothing.

        A snapshot of an executor that was replaced meanwhile must not be kept. The successor began at an earlier one, and what it writes again comes behind the newer
        records of its predecessor. If it dies in between, the next executor has to begin where it began, and not at a later snapshot.

        :raises SupersededError: another executor has one of them.
        """
        for task in self._tasks:
            if (data := self._store.read_document(_name(task))) != self._own:
                raise SupersededError(f"Another executor has the lease of task {task}; nothing was saved.", given=(data or b"nobody").decode())

    def _all_own(self) -> bool:
        """Enter this executor where it is not the holder, because one of an earlier start is, or nobody; return whether there was no need to."""
        found = True
        for task in self._tasks:
            if self._store.read_document(_name(task)) == self._own:
                continue
            holder = self._holder(task)
            if holder is not None and holder[0] == self._epoch:
                raise SupersededError(f"Another executor has the lease of task {task}.", given=holder[2])
            self._store.write_document(_name(task), self._own)
            found = False
        return found

    def release(self) -> None:
        """Give the leases back, so that a successor does not wait."""
        for task in self._tasks:
            if self._store.read_document(_name(task)) == self._own:
                self._store.remove_document(_name(task))

    def _holder(self, task: int) -> tuple[int, str, str] | None:
        """Return epoch, home and owner of a task's holder; None: there is none.

        :raises FencedError: it is of a later start.
        """
        if (data := self._store.read_document(_name(task))) is None:
            return None
        epoch, home, owner = json.loads(data)
        if epoch > self._epoch:
            raise FencedError(f"an executor of a later start has the lease of task {task}: {owner}; nothing was written")
        return epoch, home, owner


def _name(task: int) -> str:
    return f"lease-{task}"
