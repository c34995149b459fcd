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
from dskype.spouts.streams import Matching, Placements
from dskype.spouts.topics import Topics
from dskype.topology.core.bolt_task import BoltTask
from dskype.topology.core.frames import OutRecords, encode_data, encode_segment, encode_watermark
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.tuples import InRecord

__all__ = ["FilterTask", "message_frames", "pairs_of"]

_AT_ONCE = 1 << 12
_NAME = "dskype"
_TOPICS = Topics.for_topology(_NAME)


class FilterTask:
    """A subscription task with the subscriptions of a line.

    :param matches: how it publishes matches (``dskype.results.matches``).
    :param tell: called with the share of the subscriptions that is registered.
    """

    def __init__(self, world: FilterWorld, line: Line, seed: int, matches: str, tell: Callable[[float], None] = lambda share: None) -> None:
        plan = _plan(matches)
        self._task, self._read = BoltTask(plan, plan.component_tasks("subscription-bolt")[0], lambda: 0), 0
        self._task.start()
        n = world.subscriptions.n
        with quiet():
            for start, placements in _placements(world, line, seed):
                segment = encode_segment(Placements.name, len(placements.subscription), list(placements.values()), None)
                self._run(encode_data(_source(plan), start, [segment]))
                tell(min(1.0, (start + _AT_ONCE) / n))

    def _run(self, frame: bytes) -> list[OutRecords]:
        self._task.process([InRecord(self._task.inbox, 0, self._read, 0, None, frame)])
        self._read += 1
        return [records for records in self._task.flush() if isinstance(records, OutRecords) and records.topic in (_TOPICS.results, _TOPICS.matches)]

    def match(self, frames: Sequence[bytes]) -> tuple[np.ndarray, list[OutRecords]]:
        """Return the CPU time of each frame, ns (int64[frames]), and the records of its matches."""
        spent, written = np.zeros(len(frames), np.int64), []
        with quiet():
            for number, frame in enumerate(frames):
                began = time.process_time_ns()
                records = self._run(frame)
                spent[number] = time.process_time_ns() - began
                written += records
        return spent, written


def message_frames(batches: Sequence[tuple[MessageBatch, Details]], first_tuple: int, moved: int) -> list[bytes]:
    """Return a frame for each batch, with the watermark behind it.

    :param first_tuple: number of the first message among the tuples of the distribution task.
    :param moved: added to sequence numbers and positions, so that a task may get the same messages again.
    """
    frames, source = [], _source(_plan("each"))
    for messages, details in batches:
        later = messages._replace(seq=messages.seq + moved, position=messages.position + moved)
        segment = encode_segment(Matching.name, later.n, list(message_columns(later, ids_of(later), details).values()), None)
        frames.append(encode_data(source, first_tuple, [segment, encode_watermark(int(later.position[-1]))]))
        first_tuple += later.n
    return frames


def _plan(matches: str) -> TopologyPlan:
    conf = {"topology.acker.executors": 0, "dskype.results.matches": matches}
    return TopologyPlan.build(_NAME, f"{_NAME}-1-0", conf, dskype_topology(_NAME).create_topology())


def _source(plan: TopologyPlan) -> int:
    return plan.component_tasks("distribution-bolt")[0]


def pairs_of(written: Sequence[OutRecords]) -> np.ndarray:
    """Return the matches in records, in order: id of the message, number of the subscription, int64[n, 2]."""
    found = []
    for records in written:
        for value in map(json.loads, records.values.to_pylist()):
            found += [(value["message"], int(name)) for name in value.get("subscriptions") or [value["subscription"]]]
    return np.array(sorted(found), np.int64).reshape(-1, 2)


def _placements(world: FilterWorld, line: Line, seed: int) -> Iterator[tuple[int, Placements]]:
    """Yield the subscriptions as a distribution task places them, some at once, with the number of the first; each has its number as its name."""
    programs, terms, n = world.programs(line, seed), world.subscriptions.terms.reshape(-1, 2), world.subscriptions.n
    for start in range(0, n, _AT_ONCE):
        stop = min(n, start + _AT_ONCE)
        regions = dict(zip(*world.regions(line, start, stop)))
        placed = [
            BooleanSubscription(box, ["and", *two], None, None, program, regions.get(slot)).encode()
            for slot, box, two, program in zip(range(start, stop), world.subscriptions.boxes[start:stop].tolist(), terms[start:stop].tolist(), programs)
        ]
        names = list(map(str, range(start, stop)))
        yield start, Placements(subscription=names, registration=[f"0-{name}" for name in names], placement=placed)
