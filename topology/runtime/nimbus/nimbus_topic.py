"""Nimbus without a daemon: states of topologies and commands to them in one compacted topic.

Keys and values (JSON)::

    topology:<name>   {"v": 1, "state", "summary", "driver": {"host", "pid", "machine", "started"}, "heartbeat": n,
                       "files": [[keys of the configuration, path of the copy], ...], "plan": components,
                       "logs": folder on the driver's machine | null,
                       "store": URL of its state if other hosts reach it, else null}                                 null: removed
    standby:<token>/<name>  {"v": 1, "driver": as above, "beat": n}: waits beside the topology's driver               null: it has ended
    command:<id>      {"v": 1, "name", "event", "wait_secs", "workers", "executors"}, or
                      {"v": 1, "name", "event": "DEBUG", "percent", "component"}                                      null: done
    answer:<id>       {"v": 1, "error": null | {"type", "text"}}                                                      null: read
    removed:<name>    {"v": 1, "id": topology id}: killed while its driver was away                                   null: its folder is gone, too

The process that runs a topology listens for its commands (:class:`NimbusService`); a command line in another shell
writes them (:class:`ClusterClient`). States survive a restart of all processes. Anyone with access to the topic may write
arbitrary records to it: a record that does not have the expected shape is ignored, with a warning.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any, NamedTuple

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from dskype.topology import errors as topology_errors
from dskype.topology.config import Config
from dskype.topology.core.redaction import redact_text
from dskype.topology.core.stats import TopologyStats
from dskype.topology.core.steady_clock import now_ms
from dskype.topology.errors import NotAliveException, TopologyError
from dskype.topology.nimbus.manager import ManagedTopology, TopologyManager
from dskype.topology.nimbus.observing import seen_health, started_ms
from dskype.topology.nimbus.states import TopologyState
from dskype.topology.planning.outline import PlanOutline
from dskype.topology.planning.plan import chunks_topic, inbox_topic, metrics_topic, state_topic
from dskype.topology.planning.system import system_bolts
from dskype.topology.runtime.kafka.clients import KafkaSettings, KafkaTimeoutError
from dskype.topology.runtime.kafka.reading import read_to_end
from dskype.topology.runtime.kafka.record_producer import Delivery, RecordProducer
from dskype.topology.runtime.kafka.topic_admin import OWN_TOPIC, TopicAdmin
from dskype.topology.runtime.kafka.write_watch import WriteWatch, write_once
from dskype.topology.runtime.nimbus.liveness import DEAD_AFTER_S, HEARTBEAT_S, STANDBY_GONE_AFTER_S, HeartbeatWatch, alive_on_this_machine, describe_driver
from dskype.topology.runtime.stores.kept_files import declared_files, with_paths

__all__ = [
    "NIMBUS_TOPIC",
    "ClusterClient",
    "NimbusService",
    "Observed",
    "conf_of",
    "follow",
    "load_removed",
    "load_states",
    "observe",
    "read_record",
    "read_standby",
    "watch_drivers",
    "write_standby",
]

log = logging.getLogger(__name__)

NIMBUS_TOPIC = "__dskype-nimbus"
_WHERE = TopicPartition(NIMBUS_TOPIC, 0)
_COMPACTED = {**OWN_TOPIC, "cleanup.policy": "compact", "segment.ms": "60000", "min.cleanable.dirty.ratio": "0.1", "delete.retention.ms": "60000"}
_TOPOLOGY, _STANDBY, _REMOVED, _COMMAND, _ANSWER = "topology:", "standby:", "removed:", "command:", "answer:"
_SHORT_MS = 1_000


def _ensure_topic(kafka: KafkaSettings) -> None:
    with TopicAdmin(kafka) as admin:
        admin.create({NIMBUS_TOPIC: 1}, _COMPACTED)


def _send(producer: RecordProducer, key: str, value: Any) -> Delivery:
    """Write a record, with null for None, and return what becomes of it."""
    return producer.send(NIMBUS_TOPIC, None if value is None else json.dumps(value).encode(), key=key.encode())


def _consumer_at_end(kafka: KafkaSettings, **arguments: Any) -> KafkaConsumer:
    """Return a consumer of the topic that begins at its end; the caller closes it."""
    consumer = kafka.consumer(**arguments)
    consumer.assign([_WHERE])
    consumer.seek_to_end(_WHERE)
    return consumer


def _all_read(consumer: Any, timeout_ms: int = 30_000) -> bool:
    """Tell whether a consumer has read all that the topic has.

    :raises KafkaError: the brokers do not answer.
    """
    end = consumer.end_offsets([_WHERE], timeout_ms=timeout_ms)[_WHERE]
    return consumer.position(_WHERE, timeout_ms=timeout_ms) >= end


def _parse(kind: str, value: bytes) -> dict[str, Any] | None:
    """Return the document in a record's value; None if it does not have the shape of its kind."""
    with suppress(ValueError, RecursionError):
        document = json.loads(value)
        match kind, document:
            case (
                (
                    "topology:",
                    {"v": 1, "state": {"name": str(), "components": list(), "submitted_ms": int()}, "summary": dict(), "driver": {"host": str(), "pid": int()}},
                )
                | ("standby:", {"v": 1, "driver": {"host": str(), "pid": int()}, "beat": int()})
                | ("removed:", {"v": 1, "id": str()})
                | ("command:", {"v": 1, "name": str(), "event": str()})
                | ("answer:", {"v": 1, "error": None | {"type": str(), "text": str()}})
            ):
                return document
    log.warning("a record of topic %s is ignored: expected the value of a %s key, given: %r", NIMBUS_TOPIC, kind, value[:60])
    return None


def read_record(record: Any, kind: str = _TOPOLOGY) -> tuple[str, dict[str, Any] | None]:
    """Return what follows the kind in a record's key, the name of a topology unless another kind is given, and its document.

    The document is None if the topology was removed. A record of another kind, or without the shape of its kind, has an empty name.

    :param record: a record of the topic, as a consumer returns it.
    """
    key = (record.key or b"").decode(errors="replace")
    if not key.startswith(kind):
        return "", None
    document = None if record.value is None else _parse(kind, record.value)
    return ("", None) if record.value is not None and document is None else (key.removeprefix(kind), document)


def _newest(kafka: KafkaSettings, kind: str) -> dict[str, tuple[dict[str, Any], int]]:
    """Return the newest document of every key of a kind, and when it was written (epoch ms), without removed keys."""
    found: dict[str, tuple[dict[str, Any], int]] = {}
    for record in read_to_end(kafka, NIMBUS_TOPIC):
        name, document = read_record(record, kind)
        found.pop(name, None)
        if document is not None:
            found[name] = document, record.timestamp_ms
    return found


def _latest(kafka: KafkaSettings, kind: str) -> dict[str, dict[str, Any]]:
    """Return the newest document of every key of a kind, without removed keys."""
    return {name: document for name, (document, _) in _newest(kafka, kind).items()}


def read_standby(record: Any) -> tuple[str, str, bool]:
    """Return the topology's name and the token of a standby, and whether it is still there; the name is empty if the record is about anything else.

    :param record: a record of the topic, as a consumer returns it.
    """
    found, document = read_record(record, _STANDBY)
    token, _, name = found.partition("/")
    return name, token, document is not None


def write_standby(producer: RecordProducer, name: str, token: str, document: Mapping[str, Any] | None) -> Delivery:
    """Write the record of a standby, null for None, and return what becomes of it."""
    return _send(producer, f"{_STANDBY}{token}/{name}", document)


def follow(kafka: KafkaSettings) -> KafkaConsumer:
    """Return a consumer of the topic, which is created if it is missing, from its beginning; the caller closes it."""
    _ensure_topic(kafka)
    consumer = kafka.consumer()
    consumer.assign([_WHERE])
    return consumer


def load_states(kafka: KafkaSettings) -> dict[str, dict[str, Any]]:
    """Return name -> document of every topology that is not removed."""
    return _latest(kafka, _TOPOLOGY)


def load_removed(kafka: KafkaSettings) -> dict[str, str]:
    """Return name -> topology id of topologies that were killed while their driver was away; their folders may still exist."""
    return {name: record["id"] for name, record in _latest(kafka, _REMOVED).items()}


def watch_drivers(kafka: KafkaSettings, records: Mapping[str, Mapping[str, Any]]) -> dict[str, bool]:
    """Tell which topologies' drivers are alive.

    This takes time only for drivers on other machines, whose heartbeats have to be watched: a few seconds if they are
    alive, and twelve if not.

    :param records: the result of :func:`load_states`.
    """
    return _watch(kafka, _TOPOLOGY, records, HeartbeatWatch())


class Observed(NamedTuple):
    """A topology as another process sees it.

    :ivar record: its record in the topic.
    :ivar alive: whether its driver is alive.
    :ivar silent_s: for how many seconds the driver has written nothing, if that is long.
    """

    record: dict[str, Any]
    alive: bool
    silent_s: float | None

    @property
    def health(self) -> dict[str, Any]:
        """Its health: what the driver has told, if the driver is there and still writes."""
        return seen_health(self.record["summary"].get("health"), self.alive, self.silent_s)


def observe(kafka: KafkaSettings) -> dict[str, Observed]:
    """Return what is to be seen of all topologies, by name.

    This takes time only for drivers on other machines, as with :func:`watch_drivers`, and for those whose last heartbeat is older than some seconds.
    """
    newest, watched = _newest(kafka, _TOPOLOGY), HeartbeatWatch()
    for name, (record, written_ms) in newest.items():
        watched.update(name, record, written_ms)
    alive = _watch(kafka, _TOPOLOGY, {name: record for name, (record, _) in newest.items()}, watched, settle=True)
    return {name: Observed(newest[name][0], alive[name], watched.silent_s(name)) for name in sorted(newest)}


def _watch(kafka: KafkaSettings, kind: str, records: Mapping[str, Mapping[str, Any]], watched: HeartbeatWatch, *, settle: bool = False) -> dict[str, bool]:
    """Hand new records of a kind to ``watched`` until it is known whose heart beats, of topologies' drivers or of standbys; return that.

    :param settle: whether to go on until nothing more is learned by watching.
    """

    def known(name: str) -> bool:
        return watched.is_settled(name, records[name]) if settle else watched.verdict(name, records[name]) is not None

    for name, record in records.items():
        watched.update(name, record)
    if not all(map(known, records)):
        with closing(_consumer_at_end(kafka)) as consumer:
            while not all(map(known, records)):
                for record in consumer.poll(timeout_ms=200).get(_WHERE, ()):
                    name, document = read_record(record, kind)
                    if name in records and document is not None:
                        watched.update(name, document, record.timestamp)
                if _all_read(consumer):
                    watched.looked()
    return {name: bool(watched.verdict(name, record)) for name, record in records.items()}


def conf_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a topology's configuration; it names the copies of the files that tasks read, if these are readable here."""
    conf = record["state"]["conf"]
    try:
        return with_paths(conf, {tuple(key): path for key, path in record.get("files", ()) if os.access(path, os.R_OK)})
    except (ValueError, KeyError, TypeError):  # others may write to the topic
        log.warning("the files of topology %s are ignored: expected [[keys], path] pairs, given: %r", record["state"].get("name"), str(record["files"])[:60])
        return dict(conf)


def _files(managed: ManagedTopology) -> list[Any]:
    plan = managed.plan
    return [[list(key), path] for (component, key), path in declared_files(plan).items() if key[0] in plan.conf and key[0] not in plan.spec(component).conf]


def _logs(managed: ManagedTopology) -> str | None:
    """Return the folder of the executors' logs; None if they are on other machines."""
    folder, store = getattr(managed.backend, "folder", None), getattr(managed.backend, "store", None)
    return None if folder is None or store is None or store.remote else str(folder.absolute() / "logs")


class NimbusService:
    """Publishes the states of a manager's topologies, and carries out commands for them.

    :param lock: held while the manager is used.
    """

    def __init__(self, kafka: KafkaSettings, manager: TopologyManager, lock: threading.RLock) -> None:
        self._manager, self._lock = manager, lock
        self._publishing = threading.Lock()
        _ensure_topic(kafka)
        self._producer = kafka.producer()
        # What the other client writes has no content, so nobody takes it for a command.
        self._writes = WriteWatch(self._producer, lambda: write_once(kafka, NIMBUS_TOPIC, None, f"{_COMMAND}{uuid.uuid4().hex}".encode()))
        self._stop = threading.Event()
        self.driver = describe_driver()
        """The published description of this process."""
        self._beats = 0
        self._consumer = _consumer_at_end(kafka, fetch_max_wait_ms=500)  # here, where an error reaches the caller: a thread would end by it
        self._threads = [threading.Thread(target=run, name=f"nimbus-{run.__name__}", daemon=True) for run in (self._run_commands, self._run_heartbeat)]
        for thread in self._threads:
            thread.start()

    def publish(self, managed: ManagedTopology, *, removed: bool = False) -> None:
        """Write a topology's state, or its removal; if the brokers are away, the next heartbeat writes the state."""
        try:
            with self._publishing:
                name = managed.state.name
                if removed:
                    _send(self._producer, f"{_TOPOLOGY}{name}", None).get()
                    _send(self._producer, f"{_REMOVED}{name}", None).get()
                elif self._manager.topologies.get(name) is managed:  # a heartbeat must not write a removed topology again
                    record = {
                        "v": 1,
                        "state": managed.state.to_json(),
                        "summary": self._manager.summary(name),
                        "files": _files(managed),
                        "logs": _logs(managed),
                        "plan": PlanOutline.of(managed.plan).to_json(),
                        "store": managed.plan.conf.get(Config.TOPOLOGY_EMULATOR_STATE_URL),
                        "driver": self.driver,
                        "heartbeat": self._beats,
                    }
                    _send(self._producer, f"{_TOPOLOGY}{name}", record).get()
        except NotAliveException:
            pass  # it is being removed
        except KafkaError as error:
            log.warning("nimbus cannot write the state of topology %s: %s; trying again", managed.state.name, error)

    def close(self) -> None:
        """Stop listening; the states stay as they are."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=5)
        self._producer.close(timeout=5)

    def _run_heartbeat(self) -> None:
        # Without the manager's lock: a rebalance holds it for a long time, and must not look like a dead driver.
        while not self._stop.wait(HEARTBEAT_S):
            self._beats += 1
            for managed in list(self._manager.topologies.values()):
                try:
                    self.publish(managed)
                except Exception:  # an error of one topology must not stop the heartbeats of the others
                    log.exception("the state of topology %s cannot be published; trying again", managed.state.name)

    def _run_commands(self) -> None:
        with closing(self._consumer) as consumer:
            while not self._stop.is_set():
                try:
                    self._check_writes()
                    for record in consumer.poll(timeout_ms=500).get(_WHERE, ()):
                        self._handle_record(record)
                except KafkaError as error:
                    log.warning("nimbus cannot read commands: %s; trying again", error)
                    self._stop.wait(1)
                except Exception:  # a bad record must not prevent later commands
                    log.exception("nimbus had an error and continues")
                    self._stop.wait(1)

    def _check_writes(self) -> None:
        """End the topologies of this process if its heartbeats do not arrive, though others' records do."""
        if (problem := self._writes.problem()) is not None:
            drivers: list[Any] = [managed.backend for managed in list(self._manager.topologies.values())]
            for driver in drivers:
                driver.end(problem)

    def _handle_record(self, record: Any) -> None:
        identity, command = read_record(record, _COMMAND)
        if command is not None:
            self._carry_out(identity, command)
        name, removed = read_record(record, _REMOVED)
        managed: Any = self._manager.topologies.get(name)
        if removed is not None and managed is not None and managed.state.id == removed["id"]:
            managed.backend.abandon("it was killed from another shell, which took this process for dead")

    def _carry_out(self, identity: str, command: dict[str, Any]) -> None:
        with self._lock:
            if command.get("name") not in self._manager.topologies:
                return  # another driver runs it
            failure = None
            try:
                self._manager.execute(command)
            except TopologyError as error:
                failure = {"type": type(error).__name__, "text": str(error)}
            except Exception as error:  # the sender needs an answer in any case
                log.exception("command %s failed", command)
                failure = {"type": "TopologyError", "text": redact_text(f"{type(error).__name__}: {error}")}
        _send(self._producer, f"{_ANSWER}{identity}", {"v": 1, "error": failure}).get()
        _send(self._producer, f"{_COMMAND}{identity}", None).get()


class ClusterClient:
    """Inspects topologies and sends commands to them, for the command line."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka

    def topologies(self) -> list[dict[str, Any]]:
        """Return the summaries of all topologies by name; ``driver_alive`` tells whether their process is alive.

        It takes some seconds if a driver is on another machine or silent; see :func:`observe`.
        """
        return [
            {
                **seen.record["summary"],
                "health": seen.health,
                "driver_alive": seen.alive,
                "driver": {key: seen.record["driver"][key] for key in ("host", "pid")},
                "uptime_secs": max(0, (now_ms() - started_ms(seen.record)) // 1000),
            }
            for seen in observe(self._kafka).values()
        ]

    def standbys(self) -> dict[str, list[dict[str, Any]]]:
        """Return topology -> ``{"host", "pid"}`` of each process that stands by for it now.

        It takes a second or two if one is on another machine, and some more if it ended there without saying so.
        """
        records = _latest(self._kafka, _STANDBY)
        alive = _watch(self._kafka, _STANDBY, records, HeartbeatWatch(dead_after_s=STANDBY_GONE_AFTER_S))
        found: dict[str, list[dict[str, Any]]] = {}
        for key, record in sorted(records.items()):
            if alive[key]:
                found.setdefault(key.partition("/")[2], []).append({part: record["driver"][part] for part in ("host", "pid")})
        return found

    def _record(self, name: str) -> dict[str, Any]:
        record = load_states(self._kafka).get(name)
        if record is None:
            raise NotAliveException.for_topology(name)
        return record

    def send(self, command: Mapping[str, Any], timeout_s: float = 60) -> None:
        """Send ``{"name", "event", ...}`` to the process that runs the topology, and wait for its answer.

        Killing a topology whose process has ended removes what it has left in Kafka. Its folder is removed when a topology
        of that name is submitted there.

        :raises NotAliveException: no such topology.
        :raises TopologyError: the other process refused the command, with its text; or there was no answer.
        """
        name = command["name"]
        record = self._record(name)
        if alive_on_this_machine(record["driver"]) is False or not self._ask(command, record, timeout_s):
            if command["event"] == "KILL":
                self._remove_left_over(record)
                return
            raise TopologyError(
                f"the process that runs topology {name!r} is gone (pid {record['driver']['pid']} on {record['driver']['host']}); "
                "hint: submit it again to resume it, or kill it to remove what it has left"
            )

    def _ask(self, command: Mapping[str, Any], record: Mapping[str, Any], timeout_s: float) -> bool:
        """Send a command and wait for its answer; return False if the driver's heartbeat stops meanwhile."""
        name, identity, watched = command["name"], uuid.uuid4().hex, HeartbeatWatch()
        watched.update(name, record)
        with closing(_consumer_at_end(self._kafka)) as consumer, self._kafka.producer() as producer:
            consumer.position(_WHERE)  # without this, seek_to_end would take effect only with the first poll
            _send(producer, f"{_COMMAND}{identity}", {"v": 1, **command}).get()
            deadline = time.monotonic() + max(timeout_s, DEAD_AFTER_S + 1)
            while time.monotonic() < deadline:
                for answer in consumer.poll(timeout_ms=200).get(_WHERE, ()):
                    asked, outcome = read_record(answer, _ANSWER)
                    if asked == identity and outcome is not None:
                        _send(producer, f"{_ANSWER}{identity}", None).get()
                        _raise(outcome["error"])
                        return True
                    seen, document = read_record(answer)
                    if seen == name and document is not None:
                        watched.update(name, document)
                with suppress(KafkaError):  # while they are away, the driver's heartbeats do not arrive either
                    if _all_read(consumer, _SHORT_MS):
                        watched.looked()
                if watched.verdict(name, record) is False:
                    _send(producer, f"{_COMMAND}{identity}", None).get()
                    return False
        raise KafkaTimeoutError(
            f"topology {name!r} did not answer within {timeout_s:g} s; expected an answer to {command['event']}; "
            "hint: its process runs and may still do it; see its log"
        )

    def _remove_left_over(self, record: Mapping[str, Any]) -> None:
        name, components = record["state"]["name"], record["state"]["components"]
        with self._kafka.producer() as producer:
            # Before the topics are deleted, so that a driver that is alive after all ends without trying to use them.
            _send(producer, f"{_REMOVED}{name}", {"v": 1, "id": record["state"]["id"]}).get()
            with TopicAdmin(self._kafka) as admin:
                bolts = system_bolts(record["state"].get("conf") or {})
                topics = [inbox_topic(name, c) for c in (*components, *bolts)]
                admin.delete([*topics, metrics_topic(name), state_topic(name), chunks_topic(name)])
            _send(producer, f"{_TOPOLOGY}{name}", None).get()

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
    """Raise the error in an answer, as the class that it names if that is a ``TopologyError``."""
    if error is None:
        return
    kind = getattr(topology_errors, error["type"], TopologyError)
    if not (isinstance(kind, type) and issubclass(kind, TopologyError)):
        kind = TopologyError
    failure = kind.__new__(kind)
    Exception.__init__(failure, error["text"])
    raise failure
