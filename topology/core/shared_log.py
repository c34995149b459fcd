"""A list that processes of one machine share; test helpers exchange values with tasks through it."""

from __future__ import annotations

import atexit
import os
import shutil
import struct
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dskype.topology.core.values import pack_state, unpack_state

__all__ = ["SharedLog"]

_folder: tuple[int, Path] | None = None
_LENGTH = struct.Struct("<I")


def _scratch_folder() -> Path:
    """Return this process's folder of shared logs, which is removed when the process ends."""
    global _folder  # noqa: PLW0603 - one for the process
    pid = os.getpid()
    if _folder is None or _folder[0] != pid:
        _folder = pid, Path(tempfile.mkdtemp(prefix="dskype-testing-"))
        atexit.register(_remove_folder, *_folder)
    return _folder[1]


def _remove_folder(pid: int, folder: Path) -> None:
    if os.getpid() == pid:  # a forked child inherits the registration, but must not remove the folder
        shutil.rmtree(folder, ignore_errors=True)


class SharedLog:
    """An append-only list of plain values that all processes of this machine share.

    Copies (``copy``, pickle) refer to the same log. An append is one write, so appends of several processes do not mix.
    """

    def __init__(self) -> None:
        self._path = str(_scratch_folder() / uuid.uuid4().hex)
        self._file: int | None = None
        Path(self._path).touch()

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path, "_file": None}

    def __deepcopy__(self, memo: Any) -> SharedLog:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__getstate__())
        return twin

    def __del__(self) -> None:
        self.close()

    def _fd(self) -> int:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._file

    def append(self, value: Any) -> None:
        """Append a value: None, bool, int, float, str, bytes, list, tuple, dict or numpy array."""
        data = pack_state(value)
        os.write(self._fd(), _LENGTH.pack(len(data)) + data)

    def read(self, position: int = 0) -> Iterator[tuple[int, Any]]:
        """Yield (position of the next value, value) from ``position`` on; 0 is the beginning."""
        fd = self._fd()
        while len(head := os.pread(fd, _LENGTH.size, position)) == _LENGTH.size:
            (length,) = _LENGTH.unpack(head)
            data = os.pread(fd, length, position + _LENGTH.size)
            if len(data) < length:  # still being written
                return
            position += _LENGTH.size + length
            yield position, unpack_state(data)

    def values(self) -> list[Any]:
        """Return all values."""
        return [value for _, value in self.read()]

    def end(self) -> int:
        """Return the position behind the last value."""
        return os.fstat(self._fd()).st_size

    def close(self) -> None:
        """Close the file; the log stays, and is opened again on the next use."""
        fd, self._file = getattr(self, "_file", None), None
        if fd is not None:
            os.close(fd)
