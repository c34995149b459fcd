"""The ids of messages, by sequence number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["MessageIds"]

_LONG_BYTES = 8 << 20
"""With more bytes than that ids are looked up run by run: joining them would copy all of them for each change."""
_RUN_BYTES = 1 << 30
"""Runs with more bytes than that are not merged; an Arrow array of texts has room for twice as many."""
_SPARSEST = 8
"""The most sequence numbers per message for which a table of them all is worth its memory."""


class _Run:
    """Messages sorted by sequence number, with their ids in an Arrow array. Immutable."""

    __slots__ = ("_first", "_rows", "ids", "newest", "positions", "seqs")

    def __init__(self, seqs: np.ndarray, positions: np.ndarray, ids: Any) -> None:
        order = np.argsort(seqs, kind="stable")
        if (order[1:] < order[:-1]).any():
            seqs, positions, ids = seqs[order], positions[order], ids.take(pa.array(order))
        self.seqs, self.positions, self.ids = seqs, positions, ids
        self.newest = int(positions.max())
        self._first, self._rows = int(seqs[0]), None
        if (span := int(seqs[-1]) - self._first + 1) <= _SPARSEST * len(seqs):
            self._rows = np.full(span + 2, -1, np.int32)  # -1 at both ends, where numbers outside are clipped to
            self._rows[seqs - (self._first - 1)] = np.arange(len(seqs), dtype=np.int32)

    def rows(self, seqs: np.ndarray) -> np.ndarray:
        """Return the rows of messages, or -1. Uses a table if most numbers are present, else binary search."""
        if self._rows is None:
            at = np.searchsorted(self.seqs, seqs)
            at[at == len(self.seqs)] = 0
            return np.where(self.seqs[at] == seqs, at, -1)
        return self._rows.take(seqs - (self._first - 1), mode="clip")


class MessageIds:
    """Maps sequence numbers to message ids, for as long as the messages are needed.

    Ids are added and looked up in batches. Batches are kept sorted, and those of similar size are merged, so there are O(log n) of them.
    A lookup searches each. The first lookup after a change joins all ids into one array, unless they are long, as those with fields behind them are
    (:mod:`dskype.spouts.result_fields`). A message and its id take 40 to 68 bytes, and the fields.
    """

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._all: Any = None  # the ids of all runs, one after the other; None: not joined yet

    def __len__(self) -> int:
        return sum(len(run.seqs) for run in self._runs)

    def remember(self, seqs: np.ndarray, positions: np.ndarray, ids: Any) -> None:
        """Remember the ids of messages, some of which may be known already.

        :param seqs: int64[n].
        :param positions: int64[n]; see :meth:`free`.
        :param ids: n ids as JSON text: pyarrow string array or list.
        """
        if not len(seqs):
            return
        if not isinstance(ids, pa.Array):
            ids = pa.array(ids, pa.string())
        self._all = None
        self._runs.append(_Run(np.array(seqs, np.int64), np.array(positions, np.int64), ids))
        while (
            len(self._runs) > 1
            and len(self._runs[-2].seqs) <= 2 * len(self._runs[-1].seqs)
            and self._runs[-2].ids.nbytes + self._runs[-1].ids.nbytes < _RUN_BYTES
        ):
            last, other = self._runs.pop(), self._runs.pop()
            self._runs.append(
                _Run(np.concatenate([other.seqs, last.seqs]), np.concatenate([other.positions, last.positions]), pa.concat_arrays([other.ids, last.ids]))
            )

    def get(self, seqs: np.ndarray) -> Any:
        """Return the ids of messages, a pyarrow string array of n.

        :raises KeyError: one is not known.
        """
        found, first = np.full(len(seqs), -1, np.int64), 0
        for run in self._runs:
            at = run.rows(seqs)
            np.copyto(found, at + np.int64(first), where=at >= 0)
            first += len(run.seqs)
        if (found < 0).any():
            raise KeyError(f"the id of message {int(seqs[np.argmin(found)])} is not known")
        if self._all is None and sum(run.ids.nbytes for run in self._runs) > _LONG_BYTES:
            return self._get_from_runs(found)
        if self._all is None:
            self._all = pa.concat_arrays([run.ids for run in self._runs]) if self._runs else pa.array([], pa.string())
        return self._all.take(pa.array(found))

    def _get_from_runs(self, found: np.ndarray) -> Any:
        """Return ids by their numbers, counted from the first id of the first run on."""
        order = np.argsort(found, kind="stable")
        bounds = np.searchsorted(found[order], np.cumsum([0, *(len(run.seqs) for run in self._runs)]))
        parts, first = [pa.array([], pa.string())], 0
        for run, start, stop in zip(self._runs, bounds, bounds[1:]):
            if start < stop:
                parts.append(run.ids.take(pa.array(found[order[start:stop]] - first)))
            first += len(run.seqs)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(parts).take(pa.array(back))

    def positions(self, seqs: np.ndarray) -> np.ndarray:
        """Return the positions of messages, int64[n]; -1 for unknown ones."""
        found = np.full(len(seqs), -1, np.int64)
        for run in self._runs:
            at = run.rows(seqs)
            hit = at >= 0
            found[hit] = run.positions[at[hit]]
        return found

    def free(self, position: int) -> None:
        """Forget messages up to a position. A batch goes when all of it is old, and shrinks when more than half of it is."""
        kept = []
        for run in self._runs:
            if run.newest <= position:
                continue
            live = run.positions > position
            if 2 * live.sum() < len(live):
                run = _Run(run.seqs[live], run.positions[live], run.ids.filter(pa.array(live)))
            kept.append(run)
        self._runs, self._all = kept, None

    def snapshot(self) -> Any:
        """Return the state as arrays."""
        return [[run.seqs, run.positions, run.ids] for run in self._runs]

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._runs, self._all = [_Run(np.array(seqs), np.array(positions), ids) for seqs, positions, ids in state], None
