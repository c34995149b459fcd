"""The names of subscriptions by slot, ready to be put into records."""

from __future__ import annotations

import numpy as np

from dskype.bolts.results import match_kernels
from dskype.bolts.results.formats import json_names, names_of
from dskype.bolts.results.match_kernels import Names

__all__ = ["SlotNames"]


class SlotNames:
    """The names of subscriptions by slot as JSON in ASCII, one behind another in one array.

    New names are written when the arrays are next asked for, many at once. Bytes of forgotten names stay until the array is
    full; then it is put together again if half of it is free, or doubled. Memory: 16 bytes and the name for each slot, up to twice that.
    """

    def __init__(self) -> None:
        self._names = Names(np.zeros((0, 2), np.int64), np.zeros(0, np.uint8))
        self._unwritten: dict[int, str] = {}
        self._used = self._live = 0  # bytes that are written; those of names that are still there

    def set(self, slot: int, name: str) -> None:
        """Name the subscription in an empty slot."""
        self._unwritten[slot] = name

    def clear(self, slot: int) -> None:
        """Forget the name in a slot."""
        if self._unwritten.pop(slot, None) is None:
            begin, end = self._names.spans[slot].tolist()
            self._live -= end - begin
            self._names.spans[slot] = 0

    def arrays(self) -> Names:
        """Return the names by slot; valid until one is set or cleared."""
        if self._unwritten:
            self._write()
        return self._names

    def _write(self) -> None:
        slots = np.fromiter(self._unwritten.keys(), np.int64, len(self._unwritten))
        texts = names_of(json_names(list(self._unwritten.values())))
        self._unwritten = {}
        first, size = int(texts.spans[0, 0]), int(texts.spans[-1, 1] - texts.spans[0, 0])
        self._grow(int(slots.max()) + 1, size)
        spans, data = self._names
        spans[slots] = texts.spans + (self._used - first)
        data[self._used : self._used + size] = texts.data[first : first + size]
        self._used += size
        self._live += size

    def _grow(self, slots: int, size: int) -> None:
        """Make room for ``slots`` slots, and for ``size`` more bytes."""
        spans, data = self._names
        if slots > len(spans):
            spans = np.concatenate((spans, np.zeros((max(slots, len(spans) * 3 // 2) - len(spans), 2), np.int64)))
        if self._used + size > len(data):
            kept = np.zeros(len(data) if 2 * (self._live + size) <= len(data) else 2 * (self._live + size), np.uint8)
            moved = np.zeros_like(spans)
            self._used = int(match_kernels.gather(np.flatnonzero(spans[:, 1]), Names(spans, data), moved, kept))
            spans, data = moved, kept
        self._names = Names(spans, data)
