"""What DSkype's pages follow: for each topology one client, and one reader for all who follow its results or messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

from dskype.deploy.client import plan_picture
from dskype.deploy.client.follower import Follower
from dskype.deploy.client.message_topics import message_topics
from dskype.deploy.client.names import TopicNames
from dskype.deploy.client.plans import SUBSCRIPTION_BOLT, read_current, read_version
from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.client.topic_reader import UnknownTopicError
from dskype.deploy.web.directory import Directory
from dskype.deploy.web.drafts import checked, placed_only, tried
from dskype.deploy.web.message_feed import Listener, MessageFollower, MessageTail
from dskype.deploy.web.own_results import OwnResults
from dskype.deploy.web.partitions import partitions_of
from dskype.deploy.web.past import Shared
from dskype.deploy.web.places import Places
from dskype.deploy.web.result_feed import ResultFollower, ResultTail
from dskype.deploy.web.result_rates import ResultRates
from dskype.deploy.web.trend import EARLIER
from dskype.spouts.settings import Settings
from dskype.topology.errors import IllegalArgumentException, NotAliveException, TopologyError, explain
from dskype.topology.runtime.nimbus.nimbus_topic import conf_of
from dskype.topology.ui.budget import Budget, TooLongError, check_wanted, holding

__all__ = ["Feeds", "TopologyFeed"]

_MESSAGES_BACK = 5000
_SETTINGS = {"allow_auto_create_topics": False, "max_poll_records": 500, "fetch_max_bytes": 4 << 20}
"""Of the consumer that reads new results for all clients: what it holds beside them."""
_PLAN_S = 5.0
_CATCH_UP_S, _LOOK_S = 2.0, 0.02
"""How long a draft waits until the newest messages have been read, and how often it looks."""

T = TypeVar("T")


class TopologyFeed:
    """One topology: its client, and the readers of its results and messages.

    :param client: of the topology.
    :param shared: what reads for all topologies.
    :param record: returns the topology's present record in the nimbus topic; None: it does not run, or it is not known.
    """

    def __init__(self, client: PubSub, shared: Shared, record: Callable[[], Mapping[str, Any] | None] = lambda: None) -> None:
        self.client, self._shared, self._record = client, shared, record
        self._results = ResultTail(
            lambda: Follower(client.kafka, self._topics(), consumer=client.kafka.consumer(**_SETTINGS)),
            client.topics,
            shared.budget.queued_mb << 20,
            self.is_current,
        )
        self._messages = MessageTail(
            lambda: Follower(client.kafka, client.message_topics.names, _MESSAGES_BACK),
            client.name,
            topics=lambda: client.message_topics,
            is_current=self.is_current,
        )
        self._planning = threading.Lock()  # held while the plan is read or drawn: many who ask wait for one
        self._plan: tuple[float, tuple[int, dict[str, Any]]] | None = None
        self._made: dict[str, tuple[tuple[int, dict[str, Any]], Any]] = {}  # what was made -> the plan, and what it was made to
        self._numbers: dict[int, dict[str, Any]] = {}  # version -> what was read of an earlier plan; plans do not change
        self.directory = Directory(client, shared.budget.topic_read_wait_s, tenants=shared.tenants or bool(client.settings.tenants))
        self._rates = ResultRates(lambda: client.settings.tenants, client.name, shared.sent)
        self._changing = threading.Lock()  # held while a tenant changes a subscription

    def is_current(self) -> bool:
        """Tell whether the topology still has the settings and reads the topics that the client goes by; it may have been submitted again."""
        if (record := self._record()) is None:
            return True
        settings = Settings.from_conf(conf_of(record))
        return settings == self.client.settings and message_topics(record, self.client.name, settings) == self.client.message_topics.names

    def _topics(self) -> list[str]:
        """Return the topics of :data:`~dskype.deploy.web.places.LETTERS` that are there."""
        present = self.client.result_topics()
        for topic in (self.client.topics.registrations, self.client.topics.dead_letters):
            try:
                self.client.require(topic)
                present.append(topic)
            except UnknownTopicError:
                continue
        return present

    def changed_by(self, tenant: str, id: str, change: Callable[[], T]) -> T:
        """Return what a change of a subscription returns, if it is the tenant's or nobody's. Changes by tenants come one after the other, so two cannot both take an id.

        :raises IllegalArgumentException: it is somebody else's.
        """
        with holding(self._changing, self._shared.budget.topic_read_wait_s):
            if self.directory.owner(id) not in (None, tenant):
                raise IllegalArgumentException(
                    "The subscription belongs to somebody else.", given=id, hint="choose another id, for example one that begins with your name"
                )
            return change()

    def results(self, wanted: frozenset[str] | None, start: str, last_id: str, with_messages: bool, tenant: str | None = None) -> ResultFollower | OwnResults:
        """Return the events of a client that follows results.

        :param wanted: ids of subscriptions; None: all.
        :param start: ``now``, ``beginning``, or a time in epoch ms.
        :param last_id: the id of the last event that the client has had; "" for none, otherwise ``start`` does not count.
        :param with_messages: add text and place of its message to a result, as far as they are known.
        :param tenant: only those of this tenant's registrations; None: of all.
        :raises IllegalArgumentException: ``start`` or ``last_id`` cannot be used.
        :raises NotAliveException: there is no such topology.
        """
        if tenant is not None and self.client.settings.matches == "grouped":
            hint = "dskype.results.matches: each"
            raise IllegalArgumentException(
                "Grouped matches do not say which registrations they are of, so tenants cannot follow results.", given="grouped", hint=hint
            )
        try:
            topics = self._topics()
        except UnknownTopicError as error:
            raise NotAliveException(str(error)) from None
        if len(last_id) > self._shared.budget.last_id_bytes:
            raise TooLongError("last_id_bytes", "Last-Event-ID is too long.", len(last_id), self._shared.budget.last_id_bytes)
        places = Places.parse(last_id, self.client.topics) if last_id else self._start(start, topics)
        unknown = None if wanted is None or last_id else lambda: self.directory.unknown(wanted, tenant)  # one that comes back has been told
        messages = self._messages if with_messages else None
        follower = ResultFollower(self._results, self.client.topics, wanted, places, self._topics, self._shared, messages, unknown)
        return follower if tenant is None else OwnResults(follower, partial(self.directory.owned, tenant), self._rates.of(tenant))

    def _start(self, start: str, topics: list[str]) -> Places | None:
        if start == "now":
            return None
        if start != "beginning" and not (start.isdecimal() and len(start) < 16):
            raise IllegalArgumentException("The results cannot begin there.", given=start, legal="now, beginning, or a time in epoch ms")
        asks = object()
        try:
            with self._shared.past.reading(asks, lambda: topics, lambda: "beginning") as (reader, _):
                return Places.of(reader.positions() if start == "beginning" else reader.at_time(int(start)))
        finally:
            self._shared.past.release(asks)

    def messages(self) -> MessageFollower:
        """Return the events of a client that follows messages.

        :raises NotAliveException: there is no such topology.
        """
        try:
            self.client.require(*self.client.message_topics.names)
        except UnknownTopicError as error:
            raise NotAliveException(str(error)) from None
        return MessageFollower(self._messages, self._shared.joining)

    def draft(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return which of the newest messages a subscription would have matched, or why the topology would refuse it; see :mod:`~dskype.deploy.web.drafts`."""
        subscription = checked(self.client, fields)
        refused = subscription if isinstance(subscription, dict) else None
        if isinstance(subscription, dict):
            if (placed := placed_only(self.client, fields)) is None:
                return subscription
            subscription = placed
        reads = Listener(lambda: None)
        self._messages.join(reads)
        try:
            deadline_s = time.monotonic() + _CATCH_UP_S
            while time.monotonic() < deadline_s:
                check_wanted()
                with self._messages.lock:
                    if self._messages.has_caught_up():
                        break
                time.sleep(_LOOK_S)
        finally:
            self._messages.leave(reads)
        found = tried(self.client, subscription, self._messages.newest.records(), self._shared.budget.draft_ms)
        return found if refused is None else {**refused, **{name: found[name] for name in ("inside", "looked", "since_ms")}}

    def plan(self, *, renewed: bool = False) -> tuple[int, dict[str, Any]]:
        """Return version and content of the distribution plan that the topology follows, not older than some seconds.

        :param renewed: read it again in any case.
        :raises TopologyError: the topology does not run.
        """
        with self._plan_held():
            return self._current(renewed)

    def partitions(self) -> dict[str, Any]:
        """Return the partitions of the plan, as JSON-able data."""
        return self._of_plan("partitions", partitions_of)

    def plan_numbers(self, version: int) -> dict[str, Any]:
        """Return how many ``partitions`` a version of the plan has, and the ``balance`` that it expects; None if Kafka has that version no more.

        :param version: one of those that were in force when something was measured that is kept, so there are at most :data:`~dskype.deploy.web.trend.EARLIER`.
        """
        with self._plan_held():
            if version not in self._numbers:
                plan = read_version(self.client, version)
                found = None if plan is None else partitions_of((version, plan))
                self._numbers[version] = (
                    {"partitions": None, "balance": None} if found is None else {"partitions": len(found["partitions"]), "balance": found["balance"]}
                )
                if len(self._numbers) > EARLIER:
                    del self._numbers[next(iter(self._numbers))]
            return self._numbers[version]

    def picture(self) -> str:
        """Return a picture of the plan."""
        return self._of_plan("picture", lambda current: plan_picture.draw(current[1]))

    def _plan_held(self) -> AbstractContextManager[None]:
        return holding(self._planning, self._shared.budget.topic_read_wait_s)

    def _current(self, renewed: bool = False) -> tuple[int, dict[str, Any]]:
        if renewed or self._plan is None or time.monotonic() - self._plan[0] > _PLAN_S:
            self._plan = time.monotonic(), read_current(self.client)
        return self._plan[1]

    def _of_plan(self, name: str, make: Callable[[tuple[int, dict[str, Any]]], T]) -> T:
        """Return what is made of the plan; it is made once for each version, and not for each client."""
        with self._plan_held():
            current = self._current()
            made = self._made.get(name)
            if made is None or made[0] != current:
                made = self._made[name] = current, make(current)
            return made[1]

    def describe(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return a result with text and place of its message, if somebody follows the messages and it is known."""
        return self._messages.describe(result)

    def close(self) -> None:
        """Stop, and close the connections."""
        self._results.close()
        self._messages.close()
        self.client.close(check=False)


class Feeds:
    """The feeds of a cluster's topologies, opened when they are asked for.

    :param kafka: how to reach the brokers.
    :param source: the topologies: a :class:`~dskype.deploy.metrics.ui_server.FollowedCluster`, or what has its methods.
    :param budget: what readers may use; default: the usual limits.
    :param tenants: whether some readers are tenants.
    :ivar sent: counts what tenants are sent.
    """

    def __init__(self, kafka: Any, source: Any, budget: Budget | None = None, *, tenants: bool = False) -> None:
        self._kafka, self.source = kafka, source
        self._shared = Shared(kafka, budget or Budget(), tenants)
        self.sent = self._shared.sent
        self._names = TopicNames()
        self._lock = threading.Lock()
        self._feeds: dict[str, TopologyFeed] = {}

    def names(self) -> list[str]:
        """Return the names of the DSkype topologies that run."""
        return [view.name for view in self.source.topologies() if SUBSCRIPTION_BOLT in view.plan.components]

    def name_of(self, name: str | None) -> str:
        """Return the name of a topology.

        :param name: None: the only one that runs.
        :raises NotAliveException: none is named, and none runs.
        :raises IllegalArgumentException: none is named, and several run.
        """
        if name is not None:
            return name
        names = self.names()
        if len(names) == 1:
            return names[0]
        raise (IllegalArgumentException if names else NotAliveException)(
            explain("Expected the name of a DSkype topology: not exactly one runs.", given=len(names), legal=", ".join(names) or "none runs")
        )

    def of(self, name: str | None) -> TopologyFeed:
        """Return the feed of a topology.

        :param name: None: the only one that runs.
        :raises NotAliveException: there is none of that name.
        :raises IllegalArgumentException: no name is given, and several run.
        """
        name = self.name_of(name)
        with self._lock:
            known = self._feeds.get(name)
        if known is not None and known.is_current():
            return known
        record = self._record(name)
        conf = None if record is None else conf_of(record)
        topics = None if record is None else message_topics(record, name, Settings.from_conf(conf or {}))
        client = PubSub(self._kafka, name, conf=conf, timeout_s=10, names=self._names, message_topics=topics)
        try:
            client.require(*client.message_topics.names)
        except UnknownTopicError as error:
            raise NotAliveException(str(error)) from None
        with self._lock:  # kept only for topics that are there, so there are not more than these
            if self._feeds.get(name) is not known:  # another request was faster
                return self._feeds[name]
            found = self._feeds[name] = TopologyFeed(client, self._shared, lambda: self._record(name))
        if known is not None:  # whoever follows it is told to come back
            known.close()
        return found

    def _record(self, name: str) -> Mapping[str, Any] | None:
        """Return the record of a topology that runs, as far as the server knows."""
        try:
            return next((view.record for view in self.source.topologies() if view.name == name and "conf" in view.record.get("state", ())), None)
        except TopologyError:  # the brokers have never answered
            return None

    def close(self) -> None:
        """Stop all."""
        for feed in list(self._feeds.values()):
            feed.close()
        self._shared.close()
