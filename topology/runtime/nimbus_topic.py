"""Nimbus without a daemon: states of topologies and commands to them in one compacted topic.

Keys and values (JSON)::

    topology:<name>   {"v": 1, "state": ..., "summary": ..., "driver": {"host", "pid"}, "heartbeat_ms"}   null: removed
    command:<id>      {"v": 1, "name", "event", "wait_secs", "workers", "executors"}                       null: done
    answer:<id>       {"v": 1, "error": null | {"type", "text"}}                                          null: read

The process that runs a topology listens for its commands (:class:`NimbusService`); a command line in
another shell writes them (:class:`ClusterClient`). Every state survives the restart of everything.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from typing import Any, Mapping

from kafka import TopicPartition
from kafka.errors import KafkaError

from dskype.topology import errors as topology_errors
from dskype.topology.core.stats import TopologyStats
from dskype.topology.errors import NotAliveException, TopologyError
from dskype.topology.lifecycle import Keeper, ManagedTopology
from dskype.topology.nimbus import Rebalance, TopologyState
from dskype.topology.plan import inbox_topic, metrics_topic
from dskype.topology.redaction import redact_text
from dskype.topology.runtime.kafka import KafkaSettings, KafkaTimeoutError, TopicAdmin, read_to_end

__all__ = ["NIMBUS_TOPIC", "ClusterClient", "NimbusService", "load_states"]

log = logging.getLogger(__name__)

NIMBUS_TOPIC = "__dskype-nimbus"
_COMPACTED = {"cleanup.policy": "compact", "segment.ms": "60000", "min.cleanable.dirty.ratio": "0.1", "delete.retention.ms": "60000"}
_HEARTBEAT_S = 2.0
_DEAD_AFTER_MS = 10_000


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _ensure_topic(kafka: KafkaSettings) -> None:
    admin = TopicAdmin(kafka)
    try:
        admin.create({NIMBUS_TOPIC: 1}, _COMPACTED)
    finally:
        admin.close()


def _latest(kafka: KafkaSettings, prefix: str) -> dict[str, dict[str, Any]]:
    """Return the newest value of every key with a prefix; removed ones are left out."""
    found: dict[str, dict[str, Any]] = {}
    for record in read_to_end(kafka, NIMBUS_TOPIC):
        key = (record.key or b"").decode(errors="replace")
        if key.startswith(prefix):
            if record.value is None:
                found.pop(key[len(prefix):], None)
            else:
                found[key[len(prefix):]] = json.loads(record.value)
    return found


def load_states(kafka: KafkaSettings) -> dict[str, dict[str, Any]]:
    """Return name -> record of every topology that is not removed."""
    return _latest(kafka, "topology:")


def is_alive(record: Mapping[str, Any]) -> bool:
    """Tell whether the driver of a topology has shown itself lately, and on this machine: whether it is there."""
    if _now_ms() - record.get("heartbeat_ms", 0) >= _DEAD_AFTER_MS:
        return False
    driver = record["driver"]
    if driver["host"] != socket.gethostname():
        return True
    try:
        os.kill(driver["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class NimbusService:
    """Publishes the states of a keeper's topologies and carries out commands for them.

    :param lock: held while the keeper is used.
    """

    def __init__(self, kafka: KafkaSettings, lock: threading.RLock) -> None:
        self._kafka, self._lock = kafka, lock
        self._keeper: Keeper | None = None
        self._publishing = threading.Lock()
        _ensure_topic(kafka)
        self._producer = kafka.producer()
        self._stop = threading.Event()
        self._driver = {"host": socket.gethostname(), "pid": os.getpid()}
        self._threads = [threading.Thread(target=run, name=f"nimbus-{run.__name__}", daemon=True)
                         for run in (self._run_commands, self._run_heartbeat)]

    def start(self, keeper: Keeper) -> None:
        """Begin to listen."""
        self._keeper = keeper
        for thread in self._threads:
            thread.start()

    @property
    def driver(self) -> dict[str, Any]:
        """Host and process id, as they are published."""
        return self._driver

    def publish(self, managed: ManagedTopology, *, removed: bool = False) -> None:
        """Write a topology's state, or its removal; a broker that is away hears of it with the next heartbeat."""
        try:
            with self._publishing:
                name = managed.state.name
                if removed:
                    self._put(f"topology:{name}", None)
                elif self._keeper.topologies.get(name) is managed:  # a heartbeat must not bring back what is gone
                    self._put(f"topology:{name}", {"v": 1, "state": managed.state.to_json(), "summary": self._keeper.summary(name),
                                                   "driver": self._driver, "heartbeat_ms": _now_ms()})
        except NotAliveException:
            pass  # it is being removed
        except KafkaError as error:
            log.warning("nimbus cannot write the state of topology %s: %s; trying again", managed.state.name, error)

    def close(self) -> None:
        """Stop listening; the states stay as they are."""
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=5)
        self._producer.close(timeout=5)

    def _put(self, key: str, value: Any) -> None:
        self._producer.send(NIMBUS_TOPIC, key=key.encode(), value=None if value is None else json.dumps(value).encode())
        self._producer.flush(timeout=30)

    def _run_heartbeat(self) -> None:
        # Without the keeper's lock: a rebalance holds it for long, and must not look like a dead driver.
        while not self._stop.wait(_HEARTBEAT_S):
            for managed in list(self._keeper.topologies.values()):
                self.publish(managed)

    def _run_commands(self) -> None:
        consumer = self._kafka.consumer(fetch_max_wait_ms=500)
        try:
            where = TopicPartition(NIMBUS_TOPIC, 0)
            consumer.assign([where])
            consumer.seek_to_end(where)
            while not self._stop.is_set():
                try:
                    for record in consumer.poll(timeout_ms=500).get(where, ()):
                        key = (record.key or b"").decode(errors="replace")
                        if key.startswith("command:") and record.value is not None:
                            self._command(key.removeprefix("command:"), json.loads(record.value))
                except KafkaError as error:
                    log.warning("nimbus cannot read commands: %s; trying again", error)
                    self._stop.wait(1)
        finally:
            consumer.close()

    def _command(self, identity: str, command: dict[str, Any]) -> None:
        with self._lock:
            if command.get("name") not in self._keeper.topologies:
                return  # another driver's
            failure = None
            try:
                rebalance = Rebalance(command.get("workers"), command.get("executors") or {})
                self._keeper.command(command["name"], command["event"], wait_secs=command.get("wait_secs"),
                                     rebalance=rebalance if command["event"] == "REBALANCE" else None)
            except TopologyError as error:
                failure = {"type": type(error).__name__, "text": str(error)}
            except Exception as error:  # whatever went wrong, the one who asked must hear of it
                log.exception("command %s failed", command)
                failure = {"type": "TopologyError", "text": redact_text(f"{type(error).__name__}: {error}")}
        self._put(f"answer:{identity}", {"v": 1, "error": failure})
        self._put(f"command:{identity}", None)


class ClusterClient:
    """What the command line's verbs use to look at topologies and to command them.

    :param kafka: the brokers of the cluster.
    """

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka

    def topologies(self) -> list[dict[str, Any]]:
        """Return the summaries of all topologies by name; ``driver_alive`` tells whether their process is there."""
        return [{**record["summary"], "driver_alive": is_alive(record), "driver": record["driver"],
                 "uptime_secs": max(0, (_now_ms() - record["state"]["submitted_ms"]) // 1000)}
                for _, record in sorted(load_states(self._kafka).items())]

    def _record(self, name: str) -> dict[str, Any]:
        record = load_states(self._kafka).get(name)
        if record is None:
            raise NotAliveException.of(name)
        return record

    def send(self, command: Mapping[str, Any], timeout_s: float = 60) -> None:
        """Send ``{"name", "event", ...}`` to the process that runs the topology and wait for its answer.

        Killing a topology whose process is gone removes what it has left.

        :raises NotAliveException: no such topology.
        :raises TopologyError: what the other side refused, with its text; or nobody answered.
        """
        name = command["name"]
        record = self._record(name)
        if not is_alive(record):
            if command["event"] == "KILL":
                self._remove_left_over(record)
                return
            msg = (f"the process that runs topology {name!r} is gone (pid {record['driver']['pid']} on {record['driver']['host']}); "
                   "hint: submit it again to resume it, or kill it to remove what it has left")
            raise TopologyError(msg)
        identity = uuid.uuid4().hex
        consumer, producer = self._kafka.consumer(fetch_max_wait_ms=100), self._kafka.producer()
        try:
            where = TopicPartition(NIMBUS_TOPIC, 0)
            consumer.assign([where])
            consumer.seek_to_end(where)
            consumer.position(where)
            producer.send(NIMBUS_TOPIC, key=f"command:{identity}".encode(), value=json.dumps({"v": 1, **command}).encode())
            producer.flush(timeout=30)
            deadline = time.monotonic() + timeout_s
            while time.monotonic() < deadline:
                for answer in consumer.poll(timeout_ms=200).get(where, ()):
                    if answer.key == f"answer:{identity}".encode() and answer.value is not None:
                        producer.send(NIMBUS_TOPIC, key=answer.key, value=None)
                        producer.flush(timeout=30)
                        _raise(json.loads(answer.value)["error"])
                        return
        finally:
            producer.close(timeout=5)
            consumer.close()
        msg = f"topology {name!r} did not answer within {timeout_s:g} s; expected an answer to {command['event']}; hint: see the log of its process"
        raise KafkaTimeoutError(msg)

    def _remove_left_over(self, record: Mapping[str, Any]) -> None:
        name, components = record["state"]["name"], record["state"]["components"]
        admin = TopicAdmin(self._kafka)
        try:
            admin.delete([inbox_topic(name, c) for c in (*components, "__acker")] + [metrics_topic(name)])
        finally:
            admin.close()
        producer = self._kafka.producer()
        producer.send(NIMBUS_TOPIC, key=f"topology:{name}".encode(), value=None)
        producer.close(timeout=30)

    def stats(self, name: str) -> TopologyStats:
        """Return the newest statistics of every task of a topology, and its last errors."""
        self._record(name)
        stats = TopologyStats()
        for record in read_to_end(self._kafka, metrics_topic(name)):
            stats.feed(record.value)
        return stats

    def errors(self, name: str) -> dict[str, list[dict[str, Any]]]:
        """Return component -> errors, newest last."""
        found: dict[str, list[dict[str, Any]]] = {}
        for error in self.stats(name).errors:
            found.setdefault(error["component"], []).append({**error, "error": redact_text(error["error"])})
        return found

    def state(self, name: str) -> TopologyState:
        """Return a topology's stored state."""
        return TopologyState.from_json(self._record(name)["state"])


def _raise(error: Mapping[str, str] | None) -> None:
    """Raise the error that the other side sent, as the class it names if that is one of ours."""
    if error is None:
        return
    kind = getattr(topology_errors, error["type"], TopologyError)
    if not (isinstance(kind, type) and issubclass(kind, TopologyError)):
        kind = TopologyError
    failure = kind.__new__(kind)
    Exception.__init__(failure, error["text"])
    raise failure
