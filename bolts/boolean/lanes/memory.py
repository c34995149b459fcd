"""Arrays of rows that grow in place."""

from __future__ import annotations

import mmap
import sys

import numpy as np

__all__ = ["Rows"]

_STEP_BYTES = 1 << 14
_PART = 64


class Rows:
    """Rows of one width, zero at first, whose number grows without a copy where the system can move pages (Linux).

    A growing array that is copied stops its caller for as long as the copy takes: a tenth of a second for 200 MB. Here the
    pages are given another address. They are taken from the system when they are first written to.

    :param dtype: of the numbers.
    :param width: numbers in a row; 0: the array has one dimension.
    """

    def __init__(self, dtype: type, width: int) -> None:
        self._dtype, self._width = np.dtype(dtype), width
        self._row_bytes = self._dtype.itemsize * max(width, 1)
        self._map: mmap.mmap | None = None
        self.array = self._view(0)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows, those not in use included."""
        return self.array.nbytes

    def reserve(self, rows: int) -> bool:
        """Make room for at least ``rows`` rows; return whether ``array`` is another one now. Nothing else may refer to it during the call."""
        have = len(self.array)
        if rows <= have:
            return False
        nbytes = max(rows * self._row_bytes, self.nbytes + self.nbytes // _PART)
        nbytes = -(-nbytes // _STEP_BYTES) * _STEP_BYTES
        if self._map is None or not sys.platform.startswith("linux"):
            self._replace(nbytes)
        else:
            self.array = self._view(0)
            try:
                self._map.resize(nbytes)
            except (BufferError, SystemError, OSError, ValueError):  # somebody holds the array, or there is no such call
                self._replace(nbytes)
        self.array = self._view(nbytes // self._row_bytes)
        return True

    def _view(self, rows: int) -> np.ndarray:
        if self._map is None or not rows:
            return np.zeros((0, self._width) if self._width else 0, self._dtype)
        flat: np.ndarray = np.frombuffer(self._map, self._dtype, rows * max(self._width, 1))
        return flat.reshape(rows, self._width) if self._width else flat

    def _replace(self, nbytes: int) -> None:
        old = self._map
        self._map = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) if sys.platform != "win32" else mmap.mmap(-1, nbytes)
        if old is not None:
            self._map[: len(old)] = old[:]
