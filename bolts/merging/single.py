"""Publishes all results as they arrive, because every subscription lives on one task."""

from __future__ import annotations

from typing import Any

from dskype.bolts.merging.base import ResultStrategy
from dskype.spouts.streams import Results

__all__ = ["SingleResults"]


class SingleResults(ResultStrategy):
    """Publishes all results as they arrive; see the module."""

    def filter_deltas(self, task: int, batch: Results) -> Results:
        """Return all deltas."""
        return batch

    def snapshot(self) -> dict[str, Any]:
        """Return that nothing waits."""
        return {"merger": None, "matches": []}
