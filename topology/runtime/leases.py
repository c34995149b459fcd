"""Leases: which process may write for a task on a cluster.

Spark starts an executor elsewhere when it believes that a host is lost. The host may only have stood still, or have been cut off, and its executors then go on
where they were. Frames that they write do no harm, because receivers drop what they have. But a record of a result would come again, behind newer ones.

So each executor enters itself in the tasks' store as their holder before it begins. Before it writes what a batch has released, it makes sure that it still is the holder,
unless it did so shortly before. A successor waits that long after it has entered itself. From then on every other executor of the task has to look at the store first, and ends.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence

from dskype.topology.core.snapshots import FencedError, SnapshotStore
from dskype.topology.errors import TopologyError, explain
from dskype.topology.runtime.standstill import boot_s

__all__ = ["Leases", "SupersededError"]

_VALID_S = 2.0
"""An executor that has made sure of its leases may write for so long."""
_SLACK_S = 0.2
"""A successor waits longer by this much, because clocks do not run exactly alike."""


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
    """

    def __init__(self, store: SnapshotStore, tasks: Sequence[int], *, owner: str, home: str, epoch: int, clock: Callable[[], float] = boot_s) -> None:
        self._store, self._tasks, self._clock = store, list(tasks), clock
        self._own, self._home, self._epoch = json.dumps([epoch, home, owner]).encode(), home, epoch
        self._until = -1.0

    def take(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Take the leases, and wait until no earlier executor on another host can write for the tasks any more.

        :raises FencedError: the query was started again since.
        """
        former = [self._holder(task) for task in self._tasks]
        for task in self._tasks:
            self._store.write_document(_name(task), self._own)
        if any(holder is not None and holder[1] != self._home for holder in former):
            sleep(_VALID_S + _SLACK_S)

    def check(self) -> None:
        """Make sure that the leases are this executor's, unless this was done within the last seconds. It asks the store.

        :raises SupersededError: another executor of the same start has a lease; ``FencedError``: one of a later start has.
        """
        now = self._clock()
        if now < self._until:
            return
        for task in self._tasks:
            while self._store.read_document(_name(task)) != self._own:
                holder = self._holder(task)
                if holder is not None and holder[0] == self._epoch:
                    raise SupersededError(explain(f"Another executor has the lease of task {task}.", given=holder[2]))
                self._store.write_document(_name(task), self._own)  # an executor of an earlier start has none
        self._until = now + _VALID_S

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
