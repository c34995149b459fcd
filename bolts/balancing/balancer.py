"""Load balancing that runs by itself (``dskype.balance: auto``): one distribution task decides from reports of all subscription tasks.

It tells the subscription tasks which plan is in force (``PartitionMap``), and they report what they do. When all have reported, a *round* is over, and it may decide. A decision becomes a plan, which
it writes to the topic of plans. From there it comes to all distribution tasks like any other plan: in the same order everywhere, and with a version, so that it counts once. A decision
follows from the inbox alone, so a restored task writes the same plan again, which is ignored; one whose plan is made in the background may write another one, or later. If somebody else publishes a plan of the same version first, that one counts.

It decides nothing while a plan changes, and ignores the first reports after a change.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from dskype.bolts.placement.epochs import Epochs
from dskype.bolts.protocol.balance import BalanceMessage, PartitionMap
from dskype.distribution.subscriptions import Subscription
from dskype.spouts.batch import MessageBatch
from dskype.spouts.records import PLAN_BYTES_MAX, PLAN_VERSION_MAX
from dskype.spouts.settings import BalanceSettings

__all__ = ["Balancer"]


class Balancer(ABC):
    """Decides for all subscription tasks; see the module.

    :param settings: of load balancing.
    :param epochs: of this distribution task, with its plans and its registry.
    :param write: writes a record to the topic of plans.
    :param context: context of the bolt, for metrics.
    """

    def __init__(self, settings: BalanceSettings, epochs: Epochs, write: Callable[[bytes], None], context: Any) -> None:
        self._settings, self._epochs, self._plans, self._write = settings, epochs, epochs.plans, write
        self._announced = -1  # version of the plan by which the subscription tasks measure
        self._round = self._rest_until = 0
        self._proposed = 0  # version of the last plan
        self._balance_percent = 0
        self._decisions = context.register_counter("balance_decisions")
        context.register_gauge("balance_percent", lambda: self._balance_percent)

    # -- what this task distributes -----------------------------------------------------------------------------------

    def record(self, messages: MessageBatch) -> None:
        """Take messages of this distribution task into account."""

    def register(self, name: str, subscription: Subscription) -> None:
        """Take a subscription of this distribution task into account."""

    # -- plans --------------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Tell the subscription tasks which plan is in force when a change is over. To be called after every batch."""
        plans = self._plans
        if self._changing() or plans.version == self._announced:
            return
        self._announced = plans.version
        self._rest_until = self._round + self._settings.rest_periods
        message = PartitionMap(plans.version, self._begin_plan())
        self._epochs.send_to_all(message)

    def _changing(self) -> bool:
        """Tell whether reports would say nothing about one plan."""
        return self._plans.changing

    @abstractmethod
    def _begin_plan(self) -> Mapping[str, Any] | None:
        """Forget what is about an older plan; return what the subscription tasks need of this one in order to measure."""

    def _replaced(self) -> bool:
        """Tell whether the plan that is measured is not the newest one."""
        return self._changing() or self._plans.version != self._announced or self._proposed > self._plans.newest

    def _begin_round(self, costs: list[float]) -> bool:
        """Begin the next round of reports; return whether something may be decided."""
        self._round += 1
        mean = sum(costs) / len(costs)
        self._balance_percent = round(100 * max(costs) / mean) if mean else 100
        return self._round > self._rest_until and mean >= self._settings.cost_min

    def _propose(self, plan: Mapping[str, Any]) -> bool:
        """Write a plan, unless it is too large for a record; return whether it was written."""
        if self._plans.newest >= PLAN_VERSION_MAX:
            self._epochs.collector.report_error(f"a plan is not used: version {self._plans.newest} is the highest")
            return False
        value = json.dumps({"v": 1, "version": self._plans.newest + 1, "plan": plan}, separators=(",", ":")).encode()
        if len(value) > PLAN_BYTES_MAX:
            self._epochs.collector.report_error(f"a plan of {len(value):,} bytes is too large for a record, and is not used")
            return False
        self._proposed = self._plans.newest + 1
        self._decisions.inc()
        self._write(value)
        return True

    # -- reports and decisions ----------------------------------------------------------------------------------------

    @abstractmethod
    def receive(self, message: BalanceMessage) -> None:
        """Handle a message of a subscription task."""

    # -- state --------------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {
            "announced": self._announced,
            "round": self._round,
            "rest_until": self._rest_until,
            "proposed": self._proposed,
            "balance_percent": self._balance_percent,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot; the placement has been restored."""
        self._announced, self._round, self._rest_until = state["announced"], state["round"], state["rest_until"]
        self._proposed, self._balance_percent = state["proposed"], state["balance_percent"]
