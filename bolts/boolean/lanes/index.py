"""The lanes index: a subscription is a posting of 20 bytes in the list of its rarest keyword; 16 are looked at at a time."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from dskype.bolts.boolean.compiled import CompiledIndex
from dskype.bolts.boolean.lanes import _kernels as kernels
from dskype.bolts.boolean.lanes import change_kernels as changes
from dskype.bolts.boolean.lanes import group_kernels as groups
from dskype.bolts.boolean.lanes import match_kernels as matching
from dskype.bolts.boolean.lanes.address_kernels import addresses, handle_of
from dskype.bolts.boolean.lanes.checks import check
from dskype.bolts.boolean.lanes.memory import GrowingRows
from dskype.bolts.boolean.program_kernels import Batch
from dskype.spouts.batch import MessageBatch

__all__ = ["LanesIndex"]

_KEPT = 1 << 15  # matches from which on a result is handed over instead of copied
_MARGIN = {"blocks": 96, "groups": 16, "nodes": 32, "records": 128}


class LanesIndex(CompiledIndex):
    """Looks for a conjunction in the list of its rarest keyword, by its rectangle in 16 bits and the codes of its next four keywords.

    A list of up to 16 postings is a run of records. A longer one has groups of up to 256 postings, whose rectangles are 16-bit numbers in
    the frame of the group; all rounding is monotone, so only what is equal on an edge needs a look at the rectangle itself. Several groups
    of a list are the leaves of an R-tree. Further keywords, other expressions (a posting per trigger, see
    :mod:`~dskype.bolts.boolean.programs`) and rectangles across the antimeridian have a program that is evaluated for what is left.

    Insert and remove change one group, and at times its tree: a few microseconds, whatever the index holds. Match: in proportion to the
    matches, next to a few blocks per term. Memory: about 60 bytes per conjunction of up to five keywords.
    """

    name = "lanes"

    def _clear(self) -> None:
        self._size = 0
        self._rows = {
            "boxes": GrowingRows(np.float64, 4),
            "places": GrowingRows(np.int32, 0),
            "table": GrowingRows(np.int64, 2),
            "records": GrowingRows(np.float32, 8),
            "blocks": GrowingRows(np.uint16, 160),
            "groups": GrowingRows(np.int64, 24),
            "nodes": GrowingRows(np.float32, 96),
            "programs": GrowingRows(np.int64, 0),
            "codes": GrowingRows(np.int32, 3),
        }
        self._state = np.zeros(kernels.STATE_SIZE, np.int64)
        self._state[kernels.CODES_END] = 1
        self._stores: kernels.Stores | None = None
        self._handle: Any = None
        self._addresses: np.ndarray | None = None
        for name, rows in _MARGIN.items():
            self._rows[name].reserve(rows)
        self._reserve(boxes=1, places=1, programs=1, codes=1, table=8 * kernels.PARTITIONS)
        changes.clear(self._handle)
        self._hold(matching.new_found(1 << 12, 1 << 12, 64, 1 << 10))
        self._handed_over = False  # the arrays of ``_found`` have been given to the caller
        self._spare: tuple[np.ndarray, np.ndarray] | None = None  # others, which it had been given before
        self._work = groups.new_work()
        self._work_addresses = addresses(self._work)
        self._work_handle = handle_of(self._work_addresses, self._work)

    def __len__(self) -> int:
        return self._size

    @property
    def memory_bytes(self) -> int:
        """What the arrays take, room to grow and scratch included."""
        return sum(rows.nbytes for rows in self._rows.values()) + self._state.nbytes + sum(array.nbytes for array in (*self._found, *(self._spare or ())))

    # -- growing --------------------------------------------------------------------------------------------------------

    def _reserve(self, **rows: int) -> None:
        """Give pools room for at least this many rows, by name."""
        self._stores = self._handle = None  # without compilation the handle holds them, too, and an array grows only if nothing else refers to it
        grown = [name for name, n in rows.items() if self._rows[name].reserve(n)]
        self._stores = kernels.Stores(*(rows.array for rows in self._rows.values()), self._state)
        if self._addresses is None:
            self._addresses = addresses(self._stores)
        for name in grown:
            self._addresses[kernels.Stores._fields.index(name)] = addresses((getattr(self._stores, name),))[0]
        self._handle = handle_of(self._addresses, self._stores, kernels.views)

    def _grow(self, need: int) -> None:
        """Make the room that a kernel lacks."""
        state = self._state
        if need == changes.NEED_TABLE:
            sizes = state[kernels.PARTITION + 1 :: 2] >> 32
            self._reserve(table=int(state[kernels.TABLE_END]) + (4 << int(sizes.max())))
        elif need == changes.NEED_CODES:
            self._reserve(codes=min(int(state[kernels.CODES_END]) + 1024 + self._largest_program, kernels.CODES_MOST + 1))
        elif need == changes.NEED_PROGRAMS:
            self._reserve(programs=int(state[kernels.PROGRAMS_END]) + self._largest_program)
        else:
            ends = (kernels.BLOCKS_END, kernels.GROUPS_END, kernels.NODES_END, kernels.RECORDS_END)
            self._reserve(**{name: int(state[end]) + margin for (name, margin), end in zip(_MARGIN.items(), ends)})

    def _hold(self, found: matching.Found) -> None:
        """Let matches be found there."""
        self._found, self._found_addresses = found, addresses(found)
        self._found_handle = handle_of(self._found_addresses, found)

    # -- changes --------------------------------------------------------------------------------------------------------

    def _by_slot(self) -> tuple[np.ndarray, int]:
        return self._rows["places"].array, 0

    def _insert(self, batch: Batch) -> None:
        high = int(batch.slots.max())
        if high >= min(len(self._rows["places"].array), len(self._rows["boxes"].array)):
            self._reserve(boxes=high + 1, places=high + 1)
        self._largest_program = 4 * int(np.diff(batch.offsets).max()) + 64
        progress = np.array([0, -1], np.int64)
        while need := changes.insert(self._handle, self._work_handle, batch, progress):
            self._grow(need)
        self._size += len(batch.slots)

    def _remove(self, slots: np.ndarray) -> None:
        progress = np.zeros(1, np.int64)
        while need := changes.remove(self._handle, self._work_handle, slots, progress):
            self._grow(need)
        self._size -= len(slots)

    # -- matching -------------------------------------------------------------------------------------------------------

    def match(self, messages: MessageBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return the matches; see :meth:`~dskype.bolts.boolean.base.BooleanIndex.match`."""
        areas, offsets = messages.areas, messages.offsets
        if self._handed_over:
            self._leave_results()
        found, n, first, last = self._found, len(offsets) - 1, offsets.item(0), offsets.item(-1)
        terms, lon, lat = last - first, 0.0, 0.0
        if n > len(found.row) or terms > len(found.terms):
            found = self._more_messages(n, terms)
        if areas is not None:
            box, spans, row = _halves(messages, areas)
            n = len(row)
            if n > len(found.row):
                found = self._more_messages(n, terms)
            found.box[:n], found.spans[:n], found.row[:n] = box, spans, row
        elif n == 1:
            lon, lat = messages.lon.item(0), messages.lat.item(0)
        else:
            found.lon[:n], found.lat[:n], found.offsets[: n + 1] = messages.lon, messages.lat, offsets
        found.terms[:terms] = messages.terms if terms == len(messages.terms) else messages.terms[first:last]
        begins = True
        while (end := matching.match(self._handle, self._found_handle, n, areas is None, begins, lon, lat, terms)) < 0:
            found, begins = self._more_scratch(end, n), False
        if end < _KEPT or 8 * end < len(found.slots):
            return (np.zeros(end, np.int32) if len(offsets) == 2 else found.rows[:end].copy()), found.slots[:end].copy()
        self._handed_over = True
        return found.rows[:end], found.slots[:end]

    def _leave_results(self) -> None:
        """Write further results to other arrays if the caller still holds the last ones, which it was given without a copy."""
        self._handed_over = False
        last = self._found.rows, self._found.slots
        if _references(last) == _ALONE + 1:  # that of ``_found``
            return
        spare = self._spare
        if spare is None or len(spare[0]) != len(last[0]) or _references(spare) > _ALONE:
            spare = np.empty_like(last[0]), np.empty_like(last[1])
        self._spare = last
        self._hold(self._found._replace(rows=spare[0], slots=spare[1]))

    def _more_messages(self, n: int, terms: int) -> matching.Found:
        """Make room for ``n`` messages with ``terms`` terms together; what was there is lost."""
        old = self._found
        self._hold(matching.new_found(old.items.shape[1], len(old.slots), max(len(old.row), n + n // 8), max(len(old.terms), terms + terms // 8)))
        return self._found

    def _more_scratch(self, need: int, n: int) -> matching.Found:
        """Make room for what ``n`` messages lead to, and keep what was found.

        :param need: what :func:`~dskype.bolts.boolean.lanes.match_kernels.match` returned.
        """
        old = self._found
        items, slots = old.items.shape[1], len(old.slots)
        if need == -1:
            items = max(2 * items, 2 * int((old.spans[:n, 1] - old.spans[:n, 0]).max()) + 1024)
        else:
            slots += slots // 2
        new = matching.new_found(items, slots, len(old.row), len(old.terms))
        for name in ("box", "spans", "row", "terms", "progress"):
            getattr(new, name)[:] = getattr(old, name)
        end = int(old.progress[2])
        new.slots[:end], new.rows[:end] = old.slots[:end], old.rows[:end]
        self._hold(new)
        return new

    # -- state ----------------------------------------------------------------------------------------------------------

    def _compiled(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        offsets, kinds = np.zeros(len(slots) + 1, np.int64), np.zeros(len(slots), np.int8)
        changes.describe(self._handle, slots, offsets, kinds, np.zeros(0, np.int64))
        programs = np.zeros(int(offsets[-1]), np.int64)
        if len(programs):
            changes.describe(self._handle, slots, offsets, kinds, programs)
        return self._rows["boxes"].array[slots], kinds, offsets, programs

    def _check(self) -> None:
        """Verify all invariants; see :func:`~dskype.bolts.boolean.lanes.checks.check`."""
        assert self._stores is not None and not self._found.bitmap.any()
        check(self._stores, self._size)


def _references(arrays: tuple[np.ndarray, np.ndarray]) -> int:
    """Return how often the array that is referred to most is; a view of it counts, and what refers to it for this call."""
    return max(sys.getrefcount(array) for array in arrays)


_ALONE = _references((np.zeros(1), np.zeros(1)))
"""Of arrays that nothing but one tuple holds."""


def _halves(messages: MessageBatch, areas: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return areas, those that cross the antimeridian in two halves, where the terms of each begin and end, and its message."""
    crossing = areas[:, 0] > areas[:, 2]
    row = np.repeat(np.arange(messages.n), 1 + crossing)
    box = areas[row]
    second = np.flatnonzero(row[1:] == row[:-1]) + 1
    box[second - 1, 2], box[second, 0] = kernels.FAR_DEG, -kernels.FAR_DEG
    return box, np.stack([messages.offsets[row], messages.offsets[row + 1]], axis=1) - messages.offsets[0], row
