"""Arrays that grow, and pools that keep growing lists of many items in a few of them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dskype.bolts import array_kernels as kernels

__all__ = ["BlockPool", "aligned", "enlarged", "grown"]


def aligned(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Return an uninitialised array that begins at a cache line, so that its rows touch as few lines as possible."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def grown(array: np.ndarray, n: int, fill: float) -> np.ndarray:
    """Return ``array`` with at least ``n`` rows, of which new ones hold ``fill``; a new array begins at a cache line."""
    have = len(array)
    if n <= have:
        return array
    new = aligned((max(n, have + have // 2 + 16), *array.shape[1:]), array.dtype)
    new[:have] = array
    new[have:] = fill
    return new


def enlarged(array: np.ndarray, size: int, fill: float = 0) -> np.ndarray:
    """Return an array of ``size`` rows that begins with ``array``; the others hold ``fill``."""
    larger = np.empty((size, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    larger[len(array) :] = fill
    return larger


class BlockPool:
    """The entries of many items: each item has one block of consecutive entries, with room at its end.

    ``block`` (integers[items, >= 3]: START, LENGTH, CAPACITY; the owner may use further columns) says where; every field is
    one array over all entries. An item whose block is too small gets a larger block at the end. When the end of the arrays is
    reached, all blocks move to new arrays. Appending is O(1) amortised; abandoned blocks take at most about half of the space.

    :param fields: name -> dtype of an entry's fields; they become attributes, which :meth:`reserve` may replace.
    :param columns: columns of ``block``; ``dtype``: its type. With int32 there are fewer than 2^31 entries.
    """

    def __init__(self, fields: Mapping[str, type], columns: int = 3, dtype: type = np.int64) -> None:
        self.fields = tuple(fields)
        for name, kind in fields.items():
            setattr(self, name, np.empty(0, kind))
        self.block = np.zeros((0, columns), dtype)
        self.cursor = np.zeros(2, np.int64)  # END, where the next block begins; LEFT, entries of abandoned blocks

    def widen(self, n: int) -> None:
        """Make room for items ``0..n - 1``; new ones have no block."""
        self.block = grown(self.block, n, 0)

    def reserve(self, items: np.ndarray, lengths: np.ndarray) -> None:
        """Give items (each once) blocks for at least ``lengths`` entries, and keep their entries."""
        if not len(items):
            return
        items, lengths = np.asarray(items, np.int64), np.asarray(lengths, np.int64)
        need = kernels.space_needed(self.block, items, lengths)
        if not need:
            return
        self.make_room(need)
        moves = kernels.move_blocks(self.block, items, lengths, self.cursor)
        for name in self.fields:
            array = getattr(self, name)
            kernels.copy_ranges(array, *moves, array)

    def make_room(self, more: int) -> None:
        """Ensure room for ``more`` entries at the end."""
        if self.cursor[kernels.END] + more > self._size:
            self._pack(more)

    def trim(self, items: np.ndarray, capacities: np.ndarray) -> None:
        """Shrink the blocks of items (each once) to ``capacities`` entries, which are not below their lengths."""
        spare = self.block[items, kernels.CAPACITY] - capacities
        larger = spare > 0
        self.block[items[larger], kernels.CAPACITY] = capacities[larger]
        self.cursor[kernels.LEFT] += spare[larger].sum()

    def release(self, items: np.ndarray) -> None:
        """Abandon the blocks of items (each once)."""
        self.cursor[kernels.LEFT] += self.block[items, kernels.CAPACITY].sum()
        self.block[items, :3] = 0

    def gather(self, starts: np.ndarray, lengths: np.ndarray, *names: str) -> tuple[np.ndarray, ...]:
        """Return the ranges ``[starts, starts + lengths)`` of some fields, one after another."""
        total = int(lengths.sum())
        return tuple(kernels.gather(getattr(self, name), starts, lengths, total) for name in names)

    def split(self, name: str, source: str) -> None:
        """Add a field that begins as a copy of another one."""
        self.fields = (*self.fields, name)
        setattr(self, name, getattr(self, source).copy())

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""
        return self.block.nbytes + sum(getattr(self, name).nbytes for name in self.fields)

    @property
    def _size(self) -> int:
        return len(getattr(self, self.fields[0]))

    def _pack(self, more: int) -> None:
        """Move all blocks to new arrays with room for ``more`` entries."""
        *moves, end = kernels.pack_blocks(self.block)
        self.cursor[:] = end, 0
        size = end + more
        size += size // 4 + 64
        if size > np.iinfo(self.block.dtype).max:
            raise MemoryError(f"{size:,} entries are too many for one pool")
        for name in self.fields:
            array = getattr(self, name)
            new = aligned((size,), array.dtype)
            kernels.copy_ranges(array, *moves, new)
            setattr(self, name, new)

    def _check(self) -> None:
        """Verify that blocks lie within the arrays and do not overlap, and that no space is lost."""
        start, length, capacity = self.block[:, :3].T
        assert (length >= 0).all() and (length <= capacity).all(), self.block
        used = np.flatnonzero(capacity)
        used = used[np.argsort(start[used], kind="stable")]
        assert (start[used][1:] >= (start + capacity)[used][:-1]).all(), "blocks overlap"
        assert self.cursor[kernels.END] <= self._size
        assert not len(used) or (start[used[0]] >= 0 and (start + capacity)[used[-1]] <= self.cursor[kernels.END]), "blocks outside"
        assert capacity.sum() + self.cursor[kernels.LEFT] == self.cursor[kernels.END], (int(capacity.sum()), self.cursor)
