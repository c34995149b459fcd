"""The fast path of merging: lists of subscriptions whose replicas stay as they are, in arrays that kernels change."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.message_ids import MessageIds
from dskype.bolts.replication import _kernels as kernels
from dskype.bolts.replication.replicated_subscription import Change
from dskype.bolts.results.deltas import DeltaBatch
from dskype.bolts.slot_metadata import SlotMetadata
from dskype.bolts.topk.pool import BlockPool, grown

__all__ = ["FastMergedLists", "MergedLists", "Row"]

_FIELDS = {"score": np.float64, "position": np.int64, "seq": np.int64, "task": np.int32}
_CHANGE = (np.int64, np.int32, np.int8, np.int64, np.int64, np.int64, np.float64)  # slot, task, op, watermark, seq, position, score


class MergedLists(NamedTuple):
    """Lists to be published, as columns; list *i* is rows ``offsets[i]`` to ``offsets[i + 1]`` of ``messages`` and ``scores``."""

    subscriptions: np.ndarray
    registrations: np.ndarray
    watermarks: np.ndarray
    offsets: np.ndarray
    messages: Any
    scores: np.ndarray


class Row(NamedTuple):
    """A message in a replica's list."""

    score: float
    position: int
    seq: int
    task: int
    message: str


class FastMergedLists:
    """The lists of replicas, merged, in slots; as long as nothing but changes of the replicas' lists comes.

    Changes wait for the watermark (:meth:`queue`, :meth:`advance`). Each is O(rows of the list); a row takes some 30 bytes.

    :param extent: of the window.
    """

    def __init__(self, extent: int) -> None:
        self._extent = extent
        self._metadata = SlotMetadata()
        self._ids = MessageIds()
        self._pool = BlockPool(_FIELDS, columns=4)
        self._last = np.zeros(0, np.int64)
        self._waiting: list[list[np.ndarray]] = []  # columns of changes; slot -1: given back
        self._entering: list[tuple[int, list[Row]]] = []
        self._written = np.zeros(0, bool)  # whether the list has not changed since it was written

    # -- coming and going -----------------------------------------------------------------------------------------------

    def enter(self, subscription: str, registration: str, meta: str | None, k: int, rows: list[Row], last: int, written: bool) -> int:
        """Put a subscription on the fast path; return its slot.

        :param rows: of all replicas' lists.
        :param last: watermark of the last change.
        :param written: the present list has been written.
        """
        slot = self._metadata.free_slot()
        self._metadata.set(slot, subscription, registration, meta)
        if slot >= len(self._last):
            self._last, self._written = grown(self._last, slot + 1, 0), grown(self._written, slot + 1, True)
            self._pool.widen(len(self._last))
        self._pool.block[slot, kernels.K] = k
        self._last[slot], self._written[slot] = last, written
        self._entering.append((slot, sorted(rows, reverse=True)))
        return slot

    def _settle(self) -> None:
        """Put what has entered into the arrays."""
        if not self._entering:
            return
        slots = np.array([slot for slot, _ in self._entering], np.int64)
        lengths = np.array([len(rows) for _, rows in self._entering], np.int64)
        rows = [row for _, listed in self._entering for row in listed]
        self._entering = []
        pool = self._pool
        pool.reserve(slots, lengths)
        pool.block[slots, kernels.LENGTH] = lengths
        if not rows:
            return
        scores, positions, seqs, tasks, messages = zip(*rows)
        at = _rows_of(pool.block[slots, kernels.START], lengths)
        pool.score[at], pool.position[at], pool.seq[at], pool.task[at] = scores, positions, seqs, tasks
        self._remember(np.array(seqs, np.int64), np.array(positions, np.int64), messages)

    def _remember(self, seqs: np.ndarray, positions: np.ndarray, messages: Any) -> None:
        """Note the ids of messages that are not known yet."""
        import pyarrow as pa

        seqs, first = np.unique(seqs, return_index=True)
        new = self._ids.positions(seqs) < 0
        if new.any():
            rows = first[new]
            self._ids.add(seqs[new], positions[rows], messages.take(pa.array(rows)) if isinstance(messages, pa.Array) else [messages[i] for i in rows.tolist()])

    def leave(self, slot: int) -> tuple[list[Row], int, bool, list[Change]]:
        """Take a subscription off the fast path; return its rows, the watermark of the last change, whether the list is written, and the changes that wait."""
        self._settle()
        pool = self._pool
        start, length = pool.block[slot, :2].tolist()
        inside = slice(start, start + length)
        rows = [
            Row(*row)
            for row in zip(
                pool.score[inside].tolist(),
                pool.position[inside].tolist(),
                pool.seq[inside].tolist(),
                pool.task[inside].tolist(),
                self._ids.get(pool.seq[inside]).to_pylist(),
            )
        ]
        waiting: list[Change] = []
        for columns in self._waiting:
            mine = np.flatnonzero(columns[0] == slot)
            if len(mine):
                _, tasks, ops, watermarks, seqs, positions, scores = (column[mine].tolist() for column in columns)
                ids = iter(self._ids.get(columns[4][mine][columns[2][mine] == kernels.ADD]).to_pylist())
                messages = [next(ids) if op == kernels.ADD else "" for op in ops]
                waiting += map(Change, watermarks, tasks, ops, seqs, positions, scores, messages)
                columns[0][mine] = -1
        pool.release(np.array([slot]))
        self._metadata.clear(slot)
        self._metadata.free.append(slot)
        last, written = int(self._last[slot]), bool(self._written[slot])
        self._written[slot] = True  # the slot is empty
        return rows, last, written, waiting

    # -- changes --------------------------------------------------------------------------------------------------------

    def queue(self, slots: np.ndarray, task: int, batch: DeltaBatch) -> None:
        """Add changes of a task's lists, in order. Of the batch ``ops``, ``watermarks``, ``messages``, ``scores``, ``seqs`` and ``positions`` are read."""
        import pyarrow as pa

        columns = slots, np.full(len(slots), task), batch.ops, batch.watermarks, batch.seqs, batch.positions, batch.scores
        self._waiting.append([np.array(column, dtype) for column, dtype in zip(columns, _CHANGE)])
        added = np.flatnonzero(batch.ops == kernels.ADD)
        if len(added):
            self._remember(batch.seqs[added], batch.positions[added], batch.messages.take(pa.array(added)))

    def advance(self, watermark: int) -> DeltaBatch | None:
        """Apply the changes up to a watermark; return those of the merged lists."""
        if not self._waiting:
            self._ids.free(watermark - self._extent)
            return None
        self._settle()
        columns = [np.concatenate(parts) for parts in zip(*self._waiting)]
        due = (columns[3] <= watermark) & (columns[0] >= 0)
        later = (columns[3] > watermark) & (columns[0] >= 0)
        self._waiting = [[column[later] for column in columns]] if later.any() else []
        slots, tasks, ops, watermarks, seqs, positions, scores = (column[due] for column in columns)
        order = np.lexsort((watermarks, slots))
        columns = [column[order] for column in (slots, tasks, ops, watermarks, seqs, positions, scores)]
        pool = self._pool
        touched, first = np.unique(columns[0], return_index=True)
        adds = np.add.reduceat((columns[2] == kernels.ADD).astype(np.int64), first) if len(first) else np.zeros(0, np.int64)
        pool.reserve(touched, pool.block[touched, kernels.LENGTH] + adds)
        slots, ops, seqs, scores, ranks, watermarks = kernels.merge(pool.block, pool.score, pool.position, pool.seq, pool.task, self._last, *columns)
        found = None
        if len(slots):
            self._written[slots] = False
            names, registrations, metas = self._metadata.columns(slots)
            found = DeltaBatch(names, registrations, ops, watermarks, self._ids.get(seqs), scores, ranks, metas)
        # Replicas have dropped by now what has left the window.
        self._ids.free(watermark - self._extent)
        return found

    def pop_unwritten(self, watermark: int) -> MergedLists | None:
        """Return the lists, as of a watermark, that have changed since they were written; they count as written now."""
        self._settle()
        slots = np.flatnonzero(~self._written[: len(self._last)])
        if not len(slots):
            return None
        self._written[slots] = True
        pool = self._pool
        names, registrations, _ = self._metadata.columns(slots)
        offsets, _, seqs, scores = kernels.tops(pool.block, pool.score, pool.position, pool.seq, slots)
        return MergedLists(names, registrations, np.full(len(slots), watermark), offsets, self._ids.get(seqs), scores)

    # -- state ----------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return the state as arrays and plain values."""
        self._settle()
        pool, n = self._pool, len(self._last)
        block = pool.block[:n]
        rows = pool.gather(block[:, kernels.START].copy(), block[:, kernels.LENGTH].copy(), *_FIELDS)
        return {
            "entries": self._metadata.snapshot(),
            "ids": self._ids.snapshot(),
            "k": block[:, kernels.K].copy(),
            "lengths": block[:, kernels.LENGTH].copy(),
            "rows": list(rows),
            "last": self._last,
            "written": self._written,
            "waiting": self._waiting,
        }

    def restore(self, state: Any) -> None:
        """Take over a snapshot."""
        self._metadata.restore(state["entries"])
        self._ids.restore(state["ids"])
        self._last, self._written = np.array(state["last"]), np.array(state["written"])
        n, pool = len(self._last), self._pool
        pool.widen(n)
        pool.block[:n, kernels.K] = state["k"]
        slots = np.arange(n)
        pool.reserve(slots, state["lengths"])
        pool.block[:n, kernels.LENGTH] = state["lengths"]
        at = _rows_of(pool.block[:n, kernels.START], state["lengths"])
        for name, column in zip(_FIELDS, state["rows"]):
            getattr(pool, name)[at] = column
        self._waiting = [[np.array(column) for column in columns] for columns in state["waiting"]]

    def _check(self) -> None:
        """Verify that lists are in order, hold no row twice, and that all ids are known."""
        self._settle()
        pool = self._pool
        pool._check()
        for start, length, _, k in pool.block.tolist():
            rows = list(
                zip(pool.score[start : start + length].tolist(), pool.position[start : start + length].tolist(), pool.seq[start : start + length].tolist())
            )
            assert rows == sorted(rows, reverse=True) and (k > 0 or not rows), rows
            assert len({(*row, task) for row, task in zip(rows, pool.task[start : start + length].tolist())}) == len(rows), rows
            self._ids.get(pool.seq[start : start + length])


def _rows_of(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the numbers of the rows of blocks, one block after another."""
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))
