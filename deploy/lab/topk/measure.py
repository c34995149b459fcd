"""What one index of top-k subscriptions costs: matching, single messages, insertion, thresholds, removal, memory.

Costs are CPU times of the process, so that others on the machine matter less; single messages are timed by the wall clock. The garbage
collector stands still.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dskype.bolts.topk.engine import INDEXES
from dskype.deploy.lab.comparing import MatchTimes, quiet
from dskype.deploy.lab.topk import truth
from dskype.deploy.lab.topk.workload import TopkIndexWorkload

__all__ = ["CALL", "Measured", "expected_scores", "warm_up"]

CALL = 1_000
"""Subscriptions per call that inserts, removes or sets thresholds."""

_REMOVED = 100_000


class Measured(MatchTimes):
    """An index that is filled with the subscriptions of a workload, and what was found about it so far.

    :param name: of the index.
    :param tell: called with the share of the subscriptions that have been inserted.
    :ivar rows: int64[n]: slot -> row of its subscription in the workload; -1: the slot is empty.
    :ivar found: what :class:`~dskype.deploy.lab.comparing.MatchTimes` finds, and ``slowest_us`` (of several calls), ``single_us`` (mean of
        single messages, the least of several calls), ``bytes`` (per subscription, keywords included), ``insert_us``, ``threshold_us`` (the call that
        sets the thresholds of what was just inserted) and ``remove_us``, all per subscription.
    """

    def __init__(self, name: str, workload: TopkIndexWorkload, tell: Callable[[float], None] = lambda share: None) -> None:
        super().__init__(name, workload.batches)
        self.workload = workload
        self.index = INDEXES[name](workload.diagonal_deg)
        self.rows = np.full(workload.n, -1)
        self._exchange(np.arange(workload.n), np.arange(workload.n), tell)

    def match(self, budget_s: float) -> float:
        """Match all messages in batches, as in :class:`MatchTimes`; keep the slowest time as well."""
        time_us = super().match(budget_s)
        self.found["slowest_us"] = max(time_us, self.found.get("slowest_us", time_us))
        return time_us

    def single(self, budget_s: float) -> np.ndarray:
        """Match messages one at a time, as in :class:`MatchTimes`; keep the mean as well."""
        times_us = super().single(budget_s)
        self.keep_least("single_us", float(times_us.mean()))
        return times_us

    def replace(self) -> dict[str, float]:
        """Replace the first fifth of the subscriptions, 1,000 at a time, and begin again to find things out; return what was found before."""
        before, self.found = self.found, {}
        self.restart(self.workload.batches)
        first = np.arange(self.workload.replaced)
        self._exchange(first, self.workload.n + first)
        return before

    def remove(self, share: float = 0.1, seed: int = 0) -> float:
        """Remove a share of the subscriptions for good, 100,000 at most; return us per subscription."""
        slots = np.random.default_rng([seed, 5]).permutation(self.workload.n)[: min(_REMOVED, max(1, round(share * self.workload.n)))]
        spent = 0
        with quiet():
            for start in range(0, len(slots), CALL):
                some = np.sort(slots[start : start + CALL]).astype(np.int32)
                began = time.process_time_ns()
                self.index.remove(some)
                spent += time.process_time_ns() - began
        self.rows[slots] = -1
        return spent / 1e3 / len(slots)

    def wrong(self, expected: dict[int, np.ndarray]) -> list[str]:
        """Return a line for each message of the first batch that now matches other subscriptions, or with other scores, than it should.

        :param expected: row of the message -> scores of all subscriptions of the workload, as :func:`truth.scores_of_message` returns them.
        """
        message, slot, score = self.index.match(self.batches[0])
        used = np.flatnonzero(self.rows >= 0)
        errors = []
        for row, scores in expected.items():
            own = scores[self.rows[used]]
            reached = own >= self.workload.thresholds[self.rows[used]]
            found = slot[message == row]
            if not (np.array_equal(found, used[reached]) and np.array_equal(score[message == row], own[reached])):
                errors.append(f"{self.name}: message {row} has {len(found)} matches, a plain computation finds {reached.sum()}, or their scores differ")
        return errors

    def _exchange(self, slots: np.ndarray, rows: np.ndarray, tell: Callable[[float], None] = lambda share: None) -> None:
        """Put the subscriptions at ``rows`` of the workload into ``slots``, 1,000 at a time; remove those that are there."""
        spent = dict.fromkeys(("remove_us", "insert_us", "threshold_us"), 0)

        def clock(name: str, call: Callable[..., Any], *arguments: Any) -> None:
            began = time.process_time_ns()
            call(*arguments)
            spent[name] += time.process_time_ns() - began

        taken = bool((self.rows[slots] >= 0).any())
        with quiet():
            for start in range(0, len(slots), CALL):
                into, of = slots[start : start + CALL].astype(np.int32), rows[start : start + CALL]
                s, thresholds = self.workload.subscriptions.take(of), self.workload.thresholds[of]
                if taken:
                    clock("remove_us", self.index.remove, into)
                clock("insert_us", self.index.insert, into, s.lon, s.lat, s.alpha, s.offsets, s.terms, s.weights)
                clock("threshold_us", self.index.set_thresholds, into, thresholds)
                tell(start / len(slots))
        tell(1.0)
        self.rows[slots] = rows
        self.found |= {name: ns / 1e3 / len(slots) for name, ns in spent.items() if taken or name != "remove_us"}
        self.found["bytes"] = self.index.memory_bytes / self.workload.n


def warm_up(name: str, workload: TopkIndexWorkload) -> None:
    """Compile the kernels of an index: do everything once, with few subscriptions, but enough for some lists to become long and then short again."""
    index = Measured(name, workload.first(min(20_000, workload.n), 4))
    index.match(1.0)
    index.single(0.1)
    index.replace()
    index.match(1.0)
    index.remove(1.0)


def expected_scores(workload: TopkIndexWorkload, samples: int) -> dict[int, np.ndarray]:
    """Return row -> scores of all subscriptions, for some messages of the first batch."""
    batch = workload.batches[0]
    rows = np.random.default_rng(1).permutation(batch.n)[:samples].tolist()
    return {row: truth.scores_of_message(workload.subscriptions, batch, row, workload.diagonal_deg) for row in rows}
