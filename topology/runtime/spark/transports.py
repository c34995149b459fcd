"""Which components have real-time queries, and which have micro-batches."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any

from dskype.topology.config import Config
from dskype.topology.errors import TopologyError, explain
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.spark.component_query import ComponentQuery, QueryContext

__all__ = ["KEPT_SLOTS", "TooFewSlotsError", "Transports"]


KEPT_SLOTS = 8
"""Task slots that stay free for micro-batches and for the end of executors."""
_taken: dict[str, int] = {}  # topology id -> task slots that its real-time queries occupy; guarded by the lock
_lock = threading.Lock()


class TooFewSlotsError(TopologyError):
    """Spark has too few task slots for what a topology reads now; a rebalance lets it go on in micro-batches."""

    retriable = True


class Transports:
    """The transport of each component of a topology.

    A component has a real-time query unless its configuration asks for micro-batches. Where Spark has too few task slots, the whole topology has
    micro-batches, and a warning says so.
    """

    def __init__(self) -> None:
        self.real_time: frozenset[str] = frozenset()
        """Components with real-time queries."""
        self._topology_id, self._total = "", 0
        self._partitions: dict[str, int] = {}

    def choose(self, plan: TopologyPlan, spark: Any, positions: Mapping[str, Collection[tuple[str, int]]]) -> list[str]:
        """Choose the transport of each component of a plan anew; return the warnings.

        :param positions: component id -> the partitions that it reads; each occupies a task slot of Spark.
        """
        self.release()
        self.real_time, self._topology_id, self._total = frozenset(), plan.topology_id, spark.sparkContext.defaultParallelism
        chosen = frozenset(c for c in plan.component_ids if plan.component_conf(c)[Config.TOPOLOGY_EMULATOR_TRANSPORT] != "micro-batch")
        if not chosen:
            return []
        self._partitions = {c: len(positions[c]) for c in chosen}
        if (reason := self._missing_slots()) is not None:
            return [f"topology {plan.name!r} runs in micro-batches, which are several times slower. {reason}"]
        self.real_time = chosen
        return []

    def _missing_slots(self) -> str | None:
        """Take the slots that the topology needs in place of those it has; if there are too few, take none, and return what to say."""
        needed = sum(self._partitions.values())
        with _lock:
            others = sum(_taken.values()) - _taken.get(self._topology_id, 0)
            if (missing := others + needed + KEPT_SLOTS - self._total) <= 0:
                _taken[self._topology_id] = needed
                return None
        return explain(
            "Each partition that a real-time query reads occupies a task slot of Spark.",
            given=f"{needed} slots needed, {missing} slots too few",
            hint=f"start Spark with more slots, for example local[{self._total + missing}], or on a cluster with workers with more --cores: slots are not cores",
        )

    def start_query(self, context: QueryContext, component: str, positions: dict[tuple[str, int], int]) -> ComponentQuery:
        """Start the query of a component.

        :raises TooFewSlotsError: it reads more partitions than before, and Spark has no slots for them.
        """
        if component in self.real_time and len(positions) != self._partitions[component]:
            self._partitions[component] = len(positions)
            if (reason := self._missing_slots()) is not None:
                raise TooFewSlotsError(reason)
        query = ComponentQuery(context, component, positions, real_time=component in self.real_time)
        query.start()
        return query

    def release(self) -> None:
        """Give the task slots back."""
        with _lock:
            _taken.pop(self._topology_id, None)
