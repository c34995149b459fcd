"""Processes that must not outlive their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

__all__ = ["die_with_parent", "set_name"]

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def die_with_parent(parent: int, sign: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel signal this process when its parent ends, however that comes about (Linux).

    :param parent: the parent's process id, as known before the fork: if it has gone since, this process ends now.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(sign), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def set_name(name: str) -> None:
    """Name this process for ``ps`` and ``top`` (15 bytes, Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)
