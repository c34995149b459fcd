"""Check that files belong to this user alone: what they hold may decide what is run, so nobody else may have written it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

__all__ = ["close_to_others", "fault_of", "foreign_in", "is_ours"]

_OTHERS_WRITE = 0o022


def fault_of(path: Path) -> str | None:
    """Say why a file, folder or link may hold what another user has written; None: it may not, or it is missing."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return None
    if info.st_uid != os.getuid():
        return f"{path} belongs to user {info.st_uid}, mode {stat.filemode(info.st_mode)}"
    if info.st_mode & _OTHERS_WRITE and not stat.S_ISLNK(info.st_mode):
        return f"{path} can be written by others, mode {stat.filemode(info.st_mode)}"
    return None


def is_ours(folder: Path | str) -> bool:
    """Tell whether a folder is there, belongs to this user, and can be written by nobody else."""
    return os.path.isdir(folder) and fault_of(Path(folder)) is None


def close_to_others(folder: Path) -> None:
    """Take the right to write from others if the folder is ours and empty: nobody has put anything there yet."""
    info = os.stat(folder)
    if info.st_uid == os.getuid() and info.st_mode & _OTHERS_WRITE and not os.listdir(folder):
        os.chmod(folder, stat.S_IMODE(info.st_mode) & ~_OTHERS_WRITE)


def foreign_in(folder: Path) -> str | None:
    """Say which file in a folder belongs to another user, at any depth; None: none does. Links are not followed."""
    return next((f"{path} belongs to user {uid}" for path, uid in _owners(folder) if uid != os.getuid()), None)


def _owners(folder: Path) -> Iterator[tuple[str, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                yield entry.path, entry.stat(follow_symlinks=False).st_uid
                if entry.is_dir(follow_symlinks=False):
                    yield from _owners(Path(entry.path))
            except FileNotFoundError:  # removed meanwhile
                continue
