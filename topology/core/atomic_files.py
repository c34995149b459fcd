"""Replacing files as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

__all__ = ["replace_file"]


@contextmanager
def replace_file(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """Yield a binary file whose content becomes that of ``path`` at the end of the ``with`` block.

    The content and the rename are synced to the disk: even after a power cut there is the old file or the new one. If the block raises, the
    old file stays.

    :param mode: the permissions, whatever the umask is, for example 0o600. Default: as the umask says.
    """
    partial = path.with_name(f".{path.name}.{uuid4().hex}.partial")
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600), "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
