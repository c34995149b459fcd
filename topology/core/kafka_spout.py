"""Tasks of Kafka spouts: positions, failed records, gaps, and what is committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

from sortedcontainers import SortedList

from dskype.topology.components import KafkaSpout
from dskype.topology.config import Config
from dskype.topology.core.loss import DataLossError, LostInputError
from dskype.topology.core.offset_commits import consumer_group
from dskype.topology.core.spout import ServiceAwayError, SpoutTask
from dskype.topology.errors import DeadLetter, DskypeError, FatalError, TopologyError, text_of
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.tuples import InRecord

__all__ = ["KafkaSpoutTask", "make_spout_task"]

_LOST_INPUT = "lost-input"
"""The code of dead letters about records that are gone."""

_PARTITION = itemgetter(0, 1)
"""Topic and partition of a record."""

_NEIGHBOURS = 200
"""Failed records that are at most so many offsets apart are read at once: to read as many others takes less time than another request."""

_COMMIT_AGAIN_MS, _READ_AGAIN_MS = 5000, 2000
"""Times after which a spout that promises at most once tries again to commit, and after which one tries again to read."""

_BACKLOG_BYTES, _RECORD_BYTES = 64 << 20, 400
"""Most bytes of external records that a task holds while it may not emit, where a record counts for its key, its value and this much more. Further records
are read again later."""
_READ_RECORDS, _READ_BYTES = 20_000, 16 << 20
"""Most records and bytes that are read again at once."""

Reader = Callable[[str, int, int, int], Iterable[InRecord]]
Commit = Callable[[str, Mapping[tuple[str, int], int]], None]
Waiting = Callable[[Iterable[str], Mapping[tuple[str, int], int]], dict[tuple[str, int], bool]]
Retry = tuple[int, str, int, int]
"""A failed record: the earliest time at which to emit it again, topic, partition and offset."""


class _UnreadableError(TopologyError):
    """Records cannot be read now, but as far as is known they are not lost."""


class KafkaSpoutTask(SpoutTask):
    """A task of a :class:`KafkaSpout`: emits external records, and emits them again when their trees fail.

    The message id is (topic, partition, offset). Within the task, the number of the attempt is appended, so that tuples
    of a failed attempt do not settle the next one. The *committed* position of a partition is the lowest offset that is
    not settled, as in Storm's OffsetManager.
    """

    def __init__(self, plan: TopologyPlan, task: int, now_ms: Callable[[], int], reader: Reader, commit: Commit, waiting: Waiting) -> None:
        super().__init__(plan, task, now_ms)
        self._reader, self._commit, self._waiting = reader, commit, waiting
        self.context.waiting_partitions = self._waiting_partitions
        self._next: dict[tuple[str, int], int] = {}  # next offset to emit
        self._arrived: dict[tuple[str, int], int] = {}  # next offset that the query will bring
        self._held: dict[tuple[str, int], int] = {}  # end of the backlog; records between here and _arrived have to be read again
        self._open_offsets: dict[tuple[str, int], dict[int, list[int]]] = {}  # offset -> [attempt, incomplete trees]
        self._backlog: dict[tuple[str, int], _Backlog] = {}
        self._arrivals: list[int] | None = None  # records emitted since the last report: oldest timestamp, newest timestamp, count
        self._read_at_ms: dict[tuple[str, int], int] = {}  # when a partition that could not be read again is tried again
        self._retries: SortedList = SortedList()  # of :data:`Retry`
        self._skips_loss = self.conf[Config.TOPOLOGY_EMULATOR_ON_DATA_LOSS] == "skip"
        self._lost: dict[tuple[str, int], int] = {}  # number of records that were lost before they were emitted
        self._first_attempts: dict[tuple[str, int], int] = {}  # number of the first attempt, above all attempts of a deleted topic of the same name
        self._spout = component = cast(KafkaSpout, self.spec.obj)
        self._guaranteed = component.processing_guarantee == "AT_LEAST_ONCE" and self.tracking
        self._commits_first = component.processing_guarantee == "AT_MOST_ONCE"
        self._committed_first: dict[tuple[str, int], int] = {}  # behind the records that may be emitted, with at most once
        self._commit_at_ms = 0  # when to try again
        kind = type(component)
        self._batched = kind.emit_records is not KafkaSpout.emit_records
        self._pulsed = kind.next_tuple is not KafkaSpout.next_tuple

    def process_external(self, records: Iterable[InRecord]) -> None:
        for key, part in groupby(records, key=_PARTITION):
            self._queue_records(key, part)
        if self.active and self.credit:
            self._emit()

    def _queue_records(self, key: tuple[str, int], records: Iterable[InRecord]) -> None:
        """Add new records of a partition to its backlog."""
        backlog, arrived, held = self._backlog.setdefault(key, _Backlog()), self._arrived.get(key, 0), self._held.get(key)
        room = _BACKLOG_BYTES - sum(other.n_bytes for other in self._backlog.values())
        seen, unbroken = False, held is not None  # after a crash, records that had arrived and were not emitted have to be read again
        for record in records:
            offset = record.offset
            if offset < arrived:
                if seen or not self._topic_was_recreated(key):
                    seen = True
                    continue  # the batch is run again
                backlog, arrived, held, unbroken = self._backlog.setdefault(key, _Backlog()), 0, None, False
            if held is None:
                held = self._next.setdefault(key, offset)
            # Between two records that have come here one after the other, there is nothing to read: a transaction's marker, or what was compacted away.
            follows = held == offset or (unbroken and held == arrived)
            arrived, unbroken = offset + 1, True
            if follows and room > 0:
                room -= backlog.append(record)
                held = arrived
        self._arrived[key] = arrived
        if held is not None:
            self._held[key] = held

    def _emit_loop(self) -> None:
        self.unfinished = False
        budget = self._emit_failed(self.credit)
        if not self._commits_first or self._commit_arrived():
            self._emit_new(budget)
        if self._pulsed:
            self.component.next_tuple()

    def _commit_arrived(self) -> bool:
        """Commit the records that have arrived, before any of them is emitted; return whether they may be emitted.

        As in Storm, that is what *at most once* means: whoever continues at the committed offsets emits none of them again, whatever happens to this topology.
        """
        new = {key: offset for key, offset in self._arrived.items() if self._next.get(key, 0) < offset != self._committed_first.get(key)}
        if not new:
            return True
        if self.clock.now_ms < self._commit_at_ms:
            return False
        group = consumer_group(self.plan.name, self._spout)
        try:
            self._commit(group, new)
        except Exception as error:  # the records wait for a broker, or for the right to commit
            self._commit_at_ms = self.clock.now_ms + _COMMIT_AGAIN_MS
            self.report_error(f"records wait, because their offsets cannot be committed in group {group!r} before they are emitted: {text_of(error)}")
            return False
        self._committed_first |= new
        return True

    def _emit_new(self, budget: int) -> None:
        """Emit up to ``budget`` new records: as many of each partition, as far as it has them, and each pulse begins with another partition."""
        keys = sorted(key for key, offset in self._next.items() if offset < self._arrived.get(key, 0))
        first = self.pulse % len(keys) if keys else 0
        for i, key in enumerate(keys[first:] + keys[:first]):
            share = -(-budget // (len(keys) - i))
            try:
                budget -= self._emit_batch(key, share) if self._batched else self._emit_each(key, share)
            except _UnreadableError:  # nothing is lost: a later pulse is another attempt
                continue

    def _emit_each(self, key: tuple[str, int], budget: int) -> int:
        """Emit up to ``budget`` records of a partition, one by one; return how many."""
        emitted = 0
        while emitted < budget and self._next[key] < self._arrived.get(key, 0) and not self.pending_limit():
            record = self._next_record(key)
            if record is None:
                break
            self._next[key] = record.offset + 1
            self._emit_record(record)
            emitted += 1
        return emitted

    def _emit_batch(self, key: tuple[str, int], budget: int) -> int:
        """Pass up to ``budget`` records of a partition to the component; return how many."""
        records: list[InRecord] = []
        while len(records) < budget and self._next[key] < self._arrived.get(key, 0):
            record = self._next_record(key)
            if record is None:
                break
            records.append(record)
            records += self._backlog[key].pop_first(budget - len(records))
            self._next[key] = records[-1].offset + 1
        if not records:
            return 0
        try:
            refused = list(self.component.emit_records(records))
        except Exception as error:  # the user's code: find the records that it cannot process
            _check_service(error)
            self.report_error(error)
            refused = []
            for record in records:
                try:
                    refused += self.component.emit_records([record])
                except Exception as refusal:
                    _check_service(refusal)
                    refused.append((record, refusal))
        for record, reason in refused:
            self.dead_letter(record.value, reason, "translate", record)
        self._note_arrivals(records[0].timestamp_ms, records[-1].timestamp_ms, len(records))
        return len(records)

    def _note_arrivals(self, first_ms: int, last_ms: int, n: int) -> None:
        oldest, newest, before = self._arrivals or (first_ms, last_ms, 0)
        self._arrivals = [min(oldest, first_ms), max(newest, last_ms), before + n]

    def _next_record(self, key: tuple[str, int]) -> InRecord | None:
        backlog = self._backlog.setdefault(key, _Backlog())
        backlog.drop_before(self._next[key])
        if not backlog:
            stop = min(self._arrived[key], self._next[key] + _READ_RECORDS)
            try:
                self._held[key] = backlog.fill(self._read_again(key, self._next[key], stop), stop)
            except LostInputError as error:
                behind = self._arrived[key] if error.begins is None else min(self._arrived[key], error.begins)
                self._handle_loss(key, self._next[key], behind, error)
                self._next[key] = behind
                return None
            if not backlog:  # compacted away, or transaction markers
                self._next[key] = stop
                return None
        return backlog.pop_first(1)[0]

    def _waiting_partitions(self) -> dict[tuple[str, int], bool]:
        try:
            return self._waiting(self._spout.topics or {topic for topic, _ in self._next}, self._next)
        except Exception as error:  # a broker that does not answer, most likely
            self.report_error(f"the brokers cannot be asked whether records wait: {text_of(error)}")
            return {}

    def _read_again(self, key: tuple[str, int], start: int, stop: int) -> Iterator[InRecord]:
        """Yield records that have come before; report it if they cannot be read, and do not try again soon: an attempt may take long, and pulses wait meanwhile."""
        if self.clock.now_ms < self._read_at_ms.get(key, 0):
            raise _UnreadableError
        try:
            yield from self._reader(*key, start, stop)
        except (LostInputError, FatalError):
            raise
        except Exception as error:  # a broker that does not answer, most likely
            topic, partition = key
            self.report_error(f"offsets {start} to {stop - 1} of {topic}/{partition} cannot be read again now: {text_of(error)}")
            self._read_at_ms[key] = self.clock.now_ms + _READ_AGAIN_MS
            raise _UnreadableError from error

    def _handle_loss(self, key: tuple[str, int], first: int, behind: int, error: LostInputError) -> None:
        """Count lost records, and write a dead letter without a value about them.

        :raises DataLossError: the configuration says that the topology must not continue without them.
        """
        topic, partition = key
        if not self._skips_loss:
            raise DataLossError(topic, partition, first, behind, error.reason, self.component_id)
        self._lost[key] = self._lost.get(key, 0) + behind - first
        text = f"{behind - first} records were gone before they were emitted: {error.reason}"
        self.stats.reject("read", _LOST_INPUT)
        self.report_error(f"read: {text} ({topic}/{partition} offsets {first} to {behind - 1})")
        self.letters.add(None, None, DeadLetter(text, _LOST_INPUT), "read", (topic, partition, first), ("first", str(first)), ("last", str(behind - 1)))

    def _topic_was_recreated(self, key: tuple[str, int]) -> bool:
        """Tell whether known offsets arrive because the topic was deleted and created again; if so, forget the old topic.

        Otherwise they arrive because their batch is run again. Records of the old topic that were not emitted are lost.
        """
        arrived = self._arrived[key]
        try:
            for _ in self._read_again(key, arrived - 1, arrived):
                return False
        except LostInputError as error:
            if error.ends is None:
                return False
            self._handle_loss(key, min(self._next[key], arrived), arrived, error)
        except _UnreadableError:
            return False
        else:
            return False
        unfinished = self._open_offsets.pop(key, {})
        self._first_attempts[key] = 1 + max((attempt for attempt, _ in unfinished.values()), default=self._first_attempts.get(key, 1))
        self._retries = SortedList(retry for retry in self._retries if retry[1:3] != key)
        for positions in (self._next, self._arrived, self._held, self._backlog, self._committed_first):
            positions.pop(key, None)
        return True

    def _emit_failed(self, budget: int) -> int:
        """Emit failed records again whose time has come, in the order of their offsets; return how many further records may be emitted.

        Neighbours are read at once. What takes longer than a turn may take is left to the next one.
        """
        due: list[Retry] = []
        while len(due) < budget and self._retries and self._retries[0][0] <= self.clock.now_ms:
            due.append(self._retries.pop(0))
        due.sort(key=itemgetter(1, 2, 3))
        deadline, done = self._clock_s() + self._max_secs, 0
        try:
            while done < len(due) and not self.pending_limit() and not self.unfinished:
                run = _neighbours(due, done)
                done += len(run)
                self._emit_again(run)
                self.unfinished = self._clock_s() > deadline and done < len(due)
        finally:
            self._retries.update(due[done:])
        return budget - done

    def _emit_again(self, run: list[Retry]) -> None:
        """Read neighbours of a partition once, and emit those that have failed."""
        _, topic, partition, first = run[0]
        key, waiting = (topic, partition), {retry[3]: retry for retry in run}
        try:
            for record in self._read_again(key, first, run[-1][3] + 1):
                if record.offset not in waiting:
                    continue
                if self.pending_limit():
                    self._retries.update(waiting.values())
                    return
                del waiting[record.offset]
                self._emit_record(record)
        except LostInputError as error:
            for offset, retry in waiting.items():
                if (error.begins is None or offset < error.begins) and (error.ends is None or offset >= error.ends):
                    self._handle_loss(key, offset, offset + 1, error)
                    self._open_offsets[key].pop(offset, None)
                else:
                    self._retries.add(retry)
            return
        except _UnreadableError:
            self._retries.update((self._read_at_ms[key], *retry[1:]) for retry in waiting.values())
            return
        for offset in waiting:  # compacted: a later record of its key has replaced it
            self.report_error(f"record {topic}/{partition} offset {offset} failed, and is no longer there to be emitted again")
            self._open_offsets[key].pop(offset, None)

    def _emit_record(self, record: InRecord) -> None:
        unfinished = self._open_offsets.setdefault((record.topic, record.partition), {})
        attempt = unfinished[record.offset][0] if record.offset in unfinished else self._first_attempts.get((record.topic, record.partition), 1)
        try:
            tuples = self.component.translate(
                record.topic, record.partition, record.offset, record.key, record.value, record.timestamp_ms, record.headers or []
            )
            self.collector.emit_all(tuples, (record.topic, record.partition, record.offset, attempt) if self._guaranteed else None)
            self._note_arrivals(record.timestamp_ms, record.timestamp_ms, 1)
        except Exception as error:  # user code, given any record
            self.dead_letter(record.value, error, "translate", record)
            tuples = ()
        if self._guaranteed and tuples:
            unfinished[record.offset] = [attempt, len(tuples)]
        else:
            unfinished.pop(record.offset, None)

    def _settled(self, completed: bool, message_id: Any, latency_ms: int | None = None) -> None:
        topic, partition, offset, attempt = message_id
        unfinished = self._open_offsets.get((topic, partition), {})
        entry = unfinished.get(offset)
        if entry is None or entry[0] != attempt:  # the record is settled, or was emitted again
            return
        if completed:
            entry[1] -= 1
            if entry[1]:
                return
            del unfinished[offset]
        else:
            entry[0] += 1
            self._retries.add((self.clock.now_ms + _retry_delay_ms(attempt), topic, partition, offset))
        super()._settled(completed, (topic, partition, offset), latency_ms)

    def committed(self) -> dict[tuple[str, int], int]:
        """Return (topic, partition) -> lowest offset that is not settled."""
        return {key: min(self._open_offsets.get(key) or {offset}) for key, offset in self._next.items()}

    def positions(self) -> dict[tuple[str, int], int]:
        return super().positions() | self._next

    def snapshot(self) -> dict[str, Any]:
        return super().snapshot() | {
            "next": [[*key, offset] for key, offset in self._next.items()],
            "arrived": [[*key, offset] for key, offset in self._arrived.items()],
            "open": [[*key, offsets] for key, offsets in self._open_offsets.items()],
            "retries": [list(r) for r in self._retries],
            "lost": [[*key, n] for key, n in self._lost.items()],
            "first_attempts": [[*key, n] for key, n in self._first_attempts.items()],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._next = {(t, p): offset for t, p, offset in state["next"]}
        self._arrived = {(t, p): offset for t, p, offset in state["arrived"]}
        self._open_offsets = {(t, p): {o: list(entry) for o, entry in offsets.items()} for t, p, offsets in state["open"]}
        self._retries = SortedList(map(tuple, state["retries"]))
        self._lost = {(t, p): n for t, p, n in state.get("lost", ())}  # absent from journals of earlier versions
        self._first_attempts = {(t, p): n for t, p, n in state.get("first_attempts", ())}
        super().restore(state)

    def report(self) -> dict[str, Any]:
        report = super().report() | {"kafka": [[t, p, self._next[t, p], c] for (t, p), c in self.committed().items()]}
        if self._spout.isolation_level != "read_uncommitted":
            report["isolation"] = self._spout.isolation_level
        if self._lost:
            report["lost"] = {f"{topic}/{partition}": n for (topic, partition), n in self._lost.items()}
        if self._arrivals is not None:
            report["arrivals"], self._arrivals = self._arrivals, None
        return report


def _check_service(error: Exception) -> None:
    """Pass an error on that is none of the records' fault."""
    if isinstance(error, DskypeError) and error.retriable:
        raise ServiceAwayError(text_of(error)) from error


def _retry_delay_ms(failures: int) -> int:
    """Return how long to wait after this many failures of a record: as by Storm's default, 0 first and then 4 ms to 10 s."""
    return 0 if failures == 1 else min(10_000, 2 << min(failures - 1, 20))


def _neighbours(due: list[Retry], first: int) -> list[Retry]:
    """Return the failed records from an index on that are read at once."""
    run = [due[first]]
    for retry in due[first + 1 :]:
        if retry[1:3] != run[0][1:3] or retry[3] - run[-1][3] > _NEIGHBOURS or retry[3] - run[0][3] >= _READ_RECORDS:
            break
        run.append(retry)
    return run


def make_spout_task(plan: TopologyPlan, task: int, now_ms: Callable[[], int], reader: Reader, commit: Commit, waiting: Waiting) -> SpoutTask:
    """Return a task of the kind that the spout needs.

    :param reader: see ``InboxReader.read``.
    :param commit: see ``InboxReader.commit``.
    :param waiting: see ``InboxReader.waiting``; returns the partitions of this task.
    """
    spec = plan.topology.components[plan.task_component[task]]
    if isinstance(spec.obj, KafkaSpout):
        return KafkaSpoutTask(plan, task, now_ms, reader, commit, waiting)
    return SpoutTask(plan, task, now_ms)


class _Backlog:
    """Records of a partition that have arrived and are not emitted yet, in order."""

    __slots__ = ("_records", "n_bytes")

    def __init__(self) -> None:
        self._records: deque[InRecord] = deque()
        self.n_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._records)

    def append(self, record: InRecord) -> int:
        """Append a record; return its size in bytes."""
        self._records.append(record)
        size = _size(record)
        self.n_bytes += size
        return size

    def fill(self, records: Iterable[InRecord], stop: int) -> int:
        """Append records, up to :data:`_READ_BYTES`; return the offset behind the last one, or ``stop`` if all were appended."""
        limit = self.n_bytes + _READ_BYTES
        for record in records:
            self.append(record)
            if self.n_bytes >= limit:
                return record.offset + 1
        return stop

    def pop_first(self, n: int) -> list[InRecord]:
        """Remove and return the first ``n`` records, or as many as there are."""
        records = [self._records.popleft() for _ in range(min(n, len(self._records)))]
        self.n_bytes -= sum(map(_size, records))
        return records

    def drop_before(self, offset: int) -> None:
        """Remove the records before ``offset``."""
        while self._records and self._records[0].offset < offset:
            self.pop_first(1)


def _size(record: InRecord) -> int:
    return _RECORD_BYTES + len(record.value or b"") + len(record.key or b"")
