"""The filters of subscriptions by slot: what decides, of a message that an index has found, whether it satisfies the subscription."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts import filter_kernels as kernels
from dskype.bolts.boolean.lanes.memory import GrowingRows
from dskype.bolts.filter_kernels import LENGTH_SHIFT, LINE, LONG
from dskype.spouts.batch import Details, MessageBatch, select_lists
from dskype.spouts.columns import csr_to_lists, lists_to_csr, read_only
from dskype.spouts.filters import VERSION
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["Filters", "Programs"]

Ragged = tuple[np.ndarray, np.ndarray]
"""Lists of numbers: offsets int64[n + 1], and values."""


class Programs(NamedTuple):
    """Programs (:mod:`dskype.spouts.filters`) of many subscriptions, one behind another.

    :ivar offsets: int64[n + 1]; the program of *i* is ``steps[offsets[i]:offsets[i + 1]]``. One without steps lets every message pass.
    :ivar steps: int64[].
    """

    offsets: np.ndarray
    steps: np.ndarray

    @classmethod
    def of(cls, column: Any, n: int) -> Programs:
        """Return the programs in a column of lists; None: there are none of these ``n``."""
        return cls(np.zeros(n + 1, np.int64), np.zeros(0, np.int64)) if column is None else cls(*lists_to_csr(column, np.int64))

    @classmethod
    def concat(cls, parts: Sequence[Programs]) -> Programs:
        """Return the programs of several, one after another."""
        return cls(np.concatenate([[0], np.cumsum(np.concatenate([part.sizes() for part in parts]))]), np.concatenate([part.steps for part in parts]))

    def column(self) -> Any:
        """Return the programs as a column of lists."""
        return csr_to_lists(self.offsets, self.steps)

    def sizes(self) -> np.ndarray:
        """Return the number of steps of each program (int64[n])."""
        return np.diff(self.offsets)

    def select(self, rows: np.ndarray) -> Programs:
        """Return the programs at ``rows``, in that order."""
        offsets, index = select_lists(self.offsets, rows)
        return Programs(offsets, self.steps[index])

    def lines(self) -> np.ndarray:
        """Return them as lines (:func:`dskype.bolts.filter_kernels.satisfying`), int64[n, LINE]; long ones lead to :attr:`steps`."""
        begins, lengths = self.offsets[:-1] + 1, self.sizes() - 1
        lines = np.zeros((len(lengths), LINE), np.int64)
        short, long = np.flatnonzero((lengths > 0) & (lengths <= LINE)), np.flatnonzero(lengths > LINE)
        for at in range(LINE):
            rows = short[lengths[short] > at]
            lines[rows, at] = self.steps[begins[rows] + at]
        lines[short, 0] += lengths[short] << LENGTH_SHIFT
        lines[long, 0], lines[long, 1], lines[long, 2] = LONG, begins[long], begins[long] + lengths[long]
        return lines

    def satisfying(self, messages: MessageBatch, details: Details, extra: Ragged, rows: np.ndarray, which: np.ndarray) -> np.ndarray:
        """Tell for pairs of a message and a program whether the message satisfies it; see :meth:`Filters.satisfying`."""
        lines, steps, readable_rows, slots = map(_readable, (self.lines(), self.steps, rows, which))
        return kernels.satisfying(lines, steps, readable_rows, slots, _texts(messages, details, extra))


def _texts(messages: MessageBatch, details: Details, extra: Ragged) -> tuple[np.ndarray, ...]:
    """Return what programs look at (:class:`dskype.bolts.filter_kernels.Texts`)."""
    return tuple(map(_readable, (messages.offsets, messages.terms, *extra, *details[:4])))


_READABLE, _WRITEABLE = 0x101, 0x400  # numpy's flags C_CONTIGUOUS and ALIGNED, and WRITEABLE


def _readable(array: np.ndarray) -> np.ndarray:
    """Return a read-only view for which kernels are compiled already; arrays of frames may lie anywhere in memory, and these are copied."""
    flags = array.flags.num
    if flags & _READABLE != _READABLE:
        array = np.require(array, requirements=["C", "A"])
    return read_only(array) if flags & _WRITEABLE else array


class Filters:
    """Programs (:mod:`dskype.spouts.filters`) by slot.

    A slot has a line of 64 bytes, which most programs fit in, so that a pair waits for memory once. Longer ones stand one behind another in an array. Those of forgotten
    slots stay there until it is full; then it is put together again. Memory: 64 bytes for each slot up to the highest with a program, and 8 for each step of a long one, up to
    twice that.
    """

    def __init__(self) -> None:
        self._lines = GrowingRows(np.int64, LINE)
        self._steps = np.zeros(0, np.int64)
        self._used = self._live = 0  # long steps that are written; those of programs that are still there
        self._size = 0  # slots with a program

    def __bool__(self) -> bool:
        """Tell whether any slot has a filter."""
        return self._size > 0

    def set(self, slot: int, program: Sequence[int]) -> None:
        """Give an empty slot a program.

        :raises IllegalArgumentException: the program is of another version of this product.
        """
        _check_version(program[0])
        self._lines.reserve(slot + 1)
        length, line = len(program) - 1, self._lines.array[slot]
        if length <= LINE:
            line[:length] = program[1:]
            line[0] += length << LENGTH_SHIFT
        else:
            line[:3] = LONG, *self._append(np.array(program[1:], np.int64))
        self._size += 1

    def _append(self, steps: np.ndarray) -> tuple[int, int]:
        """Write steps of long programs; return where they begin and end."""
        if self._used + len(steps) > len(self._steps):
            self._make_room(len(steps))
        begin, self._used = self._used, self._used + len(steps)
        self._steps[begin : self._used] = steps
        self._live += len(steps)
        return begin, self._used

    def _make_room(self, size: int) -> None:
        lines = self._lines.array
        slots = np.flatnonzero(lines[:, 0] == LONG)
        offsets, index = select_lists(lines[slots, 1:3].ravel(), 2 * np.arange(len(slots)))
        steps = np.zeros(max(64, 2 * (self._live + size)), np.int64)
        steps[: len(index)] = self._steps[index]
        lines[slots, 1], lines[slots, 2] = offsets[:-1], offsets[1:]
        self._steps, self._used = steps, len(index)

    def clear(self, slot: int) -> None:
        """Empty a slot; nothing happens if it has no program."""
        if slot < len(self._lines.array) and (line := self._lines.array[slot])[0]:
            if line[0] == LONG:
                self._live -= int(line[2] - line[1])
            line[:] = 0
            self._size -= 1

    def satisfying(self, messages: MessageBatch, details: Details, extra: Ragged, rows: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Tell for pairs of a message and a slot whether the message satisfies the slot's program, bool[m]; True where it has none. O(steps).

        :param messages: with their words.
        :param extra: their other terms (:meth:`dskype.spouts.message_terms.MessageTerms.of`).
        :param rows, slots: int32[m]; pairs of one message are best next to each other.
        """
        lines, steps, readable_rows, readable_slots = map(_readable, (self._lines.array, self._steps, rows, slots))
        return kernels.satisfying(lines, steps, readable_rows, readable_slots, _texts(messages, details, extra))

    def keep(self, messages: MessageBatch, details: Details, extra: Ragged, rows: np.ndarray, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return those of the pairs in which the message satisfies the slot's program: rows and slots, int32[]; see :meth:`satisfying`."""
        lines, steps, readable_rows, readable_slots = map(_readable, (self._lines.array, self._steps, rows, slots))
        found, kept, n = kernels.keep(lines, steps, readable_rows, readable_slots, _texts(messages, details, extra))
        return (rows, slots) if n == len(rows) else (found[:n], kept[:n])

    def programs(self, slots: np.ndarray) -> Programs:
        """Return the programs of slots (int32[n]), in that order."""
        lines = np.zeros((len(slots), LINE), np.int64)
        known = slots < len(self._lines.array)
        lines[known] = self._lines.array[slots[known]]
        long = lines[:, 0] == LONG
        lengths = np.where(long, lines[:, 2] - lines[:, 1], lines[:, 0] >> LENGTH_SHIFT)
        lines[~long, 0] &= (1 << LENGTH_SHIFT) - 1
        offsets = np.concatenate(([0], np.cumsum(lengths + (lengths > 0))))
        steps = np.full(offsets[-1], VERSION, np.int64)
        for rows, begins, source in ((np.flatnonzero(~long), LINE * np.flatnonzero(~long), lines.ravel()), (np.flatnonzero(long), lines[long, 1], self._steps)):
            owner = np.repeat(np.arange(len(rows)), lengths[rows])
            nth = np.arange(len(owner)) - (np.cumsum(lengths[rows]) - lengths[rows])[owner]
            steps[offsets[rows][owner] + 1 + nth] = source[begins[owner] + nth]
        return Programs(offsets, steps)

    def snapshot(self) -> Any:
        """Return the state as arrays."""
        slots = np.flatnonzero(self._lines.array[:, 0])
        programs = self.programs(slots)
        return {"slots": slots, "lengths": programs.sizes(), "steps": programs.steps}

    def restore(self, state: Any) -> None:
        """Continue from a snapshot; None: of a version without filters."""
        self.__init__()  # type: ignore[misc]
        if state is None or not len(state["slots"]):
            return
        slots, lengths = np.asarray(state["slots"]), np.asarray(state["lengths"])
        programs = Programs(np.concatenate(([0], np.cumsum(lengths))), np.asarray(state["steps"], np.int64))
        for version in np.unique(programs.steps[programs.offsets[:-1]]).tolist():
            _check_version(version)
        self._lines.reserve(int(slots.max()) + 1)
        self._lines.array[slots] = lines = programs.lines()
        self._size, self._steps = len(slots), programs.steps
        self._live = int((lines[:, 2] - lines[:, 1])[lines[:, 0] == LONG].sum())
        self._make_room(0)


def _check_version(version: int) -> None:
    if version != VERSION:
        raise IllegalArgumentException(explain("The filter of a subscription has another format.", given=version, legal=str(VERSION)))
