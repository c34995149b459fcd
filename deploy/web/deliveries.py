"""Deliver results to one receiver, from one place in the topics to the next."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from dskype.deploy.client.follower import Once
from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.web.findings import Found, found_in
from dskype.deploy.web.places import Place
from dskype.deploy.web.result_rates import TenantRate
from dskype.deploy.web.webhook_delivery import Failure, Sender
from dskype.deploy.web.webhook_settings import Webhook
from dskype.topology.errors import TopologyError
from dskype.topology.planning.plan import inbox_topic
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.reading import partitions_to_follow

__all__ = ["Counts", "Delivery", "group_of", "letters_topic", "split"]

log = logging.getLogger(__name__)

_POLL_S = 0.5
_RECORDS = 500
_BODY_BYTES = 256 << 10
"""A request with more results than this is split; a single result may be larger."""
_COMMIT_S = 5.0
_AWAY_S = 2.0
_REMEMBERED = 4096


def letters_topic(topology: str) -> str:
    """Return the topic of requests that could not be delivered."""
    return inbox_topic(topology, "webhook-dead-letters")


def group_of(topology: str, webhook: str) -> str:
    """Return the Kafka group under which the place of a webhook is kept."""
    return f"dskype-webhook-{topology}-{webhook}"


class Counts(NamedTuple):
    """What a delivery has done since its start: requests that arrived and the results in them, further attempts, and dead letters."""

    requests: int = 0
    results: int = 0
    retries: int = 0
    dead: int = 0


class Delivery:
    """Delivers to one receiver, until told to stop.

    A place is committed when everything before it has arrived or is a dead letter. After a crash at most what one poll returned is sent again, and
    repetitions have the same ``result_id``.

    :param kafka: the brokers.
    :param client: of the topology.
    :param webhook: the receiver.
    :param stop: set to end.
    :param say: gets a line of text when something fails, and when it works again.
    """

    def __init__(self, kafka: KafkaSettings, client: PubSub, webhook: Webhook, stop: threading.Event, say: Callable[[str], None]) -> None:
        self._kafka, self._client, self._webhook, self._stop, self._say = kafka, client, webhook, stop, say
        self._sender = Sender(webhook, stop.wait, say)
        self._once = Once(_REMEMBERED)
        self._places: dict[TopicPartition, Place] = {}
        self._committed: dict[TopicPartition, Place] = {}
        self._committed_at = time.monotonic()
        self._requests = self._results = self._dead = 0
        self._mine: Callable[[Sequence[tuple[str, str]]], list[bool]] | None = None
        self._rate: TenantRate | None = None

    def keep_to(self, mine: Callable[[Sequence[tuple[str, str]]], list[bool]], rate: TenantRate) -> None:
        """Deliver only what is of one tenant, at its rate; called before :meth:`run`.

        :param mine: tells of each pair of a subscription and a registration whether it is the tenant's.
        :param rate: says how long results have to wait, and counts them.
        """
        self._mine, self._rate = mine, rate

    def _found(self, record: Any) -> list[Found]:
        """Return the results of a record that are for the receiver."""
        found = [one for one in found_in(record, self._client.topics, self._webhook.subscriptions) if one.name == "result"]
        if self._mine is None or not found:
            return found
        pairs = [(one.subscription, one.data["result_id"].partition("/")[0]) for one in found]
        return [one for one, is_mine in zip(found, self._mine(pairs)) if is_mine]

    def counts(self) -> Counts:
        """Return what has been done."""
        return Counts(self._requests, self._results, self._sender.retries, self._dead)

    def run(self) -> None:
        """Deliver until told to stop. After an error, for example while the brokers are away, it begins again at the last committed place."""
        while not self._stop.is_set():
            consumer = None
            try:
                consumer = self._open()
                while not self._stop.is_set():
                    self._step(consumer)
            except (KafkaError, OSError, TopologyError) as error:
                self._say(f"{self._webhook.name}: Kafka cannot be used ({error or type(error).__name__}); trying again")
                self._stop.wait(_AWAY_S)
            except Exception as error:  # keep trying: no receiver may be forgotten while the process runs
                log.exception("webhook %s", self._webhook.name)
                self._say(f"{self._webhook.name}: cannot deliver ({type(error).__name__}: {error}); trying again")
                self._stop.wait(_AWAY_S)
            finally:
                if consumer is not None:
                    consumer.close()
        self._sender.close()

    def _open(self) -> Any:
        """Return a consumer at the places that are committed; where there is none, at the start."""
        consumer = self._kafka.consumer(group_id=group_of(self._client.name, self._webhook.name), allow_auto_create_topics=False)
        try:
            partitions = partitions_to_follow(consumer, self._client.result_topics())
            consumer.assign(partitions)
            first, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
            # What was seen is forgotten: it may not have arrived, and is read again.
            self._places, self._committed, self._once = {}, {}, Once(_REMEMBERED)
            for partition in partitions:
                kept = self._kept(consumer, partition)
                if kept is None:
                    place = Place(ends[partition] if self._webhook.start == "now" else first[partition])
                elif kept.offset < first[partition]:
                    self._say(f"{self._webhook.name}: {first[partition] - kept.offset} records of {partition.topic} are lost: Kafka has dropped them")
                    place = Place(first[partition])
                else:  # behind the end: the topic was made anew
                    place = Place(first[partition]) if kept.offset > ends[partition] else kept
                self._places[partition] = place
                consumer.seek(partition, place.offset)
            self._commit(consumer)  # so that "now" stays where it was, whatever happens
            return consumer
        except BaseException:
            consumer.close()
            raise

    def _kept(self, consumer: Any, partition: TopicPartition) -> Place | None:
        """Return the place where an earlier process stopped."""
        kept = consumer.committed(partition, metadata=True)
        return None if kept is None else Place(kept.offset, int(kept.metadata or 0))

    def _step(self, consumer: Any) -> None:
        """Deliver what one poll returns, and commit."""
        waiting: list[tuple[Found | None, TopicPartition, Place]] = []
        ready = 0
        for partition, records in consumer.poll(timeout_ms=int(_POLL_S * 1000), max_records=_RECORDS).items():
            for record in records:
                found = self._found(record)
                for one, behind in self._places[partition].left_of(record.offset, found):
                    waiting.append((one, partition, behind))
                    ready += 1
                    if ready >= self._webhook.batch:
                        ready = 0
                        if not self._delivered(waiting, consumer):
                            return
                if not waiting:
                    self._places[partition] = Place(record.offset + 1)
                elif not found:  # passed when what waits has arrived
                    waiting.append((None, partition, Place(record.offset + 1)))
        if waiting and not self._delivered(waiting, consumer):
            return
        if time.monotonic() - self._committed_at > _COMMIT_S:
            self._commit(consumer)

    def _delivered(self, waiting: list[tuple[Found | None, TopicPartition, Place]], consumer: Any) -> bool:
        """Deliver what waits, and go on to the places behind it; return False if it is time to stop.

        :param waiting: no more results than the receiver wants in a request; None stands for records without results.
        """
        new = [one.data for one, _, _ in waiting if one is not None and self._once.first(one.identity)]
        for some in split(new):
            if not self._deliver(some):
                return False
        for _, partition, place in waiting:
            self._places[partition] = place
        waiting.clear()
        self._commit(consumer)
        return True

    def _deliver(self, found: Sequence[dict[str, Any]]) -> bool:
        return self._send(self._request("results", found), len(found))

    def _request(self, name: str, rows: Sequence[dict[str, Any]]) -> bytes:
        """Return the body of a request."""
        body = json.dumps({"type": f"dskype.{name}", "topology": self._client.name, "webhook": self._webhook.name, name: rows}, ensure_ascii=False)
        return body.encode(errors="replace")

    def _send(self, body: bytes, results: int) -> bool:
        """Send a request until it has arrived or is a dead letter; return False if it is time to stop.

        :param results: how many are in it.
        """
        wait_s = 0.0 if self._rate is None else self._rate.wait_s(results)
        if wait_s > 0 and self._stop.wait(wait_s):
            return False
        id = f"msg_{hashlib.sha256(body).hexdigest()[:32]}"  # the same for each attempt, after a crash as well if the same results are sent together
        failure = self._sender.send(id, body)
        if failure is None:
            self._requests += 1
            self._results += results
            if self._rate is not None:
                self._rate.note(results, wait_s)
            return True
        if self._stop.is_set() and failure.again:
            return False
        self._bury(id, body, failure)
        return True

    def _bury(self, id: str, body: bytes, failure: Failure) -> None:
        """Write a request that could not be delivered to the dead letters, and wait until Kafka has it."""
        self._dead += 1
        self._say(f"{self._webhook.name}: {failure.reason}; the request {id} is now a dead letter")
        texts = {"error": failure.reason, "webhook": self._webhook.name, "webhook-id": id, "status": "" if failure.status is None else str(failure.status)}
        producer = self._kafka.producer()
        try:
            headers = [(name, text.encode()) for name, text in texts.items()]
            producer.send(letters_topic(self._client.name), body, key=self._webhook.name.encode(), headers=headers).get()
        finally:
            producer.close()

    def _commit(self, consumer: Any) -> None:
        self._committed_at = time.monotonic()
        changed = {partition: place for partition, place in self._safe_places().items() if self._committed.get(partition) != place}
        if changed:
            consumer.commit({partition: OffsetAndMetadata(place.offset, str(place.taken), -1) for partition, place in changed.items()})
            self._committed.update(changed)

    def _safe_places(self) -> dict[TopicPartition, Place]:
        """Return the places before which everything has arrived or is a dead letter."""
        return self._places


def split(rows: Sequence[dict[str, Any]], most: int | None = None) -> list[list[dict[str, Any]]]:
    """Return what is to be sent in parts that are not too large.

    :param most: rows of a part, at most; default: any number.
    """
    parts: list[list[dict[str, Any]]] = []
    size = 0
    for row in rows:
        length = len(json.dumps(row, ensure_ascii=False).encode(errors="replace"))
        if not parts or size + length > _BODY_BYTES or len(parts[-1]) == most:
            parts.append([])
            size = 0
        parts[-1].append(row)
        size += length
    return parts
