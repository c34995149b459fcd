"""Back-pressure: how much is on its way through a topology, and how much may be.

A tuple that waits is work, and so are the tuples that bolts will make of it. So it counts with what it leads to: itself, and for every tuple
that its receiver sends on by then, as much again. A bolt that makes ten of one would otherwise be sent ten times as much as it was thought.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from dskype.topology.core.stats import TopologyStats
from dskype.topology.planning.plan import TopologyPlan

__all__ = ["Pressure"]

_STEP_MS, _RATE_WINDOW_MS, _MEMORY_MS = 250, 10_000, 30_000
_LEAST_BOUND = 1000
_HEAVIEST = 1e6
"""Of a cycle that would make ever more of a tuple."""

_Flow = dict[tuple[str, str], int]


class _Counts(NamedTuple):
    """Tuples at a time.

    :ivar made: what a component's own tuples come of: those received by a bolt, those emitted by a spout.
    """

    at_ms: int
    received: int
    made: dict[str, int]
    sent: _Flow


class Pressure:
    """Tells how much spouts may emit: nothing while more than ``tuples`` are on their way, and no more than what this leads to is dealt with in ``ms``.

    How much is done in a time is measured, as the peak of the last half minute; so the queue grows until it takes the time that it may.
    A thousand tuples may always wait.

    :param plan: the physical plan.
    :param stats: live statistics.
    :param now_ms: the time at which it starts.
    """

    def __init__(self, plan: TopologyPlan, stats: TopologyStats, now_ms: int, *, tuples: int, ms: int) -> None:
        self._component, self._stats, self._tuples, self._ms = plan.task_component, stats, tuples, ms
        self._spouts = {component for component, spec in plan.topology.components.items() if spec.is_spout}
        self._seen: deque[_Counts] = deque([self._counts(now_ms)])
        self._peak = 0.0  # tuples received per ms
        self._led_to = 0.0  # tuples to be dealt with
        self._ratios: dict[str, dict[str, float]] = {}  # component -> target -> tuples sent for each one made
        self._weights: dict[str, float] = {}

    @property
    def queue_ms(self) -> float:
        """How long it takes to deal with what is on its way, as far as is known; as of the last call of :meth:`room`."""
        return self._led_to / self._peak if self._peak else 0.0

    def room(self, now_ms: int) -> float:
        """Return how many tuples may still be dealt with, what has to be on its way for that included; see :meth:`weight`."""
        if now_ms - self._seen[-1].at_ms >= _STEP_MS:
            self._measure(now_ms)
        waiting, self._led_to = 0, 0.0
        for task, count in self._stats.undelivered_by_task().items():
            waiting += count
            self._led_to += count * self.weight(self._component[task])
        return max(0.0, max(_LEAST_BOUND, self._peak * self._ms) - self._led_to) if waiting <= self._tuples else 0.0

    def weight(self, component: str) -> float:
        """Return how many tuples are dealt with for one that a bolt receives, itself included; or for one that a spout emits."""
        return self._weights.get(component) or 1.0

    def _counts(self, now_ms: int) -> _Counts:
        received, made = 0, dict[str, int]()
        sent: _Flow = {}
        for task, report in list(self._stats.tasks.items()):
            component, taken = self._component[task], sum(report["received"].values())
            received += taken
            made[component] = made.get(component, 0) + (sum(report["emitted"].values()) if component in self._spouts else taken)
            for target, count in report["sent"].items():
                flow = component, self._component[int(target)]
                sent[flow] = sent.get(flow, 0) + count
        return _Counts(now_ms, received, made, sent)

    def _measure(self, now_ms: int) -> None:
        seen, counts = self._seen, self._counts(now_ms)
        since_ms = now_ms - seen[-1].at_ms
        if counts.received < seen[-1].received:  # the topology's statistics started again
            seen.clear()
        seen.append(counts)
        if len(seen) == 1:
            return
        while now_ms - seen[0].at_ms > _MEMORY_MS and len(seen) > 2:
            seen.popleft()
        first = next(entry for entry in seen if now_ms - entry.at_ms <= _RATE_WINDOW_MS or entry is seen[-2])
        rate = (counts.received - first.received) / max(1, now_ms - first.at_ms)
        self._peak = max(rate, self._peak * (1 - since_ms / _MEMORY_MS) if since_ms < _MEMORY_MS else 0.0)
        self._weigh(seen[0], counts)

    def _weigh(self, before: _Counts, now: _Counts) -> None:
        """Find out how many tuples one leads to, by what has happened in between."""
        for component, count in now.made.items():
            made = count - before.made.get(component, 0)
            if made > 0:
                self._ratios[component] = {
                    target: (n - before.sent.get((source, target), 0)) / made
                    for (source, target), n in now.sent.items()
                    if source == component and target not in self._spouts
                }
        weights = dict.fromkeys(now.made, 1.0)
        for _ in weights:  # as far as the longest way without a cycle
            weights = {
                component: min(
                    _HEAVIEST,
                    (component not in self._spouts) + sum(ratio * weights.get(target, 1.0) for target, ratio in self._ratios.get(component, {}).items()),
                )
                for component in weights
            }
        self._weights = weights
