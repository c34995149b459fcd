"""The names of the topics that there are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["TopicNames"]


class TopicNames:
    """Remembers the names of all topics for a while, so that whoever asks for some that are not there does not make a connection each time.

    :param fresh_s: for how long.
    """

    def __init__(self, fresh_s: float = 1.0) -> None:
        self._fresh_s, self._lock = fresh_s, threading.Lock()
        self._listed: tuple[float, set[str]] | None = None

    def known(self, ask: Callable[[], set[str]]) -> set[str]:
        """Return the names.

        :param ask: returns them from the brokers.
        """
        with self._lock:
            if self._listed is None or time.monotonic() - self._listed[0] >= self._fresh_s:
                names = ask()
                self._listed = time.monotonic(), names
            return self._listed[1]
