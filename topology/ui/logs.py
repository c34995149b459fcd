"""The logs of a topology's executors: which there are, and parts of them, read from the end.

Only regular files named ``*.log`` or ``*.log.1`` that lie in the folder itself are read. A record in the nimbus topic names that folder, so the folder
also has to be one of a topology: it is named ``logs``, and beside it lies the file that describes the topology that was started.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from dskype.topology.core.redaction import HIDDEN, LineRedactor
from dskype.topology.errors import IllegalArgumentException, NotAliveException

__all__ = ["PART_BYTES", "check_folder", "log_files", "log_part"]

PART_BYTES = 64 << 10
"""Bytes of a part, at most, if no other number is asked for."""
_MOST_BYTES = 1 << 20
_LOOK_BACK_BYTES = 64 << 10
_NAME = re.compile(r"[\w.-]{1,240}\.log(\.1)?", re.ASCII)


def check_folder(given: Any, manifest: str) -> Path | None:
    """Return the folder with a topology's logs, if it is on this machine and is one; else None.

    :param given: what the topology's record says.
    :param manifest: name of the file that lies beside the folder.
    """
    folder = Path(given) if isinstance(given, str) and os.path.isabs(given) else None
    if folder is None or folder.name != "logs" or folder.is_symlink() or not folder.is_dir() or not (folder.parent / manifest).is_file():
        return None
    return folder


def log_files(folder: Path | None) -> dict[str, Any]:
    """Return the names, sizes and times of the logs, by name.

    :param folder: from :func:`check_folder`.
    """
    nothing: dict[str, Any] = {"here": False, "logs": []}
    if folder is None:
        return nothing
    found = []
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:  # the topology was removed meanwhile
        return nothing
    for name in filter(_NAME.fullmatch, names):
        with suppress(FileNotFoundError):  # it was renamed meanwhile: a full log is begun anew
            info = os.lstat(folder / name)
            if stat.S_ISREG(info.st_mode):
                found.append({"file": name, "bytes": info.st_size, "modified_ms": info.st_mtime_ns // 1_000_000})
    return {"here": True, "logs": found}


def log_part(folder: Path | None, name: str, end: int | None = None, size: int = PART_BYTES) -> dict[str, Any]:
    """Return whole lines of a log, without secrets: the last ones before a place.

    :param name: of the file.
    :param end: the place, in bytes; None: the end of the file.
    :param size: how many bytes to read, at most.
    :returns: ``text``; ``start`` and ``end``, the place of the text in the file; ``size`` of the file. Without a whole line, the text begins within one, and is ``******`` if that has a secret.
    :raises NotAliveException: there is no such log.
    :raises IllegalArgumentException: the place or the size makes no sense.
    """
    if not 1 <= size <= _MOST_BYTES or (end is not None and end < 0):
        raise IllegalArgumentException("This part of a log cannot be read.", given=[end, size], legal=f"end >= 0, 1 to {_MOST_BYTES} bytes")
    missing = NotAliveException("There is no such log.", given=name)
    if folder is None or not _NAME.fullmatch(name):
        raise missing
    try:
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        raise missing from None
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        os.close(descriptor)
        raise missing
    with open(descriptor, "rb") as file:
        end = info.st_size if end is None else min(end, info.st_size)
        start = max(0, end - size)
        first = max(0, start - _LOOK_BACK_BYTES)
        file.seek(first)
        data = file.read(end - first)
    at = start - first
    if at:
        line = data.find(b"\n", at - 1) + 1  # where the first whole line begins
        at = line if 0 < line < len(data) else at
    return {"file": name, "text": _without_secrets(data, at, first == 0), "start": first + at, "end": end, "size": info.st_size}


def _without_secrets(data: bytes, at: int, from_beginning: bool) -> str:
    """Return the text from a place in the data, without secrets. What is before it says whether it is within a private key, or a value.

    The log has no secrets if its executor wrote it; this is for all other files, and for parts that begin within a line.

    :param from_beginning: whether the data begin where the file does.
    """
    redactor = LineRedactor()
    begin = data.rfind(b"\n", 0, at) + 1
    for line in data[:begin].split(b"\n")[:-1]:
        redactor.line(line.decode(errors="replace"))
    if begin == at:
        return "\n".join(redactor.line(line.decode(errors="replace")) for line in data[at:].split(b"\n"))
    if begin == 0 and not from_beginning:
        return HIDDEN
    whole = data[begin:].decode(errors="replace")
    return data[at:].decode(errors="replace") if redactor.line(whole) == whole else HIDDEN
