"""Merges the results of subscriptions that may live on several tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dskype.bolts.merging.base import ResultStrategy
from dskype.bolts.merging.merger import Merger, Publication
from dskype.bolts.protocol.merging import Begin, Finish, decode_replica_message
from dskype.bolts.results.deltas import concat, encoded, plain
from dskype.bolts.results.events import INITIAL, MATCHES
from dskype.spouts.columns import distinct
from dskype.spouts.streams import Registrations, Results
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
        self._matches: list[Results] = []  # above the watermark
        context.register_gauge("merged", lambda: len(self._merger))

    def filter_deltas(self, task: int, batch: Results) -> Results | None:
        """Return the changes of replicas that are alone, and the matches that were there before their subscriptions, which one task has found; keep other matches and merge other changes."""
        found, initial = np.isin(batch.kind, MATCHES), np.flatnonzero(batch.kind == INITIAL)
        if not found.any():
            left = self._merger.receive_changes(task, batch)
            rows = None if left.all() else np.flatnonzero(left)
        else:
            if len(waits := np.setdiff1d(np.flatnonzero(found), initial, assume_unique=True)):
                self._matches.append(replace(batch, position=None).take(waits))
            rows = np.flatnonzero(~found)
            if len(rows):
                changes = replace(batch, subscription=None, rank=None, meta=None).take(rows)
                rows = rows[self._merger.receive_changes(task, changes)]
        if not self._wants_deltas:
            rows = initial
        elif rows is None:  # there are no matches
            return batch
        elif len(initial):
            rows = distinct(rows, initial)
        return replace(batch, seq=None, position=None).take(rows) if len(rows) else None

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
        for row in Registrations.rows(batch):
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

    def advance(self, watermark: int) -> list[Results]:
        """Merge changes up to the watermark; return matches up to it, each once, because several tasks may have found one."""
        self._merger.advance(watermark)
        if not self._matches:
            return []
        batch = concat(self._matches)
        due = batch.watermark <= watermark
        self._matches = [] if due.all() else [batch.take(np.flatnonzero(~due))]
        batch = batch.take(np.flatnonzero(due))
        if not len(batch.kind):
            return []
        codes = batch.registration.dictionary_encode().indices.to_numpy()
        order = np.lexsort((batch.seq, batch.watermark, codes))
        once = np.ones(len(order), bool)
        once[1:] = (codes[order[1:]] != codes[order[:-1]]) | (batch.seq[order[1:]] != batch.seq[order[:-1]])
        rows = order[once]
        return [batch.take(rows[np.argsort(batch.watermark[rows], kind="stable")])]

    def snapshot(self) -> dict[str, Any]:
        """Return the results that wait for replicas or for the watermark."""
        return {"merger": self._merger.snapshot(), "matches": [_up_to_last(batch) for batch in self._matches]}

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        if state.get("merger") is not None:
            self._merger.restore(state["merger"])
            # A column that the version of the snapshot did not have is there now, as in deltas that arrive.
            batches = [Results(**dict(zip(Results.fields.names, columns))) for columns in state["matches"]]
            self._matches = [replace(plain(encoded(batch)), position=None) for batch in batches]


def _up_to_last(batch: Results) -> list[Any]:
    """Return the columns of a batch up to the last one that it does not lack."""
    columns = list(batch.values())
    while columns[-1] is None:
        columns.pop()
    return columns
