"""The lanes index: a subscription is a posting of 20 bytes in the list of its rarest keyword; 16 are looked at at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dskype.bolts.boolean.base import BooleanIndex, box_of
from dskype.bolts.boolean.lanes import _kernels as kernels
from dskype.bolts.boolean.lanes import change_kernels as changes
from dskype.bolts.boolean.lanes import group_kernels as groups
from dskype.bolts.boolean.lanes import match_kernels as matching
from dskype.bolts.boolean.lanes.checks import check
from dskype.bolts.boolean.lanes.memory import Rows
from dskype.bolts.boolean.programs import AND, compile_expression
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["LanesIndex"]

_FORMAT = 1  # that of the plain index: either can take over a state of the other
_KEPT = 1 << 18  # matches from which on a result is handed over instead of copied
_MARGIN = {"blocks": 128, "groups": 16, "nodes": 64, "records": 128}


class LanesIndex(BooleanIndex):
    """Looks for a conjunction in the list of its rarest keyword, by its rectangle in 16 bits and the codes of its next four keywords.

    A list of up to 16 postings is a run of records. A longer one has groups of up to 256 postings, whose rectangles are 16-bit numbers in
    the frame of the group; all rounding is monotone, so only what is equal on an edge needs a look at the rectangle itself. Several groups
    of a list are the leaves of an R-tree. Further keywords, other expressions (a posting per trigger, see
    :mod:`~dskype.bolts.boolean.programs`) and rectangles across the antimeridian have a program that is evaluated for what is left.

    Insert and remove change one group, and at times its tree: a few microseconds, whatever the index holds. Match: in proportion to the
    matches, next to a few blocks per term. Memory: about 60 bytes per conjunction of up to five keywords.
    """

    name = "lanes"

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self._clear()

    def _clear(self) -> None:
        self._size = 0
        self._rows = {
            "boxes": Rows(np.float64, 4),
            "places": Rows(np.int32, 0),
            "table": Rows(np.int64, 2),
            "records": Rows(np.float32, 8),
            "blocks": Rows(np.uint16, 160),
            "groups": Rows(np.int64, 24),
            "nodes": Rows(np.float32, 96),
            "programs": Rows(np.int64, 0),
            "codes": Rows(np.int64, 2),
        }
        self._state = np.zeros(kernels.STATE_SIZE, np.int64)
        self._state[kernels.CODES_END] = 1
        self._stores: kernels.Stores | None = None
        for name, rows in _MARGIN.items():
            self._rows[name].reserve(rows)
        self._reserve(boxes=1, places=1, programs=1, codes=1, table=8 * kernels.PARTITIONS)
        changes.clear(self._stores)
        self._scratch(1 << 12, 1 << 12)
        self._messages = _messages(64)
        self._work = groups.new_work()

    def __len__(self) -> int:
        return self._size

    @property
    def memory_bytes(self) -> int:
        """What the arrays take, room to grow and scratch included."""
        return sum(rows.nbytes for rows in self._rows.values()) + self._state.nbytes + sum(array.nbytes for array in self._found)

    # -- growing --------------------------------------------------------------------------------------------------------

    def _reserve(self, **rows: int) -> None:
        """Let pools have so many rows."""
        self._stores = None  # nobody may hold an array that grows
        for name, n in rows.items():
            self._rows[name].reserve(n)
        self._stores = kernels.Stores(*(rows.array for rows in self._rows.values()), self._state)

    def _grow(self, need: int) -> None:
        """Make the room that a kernel lacks."""
        state = self._state
        if need == changes.NEED_TABLE:
            sizes = state[kernels.PARTITION + 1 :: 2] >> 32
            self._reserve(table=int(state[kernels.TABLE_END]) + (4 << int(sizes.max())))
        elif need == changes.NEED_CODES:
            self._reserve(codes=min(int(state[kernels.CODES_END]) + 4096 + self._largest_program, kernels.CODES_MOST + 1))
        elif need == changes.NEED_PROGRAMS:
            self._reserve(programs=int(state[kernels.PROGRAMS_END]) + self._largest_program)
        else:
            ends = (kernels.BLOCKS_END, kernels.GROUPS_END, kernels.NODES_END, kernels.RECORDS_END)
            self._reserve(**{name: int(state[end]) + margin for (name, margin), end in zip(_MARGIN.items(), ends)})

    def _scratch(self, items: int, slots: int) -> None:
        """Make room for what is found."""
        self._found = matching.Found(
            np.zeros(slots, np.int32),
            np.zeros(slots, np.int32),
            np.zeros((8, items), np.int32),
            np.zeros((2, items), np.int64),
            np.zeros(2048, np.int32),
            np.zeros((40, 4), np.int64),
            np.zeros((3, matching.MESSAGES + 1), np.int64),
        )

    # -- changes --------------------------------------------------------------------------------------------------------

    def insert_many(self, slots: Sequence[int] | np.ndarray, boxes: np.ndarray, expressions: Sequence[Any]) -> None:
        """Put subscriptions in; see :meth:`BooleanIndex.insert_many`."""
        n = len(expressions)
        compiled = [compile_expression(expression) for expression in expressions]
        offsets = np.zeros(n + 1, np.int64)
        np.cumsum([len(program) for _, program in compiled], out=offsets[1:])
        programs = np.fromiter((step for _, program in compiled for step in program), np.int64, int(offsets[-1]))
        self._insert(np.asarray(slots, np.int64), box_of(boxes, n), np.array([kind for kind, _ in compiled], np.int8), offsets, programs)

    def insert_conjunctions(self, slots: Sequence[int] | np.ndarray, boxes: np.ndarray, offsets: np.ndarray, terms: np.ndarray) -> None:
        """Put conjunctions in; see :meth:`BooleanIndex.insert_conjunctions`. Takes no time in Python if terms rise and are there once."""
        n, ends, steps = len(offsets) - 1, np.asarray(offsets, np.int64), np.asarray(terms, np.int64)
        rising = np.ones(len(steps) + 1, bool)
        rising[1:-1] = steps[1:] > steps[:-1]
        rising[ends] = True
        if (np.diff(ends) < 1).any() or not rising[ends[0] : ends[-1]].all():
            super().insert_conjunctions(slots, boxes, offsets, steps)
        else:
            self._insert(np.asarray(slots, np.int64), box_of(boxes, n), np.full(n, AND, np.int8), ends, steps)

    def _insert(self, slots: np.ndarray, boxes: np.ndarray, kinds: np.ndarray, offsets: np.ndarray, programs: np.ndarray) -> None:
        n = len(slots)
        if n != len(kinds):
            raise IllegalArgumentException(explain("Each subscription needs a slot.", given=f"{n} slots for {len(kinds)} subscriptions"))
        if n == 0:
            return
        places = self._rows["places"].array
        low, high = int(slots.min()), int(slots.max())
        if low < 0 or high >= 2**31 or places[slots[slots < len(places)]].any() or (n > 1 and _has_doubles(slots)):
            taken = [s for s in slots.tolist() if 0 <= s < len(places) and places[s]]
            raise IllegalArgumentException(explain("A slot must be free, and be given once.", given=taken or slots.tolist(), legal="free ones, 0 to 2**31 - 1"))
        del places
        if high >= min(len(self._rows["places"].array), len(self._rows["boxes"].array)):
            self._reserve(boxes=high + 1, places=high + 1)
        self._largest_program = 4 * int(np.diff(offsets).max()) + 64
        batch = changes.Batch(*map(_frozen, (slots, boxes, kinds, offsets, programs)))
        progress = np.array([0, -1], np.int64)
        while need := changes.insert(self._stores, self._work, batch, progress):
            self._grow(need)
        self._size += n

    def remove_many(self, slots: Sequence[int] | np.ndarray) -> None:
        """Take subscriptions out; see :meth:`BooleanIndex.remove_many`."""
        array = np.asarray(slots, np.int64)
        if not len(array):
            return
        places = self._rows["places"].array
        if array.min() < 0 or array.max() >= len(places) or not places[array].all() or (len(array) > 1 and _has_doubles(array)):
            missing = [s for s in array.tolist() if not 0 <= s < len(places) or not places[s]]
            raise IllegalArgumentException(explain("A slot must hold a subscription, and be given once.", given=missing or array.tolist()))
        del places
        progress = np.zeros(1, np.int64)
        while need := changes.remove(self._stores, self._work, _frozen(array), progress):
            self._grow(need)
        self._size -= len(array)

    # -- matching -------------------------------------------------------------------------------------------------------

    def match(self, messages: MessageBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return the matches; see :meth:`BooleanIndex.match`."""
        n, areas = messages.n, messages.areas
        if n > len(self._messages.row):
            self._messages = _messages(2 * n)
        box, ends, row, _ = self._messages
        if areas is None:
            box[:n, 0] = box[:n, 2] = messages.lon
            box[:n, 1] = box[:n, 3] = messages.lat
            ends[:n, 0], ends[:n, 1] = messages.offsets[:-1], messages.offsets[1:]
            batch = matching.Messages(box, ends, row, _frozen(messages.terms))
        else:
            batch, n = _halves(messages, areas)
        progress = np.zeros(4, np.int64)
        progress[3] = n
        while need := matching.match(self._stores, batch, self._found, progress):
            self._more_scratch(need, batch, progress)
        end, found = int(progress[2]), self._found
        if end < _KEPT:
            return found.rows[:end].copy(), found.slots[:end].copy()
        self._found = found._replace(slots=np.empty_like(found.slots), rows=np.empty_like(found.rows))
        return found.rows[:end], found.slots[:end]

    def _more_scratch(self, need: int, batch: matching.Messages, progress: np.ndarray) -> None:
        """Make room for what is found, and keep what was."""
        found = self._found
        items, slots = found.items.shape[1], len(found.slots)
        if need == 1:
            most = int((batch.ends[: progress[3], 1] - batch.ends[: progress[3], 0]).max())
            items = max(2 * items, 2 * most + 1024)
        else:
            slots *= 2
        self._scratch(items, slots)
        end = int(progress[2])
        self._found.slots[:end], self._found.rows[:end] = found.slots[:end], found.rows[:end]

    # -- state ----------------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return slots, boxes and programs, as the plain index does."""
        slots = np.flatnonzero(self._rows["places"].array)
        offsets, kinds = np.zeros(len(slots) + 1, np.int64), np.zeros(len(slots), np.int8)
        changes.describe(self._stores, slots, offsets, kinds, np.zeros(0, np.int64))
        programs = np.zeros(int(offsets[-1]), np.int64)
        if len(programs):
            changes.describe(self._stores, slots, offsets, kinds, programs)
        return {"format": _FORMAT, "slots": slots, "boxes": self._rows["boxes"].array[slots], "kinds": kinds, "offsets": offsets, "programs": programs}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a state, also of the plain index."""
        if state["format"] != _FORMAT or "kinds" not in state:
            raise IllegalArgumentException(explain("A snapshot of a boolean index has another format.", given=state["format"], legal=str(_FORMAT)))
        self._clear()
        self._insert(*(np.asarray(state[name]) for name in ("slots", "boxes", "kinds", "offsets", "programs")))

    def _check(self) -> None:
        """Verify all invariants; see :func:`~dskype.bolts.boolean.lanes.checks.check`."""
        assert self._stores is not None and not self._found.bitmap.any()
        check(self._stores, self._size)


def _messages(n: int) -> matching.Messages:
    """Return room for ``n`` points; each is a message of its own."""
    return matching.Messages(np.empty((n, 4)), np.empty((n, 2), np.int64), np.arange(n), np.zeros(0, np.int64))


def _halves(messages: MessageBatch, areas: np.ndarray) -> tuple[matching.Messages, int]:
    """Return areas, those that cross the antimeridian in two halves, and how many there are."""
    crossing = areas[:, 0] > areas[:, 2]
    row = np.repeat(np.arange(messages.n), 1 + crossing)
    box = areas[row]
    second = np.flatnonzero(row[1:] == row[:-1]) + 1
    box[second - 1, 2], box[second, 0] = kernels.FAR_DEG, -kernels.FAR_DEG
    ends = np.stack([messages.offsets[row], messages.offsets[row + 1]], axis=1)
    return matching.Messages(box, ends, row, _frozen(messages.terms)), len(row)


def _has_doubles(slots: np.ndarray) -> bool:
    rising = np.sort(slots)
    return bool((rising[1:] == rising[:-1]).any())


def _frozen(array: np.ndarray) -> np.ndarray:
    """Return a read-only view: kernels are compiled once, whether what is given can be written to or not."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
