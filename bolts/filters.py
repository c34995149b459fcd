"""The filters of subscriptions by slot: what decides, of a message that an index has found, whether it satisfies the subscription."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dskype.bolts import filter_kernels as kernels
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.columns import read_only
from dskype.spouts.filters import VERSION
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["Filters"]


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

    def satisfying(self, messages: MessageBatch, details: Details, extra: tuple[np.ndarray, np.ndarray], rows: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Tell for pairs of a message and a slot whether the message satisfies the slot's program, bool[m]; True where it has none. O(steps).

        :param messages: with their words.
        :param extra: their other terms (:meth:`dskype.bolts.message_terms.MessageTerms.of`).
        :param rows, slots: int32[m].
        """
        texts = kernels.Texts(*map(read_only, (messages.offsets, messages.terms, *extra, *details[:4])))
        return kernels.satisfying(read_only(self._programs), read_only(self._spans), read_only(rows), read_only(slots), texts)

    def snapshot(self) -> Any:
        """Return the state as arrays."""
        slots = np.flatnonzero(self._spans[:, 1])
        spans = self._spans[slots]
        steps = np.concatenate([self._programs[begin:end] for begin, end in spans.tolist()]) if len(slots) else self._programs[:0]
        return {"slots": slots, "lengths": spans[:, 1] - spans[:, 0], "steps": steps}

    def restore(self, state: Any) -> None:
        """Continue from a snapshot; None: of a version without filters."""
        self.__init__()  # type: ignore[misc]
        if state is None:
            return
        begin = 0
        for slot, length in zip(np.asarray(state["slots"]).tolist(), np.asarray(state["lengths"]).tolist()):
            self.set(slot, np.asarray(state["steps"])[begin : begin + length].tolist())
            begin += length
