"""What filters cost a whole subscription task: it decodes a frame of messages, matches, filters, and makes the records of the matches.

A real task gets its subscriptions and messages as frames, as a distribution task sends them. Nothing takes its records away but a list, so what Kafka takes to write them is not
part of the time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dskype.bolts.dskype_topology import dskype_topology
from dskype.deploy.lab.boolean.filter_world import FilterWorld, Line
from dskype.deploy.lab.comparing import quiet
from dskype.deploy.lab.dskype.frames import ids_of, message_columns
from dskype.distribution.subscriptions import BooleanSubscription
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.streams import Matching, Placements, Stream
from dskype.topology.core.bolt_task import BoltTask
from dskype.topology.core.frames import OutRecord, OutRecords, encode_data, encode_segment, encode_watermark
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.tuples import InRecord

__all__ = ["FilterTask", "pairs_of"]

_AT_ONCE = 1 << 12
_NAME = "dskype"


class FilterTask:
    """A subscription task with the subscriptions of a line.

    :param matches: how it publishes matches (``dskype.results.matches``).
    """

    def __init__(self, matches: str) -> None:
        conf = {"topology.acker.executors": 0, "dskype.results.matches": matches}
        plan = TopologyPlan.build(_NAME, f"{_NAME}-1-0", conf, dskype_topology(_NAME).create_topology())
        (self._source,), (task,) = map(plan.component_tasks, ("distribution-bolt", "subscription-bolt"))
        self._task = BoltTask(plan, task, lambda: 0)
        self._task.start()
        self._tuples = 0  # that it has received

    @classmethod
    def registered(cls, world: FilterWorld, line: Line, seed: int, matches: str, tell: Callable[[float], None] = lambda share: None) -> FilterTask:
        """Return a task with which the subscriptions of a line are registered, as its distribution task does.

        :param tell: called with the share that is registered.
        """
        made = cls(matches)
        with quiet():
            for placements in _placements(world, line, seed):
                made._run(made._frame(placements))
                tell(made._tuples / world.subscriptions.n)
        return made

    def continued(self, matches: str) -> FilterTask:
        """Return a task that continues from a snapshot of this one, which must not be used any more, and publishes matches in another way."""
        made = FilterTask(matches)
        with quiet():
            made._task.restore(self._task.snapshot())
        made._tuples = self._tuples
        return made

    def match(self, batches: Sequence[tuple[MessageBatch, Details]]) -> tuple[np.ndarray, list[OutRecords]]:
        """Let the task have messages, as new ones; return the CPU time of each batch, ns (int64[batches]), and the records of the matches."""
        frames, before = [], self._tuples
        for messages, details in batches:
            later = messages._replace(seq=messages.seq + before, position=messages.position + before)
            plain = message_columns(later, ids_of(messages))
            columns = Matching(**dict(zip(plain.fields.names, plain.values())) | details.columns())
            frames.append(self._frame(columns, encode_watermark(int(later.position[-1]))))
        spent, written = np.zeros(len(frames), np.int64), []
        with quiet():
            for number, frame in enumerate(frames):
                began = time.process_time_ns()
                records = self._run(frame)
                spent[number] = time.process_time_ns() - began
                written += [one for one in records if isinstance(one, OutRecords)]
        return spent, written

    def _frame(self, tuples: Stream, *behind: bytes) -> bytes:
        """Return the next frame of the distribution task."""
        columns = list(tuples.values())
        n = len(columns[0])
        self._tuples += n
        return encode_data(self._source, self._tuples - n, [encode_segment(tuples.name, n, columns, None), *behind])

    def _run(self, frame: bytes) -> list[OutRecord | OutRecords]:
        """Let the task process a frame; return what it sends."""
        self._task.process([InRecord(self._task.inbox, 0, self._task.version, 0, None, frame)])
        return self._task.flush()


def pairs_of(written: Sequence[OutRecords]) -> np.ndarray:
    """Return the matches in records, in order: id of the message, number of the subscription, int64[n, 2]."""
    found = []
    for records in written:
        for value in map(json.loads, records.values.to_pylist()):
            found += [(value["message"], int(name)) for name in value.get("subscriptions") or [value["subscription"]]]
    return np.array(sorted(found), np.int64).reshape(-1, 2)


def _placements(world: FilterWorld, line: Line, seed: int) -> Iterator[Placements]:
    """Yield the subscriptions as a distribution task places them, some at once; each has its number as its name."""
    programs, terms, n = world.programs(line, seed), world.subscriptions.terms.reshape(-1, 2), world.subscriptions.n
    for start in range(0, n, _AT_ONCE):
        stop = min(n, start + _AT_ONCE)
        regions = dict(zip(*world.regions(line, start, stop)))
        placed = [
            BooleanSubscription(box, ["and", *two], None, None, program, regions.get(slot)).encode()
            for slot, box, two, program in zip(range(start, stop), world.subscriptions.boxes[start:stop].tolist(), terms[start:stop].tolist(), programs)
        ]
        names = list(map(str, range(start, stop)))
        yield Placements(subscription=names, registration=[f"0-{name}" for name in names], placement=placed)
