"""Boolean indexes that file subscriptions by their compiled expressions: what they have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dskype.bolts.boolean.base import BooleanIndex, box_of, foreign_snapshot
from dskype.bolts.boolean.program_kernels import Batch
from dskype.bolts.boolean.programs import AND, compile_expression
from dskype.spouts.columns import read_only

__all__ = ["CompiledIndex"]

_FORMAT = 1


class CompiledIndex(BooleanIndex):
    """Compiles expressions (see :mod:`~dskype.bolts.boolean.programs`), and keeps slots, rectangles and programs as its state.

    All these indexes have the same snapshots, so each can take over a state of another one.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self._clear()

    # -- what an index implements -------------------------------------------------------------------------------------

    @abstractmethod
    def _clear(self) -> None:
        """Hold no subscriptions."""

    @abstractmethod
    def _insert(self, batch: Batch) -> None:
        """Put subscriptions in, at least one, whose slots are free."""

    @abstractmethod
    def _remove(self, slots: np.ndarray) -> None:
        """Take subscriptions out, at least one.

        :param slots: int64[n], read-only.
        """

    @abstractmethod
    def _compiled(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return boxes, kinds, offsets and programs of subscriptions, as in a :class:`Batch`."""

    # -- changes ------------------------------------------------------------------------------------------------------

    def insert_many(self, slots: Sequence[int] | np.ndarray, boxes: np.ndarray, expressions: Sequence[Any]) -> None:
        """Put subscriptions in; see :meth:`BooleanIndex.insert_many`."""
        compiled = [compile_expression(expression) for expression in expressions]
        offsets = np.zeros(len(compiled) + 1, np.int64)
        np.cumsum([len(program) for _, program in compiled], out=offsets[1:])
        programs = np.fromiter((step for _, program in compiled for step in program), np.int64, int(offsets[-1]))
        self._insert_compiled(slots, boxes, np.array([kind for kind, _ in compiled], np.int8), offsets, programs)

    def insert_conjunctions(self, slots: Sequence[int] | np.ndarray, boxes: np.ndarray, offsets: np.ndarray, terms: np.ndarray) -> None:
        """Put conjunctions in; see :meth:`BooleanIndex.insert_conjunctions`. Takes no time in Python if each one's terms rise."""
        ends, steps = np.asarray(offsets, np.int64), np.asarray(terms, np.int64)
        rises = np.ones(len(steps) + 1, bool)
        rises[1:-1] = steps[1:] > steps[:-1]
        rises[ends] = True
        if (np.diff(ends) < 1).any() or not rises[ends[0] : ends[-1]].all():
            super().insert_conjunctions(slots, boxes, offsets, steps)
        else:
            self._insert_compiled(slots, boxes, np.full(len(ends) - 1, AND, np.int8), ends, steps)

    def _insert_compiled(self, slots: Any, boxes: Any, kinds: np.ndarray, offsets: np.ndarray, programs: np.ndarray) -> None:
        n = len(kinds)
        rectangles, array = box_of(boxes, n), self._free_slots(slots, n)
        if n:
            self._insert(Batch(*map(read_only, (array, rectangles, kinds, offsets, programs))))

    def remove_many(self, slots: Sequence[int] | np.ndarray) -> None:
        """Take subscriptions out; see :meth:`BooleanIndex.remove_many`."""
        array = self._taken_slots(slots)
        if len(array):
            self._remove(read_only(array))

    def boxes(self, slots: np.ndarray) -> np.ndarray:
        """Return rectangles; see :meth:`BooleanIndex.boxes`."""
        return self._compiled(np.asarray(slots, np.int64))[0]

    # -- state --------------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return slots, rectangles and programs; everything else is made again."""
        by_slot, free = self._by_slot()
        slots = np.flatnonzero(by_slot != free)
        del by_slot  # the lanes index lets its arrays grow only where nobody holds them
        boxes, kinds, offsets, programs = self._compiled(slots)
        return {"format": _FORMAT, "slots": slots, "boxes": boxes, "kinds": kinds, "offsets": offsets, "programs": programs}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a state, of any index of this kind."""
        if state["format"] != _FORMAT or "kinds" not in state:
            raise foreign_snapshot(state, _FORMAT)
        if len(self):
            self._clear()
        self._insert_compiled(*(np.asarray(state[name]) for name in ("slots", "boxes", "kinds", "offsets", "programs")))
