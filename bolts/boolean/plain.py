"""The plain boolean index: posting lists by trigger term, scanned."""

from __future__ import annotations

import numpy as np

from dskype.bolts.arrays import enlarged
from dskype.bolts.boolean import _kernels as kernels
from dskype.bolts.boolean.base import arrays_bytes
from dskype.bolts.boolean.compiled import CompiledIndex
from dskype.bolts.boolean.program_kernels import Batch
from dskype.bolts.boolean.programs import AND, GENERAL
from dskype.spouts.batch import MessageBatch
from dskype.spouts.columns import read_only
from dskype.topology.errors import IllegalArgumentException

__all__ = ["PlainIndex"]


class PlainIndex(CompiledIndex):
    """Files each subscription under its trigger terms (see :mod:`~dskype.bolts.boolean.programs`) and scans their postings.

    A posting holds the slot and the rectangle in float32, rounded outwards, so that a scan reads memory in a row and looks at
    a subscription only if its rectangle (nearly) overlaps the message; then the exact rectangle and the expression decide.

    There is no delta and no rebuild: a posting list is a block of a pool that doubles when it is full, a removal puts the
    list's last posting into the gap, and freed blocks are used again. Insert: O(triggers), amortized; remove: the lengths of
    the lists of its triggers; match: the lengths of the lists of the message's terms. Memory: 40 bytes per slot, 24 per
    posting and 8 per program step and one more, with up to twice that for growth; pools do not shrink, ``restore`` makes them again.
    """

    name = "plain"

    def _clear(self) -> None:
        self._size = 0
        free = -np.ones(64, np.int64)
        self._arrays = kernels.Index(
            boxes=np.zeros((0, 4)),
            starts=np.zeros(0, np.int64),
            programs=np.zeros(16, np.int64),
            free_programs=free,
            entry_slots=np.zeros(16, np.int32),
            entry_programs=np.zeros(16, np.int32),
            entry_boxes=np.zeros((4, 16), np.float32),
            free_entries=free.copy(),
            keys=np.full(16, kernels.EMPTY),
            heads=np.zeros(16, np.int64),
            counts=np.zeros(16, np.int32),
            classes=np.full(16, -1, np.int8),
            counters=np.zeros(3, np.int64),
        )

    def __len__(self) -> int:
        return self._size

    @property
    def memory_bytes(self) -> int:
        """What the arrays take."""
        return arrays_bytes(self._arrays)

    # -- growing --------------------------------------------------------------------------------------------------------

    def _grow_slots(self, n: int) -> None:
        arrays = self._arrays
        have = len(arrays.starts)
        if n > have:
            size = max(n, have + have // 2, 16)
            starts = np.full(size, -1, np.int64)
            starts[:have] = arrays.starts
            self._arrays = arrays._replace(boxes=enlarged(arrays.boxes, size), starts=starts)

    def _grow(self, what: int, need: int) -> None:
        arrays = self._arrays
        if what == kernels.NEED_PROGRAMS:
            size = max(int(arrays.counters[kernels.PROGRAMS_USED]) + need, len(arrays.programs) * 3 // 2)
            if size >= 2**31:
                raise IllegalArgumentException("A plain index can hold no more.", given=f"{self._size} subscriptions", hint="use more tasks")
            self._arrays = arrays._replace(programs=enlarged(arrays.programs, size))
        elif what == kernels.NEED_POSTINGS:
            size = max(int(arrays.counters[kernels.POSTINGS_USED]) + need, len(arrays.entry_slots) * 3 // 2)
            boxes = np.zeros((4, size), np.float32)
            boxes[:, : len(arrays.entry_slots)] = arrays.entry_boxes
            self._arrays = arrays._replace(
                entry_slots=enlarged(arrays.entry_slots, size), entry_programs=enlarged(arrays.entry_programs, size), entry_boxes=boxes
            )
        else:
            live = int((arrays.classes >= 0).sum())
            size = 16
            while size < 3 * (live + need):
                size *= 2
            table = (np.full(size, kernels.EMPTY), np.zeros(size, np.int64), np.zeros(size, np.int32), np.full(size, -1, np.int8))
            kernels.rehash(arrays, *table)
            self._arrays = arrays._replace(keys=table[0], heads=table[1], counts=table[2], classes=table[3])

    # -- changes --------------------------------------------------------------------------------------------------------

    def _by_slot(self) -> tuple[np.ndarray, int]:
        return self._arrays.starts, -1

    def _insert(self, batch: Batch) -> None:
        self._grow_slots(int(batch.slots.max()) + 1)
        done = 0
        while True:
            done, what, need = kernels.insert(self._arrays, batch, done)
            if not what:
                break
            self._grow(what, int(need))
        self._size += len(batch.slots)

    def _remove(self, slots: np.ndarray) -> None:
        kernels.remove(self._arrays, slots)
        self._size -= len(slots)

    # -- matching -------------------------------------------------------------------------------------------------------

    def match(self, messages: MessageBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return the matches; see :meth:`~dskype.bolts.boolean.base.BooleanIndex.match`."""
        lat, lon = messages.lat, messages.lon
        places = (lon, lat, lon, lat) if messages.areas is None else messages.areas.T
        return kernels.match(self._arrays, *map(read_only, (*places, messages.offsets, messages.terms)))

    # -- state ----------------------------------------------------------------------------------------------------------

    def _compiled(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        arrays = self._arrays
        starts = arrays.starts[slots]
        lengths = arrays.programs[starts] >> 2
        offsets = np.zeros(len(slots) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        places = np.arange(offsets[-1]) + np.repeat(starts + 1 - offsets[:-1], lengths)
        return arrays.boxes[slots], (arrays.programs[starts] & 3).astype(np.int8), offsets, arrays.programs[places]

    # -- checks ---------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Verify pools, lists, table and slots."""
        a = self._arrays
        live = np.flatnonzero(a.starts >= 0).tolist()
        assert len(live) == self._size
        programs_free = _free_blocks(a.free_programs, a.programs)
        entries_free = _free_blocks(a.free_entries, a.entry_slots)
        blocks = [(int(a.starts[s]), 1 << (int(a.programs[a.starts[s]]) >> 2).bit_length()) for s in live]
        _check_cover(blocks + programs_free, int(a.counters[kernels.PROGRAMS_USED]), len(a.programs))
        places = [p for p in range(len(a.keys)) if a.keys[p] != kernels.EMPTY]
        assert len(places) == a.counters[kernels.TERMS_USED] <= len(a.keys) // 2
        lists = [p for p in places if a.classes[p] >= 0]
        blocks = [(int(a.heads[p]), 1 << int(a.classes[p])) for p in lists]
        _check_cover(blocks + entries_free, int(a.counters[kernels.POSTINGS_USED]), len(a.entry_slots))
        found: dict[tuple[int, int], list[tuple[np.ndarray, int]]] = {}
        for p in places:
            assert kernels.find(a.keys, a.keys[p]) == p
            count = int(a.counts[p]) if a.classes[p] >= 0 else 0
            assert a.classes[p] < 0 or 0 < count <= 1 << int(a.classes[p])
            for e in range(int(a.heads[p]), int(a.heads[p]) + count):
                entry = a.entry_boxes[:, e].astype(np.float64), int(a.entry_programs[e])
                found.setdefault((int(a.entry_slots[e]), int(a.keys[p])), []).append(entry)
        expected = set()
        for slot in live:
            start = int(a.starts[slot])
            length, kind = int(a.programs[start]) >> 2, int(a.programs[start]) & 3
            program = a.programs[start + 1 : start + 1 + length].tolist()
            terms = program[:1] if kind == AND else program[1 : 1 + program[0]] if kind == GENERAL else program
            assert terms == sorted(set(terms))
            expected |= {(slot, term) for term in terms}
            west, south, east, north = a.boxes[slot].tolist()
            for term in terms:
                entries = sorted((box for box, _ in found[slot, term]), key=lambda box: -box[0])
                assert {at for _, at in found[slot, term]} == {-1 if kind != GENERAL and (kind != AND or length == 1) else start}
                wanted = [(west, east)] if west <= east else [(west, np.inf), (-np.inf, east)]
                assert len(entries) == len(wanted)
                for (low, high), entry in zip(wanted, entries):
                    for inner, outer in ((low, entry[0]), (south, entry[1]), (-high, -entry[2]), (-north, -entry[3])):
                        assert outer == inner or 0 <= inner - outer <= abs(inner) * 5e-7 + 1e-10
        assert set(found) == expected


def _free_blocks(heads: np.ndarray, links: np.ndarray) -> list[tuple[int, int]]:
    blocks = []
    for size_class, head in enumerate(heads.tolist()):
        while head >= 0:
            blocks.append((head, 1 << size_class))
            head = int(links[head])
    return blocks


def _check_cover(blocks: list[tuple[int, int]], used: int, capacity: int) -> None:
    """Verify that blocks lie one behind the other and fill what is used."""
    at = 0
    for start, size in sorted(blocks):
        assert start == at, (start, at)
        at += size
    assert at == used <= capacity
