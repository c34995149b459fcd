"""The demo on a topology that runs elsewhere: places are published to it, and its results are checked.

``dskype demo --bootstrap-servers`` calls it, and so does ``make compose-demo``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, Self

from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.demo.check import check_results
from dskype.deploy.demo.feeder import SHOWN, Feeder, Plan, subscriptions_of
from dskype.deploy.demo.places import places
from dskype.deploy.demo.screen import Arrivals
from dskype.deploy.machine.terminal import say
from dskype.deploy.metrics.progress import Progress
from dskype.deploy.verification.topics import wait_until_rest
from dskype.spouts.settings import Settings
from dskype.topology.errors import NotAliveException, TopologyError
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.nimbus.nimbus_topic import conf_of, load_states

__all__ = ["Feeding", "run"]

_LINE_EVERY_S = 5.0
_BEHIND_S = 3.0
"""Messages wait here if the topology is behind by what comes in this time."""
_STUCK_S = 120.0
"""A topology that handles no message for this long makes no progress."""
_REST_S = 120.0
"""How long the last results may take."""


class Feeding:
    """Publishes places and registers subscriptions with a running topology, and follows how far it is: ``with Feeding(...) as feeding``.

    :param kafka: the brokers.
    :param topology: its name.
    :param plan: what to publish; its window is not used, the topology has its own.
    :raises NotAliveException: there is no topology of that name.
    """

    def __init__(self, kafka: KafkaSettings, topology: str, plan: Plan) -> None:
        state = load_states(kafka).get(topology)
        if state is None:
            raise NotAliveException.for_topology(topology)
        self.kafka, self.topology, self.plan = kafka, topology, plan
        self.settings = Settings.from_conf(conf_of(state))
        self._parts = contextlib.ExitStack()

    def __enter__(self) -> Self:
        messages = places(self.plan.seed, self.plan.messages)
        with contextlib.ExitStack() as parts:
            pubsub = parts.enter_context(contextlib.closing(PubSub(self.kafka, self.topology)))
            self._progress = parts.enter_context(contextlib.closing(Progress(self.kafka, self.topology)))
            self._before = self._progress.watermark()
            total = self.plan.subscriptions + len(SHOWN)
            self.feeder = Feeder(pubsub, messages, subscriptions_of(self.plan, messages), total, self.plan.rate, Arrivals(0))
            parts.callback(self.feeder.close)
            self._parts = parts.pop_all()
        self.feeder.start()
        self.feeder.go()
        return self

    def __exit__(self, *exc: object) -> None:
        self._parts.close()

    def matched(self, wait_ms: int = 0) -> int:
        """Return how many of the published messages have been handled.

        :param wait_ms: how long to wait for new reports.
        :raises Exception: the feeder has failed.
        """
        if self.feeder.failure is not None:
            raise self.feeder.failure
        return max(0, self._progress.watermark(wait_ms) - self._before)

    def check(self, console: Any, say: Callable[[str], None]) -> int:
        """Wait until the topology is at rest and compare its results with a plain computation; return the exit code.

        :raises TopologyError: it does not come to rest.
        """
        say("waiting for the last results")
        if left := wait_until_rest(self.kafka, self.topology, self.settings, _REST_S, lambda _: None, None):
            raise TopologyError(f"The topology was still at work after {_REST_S:.0f} s: {left}.", hint="dskype stats, dskype get-errors")
        return check_results(self.kafka, self.topology, self.settings, console, say)


def run(plan: Plan, kafka: KafkaSettings, topology: str = "dskype", *, verify: bool = True, say: Callable[[str], None] = say, console: Any = None) -> int:
    """Publish everything, wait until the topology has handled it, and check its results.

    :param say: gets one line of text per step; default: standard error.
    :param console: a rich console; default: standard output.
    :returns: the exit code: 0, or 1 if the results differ from the plain computation.
    :raises TopologyError: there is no such topology, or it makes no progress.
    """
    from rich.console import Console

    began, seen, moved, line_at = time.monotonic(), 0, time.monotonic(), 0.0
    with Feeding(kafka, topology, plan) as feeding:
        feeder = feeding.feeder
        say(f"publishing {plan.messages:,} places to {topology}, registering {plan.subscriptions + len(SHOWN):,} subscriptions")
        while not (feeder.finished and seen >= plan.messages):
            matched, now = feeding.matched(200), time.monotonic()
            feeder.limit = matched + _BEHIND_S * plan.rate  # on a machine that is slower than the rate, messages wait here
            if now >= line_at:
                line_at = now + _LINE_EVERY_S
                say(f"{now - began:4.0f} s  {feeder.published:,} messages, {feeder.registered:,} subscriptions; {matched:,} messages matched")
            if matched != seen:
                seen, moved = matched, now
            elif now - moved > _STUCK_S:
                given = f"{matched:,} of {feeder.published:,} messages matched"
                raise TopologyError(f"Nothing has moved for {_STUCK_S:.0f} s.", given=given, hint="dskype stats, dskype get-errors")
        say(f"all {plan.messages:,} messages matched after {time.monotonic() - began:.0f} s")
        return feeding.check(console or Console(highlight=False), say) if verify else 0
