"""The events of one tenant's subscriptions, out of those that a client follows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from kafka.errors import KafkaError

from dskype.deploy.web.result_feed import ResultFollower
from dskype.deploy.web.result_rates import TenantRate
from dskype.topology.errors import TopologyError
from dskype.topology.ui.events import Event

__all__ = ["OwnResults"]

_ABOUT_ONE = frozenset({"result", "registration", "limited", "refusal"})


class OwnResults:
    """One client's events without those of registrations of others; an :class:`~dskype.topology.ui.events.EventSource`.

    An id may have belonged to somebody else before, or belong to somebody else now, so each event is judged by the registration that it is about.

    :param source: all events.
    :param mine: tells of each pair of a subscription and a registration whether it is the tenant's; called in a thread.
    :param rate: says how long results have to wait, and counts them.
    """

    def __init__(self, source: ResultFollower, mine: Callable[[Sequence[tuple[str, str]]], list[bool]], rate: TenantRate) -> None:
        self._source, self._mine, self._rate = source, mine, rate

    async def next(self) -> Sequence[Event] | None:
        """Return the next events; of others only the places are left."""
        events = await self._source.next()
        about = [_about(event) for event in events or ()]
        if events is None or not any(about):
            return events
        try:
            mine = await asyncio.get_running_loop().run_in_executor(None, self._mine, [pair for pair in about if pair is not None])
        except (KafkaError, OSError, TopologyError):
            return None
        told = iter(mine)
        found = [event if pair is None or next(told) else replace(event, name="", data=None) for event, pair in zip(events, about)]
        results = sum(event.name == "result" for event in found)
        # Meanwhile nothing is taken: what comes waits in the client's queue, and then in Kafka.
        await asyncio.sleep(wait_s := self._rate.wait_s(results))
        self._rate.note(results, wait_s)
        return found

    @property
    def is_behind(self) -> bool:
        """Whether it still reads what came before it began."""
        return self._source.is_behind

    def close(self) -> None:
        """End."""
        self._source.close()


def _about(event: Event) -> tuple[str, str] | None:
    """Return the subscription and the registration that an event is about; None: it is about none."""
    if event.name not in _ABOUT_ONE:
        return None
    data = event.data
    return data["subscription"], data["result_id"].partition("/")[0] if event.name == "result" else str(data.get("registration"))
