"""Which offsets the Kafka spouts of a topology commit in their consumer groups, and when."""

from __future__ import annotations

from collections.abc import Mapping

from dskype.topology.components import KafkaSpout
from dskype.topology.core.stats import TopologyStats
from dskype.topology.planning.plan import TopologyPlan

__all__ = ["OffsetCommits", "consumer_group"]

_RENEW_MS = 3_600_000
"""Offsets that have not changed are committed again after this time, because brokers forget those of a group that has been still for days."""

Partition = tuple[str, int]


def consumer_group(topology: str, spout: KafkaSpout | None) -> str:
    """Return the consumer group in whose name a component reads, and commits."""
    named = None if spout is None else spout.kafka_options.get("group.id")
    return f"dskype-{topology}" if named is None else str(named)


class OffsetCommits:
    """Chooses the offsets to commit from the reports of a topology's tasks.

    A task reports what its journal already has, so nothing is committed that a resumed topology would not know. Reports of an earlier driver do not count.
    Spouts that promise at most once are left out: their tasks commit by themselves, before they emit.

    :param plan: the topology's plan.
    :param stats: the newest reports of its tasks.
    """

    def __init__(self, plan: TopologyPlan, stats: TopologyStats) -> None:
        self._stats = stats
        spouts = {name: spec.obj for name, spec in plan.topology.components.items() if isinstance(spec.obj, KafkaSpout)}
        self._spouts = {name: spout for name, spout in spouts.items() if spout.processing_guarantee != "AT_MOST_ONCE"}
        self._groups = {name: consumer_group(plan.name, spout) for name, spout in self._spouts.items()}
        self._committed: dict[tuple[str, Partition], tuple[int, int]] = {}  # group, partition -> offset, and when it was committed
        self._next_ms: dict[str, int] = {}

    @property
    def shortest_period_ms(self) -> int | None:
        """The shortest period of a spout; None if there is no Kafka spout."""
        return min((spout.offset_commit_period_ms for spout in self._spouts.values()), default=None)

    def due(self, now_ms: int, term: int, *, all_spouts: bool = False) -> dict[str, dict[Partition, int]]:
        """Return group -> offsets that are to be committed now.

        :param term: the driver's term.
        :param all_spouts: whether those of all spouts are due, whatever their periods, as when spouts are deactivated.
        """
        due = {c for c, spout in self._spouts.items() if all_spouts or now_ms >= self._next_ms.setdefault(c, now_ms + spout.offset_commit_period_ms)}
        self._next_ms.update((c, now_ms + self._spouts[c].offset_commit_period_ms) for c in due)
        found: dict[str, dict[Partition, int]] = {}
        for component in due:
            group = self._groups[component]
            for where, offset in self._settled(group, term, of=component).items():
                before, at_ms = self._committed.get((group, where), (-1, 0))
                if offset != before or now_ms - at_ms >= _RENEW_MS:
                    found.setdefault(group, {})[where] = offset
        return found

    def _settled(self, group: str, term: int, of: str) -> dict[Partition, int]:
        """Return the offsets that all spouts of a group have settled, of the partitions that one of them reads."""
        settled: dict[str, dict[Partition, int]] = {name: {} for name, own in self._groups.items() if own == group}
        for report in list(self._stats.tasks.values()):
            if report.get("component") in settled and report.get("term", 0) >= term:
                settled[report["component"]].update(((topic, partition), offset) for topic, partition, _, offset in report.get("kafka", ()))
        found = {}
        for where, offset in settled[of].items():
            sharing = [name for name in settled if name != of and self._spouts[name].reads(where[0])]
            if all(where in settled[name] for name in sharing):
                found[where] = min([offset, *(settled[name][where] for name in sharing)])
        return found

    def note(self, group: str, offsets: Mapping[Partition, int], now_ms: int) -> None:
        """Note that offsets have been committed."""
        self._committed.update(((group, where), (offset, now_ms)) for where, offset in offsets.items())
