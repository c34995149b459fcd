"""Which inbox records no task can need again."""

from __future__ import annotations

from dskype.topology.config import Config
from dskype.topology.core.snapshots import JOURNAL_KEPT, SnapshotStore
from dskype.topology.core.stats import TopologyStats
from dskype.topology.planning.plan import TopologyPlan, inbox_topic

__all__ = ["OldRecords"]


class OldRecords:
    """Finds the inbox records that may be dropped.

    The newest snapshots or journal entries may be damaged. So a task needs what follows the oldest one that is kept. Until a bolt has as many snapshots
    as are kept, it needs everything, because a process that is behind may still save an older one.

    :param plan: the topology's plan.
    """

    def __init__(self, plan: TopologyPlan) -> None:
        self._plan = plan
        self._noted: dict[int, tuple[int, int]] = {}  # spout task -> a journal entry, and the task's version in it

    def find(self, store: SnapshotStore, stats: TopologyStats) -> dict[tuple[str, int], int]:
        """Return (inbox topic, partition) -> offset below which nothing is needed; inboxes of which that is not known are left out."""
        found: dict[tuple[str, int], int] = {}
        for component in self._plan.component_ids:
            kept = self._plan.component_conf(component)[Config.TOPOLOGY_EMULATOR_SNAPSHOTS_KEPT]
            for task in self._plan.component_tasks(component):
                if self._plan.spec(component).is_spout:
                    offset = self._needed_by_spout(task, stats)
                else:
                    versions = store.versions(task)
                    offset = versions[0] if len(versions) >= kept else 0
                if offset > 0:
                    found[inbox_topic(self._plan.name, component), self._plan.task_index(task)] = offset
        return found

    def _needed_by_spout(self, task: int, stats: TopologyStats) -> int:
        """Return the offset below which no kept journal entry of a spout's task needs records, as far as reports tell; 0 if that is not known.

        The task reports each entry only after it has written it.
        """
        report = stats.tasks.get(task, {})
        newest = report.get("entry", 0), report.get("version", 0)
        entry, version = self._noted.setdefault(task, newest)
        if newest[0] - entry < JOURNAL_KEPT - 1:
            return 0
        self._noted[task] = newest
        return version
