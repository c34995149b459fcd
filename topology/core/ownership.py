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
    """Say which file in a folder another user may have written, at any depth; None: none. Links are not followed.

    That is a file of another user, or one that everybody can write, if everybody can enter the folder.
    """
    entered = os.stat(folder).st_mode & stat.S_IXOTH
    for path, info in _within(folder):
        if info.st_uid != os.getuid():
            return f"{path} belongs to user {info.st_uid}"
        if entered and info.st_mode & stat.S_IWOTH and (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)):
            return f"{path} can be written by everybody, mode {stat.filemode(info.st_mode)}"
    return None


def _within(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                yield entry.path, entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    yield from _within(Path(entry.path))
            except FileNotFoundError:  # removed meanwhile
                continue
