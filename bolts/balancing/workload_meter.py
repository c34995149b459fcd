"""What a subscription task measures for load balancing, and when it reports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dskype.bolts.message_queue import Arrived
from dskype.bolts.protocol.balance import BalanceMessage, HandedOver, LoadReport, PartitionMap, SizeShift
from dskype.spouts.settings import BalanceSettings

__all__ = ["LoadMeter", "WorkloadMeter"]


class WorkloadMeter(ABC):
    """Measures the work of one subscription task, and reports it once in a period; the past counts less with every report.

    :param index: index of the task.
    :param settings: of load balancing.
    :param send: sends a message to the distribution task that balances.
    """

    def __init__(self, index: int, settings: BalanceSettings, send: Callable[[BalanceMessage], None]) -> None:
        self._index, self._settings, self._send = index, settings, send
        self._report_ms: int | None = None  # when the next report is due

    @property
    @abstractmethod
    def measures(self) -> bool:
        """Whether there is anything to report."""

    @abstractmethod
    def adopt(self, message: PartitionMap) -> None:
        """Measure by another plan from now on."""

    def take(self, message: HandedOver) -> None:
        """Take costs over that another task has measured. Only cells have costs that move with them."""

    def size(self, message: SizeShift) -> None:
        """Answer how much of a partition a shift should move. Only partitions of an A-Grid shift."""

    @abstractmethod
    def open(self, slot: int, bbox: Sequence[float]) -> None:
        """Count a boolean subscription in."""

    @abstractmethod
    def forget(self, slot: int) -> None:
        """Count a boolean subscription out."""

    @abstractmethod
    def record(self, arrived: Arrived, rows: np.ndarray | None = None) -> None:
        """Count messages, or, for each row of ``rows``, a match of that message."""

    def tick(self, now_ms: int) -> None:
        """Report if a period is over."""
        if not self.measures:
            return
        if self._report_ms is None:  # the first period after a change
            self._report_ms = now_ms + self._settings.period_ms
        elif now_ms >= self._report_ms:
            self._report_ms += self._settings.period_ms * (1 + (now_ms - self._report_ms) // self._settings.period_ms)
            self.report()

    @abstractmethod
    def report(self) -> None:
        """Report, and let the past count less."""

    @abstractmethod
    def snapshot(self) -> Any:
        """Return the state as arrays and plain values."""

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""


class LoadMeter(WorkloadMeter):
    """Counts what the load model counts (PS2Stream, definition 1): messages, matches, and subscriptions that come and go. O(1) each."""

    def __init__(self, index: int, settings: BalanceSettings, send: Callable[[BalanceMessage], None]) -> None:
        super().__init__(index, settings, send)
        self._version = -1
        self._messages = self._matches = self._inserted = self._removed = 0.0

    @property
    def measures(self) -> bool:
        """Whether a plan has been announced."""
        return self._version >= 0

    def adopt(self, message: PartitionMap) -> None:
        """Measure by another plan from now on; what was done by the one before it does not count."""
        if message.version > self._version:
            self._version, self._report_ms = message.version, None
            self._messages = self._matches = self._inserted = self._removed = 0.0

    def open(self, slot: int, bbox: Sequence[float]) -> None:
        """Count an insertion."""
        self._inserted += 1

    def forget(self, slot: int) -> None:
        """Count a removal."""
        self._removed += 1

    def record(self, arrived: Arrived, rows: np.ndarray | None = None) -> None:
        """Count messages, or, for each row of ``rows``, a match."""
        if rows is None:
            self._messages += arrived.messages.n
        else:
            self._matches += len(rows)

    def report(self) -> None:
        """Report what has been done; let it age."""
        self._send(LoadReport(self._version, self._index, self._messages, self._matches, self._inserted, self._removed))
        aging = self._settings.aging
        self._messages, self._matches, self._inserted, self._removed = (aging * x for x in (self._messages, self._matches, self._inserted, self._removed))

    def snapshot(self) -> Any:
        """Return the state as plain values."""
        return [self._version, self._report_ms, self._messages, self._matches, self._inserted, self._removed]

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._version, self._report_ms, self._messages, self._matches, self._inserted, self._removed = state
