"""The acker: detects when all tuples of a tree are acked.

It uses Storm's algorithm (Storm's docs/Acking-framework-implementation.md): for each root it keeps one 64-bit value, the
XOR of the ids of all edges that were created and of all that were acked. The value is 0 when each id was seen twice.
Edge ids follow from channel and tuple number, and channels drop repetitions, so a batch that is run again neither
cancels nor loses an ack.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from dskype.topology.components import BatchBolt
from dskype.topology.planning.acker_streams import ACKER_ACK_STREAM_ID, ACKER_FAIL_STREAM_ID, ACKER_INIT_STREAM_ID, ACKER_RESET_TIMEOUT_STREAM_ID
from dskype.topology.tuples import Tuple, TupleBatch

__all__ = ["Acker", "warm_up"]

_LEAST_ROWS = 1024
_COLUMNS_FROM = 16
"""Answers from which on columns are faster than rows."""
_ROOM = 2
"""Rows of the table for each tree, at least."""


def kernels() -> ModuleType:
    """Return the module of compiled kernels, imported on first use, because importing numba takes a quarter of a second."""
    from dskype.topology.planning import acker_kernels

    return acker_kernels


def warm_up() -> None:
    """Load or compile the kernels, so that an executor that is forked from this process has them."""
    table, one = np.zeros((_LEAST_ROWS, kernels().WIDTH), np.int64), np.ones(1, np.int64)
    kernels().insert_rows(table, table[:0])
    kernels().apply_messages(table, kernels().INIT, one, one, one, 1, 0)


class Acker(BatchBolt):
    """The bolt ``__acker``; inputs ``__ack_init``, ``__ack_ack``, ``__ack_fail``, ``__ack_reset_timeout``.

    Trees without a message for :attr:`GENERATIONS` ticks are forgotten: their spout has failed them by then. A message costs constant time.
    """

    GENERATIONS = 3

    def prepare(self, conf, context, collector) -> None:
        self._collector, self._context = collector, context
        self._kernels: Any = kernels()
        self._tick = self.GENERATIONS  # number of the last tick; positive for all trees of a restored snapshot
        self._replace_table(np.empty((0, self._kernels.WIDTH), np.int64))
        k = self._kernels
        self._kinds = {ACKER_INIT_STREAM_ID: k.INIT, ACKER_ACK_STREAM_ID: k.ACK, ACKER_FAIL_STREAM_ID: k.FAIL, ACKER_RESET_TIMEOUT_STREAM_ID: k.RESET}
        self._streams = {kind: stream for stream, kind in self._kinds.items()}

    def _replace_table(self, trees: np.ndarray, n_more: int = 0) -> None:
        """Make a table of these trees, with room for more."""
        n_rows = max(_LEAST_ROWS, 1 << (2 * _ROOM * (len(trees) + n_more)).bit_length())
        self._table = np.zeros((n_rows, trees.shape[1]), np.int64)
        self._kernels.insert_rows(self._table, trees)
        self._n_trees = len(trees)

    @property
    def _trees(self) -> np.ndarray:
        return self._table[self._table[:, self._kernels.TOUCHED] != 0]

    @property
    def pending(self) -> int:
        """How many trees it knows."""
        return self._n_trees

    def execute_batch(self, batch: TupleBatch) -> None:
        kind = self._kinds.get(batch.meta.stream)
        if kind is None or not batch.n:
            return
        columns = [_integers(column, batch) for column in batch.columns]
        if _ROOM * (self._n_trees + batch.n) > len(self._table):
            self._replace_table(self._trees, batch.n)
        roots, values, spouts = (*columns, *columns[:1] * 2)[:3]  # the kernel reads only those that the stream has
        answers, growth = self._kernels.apply_messages(self._table, kind, roots, values, spouts, self._tick, self._context.clock_ms())
        self._n_trees += growth
        if len(answers):
            self._answer(answers)

    def _answer(self, answers: np.ndarray) -> None:
        """Send each spout its answers in order; if there are many, those of one kind together."""
        if len(answers) < _COLUMNS_FROM:
            for kind, root, spout, time_ms in answers.tolist():
                self._collector.emit_direct(spout, (root, time_ms), self._streams[kind])
            return
        spouts = answers[:, 2]
        for spout in dict.fromkeys(spouts.tolist()) if (spouts != spouts[0]).any() else (int(spouts[0]),):
            own = answers[spouts == spout]
            for part in np.split(own, np.flatnonzero(np.diff(own[:, 0])) + 1):
                self._collector.emit_direct_batch(spout, [part[:, 1], part[:, 3]], self._streams[int(part[0, 0])])

    def execute_tick(self, tup: Tuple) -> None:
        self._tick += 1
        trees = self._trees
        kept = trees[trees[:, self._kernels.TOUCHED] > self._tick - self.GENERATIONS]
        if len(kept) < len(trees) or len(self._table) > _LEAST_ROWS + 16 * len(kept):
            self._replace_table(kept)

    def snapshot(self) -> Any:
        return {"tick": self._tick, "trees": self._trees}

    def restore(self, state: Any) -> None:
        if isinstance(state, list):  # a snapshot of an earlier version: for each generation, root -> [value, spout or None, failed, since]
            self._tick = self.GENERATIONS
            rows = [
                (root, value, spout or 0, failed, since, self._tick - age)
                for age, trees in enumerate(state)
                for root, (value, spout, failed, since) in trees.items()
            ]
            trees = np.array(rows, np.int64).reshape(len(rows), self._kernels.WIDTH)
        else:
            self._tick, trees = state["tick"], np.array(state["trees"])
        self._replace_table(trees)


def _integers(column: Any, batch: TupleBatch) -> np.ndarray:
    """Return a column as an array of its own, so that the kernels are compiled for one kind of arrays."""
    array = np.array(column)
    if array.dtype.kind != "i" or array.ndim != 1:
        msg = f"a message for the acker has values that are not 64-bit integers; given: {batch!r}"
        raise TypeError(msg)
    return array.astype(np.int64, copy=False)
