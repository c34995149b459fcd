"""The contract of what decides which results are published."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from dskype.bolts.merging.merger import Publication
from dskype.spouts.streams import Results
from dskype.topology.tuples import TupleBatch

__all__ = ["ResultStrategy"]

_NOTHING = Publication([], [], [], None)


class ResultStrategy(ABC):
    """Decides which results of subscription tasks are published, and when. The result bolt makes one in ``prepare``."""

    @abstractmethod
    def filter_deltas(self, task: int, batch: Results) -> Results | None:
        """Return the deltas of a subscription task to publish at once, or None; keep or merge the others."""

    def keeps_list(self, registration: str, task: int) -> bool:
        """Tell whether the list that a task has written must not be published, because a merged list takes its place. Default: it is published."""
        return False

    def receive(self, name: str, task: int, kind: str, record: Any) -> None:
        """Handle a message of a replica (stream ``lists``). Default: there are none."""

    def receive_registrations(self, batch: TupleBatch) -> None:
        """Handle messages of distribution tasks about registrations. Default: there are none."""

    def write_lists(self) -> bool:
        """Add changed merged lists to the results to publish; return whether there were any."""
        return False

    def pop_publication(self) -> Publication:
        """Return the merged results to publish now."""
        return _NOTHING

    def advance(self, watermark: int) -> list[Results]:
        """Record the watermark; return the matches that waited for it."""
        return []

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain values, by keys of the bolt's snapshot."""

    def restore(self, state: Any) -> None:
        """Continue from a snapshot. Default: nothing."""
