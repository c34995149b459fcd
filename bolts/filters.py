"""The filters of subscriptions by slot: what decides, of a message that an index has found, whether it satisfies the subscription."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts import filter_kernels as kernels
from dskype.spouts.batch import Details, MessageBatch, select_lists
from dskype.spouts.columns import csr_to_lists, lists_to_csr, read_only
from dskype.spouts.filters import VERSION
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["Filters", "Programs"]

Lists = tuple[np.ndarray, np.ndarray]
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

    def satisfying(self, messages: MessageBatch, details: Details, extra: Lists, rows: np.ndarray, which: np.ndarray) -> np.ndarray:
        """Tell for pairs of a message and a program whether the message satisfies it; see :meth:`Filters.satisfying`."""
        begins, ends = self.offsets[:-1], self.offsets[1:]
        spans = np.where(ends > begins, (begins, ends), 0).T
        return _satisfying(self.steps, np.ascontiguousarray(spans), messages, details, extra, rows, which)


def _satisfying(
    programs: np.ndarray, spans: np.ndarray, messages: MessageBatch, details: Details, extra: Lists, rows: np.ndarray, slots: np.ndarray
) -> np.ndarray:
    texts = kernels.Texts(*map(_readable, (messages.offsets, messages.terms, *extra, *details[:4])))
    return kernels.satisfying(_readable(programs), _readable(spans), _readable(rows), _readable(slots), texts)


def _readable(array: np.ndarray) -> np.ndarray:
    """Return a read-only view for which kernels are compiled already; arrays of frames may lie anywhere in memory, and these are copied."""
    return read_only(np.require(array, requirements=["C", "A"]))


class Filters:
    """Programs (:mod:`dskype.spouts.filters`) by slot, one behind another in one array.

    Programs of forgotten slots stay until the array is full; then it is put together again. Memory: 16 bytes for each slot up to the
    highest with a program, and 8 for each step, up to twice that.
    """

    def __init__(self) -> None:
        self._programs = np.zeros(0, np.int64)
        self._spans = np.zeros((0, 2), np.int64)
        self._used = self._live = 0  # steps that are written; those of programs that are still there

    def __bool__(self) -> bool:
        """Tell whether any slot has a filter."""
        return self._live > 0

    def set(self, slot: int, program: Sequence[int]) -> None:
        """Give an empty slot a program.

        :raises IllegalArgumentException: the program is of another version of this product.
        """
        if program[0] != VERSION:
            raise IllegalArgumentException(explain("The filter of a subscription has another format.", given=program[0], legal=str(VERSION)))
        if slot >= len(self._spans):
            self._spans = np.concatenate((self._spans, np.zeros((slot + 16 - len(self._spans) + slot // 2, 2), np.int64)))
        if self._used + len(program) > len(self._programs):
            self._make_room(len(program))
        begin, end = self._used, self._used + len(program)
        self._programs[begin:end] = program
        self._spans[slot] = begin, end
        self._used = end
        self._live += len(program)

    def clear(self, slot: int) -> None:
        """Empty a slot; nothing happens if it has no program."""
        if slot < len(self._spans):
            self._live -= int(self._spans[slot, 1] - self._spans[slot, 0])
            self._spans[slot] = 0

    def _make_room(self, size: int) -> None:
        programs = np.zeros(max(64, 2 * (self._live + size)), np.int64)
        used = 0
        for slot in np.flatnonzero(self._spans[:, 1]).tolist():
            begin, end = self._spans[slot].tolist()
            programs[used : used + end - begin] = self._programs[begin:end]
            self._spans[slot] = used, used + end - begin
            used += end - begin
        self._programs, self._used = programs, used

    def satisfying(self, messages: MessageBatch, details: Details, extra: Lists, rows: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Tell for pairs of a message and a slot whether the message satisfies the slot's program, bool[m]; True where it has none. O(steps).

        :param messages: with their words.
        :param extra: their other terms (:meth:`dskype.spouts.message_terms.MessageTerms.of`).
        :param rows, slots: int32[m].
        """
        return _satisfying(self._programs, self._spans, messages, details, extra, rows, slots)

    def programs(self, slots: np.ndarray) -> Programs:
        """Return the programs of slots (int32[n]), in that order."""
        spans = np.zeros((len(slots), 2), np.int64)
        known = slots < len(self._spans)
        spans[known] = self._spans[slots[known]]
        parts = [self._programs[begin:end] for begin, end in spans.tolist() if end]
        offsets = np.concatenate(([0], np.cumsum(spans[:, 1] - spans[:, 0])))
        return Programs(offsets, np.concatenate(parts) if parts else np.zeros(0, np.int64))

    def snapshot(self) -> Any:
        """Return the state as arrays."""
        slots = np.flatnonzero(self._spans[:, 1])
        programs = self.programs(slots)
        return {"slots": slots, "lengths": programs.sizes(), "steps": programs.steps}

    def restore(self, state: Any) -> None:
        """Continue from a snapshot; None: of a version without filters."""
        self.__init__()  # type: ignore[misc]
        if state is None:
            return
        begin = 0
        for slot, length in zip(np.asarray(state["slots"]).tolist(), np.asarray(state["lengths"]).tolist()):
            self.set(slot, np.asarray(state["steps"])[begin : begin + length].tolist())
            begin += length
