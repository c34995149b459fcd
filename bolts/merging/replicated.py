"""Merges the results of subscriptions that may live on several tasks."""

from __future__ import annotations

from typing import Any

import numpy as np

from dskype.bolts.merging.base import ResultStrategy
from dskype.bolts.merging.merger import Merger, Publication
from dskype.bolts.protocol.merging import Begin, Finish, decode_replica_message
from dskype.bolts.results.deltas import DeltaBatch
from dskype.bolts.results.events import INITIAL, MATCHES
from dskype.spouts import streams
from dskype.topology.tuples import TupleBatch

__all__ = ["ReplicatedResults"]


class ReplicatedResults(ResultStrategy):
    """Merges the lists of replicas, and publishes every match once.

    :param extent: extent of the window.
    :param wants_deltas: whether changes of lists are published.
    :param wants_lists: whether whole lists are published.
    :param context: context of the bolt, for metrics.
    """

    def __init__(self, extent: int, wants_deltas: bool, wants_lists: bool, context: Any) -> None:
        self._merger, self._wants_deltas = Merger(extent, wants_lists), wants_deltas
        self._matches: list[DeltaBatch] = []  # above the watermark
        context.register_gauge("merged", lambda: len(self._merger))

    def filter_deltas(self, task: int, batch: DeltaBatch) -> DeltaBatch | None:
        """Return the changes of replicas that are alone, and the matches that were there before their subscriptions, which one task has found; keep other matches and merge other changes."""
        found, initial = np.isin(batch.ops, MATCHES), np.flatnonzero(batch.ops == INITIAL)
        if not found.any():
            left = self._merger.receive_changes(task, batch)
            rows = None if left.all() else np.flatnonzero(left)
        else:
            if len(waits := np.setdiff1d(np.flatnonzero(found), initial)):
                self._matches.append(batch._replace(positions=None).select(waits))
            rows = np.flatnonzero(~found)
            if len(rows):
                changes = batch._replace(subscriptions=None, ranks=None, metas=None).select(rows)
                rows = rows[self._merger.receive_changes(task, changes)]
        if not self._wants_deltas:
            rows = initial
        elif rows is None:  # there are no matches
            return batch
        elif len(initial):
            rows = np.union1d(rows, initial)
        return batch._replace(seqs=None, positions=None).select(rows) if len(rows) else None

    def keeps_list(self, registration: str, task: int) -> bool:
        """Tell whether the task's replica is merged; then the merged list will be written instead."""
        owned = self._merger.owns(registration, task)
        if owned:
            self._merger.note_changed(registration)
        return owned

    def receive(self, name: str, task: int, kind: str, record: Any) -> None:
        """Pass the message to the merger."""
        self._merger.receive(name, task, decode_replica_message(kind, record))

    def receive_registrations(self, batch: TupleBatch) -> None:
        """Pass beginnings and ends of registrations to the merger."""
        for row in streams.Registrations.rows(batch):
            if row.event == "begin":
                self._merger.begin(row.subscription, row.registration, Begin(**row.record))
            else:
                self._merger.finish(row.subscription, row.registration, Finish(**row.record))

    def write_lists(self) -> bool:
        """Let the merger write the changed lists."""
        return self._merger.write_lists()

    def pop_publication(self) -> Publication:
        """Return the results of the merger."""
        return self._merger.pop_publication()

    def advance(self, watermark: int) -> list[DeltaBatch]:
        """Merge changes up to the watermark; return matches up to it, each once, because several tasks may have found one."""
        self._merger.advance(watermark)
        if not self._matches:
            return []
        batch = DeltaBatch.concat(self._matches)
        due = batch.watermarks <= watermark
        self._matches = [] if due.all() else [batch.select(np.flatnonzero(~due))]
        batch = batch.select(np.flatnonzero(due))
        if not len(batch.ops):
            return []
        codes = batch.registrations.dictionary_encode().indices.to_numpy()
        order = np.lexsort((batch.seqs, batch.watermarks, codes))
        once = np.ones(len(order), bool)
        once[1:] = (codes[order[1:]] != codes[order[:-1]]) | (batch.seqs[order[1:]] != batch.seqs[order[:-1]])
        rows = order[once]
        return [batch.select(rows[np.argsort(batch.watermarks[rows], kind="stable")])]

    def snapshot(self) -> dict[str, Any]:
        """Return the results that wait for replicas or for the watermark."""
        return {"merger": self._merger.snapshot(), "matches": [list(batch[:9]) for batch in self._matches]}

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        if state.get("merger") is not None:
            self._merger.restore(state["merger"])
            self._matches = [DeltaBatch(*columns).plain() for columns in state["matches"]]
