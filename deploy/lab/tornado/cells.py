"""Indexes over a uniform grid with inverted lists in its cells: the plain table, and GI2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from dskype.bolts.arrays import enlarged
from dskype.bolts.boolean.program_kernels import Batch
from dskype.deploy.lab.tornado import cell_kernels as kernels
from dskype.deploy.lab.tornado import record_kernels
from dskype.deploy.lab.tornado.options import box, number, whole
from dskype.deploy.lab.tornado.records import RecordIndex
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["Gi2Index", "TableIndex"]

_NO_BOUND = 2**62


class _CellIndex(RecordIndex):
    """Files each record under its triggers in the grid cells that its rectangle overlaps.

    A list of records is a block of a pool whose size is a power of two; a list of one record needs no block. The lists of all cells are
    rows of one hash table.
    """

    def _grid(self) -> tuple[int, int, int]:
        """Return columns, lines, and in how many cells a record may be filed."""
        raise NotImplementedError

    def _clear(self) -> None:
        super()._clear()
        terms, rows = _table(16)
        pool = np.zeros(16, np.int32), np.full(32, -1, np.int64), np.zeros(6, np.int64)
        self._cells = kernels.Cells(np.array(self._grid(), np.int64), box(self), terms, rows, *pool)

    def _parts(self) -> tuple[tuple[np.ndarray, ...], ...]:
        return self._records, self._cells

    def _file(self, batch: Batch, progress: np.ndarray) -> tuple[int, int]:
        return kernels.insert(self._records, self._cells, batch, progress)

    def _grow(self, what: int, need: int) -> None:
        cells = self._cells
        if what == kernels.NEED_WORDS:
            self._grow_words(need)
        elif what == kernels.NEED_ENTRIES:
            size = max(int(cells.counters[kernels.ENTRIES_USED]) + need, len(cells.entries) * 5 // 4)
            if size >= 2**31:
                raise IllegalArgumentException(
                    explain(f"A boolean index {self.name!r} can hold no more.", given=f"{len(self)} subscriptions", hint="use more tasks, or larger cells")
                )
            self._cells = cells._replace(entries=enlarged(cells.entries, size, 0))
        else:
            filled = int(((cells.rows[:, 2] != kernels.EMPTY) & (cells.rows[:, 4] > 0)).sum())
            size = 16
            while size < 2 * (filled + need):
                size *= 2
            terms, rows = _table(size)
            kernels.rehash(cells, terms, rows)
            self._cells = cells._replace(terms=terms, rows=rows)

    def _remove(self, slots: np.ndarray) -> None:
        kernels.remove(self._records, self._cells, slots)

    def _match(self, rectangles: np.ndarray, points: bool, offsets: np.ndarray, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return kernels.match(self._records, self._cells, rectangles, points, offsets, terms)

    def _check(self) -> None:
        """Verify records, lists, table and pool."""
        cells, counters = self._cells, self._cells.counters
        places = np.flatnonzero(cells.rows[:, 2] != kernels.EMPTY)
        cell, start, count, size = cells.rows[places, 2:].astype(np.int64).T
        assert kernels.misplaced(cells) == 0
        assert len(places) == counters[kernels.ROWS_USED] <= len(cells.rows) * 2 / 3
        single = size == kernels.NO_BLOCK
        assert (count[single] <= 1).all() and (count[~single] <= np.int64(1) << size[~single]).all()
        blocks = list(zip(start[~single].tolist(), (np.int64(1) << size[~single]).tolist()))
        for found, head in enumerate(cells.free.tolist()):
            while head >= 0:
                blocks.append((head, 1 << found))
                head = int(cells.entries[head])
        at = 0
        for first, length in sorted(blocks):
            assert first == at, (first, at)
            at += length
        assert at == counters[kernels.ENTRIES_USED] <= len(cells.entries)
        row = np.repeat(np.arange(len(places)), count)
        nth = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        listed = np.where(single[row], start[row], cells.entries[np.where(single[row], 0, start[row] + nth)]).astype(np.int64)
        named = dict(zip(*(array.tolist() for array in np.unique(listed, return_counts=True))))
        assert len(listed) == counters[kernels.POSTINGS]
        assert (cell[row] == cells.grid[0] * cells.grid[1]).sum() == counters[kernels.APART]
        dead = self._check_records(named)
        assert sum(named[record] for record in dead) == counters[kernels.DEAD]
        live = ~np.isin(listed, list(dead))
        self._check_filing(cell[row[live]], cells.terms[places[row[live]], 0], listed[live])
        assert all(self._records.words[record + record_kernels.PLACES] == named[record] for record in named)

    def _check_filing(self, cell: np.ndarray, term: np.ndarray, record: np.ndarray) -> None:
        """Verify that every live record is in the lists where it belongs, and nowhere else."""
        columns, lines, most = self._cells.grid.tolist()
        records, expected = self._records, []
        for slot in np.flatnonzero(records.blocks >= 0).tolist():
            at = int(records.blocks[slot])
            first, last = record_kernels.trigger_range(records, at)
            column, wide, line, high = kernels.cell_range(self._cells, *records.floats[at + record_kernels.WEST : at + record_kernels.HEAD].tolist())
            filed = ((line + np.arange(high))[:, None] * columns + (column + np.arange(wide)) % columns).ravel()
            if not 0 < len(filed) <= most:
                filed = np.array([columns * lines])
            triggers = records.words[first:last]
            expected.append((np.tile(filed, len(triggers)), np.repeat(triggers, len(filed)), np.full(len(filed) * len(triggers), at)))
        wanted = [np.concatenate(arrays) for arrays in zip(*expected)] if expected else [np.zeros(0, np.int64)] * 3
        for have, want in zip(*(np.array(arrays)[:, np.lexsort(arrays)] for arrays in ((cell, term, record), wanted))):
            assert np.array_equal(have, want)


class TableIndex(_CellIndex):
    """The plain table: lists by (cell, rarest keyword) in flat arrays, changed at once. What other indexes are compared with.

    A record is filed under its triggers (for a conjunction, its rarest term) in all cells that its rectangle overlaps. One that overlaps more
    than ``most_cells`` is filed once, in a cell that every message looks at. A message scans the lists of its cell and of this one for each of
    its terms. Insert: O(triggers * cells); remove: the lengths of these lists; match: the lengths of the lists of the message's terms.

    :param options: ``cell_deg`` (0.5), the side of a cell in degrees; ``most_cells`` (64).
    """

    name = "table"
    OPTIONS: ClassVar[Mapping[str, str]] = {
        "cell_deg": "side of a grid cell in degrees",
        "most_cells": "a rectangle that overlaps more cells is filed apart from the grid",
    }

    def _grid(self) -> tuple[int, int, int]:
        cell_deg = number(self, "cell_deg", 0.5, 0.01, 180.0)
        return int(np.ceil(360 / cell_deg)), int(np.ceil(180 / cell_deg)), whole(self, "most_cells", 64, 1, 2**20)


class Gi2Index(_CellIndex):
    """GI2, the grid inverted index of PS2Stream's workers (ICDE 2017, section IV-D), with lazy deletion.

    An expression is filed in every cell that its rectangle overlaps: a conjunction under its rarest term, alternatives under the rarest term of each.
    For an expression of any other shape its triggers take that part, so nothing is multiplied out (see :mod:`~dskype.bolts.boolean.programs`).
    Removing only marks a subscription. Its postings leave when a message meets them, and through a vacuum that looks at a bounded number of
    postings with every call: without it the lists where no message comes would never shrink, which the paper leaves open.

    :param options: ``cells`` (64), cells along each side of the grid, 2^6 in the paper; ``box`` (the world), its west, south, east and north in degrees: what lies outside belongs to
        the cells at its border; ``vacuum`` (4), postings and lists that a call looks at
        for each posting that it makes or ends, and a matching call for each message.
    """

    name = "gi2"
    OPTIONS: ClassVar[Mapping[str, str]] = {
        "cells": "cells along each side of the grid",
        "box": "west, south, east and north of the grid in degrees; default: the world",
        "vacuum": "postings and lists to look at for each one changed",
    }

    def _grid(self) -> tuple[int, int, int]:
        cells = whole(self, "cells", 64, 1, 8192)
        self._vacuum = whole(self, "vacuum", 4, 1, 2**20)
        return cells, cells, _NO_BOUND

    def _file(self, batch: Batch, progress: np.ndarray) -> tuple[int, int]:
        before = int(self._cells.counters[kernels.POSTINGS])
        lacking = super()._file(batch, progress)
        kernels.vacuum(self._records, self._cells, self._vacuum * (int(self._cells.counters[kernels.POSTINGS]) - before))
        return lacking

    def _remove(self, slots: np.ndarray) -> None:
        dead = record_kernels.kill_all(self._records, slots)
        self._cells.counters[kernels.DEAD] += dead
        kernels.vacuum(self._records, self._cells, self._vacuum * int(dead))

    def _match(self, rectangles: np.ndarray, points: bool, offsets: np.ndarray, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        kernels.vacuum(self._records, self._cells, self._vacuum * len(rectangles))
        return super()._match(rectangles, points, offsets, terms)


def _table(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return empty rows, as their terms and as int32."""
    terms = np.zeros((size, 3), np.int64)
    rows = terms.view(np.int32)
    rows[:, 2] = kernels.EMPTY
    return terms, rows
