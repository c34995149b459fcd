"""The errors that a task reports; they leave with its statistics."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any

from dskype.topology.config import Config
from dskype.topology.core.redaction import redact_text
from dskype.topology.core.stats import TaskStats
from dskype.topology.errors import shorten

__all__ = ["ERROR_CHARS", "ErrorReports"]

ERROR_CHARS = 16_384
"""Most characters of an error's text that are reported."""


class ErrorReports:
    """Counts a task's errors, and keeps the first ones of each interval until they are taken.

    ::

        below the limit ---- add(): topology.max.error.report.per.interval is reached ----> at the limit: errors are only counted
               ^                                                                                |
               +---- add(): topology.error.throttle.interval.secs after the interval began -----+

    :param component: the task's component.
    :param task: the task's id.
    :param conf: the component's configuration.
    :param stats: counts all errors.
    :param wall_ms: wall clock.
    """

    def __init__(self, component: str, task: int, conf: Mapping[str, Any], stats: TaskStats, wall_ms: Callable[[], int]) -> None:
        self._component, self._task, self._stats, self._wall_ms = component, task, stats, wall_ms
        self._interval_ms = conf[Config.TOPOLOGY_ERROR_THROTTLE_INTERVAL_SECS] * 1000
        self._most = conf[Config.TOPOLOGY_MAX_ERROR_REPORT_PER_INTERVAL]
        self._since_ms = self._shown = 0
        self.lines: list[dict[str, Any]] = []
        """Reported and not taken yet."""

    def add(self, error: BaseException | str, *, suppressed: bool) -> None:
        """Count an error, and report it unless its interval has had enough already.

        :param suppressed: only count it.
        """
        self._stats.errors += 1
        now = self._wall_ms()
        if now - self._since_ms >= self._interval_ms:
            self._since_ms, self._shown = now, 0
        if suppressed or self._shown >= self._most:
            return
        self._shown += 1
        text = error if isinstance(error, str) else "".join(traceback.format_exception(error)).rstrip()
        text = shorten(redact_text(text), ERROR_CHARS)  # in this order: what is left out may be the name of a secret
        self.lines.append({"v": 1, "kind": "error", "component": self._component, "task": self._task, "time_ms": now, "error": text})

    def take(self) -> list[dict[str, Any]]:
        """Return the reports since the last call."""
        lines, self.lines = self.lines, []
        return lines

    def checkpoint(self) -> tuple[int, int]:
        """Return a checkpoint for :meth:`roll_back`."""
        return len(self.lines), self._shown

    def roll_back(self, checkpoint: tuple[int, int]) -> None:
        """Take back what was reported since the checkpoint."""
        n, self._shown = checkpoint
        del self.lines[n:]
