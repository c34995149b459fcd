"""Claims: which process may write for a task on a cluster.

Spark starts an executor elsewhere when it believes that a host is lost. The host may only have stood still, or have been cut off, and its executors then go on
where they were. Frames that they write do no harm, because receivers drop what they have. But a record of a result would come again, behind newer ones.

So each executor writes its claim to the tasks' store before it begins, and makes sure that it is the newest one before it writes what a batch has released, unless it did
so shortly before. A successor waits that long after its own claim. From then on every other executor of the task has to look at the store first, and ends.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence

from dskype.topology.core.snapshots import FencedError, SnapshotStore
from dskype.topology.errors import TopologyError, explain

__all__ = ["Claims", "SupersededError"]

log = logging.getLogger(__name__)

_VALID_S = 2.0
"""An executor that has made sure of its claims may write for so long."""
_SLACK_S = 0.2
"""A successor waits longer by this much, because clocks do not run exactly alike."""


class SupersededError(TopologyError):
    """Another executor has claimed a task."""


class Claims:
    """The claims of one executor to its tasks.

    :param store: the topology's store. Nobody else in this process uses it at the same time.
    :param tasks: ids of the executor's tasks.
    :param owner: unique name of this process.
    :param home: name of the supervisor, which ends an executor before it starts its successor.
    :param epoch: number of the query's start; the claim of a later start wins, whenever it was written.
    """

    def __init__(self, store: SnapshotStore, tasks: Sequence[int], *, owner: str, home: str, epoch: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._tasks, self._clock = store, list(tasks), clock
        self._own, self._home, self._epoch = json.dumps([epoch, home, owner]).encode(), home, epoch
        self._until = -1.0

    def take(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Claim the tasks, and wait until no earlier executor on another host can write for them any more.

        :raises FencedError: the query was started again since.
        """
        former = [self._newest(task) for task in self._tasks]
        for task in self._tasks:
            self._store.write_document(_name(task), self._own)
        if any(claim is not None and claim[1] != self._home for claim in former):
            sleep(_VALID_S + _SLACK_S)

    def check(self) -> None:
        """Make sure that the claims are the newest ones, unless this was done within the last seconds. It asks the store.

        :raises SupersededError: another executor of the same start has claimed a task; ``FencedError``: one of a later start has.
        """
        now = self._clock()
        if now < self._until:
            return
        for task in self._tasks:
            while self._store.read_document(_name(task)) != self._own:
                claim = self._newest(task)
                if claim is not None and claim[0] == self._epoch:
                    raise SupersededError(explain(f"Another executor has claimed task {task}.", given=claim[2]))
                self._store.write_document(_name(task), self._own)  # that of an earlier start does not count
        self._until = now + _VALID_S

    def release(self) -> None:
        """Give the tasks back, so that a successor does not wait."""
        for task in self._tasks:
            if self._store.read_document(_name(task)) == self._own:
                self._store.remove_document(_name(task))

    def _newest(self, task: int) -> tuple[int, str, str] | None:
        """Return epoch, home and owner of the newest claim; None: there is none.

        :raises FencedError: it is of a later start.
        """
        if (data := self._store.read_document(_name(task))) is None:
            return None
        epoch, home, owner = json.loads(data)
        if epoch > self._epoch:
            raise FencedError(f"another start of the query has claimed task {task}: {owner}; nothing was written")
        return epoch, home, owner


def _name(task: int) -> str:
    return f"claim-{task}"
