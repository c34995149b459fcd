"""Load adjustment of hybrid partitioning that runs by itself (PS2Stream, section V).

The subscription tasks report what they do. If the greatest load is more than ``sigma`` times the least one, twice in a row and by more than the tolerance, the plan is *adjusted locally*: by phases I
and II of :func:`dskype.distribution.hybrid.migration.adjust`, on a sample of what this distribution task has distributed lately. A change has to be worth its migration. If the sample shows nothing to gain,
it is asked again later and later.

Once in a long period a plan from scratch is tried on the sample, and *takes over* if it is much better (:class:`~dskype.bolts.placement.plans.Takeover`). A takeover that is not over by the next time ends then.

Plans are made in the background, because messages would wait for seconds. Until a plan is there, nothing else is decided; it is dropped if another plan comes first. A restored task has forgotten a plan that was being made, and decides again by later reports.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dskype.bolts.balancing.balancer import Balancer
from dskype.bolts.placement.epochs import Epochs
from dskype.bolts.protocol.balance import BalanceMessage, LoadReport
from dskype.distribution.base import TAKEOVER, Sample
from dskype.distribution.hybrid.distributor import HybridDistributor
from dskype.distribution.hybrid.loads import UPDATES_PER_MESSAGE, LoadModel
from dskype.distribution.learning.recent_sample import RecentSample
from dskype.distribution.subscriptions import Subscription
from dskype.spouts.batch import MessageBatch
from dskype.spouts.settings import BalanceSettings
from dskype.topology.background import BackgroundError, Result

__all__ = ["LoadAdjuster"]

_PATIENCE = 2
"""How many rounds in a row the loads have to be out of balance."""

_SAMPLED_ROUNDS = 5
"""About how many rounds the messages of the sample come from."""

_LONGEST_WAIT = 64
"""The most rounds before the sample is asked again."""

_LONGEST_MAKING = 64
"""The most rounds that a plan may take to be made: its process may stand still."""

_FEWEST = 4
"""Nothing is decided from fewer messages or subscriptions."""


class LoadAdjuster(Balancer):
    """Decides for hybrid partitioning; see the module.

    Parameters are those of :class:`~dskype.bolts.balancing.balancer.Balancer`, and

    :param sources: number of distribution tasks. The subscriptions are spread over them.
    """

    def __init__(self, settings: BalanceSettings, epochs: Epochs, write: Callable[[bytes], None], context: Any, sources: int) -> None:
        super().__init__(settings, epochs, write, context)
        self._sources = sources
        self._recent = RecentSample(settings.sample)
        self._model = LoadModel(**self._distributor().options["costs"])
        self._messages = self._registered = 0.0  # of this task; the past counts less with every round
        self._reports: dict[int, LoadReport] = {}  # of the present round
        self._strained = 0  # rounds in a row
        self._adjust_from, self._wait = 0, 1  # round; rounds
        self._repartition_rounds = -(-settings.repartition_ms // settings.period_ms)
        self._repartition_at = self._repartition_rounds
        self._context = context
        self._making: tuple[Result, Callable[[dict[str, Any]], bool]] | None = None  # a plan that is being made, and what decides about it
        self._making_since = 0  # round
        self._moving = False  # whether subscriptions were moving at the end of the last batch
        self._counters = {name: context.register_counter(name) for name in ("balance_moved", "balance_takeovers", "balance_refusals")}

    def _distributor(self) -> HybridDistributor:
        found = self._plans.present
        assert isinstance(found, HybridDistributor)
        return found

    # -- what this task distributes -----------------------------------------------------------------------------------

    def record(self, messages: MessageBatch) -> None:
        """Take messages into the sample."""
        self._messages += messages.n
        self._recent.record(messages)

    def register(self, name: str, subscription: Subscription) -> None:
        """Take a subscription into the sample."""
        self._registered += 1
        self._recent.register(name, subscription, self._epochs.registry.has)

    # -- plans --------------------------------------------------------------------------------------------------------

    def _changing(self) -> bool:
        return self._plans.changing and self._plans.takeover is None

    def _begin_plan(self) -> Mapping[str, Any] | None:
        self._reports, self._strained = {}, 0
        self._making = None  # it would undo this plan
        return None

    # -- reports and decisions ----------------------------------------------------------------------------------------

    def receive(self, message: BalanceMessage) -> None:
        """Handle a report of a subscription task."""
        if isinstance(message, LoadReport) and message.version == self._announced and not self._replaced():
            self._reports[message.task] = message
            if len(self._reports) == self._distributor().tasks:
                self._finish_round()

    def _cost(self, report: LoadReport) -> float:
        """Return what a task has done, in units of a message."""
        model = self._model
        us = model.check_us * report.matches + model.insert_us * report.inserted + model.remove_us * report.removed
        return report.messages + us / max(1e-9, model.message_us)

    def _finish_round(self) -> None:
        costs = [self._cost(report) for report in self._reports.values()]
        self._reports = {}
        self._recent.choose_stride(_SAMPLED_ROUNDS)
        self._messages, self._registered = self._settings.aging * self._messages, self._settings.aging * self._registered
        if not self._begin_round(costs):
            return
        limit = self._distributor().options["sigma"] * (1 + self._settings.tolerance)
        self._strained = self._strained + 1 if max(costs) > limit * min(costs) else 0
        if self._making is not None:
            if self._round - self._making_since >= _LONGEST_MAKING:
                self._fail(f"it was not there after {_LONGEST_MAKING} rounds", self._making[1])
            return
        if self._repartition_rounds and self._round >= self._repartition_at:
            if self._repartition() or self._making is not None:
                return
        if self._strained >= _PATIENCE and self._round >= self._adjust_from and self._plans.takeover is None:
            self._adjust(max(costs))

    def _sample(self) -> Sample | None:
        """Return the sample; None: it is too small."""
        found = self._recent.sample(self._epochs.registry.has)
        return found if min(found.n, found.messages.n) >= _FEWEST else None

    def _measured(self, sample: Sample) -> dict[str, Any]:
        """Return about how many subscriptions there are, and the costs with as many updates as there have been."""
        updates = (self._registered / max(1.0, self._messages)) / (UPDATES_PER_MESSAGE / 2)
        costs = self._model._replace(insert_us=updates * self._model.insert_us, remove_us=updates * self._model.remove_us)
        return {"subscriptions": max(sample.n, len(self._epochs.registry) * self._sources), "costs": costs._asdict()}

    def _make(self, work: Callable[[], dict[str, Any]], decide: Callable[[dict[str, Any]], bool]) -> bool:
        """Begin to make a plan; return whether one was written, which is possible only where the work is done at once.

        :param work: returns what was found, as plain values; empty: nothing to gain.
        :param decide: gets it, and returns whether a plan was written.
        """
        self._making_since = self._round
        try:
            self._making = self._context.run_in_background(lambda: json.dumps(work()).encode()), decide
        except BackgroundError as error:
            return self._fail(error, decide)
        return self._collect()

    def _fail(self, error: object, decide: Callable[[dict[str, Any]], bool]) -> bool:
        """Report that a plan was not made, and decide as if there were nothing to gain."""
        self._making = None
        self._epochs.collector.report_error(f"a plan was not made: {error}")
        return decide({})

    def _collect(self) -> bool:
        """Decide about the plan that is being made, if it is there; return whether a plan was written."""
        if self._making is None:
            return False
        result, decide = self._making
        try:
            found = result()
        except BackgroundError as error:
            return self._fail(error, decide)
        if found is None:
            return False
        self._making = None
        return not self._replaced() and decide(json.loads(found))

    def advance(self) -> None:
        """Tell the subscription tasks which plan is in force when a change is over, and write a plan that has been made. To be called after every batch."""
        if self._moving and not self._changing() and self._plans.version == self._announced:  # a takeover is over: reports were about two plans
            self._rest_until = self._round + self._settings.rest_periods
            self._begin_plan()
        self._moving = self._changing()
        super().advance()
        self._collect()

    def _adjust(self, cost: float) -> None:
        """Adjust the plan locally, if that is worth the migration.

        :param cost: the greatest one of a task, in units of a message.
        """
        self._make(self._adjusted, partial(self._decide_adjusted, cost))

    def _adjusted(self) -> dict[str, Any]:
        sample = self._sample()
        if sample is None:
            return {}
        measured = self._measured(sample)
        plan, found = self._distributor().adjusted(sample, self._settings.selection, measured)
        moved = round(found.moved * measured["subscriptions"] / sample.n)
        return {"plan": plan, "moved": moved, "gain": 1 - found.after / found.before} if found.rounds else {}

    def _decide_adjusted(self, cost: float, found: dict[str, Any]) -> bool:
        if found and found["gain"] * cost > self._settings.beta * found["moved"] and self._propose(found["plan"]):
            self._wait = 1
            self._counters["balance_moved"].inc(found["moved"])
            return True
        self._counters["balance_refusals"].inc()
        self._adjust_from, self._wait = self._round + self._wait, min(2 * self._wait, _LONGEST_WAIT)
        return False

    def _repartition(self) -> bool:
        """Try a plan from scratch, or end a takeover; return whether a plan was written."""
        if self._plans.takeover is not None:
            self._repartition_at = self._round + self._repartition_rounds
            return self._propose(self._distributor().plan())
        return self._make(self._repartitioned, self._decide_repartitioned)

    def _repartitioned(self) -> dict[str, Any]:
        sample = self._sample()
        plan = None if sample is None else self._distributor().repartitioned(sample, self._settings.repartition_gain, self._measured(sample))
        return {} if plan is None else {"plan": plan}

    def _decide_repartitioned(self, found: dict[str, Any]) -> bool:
        self._repartition_at = self._round + self._repartition_rounds  # and not before: a restored task tries again
        if not found or not self._propose({**found["plan"], TAKEOVER: self._settings.takeover_rest}):
            return False
        self._counters["balance_takeovers"].inc()
        return True

    # -- state --------------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays and plain values."""
        return super().snapshot() | {
            "recent": self._recent.snapshot(),
            "counts": [self._messages, self._registered],
            "reports": [list(report) for report in self._reports.values()],
            "strained": self._strained,
            "adjust": [self._adjust_from, self._wait],
            "repartition_at": self._repartition_at,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot; the placement has been restored."""
        super().restore(state)
        self._recent.restore(state["recent"])
        self._messages, self._registered = state["counts"]
        self._reports = {report.task: report for report in (LoadReport(*report) for report in state["reports"])}
        self._strained, self._repartition_at = state["strained"], state["repartition_at"]
        self._adjust_from, self._wait = state["adjust"]
        self._moving = self._changing()
