"""Deliver results to webhooks: one thread, one Kafka consumer and one place in the topics for each receiver, so that none waits for another."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from kafka.errors import KafkaError

from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.machine.folders import OwnedFolder
from dskype.deploy.web.deliveries import Counts, Delivery, letters_topic
from dskype.deploy.web.directory import Directory
from dskype.deploy.web.paced_delivery import PacedDelivery
from dskype.deploy.web.result_rates import ResultRates, TenantResults
from dskype.deploy.web.webhook_settings import Webhook
from dskype.spouts.settings import Settings
from dskype.spouts.tenants import Quota
from dskype.topology.errors import IllegalArgumentException, TopologyError
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin

__all__ = ["PresentQuotas", "Webhooks"]

_FRESH_S = 60.0
_KEEP = {"cleanup.policy": "delete", "retention.ms": str(30 * 86_400_000)}


class PresentQuotas:
    """The quotas of a topology's tenants, which may change when it is resumed. They are read again when they are older than a minute, and kept while that does not work.

    :param client: of the topology.
    :param clock_s: a clock that never goes back.
    """

    def __init__(self, client: PubSub, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock_s, self._lock = client, clock_s, threading.Lock()
        self._quotas: Mapping[str, Quota] | None = None
        self._read_at_s = 0.0

    def __call__(self) -> Mapping[str, Quota]:
        """Return tenant -> its quotas."""
        with self._lock:
            if self._quotas is None:
                self._quotas, self._read_at_s = self._client.settings.tenants, self._clock_s()
            elif self._clock_s() - self._read_at_s >= _FRESH_S:
                self._read_at_s = self._clock_s()
                with contextlib.suppress(KafkaError, OSError, TopologyError):
                    if (conf := self._client.running_conf()) is not None:
                        self._quotas = Settings.from_conf(conf).tenants
            return self._quotas


class Webhooks:
    """Delivers to all receivers, each in a thread of its own.

    :param kafka: the brokers.
    :param topology: its name.
    :param webhooks: the receivers.
    :param say: gets lines of text.
    :param state: the folder for what receivers with a pace, now or before, have to be told later. Each cluster, topology and receiver has a folder there, which one process may use.
    :ivar sent: counts what tenants are sent.
    """

    def __init__(self, kafka: KafkaSettings, topology: str, webhooks: Sequence[Webhook], say: Callable[[str], None], state: Path) -> None:
        self._client, self._webhooks, self._stop, self._say, self._state = PubSub(kafka, topology), webhooks, threading.Event(), say, state
        self._deliveries: dict[str, Delivery] = {}
        self._threads: list[threading.Thread] = []
        self._folders: list[OwnedFolder] = []
        self._directory = Directory(self._client, tenants=True, states=False)
        self.sent = TenantResults()
        self._rates = ResultRates(PresentQuotas(self._client), topology, self.sent)

    def __enter__(self) -> Webhooks:
        self._client.require(self._client.topics.results)
        with TopicAdmin(self._client.kafka) as admin:
            topic = letters_topic(self._client.name)
            if not admin.existing([topic]):
                admin.create({topic: 1}, _KEEP)
            if self._state.is_dir() or any(webhook.is_paced for webhook in self._webhooks):
                self._state /= Path(admin.cluster_id(), self._client.name)
        try:
            self._deliveries = {webhook.name: self._delivery(webhook) for webhook in self._webhooks}
        except BaseException:
            self._release()
            raise
        self._threads = [threading.Thread(target=d.run, name=f"webhook-{name}", daemon=True) for name, d in self._deliveries.items()]
        for thread in self._threads:
            thread.start()
        return self

    def _delivery(self, webhook: Webhook) -> Delivery:
        """Return what delivers to a receiver.

        :raises DeployError: its folder cannot be used, or another process uses it.
        :raises IllegalArgumentException: what the folder holds cannot be used.
        """
        delivery = self._made(webhook)
        if webhook.tenant is not None:
            if self._client.settings.matches == "grouped":
                hint = "dskype.results.matches: each"
                words = f"Grouped matches do not say which registrations they are of, so webhook {webhook.name} cannot keep to a tenant."
                raise IllegalArgumentException(words, given=webhook.tenant, hint=hint)
            delivery.keep_to(partial(self._directory.owned, webhook.tenant), self._rates.of(webhook.tenant))
        return delivery

    def _made(self, webhook: Webhook) -> Delivery:
        made = (self._client.kafka, self._client, webhook, self._stop, self._say)
        if not webhook.is_paced and not (self._state / webhook.name).is_dir():
            return Delivery(*made)
        # One that had a pace before goes on where its database says, and sends what is held there.
        self._folders.append(OwnedFolder.take(self._state / webhook.name))
        return PacedDelivery(*made, self._folders[-1].path / "state.sqlite")

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=30)
        self._release()
        for name, counts in self.counts().items():
            self._say(f"{name}: {counts.results:,} results in {counts.requests:,} requests, {counts.retries:,} further attempts, {counts.dead:,} dead letters")

    def _release(self) -> None:
        for folder in self._folders:
            folder.release()
        self._client.close(check=False)

    def counts(self) -> dict[str, Counts]:
        """Return name -> what has been done for the receiver."""
        return {name: delivery.counts() for name, delivery in self._deliveries.items()}
