"""The fast path of merging: lists of subscriptions with steady replicas, in arrays that kernels change."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dskype.bolts.arrays import BlockPool, grown
from dskype.bolts.merging import _kernels as kernels
from dskype.bolts.merging.replicated_subscription import Change
from dskype.bolts.message_ids import MessageIds
from dskype.bolts.slot_metadata import SlotMetadata
from dskype.spouts.streams import Results

__all__ = ["FastMergedLists", "MergedLists", "Row"]

_AT_ONCE = 16_384
"""Ids that are looked up at once; with fields behind them they may have 64 KiB."""
_FIELDS = {"score": np.float64, "position": np.int64, "seq": np.int64, "task": np.int32}
_CHANGE = (np.int64, np.int32, np.int8, np.int64, np.int64, np.int64, np.float64)  # dtypes of kernels.Changes


class MergedLists(NamedTuple):
    """Lists to publish, as columns; list *i* is rows ``offsets[i]`` to ``offsets[i + 1]`` of ``messages`` and ``scores``."""

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
    """Merged lists by slot, for subscriptions of which nothing but changes of replicas' lists arrives.

    Changes wait for the watermark (:meth:`queue`, :meth:`advance`). A change is O(rows of the list); a row takes some 30 bytes.

    :param extent: extent of the window.
    """

    def __init__(self, extent: int) -> None:
        self._extent = extent
        self._metadata = SlotMetadata()
        self._ids = MessageIds()
        self._pool = BlockPool(_FIELDS, columns=4)
        self._last = np.zeros(0, np.int64)
        self._waiting: list[kernels.Changes] = []  # slot -1: handed over to the slow path
        self._entering: list[tuple[int, list[Row]]] = []
        self._written = np.zeros(0, bool)  # whether the list is unchanged since it was written

    # -- entering and leaving -----------------------------------------------------------------------------------------------

    def enter(self, subscription: str, registration: str, meta: str | None, k: int, rows: list[Row], last: int, written: bool) -> int:
        """Put a subscription on the fast path; return its slot.

        :param rows: rows of all replicas' lists.
        :param last: watermark of the last change.
        :param written: whether the present list has been written.
        """
        slot = self._metadata.allocate()
        self._metadata.set(slot, subscription, registration, meta)
        if slot >= len(self._last):
            self._last, self._written = grown(self._last, slot + 1, 0), grown(self._written, slot + 1, True)
            self._pool.widen(len(self._last))
        self._pool.block[slot, kernels.K] = k
        self._last[slot], self._written[slot] = last, written
        self._entering.append((slot, sorted(rows, reverse=True)))
        return slot

    def _write_entered(self) -> None:
        """Write the rows of subscriptions that have entered into the arrays."""
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
        """Remember the ids of messages that are not known yet."""
        seqs, first = np.unique(seqs, return_index=True)
        new = self._ids.positions(seqs) < 0
        if new.any():
            rows = first[new]
            self._ids.remember(
                seqs[new], positions[rows], messages.take(pa.array(rows)) if isinstance(messages, pa.Array) else [messages[i] for i in rows.tolist()]
            )

    def leave(self, slot: int) -> tuple[list[Row], int, bool, list[Change]]:
        """Take a subscription off the fast path.

        :returns: its rows, the watermark of its last change, whether its list is written, and the changes that wait.
        """
        self._write_entered()
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
        for changes in self._waiting:
            rows_of_slot = np.flatnonzero(changes.slot == slot)
            if len(rows_of_slot):
                _, tasks, ops, watermarks, seqs, positions, scores = (column[rows_of_slot].tolist() for column in changes)
                ids = iter(self._ids.get(changes.seq[rows_of_slot][changes.op[rows_of_slot] == kernels.ADD]).to_pylist())
                messages = [next(ids) if op == kernels.ADD else "" for op in ops]
                waiting += map(Change, watermarks, tasks, ops, seqs, positions, scores, messages)
                changes.slot[rows_of_slot] = -1
        pool.release(np.array([slot]))
        self._metadata.release(slot)
        last, written = int(self._last[slot]), bool(self._written[slot])
        self._written[slot] = True  # the slot is empty
        return rows, last, written, waiting

    # -- changes --------------------------------------------------------------------------------------------------------

    def queue(self, slots: np.ndarray, task: int, batch: Results) -> None:
        """Queue changes of a task's lists, in order. Reads ``kind``, ``watermark``, ``message``, ``score``, ``seq`` and ``position`` of the batch."""
        columns = slots, np.full(len(slots), task), batch.kind, batch.watermark, batch.seq, batch.position, batch.score
        self._waiting.append(kernels.Changes(*(np.array(column, dtype) for column, dtype in zip(columns, _CHANGE))))
        added = np.flatnonzero(batch.kind == kernels.ADD)
        if len(added):
            self._remember(batch.seq[added], batch.position[added], batch.message.take(pa.array(added)))

    def advance(self, watermark: int) -> Results | None:
        """Apply the changes up to a watermark; return the changes of the merged lists."""
        if not self._waiting:
            self._ids.free(watermark - self._extent)
            return None
        self._write_entered()
        changes = kernels.Changes(*map(np.concatenate, zip(*self._waiting)))
        later = np.flatnonzero((changes.watermark > watermark) & (changes.slot >= 0))
        self._waiting = [_select(changes, later)] if len(later) else []
        changes = _select(changes, np.flatnonzero((changes.watermark <= watermark) & (changes.slot >= 0)))
        changes = _select(changes, np.lexsort((changes.watermark, changes.slot)))
        pool = self._pool
        touched, first = np.unique(changes.slot, return_index=True)
        adds = np.add.reduceat((changes.op == kernels.ADD).astype(np.int64), first) if len(first) else np.zeros(0, np.int64)
        pool.reserve(touched, pool.block[touched, kernels.LENGTH] + adds)
        slots, ops, seqs, scores, ranks, watermarks = kernels.merge(self._lists, self._last, changes)
        found = None
        if len(slots):
            self._written[slots] = False
            names, registrations, metas = self._metadata.columns(slots)
            shared = {"subscription": names, "registration": registrations, "watermark": watermarks, "meta": metas}
            found = Results(**shared, kind=ops, message=self._ids.get(seqs), score=scores, rank=ranks)
        # By now replicas have dropped the messages that left the window.
        self._ids.free(watermark - self._extent)
        return found

    def pop_unwritten(self, watermark: int) -> MergedLists | None:
        """Return the lists that changed since they were written, as of a watermark; they count as written now."""
        self._write_entered()
        slots = np.flatnonzero(~self._written[: len(self._last)])
        if not len(slots):
            return None
        self._written[slots] = True
        names, registrations, _ = self._metadata.columns(slots)
        offsets, _, seqs, scores = kernels.tops(self._lists, slots)
        messages = pa.chunked_array([self._ids.get(seqs[start : start + _AT_ONCE]) for start in range(0, max(1, len(seqs)), _AT_ONCE)], pa.string())
        return MergedLists(names, registrations, np.full(len(slots), watermark), offsets, messages, scores)

    @property
    def _lists(self) -> kernels.Lists:
        return kernels.Lists(self._pool.block, *(getattr(self._pool, name) for name in _FIELDS))

    # -- state ----------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return the state as arrays and plain values."""
        self._write_entered()
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
            "waiting": list(map(list, self._waiting)),
        }

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
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
        self._waiting = [kernels.Changes(*map(np.array, columns)) for columns in state["waiting"]]

    def _check(self) -> None:
        """Verify that lists are in order and have no duplicate rows, and that all ids are known."""
        self._write_entered()
        pool = self._pool
        pool._check()
        for start, length, _, k in pool.block.tolist():
            rows = list(
                zip(pool.score[start : start + length].tolist(), pool.position[start : start + length].tolist(), pool.seq[start : start + length].tolist())
            )
            assert rows == sorted(rows, reverse=True) and (k > 0 or not rows), rows
            assert len({(*row, task) for row, task in zip(rows, pool.task[start : start + length].tolist())}) == len(rows), rows
            self._ids.get(pool.seq[start : start + length])


def _select(changes: kernels.Changes, rows: np.ndarray) -> kernels.Changes:
    return kernels.Changes(*(column[rows] for column in changes))


def _rows_of(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the indexes of the rows of blocks, one block after another."""
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(int(lengths.sum()))
