"""Arrays of rows that grow in place."""

from __future__ import annotations

import contextlib
import mmap
import sys

import numpy as np

__all__ = ["GrowingRows"]

_STEP_BYTES = 1 << 12
_PART = 384
_RESERVED_BYTES = 1 << 30
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux; addresses that are not in use count for nothing


class GrowingRows:
    """Rows of one width, zero at first, whose number grows without a copy (Linux).

    A growing array that is copied stops its caller for as long as the copy takes: a tenth of a second for 200 MB. To give its pages
    another address still takes milliseconds. So more addresses are reserved than rows are likely to need; pages are taken from the
    system when they are first written to. Beyond that, and where addresses are limited, pages move.

    :param dtype: of the numbers.
    :param width: numbers in a row; 0: the array has one dimension.
    :param reserved_bytes: of addresses.
    """

    def __init__(self, dtype: type, width: int, reserved_bytes: int = _RESERVED_BYTES) -> None:
        self._dtype, self._width = np.dtype(dtype), width
        self._row_bytes = self._dtype.itemsize * max(width, 1)
        self._reserved_bytes = reserved_bytes
        self._map: mmap.mmap | None = None
        self.array = self._view(0)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows, those not in use included."""
        return self.array.nbytes

    def reserve(self, rows: int) -> bool:
        """Make room for at least ``rows`` rows; return whether ``array`` is another one now. Nothing else may refer to it during the call."""
        if rows <= len(self.array):
            return False
        have = self.nbytes
        nbytes = max(rows * self._row_bytes, have + have // _PART)
        nbytes = -(-nbytes // _STEP_BYTES) * _STEP_BYTES
        if self._map is None or not sys.platform.startswith("linux"):
            self._replace(nbytes, have)
        else:
            self.array = self._view(0)
            try:
                self._map.resize(max(nbytes, len(self._map)))  # to the same size: fails if somebody holds the array, and does nothing else
            except (BufferError, SystemError, OSError, ValueError):  # somebody holds the array, or there is no such call
                self._replace(nbytes, have)
        self.array = self._view(nbytes // self._row_bytes)
        return True

    def _view(self, rows: int) -> np.ndarray:
        if self._map is None or not rows:
            return np.zeros((0, self._width) if self._width else 0, self._dtype)
        flat: np.ndarray = np.frombuffer(self._map, self._dtype, rows * max(self._width, 1))
        return flat.reshape(rows, self._width) if self._width else flat

    def _replace(self, nbytes: int, have: int) -> None:
        old = self._map
        self._map = _mapped(nbytes, self._reserved_bytes)
        if old is not None:
            self._map[:have] = old[:have]


def _mapped(nbytes: int, reserved_bytes: int) -> mmap.mmap:
    """Return so much memory of zeros, with more addresses behind it if the system has them."""
    if sys.platform == "win32":
        return mmap.mmap(-1, nbytes)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    if not sys.platform.startswith("linux"):
        return mmap.mmap(-1, nbytes, flags=private)
    try:
        found = mmap.mmap(-1, max(nbytes, reserved_bytes), flags=private | _NO_RESERVE)
    except OSError:
        found = mmap.mmap(-1, nbytes, flags=private)
    with contextlib.suppress(OSError):
        found.madvise(mmap.MADV_NOHUGEPAGE)  # a page of 2 MiB would make a single call long, and a small index large
    return found
