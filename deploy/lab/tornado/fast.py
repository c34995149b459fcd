"""FAST: a spatial pyramid with adaptive keyword indexes, Tornado's local index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from dskype.bolts.arrays import enlarged
from dskype.bolts.boolean.program_kernels import Batch
from dskype.deploy.lab.tornado import fast_filing_kernels, fast_search_kernels, record_kernels
from dskype.deploy.lab.tornado import fast_kernels as kernels
from dskype.deploy.lab.tornado.options import whole
from dskype.deploy.lab.tornado.records import RecordIndex
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["FastIndex"]


class FastIndex(RecordIndex):
    """FAST, the frequency-aware index of Tornado's evaluators (SIGSPATIAL 2018, section 3.2; FAST itself: ICDE 2018).

    The pyramid halves the world in both directions from level to level. Every cell has an adaptive keyword index:

    - An infrequent keyword has a list. A conjunction joins the list of its rarest keyword whose list is not full.
    - Where all lists are full, that of its rarest keyword becomes a trie over the conjunction's keywords in rising order; again with lists that become
      tries. What ends at a trie node is in the node's own list.
    - When more than ``spill`` postings of an own list are small enough for the cells below, that half which overlaps the cell least moves there.
      So a subscription begins at the world, where it is filed once, and goes down only where its keywords do not tell it apart.
    - Neighbouring cells that a rectangle reaches into share one list.
    - Removing only marks a subscription. Its postings leave when a message meets them, and through a vacuum that looks at a bounded number of
      them with each call.

    It departs from the paper in four points. Keywords are infrequent or frequent by their lists, as there, but rarest by the vocabulary, not by what was
    registered. An expression that is no conjunction is filed under each of its triggers. A message looks all its keywords up in every cell that exists,
    not only those that are frequent in the cell above, so that lists may come back where tries were. Lists are longer, as they are scanned in a row.

    Insert: O(levels * terms) amortized; match: the rows that the message's terms lead to, in one cell per level.

    :param options: ``cells`` (1024), cells along each side of the finest grid, a power of two; ``frequent`` (64), the length from which on a list is full;
        ``spill`` (16); ``vacuum`` (4), rows and postings to look at for each posting made or ended, and for each message.
    """

    name = "fast"
    OPTIONS: ClassVar[Mapping[str, str]] = {
        "cells": "cells along each side of the finest grid, a power of two",
        "frequent": "the number of postings from which on a keyword is frequent",
        "spill": "how many postings that could go to the cells below may stay at the end of a trie",
        "vacuum": "rows and postings to look at for each posting made or ended",
    }

    def _clear(self) -> None:
        super()._clear()
        cells = whole(self, "cells", 1024, 1, 2**14)
        if cells & (cells - 1):
            raise IllegalArgumentException(explain("Cells along a side must be a power of two.", given=cells, legal="1, 2, 4, ... 16384"))
        self._vacuum = whole(self, "vacuum", 4, 1, 2**20)
        shape = np.array([cells.bit_length(), whole(self, "frequent", 64, 1, 2**12), whole(self, "spill", 16, 1, 2**12)], np.int64)
        nodes, units = np.zeros((32, 4), np.int64), np.zeros((64, 8), np.int32)
        counters = np.zeros(9, np.int64)
        counters[kernels.FREE_NODE] = -1
        self._pyramid = kernels.Pyramid(
            shape,
            *_table(64),
            nodes,
            nodes.view(np.int32),
            units,
            units.view(np.float32),
            units.view(np.int64),
            np.full(32, -1, np.int64),
            np.zeros((64, 4), np.int64),
            counters,
        )
        world = kernels.take_node(self._pyramid, -1, 0)
        self._pyramid.node_parts[world, kernels.MASK] = kernels.IS_CELL

    def _parts(self) -> tuple[tuple[np.ndarray, ...], ...]:
        return self._records, self._pyramid

    # -- growing ------------------------------------------------------------------------------------------------------

    def _grow(self, what: int, need: int) -> None:
        pyramid, counters = self._pyramid, self._pyramid.counters
        if what == kernels.NEED_WORDS:
            self._grow_words(need)
        elif what == kernels.NEED_ROWS:
            size = len(pyramid.rows)
            while size < 2 * (int(counters[kernels.ROWS_LIVE]) + need):
                size *= 2
            terms, rows = _table(size)
            kernels.rehash(pyramid, terms, rows)
            self._pyramid = pyramid._replace(terms=terms, rows=rows)
        elif what == kernels.NEED_NODES:
            nodes = enlarged(pyramid.nodes, len(pyramid.nodes) * 5 // 4 + need, 0)
            self._pyramid = pyramid._replace(nodes=nodes, node_parts=nodes.view(np.int32))
        elif what == kernels.NEED_QUEUE:
            self._pyramid = pyramid._replace(queue=enlarged(pyramid.queue, len(pyramid.queue) * 2 + need, 0))
        else:
            size = max(int(counters[kernels.UNITS_USED]) + need, len(pyramid.units) * 5 // 4)
            if size >= 2**31:
                raise IllegalArgumentException(
                    explain("A boolean index 'fast' can hold no more.", given=f"{len(self)} subscriptions", hint="use more tasks, or fewer cells")
                )
            units = enlarged(pyramid.units, size, 0)
            self._pyramid = pyramid._replace(units=units, boxes=units.view(np.float32), signatures=units.view(np.int64))

    # -- changes ------------------------------------------------------------------------------------------------------

    def _file(self, batch: Batch, progress: np.ndarray) -> tuple[int, int]:
        lacking = fast_filing_kernels.insert(self._records, self._pyramid, batch, progress)
        if not lacking[0]:  # while postings are queued, their cells may be empty, and have to stay
            self._clean(len(batch.slots))
        return lacking

    def _remove(self, slots: np.ndarray) -> None:
        dead = record_kernels.kill_all(self._records, slots)
        self._pyramid.counters[kernels.DEAD] += dead
        self._clean(int(dead))

    def _clean(self, changes: int) -> None:
        if self._pyramid.counters[kernels.DEAD] and changes:
            fast_filing_kernels.vacuum(self._records, self._pyramid, self._vacuum * changes)

    # -- matching -----------------------------------------------------------------------------------------------------

    def _match(self, rectangles: np.ndarray, points: bool, offsets: np.ndarray, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self._clean(len(rectangles))
        return fast_search_kernels.match(self._records, self._pyramid, rectangles, points, offsets, terms)

    # -- checks -------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Verify table, nodes, blocks, records, and that every posting can be found."""
        p, counters = self._pyramid, self._pyramid.counters
        frequent, spill = p.shape[kernels.FREQUENT], p.shape[kernels.SPILL]
        places = np.flatnonzero(p.rows[:, 2] > kernels.TOMB)
        assert kernels.misplaced(p) == 0 and counters[kernels.QUEUED] == 0
        assert len(places) == counters[kernels.ROWS_LIVE] <= counters[kernels.ROWS_USED] <= len(p.rows) * 2 / 3
        rows = {(int(p.rows[r, 2]), int(p.terms[r, 0])): int(p.rows[r, 3]) for r in places}
        lists = [(owner, term, value) for (owner, term), value in rows.items() if value >= 0]
        inner = {-2 - value: (owner, term) for (owner, term), value in rows.items() if value < 0}
        blocks = self._check_nodes(rows, inner)
        shares: dict[int, int] = {}
        for owner, term, block in lists:
            shares[block] = shares.get(block, 0) + 1
            assert owner == 0 or owner in inner
            blocks[block] = (owner, term)
        named: dict[int, int] = {}
        for block in blocks:
            count, size, shared, movable = p.units[block, :4].tolist()
            assert count < 1 << size and 0 <= movable <= count and shared == shares.get(block, 1)
            assert (movable == 0 and count <= frequent) if block in shares else movable <= spill
            for record in p.units[block + 1 : block + 1 + count, kernels.RECORD].tolist():
                named[record] = named.get(record, 0) + 1
        at = 0
        sizes = {block: 1 << int(p.units[block, kernels.CLASS]) for block in blocks}
        for size, head in enumerate(p.free.tolist()):
            while head >= 0:
                assert head not in sizes
                sizes[head] = 1 << size
                head = int(p.units[head, 0])
        for start in sorted(sizes):
            assert start == at, (start, at)
            at += sizes[start]
        assert at == counters[kernels.UNITS_USED] <= len(p.units)
        assert sum(named.values()) == counters[kernels.POSTINGS]
        dead = self._check_records(named)
        assert sum(named[record] for record in dead) == counters[kernels.DEAD]
        assert all(self._records.words[record + record_kernels.PLACES] == times for record, times in named.items())
        self._check_cover(rows)

    def _check_nodes(self, rows: Mapping[tuple[int, int], int], inner: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """Verify the nodes; return the blocks of own lists."""
        p, counters = self._pyramid, self._pyramid.counters
        children: dict[int, list[int]] = {}
        for owner, term in rows:
            children.setdefault(owner, []).append(term)
        free, head = [], int(counters[kernels.FREE_NODE])
        while head >= 0:
            free.append(head)
            head = int(p.node_parts[head, kernels.OWNER])
        assert sorted([0, *inner, *free]) == list(range(int(counters[kernels.NODES_USED])))
        own = {}
        for node in [0, *inner]:
            owner, block, count, mask = p.node_parts[node, kernels.OWNER :].tolist()
            terms = children.get(node, [])
            assert len(terms) == count
            assert all(int(p.nodes[node, 0]) & int(kernels.bit_of(term)) for term in terms)
            if node:
                at, term = inner[node]
                assert int(p.nodes[node, 1]) == term and (at == kernels.CELLS) == bool(mask & kernels.IS_CELL) and (owner == at or at == kernels.CELLS)
                assert count or mask & kernels.BELOW or not mask & kernels.IS_CELL
            if mask & kernels.IS_CELL:
                assert block < 0
                for quadrant in range(4):
                    below = rows.get((int(kernels.CELLS), int(kernels.child_of(p.nodes[node, 1], quadrant))))
                    assert (below is not None) == bool(mask >> quadrant & 1)
                    assert below is None or p.node_parts[-2 - below, kernels.OWNER] == node
            if block >= 0:
                own[block] = (node, -1)
        return own

    def _check_cover(self, rows: Mapping[tuple[int, int], int]) -> None:
        """Verify that each posting of a live record is once on each way down that reaches its rectangle."""
        p, records = self._pyramid, self._records
        for slot in np.flatnonzero(records.blocks >= 0).tolist():
            record = int(records.blocks[slot])
            first, last = record_kernels.trigger_range(records, record)
            conjunction = records.words[record] & 3 == record_kernels.AND
            length = int(record_kernels.length_of(records, record))
            keys = [records.words[first : first + length].tolist()] if conjunction else [[term] for term in records.words[first:last].tolist()]
            for key in keys:
                self._check_cell(rows, record, key, 0, p.nodes[0, 1])

    def _check_cell(self, rows: Mapping[tuple[int, int], int], record: int, key: list[int], node: int, cell: int) -> None:
        """Verify that a posting is in one list of this cell, or in all cells below that its rectangle reaches into."""
        p = self._pyramid
        lists = [rows[node, term] for term in key if rows.get((node, term), -1) >= 0]
        at, depth = node, 0
        while depth < len(key) and (value := rows.get((at, key[depth]), -1)) < -1:
            at, depth = -2 - value, depth + 1
        if depth == len(key) and p.node_parts[at, kernels.BLOCK] >= 0:
            lists.append(int(p.node_parts[at, kernels.BLOCK]))
        elif 0 < depth < len(key) and value >= 0:
            lists.append(value)
        holds = [b for b in lists if record in p.units[b + 1 : b + 1 + int(p.units[b, 0]), kernels.RECORD].tolist()]
        if holds:
            return  # one, or two if a neighbour's list is shared that has it as well
        reached = 0  # its trie may be gone, if nothing was left in it here
        for quadrant in range(4):
            below = int(kernels.child_of(cell, quadrant))
            if kernels.overlaps_cell(self._records, p, record, int(kernels.level_of(below)), below & 0xFFFFFF, below >> 24 & 0xFFFFFF):
                self._check_cell(rows, record, key, -2 - rows[int(kernels.CELLS), below], below)
                reached += 1
        assert reached


def _table(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return empty rows, as their terms and as int32."""
    terms = np.zeros((size, 2), np.int64)
    rows = terms.view(np.int32)
    rows[:, 2] = kernels.EMPTY
    return terms, rows
