"""Poison tuples of batch bolts: they alone become dead letters, and not the segment that they came with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from time import perf_counter_ns
from typing import Any, NamedTuple

import pyarrow as pa

from dskype.topology.config import Config
from dskype.topology.core.frames import Segment
from dskype.topology.core.values import pack_state, slice_column, unpack_state
from dskype.topology.errors import TopologyError
from dskype.topology.model import stateful
from dskype.topology.tuples import StreamMeta, TupleBatch, column_to_list

__all__ = ["PoisonIsolation", "PoisonedBatchError"]

_MAX_FAILURES = 64
"""Number of failed parts of a batch after which a failing part becomes dead letters as a whole: a service that it needs may be down."""
_CHEAP_NS = 50_000_000
"""Once a batch has failed, a checkpoint is taken before every batch unless it takes longer than this."""


class PoisonedBatchError(TopologyError):
    """A batch bolt could not process a segment, and its state may be inconsistent.

    :param place: (offset of the record, number of the segment within it), for the task that continues from an earlier state.
    """

    def __init__(self, component: str, place: tuple[int, int]) -> None:
        super().__init__(f"component {component!r} could not process segment {place[1]} of its record at offset {place[0]}")
        self.place = place


class PoisonIsolation:
    """Runs the segments of a batch bolt, with care where one of them has failed; part of the task.

    ::

        no places ---- the bolt raises; the executor reloads the task from a snapshot, and adds the place ----> places
            ^                                                                                                     |
            +---------------------------- the task is loaded anew, behind all of them ----------------------------+

    With places, a segment runs *carefully* if it is one of them, or lies behind the first one while checkpoints are cheap: what fails is rolled back
    and halved, until a single tuple is left. Any other segment just runs.

    :param task: the task of the bolt.
    :param execute: lets the bolt process (stream, number of the first tuple, segment).
    :ivar places: place where the bolt has failed (see :class:`PoisonedBatchError`) -> text of the exception.
    """

    def __init__(self, task: Any, execute: Callable[[StreamMeta, int, Segment], None]) -> None:
        self._task, self._execute = task, execute
        self.places: dict[tuple[int, int], str] = {}
        self._place = (-1, 0)
        self._checkpoint_ns = 0

    def run(self, meta: StreamMeta, first_seq: int, segment: Segment) -> None:
        """Let the bolt process a segment.

        :raises PoisonedBatchError: the bolt raised; the executor restores an earlier state and adds the place to :attr:`places`.
        """
        version, (offset, ordinal) = self._task.version, self._place
        self._place = place = (version, ordinal + 1 if offset == version else 0)
        if self.places and (place in self.places or (place > min(self.places) and self._checkpoint_ns <= _CHEAP_NS)):
            failures = self._run_carefully(meta, first_seq, segment)
            if place in self.places and not failures:  # for example, a service was briefly down
                self._task.report_error(f"execute_batch raised an exception that did not occur again: {self.places[place]}; nothing was lost")
            return
        try:
            self._execute(meta, first_seq, segment)
        except Exception as error:  # the user's code
            raise PoisonedBatchError(self._task.component_id, place) from error

    def _run_carefully(self, meta: StreamMeta, first_seq: int, segment: Segment) -> int:
        """Let the bolt process a segment that may hold poison tuples; only these become dead letters.

        A part that fails is rolled back: the component's state (if it has ``snapshot`` and ``restore``; otherwise the state is lost, as in
        Storm) and everything that was emitted, sent or acked. Then its two halves are run.

        :returns: how many parts failed.
        """
        before, failures = self._checkpoint(), 0
        parts = [(0, segment.n)]
        while parts:
            start, stop = parts.pop()
            part = segment if stop - start == segment.n else _part_of(segment, start, stop)
            try:
                self._execute(meta, first_seq + start, part)
            except Exception as error:  # the user's code
                self._roll_back(before)
                failures += 1
                if stop - start > 1 and failures <= _MAX_FAILURES:
                    middle = (start + stop) // 2
                    parts += [(middle, stop), (start, middle)]
                    continue
                self._give_up(meta, part, error)
                before = before._replace(sent=self._sent())
            else:
                if parts:
                    before = self._checkpoint()
        return failures

    def _give_up(self, meta: StreamMeta, part: Segment, error: Exception) -> None:
        task = self._task
        task.report_error(error)
        task.snapshot_wanted = True  # another failure is likely: make the next rollback short
        if task.conf[Config.TOPOLOGY_EMULATOR_DEAD_LETTERS_ON_EXCEPTION]:
            for values in _rows_of(TupleBatch(part.columns or (), meta, part.n)):
                task.dead_tuple(values, error, "execute_batch", meta.stream)

    def _sent(self) -> _Sent:
        task = self._task
        return _Sent(
            channels=task.outbox.checkpoint(),
            records=task.records.checkpoint(),
            letters=len(task.letters.written),
            errors=task.errors.checkpoint(),
            watermark=task.watermarks.own,
            stats=task.stats.to_dict(),
            streams=pack_state({name: out.snapshot() for name, out in task.outs.items()}),
        )

    def _checkpoint(self) -> _Checkpoint:
        """Return the present state, for :meth:`_roll_back`."""
        started = perf_counter_ns()
        checkpoint = _Checkpoint(self._sent(), self._task.context.metric_counts(), self._packed_user_state())
        self._checkpoint_ns = perf_counter_ns() - started
        return checkpoint

    def _packed_user_state(self) -> bytes | None:
        """Return the component's state as bytes; None if it keeps none, or if it cannot be written."""
        task = self._task
        if not stateful(task.component):
            return None
        try:
            return pack_state(task.component.snapshot())
        except Exception as error:  # the user's code or data: a rollback then leaves an empty state, as without snapshots
            task.report_error(task.unwritable(error))
            return None

    def _roll_back(self, to: _Checkpoint) -> None:
        task, sent = self._task, to.sent
        task.close()
        task.context.drop_component_metrics()
        task.start()
        task.outbox.roll_back(sent.channels)
        task.records.roll_back(sent.records)
        del task.letters.written[sent.letters :]
        task.errors.roll_back(sent.errors)
        task.watermarks.own = sent.watermark
        for name, state in unpack_state(sent.streams).items():
            task.outs[name].restore(state)
        task.stats.restore(sent.stats)
        if to.user is not None:
            task.component.restore(unpack_state(to.user))
        task.context.restore_counts(to.counts)


class _Sent(NamedTuple):
    """What a task had sent and counted at a checkpoint."""

    channels: dict[int, tuple[int, int]]
    records: tuple[int, int]
    letters: int
    errors: tuple[int, int]
    watermark: int | None
    stats: dict[str, Any]
    streams: bytes


class _Checkpoint(NamedTuple):
    """The state of a task between two parts of a batch; see :meth:`PoisonIsolation._roll_back`."""

    sent: _Sent
    counts: dict[str, Any]
    user: bytes | None


def _part_of(segment: Segment, start: int, stop: int) -> Segment:
    columns = [slice_column(column, start, stop) for column in segment.columns or ()]
    return Segment(segment.stream, stop - start, columns, None if segment.anchors is None else segment.anchors[start:stop])


def _rows_of(batch: TupleBatch) -> Iterator[tuple[Any, ...]]:
    """Return a batch's rows, with bytes in place of strings that are not UTF-8."""
    return zip(*map(_values_of, batch.columns)) if batch.columns else repeat((), batch.n)


def _values_of(column: Any) -> Sequence[Any]:
    try:
        return column_to_list(column)
    except UnicodeDecodeError:
        return (column.dictionary_decode() if pa.types.is_dictionary(column.type) else column).cast(pa.binary()).to_pylist()
