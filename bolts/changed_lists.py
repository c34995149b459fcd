"""Decides which top-k lists have to be written, and when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dskype.bolts.topk.pool import grown
from dskype.spouts.settings import ENTRY_BYTES, pause_ms

__all__ = ["ChangedLists", "list_bytes"]

_LONG_AGO = np.iinfo(np.int64).min // 2


def list_bytes(offsets: np.ndarray, messages: pa.Array | Sequence[str]) -> np.ndarray:
    """Return about how many bytes each written list has.

    :param offsets: where each list begins in the messages, and where the last one ends.
    :param messages: ids as JSON.
    """
    ids = messages if isinstance(messages, pa.Array) else pa.array(messages, pa.string())
    lengths = pc.binary_length(ids).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.concatenate(([0], np.cumsum(lengths + ENTRY_BYTES)))
    return np.diff(ends[np.asarray(offsets)])


class ChangedLists:
    """Marks lists that changed since they were written, and lets each be written at most once per interval.

    A list is due as soon as it changes, but not before an interval has passed since it was last written. So lists are written a few at a
    time as they change, and not all together at the end of an interval. After a list of many bytes the interval is longer: see :meth:`charge`.

    Lists are identified by slots. 9 bytes per slot; calls are linear in their slots, :meth:`pop_due` in all slots.

    :param interval_ms: the interval; 0: a changed list is due at once.
    :param bytes_per_s: a list of more bytes waits for its bytes divided by this, in seconds, if that is longer.
    """

    def __init__(self, interval_ms: int, bytes_per_s: int = 1 << 62) -> None:
        self._interval_ms, self._bytes_per_s = interval_ms, bytes_per_s
        self._changed = np.zeros(0, np.bool_)
        self._written_ms = np.zeros(0, np.int64)

    def __contains__(self, slot: int) -> bool:
        return slot < len(self._changed) and bool(self._changed[slot])

    def mark(self, slots: np.ndarray) -> None:
        """Mark lists as changed.

        :param slots: integers, which may repeat.
        """
        if len(slots):
            n = int(slots.max()) + 1
            self._changed, self._written_ms = grown(self._changed, n, False), grown(self._written_ms, n, _LONG_AGO)
            self._changed[slots] = True

    def discard(self, slots: np.ndarray) -> None:
        """Remove the marks of lists."""
        self._changed[slots[slots < len(self._changed)]] = False

    def forget(self, slot: int) -> None:
        """Forget a slot: its next list belongs to another subscription."""
        if slot < len(self._changed):
            self._changed[slot], self._written_ms[slot] = False, _LONG_AGO

    def pop_due(self, now_ms: int, held: Iterable[int] = ()) -> np.ndarray:
        """Return the slots of due lists (int32, rising), which count as written now.

        :param held: slots of lists that cannot be written now; they stay marked.
        """
        slots = np.flatnonzero(self._changed)
        if len(slots):
            slots = slots[now_ms - self._written_ms[slots] >= self._interval_ms]
        if len(slots) and (waiting := list(held)):
            slots = np.setdiff1d(slots, np.array(waiting), assume_unique=True)
        self._changed[slots], self._written_ms[slots] = False, now_ms
        return slots.astype(np.int32)

    def charge(self, slots: np.ndarray, sizes: np.ndarray, now_ms: int) -> int:
        """Let lists that have just been written wait longer if they are long; return how many have to.

        :param sizes: bytes of each, from :func:`list_bytes`.
        """
        long = np.flatnonzero(sizes > self._bytes_per_s)
        for slot, size in zip(slots[long].tolist(), sizes[long].tolist()):
            self._written_ms[slot] = now_ms + max(0, pause_ms(size, self._bytes_per_s) - self._interval_ms)
        return len(long)

    def snapshot(self) -> Any:
        """Return the state as arrays."""
        return [self._changed, self._written_ms]

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._changed, self._written_ms = (np.array(column) for column in state)
