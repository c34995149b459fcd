"""The invariants of the lanes index, for tests."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from dskype.bolts.boolean.lanes import _kernels as k
from dskype.bolts.boolean.lanes import table_kernels as table
from dskype.bolts.boolean.lanes.group_kernels import lane_place, step_of

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check"]


def check(stores: k.Stores, size: int) -> None:
    """Verify that every subscription has its postings, that nothing else is there, that bounds contain what is in them, and the pools.

    :param size: how many subscriptions there are.
    :raises AssertionError: an invariant does not hold.
    """
    _Check(k.views(stores)).all(size)


class _Check:
    """One check; collects what is met on the way.

    :ivar postings: (slot, place) -> term of the list.
    :ivar codes: code -> how often it is used.
    """

    def __init__(self, index: k.Index) -> None:
        self.index = index
        self.postings: dict[tuple[int, int], int] = {}
        self.codes: Counter[int] = Counter()
        self.runs: dict[str, list[tuple[int, int]]] = {name: [] for name in ("blocks", "groups", "nodes", "records", "programs", "table")}

    def all(self, size: int) -> None:
        """Check everything."""
        self.lists()
        self.subscriptions(size)
        self.pools()

    def posting(self, term: int, mark: int, place: int, codes: Iterable[int]) -> int:
        """Note a posting; return its slot."""
        slot = mark if mark >= 0 else mark - k.FLAG
        assert (slot, place) not in self.postings
        self.postings[slot, place] = term
        self.codes.update(code for code in codes if code)
        assert (mark < 0) == (int(self.index.places[slot]) < 0), "a flag without a program, or the reverse"
        return slot

    def lists(self) -> None:
        """Check the term table and what is in every list."""
        index, state = self.index, self.index.state
        with_code = {}
        for p in range(k.PARTITIONS):
            start, packed = (int(x) for x in state[k.PARTITION + 2 * p : k.PARTITION + 2 * p + 2])
            size, used = 1 << (packed >> 32), packed & 0xFFFFFFFF
            self.runs["table"].append((start, size))
            rows = [r for r in range(start, start + size) if index.terms.table[r, 0] != table.EMPTY]
            assert len(rows) == used and 4 * used <= 3 * size
            for row in rows:
                term, word = int(index.terms.table[row, 0]), int(index.terms.table[row, 1])
                assert table.find(index.terms, index.terms.table[row, 0]) == row and table.hashed(term) & 255 == p
                if word & 0xFFFF:
                    with_code[word & 0xFFFF] = term
                kind, n, where = (int(x) for x in table.list_is(index.terms, row))
                if kind == k.RECORDS:
                    self.records(term, n, where)
                elif kind == k.GROUP:
                    self.group(term, where, -1)
                elif kind == k.TREE:
                    assert index.node_i4[where, k.COUNT] > 1
                    self.node(term, where, -1)
                else:
                    assert kind == k.NONE
        self.with_code = with_code

    def records(self, term: int, n: int, where: int) -> None:
        """Check a run of records."""
        index = self.index
        assert 0 < n <= k.SHORT
        self.runs["records"].append((where, n))
        for r in range(where, where + n):
            mark, place = int(index.record_i4[r, k.RECORD_SLOT]), k.RECORD_PLACE + r
            self.posting(term, mark, place, index.record_u2[r, k.RECORD_CODE : k.RECORD_CODE + 4].tolist())
            assert int(np.uint32(index.record_i4[r, k.RECORD_HASH])) == table.hashed(term)
            assert index.record[r, :4].tolist() == np.array(k.box_of_posting(index, mark, place)).astype(np.float32).tolist()

    def node(self, term: int, node: int, parent: int) -> list[float]:
        """Check a node and what is below; return the bounds of all its rectangles."""
        index = self.index
        n = int(index.node_i4[node, k.COUNT])
        assert 0 < n <= k.FAN_OUT and index.node_i4[node, k.UPPER] == parent
        self.runs["nodes"].append((node, 1))
        bounds = index.node[node].view(np.float32)[:64].reshape(4, 16)
        all_bounds = []
        for j in range(n):
            child = int(index.node_i4[node, k.CHILD + j])
            found = self.group(term, child, node) if child >= 0 else self.node(term, ~child, node)
            assert (bounds[:2, j] <= np.array(found[:2], np.float32)).all() and (bounds[2:, j] >= np.array(found[2:], np.float32)).all(), "bounds too small"
            all_bounds.append(found)
        assert np.isinf(bounds[:, n:]).all()
        every = np.array(all_bounds)
        return [*every[:, :2].min(0), *every[:, 2:].max(0)]

    def group(self, term: int, g: int, parent: int) -> list[float]:
        """Check a group; return the bounds of its rectangles."""
        index = self.index
        ints, frame = index.group_i4[g], index.group_f8[g]
        first, blocks, used, dead = (int(ints[field]) for field in (k.BLOCK, k.BLOCKS, k.USED, k.DEAD))
        assert index.group[g, k.TERM] == term and ints[k.PARENT] == parent
        assert 0 < blocks <= k.LANES and dead < used <= blocks * k.LANES
        self.runs["groups"].append((g, 1))
        self.runs["blocks"].append((first, blocks))
        bounds = index.group_u2[g, k.BOUNDS :].astype(int).reshape(4, 16)
        boxes = []
        for lane in range(blocks * k.LANES):
            b, j = first + lane // k.LANES, lane % k.LANES
            edges = index.block[b, :64].astype(int).reshape(4, 16)[:, j].tolist()
            mark = int(index.block_i4[b, k.SLOT + j])
            if mark == k.DEAD_SLOT:
                assert index.block[b, k.CODE + j] == k.CODES_MOST and (lane < used or edges == [65535, 65535, 0, 0])
                dead -= lane < used
                continue
            assert lane < used
            place = int(lane_place(g, lane))
            self.posting(term, mark, place, index.block[b, k.CODE : k.CODE + 64].reshape(4, 16)[:, j].tolist())
            box = [float(x) for x in k.box_of_posting(index, mark, place)]
            steps = [int(step_of(box[e], frame[k.X0 + e % 2], frame[k.SCALE_X + e % 2])) for e in range(4)]
            assert steps == edges, "edges are not those of the rectangle in the frame"
            around = bounds[:, lane // k.LANES]
            assert around[0] <= edges[0] and around[1] <= edges[1] and around[2] >= edges[2] and around[3] >= edges[3]
            boxes.append(box)
        assert dead == 0
        every = np.array(boxes)
        return [*every[:, :2].min(0), *every[:, 2:].max(0)]

    def subscriptions(self, size: int) -> None:
        """Check that every subscription has its postings, and all codes."""
        index = self.index
        live = np.flatnonzero(index.places).tolist()
        assert len(live) == size
        expected: dict[tuple[int, int], int | None] = {}
        for slot in live:
            place = int(index.places[slot])
            if place > 0:
                expected[slot, place] = None
                continue
            first = int(k.program_of(index, slot))
            kind, postings, length, body = (int(x) for x in k.program_head(index, first))
            self.runs["programs"].append((first, int(k.program_size(k.program_units(kind, postings, length))[1])))
            if kind == k.ALL_CODES:
                self.codes.update(index.program_u2[body : body + length].tolist())
            west, _, east, _ = index.boxes[slot].tolist()
            halves = 1 if west <= east else 2
            steps = index.program[body : body + length].tolist() if kind != k.ALL_CODES else []
            terms = {k.ALL_CODES: [None], k.ALL_TERMS: steps[:1], k.ANY_TERM: steps}.get(kind) or steps[1 : 1 + steps[0]]
            assert postings == halves * len(terms)
            for nth in range(postings):
                expected[slot, int(index.program_i4[k.postings_at(index, first) + nth])] = terms[nth // halves]
        assert expected.keys() == self.postings.keys()
        assert all(term is None or term == self.postings[posting] for posting, term in expected.items())
        free, code = [], int(index.state[k.FREE_CODE])
        while code:
            free.append(code)
            code = int(table.term_of_code(index.terms, code))
        assert len(free) == index.state[k.FREE_CODES] and not set(free) & self.codes.keys()
        assert set(free) | self.codes.keys() == set(range(1, int(index.state[k.CODES_END])))
        assert self.with_code == {code: int(table.term_of_code(index.terms, code)) for code in self.codes}
        assert all(index.terms.codes[code, 2] == n for code, n in self.codes.items())

    def pools(self) -> None:
        """Check that what is in use and what is free cover each pool, without overlap."""
        index, state = self.index, self.index.state
        for n in range(1, k.LANES + 1):
            self._free("blocks", state[k.FREE_BLOCKS + n], index.block_i4[:, 0], n)
        self._free("groups", state[k.FREE_GROUP], index.group[:, k.TERM], 1)
        self._free("nodes", state[k.FREE_NODE], index.node_i4[:, k.CHILD], 1)
        self._free_records()
        for n in range(32):
            self._free("table", state[k.FREE_TABLE + n], index.terms.table[:, 1], 1 << n)
        for units in [*range(1, 33), *(quarters << octave for octave in range(3, 28) for quarters in range(5, 9))]:
            self._free("programs", state[k.FREE_PROGRAMS + k.program_size(units)[0]], index.program, units)
        ends = {
            "blocks": k.BLOCKS_END, "groups": k.GROUPS_END, "nodes": k.NODES_END, "records": k.RECORDS_END, "programs": k.PROGRAMS_END, "table": k.TABLE_END,
        }  # fmt: skip
        for name, runs in self.runs.items():
            at = 0
            for start, size in sorted(runs):
                assert start == at, (name, start, at)
                at += size
            assert at == state[ends[name]], (name, at)

    def _free_records(self) -> None:
        record = self.index.record_i4
        ends = set()
        for least in range(1, k.LONG_RUN + 1):
            before, head = 0, int(self.index.state[k.FREE_RECORDS + least])
            while head:
                first, n = head - 1, int(record[head - 1, k.RUN])
                assert n == least or n > least == k.LONG_RUN
                assert record[first, k.BEFORE] == before and record[first + n - 1, k.RUN] == n
                assert record[first, k.RECORD_SLOT] == record[first + n - 1, k.RECORD_SLOT] == k.DEAD_SLOT
                self.runs["records"].append((first, n))
                ends.add((first, first + n))
                before, head = head, int(record[first, k.NEXT])
        assert not {first for first, _ in ends} & {end for _, end in ends}, "free runs side by side"
        assert int(self.index.state[k.RECORDS_END]) not in {end for _, end in ends}

    def _free(self, name: str, head: int, links: np.ndarray, size: int) -> None:
        head = int(head)
        while head:
            self.runs[name].append((head - 1, size))
            head = int(links[head - 1])
