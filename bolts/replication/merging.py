"""What a result bolt does with what arrives: to pass it on, or to merge it."""

from __future__ import annotations

from typing import Any

import numpy as np

from dskype.bolts.replication.merger import Merger, Publication
from dskype.bolts.replication.messages import Begin, Finish, decode_replica_message
from dskype.bolts.results.deltas import DeltaBatch
from dskype.bolts.results.formats import MATCH
from dskype.topology.tuples import TupleBatch

__all__ = ["MergedResults", "ResultStrategy"]

_NOTHING = Publication([], [], [], None)


class ResultStrategy:
    """Decides what of the results of subscription bolts is published, and when.

    The result bolt makes one at ``prepare``: this one where every subscription lives on one task, so that all is published as it comes;
    :class:`MergedResults` where it may live on several.
    """

    def filter_deltas(self, task: int, batch: DeltaBatch) -> DeltaBatch | None:
        """Return the deltas of a subscription task that are to be published at once; keep or merge the others. None: none of them."""
        return batch

    def keeps_list(self, registration: str, task: int) -> bool:
        """Tell whether the list that a task has written is merged here instead, and must not be published as it is."""
        return False

    def receive(self, name: str, task: int, kind: str, record: Any) -> None:
        """Take in a message of a replica, of stream ``lists``."""

    def receive_registrations(self, batch: TupleBatch) -> None:
        """Take in what distribution tasks say of registrations."""

    def write_lists(self) -> bool:
        """Add the merged lists that have changed to what is to be published; return whether there were any."""
        return False

    def pop_publication(self) -> Publication:
        """Return what has been merged and is to be published now."""
        return _NOTHING

    def advance(self, watermark: int) -> list[DeltaBatch]:
        """Note the watermark; return the matches that have waited for it, with sequence numbers."""
        return []

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain values, by keys of the bolt's snapshot."""
        return {"merger": None, "matches": []}

    def restore(self, state: Any) -> None:
        """Take over a snapshot."""


class MergedResults(ResultStrategy):
    """Merges what replicas have found, and publishes every match once.

    :param extent: of the window.
    :param wants_deltas: whether changes of lists are wanted.
    :param wants_lists: whether whole lists are wanted.
    :param context: for metrics.
    """

    def __init__(self, extent: int, wants_deltas: bool, wants_lists: bool, context: Any) -> None:
        self._merger, self._wants_deltas = Merger(extent, wants_lists), wants_deltas
        self._matches: list[DeltaBatch] = []  # above the watermark
        context.register_gauge("merged", lambda: len(self._merger))

    def filter_deltas(self, task: int, batch: DeltaBatch) -> DeltaBatch | None:
        """Return the changes of replicas that are alone."""
        found = batch.ops == MATCH
        if not found.any():
            left = self._merger.receive_changes(task, batch)
            rows = None if left.all() else np.flatnonzero(left)
        else:
            self._matches.append(batch._replace(positions=None).select(np.flatnonzero(found)))
            rows = np.flatnonzero(~found)
            if len(rows):
                changes = batch._replace(subscriptions=None, ranks=None, metas=None).select(rows)
                rows = rows[self._merger.receive_changes(task, changes)]
        if not self._wants_deltas:
            return None
        return batch if rows is None else batch._replace(seqs=None, positions=None).select(rows)

    def keeps_list(self, registration: str, task: int) -> bool:
        """Return whether the task's replica is merged; then the merged list is written in place of the replica's."""
        owned = self._merger.owns(registration, task)
        if owned:
            self._merger.note_changed(registration)
        return owned

    def receive(self, name: str, task: int, kind: str, record: Any) -> None:
        """Hand it to the merger."""
        self._merger.receive(name, task, decode_replica_message(kind, record))

    def receive_registrations(self, batch: TupleBatch) -> None:
        """Begin and finish registrations."""
        for name, registration, event, record in batch.rows():
            if event == "begin":
                self._merger.begin(name, registration, Begin(**record))
            else:
                self._merger.finish(name, registration, Finish(**record))

    def write_lists(self) -> bool:
        """Have the merger write them."""
        return self._merger.write_lists()

    def pop_publication(self) -> Publication:
        """Return what has been merged."""
        return self._merger.pop_publication()

    def advance(self, watermark: int) -> list[DeltaBatch]:
        """Return matches, each once: several tasks may have found one; and merge what the watermark allows."""
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
        """Return what waits for replicas or for the watermark."""
        return {"merger": self._merger.snapshot(), "matches": [list(batch[:9]) for batch in self._matches]}

    def restore(self, state: Any) -> None:
        """Take over a snapshot."""
        if state.get("merger") is not None:
            self._merger.restore(state["merger"])
            self._matches = [DeltaBatch.decode(columns) for columns in state["matches"]]
