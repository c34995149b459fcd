"""Back-pressure: measures the work that undelivered tuples mean for a topology, and limits it.

A waiting tuple leads to more work than its own processing, because bolts emit further tuples for it. So each tuple has a *weight*: 1 for
itself, plus the weights of all tuples that its receiver will emit for it. For example, if a bolt emits ten tuples for each input, and their
receivers emit none, an input of that bolt weighs 11.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from dskype.topology.core.stats import TopologyStats
from dskype.topology.planning.plan import TopologyPlan

__all__ = ["Pressure"]

_STEP_MS, _RATE_WINDOW_MS, _MEMORY_MS = 250, 10_000, 30_000
_LEAST_BOUND = 1000
_MAX_WEIGHT = 1e6
"""Bounds the weight of tuples in a cycle that multiplies them."""

_Flow = dict[tuple[str, str], int]


class _Counts(NamedTuple):
    """Counts of tuples at one time.

    :ivar handled: component -> tuples that a bolt has received, or that a spout has emitted.
    :ivar sent: (component, receiving component) -> tuples.
    """

    at_ms: int
    received: int
    handled: dict[str, int]
    sent: _Flow


class Pressure:
    """Computes how much spouts may emit.

    They may emit nothing while more than ``tuples`` are undelivered. Otherwise the undelivered tuples, by weight, may grow until processing
    them takes ``ms``, but at least to a thousand. The throughput is measured: it is the peak of the last half minute.

    :param plan: the topology plan.
    :param stats: live statistics.
    :param now_ms: the time at which measuring starts.
    """

    def __init__(self, plan: TopologyPlan, stats: TopologyStats, now_ms: int, *, tuples: int, ms: int) -> None:
        self._component, self._stats, self._tuples, self._ms = plan.task_component, stats, tuples, ms
        self._spouts = {component for component, spec in plan.topology.components.items() if spec.is_spout}
        self._seen: deque[_Counts] = deque([self._counts(now_ms)])
        self._peak = 0.0  # tuples received per ms
        self._queued = 0.0  # total weight of undelivered tuples
        self._ratios: dict[str, dict[str, float]] = {}  # component -> target -> tuples sent per tuple handled
        self._weights: dict[str, float] = {}

    @property
    def queue_ms(self) -> float:
        """Estimated time to process all undelivered tuples and those that they lead to; as of the last call of :meth:`room`."""
        return self._queued / self._peak if self._peak else 0.0

    def room(self, now_ms: int) -> float:
        """Return the weight of the tuples that may be added to the undelivered ones."""
        if now_ms - self._seen[-1].at_ms >= _STEP_MS:
            self._measure(now_ms)
        waiting, self._queued = 0, 0.0
        for task, count in self._stats.undelivered_by_task().items():
            waiting += count
            self._queued += count * self.weight(self._component[task])
        return max(0.0, max(_LEAST_BOUND, self._peak * self._ms) - self._queued) if waiting <= self._tuples else 0.0

    def weight(self, component: str) -> float:
        """Return how many tuples are processed because of one that a bolt receives, itself included, or that a spout emits."""
        return self._weights.get(component) or 1.0

    def _counts(self, now_ms: int) -> _Counts:
        received, handled = 0, dict[str, int]()
        sent: _Flow = {}
        for task, report in list(self._stats.tasks.items()):
            component, inputs = self._component[task], sum(report["received"].values())
            received += inputs
            handled[component] = handled.get(component, 0) + (sum(report["emitted"].values()) if component in self._spouts else inputs)
            for target, count in report["sent"].items():
                flow = component, self._component[int(target)]
                sent[flow] = sent.get(flow, 0) + count
        return _Counts(now_ms, received, handled, sent)

    def _measure(self, now_ms: int) -> None:
        seen, counts = self._seen, self._counts(now_ms)
        since_ms = now_ms - seen[-1].at_ms
        if counts.received < seen[-1].received:  # the topology's statistics were reset
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
        """Compute the weights from what was sent between two counts."""
        for component, count in now.handled.items():
            handled = count - before.handled.get(component, 0)
            if handled > 0:
                self._ratios[component] = {
                    target: (n - before.sent.get((source, target), 0)) / handled
                    for (source, target), n in now.sent.items()
                    if source == component and target not in self._spouts
                }
        weights = dict.fromkeys(now.handled, 1.0)
        for _ in weights:  # enough rounds for the longest path without a cycle
            weights = {
                component: min(
                    _MAX_WEIGHT,
                    (component not in self._spouts) + sum(ratio * weights.get(target, 1.0) for target, ratio in self._ratios.get(component, {}).items()),
                )
                for component in weights
            }
        self._weights = weights
